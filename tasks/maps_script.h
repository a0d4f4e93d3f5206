#pragma once

#include <string_view>

// The script that draws attention maps in a page (tasks/capture.h): the data stand between its two halves.

namespace heed {

/// Draws the maps of `data`: an element .maps for each example, weights as bytes, 255 being the largest of
/// its map.
inline constexpr std::string_view maps_script_begin = R"page(<script>
(() => {
const data = )page";

inline constexpr std::string_view maps_script_end = R"page(;
const add = (to, kind, name, text) => { const e = document.createElement(kind); if (name) e.className = name;
  if (text) e.textContent = text; return to.appendChild(e); };
const shape = (to, kind, attributes, text) => { const e = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v); if (text) e.textContent = text;
  return to.appendChild(e); };
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const shown = (tokens, i) => !tokens ? String(i + 1) : tokens[i].replace(/\n/g, "\\n").replace(/\t/g, "\\t").trim() || "␣";
const short = text => [...text].length > 11 ? [...text].slice(0, 10).join("") + "…" : text;
const thumbs = [];
const paint = () => {
  const color = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim().split(/\s+/).map(Number);
  for (const {canvas, head, map} of thumbs) {
    const context = canvas.getContext("2d"), image = context.createImageData(map.columns, map.rows);
    head.cells.forEach((w, i) => image.data.set([...color, w], 4 * i));
    context.putImageData(image, 0, 0);
  }
};
function large(box, read, example, map, head) {
  box.textContent = "";
  const rows = example.tokens[map.row_tokens], columns = example.tokens[map.column_tokens];
  const cell = Math.max(map.rows, map.columns) > 24 ? 13 : 18, left = 84, top = 66;
  const svg = shape(box, "svg", {width: left + map.columns * cell + 34, height: top + map.rows * cell + 4, role: "img",
    "aria-label": `${map.name}, head ${head.number}`});
  const labels = [[], []];
  for (let i = 0; i < map.rows; ++i)
    labels[0].push(shape(svg, "text", {x: left - 6, y: top + (i + .5) * cell + 4, "text-anchor": "end"}, short(shown(rows, i))));
  for (let j = 0; j < map.columns; ++j)
    labels[1].push(shape(svg, "text", {transform: `translate(${left + (j + .5) * cell + 3},${top - 6}) rotate(-55)`}, short(shown(columns, j))));
  for (let i = 0; i < map.rows; ++i) for (let j = 0; j < map.columns; ++j) {
    const c = shape(svg, "rect", {class: "cell", x: left + j * cell, y: top + i * cell, width: cell - 1, height: cell - 1,
      "fill-opacity": (head.cells[i * map.columns + j] / 255).toFixed(3)});
    c.at = [i, j];
  }
  const point = event => {
    svg.querySelectorAll(".on").forEach(e => e.classList.remove("on"));
    if (!event.target.at) return;
    const [i, j] = event.target.at, weight = head.cells[i * map.columns + j] / 255 * head.most;
    for (const e of [event.target, labels[0][i], labels[1][j]]) e.classList.add("on");
    read.textContent = `${shown(rows, i)} → ${shown(columns, j)}: ${weight.toPrecision(3)}`;
  };
  svg.addEventListener("pointerover", point); svg.addEventListener("pointerdown", point);
}
document.querySelectorAll(".maps").forEach((box, number) => {
  const example = data[number];
  const list = add(box, "div", "thumbs");
  const title = add(box, "p", "chosen"), name = add(title, "b"), read = add(title, "span", "read");
  const view = add(box, "div", "wide");
  let chosen;
  for (const map of example.maps) {
    const row = add(list, "div", "layer"); add(row, "span", "name", map.name);
    const heads = add(row, "div", "heads");
    map.heads.forEach((head, h) => {
      head.number = h; head.cells = bytes(head.cells);
      const button = add(heads, "button"); button.type = "button"; button.title = `${map.name}, head ${h}`;
      button.setAttribute("aria-label", button.title);
      const canvas = add(button, "canvas"); canvas.width = map.columns; canvas.height = map.rows;
      const scale = 56 / Math.max(map.rows, map.columns);
      canvas.style.width = Math.max(map.columns * scale, 8) + "px"; canvas.style.height = Math.max(map.rows * scale, 8) + "px";
      thumbs.push({canvas, head, map});
      button.onclick = () => { if (chosen) chosen.removeAttribute("aria-pressed"); chosen = button;
        button.setAttribute("aria-pressed", "true"); name.textContent = button.title;
        read.textContent = "point at a cell to read its weight"; large(view, read, example, map, head); };
      if (!chosen) button.click();
    });
  }
});
paint();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
})();
</script>
)page";

}  // namespace heed
