#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/text/pre_tokenizers.h"

namespace heed {

struct TokenizerParts;

struct TokenizerTraining {
  std::int64_t vocabulary_size = 8000;  ///< All ids, including special tokens.
  std::int64_t min_frequency = 2;       ///< Rarer pairs are never merged; rarer words are unknown.
  /// The special tokens, which take the first ids in this order.
  std::vector<std::string> special_tokens = {"<pad>", "<s>", "</s>", "<unk>"};
  /// Puts a space before a text that lacks one, so that its first word is the same token as
  /// elsewhere; decode() then returns the text with that space.
  bool add_prefix_space = false;
  /// Splits words as GPT-2 does, except that vowel signs, other marks and joiners stay with their
  /// letters. If false, a whole line is one word, and merges cross spaces.
  bool split_words = true;
  std::vector<TextStep> normalizer = {};
};

/// A stream of texts that need not all be in memory: calls take(text) for each.
using TextSource = std::function<void(const std::function<void(std::string_view text)>& take)>;
/// Returns the texts of a list as a stream; the list must outlive it.
TextSource source_of(std::span<const std::string> texts);

/// A tokenizer in the `tokenizer.json` format of Hugging Face tokenizers: byte-level BPE, whole
/// words, WordPiece or Unigram. Any text can be encoded. With byte-level BPE and no normaliser,
/// decode_bytes(encode(text)) returns the text byte for byte (including ill-formed UTF-8), except
/// for special tokens in it; whole words are joined by spaces. Copies share the vocabulary.
/// Thread-safe.
class Tokenizer {
 public:
  /// Trains a byte-level BPE tokenizer. The result depends only on the lines (not on their order)
  /// and the options.
  static Tokenizer train(std::span<const std::string> lines, const TokenizerTraining& options = {});
  static Tokenizer train(const TextSource& lines, const TokenizerTraining& options = {});
  /// Trains a tokenizer whose tokens are the characters of the texts, after the special tokens. It
  /// is byte-level BPE that merges only the bytes within a character, so other tools can read its
  /// file. A run of bytes that occurs in no text becomes "<unk>" if that is among the special
  /// tokens. Throws Error if a text is not UTF-8 or all are empty.
  static Tokenizer train_characters(std::span<const std::string> texts,
                                    const std::vector<std::string>& special_tokens,
                                    const std::vector<TextStep>& normalizer = {});
  /// Trains a tokenizer of whole words, split at white space, with each punctuation mark as its own
  /// word. It keeps the most frequent words; all others are "<unk>", which must be among the
  /// special tokens. `kept_tokens` (such as "\n") follow these: they are matched in the text as
  /// they are, and decode() keeps them. The result depends only on the lines (not on their order)
  /// and the options, of which add_prefix_space and split_words have no effect here.
  static Tokenizer train_words(std::span<const std::string> lines, const TokenizerTraining& options = {},
                               const std::vector<std::string>& kept_tokens = {});
  static Tokenizer train_words(const TextSource& lines, const TokenizerTraining& options = {},
                               const std::vector<std::string>& kept_tokens = {});
  /// Loads a tokenizer.json file. Throws Error with the path and the reason: it is missing,
  /// damaged, or has a part that encode() could not reproduce exactly (which the error names).
  static Tokenizer load(const std::filesystem::path& path);
  /// Parses the text of a tokenizer.json file; `origin` names its source in errors.
  static Tokenizer from_json(std::string_view text, std::string_view origin);
  /// Returns the text of the tokenizer.json file. Throws Error for tokens that are not valid UTF-8,
  /// which JSON cannot hold.
  std::string to_json() const;
  /// Writes the tokenizer.json file atomically. Throws Error if that fails.
  void save(const std::filesystem::path& path) const;

  /// Returns the ids of a text, as `tokenizers` gives them with add_special_tokens=False. Special
  /// tokens in the text are recognised. Bytes in missing_bytes() give the unknown token, or nothing
  /// if there is none.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the text of ids, without special tokens unless `keep_special`. Throws Error for an id
  /// outside the vocabulary. Ids need not form whole characters: bytes that are not UTF-8 become
  /// U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool keep_special = false) const;
  /// Returns the text of ids as decode() does, but keeps bytes that are not UTF-8.
  std::string decode_bytes(std::span<const std::int32_t> ids, bool keep_special = false) const;

  /// The number of ids, which run from 0 to vocabulary_size() - 1.
  std::int32_t vocabulary_size() const;
  /// The spelling of a token in the file ("Ġ" is a space); empty for an id that the file leaves
  /// out. Throws Error for an id outside the vocabulary.
  const std::string& token(std::int32_t id) const;
  /// Returns the id of a token as spelled in the file; nothing if it is missing.
  std::optional<std::int32_t> find(std::string_view token) const;
  /// Returns the id of a required token such as "<pad>". Throws Error if it is missing. A mark may
  /// have another name: [PAD], [UNK], [CLS], `<bos>`, `<|begin_of_text|>` for `<s>`, [SEP],
  /// `<eos>`, `<|endoftext|>`, `<|end_of_text|>` for `</s>`.
  std::int32_t id_of(std::string_view token) const;
  /// The added tokens. Their ids are assigned as in Hugging Face's tokenizers, regardless of the
  /// ids in the file: the vocabulary's id, otherwise the next one after the vocabulary's tokens.
  const std::vector<AddedToken>& added_tokens() const;
  /// Returns the bytes without a token. Empty for tokenizers from train(); a file from elsewhere
  /// may lack some, and a program should report that.
  std::string missing_bytes() const;
  /// Returns the distinct characters of a text that encode() would lose because one of their bytes
  /// has no token, in order of appearance. Always empty if missing_bytes() is.
  std::vector<std::string> unknown_characters(std::string_view text) const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  friend class TokenizerFile;
  std::shared_ptr<const TokenizerParts> parts_;
};

/// The recommended tokenizer for a classifier.
struct TokenKind {
  std::string name;             ///< a value of tokenizer.kind: "words", "characters" or "bpe"
  std::string why;              ///< the reason, for the user
  std::int64_t vocabulary = 0;  ///< recommended number of tokens; 0: all
};

/// Recommends a tokenizer from the letters of the texts and the share of words that occur once,
/// which estimates the share of unknown words in new texts (Good 1953, "The population frequencies
/// of species and the estimation of population parameters"). Texts of plain a to z keep words,
/// however few they are.
TokenKind token_kind_for(const TextSource& texts);

}  // namespace heed
