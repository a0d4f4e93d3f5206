#include "heed/data/listops.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <vector>

#include "heed/core/checked.h"
#include "heed/core/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

constexpr std::array<const char*, 4> operators = {"[MIN", "[MAX", "[MED", "[SM"};

int apply(std::size_t which, std::vector<int> arguments) {
  std::sort(arguments.begin(), arguments.end());
  const std::size_t count = arguments.size();
  switch (which) {
    case 0:
      return arguments.front();
    case 1:
      return arguments.back();
    case 2:
      return (arguments[(count - 1) / 2] + arguments[count / 2]) / 2;
    default:
      break;
  }
  int sum = 0;
  for (const int argument : arguments) sum += argument;
  return sum % 10;
}

/// One tree; it stops growing where it is too long to be kept.
class Tree {
 public:
  /// Tree number `index` of a seed has its own stream of random words.
  Tree(std::uint64_t seed, std::uint32_t index, const ListOpsRule& rule)
      : rule_(rule), draws_({seed, index, 0}) {
    value_ = grow(1);
  }
  bool fits() const { return length_ > rule_.longer_than && length_ < rule_.shorter_than; }
  const std::string& text() const { return text_; }
  int value() const { return value_; }
  std::int64_t length() const { return length_; }

 private:
  void write(const std::string& token) {
    if (!text_.empty()) text_ += ' ';
    text_ += token;
    ++length_;
  }

  /// Writes a node and all below it; returns its value.
  int grow(std::int64_t depth) {
    if (length_ >= rule_.shorter_than) return 0;  // the tree will not be kept
    if (depth >= rule_.max_depth || draws_.unit() >= rule_.operator_share) {
      const int digit = draws_.below(10);
      write(std::to_string(digit));
      return digit;
    }
    const std::size_t which = draws_.below(operators.size());
    write(operators[which]);
    std::vector<int> arguments(2 + draws_.below(static_cast<std::uint64_t>(rule_.max_arguments - 1)));
    for (int& argument : arguments) argument = grow(depth + 1);
    write("]");
    return apply(which, std::move(arguments));
  }

  ListOpsRule rule_;
  Draws draws_;
  std::int64_t length_ = 0;
  std::string text_;
  int value_ = 0;
};

}  // namespace

LabelledText draw_listops(std::uint64_t seed, std::int64_t count, const ListOpsRule& rule) {
  checked_range("listops: count", count, 0, 10'000'000);
  checked_range("listops: max_depth", rule.max_depth, 1, 1000);
  checked_range("listops: max_arguments", rule.max_arguments, 2, 1000);
  checked_range("listops: longer_than", rule.longer_than, 0, 1'000'000);
  checked_range("listops: shorter_than", rule.shorter_than, 1, 1'000'000);
  check(rule.operator_share >= 0 && rule.operator_share <= 1, "listops: operator_share is ",
        rule.operator_share, "; it must be 0 to 1");
  LabelledText text;
  std::unordered_set<std::string> drawn;
  constexpr std::int64_t patience = 100'000, patience_tokens = 20'000'000;
  std::int64_t in_vain = 0, tokens_in_vain = 0;
  for (std::uint32_t index = 0; static_cast<std::int64_t>(text.size()) < count; ++index) {
    Tree tree(seed, index, rule);
    if (!tree.fits() || !drawn.insert(tree.text()).second) {
      tokens_in_vain += tree.length();
      check(++in_vain < patience && tokens_in_vain <= patience_tokens,
            "the rule gives hardly any expression longer than ", rule.longer_than, " and shorter than ",
            rule.shorter_than, " beyond the ", text.size(), " that were drawn");
      continue;
    }
    in_vain = tokens_in_vain = 0;
    text.add(tree.text(), std::to_string(tree.value()), "expression ", text.size() + 1);
  }
  return text;
}

}  // namespace heed
