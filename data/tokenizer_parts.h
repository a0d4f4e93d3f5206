#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "heed/data/bpe_model.h"
#include "heed/data/tokenizer.h"

namespace heed {

/// The ids of words met before: most words of a text are repeats. It stops growing when full.
class WordCache {
 public:
  /// Appends the ids of the word if it is known.
  bool append(std::string_view word, std::vector<std::int32_t>& ids) const;
  void insert(std::string_view word, std::span<const std::int32_t> ids);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>> words_;
};

/// What a tokenizer file says, without the model.
struct TokenizerSettings {
  std::vector<AddedToken> added_tokens;
  std::vector<TextStep> normalizer;
  bool add_prefix_space = false;
  bool split_words = true;
  /// JSON text of a part that adds special tokens around sequences. encode() never does; it is kept for
  /// save().
  std::string post_processor = "null";
};

/// All of a tokenizer; immutable but for the cache.
struct Tokenizer::Parts {
  /// Throws Error when the added tokens contradict the vocabulary.
  Parts(BpeModel model, TokenizerSettings settings);

  BpeModel model;
  TokenizerSettings settings;
  std::int32_t vocabulary_size = 0;
  std::vector<std::string> bytes_of_id;     // what decoding an id gives
  std::vector<std::string> spelling_of_id;  // how the file spells an id
  std::vector<bool> special_id;             // left out by decode()
  std::unordered_map<std::string, std::int32_t> added_ids;
  TokenMatcher raw_matcher, normalized_matcher;
  mutable WordCache cache;
};

/// Applies the steps one after the other.
std::string normalize_text(std::string_view text, std::span<const TextStep> steps);
/// The words of a text as the model sees them: the optional space in front, then the split.
/// `spaced` receives the text with that space and must outlive the result.
std::vector<std::string_view> model_words(std::string_view text, const TokenizerSettings& settings,
                                          std::string& spaced);

}  // namespace heed
