#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

// Spans that labels of words mark, such as the names in a text, and how many are found.

namespace heed {

/// The words [begin, end) of one kind.
struct LabelSpan {
  std::string kind;
  std::size_t begin = 0, end = 0;
  auto operator<=>(const LabelSpan&) const = default;
};

/// Returns the spans that the labels of a sentence mark, as seqeval 1.2.2 does by default (which follows conlleval): in
/// IOB, IOB2, IOE and BIOES a span begins at B-, S-, after E- or S-, or where the kind changes, even at I-. M-, L- and
/// U- of other notations count as I-, E- and S-. If no label has such a prefix, as with parts of speech, each word
/// is a span of its label, except those with O.
std::vector<LabelSpan> label_spans(std::span<const std::string> labels);

/// Numbers of spans: expected, predicted, and right in kind and both ends.
struct SpanCounts {
  std::int64_t expected = 0, predicted = 0, right = 0;
  double precision() const { return share(right, predicted); }
  double recall() const { return share(right, expected); }
  double f1() const { return share(2 * right, expected + predicted); }
  void add(const SpanCounts& other) {
    expected += other.expected, predicted += other.predicted, right += other.right;
  }

 private:
  static double share(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

/// Returns the counts of each kind in a sentence.
std::map<std::string, SpanCounts> count_spans(std::span<const LabelSpan> expected,
                                              std::span<const LabelSpan> predicted);

}  // namespace heed
