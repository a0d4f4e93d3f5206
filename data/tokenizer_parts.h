#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "heed/data/bpe_model.h"
#include "heed/data/tokenizer.h"
#include "heed/data/word_model.h"

namespace heed {

/// A stretch of text, with the id of the token it is, if it is one.
struct Segment {
  std::string_view text;
  std::optional<std::int32_t> id;
};

/// Finds a set of strings in a text: at each place the longest that begins there, left to right, without
/// overlap. Time is linear in the strings, and then in each text: the strings are a tree read from their ends
/// (Aho and Corasick, "Efficient string matching", 1975), so that a pass over the text from its end tells for
/// every place what begins there.
class TokenMatcher {
 public:
  /// A token to look for and what it looks like in the text: its content, or that normalised.
  struct Pattern {
    std::string text;
    AddedToken token;
  };

  explicit TokenMatcher(std::vector<Pattern> patterns = {});
  /// Cuts the text at its tokens. Parts without text are left out.
  std::vector<Segment> split(std::string_view text) const;

 private:
  /// The end of a pattern, of which it is the node's path from the root, read backwards.
  struct Node {
    std::int32_t shorter =
        0;  // the node of the longest beginning of this one that is an end of a pattern, too
    std::int32_t found = -1;  // the longest pattern that is a beginning of this one
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;  // -1: there is none
  std::int32_t child_or_new(std::int32_t node, unsigned char byte);
  std::int32_t step(std::int32_t node, unsigned char byte) const;
  void find(std::string_view text, std::size_t begin, std::size_t end,
            std::vector<std::int32_t>& found) const;

  std::vector<Pattern> patterns_;
  std::vector<Node> nodes_ = {Node{}};
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // of 256 * node + byte
  std::array<bool, 256> begins_pattern_{};
  std::size_t longest_ = 0;
};

/// Cuts a text into the words that byte-level BPE never merges across. The rule is the pattern of GPT-2
/// (Radford et al., 2019), scanned by hand with Unicode categories:
///   's | 't | 're | 've | 'm | 'll | 'd | ?L+ | ?N+ | ?(other)+ | space+ not before a non-space | space+
/// where " ?" is one optional U+0020. The pieces follow each other without gaps; ill-formed bytes count as
/// "other".
std::vector<std::string_view> split_words(std::string_view text);
/// Cuts a text into words and single punctuation marks, as BERT does ("BertPreTokenizer"): white space is left out.
std::vector<std::string_view> split_at_punctuation(std::string_view text);

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

/// What cuts a word into tokens.
using TokenModel = std::variant<BpeModel, WordModel>;
const TokenVocabulary& vocabulary_of(const TokenModel& model);

/// How a text is cut into words for the model, and tokens become text again.
enum class WordStyle {
  byte_level,  ///< words keep their spaces and bytes are spelled by the byte alphabet: nothing is lost
  bert,        ///< split_at_punctuation; tokens are joined by a space
};

/// What a tokenizer file says, without the model.
struct TokenizerSettings {
  std::vector<AddedToken> added_tokens;
  std::vector<TextStep> normalizer;
  WordStyle style = WordStyle::byte_level;
  bool add_prefix_space = false;
  bool split_words = true;
  /// JSON text of a part that adds special tokens around sequences: not for encode(), but kept for save().
  std::string post_processor = "null";
};

/// All of a tokenizer; immutable but for the cache.
struct Tokenizer::Parts {
  /// Throws Error when the added tokens contradict the vocabulary.
  Parts(TokenModel model, TokenizerSettings settings);

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  TokenModel model;
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
/// The words of a text as the model sees them: the optional space in front, then the split. `spaced` receives
/// the text with that space and must outlive the result.
std::vector<std::string_view> model_words(std::string_view text, const TokenizerSettings& settings,
                                          std::string& spaced);

}  // namespace heed
