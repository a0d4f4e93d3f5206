#include "heed/training/label_spans.h"

#include <algorithm>
#include <string_view>

namespace heed {
namespace {

/// A label as a place in a span (B, I, E, S, or O) and the kind of the span.
struct ReadLabel {
  char place = 'O';
  std::string_view kind = {};
};

constexpr std::string_view places = "BIESMLU", as_read = "BIESIES";

bool has_prefix(std::string_view label) {
  return !label.empty() && places.find(label.front()) != places.npos &&
         (label.size() == 1 || label[1] == '-');
}

/// `has_prefixes`: whether any label of the sentence has one; otherwise a label is the kind of a whole span.
ReadLabel read_label(std::string_view label, bool has_prefixes) {
  if (label == "O") return {};
  if (!has_prefixes || !has_prefix(label)) return {'S', label};
  return {as_read[places.find(label.front())], label.size() > 2 ? label.substr(2) : "_"};
}

}  // namespace

std::vector<LabelSpan> label_spans(std::span<const std::string> labels) {
  const bool has_prefixes = std::ranges::any_of(labels, has_prefix);
  std::vector<LabelSpan> spans;
  ReadLabel before;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const ReadLabel now = read_label(labels[i], has_prefixes);
    const bool goes_on = (now.place == 'I' || now.place == 'E') &&
                         (before.place == 'B' || before.place == 'I') && now.kind == before.kind;
    if (goes_on)
      spans.back().end = i + 1;
    else if (now.place != 'O')
      spans.push_back({std::string(now.kind), i, i + 1});
    before = now;
  }
  return spans;
}

std::map<std::string, SpanCounts> count_spans(std::span<const LabelSpan> expected,
                                              std::span<const LabelSpan> predicted) {
  std::map<std::string, SpanCounts> counts;
  for (const LabelSpan& one : expected) ++counts[one.kind].expected;
  for (const LabelSpan& one : predicted) {
    ++counts[one.kind].predicted;
    counts[one.kind].right += std::ranges::count(expected, one);
  }
  return counts;
}

}  // namespace heed
