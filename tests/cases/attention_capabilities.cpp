#include "heed/tests/cases/attention_capabilities.h"

#include <algorithm>
#include <functional>

namespace heed {
namespace {

const char* const yes = "yes";
const char* const no = "-";

struct Column {
  const char* title;
  std::function<std::string(const Capabilities&)> cell;
};

std::vector<Column> columns() {
  const auto mark = [](bool value) { return std::string(value ? yes : no); };
  return {{"causal",
           [](const Capabilities& can) {
             return std::string(!can.causal ? no : can.strictly_causal ? "strictly" : "values");
           }},
          {"cross",
           [](const Capabilities& can) {
             return std::string(!can.cross ? no : can.cross_by_step ? yes : "not by step");
           }},
          {"padding", [=](const Capabilities& can) { return mark(can.padding); }},
          {"any length", [=](const Capabilities& can) { return mark(can.any_length); }},
          {"rotary", [=](const Capabilities& can) { return mark(can.rotary); }},
          {"alibi", [=](const Capabilities& can) { return mark(can.alibi); }},
          {"relative", [=](const Capabilities& can) { return mark(can.relative); }},
          {"deterministic", [=](const Capabilities& can) { return mark(can.deterministic); }}};
}

std::string padded(std::string text, std::size_t to) {
  text.resize(std::max(to, text.size()), ' ');
  return text;
}

}  // namespace

std::vector<TriedCapabilities> try_all_capabilities() {
  std::vector<TriedCapabilities> rows;
  for (const AttentionVariant& variant : attention_variants())
    rows.push_back({std::string(variant.name), tried_capabilities(variant)});
  return rows;
}

std::string capability_table(std::span<const TriedCapabilities> rows, bool markdown) {
  std::size_t name_width = 7;
  for (const TriedCapabilities& row : rows) name_width = std::max(name_width, row.name.size());
  const std::string begin = markdown ? "| " : "", between = markdown ? " | " : "  ",
                    end = markdown ? " |\n" : "\n";
  constexpr std::size_t cell_width = 13;
  std::string header = begin + padded("variant", markdown ? 0 : name_width), rule = "|---|", lines;
  for (const Column& column : columns()) {
    header += between + (markdown ? std::string(column.title) : padded(column.title, cell_width));
    rule += "---|";
  }
  for (const TriedCapabilities& row : rows) {
    lines += begin + padded(markdown ? "`" + row.name + "`" : row.name, markdown ? 0 : name_width);
    for (const Column& column : columns())
      lines += between + padded(column.cell(row.can), markdown ? 0 : cell_width);
    while (!markdown && lines.back() == ' ') lines.pop_back();
    lines += end;
  }
  while (!markdown && header.back() == ' ') header.pop_back();
  return header + end + (markdown ? rule + "\n" : "") + lines;
}

}  // namespace heed
