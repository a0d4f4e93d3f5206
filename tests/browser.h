#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/tests/hostile/small_runs.h"

// Pages in a browser, where one is installed.

namespace heed::test {

inline std::string browser() {
  for (const char* name : {"chromium", "google-chrome", "chromium-browser"})
    if (std::system(concat_text("command -v ", name, " > /dev/null 2>&1").c_str()) == 0) return name;
  return "";
}

/// A script that reports the problems of a page to the page that frames it, before and after every
/// button was pressed: failing scripts, violations of the page's policy, elements wider than the
/// page outside of a scrolling one, text below 12 px, broken words, empty charts. `window.prepare`
/// of a page runs first, and `window.more` adds to the report.
inline constexpr const char* probe = R"(
const findings = [];
addEventListener("error", e => findings.push("script: " + e.message));
addEventListener("securitypolicyviolation", e => findings.push(`policy: ${e.violatedDirective} ${e.blockedURI}`));
console.error = console.warn = (...said) => findings.push("console: " + said.join(" "));
addEventListener("load", () => setTimeout(async () => {
  await window.prepare?.();
  const width = document.documentElement.clientWidth;
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true; return false; };
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (box.width > 0 && box.right > width + 1 && !scrolls(e)) findings.push(`overflow: ${e.tagName}.${e.className} to ${box.right}`);
  }
  if (document.documentElement.scrollWidth > width) findings.push("the page scrolls sideways");
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode());) {
    const e = node.parentElement;
    if (["SCRIPT", "STYLE"].includes(e.tagName) || !e.checkVisibility() || !node.data.trim()) continue;
    if (parseFloat(getComputedStyle(e).fontSize) < 12) findings.push(`small: ${node.data.trim().slice(0, 40)}`);
    for (const word of node.data.matchAll(/(?<!\p{L})\p{L}{2,24}(?!\p{L})/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) findings.push(`broken: ${word[0]}`);
    }
  }
  const is_drawn = canvas => canvas.width > 0 && canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(v => v);
  const look = when => document.querySelectorAll("canvas").forEach(canvas => {
    if (!is_drawn(canvas)) findings.push(`empty ${when}: ${canvas.getAttribute("aria-label")}`); });
  const charts = document.querySelectorAll(".charts canvas").length;
  look("at first");
  document.querySelectorAll(".tools button").forEach(button => { button.click(); look(button.textContent); });
  document.querySelectorAll(".legend button").forEach(button => { button.click(); button.click(); });
  document.querySelectorAll(".charts canvas").forEach(canvas => {
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new MouseEvent("mousemove", {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
  });
  look("after all");
  parent.postMessage(JSON.stringify({width, charts, drawn: document.querySelectorAll(".overview canvas").length,
    cells: document.querySelectorAll(".cell").length, titles: [...document.querySelectorAll("h2, h3, h4")].map(e => e.textContent),
    text: document.body.innerText, findings, ...window.more}), "*");
}, 0));
)";

/// A page and the width of its frame.
using FramedPages = std::vector<std::pair<std::string, int>>;

/// Returns a page that frames others, of the same origin, side by side, and shows the reports of
/// their probes once all have arrived. (A browser's own window cannot be as narrow as a telephone.)
inline std::string frame_html(const FramedPages& pages) {
  std::string html =
      "<!DOCTYPE html><body style=\"white-space:nowrap\"><pre id=\"said\"></pre><script>const said = [];"
      "addEventListener('message', e => {"
      "const frames = [...document.querySelectorAll('iframe')];"
      "said[frames.findIndex(frame => frame.contentWindow === e.source)] = e.data;"
      "if (Object.keys(said).length === frames.length)"
      "  document.getElementById('said').textContent = '[' + said.join() + ']'; });</script>";
  for (const auto& [page, width] : pages)
    html += concat_text("<iframe src=\"", page, "\" style=\"border:0;height:900px;width:", width,
                        "px\"></iframe>");
  return html + "</body>";
}

/// Returns the reports of the pages in such a frame, light or dark, in a window of a width.
/// `folder`: for the browser's own files.
inline nlohmann::json said_in_frames(const std::string& program, const std::filesystem::path& folder,
                                     const std::string& frame, int width, bool dark) {
  const std::string command = concat_text(
      "timeout 120 ", program, " --headless --no-sandbox --disable-gpu --window-size=", width,
      ",1000 --virtual-time-budget=20000 ", dark ? "--blink-settings=preferredColorScheme=0 " : "",
      "--user-data-dir=", folder / "profile", " --dump-dom '", frame, "' 2> /dev/null");
  const std::string dom = run_program("/bin/sh", {"-c", command}).output;
  const std::string start = "<pre id=\"said\">";
  const std::size_t at = dom.find(start);
  REQUIRE_MESSAGE(at != std::string::npos, "the browser said: " << dom);
  const std::string said = dom.substr(at + start.size(), dom.find("</pre>", at) - at - start.size());
  REQUIRE_MESSAGE(said.starts_with("["), "a page said nothing");
  return nlohmann::json::parse(said);
}

/// Returns the reports of the probes of pages, given their texts.
inline nlohmann::json pages_in_browser(const std::string& program, const std::filesystem::path& folder,
                                       FramedPages pages, bool dark) {
  int window = 100;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    std::string& page = pages[i].first;
    window += pages[i].second + 10;
    page.insert(page.find("<style>"), concat_text("<script>", probe, "</script>"));
    const std::string name = concat_text("page", i, ".html");
    write_content(folder / name, page);
    page = name;
  }
  write_content(folder / "frame.html", frame_html(pages));
  return said_in_frames(program, folder, concat_text("file://", (folder / "frame.html").string()), window,
                        dark);
}

}  // namespace heed::test
