#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heed {

/// Texts with the name of the class of each. `places` says in messages where a text came from: "file:line".
struct LabelledText {
  std::vector<std::string> texts, labels, places;
  std::size_t size() const { return texts.size(); }
  void add(std::string text, std::string label, std::string place);
};

/// The names of all classes, each once, in the order of their bytes: the index of a name is its class.
/// Throws Error when there are fewer than two.
std::vector<std::string> class_names(const LabelledText& text);
/// The class of each text. Throws Error that names the place of the first label which is not among `classes`.
std::vector<std::int32_t> classes_of(const LabelledText& text, std::span<const std::string> classes);

/// Texts in three parts that have nothing in common.
struct TextParts {
  LabelledText train, valid, test;
};

struct SplitOptions {
  double valid_fraction = 0;
  double test_fraction = 0;
  std::uint64_t seed = 1;
};

/// Draws the parts: text i gets the random word i of the seed, and in the order of these words the first
/// round(n * test_fraction) are test texts, the next round(n * valid_fraction) validation texts, the others
/// training texts; each part keeps the order of the data. So the test part does not depend on the size of
/// the validation part. Throws Error for fractions that leave nothing to train on.
TextParts split_text(const LabelledText& text, const SplitOptions& options);

}  // namespace heed
