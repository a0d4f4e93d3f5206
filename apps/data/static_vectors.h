#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heed/text/tokenizer.h"

namespace heed {

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
