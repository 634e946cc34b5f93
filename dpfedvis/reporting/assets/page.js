"use strict";
// Draws the maps that the page carries as JSON, in the colours of the reader's theme.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const webgl = Boolean(document.createElement("canvas").getContext("webgl"));
  const THEME = ["ink", "accent", "soft", "panel"];
  const CONFIG = {
    responsive: true, displayModeBar: false, scrollZoom: false, // the page has buttons of its own, for every reader
  };

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(THEME.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  };

  const unpack = ({ dtype, bdata }) => {
    const bytes = Uint8Array.from(atob(bdata), (letter) => letter.charCodeAt(0));
    return new { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array }[dtype](bytes.buffer);
  };

  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const bare = { visible: false, showgrid: false, zeroline: false };
  const mapLayout = (plot, { ink, panel, soft }, range) => ({
    xaxis: { ...bare, ...(range && { range: range[0] }) },
    yaxis: { ...bare, scaleanchor: "x", ...(range && { range: range[1] }) },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    hoverlabel: { bgcolor: panel, bordercolor: soft, font: { color: ink } },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    hovermode: "closest",
    showlegend: false,
    uirevision: "kept",
    // A drag does what the reader has chosen, also after a change of colours; on a touch screen it scrolls the page.
    dragmode: plot.layout?.dragmode ?? (coarse ? false : "zoom"),
  });

  const button = (text, pressed, action) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    if (pressed !== null) made.setAttribute("aria-pressed", String(pressed));
    made.addEventListener("click", () => action(made));
    return made;
  };

  const label = (text, kind = "name") => {
    const made = document.createElement("span");
    made.className = kind;
    made.textContent = text;
    return made;
  };

  // Buttons of which one is pressed.
  const choice = (names, chosen, act) => {
    const buttons = names.map((name, number) => button(name, number === chosen, (pressed) => {
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === pressed)));
      act(number);
    }));
    return buttons;
  };

  // The same as a list, where there are too many for buttons.
  const pick = (names, name, act) => {
    const made = document.createElement("select");
    made.setAttribute("aria-label", name);
    made.append(...names.map((each) => new Option(each)));
    made.addEventListener("change", () => act(made.selectedIndex));
    return [made];
  };

  // Buttons with the colour and shape of a series, pressed while it is shown.
  const switches = (box, series, hidden, act) => box.replaceChildren(...series.map(({ name, light, dark, glyph }, number) => {
    const made = button("", !hidden.has(number), (pressed) => {
      if (!hidden.delete(number)) hidden.add(number);
      pressed.setAttribute("aria-pressed", String(!hidden.has(number)));
      act(number);
    });
    const mark = label(glyph + " ", "mark");
    mark.setAttribute("aria-hidden", "true");
    mark.style.color = scheme.matches ? dark : light;
    made.append(mark, name);
    return made;
  }));

  // Move the window by a part of its width, or scale it.
  const shift = (plot, right, up, factor = 1) => {
    const update = {};
    for (const [name, by] of [["xaxis", right], ["yaxis", up]]) {
      const [low, high] = plot.layout[name].range;
      const middle = (low + high) / 2 + by * (high - low), half = ((high - low) / 2) * factor;
      update[name + ".range"] = [middle - half, middle + half];
    }
    return Plotly.relayout(plot, update);
  };

  const windows = (plot, reset) => {
    const made = [
      button("+", null, () => shift(plot, 0, 0, 0.7)), button("−", null, () => shift(plot, 0, 0, 1 / 0.7)),
      button("all", null, () => Plotly.relayout(plot, reset)),
    ];
    ["Zoom in", "Zoom out", "Show all"].forEach((name, number) => made[number].setAttribute("aria-label", name));
    const modes = ["zoom", "pan"];
    const drags = choice(["zooms", "moves"], coarse ? -1 : 0, (number) =>
      Plotly.relayout(plot, { dragmode: modes[number] }));
    const keys = {
      ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.15], ArrowDown: [0, -0.15],
      "+": [0, 0, 0.7], "-": [0, 0, 1 / 0.7],
    };
    plot.tabIndex = 0;
    plot.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      shift(plot, ...keys[event.key]);
    });
    return [label("Zoom"), ...made, label("", "gap"), label("A drag"), ...drags];
  };

  // A map whose points are coloured by one of their groupings.
  const points = (key, spec, plot) => {
    const x = unpack(spec.x), y = unpack(spec.y), numbers = unpack(spec.numbers);
    const groupings = spec.groupings.map((each) => ({ ...each, codes: unpack(each.codes) }));
    const size = Math.max(2.5, Math.min(7, 260 / Math.sqrt(x.length)));
    const words = (i) => [
      `${spec.noun} ${numbers[i]}`,
      ...groupings.map((each) => plain(/^\d/.test(each.names[each.codes[i]])
        ? `${each.key} ${each.names[each.codes[i]]}` : each.names[each.codes[i]])),
    ].join("<br>");
    let chosen = groupings.length ? 0 : -1;
    let hidden = new Set();

    const traces = () => {
      const grouping = groupings[chosen];
      const count = grouping ? grouping.names.length : 1;
      const parts = Array.from({ length: count }, () => []);
      for (let i = 0; i < x.length; i++) parts[grouping ? grouping.codes[i] : 0].push(i);
      return parts.map((part, number) => {
        const look = grouping?.looks[number];
        return {
          type: spec.webgl && webgl ? "scattergl" : "scatter",
          mode: "markers",
          name: plain(grouping ? grouping.names[number] : spec.noun),
          x: Float32Array.from(part, (i) => x[i]),
          y: Float32Array.from(part, (i) => y[i]),
          text: part.map(words),
          hovertemplate: "%{text}<extra></extra>",
          visible: !hidden.has(number),
          marker: {
            size, opacity: 0.85, symbol: look?.symbol ?? "circle",
            color: look ? (scheme.matches ? look.dark : look.light) : theme().accent,
          },
        };
      });
    };

    const draw = () => Plotly.react(plot, traces(), mapLayout(plot, theme()), CONFIG);

    const legend = () => {
      const grouping = groupings[chosen];
      const series = grouping ? grouping.names.map((name, number) => ({ name, ...grouping.looks[number] })) : [];
      switches(document.getElementById("legend-" + key), series, hidden, (number) =>
        Plotly.restyle(plot, { visible: !hidden.has(number) }, [number]));
    };

    const controls = document.getElementById("controls-" + key);
    if (spec.compact) { // one of many: no buttons, but the keys work
      windows(plot, {});
      return draw;
    }
    if (groupings.length) {
      const names = [...groupings.map((each) => each.key), "none"];
      controls.append(label("Colour by"), ...choice(names, 0, (number) => {
        chosen = number < groupings.length ? number : -1;
        hidden = new Set();
        legend();
        draw();
      }), label("", "gap"));
    }
    controls.append(...windows(plot, { "xaxis.autorange": true, "yaxis.autorange": true }));
    return () => { legend(); return draw(); };
  };

  const MISSING = "missing";
  const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
  const short = (text, most) => (text.length > most ? Array.from(text).slice(0, most - 1).join("") + "…" : text);
  const digits = (value) => {
    if (Number.isNaN(value)) return MISSING;
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    if (Number.isInteger(value)) return String(value);
    return String(Math.abs(value) < 1e5 ? Number(value.toPrecision(6)) : Math.round(value));
  };

  // Records of one site over the anchors, coloured by one of their columns.
  const own = (key, spec, plot) => {
    const x = unpack(spec.x), y = unpack(spec.y), anchors = spec.anchors?.map(unpack);
    const ids = spec.ids ?? Array.from(unpack(spec.numbers), String);
    const columns = spec.columns.map((each) => ({
      ...each, codes: each.codes && unpack(each.codes), values: each.values && unpack(each.values),
    }));
    const offered = columns.filter((each) => each.groups || "low" in each);
    const value = (column, i) => (column.values ? digits(column.values[i]) : column.names[column.codes[i]] ?? MISSING);
    const line = (column, i) => plain(`${short(column.key, 40)}: ${short(value(column, i), 60)}`);
    const listed = columns.filter((each) => each.listed);
    const words = ids.map((id, i) => [
      `<b>${plain(short(`${spec.noun} ${id}`, 80))}</b>`, ...listed.map((each) => line(each, i)),
    ].join("<br>"));
    const size = Math.max(3, Math.min(8, 260 / Math.sqrt(x.length)));
    const type = webgl ? "scattergl" : "scatter";
    const below = anchors ? 1 : 0; // traces under those of the records
    let chosen = 0, hidden = new Set(), withAnchors = true, found = [];

    const dots = (part, name, marker, visible = true) => ({
      type, mode: "markers", name: plain(name), visible,
      x: Float32Array.from(part, (i) => x[i]), y: Float32Array.from(part, (i) => y[i]),
      text: part.map((i) => (offered[chosen] && !offered[chosen].listed
        ? `${words[i]}<br>${line(offered[chosen], i)}` : words[i])),
      hovertemplate: "%{text}<extra></extra>",
      marker: { size, opacity: 0.9, ...marker },
    });

    // What is drawn of the records, each with its points, marker and look in the legend.
    const parts = () => {
      const column = offered[chosen], { accent, soft } = theme();
      const every = Array.from(x, (_, i) => i);
      const missing = { name: MISSING, light: soft, dark: soft, symbol: "circle-open", glyph: "○" };
      if (!column) return [{ part: every, marker: { color: accent } }];
      if (column.groups) {
        const looks = [...column.groups, missing], sorted = looks.map(() => []);
        every.forEach((i) => sorted[column.codes[i] < column.names.length
          ? Math.min(column.codes[i], looks.length - 2) : looks.length - 1].push(i));
        return looks.map((look, number) => ({
          part: sorted[number], look, marker: { symbol: look.symbol, color: scheme.matches ? look.dark : look.light },
        })).filter(({ part }) => part.length);
      }
      // The end that is as dark, or as light, as the ground is left out.
      const shades = scheme.matches ? VIRIDIS.slice(2) : VIRIDIS.slice(0, -1);
      const known = every.filter((i) => Number.isFinite(column.values[i]));
      const scale = {
        color: known.map((i) => column.values[i]), cmin: column.low, cmax: column.high,
        colorscale: shades.map((each, number) => [number / (shades.length - 1), each]),
        line: { width: size > 5 ? 0.5 : 0, color: soft },
        colorbar: { thickness: 12, len: 0.7, outlinewidth: 0, title: { text: plain(short(column.key, 40)), side: "right" } },
      };
      const rest = every.filter((i) => !Number.isFinite(column.values[i]));
      return [
        ...(rest.length ? [{ part: rest, look: missing, marker: { symbol: missing.symbol, color: soft } }] : []),
        { part: known, marker: scale },
      ];
    };

    const draw = () => {
      const { ink, soft } = theme();
      const traces = parts().map(({ part, look, marker }, number) =>
        dots(part, look?.name ?? spec.noun, marker, !hidden.has(number)));
      if (anchors) {
        traces.unshift({
          type, mode: "markers", name: "anchors", x: anchors[0], y: anchors[1], hoverinfo: "skip", visible: withAnchors,
          marker: { size: Math.min(size, 5), color: soft, opacity: 0.6 },
        });
      }
      const ring = { size: size + 9, opacity: 1, symbol: "circle-open", color: ink, line: { width: 2.5 } };
      if (found.length) traces.push({ ...dots(found, "found", ring), hoverinfo: "skip", hovertemplate: null });
      const layout = mapLayout(plot, theme());
      // Room for a scale, so that the map does not move when another column is chosen.
      if (plot.clientWidth > 500 && offered.some((each) => each.values)) layout.margin.r = 90;
      return Plotly.react(plot, traces, layout, CONFIG);
    };

    const legend = () => {
      const looks = parts().map(({ look }) => look).filter(Boolean);
      switches(document.getElementById("legend-" + key), looks.map((each) => ({ ...each, name: short(each.name, 60) })),
        hidden, (number) => Plotly.restyle(plot, { visible: !hidden.has(number) }, [number + below]));
    };

    const names = [...offered.map((each) => short(each.key, 60)), "none"];
    const act = (number) => {
      chosen = number;
      hidden = new Set();
      legend();
      draw();
    };
    const controls = document.getElementById("controls-" + key);
    if (offered.length) {
      const made = names.length > 6 ? pick(names, "Colour by", act) : choice(names, 0, act);
      controls.append(label("Colour by"), ...made, label("", "gap"));
    }
    const box = document.createElement("input"), told = label("", "told");
    box.type = "search";
    box.setAttribute("aria-label", `Find ${spec.noun}`);
    told.setAttribute("role", "status");
    // The record of this name, or else all whose name has these letters.
    box.addEventListener("input", () => {
      const sought = box.value.trim().toLowerCase();
      const those = (fits) => ids.flatMap((id, i) => (fits(id.toLowerCase()) ? [i] : []));
      found = sought ? those((id) => id === sought) : [];
      if (sought && !found.length) found = those((id) => id.includes(sought));
      told.textContent = sought ? `${found.length} found` : "";
      draw();
    });
    controls.append(label(`Find ${short(spec.noun, 20)}`), box, told, label("", "gap"));
    if (anchors) {
      controls.append(button("anchors", true, (pressed) => {
        withAnchors = !withAnchors;
        pressed.setAttribute("aria-pressed", String(withAnchors));
        draw();
      }), label("", "gap"));
    }
    controls.append(...windows(plot, { "xaxis.autorange": true, "yaxis.autorange": true }));
    return () => { legend(); return draw(); };
  };

  // Shares of records on a grid, under the anchors.
  const density = (key, spec, plot) => {
    const layers = spec.layers.map((each) => ({ ...each, z: unpack(each.z) }));
    const side = Array.from({ length: spec.cells }, (_, i) => ((i + 0.5) / spec.cells * 2 - 1) * spec.half);
    const x = unpack(spec.x), y = unpack(spec.y);
    const range = [-spec.half, spec.half];
    let chosen = 0, withAnchors = true;
    const draw = () => {
      const colours = theme();
      const { z } = layers[chosen];
      const rows = Array.from({ length: spec.cells }, (_, i) => z.subarray(i * spec.cells, (i + 1) * spec.cells));
      const heat = {
        type: "heatmap", x: side, y: side, z: rows.map((row) => Array.from(row)), zmin: 0,
        colorscale: [[0, colours.panel], [0.35, "#41a0c4"], [1, scheme.matches ? "#f4f1c9" : "#0b2f66"]],
        colorbar: { thickness: 10, len: 0.6, title: { text: "%" }, outlinewidth: 0 },
        hovertemplate: "%{z:.2f} % of all records<extra></extra>",
      };
      const dots = {
        type: "scatter", mode: "markers", x, y, hoverinfo: "skip", visible: withAnchors,
        marker: { size: 4, color: colours.soft, line: { width: 0.5, color: colours.panel } },
      };
      return Plotly.react(plot, [heat, dots], mapLayout(plot, colours, [range, range]), CONFIG);
    };
    const controls = document.getElementById("controls-" + key);
    if (layers.length > 1) {
      controls.append(label("Show"), ...choice(layers.map((each) => each.name), 0, (number) => {
        chosen = number;
        draw();
      }), label("", "gap"));
    }
    controls.append(button("anchors", true, (pressed) => {
      withAnchors = !withAnchors;
      pressed.setAttribute("aria-pressed", String(withAnchors));
      draw();
    }), label("", "gap"), ...windows(plot, { "xaxis.range": range.slice(), "yaxis.range": range.slice() }));
    return draw;
  };

  const kinds = { points, own, density };
  const draws = Object.entries(figures).map(([key, spec]) =>
    kinds[spec.kind](key, spec, document.getElementById("plot-" + key)));
  const all = () => Promise.all(draws.map((draw) => draw()));
  scheme.addEventListener("change", all);
  // For whoever waits for the maps, such as a test.
  all().then(() => { document.documentElement.dataset.drawn = "true"; });
})();
