#include "heed/tasks/capture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/core/file.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// The page draws what it finds in `data`: examples with tokens and maps. Weights are 0 to 255.
constexpr std::string_view page_begin = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>What the model looks at</title><style>
:root { color-scheme: light dark; --ink: #1a1c20; --paper: #fcfcfa; --line: #d5d5d0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e2; --paper: #17181b; --line: #3a3c42; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 72rem; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; overflow-wrap: anywhere; border-top: 1px solid var(--line);
  padding-top: 1rem; } h3 { font-size: .9rem; font-weight: 600; margin: 1rem 0 .3rem; overflow-wrap: anywhere; }
.heads { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; max-width: 100%; overflow-x: auto; }
figcaption { font-size: .8rem; } svg text { font: 9px ui-monospace, monospace; fill: var(--ink); }
#tip { position: fixed; pointer-events: none; padding: .1rem .4rem; border: 1px solid var(--line); display: none;
  background: var(--paper); font-size: .8rem; }
</style></head><body><h1>What the model looks at</h1>
<p>Each map has a row for every query and a column for every key; the darker a cell, the larger the weight. Point at a
cell to read it.</p><div id="tip"></div><main></main><script>
const data = )page";

constexpr std::string_view page_end = R"page(;
const main = document.querySelector("main"), tip = document.getElementById("tip");
const add = (to, kind, text) => { const e = document.createElement(kind); if (text) e.textContent = text;
  return to.appendChild(e); };
const svgNs = "http://www.w3.org/2000/svg";
const shape = (to, kind, attributes, text) => { const e = document.createElementNS(svgNs, kind);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v); if (text) e.textContent = text;
  return to.appendChild(e); };
const shown = t => t === undefined ? "" : t.replace(/\n/g, "\\n").replace(/\t/g, "\\t") || " ";
function map(to, head, rows, columns, weights, queries, keys) {
  const cell = 13, edge = 64, figure = add(to, "figure");
  const svg = figure.appendChild(document.createElementNS(svgNs, "svg"));
  svg.setAttribute("width", edge + columns * cell + 30); svg.setAttribute("height", edge + rows * cell);
  for (let i = 0; i < rows; ++i)
    shape(svg, "text", {x: edge - 4, y: edge + i * cell + 10, "text-anchor": "end"}, shown(queries[i]).slice(0, 10));
  for (let j = 0; j < columns; ++j)
    shape(svg, "text", {transform: `translate(${edge + j * cell + 10},${edge - 4}) rotate(-60)`},
      shown(keys[j]).slice(0, 10));
  for (let i = 0; i < rows; ++i) for (let j = 0; j < columns; ++j) {
    const w = weights[i * columns + j] / 255;
    const r = shape(svg, "rect", {x: edge + j * cell, y: edge + i * cell, width: cell - 1, height: cell - 1,
      fill: `rgba(190, 70, 30, ${w.toFixed(3)})`, stroke: "var(--line)", "stroke-width": .3});
    r.onpointerenter = e => { tip.textContent = `${shown(queries[i])} → ${shown(keys[j])}: ${w.toFixed(3)}`;
      tip.style.display = "block"; tip.style.left = Math.min(e.clientX + 12, innerWidth - 200) + "px";
      tip.style.top = e.clientY + 12 + "px"; };
    r.onpointerleave = () => tip.style.display = "none";
  }
  add(figure, "figcaption", "head " + head);
}
for (const example of data) {
  add(main, "h2", example.name + ": " + (example.tokens[0] ? example.tokens[0].texts.map(shown).join(" ") : ""));
  const tokensOf = count => (example.tokens.find(t => t.texts.length === count) || {texts: []}).texts;
  for (const layer of example.maps) {
    add(main, "h3", layer.name);
    const heads = add(main, "div"); heads.className = "heads";
    // A decoder reads the target: its own tokens are the last list, the source's the first.
    const last = example.tokens.length ? example.tokens[example.tokens.length - 1].texts : [];
    const pick = count => last.length === count && layer.name.includes("decoder") ? last : tokensOf(count);
    layer.heads.forEach((weights, h) => map(heads, h, layer.rows, layer.columns, weights, pick(layer.rows),
      layer.name.includes("cross") ? (example.tokens[0] || {texts: []}).texts : pick(layer.columns)));
  }
}
</script></body></html>
)page";

/// Weights [1, H, N, M] as one list of numbers 0 to 255 for each head.
Json map_of(const std::string& name, const Tensor& weights) {
  const std::vector<double> values = weights.to_doubles();
  const auto cells = static_cast<std::size_t>(weights.size(2) * weights.size(3));
  Json heads = Json::array();
  for (std::size_t first = 0; first + cells <= values.size(); first += cells) {
    Json head = Json::array();
    for (std::size_t i = first; i < first + cells; ++i)
      head.push_back(std::lround(std::clamp(values[i], 0.0, 1.0) * 255));
    heads.push_back(std::move(head));
  }
  return {
      {"name", name}, {"rows", weights.size(2)}, {"columns", weights.size(3)}, {"heads", std::move(heads)}};
}

/// "lines.0" of "lines.0.encoder.layers.1.attention.weights".
std::string example_of(const std::string& name) {
  return name.substr(0, name.find('.', name.find('.') + 1));
}

}  // namespace

void CaptureFile::add(const std::string& example, const Capture& capture) {
  for (const Capture::Entry& entry : capture.entries)
    add(example + "." + entry.layer + "." + entry.name, entry.value);
}

void CaptureFile::add(const std::string& name, const Tensor& value) {
  std::string free = name;
  for (int i = 1; content_.tensors.contains(free); ++i) free = name + "." + std::to_string(i);
  content_.tensors.emplace(free, value);
}

void CaptureFile::add_tokens(const std::string& example, const std::string& name, const Tensor& ids,
                             const std::vector<std::string>& texts) {
  add(example + "." + name, ids);
  content_.metadata[example + "." + name] = Json(texts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string CaptureFile::page() const {
  std::map<std::string, Json> examples;
  for (const auto& [name, texts] : content_.metadata) {
    Json& example = examples[example_of(name)];
    example["tokens"].push_back({{"name", name}, {"texts", Json::parse(texts)}});
  }
  for (const auto& [name, value] : content_.tensors) {
    if (value.rank() != 4 || name.find(".weights") == std::string::npos || value.size(0) != 1) continue;
    const std::string example = example_of(name);
    examples[example]["maps"].push_back(map_of(name.substr(example.size() + 1), value));
  }
  Json all = Json::array();
  for (auto& [name, example] : examples) {
    if (!example.contains("maps")) example["maps"] = Json::array();
    if (!example.contains("tokens")) example["tokens"] = Json::array();
    example["name"] = name;
    all.push_back(std::move(example));
  }
  std::string json = all.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  // Nothing in a text may end the script.
  for (std::size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3)
    json.replace(at, 2, "<\\/");
  return std::string(page_begin) + json + std::string(page_end);
}

void CaptureFile::save(const std::filesystem::path& path, bool overwrite) const {
  if (path.extension() == ".html") return write_output(path, page(), overwrite);
  check_output(path, overwrite);
  save_safetensors(path, content_);
}

}  // namespace heed
