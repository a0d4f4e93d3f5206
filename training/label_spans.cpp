#include "heed/training/label_spans.h"

#include <algorithm>

namespace heed {
namespace {

/// A label as a place in a span (B, I, E, S, or O) and the kind of the span.
struct ReadLabel {
  char place = 'O';
  std::string_view kind = {};
};

constexpr std::string_view places = "BIESMLU", as_read = "BIESIES";

/// `has_prefixes`: whether any label of the sentence has one; otherwise a label is the kind of a whole span.
ReadLabel read_label(std::string_view label, bool has_prefixes) {
  if (label == "O") return {};
  if (!has_prefixes) return {'S', label};
  const std::size_t place = label.empty() ? places.npos : places.find(label.front());
  if (place == places.npos || (label.size() > 1 && label[1] != '-')) return {'S', label};
  return {as_read[place], label.size() > 2 ? label.substr(2) : "_"};
}

bool begins(const ReadLabel& before, const ReadLabel& now) {
  if (now.place == 'O') return false;
  return now.place == 'B' || now.place == 'S' || before.place == 'O' || before.place == 'E' ||
         before.place == 'S' || before.kind != now.kind;
}

}  // namespace

bool has_span_prefix(std::string_view label) {
  return !label.empty() && places.find(label.front()) != places.npos &&
         (label.size() == 1 || label[1] == '-');
}

std::vector<LabelSpan> label_spans(std::span<const std::string> labels) {
  const bool has_prefixes = std::ranges::any_of(labels, has_span_prefix);
  std::vector<LabelSpan> spans;
  ReadLabel before;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const ReadLabel now = read_label(labels[i], has_prefixes);
    if (begins(before, now))
      spans.push_back({std::string(now.kind), i, i + 1});
    else if (now.place != 'O')
      spans.back().end = i + 1;
    before = now;
  }
  return spans;
}

void SpanCounts::add(const SpanCounts& other) {
  expected += other.expected, predicted += other.predicted, right += other.right;
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
