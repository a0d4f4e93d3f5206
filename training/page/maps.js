// Draws the attention maps of a page (apps/tasks/capture.h): of each example an overview of all heads, and one head large.
(() => {
"use strict";
const root = document.documentElement;
root.classList.add("js");
const add = (to, kind, name, text) => {
  const e = document.createElement(kind);
  if (name) e.className = name;
  if (text) e.textContent = text;
  return to.appendChild(e);
};
const shape = (to, kind, attributes, text) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text) e.textContent = text;
  return to.appendChild(e);
};
const weights = head => Float32Array.from(atob(head.cells), c => c.charCodeAt(0) / 255 * head.most);
const mean = all => all[0].map((_, i) => all.reduce((sum, one) => sum + one[i], 0) / all.length);
const shown = (tokens, i) => !tokens ? String(i + 1) : tokens[i].replace(/\n/g, "\\n").replace(/\t/g, "\\t").trim() || "␣";
const short = text => [...text].length > 11 ? [...text].slice(0, 10).join("") + "…" : text;
// Where one text ends and another begins: behind the end mark of the first.
const dividers = (tokens, count) => !tokens ? [] : tokens.slice(0, count).flatMap((token, i) =>
  ["</s>", "[SEP]", "<sep>"].includes(token.trim()) && i + 1 < count && tokens[i + 1].trim() !== "<pad>" ? [i + 1] : []);
const number = value => String(Number(value.toPrecision(3)));
let thumbs = [];
// The colour of a weight: all maps of an example have one scale, on which small weights are not lost.
const strength = (weight, most) => most > 0 ? Math.sqrt(Math.min(weight / most, 1)) : 0;
const paint = () => {
  const color = getComputedStyle(root).getPropertyValue("--accent").trim().split(/\s+/).map(Number);
  for (const {canvas, cells, most} of thumbs) {
    const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    cells.forEach((w, i) => image.data.set([...color, Math.round(255 * strength(w, most))], 4 * i));
    context.putImageData(image, 0, 0);
  }
};

function large(box, read, example, map, name, cells, most) {
  box.textContent = "";
  const rows = example.tokens[map.row_tokens], columns = example.tokens[map.column_tokens];
  const cell = Math.max(map.rows, map.columns) > 24 ? 14 : 20, left = 92, top = 78;
  const svg = shape(box, "svg", {class: "large", width: left + map.columns * cell + 40, height: top + map.rows * cell + 4, role: "img", "aria-label": name});
  shape(svg, "text", {x: 0, y: 14}, "from ↓ to →");
  const labels = [[], []];
  for (let i = 0; i < map.rows; ++i)
    labels[0].push(shape(svg, "text", {x: left - 6, y: top + (i + .5) * cell + 4, "text-anchor": "end"}, short(shown(rows, i))));
  for (let j = 0; j < map.columns; ++j)
    labels[1].push(shape(svg, "text", {transform: `translate(${left + (j + .5) * cell + 4},${top - 6}) rotate(-55)`}, short(shown(columns, j))));
  for (let i = 0; i < map.rows; ++i) for (let j = 0; j < map.columns; ++j) {
    const e = shape(svg, "rect", {class: "cell", x: left + j * cell, y: top + i * cell, width: cell - 1, height: cell - 1,
      "fill-opacity": strength(cells[i * map.columns + j], most).toFixed(3)});
    e.at = [i, j];
  }
  for (const i of dividers(rows, map.rows)) shape(svg, "line", {class: "divider", x1: left, x2: left + map.columns * cell, y1: top + i * cell - .5, y2: top + i * cell - .5});
  for (const j of dividers(columns, map.columns)) shape(svg, "line", {class: "divider", x1: left + j * cell - .5, x2: left + j * cell - .5, y1: top, y2: top + map.rows * cell});
  const point = event => {
    svg.querySelectorAll(".on").forEach(e => e.classList.remove("on"));
    if (!event.target.at) return;
    const [i, j] = event.target.at;
    for (const e of [event.target, labels[0][i], labels[1][j]]) e.classList.add("on");
    read.textContent = `${shown(rows, i)} → ${shown(columns, j)}: ${number(cells[i * map.columns + j])}`;
  };
  svg.addEventListener("pointerover", point);
  svg.addEventListener("pointerdown", point);
}

const draw = part => part.querySelectorAll(".maps").forEach(box => {
  const example = JSON.parse(box.querySelector("script").textContent);
  const most = Math.max(...example.maps.flatMap(map => map.heads.map(head => head.most)));
  const overview = add(box, "div", "overview"), detail = add(box, "div");
  const table = add(overview, "table"), top = add(table, "tr");
  const title = add(detail, "p", "chosen"), name = add(title, "b"), read = add(title, "span", "read");
  const view = add(detail, "div", "wide");
  const scale = add(overview, "div", "scale"), colors = document.createElement("canvas");
  add(scale, "span", "", "weight 0"); scale.append(colors); add(scale, "span", "", number(most));
  colors.width = 128; colors.height = 1;
  thumbs.push({canvas: colors, cells: Float32Array.from({length: 128}, (_, i) => i / 127 * most), most});

  const widest = Math.max(...example.maps.map(map => map.heads.length));
  add(top, "th", "", ""); add(top, "th", "", "mean");
  for (let h = 0; h < widest; ++h) add(top, "th", "", widest > 4 ? String(h) : `head ${h}`);
  let chosen;
  const thumb = (row, map, label, cells) => {
    const button = add(add(row, "td"), "button");
    button.type = "button"; button.title = label; button.setAttribute("aria-label", label); button.setAttribute("aria-pressed", false);
    const canvas = add(button, "canvas"), size = 44 / Math.max(map.rows, map.columns);
    canvas.width = map.columns; canvas.height = map.rows;
    canvas.style.width = Math.max(map.columns * size, 8) + "px"; canvas.style.height = Math.max(map.rows * size, 8) + "px";
    thumbs.push({canvas, cells, most});
    button.onclick = () => {
      if (chosen) chosen.setAttribute("aria-pressed", false);
      chosen = button;
      button.setAttribute("aria-pressed", true);
      name.textContent = label; read.textContent = "point at a cell to read its weight";
      large(view, read, example, map, label, cells, most);
    };
    return button;
  };
  const groups = new Map();  // layers of one stack, which have a mean
  for (const map of example.maps) {
    const key = [map.name.replace(/\d+/g, ""), map.row_tokens, map.column_tokens, map.rows, map.columns].join("|");
    groups.set(key, [...groups.get(key) ?? [], map]);
  }
  let first;
  for (const maps of groups.values()) {
    const means = [];
    for (const map of maps) {
      const row = add(table, "tr");
      add(row, "td", "", map.name);
      const heads = map.heads.map(weights), all = mean(heads);
      means.push(all);
      const button = thumb(row, map, `${map.name}, mean over ${heads.length} heads`, all);
      first ??= button;
      heads.forEach((cells, h) => thumb(row, map, `${map.name}, head ${h}`, cells));
    }
    if (maps.length === 1) continue;
    const row = add(table, "tr");
    add(row, "td", "", "mean over layers");
    thumb(row, maps[0], `${maps[0].name.replace(/ ?\d+/, "s")}, mean over ${maps.length} layers and all heads`, mean(means));
  }
  first.click();
});
// For pages that change while they are read (live.js).
window.heedMaps = {draw(part) {
  thumbs = thumbs.filter(one => one.canvas.isConnected);
  draw(part);
  paint();
}};
heedMaps.draw(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
})();
