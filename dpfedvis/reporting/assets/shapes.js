"use strict";
// What maps are drawn with: packed numbers, colours of the reader's theme, shapes, and text that does nothing.

const scheme = matchMedia("(prefers-color-scheme: dark)");
const inTheme = ({ light, dark }) => (scheme.matches ? dark : light);

const theme = () => {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["ink", "quiet", "accent", "soft", "panel"].map((name) =>
    [name, style.getPropertyValue("--" + name).trim()]));
};

const ARRAYS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const unpack = ({ dtype, bdata }) =>
  new ARRAYS[dtype](Uint8Array.from(atob(bdata), (letter) => letter.charCodeAt(0)).buffer);

// Marks that turn the direction of text, and control characters, are written out; long text is cut.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const short = (text, most = 60) => {
  const letters = Array.from(text.replace(HIDDEN, (each) => "\\u" + each.charCodeAt(0).toString(16).padStart(4, "0")));
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
};

const digits = (value) => {
  if (Number.isNaN(value)) return "missing";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value)) return String(value);
  return String(Math.abs(value) < 1e5 ? Number(value.toPrecision(6)) : Math.round(value));
};

// About as many digits as a noisy number deserves.
const about = (value) => {
  if (!Number.isFinite(value)) return digits(value);
  return String(Math.abs(value) >= 10 ? Math.round(value) : Number(value.toPrecision(2))).replace("-", "−");
};

const make = (tag, { text, ...attributes } = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
};

// A path as text for SVG. A canvas has the same methods, so that each shape is drawn once.
class SvgPath {
  constructor() { this.parts = []; }
  moveTo(x, y) { this.parts.push(`M${x.toFixed(1)} ${y.toFixed(1)}`); }
  lineTo(x, y) { this.parts.push(`L${x.toFixed(1)} ${y.toFixed(1)}`); }
  closePath() { this.parts.push("Z"); }
  arc(x, y, r) { this.parts.push(`M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`); }
  get d() { return this.parts.join(""); }
}

const polygon = (corners) => (pen, x, y, r) => {
  corners.forEach(([right, down], number) => pen[number ? "lineTo" : "moveTo"](x + right * r, y + down * r));
  pen.closePath();
};
const disc = (pen, x, y, r) => { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 2 * Math.PI); };
const turned = (corners) => corners.map(([right, down]) => [(right - down) * Math.SQRT1_2, (right + down) * Math.SQRT1_2]);
const PLUS = [
  [-0.35, -1], [0.35, -1], [0.35, -0.35], [1, -0.35], [1, 0.35], [0.35, 0.35],
  [0.35, 1], [-0.35, 1], [-0.35, 0.35], [-1, 0.35], [-1, -0.35], [-0.35, -0.35],
];
const SHAPES = {
  circle: disc,
  ring: disc,
  square: polygon([[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]]),
  diamond: polygon([[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]]),
  "triangle-up": polygon([[0, -1.15], [1.05, 0.8], [-1.05, 0.8]]),
  cross: polygon(PLUS),
  x: polygon(turned(PLUS)),
};

// A shape as a small picture, which a canvas draws forty thousand times without waiting.
const stamp = (symbol, radius, colour, ratio) => {
  const size = Math.ceil((2 * radius + 4) * ratio), made = make("canvas");
  made.width = made.height = size;
  const pen = made.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, size / 2, size / 2);
  pen.beginPath();
  SHAPES[symbol](pen, 0, 0, radius);
  if (symbol === "ring") {
    pen.strokeStyle = colour;
    pen.lineWidth = Math.max(1, radius / 4);
    pen.stroke();
  } else {
    pen.fillStyle = colour;
    pen.fill();
  }
  return made;
};

// The end of the scale that is as dark, or as light, as the ground is left out.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const shades = () => (scheme.matches ? VIRIDIS.slice(2) : VIRIDIS.slice(0, -1));
