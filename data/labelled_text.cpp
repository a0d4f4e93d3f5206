#include "heed/data/labelled_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heed/core/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

std::string joined(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

/// The indices of `count` texts in random order.
std::vector<std::size_t> drawn_order(std::size_t count, std::uint64_t seed) {
  std::vector<std::pair<std::uint32_t, std::size_t>> keyed;
  for (std::size_t i = 0; i < count; ++i) keyed.emplace_back(random_word({seed, 0, 0}, i), i);
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::size_t> order;
  for (const auto& [word, index] : keyed) order.push_back(index);
  return order;
}

}  // namespace

void LabelledText::add(std::string text, std::string label, std::string place) {
  texts.push_back(std::move(text));
  labels.push_back(std::move(label));
  places.push_back(std::move(place));
}

std::vector<std::string> class_names(const LabelledText& text) {
  std::vector<std::string> names = text.labels;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  check(names.size() >= 2, "a classifier needs texts of at least two classes, but the ", text.size(),
        " texts are all of ", names.empty() ? "none" : joined(names));
  return names;
}

std::vector<std::int32_t> classes_of(const LabelledText& text, std::span<const std::string> classes) {
  std::vector<std::int32_t> result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto found = std::find(classes.begin(), classes.end(), text.labels[i]);
    check(found != classes.end(), text.places[i], ": the label \"", text.labels[i],
          "\" is none of the classes ", joined(classes));
    result.push_back(static_cast<std::int32_t>(found - classes.begin()));
  }
  return result;
}

TextParts split_text(const LabelledText& text, const SplitOptions& options) {
  check(options.valid_fraction >= 0 && options.test_fraction >= 0 &&
            options.valid_fraction + options.test_fraction < 1,
        "the validation and test parts must be fractions that leave texts to train on, not ",
        options.valid_fraction, " and ", options.test_fraction);
  const auto part = [&](double fraction) {
    return static_cast<std::size_t>(std::llround(static_cast<double>(text.size()) * fraction));
  };
  const std::size_t test = part(options.test_fraction), valid = part(options.valid_fraction);
  check(test + valid < text.size(), "none of the ", text.size(), " texts would be left to train on");
  const std::vector<std::size_t> order = drawn_order(text.size(), options.seed);
  std::vector<LabelledText TextParts::*> part_of(text.size(), &TextParts::train);
  for (std::size_t rank = 0; rank < test + valid; ++rank)
    part_of[order[rank]] = rank < test ? &TextParts::test : &TextParts::valid;
  TextParts parts;
  for (std::size_t i = 0; i < text.size(); ++i)
    (parts.*part_of[i]).add(text.texts[i], text.labels[i], text.places[i]);
  return parts;
}

}  // namespace heed
