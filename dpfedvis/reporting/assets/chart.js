// One map: layers on a canvas, what the reader points at and draws on top of it as SVG.
//
// A layer is one of
//   fills  {fills: [{light, dark, alpha, d}], half}     areas, in 65535ths of the box from −half to half
//   dots   {x, y, series: [{name, look, part, …}], size, weak?, words?}
//   names  {names: [{name, x, y}]}
// and all of them share one coordinate system, in which both axes have one scale.

const SVG = "http://www.w3.org/2000/svg";
const REACH = 16; // pixels within which a point is pointed at
const FINE = 65535;

class Chart {
  constructor(plot, { box, label, note = "", tell = () => {} }) {
    Object.assign(this, { plot, box, note, tell, layers: [], lasso: null, mode: "move", at: null });
    this.canvas = make("canvas");
    this.top = document.createElementNS(SVG, "svg");
    this.top.setAttribute("aria-hidden", "true");
    this.tip = make("div", { class: "tip" });
    this.tip.hidden = true;
    plot.append(this.canvas, this.top, this.tip);
    plot.tabIndex = 0;
    plot.setAttribute("aria-label", `${label} Arrows move, plus and minus zoom, 0 shows all, N and P go from point to point.`);
    this.home();
    this.listen();
    new ResizeObserver(() => this.fit()).observe(plot);
  }

  // Geometry

  home() {
    const [left, right, bottom, top] = this.box;
    Object.assign(this, { x: (left + right) / 2, y: (bottom + top) / 2, zoom: 1 });
  }

  fit() {
    const { width, height } = this.plot.getBoundingClientRect();
    if (!width || !height) return;
    Object.assign(this, { width: Math.round(width), height: Math.round(height), ratio: devicePixelRatio || 1 });
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.draw();
  }

  get scale() {
    const [left, right, bottom, top] = this.box;
    return 0.96 * this.zoom * Math.min(this.width / (right - left || 1), this.height / (top - bottom || 1));
  }

  // A place on the map as pixels, and back.
  pixel(x, y) { return [this.width / 2 + (x - this.x) * this.scale, this.height / 2 - (y - this.y) * this.scale]; }
  place(left, top) { return [this.x + (left - this.width / 2) / this.scale, this.y - (top - this.height / 2) / this.scale]; }

  get window() {
    const [left, bottom] = this.place(0, this.height), [right, top] = this.place(this.width, 0);
    return [left, right, bottom, top];
  }

  zoomBy(factor, left = this.width / 2, top = this.height / 2) {
    const [x, y] = this.place(left, top);
    this.zoom = Math.min(200, Math.max(0.5, this.zoom * factor));
    const [newX, newY] = this.place(left, top);
    this.moveTo(this.x + x - newX, this.y + y - newY);
  }

  moveTo(x, y) {
    Object.assign(this, { x, y });
    this.draw();
    this.report();
  }

  reset() {
    this.home();
    this.lasso = null;
    this.draw();
    this.report();
  }

  // Drawing

  set(layers) {
    this.layers = layers;
    this.draw();
    this.report();
  }

  draw() {
    if (this.waiting || !this.width) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint(this.canvas.getContext("2d"), this.ratio);
      this.over();
      this.drawn = true;
    });
  }

  paint(pen, ratio) {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.width * ratio, this.height * ratio);
    for (const layer of this.layers) {
      if (layer.hidden) continue;
      if (layer.fills) this.paintFills(pen, ratio, layer);
      if (layer.series) this.paintDots(pen, ratio, layer);
      if (layer.names) this.paintNames(pen, ratio, layer);
    }
    pen.globalAlpha = 1;
  }

  paintFills(pen, ratio, { fills, half }) {
    const [left, bottom] = this.pixel(-half, -half), cell = (2 * half * this.scale) / FINE;
    pen.setTransform(ratio * cell, 0, 0, -ratio * cell, ratio * left, ratio * bottom);
    for (const each of fills) {
      each.path ??= new Path2D(each.d);
      pen.fillStyle = pen.strokeStyle = inTheme(each);
      pen.globalAlpha = each.alpha;
      pen.fill(each.path, "evenodd");
      pen.globalAlpha = 0.35;
      pen.lineWidth = 0.7 / cell;
      pen.stroke(each.path);
    }
  }

  paintDots(pen, ratio, { x, y, series, size, weak, opacity = 0.85 }) {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    const far = size + 2;
    for (const { part, look, shade, hidden } of series) {
      if (hidden) continue;
      const stamps = shade
        ? shades().map((colour) => stamp("circle", size, colour, ratio))
        : [stamp(look.symbol, size, inTheme(look), ratio)];
      const shift = stamps[0].width / 2;
      for (const i of part) {
        const [left, top] = this.pixel(x[i], y[i]);
        if (left < -far || top < -far || left > this.width + far || top > this.height + far) continue;
        pen.globalAlpha = weak?.[i] ? 0.25 : opacity;
        pen.drawImage(stamps[shade ? shade[i] : 0], Math.round(left * ratio - shift), Math.round(top * ratio - shift));
      }
    }
  }

  paintNames(pen, ratio, { names }) {
    const { ink, panel } = theme();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    Object.assign(pen, { globalAlpha: 1, textAlign: "center", textBaseline: "middle", direction: "ltr", lineJoin: "round" });
    pen.font = `600 15px ${getComputedStyle(document.body).fontFamily}`;
    for (const { name, x, y } of names) {
      const [left, top] = this.pixel(x, y);
      Object.assign(pen, { strokeStyle: panel, lineWidth: 5, fillStyle: ink });
      pen.strokeText(short(name, 24), left, top);
      pen.fillText(short(name, 24), left, top);
    }
  }

  // The lasso, and a ring around the point that is pointed at.
  over() {
    this.top.replaceChildren();
    const shape = (tag, attributes) => {
      const made = document.createElementNS(SVG, tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      this.top.append(made);
    };
    if (this.lasso?.length > 1) {
      const path = new SvgPath();
      this.lasso.forEach(([x, y], number) => path[number ? "lineTo" : "moveTo"](...this.pixel(x, y)));
      if (!this.drawing) path.closePath();
      shape("path", { d: path.d, class: "lasso" });
    }
    if (this.at) {
      const [cx, cy] = this.pixel(this.at.x, this.at.y);
      shape("circle", { cx, cy, r: this.at.size + 4, class: "at" });
    }
  }

  // Pointing

  point(left, top) {
    let best = null, reach = REACH;
    for (const layer of this.layers) {
      if (layer.hidden || !layer.words) continue;
      for (const { part, hidden } of layer.series) {
        if (hidden) continue;
        for (const i of part) {
          const [x, y] = this.pixel(layer.x[i], layer.y[i]), far = Math.hypot(x - left, y - top);
          if (far < reach) [best, reach] = [this.pointed(layer, i), far];
        }
      }
    }
    this.show(best ?? this.ground(left, top));
  }

  pointed(layer, i) { return { x: layer.x[i], y: layer.y[i], size: layer.size, words: layer.words(i), i, layer }; }

  ground(left, top) {
    const [x, y] = this.place(left, top);
    const words = this.layers.filter((each) => !each.hidden && each.ground).flatMap((each) => each.ground(x, y));
    return words.length ? { x, y, size: 0, words } : null;
  }

  show(at) {
    this.at = at;
    this.tip.hidden = !at;
    if (at) {
      this.tip.replaceChildren(...at.words.map((text) => make("div", { text })));
      const [left, top] = this.pixel(at.x, at.y);
      this.tip.style.left = `${Math.max(4, Math.min(left + 14, this.width - this.tip.offsetWidth - 6))}px`;
      this.tip.style.top = `${Math.max(4, Math.min(top + 14, this.height - this.tip.offsetHeight - 6))}px`;
    }
    this.over();
  }

  // From point to point, for readers without a pointer.
  step(by) {
    const layer = this.layers.find((each) => !each.hidden && each.words);
    const parts = layer?.series.filter((each) => !each.hidden).flatMap((each) => Array.from(each.part)) ?? [];
    if (!parts.length) return;
    const now = this.at?.layer === layer ? parts.indexOf(this.at.i) : by > 0 ? -1 : 0;
    const at = this.pointed(layer, parts[(now + by + parts.length) % parts.length]);
    this.show(at);
    this.tell(at.words.join(", "));
  }

  // What is inside the lasso, or of the part that is shown: every layer says it in its own words.
  report() {
    const whole = Math.abs(this.zoom - 1) < 1e-9;
    if (!this.lasso && whole) return this.tell("");
    const [left, right, bottom, top] = this.lasso ? [] : this.window;
    const inside = this.lasso
      ? (x, y) => within(this.lasso, x, y)
      : (x, y) => x >= left && x <= right && y >= bottom && y <= top;
    const counts = this.layers.filter((each) => !each.hidden && each.count).map((each) => each.count(inside));
    this.tell(counts.length ? `${this.lasso ? "In the lasso" : "In view"}: ${counts.join("; ")}.` : "");
  }

  listen() {
    const { plot } = this, pointers = new Map();
    const here = (event) => {
      const { left, top } = plot.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    plot.addEventListener("wheel", (event) => {
      // A page that scrolls must not stop at every map: the wheel zooms where the reader has clicked, or holds Ctrl.
      if (document.activeElement !== plot && !event.ctrlKey) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), ...here(event));
    }, { passive: false });
    plot.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, here(event));
      plot.setPointerCapture(event.pointerId);
      plot.focus({ preventScroll: true });
      this.drawing = this.mode === "lasso" || event.shiftKey;
      if (this.drawing) this.lasso = [this.place(...here(event))];
      this.still = true;
      this.show(null);
    });
    plot.addEventListener("pointermove", (event) => {
      const now = here(event), before = pointers.get(event.pointerId);
      if (!before) return this.point(...now);
      pointers.set(event.pointerId, now);
      this.still &&= Math.hypot(now[0] - before[0], now[1] - before[1]) < 2;
      if (pointers.size === 2) {
        this.drawing = false;
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const far = (a) => Math.max(1, Math.hypot(a[0] - other[0], a[1] - other[1]));
        this.zoomBy(far(now) / far(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      } else if (this.drawing) {
        this.lasso.push(this.place(...now));
        this.over();
      } else {
        this.moveTo(this.x - (now[0] - before[0]) / this.scale, this.y + (now[1] - before[1]) / this.scale);
      }
    });
    const end = (event) => {
      pointers.delete(event.pointerId);
      // A finger points where it lifts without having moved.
      if (event.pointerType === "touch" && this.still && !this.drawing) this.point(...here(event));
      if (!this.drawing) return;
      this.drawing = false;
      if (this.lasso.length < 3) this.lasso = null;
      this.draw();
      this.report();
    };
    plot.addEventListener("pointerup", end);
    plot.addEventListener("pointercancel", end);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") this.show(null); });
    plot.addEventListener("dblclick", (event) => this.zoomBy(event.shiftKey ? 0.5 : 2, ...here(event)));
    const move = (right, up) => this.moveTo(
      this.x + (0.15 * right * this.width) / this.scale, this.y + (0.15 * up * this.height) / this.scale);
    const keys = {
      ArrowLeft: () => move(-1, 0), ArrowRight: () => move(1, 0), ArrowUp: () => move(0, 1), ArrowDown: () => move(0, -1),
      "+": () => this.zoomBy(1 / 0.7), "=": () => this.zoomBy(1 / 0.7), "-": () => this.zoomBy(0.7), 0: () => this.reset(),
      n: () => this.step(1), p: () => this.step(-1),
      Escape: () => { this.lasso = null; this.show(null); this.report(); },
    };
    plot.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
}

// Whether a place is inside a closed line, by the number of its edges to the right of it.
const within = (line, x, y) => {
  let inside = false;
  for (let i = 0, j = line.length - 1; i < line.length; j = i++) {
    const [ax, ay] = line[i], [bx, by] = line[j];
    if ((ay > y) !== (by > y) && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
};
