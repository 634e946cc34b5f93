// Builds the maps that the page carries as JSON, and the buttons around them.

const button = (text, pressed, action, label = "") => {
  const made = make("button", { type: "button", text, ...(label && { "aria-label": label, title: label }) });
  if (pressed !== null) made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", () => action(made));
  return made;
};

// A button that stays pressed until it is pressed again.
const toggle = (text, on, act, label) => button(text, on, (made) => {
  on = !on;
  made.setAttribute("aria-pressed", String(on));
  act(on);
}, label);

const group = (name, ...parts) => make("div", { class: "group", role: "group", "aria-label": name },
  make("span", { class: "name", text: name }), ...parts);

// One of several: buttons, or a list where there are too many for buttons.
const choice = (name, names, act) => {
  if (names.length > 13) {
    const made = make("select", { "aria-label": name }, ...names.map((each) => new Option(short(each))));
    made.addEventListener("change", () => act(made.selectedIndex));
    return group(name, made);
  }
  const buttons = names.map((each, number) => button(short(each), number === 0, (pressed) => {
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === pressed)));
    act(number);
  }));
  return group(name, ...buttons);
};

const GLYPHS = { circle: "●", ring: "○", square: "■", diamond: "◆", "triangle-up": "▲", cross: "✚", x: "✖" };
const mark = (look) => {
  const made = make("span", { class: "mark", "aria-hidden": "true", text: GLYPHS[look.symbol] });
  made.style.color = inTheme(look);
  return made;
};

const save = (blob, name) => {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};

const byId = (kind, key) => document.getElementById(`${kind}-${key}`);
const plainLook = (name) => { const colour = theme()[name]; return { symbol: "circle", light: colour, dark: colour }; };
const boxOf = (...pairs) => {
  const box = [Infinity, -Infinity, Infinity, -Infinity];
  for (const [x, y] of pairs) {
    for (let i = 0; i < x.length; i++) {
      box[0] = Math.min(box[0], x[i]); box[1] = Math.max(box[1], x[i]);
      box[2] = Math.min(box[2], y[i]); box[3] = Math.max(box[3], y[i]);
    }
  }
  return box[0] > box[1] ? [-1, 1, -1, 1] : box;
};

// Points, to be coloured by one of their columns, over anchors and a density where there are some.
class PointMap {
  constructor(key, spec) {
    Object.assign(this, { key, spec, chosen: 0, gone: new Set(), off: new Set(), found: [], area: 0 });
    this.x = unpack(spec.x);
    this.y = unpack(spec.y);
    this.every = Uint32Array.from(this.x, (_, i) => i);
    this.size = Math.max(1.4, Math.min(spec.compact || spec.density ? 2.4 : 4, 130 / Math.sqrt(this.x.length || 1)));
    this.anchors = spec.anchors?.map(unpack);
    this.weak = spec.weak && unpack(spec.weak);
    this.ids = spec.ids ?? Array.from(unpack(spec.numbers), String);
    this.columns = spec.columns.map((each) => ({
      ...each, codes: each.codes && unpack(each.codes), values: each.values && unpack(each.values),
    }));
    this.offered = this.columns.filter((each) => each.groups || "low" in each);
    this.density = spec.density && new DensityLayers(spec.density);
    const half = spec.density?.drawn_half, corners = half ? [[[-half, half], [-half, half]]] : [];
    const box = boxOf([this.x, this.y], ...(this.anchors ? [this.anchors] : []), ...corners);
    this.chart = new Chart(byId("plot", key), {
      box, label: byId("plot", key).getAttribute("aria-label"), note: spec.note,
      tell: (text) => { const said = byId("said", key); if (said) said.textContent = text; },
    });
    if (spec.noise) {
      this.off.add("points");
      byId("plot", key).append(make("p", { class: "verdict", text: spec.noise }));
    }
    byId("plot", key).chart = this.chart; // for whoever looks at the page from outside
    if (!spec.compact) this.controls();
    this.update();
  }

  value(column, i) { return column.values ? digits(column.values[i]) : column.names[column.codes[i]] ?? "missing"; }

  words(i) {
    const now = this.offered[this.chosen];
    const told = this.columns.filter((each) => each.listed || each === now);
    return [
      short(`${this.spec.noun} ${this.ids[i]}`, 80),
      ...told.map((each) => `${short(each.key, 40)}: ${short(this.value(each, i))}`),
      ...(this.weak?.[i] ? ["held by too few records to be told from noise"] : []),
    ];
  }

  // The groups that the points are drawn in.
  series() {
    const column = this.offered[this.chosen];
    if (!column) {
      return [{ name: this.spec.noun, part: this.every, look: plainLook(this.density ? "quiet" : "accent"), plain: true }];
    }
    const missing = { name: "missing", ...plainLook("soft"), symbol: "ring" };
    if (!column.groups) {
      const known = this.every.filter((i) => Number.isFinite(column.values[i]));
      const rest = this.every.filter((i) => !Number.isFinite(column.values[i]));
      const last = shades().length - 1, span = column.high - column.low || 1;
      const shade = Uint8Array.from(column.values, (value) =>
        Math.max(0, Math.min(last, Math.round(((value - column.low) / span) * last))) || 0);
      return [
        { name: column.key, part: known, look: plainLook("accent"), shade, scale: column },
        ...(rest.length ? [{ name: missing.name, part: rest, look: missing }] : []),
      ];
    }
    const looks = [...column.groups, missing], sorted = looks.map(() => []);
    for (const i of this.every) {
      const code = column.codes[i];
      sorted[code < column.names.length ? Math.min(code, looks.length - 2) : looks.length - 1].push(i);
    }
    return looks.map((look, number) => ({ name: look.name, part: sorted[number], look })).filter(({ part }) => part.length);
  }

  layers() {
    const { x, y, size, weak, spec } = this;
    const series = this.series().map((each, number) => ({ ...each, hidden: this.gone.has(number) }));
    const noun = (count) => `${count} ${spec.noun}${count === 1 ? "" : "s"}`;
    const points = {
      name: "points", x, y, size, weak, series, hidden: this.off.has("points"), words: (i) => this.words(i),
      count: (inside) => {
        const shown = series.filter((each) => !each.hidden);
        return `${noun(shown.reduce((sum, { part }) => sum + part.reduce((all, i) => all + inside(x[i], y[i]), 0), 0))} on the map`;
      },
    };
    const [ax, ay] = this.anchors ?? [];
    return [
      ...(this.density?.layers(this.area, this.off) ?? []),
      ...(this.anchors ? [{
        name: "anchors", x: ax, y: ay, size: Math.min(size, 2.4), opacity: 0.6, hidden: this.off.has("anchors"),
        series: [{ name: "anchors", part: Uint32Array.from(ax, (_, i) => i), look: plainLook("soft") }],
      }] : []),
      points,
      ...(this.density ? [this.density.names(this.area, this.off)] : []),
      ...(this.found.length ? [{
        name: "found", x, y, size: size + 5, opacity: 1,
        series: [{ name: "found", part: this.found, look: { ...plainLook("ink"), symbol: "ring" } }],
      }] : []),
    ];
  }

  update() {
    this.chart.set(this.layers());
    if (this.spec.compact) return;
    const legend = byId("legend", this.key), series = this.series();
    legend.replaceChildren(...series.filter((each) => !each.plain).map((each, number) => {
      if (each.scale) return scaleOf(each.scale);
      const made = toggle(short(each.name), !this.gone.has(number), (on) => {
        this.gone[on ? "delete" : "add"](number);
        this.chart.set(this.layers());
      });
      made.prepend(mark(each.look), " ");
      return made;
    }), ...(this.weak?.some(Boolean) && !this.off.has("points") ? [make("span", { class: "scale", text: "faded: not above the noise;" })] : []),
    ...(this.density && !this.off.has("density") ? [this.density.scale(this.area)] : []));
  }

  controls() {
    const { key, spec, chart, density } = this, controls = byId("controls", key), tools = byId("tools", key);
    const layer = (name, text) => toggle(text, !this.off.has(name), (on) => {
      this.off[on ? "delete" : "add"](name);
      this.update();
    });
    if (density?.areas.length > 1) {
      controls.append(choice("Density of", density.areas, (number) => { this.area = number; this.update(); }));
    }
    if (this.offered.length) {
      controls.append(choice("Colour by", [...this.offered.map((each) => each.key), "none"], (number) => {
        this.chosen = number;
        this.gone = new Set();
        this.update();
      }));
    }
    const parts = [
      ...(density ? [layer("density", "density"), ...(density.named ? [layer("names", "names")] : [])] : []),
      ...(this.anchors ? [layer("anchors", "anchors")] : []),
      ...(density || this.anchors || spec.noise ? [layer("points", spec.noise ? "noise" : `${spec.noun}s`)] : []),
    ];
    if (parts.length) controls.append(group("Layers", ...parts));
    if (spec.search) this.search(controls);
    const drag = toggle("lasso", false, (on) => {
      chart.mode = on ? "lasso" : "move";
      chart.plot.classList.toggle("lassoing", on);
    }, "Draw a line around points to count them");
    tools.append(
      button("+", null, () => chart.zoomBy(1 / 0.7), "Zoom in"), button("−", null, () => chart.zoomBy(0.7), "Zoom out"),
      button("all", null, () => chart.reset(), "Show all"), drag,
      button("PNG", null, async () => save(await pngOf(chart), `${key}.png`), "Save as PNG"),
      button("SVG", null, () => save(new Blob([svgOf(chart)], { type: "image/svg+xml" }), `${key}.svg`), "Save as SVG"),
    );
  }

  // The record of this name, or else all whose name has these letters.
  search(controls) {
    const box = make("input", { type: "search", "aria-label": `Find ${short(this.spec.noun)}` });
    const told = make("span", { class: "told", role: "status" });
    box.addEventListener("input", () => {
      const sought = box.value.trim().toLowerCase();
      const those = (fits) => this.every.filter((i) => fits(this.ids[i].toLowerCase()));
      this.found = sought ? those((id) => id === sought) : [];
      if (sought && !this.found.length) this.found = those((id) => id.includes(sought));
      told.textContent = sought ? `${this.found.length} found` : "";
      this.chart.set(this.layers());
    });
    controls.append(group(`Find ${short(this.spec.noun, 20)}`, box, told));
  }
}

// A colour scale with its two ends.
const scaleOf = ({ key, low, high }) => {
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, ...shades().map((colour) => {
    const made = make("span");
    made.style.background = colour;
    return made;
  }));
  return make("span", { class: "scale" }, `${short(key, 40)}: ${digits(low)} `, bar, ` ${digits(high)}`);
};

// The noisy density: smooth areas that stand out of the noise, and counts with their noise from the released cells.
class DensityLayers {
  constructor(spec) {
    this.spec = spec;
    this.shares = unpack(spec.shares);
    this.areas = spec.areas.map((each) => each.name);
    this.named = spec.areas.some((each) => each.names.length);
    this.fills = spec.areas.map((area) => area.fills.map((each) => ({ ...each, d: this.path(each) })));
  }

  path({ rings, starts }) {
    const at = unpack(rings), from = unpack(starts), parts = [];
    for (let ring = 0; ring + 1 < from.length; ring++) {
      for (let i = from[ring]; i < from[ring + 1]; i++) parts.push(i === from[ring] ? "M" : "L", at[2 * i], " ", at[2 * i + 1]);
      parts.push("Z");
    }
    return parts.join("");
  }

  // Records in some cells, ± two standard deviations of their noise. What was released adds up, not what is drawn.
  told(cells, members) {
    const { cells: side, noise, records } = this.spec, unit = records ?? 100;
    let sum = 0;
    for (const member of members) for (const cell of cells) sum += this.shares[member * side * side + cell];
    const two = 2 * noise * Math.sqrt(cells.length * members.length) * unit;
    return `about ${about(sum * unit)} ± ${about(two)}${records ? " records" : " % of all records"} by the density`;
  }

  layers(area, off) {
    const { half, drawn_half, cells: side, areas } = this.spec, { members, fills } = areas[area];
    const middle = (number) => ((number + 0.5) / side * 2 - 1) * half;
    const every = Array.from({ length: side * side }, (_, i) => i);
    return [{
      name: "density", half: drawn_half, fills: this.fills[area], levels: fills.length, hidden: off.has("density"),
      count: (inside) => {
        const cells = every.filter((i) => inside(middle(i % side), middle(Math.floor(i / side))));
        return cells.length ? this.told(cells, members) : "no cell of the density";
      },
      ground: (x, y) => {
        const column = Math.floor((x / half + 1) / 2 * side), row = Math.floor((y / half + 1) / 2 * side);
        if (column < 0 || row < 0 || column >= side || row >= side) return [];
        return [areas[area].name === "classes" ? "this cell, all classes" : `this cell, ${short(areas[area].name)}`,
          this.told([row * side + column], members)];
      },
    }];
  }

  names(area, off) { return { name: "names", names: this.spec.areas[area].names, hidden: off.has("density") || off.has("names") }; }

  scale(area) {
    const { records, areas } = this.spec, { levels, alpha, fills } = areas[area], unit = records ?? 100;
    const per = records ? "records in a cell" : "% of all records in a cell";
    if (!levels.length) return make("span", { class: "scale", text: "no cell stands out of the noise, so none is coloured" });
    const steps = levels.map((level, number) => {
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.backgroundColor = inTheme(areas[area].names.length > 1 ? { light: "#444444", dark: "#cccccc" } : fills[0]);
      swatch.style.opacity = 1 - (1 - alpha) ** (number + 1);
      return make("span", { class: "step" }, swatch, ` ≥ ${about(level * unit)}`);
    });
    return make("span", { class: "scale" }, `${per}: `, ...steps, make("span", { text: " less is noise and not coloured" }));
  }
}

// A slider over alternatives, all of which are on the page.
const slider = (input) => {
  const slides = [...document.querySelectorAll(`[data-slide="${input.dataset.slider}"]`)];
  const count = Number(input.max) + 1;
  const show = () => slides.forEach((each, number) => each.classList.toggle("away", number % count !== Number(input.value)));
  input.addEventListener("input", show);
  show();
};

const figures = JSON.parse(document.getElementById("figures").textContent);
const maps = Object.entries(figures).map(([key, spec]) => new PointMap(key, spec));
document.querySelectorAll("input[data-slider]").forEach(slider);
scheme.addEventListener("change", () => maps.forEach((each) => each.update()));
// For whoever waits for the maps, such as a test.
const ready = () => (maps.every((each) => each.chart.drawn)
  ? Object.assign(document.documentElement.dataset, { drawn: "true", ready: String(Math.round(performance.now())) })
  : requestAnimationFrame(ready));
ready();
