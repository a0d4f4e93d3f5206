#include "heed/apps/data/text_features.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/models/sparse_linear.h"
#include "heed/text/pre_tokenizers.h"
#include "heed/text/safetensors.h"

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
  Hashes words;       // in lower case
  Hashes with_pairs;  // these, pairs of them, and words with capitals
  Hashes runs;
};

Found features_in(std::string_view text) {
  Found found;
  for (const std::string_view word : split_at_punctuation(unicode::beginning(text, bytes_read))) {
    const std::string lower = unicode::lower_case(word, unicode::FinalSigma::medial);
    const std::uint64_t hash = hash_word(lower);
    found.with_pairs.push_back(hash);
    if (!found.words.empty()) found.with_pairs.push_back(mixed(found.words.back() ^ (hash << 1)));
    found.words.push_back(hash);
    if (lower != word) found.with_pairs.push_back(mixed(hash_word(word)));
    add_runs(lower, found.runs);
  }
  return found;
}

/// Adds distinct ids from `begin` to `end` with their counts.
void add_counted(Hashes hashes, std::int64_t begin, std::int64_t end, TextFeatures& features) {
  if (begin == end) return;
  for (std::uint64_t& hash : hashes) hash %= static_cast<std::uint64_t>(end - begin);
  std::ranges::sort(hashes);
  for (std::size_t i = 0, next = 0; i < hashes.size(); i = next) {
    while (next < hashes.size() && hashes[next] == hashes[i]) ++next;
    features.ids.push_back(static_cast<std::int32_t>(begin + static_cast<std::int64_t>(hashes[i])));
    features.values.push_back(1 + std::log(static_cast<float>(next - i)));
  }
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

constexpr std::int64_t knots = 10;  // of each number; the last one stands for all higher ones

/// Adds a number as one or two features with ids from `begin` on, below `end`: linear interpolation between
/// the knots around it.
void add_number(TextFeatures& features, double number, std::int64_t begin, std::int64_t end) {
  const double shown = std::min(number, static_cast<double>(knots - 1)), below = std::floor(shown);
  for (const auto& [knot, value] :
       {std::pair(below, below + 1 - shown), std::pair(below + 1, shown - below)}) {
    const std::int64_t id = begin + static_cast<std::int64_t>(knot);
    if (value == 0 || id >= end) continue;
    features.ids.push_back(static_cast<std::int32_t>(id));
    features.values.push_back(static_cast<float>(value));
  }
}

/// Adds the feature that every text has.
void add_constant(TextFeatures& features, std::int64_t count) {
  features.ids.push_back(static_cast<std::int32_t>(count - 1));
  features.values.push_back(1);
}

/// Returns the share `part` / `whole` in quarters.
double quarters(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : 4 * static_cast<double>(part) / static_cast<double>(whole);
}

// --- words in sentences

constexpr std::int64_t neighbours = 2;

/// A word as its features see it.
struct SeenWord {
  std::string lower, shape;
  std::vector<std::size_t> places = {};  // of its characters in `lower`, and the end

  explicit SeenWord(std::string_view word) : lower(unicode::lower_case(word, unicode::FinalSigma::medial)) {
    for (std::size_t byte = 0; byte < word.size();) {
      const unicode::CodePoint c = unicode::decode(word, byte);
      const std::string_view own = word.substr(byte, static_cast<std::size_t>(c.length));
      const std::string_view kind = unicode::lower_case(own, unicode::FinalSigma::medial) != own ? "X"
                                    : unicode::is_letter(c.value)                                ? "x"
                                    : unicode::is_number(c.value)                                ? "0"
                                                                                                 : own;
      if (!shape.ends_with(kind)) shape += kind;
      byte += own.size();
    }
    for (std::size_t byte = 0; byte <= lower.size(); ++byte)
      if (byte == lower.size() || (lower[byte] & 0xC0) != 0x80) places.push_back(byte);
  }
  std::string_view beginning(std::size_t characters) const {
    return std::string_view(lower).substr(0, places[std::min(characters, places.size() - 1)]);
  }
  std::string_view ending(std::size_t characters) const {
    return std::string_view(lower).substr(places[places.size() - std::min(characters + 1, places.size())]);
  }
};

}  // namespace

TextFeatures word_features(std::span<const std::string> words, std::size_t place, std::int64_t count) {
  Hashes whole, parts;
  std::uint64_t kind = 0;  // distinguishes equal texts
  const auto add = [&](Hashes& list, auto&&... texts) {
    std::uint64_t hash = ++kind;
    ((hash = mixed(hash ^ hash_word(texts))), ...);
    list.push_back(hash);
  };
  std::vector<SeenWord> seen;
  for (std::int64_t i = -neighbours; i <= neighbours; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(place) + i;
    seen.emplace_back(at < 0 || at >= std::ssize(words) ? std::string_view("\n")
                                                        : words[static_cast<std::size_t>(at)]);
  }
  const SeenWord &own = seen[neighbours], &before = seen[neighbours - 1], &behind = seen[neighbours + 1];
  add(whole, std::string_view(words[place]));
  for (const SeenWord& one : seen) add(whole, one.lower), add(parts, one.shape);
  add(whole, before.lower, own.lower);
  add(whole, own.lower, behind.lower);
  add(parts, before.shape, own.shape);
  add(parts, own.shape, behind.shape);
  add(parts, before.shape, own.shape, behind.shape);
  for (std::size_t length = 1; length <= 5; ++length)
    add(parts, own.beginning(length)), add(parts, own.ending(length));
  for (const SeenWord* one : {&before, &behind}) add(parts, one->ending(3));
  const auto ends = SparseLinear::group_ends(count);
  TextFeatures features;
  add_counted(std::move(whole), 0, ends[0], features);
  add_counted(std::move(parts), ends[0], ends[1], features);
  add_constant(features, count);
  std::ranges::fill(features.values, 1.F);
  return features;
}

TextFeatures text_features(std::string_view text, std::int64_t count, std::span<const float> vector) {
  check(count > std::ssize(vector), "hashed features need at least one row, got ", count);
  Found found = features_in(text);
  const auto ends = SparseLinear::group_ends(count, std::ssize(vector));
  TextFeatures features;
  add_counted(std::move(found.with_pairs), 0, ends[0], features);
  add_counted(std::move(found.runs), ends[0], ends[1], features);
  for (std::size_t i = 0; i < vector.size(); ++i) {
    features.ids.push_back(static_cast<std::int32_t>(ends[1] + static_cast<std::int64_t>(i)));
    features.values.push_back(vector[i]);
  }
  add_constant(features, count);
  return features;
}

TextFeatures pair_features(std::string_view first, std::string_view second, std::int64_t count) {
  enum : std::uint64_t { in_first = 1, in_second, in_both };
  const auto ends = SparseLinear::group_ends(count);
  const Found of_first = features_in(first), of_second = features_in(second);
  TextFeatures features;
  std::vector<double> numbers;
  for (const auto kind : {&Found::with_pairs, &Found::runs}) {
    const Hashes a = distinct(of_first.*kind), b = distinct(of_second.*kind), both = common(a, b);
    Hashes all;
    for (const Hashes* one : {&a, &b})
      for (const std::uint64_t hash : *one)
        if (!std::ranges::binary_search(both, hash))
          all.push_back(mixed(hash ^ (one == &a ? in_first : in_second)));
    for (const std::uint64_t hash : both) all.push_back(mixed(hash ^ in_both));
    const bool runs = kind == &Found::runs;
    add_counted(std::move(all), runs ? ends[0] : 0, runs ? ends[1] : ends[0], features);
    if (runs) numbers = {quarters(both.size(), a.size()), quarters(both.size(), b.size())};
  }
  const Hashes words = distinct(of_first.words), others = distinct(of_second.words);
  const std::size_t in_common = common(words, others).size();
  const auto difference =
      static_cast<double>(std::max(words.size(), others.size()) - std::min(words.size(), others.size()));
  for (const double number : {quarters(in_common, words.size()), quarters(in_common, others.size()),
                              std::log2(1 + static_cast<double>(in_common)), std::log2(1 + difference)})
    numbers.push_back(number);
  for (std::int64_t begin = ends[1]; const double number : numbers) {
    add_number(features, number, begin, ends[2] - 1);
    begin += knots;
  }
  add_constant(features, count);
  return features;
}

namespace {

/// Returns a tokenizer.json that does not cut or pad texts.
std::string without_lengths(std::string_view text, const std::string& source) {
  auto json = parse_json<nlohmann::json>(text, source);
  check(json.is_object(), source, " is not a JSON object");
  json["truncation"] = json["padding"] = nullptr;
  return json.dump();
}

/// Returns the table [tokens, width] of a file, as StaticVectors describes it, and its width.
std::pair<std::vector<float>, std::int64_t> read_table(const TensorFile& file, std::int64_t tokens,
                                                       const std::string& source) {
  const auto tensor = [&](const char* name) {
    const auto found = file.tensors.find(name);
    return found == file.tensors.end() ? Tensor() : found->second;
  };
  Tensor rows = tensor("embeddings");
  if (!rows.defined()) rows = tensor("embedding.weight");
  check(rows.defined() && rows.rank() == 2 && rows.dtype() == DType::f32 && rows.size(1) > 0, source,
        " has no vectors: neither \"embeddings\" nor \"embedding.weight\" is a matrix of floats");
  const Tensor factors = tensor("weights"), mapping = tensor("mapping");
  const std::int64_t count = rows.size(0), width = rows.size(1);
  check(
      mapping.defined() ? mapping.shape() == Shape{tokens} && mapping.dtype() == DType::i32 : count == tokens,
      source, ": tokenizer.json has ", tokens, " tokens, but there are ",
      mapping.defined() ? mapping.size(0) : count, " vectors: they do not belong together");
  check(!factors.defined() || (factors.shape() == Shape{tokens} && factors.dtype() == DType::f32), source,
        ": \"weights\" must have a float for each of ", tokens, " tokens");
  const std::vector<float> all = rows.to_vector<float>(),
                           scale = factors.defined() ? factors.to_vector<float>() : std::vector<float>();
  const std::vector<std::int32_t> places =
      mapping.defined() ? mapping.to_vector<std::int32_t>() : std::vector<std::int32_t>();
  std::vector<float> table;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto at = static_cast<std::size_t>(token);
    const std::int64_t row = places.empty() ? token : places[at];
    check(row >= 0 && row < count, source, ": \"mapping\" sends token ", token, " to row ", row, " of ",
          count);
    for (std::int64_t i = 0; i < width; ++i) {
      table.push_back(all[static_cast<std::size_t>(row * width + i)] * (scale.empty() ? 1 : scale[at]));
      check(std::isfinite(table.back()), source, ": the vector of token ", token, " is not finite");
    }
  }
  return {std::move(table), width};
}

}  // namespace

StaticVectors StaticVectors::load(const std::filesystem::path& folder) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 32;
  const bool is_nested =
      !path_exists(folder / "model.safetensors") && path_exists(folder / "0_StaticEmbedding");
  const std::filesystem::path own = is_nested ? folder / "0_StaticEmbedding" : folder;
  for (const char* const name : {"tokenizer.json", "model.safetensors"})
    check(path_exists(own / name), folder, " is no folder of static vectors: it has no ", name);
  const std::string tokenizer =
      without_lengths(read_file(own / "tokenizer.json", most_bytes), (own / "tokenizer.json").string());
  return {tokenizer, read_file(own / "model.safetensors", most_bytes), own.string()};
}

StaticVectors::StaticVectors(std::string_view tokenizer, std::string_view tensors, const std::string& source)
    : json_(tokenizer), tokenizer_(Tokenizer::from_json(json_, source + "/tokenizer.json")) {
  UnsupportedTensors unread;
  const std::string file = source + "/model.safetensors";
  std::tie(table_, width_) =
      read_table(parse_safetensors(tensors, file, {}, &unread), tokenizer_.vocabulary_size(), file);
  for (const char* const mark : {"[UNK]", "<unk>"})
    if (const auto id = tokenizer_.find(mark)) unknown_ = *id;
}

std::string StaticVectors::tensors() const {
  const std::int64_t tokens = std::ssize(table_) / width_;
  return safetensors_text({{{"embeddings", Tensor::from(table_, {tokens, width_})}}, {}});
}

std::vector<float> StaticVectors::operator()(std::string_view text) const {
  std::vector<double> sum(static_cast<std::size_t>(width_));
  for (const std::int32_t token : tokenizer_.encode(unicode::beginning(text, bytes_read)))
    for (std::size_t i = 0; token != unknown_ && i < sum.size(); ++i)
      sum[i] += static_cast<double>(table_[static_cast<std::size_t>(token) * sum.size() + i]);
  double squares = 0;
  for (const double one : sum) squares += one * one;
  std::vector<float> vector;
  for (const double one : sum)
    vector.push_back(static_cast<float>(squares > 0 ? one / std::sqrt(squares) : 0));
  return vector;
}

}  // namespace heed
