#include "heed/apps/data/text_features.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/text/pre_tokenizers.h"

namespace heed {
namespace {

constexpr std::size_t longest_run = 5;
constexpr std::size_t bytes_read = 1 << 16;

using Hashes = std::vector<std::uint64_t>;

/// The finaliser of SplitMix64 (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::uint64_t hash_word(std::string_view word) {
  return mixed(fnv1a(word));
}

void add_runs(std::string_view word, Hashes& found) {
  std::vector<char32_t> characters = {' '};
  for (std::size_t at = 0; at < word.size();) {
    const unicode::CodePoint c = unicode::decode(word, at);
    characters.push_back(c.valid ? c.value : 0xFFFD);
    at += static_cast<std::size_t>(c.length);
  }
  characters.push_back(' ');
  for (std::size_t begin = 0; begin < characters.size(); ++begin) {
    std::uint64_t hash = 0;
    const std::size_t end = std::min(begin + longest_run, characters.size());
    for (std::size_t at = begin; at < end; ++at) found.push_back(hash = mixed(hash ^ characters[at]));
  }
}

/// The hashes of a text's features, with repetition.
struct Found {
  Hashes words;  // in lower case
  Hashes all;    // these and the others
};

Found features_in(std::string_view text) {
  Found found;
  for (const std::string_view word : split_at_punctuation(unicode::beginning(text, bytes_read))) {
    const std::string lower = unicode::lower_case(word, unicode::FinalSigma::medial);
    const std::uint64_t hash = hash_word(lower);
    found.all.push_back(hash);
    if (!found.words.empty()) found.all.push_back(mixed(found.words.back() ^ (hash << 1)));
    found.words.push_back(hash);
    if (lower != word) found.all.push_back(mixed(hash_word(word)));
    add_runs(lower, found.all);
  }
  return found;
}

/// Returns distinct ids with their counts.
TextFeatures counted(Hashes hashes, std::int64_t count) {
  check(count > 0, "hashed features need at least one row, got ", count);
  for (std::uint64_t& hash : hashes) hash %= static_cast<std::uint64_t>(count);
  std::ranges::sort(hashes);
  TextFeatures features;
  for (std::size_t i = 0, end = 0; i < hashes.size(); i = end) {
    while (end < hashes.size() && hashes[end] == hashes[i]) ++end;
    features.ids.push_back(static_cast<std::int32_t>(hashes[i]));
    features.values.push_back(1 + std::log(static_cast<float>(end - i)));
  }
  float squares = 0;
  for (const float value : features.values) squares += value * value;
  for (float& value : features.values) value /= std::sqrt(squares);
  return features;
}

/// Returns each hash once, in order.
Hashes distinct(Hashes hashes) {
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

Hashes common(const Hashes& some, const Hashes& others) {
  Hashes found;
  std::ranges::set_intersection(some, others, std::back_inserter(found));
  return found;
}

/// Adds a number as two features: linear interpolation between the whole numbers around it.
void add_number(TextFeatures& features, std::uint64_t kind, double number, std::int64_t count) {
  const double below = std::floor(number);
  for (const auto& [knot, value] :
       {std::pair(below, below + 1 - number), std::pair(below + 1, number - below)}) {
    const std::uint64_t hash = mixed((kind << 8) + static_cast<std::uint64_t>(knot));
    features.ids.push_back(static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(count)));
    features.values.push_back(static_cast<float>(value));
  }
}

/// Returns the share `part` / `whole` in quarters.
double quarters(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : 4 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

TextFeatures text_features(std::string_view text, std::int64_t count) {
  return counted(features_in(text).all, count);
}

TextFeatures pair_features(std::string_view first, std::string_view second, std::int64_t count) {
  enum : std::uint64_t { in_first = 1, in_second, in_both };
  const Found of_first = features_in(first), of_second = features_in(second);
  const Hashes a = distinct(of_first.all), b = distinct(of_second.all), both = common(a, b);
  Hashes all;
  for (const Hashes* one : {&a, &b})
    for (const std::uint64_t hash : *one)
      if (!std::ranges::binary_search(both, hash))
        all.push_back(mixed(hash ^ (one == &a ? in_first : in_second)));
  for (const std::uint64_t hash : both) all.push_back(mixed(hash ^ in_both));
  TextFeatures features = counted(std::move(all), count);
  const Hashes words = distinct(of_first.words), others = distinct(of_second.words);
  const std::size_t in_common = common(words, others).size();
  const auto difference =
      static_cast<double>(std::max(words.size(), others.size()) - std::min(words.size(), others.size()));
  const double numbers[] = {quarters(in_common, words.size()),
                            quarters(in_common, others.size()),
                            quarters(both.size(), a.size()),
                            quarters(both.size(), b.size()),
                            std::log2(1 + static_cast<double>(in_common)),
                            std::log2(1 + difference)};
  for (std::uint64_t kind = 0; const double number : numbers) add_number(features, ++kind, number, count);
  return features;
}

}  // namespace heed
