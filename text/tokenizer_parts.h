#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "heed/base/fork.h"
#include "heed/core/thread_pool.h"
#include "heed/text/bpe.h"
#include "heed/text/pre_tokenizers.h"
#include "heed/text/token_models.h"

namespace heed {

/// A stretch of text, with its token id if it is a token.
struct Segment {
  std::string_view text;
  std::optional<std::int32_t> id;
};

/// Finds added tokens in a text: the longest one at each place, from left to right, without
/// overlap.
class TokenMatcher {
 public:
  /// A token and the text to match: its content, possibly normalised.
  struct Pattern {
    std::string text;
    AddedToken token;
  };

  explicit TokenMatcher(std::vector<Pattern> patterns = {});
  /// Splits the text at its tokens. Empty parts are left out.
  std::vector<Segment> split(std::string_view text) const;

 private:
  std::vector<Pattern> patterns_;
  StringTree tree_;
  std::array<bool, 256> begins_pattern_{};
};

/// The rule that splits a text into words, across which byte-level BPE never merges.
enum class WordSplit {
  none,  ///< A whole text is one word.
  /// The pattern of GPT-2 (Radford et al., 2019), scanned by hand with Unicode categories:
  ///   's | 't | 're | 've | 'm | 'll | 'd
  ///   | ?L+ | ?N+ | ?(other)+ | space+ not before a non-space | space+
  /// where " ?" is one optional U+0020. Vowel signs are "other" here, and split words.
  gpt2,
  /// The pattern of GPT-2, but everything that Unicode's word boundaries keep with an L or N stays
  /// with it (unicode::stays_with_previous). heed's own.
  whole,
  /// The pattern of GPT-2, in texts cut before and after every single N (SmolLM2).
  digits,
  /// The pattern of Llama 3 (and of GPT-4), which differs from GPT-2's in word joining and line
  /// ends:
  ///   's | 't | 're | 've | 'm | 'll | 'd, also in capitals
  ///   | (other or space, but no line end)?L+ | N{1,3} | ?(other)+(line end)*
  ///   | space*(line end)+ | space+ not before a non-space | space+
  llama3,
  /// The pattern of Llama 3 with each N by itself (Qwen2).
  qwen2,
};

/// Splits a text into words, which follow one another without gaps; ill-formed bytes count as
/// "other".
std::vector<std::string_view> split_words(std::string_view text, WordSplit split);
/// Returns the end of the word that begins at byte `at`, which must be inside the text.
std::size_t end_of_word(std::string_view text, std::size_t at, WordSplit split);

/// Cuts a text into parts of about a megabyte. Each but the first begins with a line break after a
/// character that is no space.
std::vector<std::string_view> parts_at_line_breaks(std::string_view text);
/// Whether a line break after a character that is no space always begins a word in this split.
bool begins_word_at_line_break(WordSplit split);

/// A cache of the ids of words, since most words of a text are repeats. Each word has only a few
/// places where it may be stored, so no text makes the look-up slow; if these are taken, the word
/// is not cached. Entries never move, so a look-up takes no lock.
class WordCache {
 public:
  /// Appends the ids of the word and returns true if it is cached.
  bool append(std::string_view word, std::vector<std::int32_t>& ids) const;
  void insert(std::string_view word, std::span<const std::int32_t> ids);

 private:
  /// A cache entry: the word's number of bytes, number of ids, ids and bytes.
  using Entry = std::unique_ptr<std::int32_t[]>;
  using Place = std::atomic<const std::int32_t*>;  // null: free

  std::atomic<Place*> places_ = nullptr;  // null before the first word, which many tokenizers never see
  LeafMutex mutex_;                       // guards the members below, and writing
  std::unique_ptr<Place[]> owned_places_;
  std::vector<Entry> entries_;
};

/// The model that splits a word into tokens.
using TokenModel = std::variant<BpeModel, WordModel, WordPieceModel, UnigramModel>;
const TokenVocabulary& model_vocabulary(const TokenModel& model);

/// The content of a tokenizer file, without the model.
struct TokenizerSettings {
  std::vector<AddedToken> added_tokens;
  std::vector<TextRule> normalizer;
  /// Byte-level: words keep their spaces, and bytes are spelled in the byte alphabet, so nothing is
  /// lost.
  bool byte_level = true;
  bool add_prefix_space = false;                  // for byte-level
  WordSplit word_split = WordSplit::gpt2;         // for byte-level
  std::vector<WordRule> pre_tokenizer;            // otherwise
  std::optional<std::vector<TokenRule>> decoder;  // otherwise; none: tokens are joined by spaces
  /// JSON text of the parts, as written to the file.
  std::string normalizer_text = "null", pre_tokenizer_text = "null", decoder_text = "null";
  /// Adds special tokens around sequences: ignored by encode(), but kept for save().
  std::string post_processor_text = "null";
};

/// Returns the settings of a tokenizer to be trained: its text steps, and byte-level words or
/// BERT's.
TokenizerSettings settings_to_learn(std::span<const TextStep> steps, bool byte_level,
                                    bool add_prefix_space = false, WordSplit split = WordSplit::whole);
/// Returns the JSON text of a pre-tokenizer for byte-level words. Only heed's own splits (whole,
/// gpt2, none) put a space before texts.
std::string byte_level_pre_tokenizer(bool add_prefix_space, WordSplit split);

/// The state of a tokenizer; immutable except for the cache.
struct TokenizerParts {
  /// Assigns ids to the added tokens (see Tokenizer::added_tokens).
  TokenizerParts(TokenModel model, TokenizerSettings settings);

  /// Appends the ids of a text without added tokens, computed on all threads if the text is long. `first`:
  /// see for_each_word().
  void encode(std::string_view text, std::size_t first, std::vector<std::int32_t>& ids) const;
  std::string decode(std::span<const std::int32_t> ids, bool keep_special) const;

  TokenModel model;
  TokenizerSettings settings;
  std::int32_t vocabulary_size = 0;
  std::vector<std::string> bytes_of_id;     // what an id decodes to
  std::vector<std::string> spelling_of_id;  // how the file spells an id
  std::vector<bool> hole_id;                // spells nothing, and is left out by decode()
  std::vector<bool> special_id;             // left out by decode() unless they are to be kept
  std::unordered_map<std::string, std::int32_t> added_ids;
  TokenMatcher raw_matcher, normalized_matcher;
  bool cuts_at_line_breaks = false;  // long texts may be encoded in parts_at_line_breaks()
  mutable WordCache cache;

 private:
  bool merges_end_at_line_breaks() const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
};

/// Applies the rules in order.
std::string normalize_text(std::string_view text, std::span<const TextRule> rules);

/// A text after all rules; without rules it refers to the original text, which must outlive it.
class NormalizedText {
 public:
  NormalizedText(std::string_view text, std::span<const TextRule> rules)
      : changed_(rules.empty() ? std::string() : normalize_text(text, rules)),
        text_(rules.empty() ? text : changed_) {}
  NormalizedText& operator=(NormalizedText&&) = delete;
  std::string_view text() const { return text_; }
  operator std::string_view() const { return text_; }

 private:
  std::string changed_;
  std::string_view text_;
};

/// Calls visit(word) for each word of a text, as the model sees it. `first`: the number of bytes
/// that stem from the first character of the whole text before normalisation.
template <class Visit>
void for_each_word(std::string_view text, const TokenizerSettings& settings, std::size_t first,
                   const Visit& visit) {
  if (text.empty()) return;
  if (settings.byte_level) {
    const bool lacks_space = settings.add_prefix_space && !text.starts_with(' ');
    std::string spaced;
    if (lacks_space) spaced.append(" ").append(text);
    if (lacks_space) text = spaced;
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = end_of_word(text, at, settings.word_split);
      visit(text.substr(at, end - at));
    }
    return;
  }
  std::vector<Piece> pieces{{std::string(text), first}};
  for (const WordRule& rule : settings.pre_tokenizer) {
    std::vector<Piece> cut;
    for (const Piece& piece : pieces) rule(piece, cut);
    pieces = std::move(cut);
  }
  for (const Piece& piece : pieces) visit(std::string_view(piece.text));
}

/// Calls visit(word, result) for each word of a text, as for_each_word(). If `cuts`, the
/// parts_at_line_breaks() of a long text are visited on all threads: the first with `result`, each
/// later one with a Result of its own. Returns these in their order.
template <class Result, class Visit>
std::vector<Result> visit_words(std::string_view text, const TokenizerSettings& settings, std::size_t first,
                                bool cuts, Result& result, const Visit& visit) {
  const std::vector<std::string_view> parts = cuts ? parts_at_line_breaks(text) : std::vector{text};
  std::vector<Result> later(parts.size() - 1);
  parallel_for(static_cast<std::int64_t>(parts.size()), [&](std::int64_t part) {
    const auto i = static_cast<std::size_t>(part);
    Result& own = i == 0 ? result : later[i - 1];
    for_each_word(parts[i], settings, i == 0 ? first : 0, [&](std::string_view word) { visit(word, own); });
  });
  return later;
}

}  // namespace heed
