#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/text/tokenizer.h"

namespace heed {

/// A sparse vector: `values` at `ids`, each of which occurs once.
struct TextFeatures {
  Tokens ids;
  std::vector<float> values;
};

/// Returns features of a text for a linear classifier, with ids from 0 to count - 1, in the groups of
/// SparseLinear::group_ends(). Hashed are (Weinberger et al. 2009, arXiv 0902.2206): as words, words and
/// punctuation marks in lower case, and also unchanged if they have capitals, and pairs of adjacent
/// words; as parts of words, runs of 1 to 5 characters within a word, whose ends count as characters. A
/// feature that occurs n times has the value 1 + ln n. The last id is a constant, 1. Words end at white
/// space and punctuation. Only the first 65,536 bytes are read. The numbers of `vector`, among the `count`, are
/// features, too.
TextFeatures text_features(std::string_view text, std::int64_t count, std::span<const float> vector = {});

/// Returns features of a pair: every feature of either text, once, with a distinction of which
/// texts have it. Six numbers follow: the shares of one text's runs, and of its words, that the other
/// also has, in quarters; and log2(1 + n) of the number of shared words and of the difference of the
/// word counts. Each number is split between the features of its two neighbouring integers, with values
/// that sum to 1.
TextFeatures pair_features(std::string_view first, std::string_view second, std::int64_t count);

/// Returns features of a word in its sentence: as words, itself with and without capitals, its two neighbours on either
/// side, and the pairs of it and the next ones; as parts, its beginnings and ends of up to 5 characters, its shape ("Xx-0"),
/// those of its neighbours, and the ends of the next ones. Each has the value 1.
TextFeatures word_features(std::span<const std::string> words, std::size_t place, std::int64_t count);

/// Vectors of words that do not depend on their neighbours, from a folder of model2vec (Tulkens and van
/// Dongen 2024) or of StaticEmbedding of sentence-transformers: tokenizer.json and model.safetensors, which
/// has "embeddings" or "embedding.weight" [rows, width] and may have "weights" [tokens], factors, and
/// "mapping" [tokens], the rows of the tokens.
class StaticVectors {
 public:
  /// Reads a folder. Throws an Error that names the file and what is wrong with it.
  static StaticVectors load(const std::filesystem::path& folder);
  /// Parses the files of a folder; `source` names them in errors.
  StaticVectors(std::string_view tokenizer, std::string_view tensors, const std::string& source);

  std::int64_t width() const { return width_; }
  /// The files of a folder with these vectors.
  const std::string& tokenizer_json() const { return json_; }
  std::string tensors() const;
  /// Returns the mean over the tokens of a text, divided by its length; 0 if the text has no known token. Only
  /// the first 65,536 bytes are read.
  std::vector<float> operator()(std::string_view text) const;

 private:
  std::string json_;
  Tokenizer tokenizer_;
  std::int64_t width_ = 0;
  std::int32_t unknown_ = -1;
  std::vector<float> table_;  // [tokens, width]
};

}  // namespace heed
