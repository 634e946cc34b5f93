// A map as a file that says below what it is. Both are drawn by the layers that the reader sees.

const LINE = 18, LETTER = 6.6; // pixels of a line and of a letter of what stands below a picture

// What stands below, in lines that fit.
const footOf = (chart) => {
  const most = Math.max(20, Math.floor((chart.width - 20) / LETTER));
  return chart.note.split("\n").filter(Boolean).flatMap((part) => {
    const lines = [""];
    for (const word of part.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + 1 + word.length > most) lines.push("");
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    return lines;
  });
};

// As PNG, in twice the size.
const pngOf = async (chart) => {
  const made = make("canvas"), ratio = 2, words = footOf(chart), foot = words.length ? LINE * words.length + 8 : 0, { ink, panel } = theme();
  made.width = chart.width * ratio;
  made.height = (chart.height + foot) * ratio;
  const pen = made.getContext("2d");
  chart.paint(pen, ratio);
  pen.globalCompositeOperation = "destination-over";
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = panel;
  pen.fillRect(0, 0, chart.width, chart.height + foot);
  Object.assign(pen, { globalCompositeOperation: "source-over", fillStyle: ink, textAlign: "left", textBaseline: "middle" });
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  words.forEach((line, number) => pen.fillText(line, 10, chart.height + 4 + LINE * (number + 0.5), chart.width - 20));
  return new Promise((done) => made.toBlob(done, "image/png"));
};

// As SVG: text stays text, and areas stay areas.
const svgOf = (chart) => {
  const said = footOf(chart), foot = said.length ? LINE * said.length + 8 : 0, { ink, panel } = theme(), lines = [];
  const text = (words) => words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
  for (const layer of chart.layers.filter((each) => !each.hidden)) {
    if (layer.fills) {
      const [left, bottom] = chart.pixel(-layer.half, -layer.half), cell = (2 * layer.half * chart.scale) / FINE;
      lines.push(`<g transform="matrix(${cell} 0 0 ${-cell} ${left} ${bottom})" fill-rule="evenodd">`);
      for (const each of layer.fills) lines.push(`<path d="${each.d}" fill="${inTheme(each)}" fill-opacity="${each.alpha}"/>`);
      lines.push("</g>");
    }
    for (const { part, look, shade, hidden } of layer.series ?? []) {
      if (hidden) continue;
      const looks = shade ? shades().map((colour) => ({ symbol: "circle", light: colour, dark: colour })) : [look];
      looks.forEach((each, number) => {
        for (const faint of [0, 1]) {
          const path = new SvgPath(), ring = each.symbol === "ring";
          for (const i of part) {
            if ((shade && shade[i] !== number) || Number(layer.weak?.[i] ?? 0) !== faint) continue;
            SHAPES[each.symbol](path, ...chart.pixel(layer.x[i], layer.y[i]), layer.size);
          }
          const opacity = faint ? 0.25 : (layer.opacity ?? 0.85), colour = inTheme(each);
          const ink = ring ? `fill="none" stroke="${colour}"` : `fill="${colour}"`;
          if (path.parts.length) lines.push(`<path d="${path.d}" ${ink} opacity="${opacity}"/>`);
        }
      });
    }
    for (const { name, x, y } of layer.names ?? []) {
      const [left, top] = chart.pixel(x, y);
      lines.push(`<text x="${left}" y="${top}" text-anchor="middle" dominant-baseline="central" font-weight="600" ` +
        `font-size="15" fill="${ink}" stroke="${panel}" stroke-width="5" paint-order="stroke">${text(short(name, 24))}</text>`);
    }
  }
  said.forEach((line, number) => lines.push(
    `<text x="10" y="${chart.height + LINE * (number + 1)}" font-size="12" fill="${ink}">${text(line)}</text>`));
  const size = `width="${chart.width}" height="${chart.height + foot}"`;
  return `<svg xmlns="${SVG}" ${size} font-family="sans-serif"><rect ${size} fill="${panel}"/>${lines.join("\n")}</svg>\n`;
};
