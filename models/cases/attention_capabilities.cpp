#include "heed/models/cases/attention_capabilities.h"

#include <algorithm>
#include <functional>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"

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

bool sees_later(const AttentionVariant& variant) {
  constexpr std::int64_t length = 16, known = length / 2;
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.max_length = length;
  const auto layer = make_attention(variant.name, config);
  layer->to(DType::f64, {});
  const auto outputs = [&](std::uint32_t stream) {
    const auto drawn = [](std::uint32_t which, std::int64_t count) {
      return normal({1, count, 8}, 0, 1, {5, 0, which}, DType::f64);
    };
    Context context = Context::inference();
    const AttentionInput input{concat({drawn(1, known), drawn(stream, length - known)}, 1)};
    return slice((*layer)(input, context), 1, 0, known).to_doubles();
  };
  return outputs(2) != outputs(3);
}

}  // namespace

std::vector<TriedCapabilities> try_all_capabilities() {
  std::vector<TriedCapabilities> rows;
  for (const AttentionVariant& variant : attention_variants())
    rows.push_back({std::string(variant.name), tried_capabilities(variant), sees_later(variant)});
  return rows;
}

std::string pattern_table(std::span<const TriedCapabilities> rows) {
  std::string table =
      "| variant | noncausal self | causal self | noncausal cross | causal cross |\n|---|---|---|---|---|\n";
  for (const TriedCapabilities& row : rows) {
    const bool cells[] = {row.sees_later, row.can.causal, row.can.cross,
                          row.can.cross && row.can.cross_by_step};
    table += "| `" + row.name + "` |";
    for (const bool cell : cells) table += concat_text(" ", cell ? yes : no, " |");
    table += "\n";
  }
  return table;
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
