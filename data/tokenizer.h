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

#include "heed/data/text_rules.h"

namespace heed {

struct TokenizerParts;

struct TokenizerTraining {
  std::int64_t vocabulary_size = 8000;  ///< All ids, including special tokens.
  std::int64_t min_frequency = 2;       ///< Rarer pairs are never merged; rarer words are unknown.
  /// The first ids, from 0, in this order.
  std::vector<std::string> special_tokens = {"<pad>", "<s>", "</s>", "<unk>"};
  /// Puts a space before a text that lacks one, so that its first word is the same token as elsewhere;
  /// decode() then returns the text with that space.
  bool add_prefix_space = false;
  /// GPT-2's word split, but vowel signs and other marks stay with their letters, as do the joiners. Without
  /// it a whole line is one word, and merges cross spaces.
  bool split_words = true;
  std::vector<TextStep> normalizer = {};
};

/// Texts that need not all be in memory: calls take(text) for each.
using TextSource = std::function<void(const std::function<void(std::string_view text)>& take)>;
/// The texts of a list, which must outlive the source.
TextSource source_of(std::span<const std::string> texts);

/// A tokenizer in the `tokenizer.json` format of Hugging Face tokenizers: byte-level BPE, whole words,
/// WordPiece or Unigram. Any text can be encoded. With byte-level BPE and no normaliser,
/// decode_bytes(encode(text)) returns the text byte for byte (including ill-formed UTF-8), except for
/// special tokens in it; whole words are joined by spaces. Copies share the vocabulary. All functions may
/// be called from several threads.
class Tokenizer {
 public:
  /// Learns a vocabulary. The result depends only on the lines (not on their order) and the options.
  static Tokenizer train(std::span<const std::string> lines, const TokenizerTraining& options = {});
  static Tokenizer train(const TextSource& lines, const TokenizerTraining& options = {});
  /// A tokenizer whose tokens are the characters of the texts, after the special tokens. It is byte-level
  /// BPE that merges only the bytes within a character, so other tools can read its file. A run of bytes
  /// that occurs in no text becomes "<unk>" if that is among the special tokens. Throws Error when a text
  /// is not UTF-8 or all are empty.
  static Tokenizer train_characters(std::span<const std::string> texts,
                                    const std::vector<std::string>& special_tokens,
                                    const std::vector<TextStep>& normalizer = {});
  /// A tokenizer of whole words, split at white space, with each punctuation mark as its own word. It keeps
  /// the most frequent words; all others are "<unk>", which must be among the special tokens. `kept_tokens`
  /// (such as "\n") follow these: they are matched in the text as they are, and decode() keeps them. The
  /// result depends only on the lines (not on their order) and the options, without add_prefix_space and
  /// split_words, which have no effect here.
  static Tokenizer train_words(std::span<const std::string> lines, const TokenizerTraining& options = {},
                               const std::vector<std::string>& kept_tokens = {});
  static Tokenizer train_words(const TextSource& lines, const TokenizerTraining& options = {},
                               const std::vector<std::string>& kept_tokens = {});
  /// Reads a file. Throws Error with the path and the reason: it is missing, damaged, or has a part that
  /// encode() could not reproduce exactly (which the error names).
  static Tokenizer load(const std::filesystem::path& path);
  /// Reads the text of such a file; `origin` names its source in errors.
  static Tokenizer from_json(std::string_view text, std::string_view origin);
  /// The file's text. Throws Error for tokens that are not valid UTF-8, which JSON cannot hold.
  std::string to_json() const;
  /// Writes the file atomically. Throws Error when that fails.
  void save(const std::filesystem::path& path) const;

  /// The ids of a text, as `tokenizers` gives them with add_special_tokens=False. Special tokens in the
  /// text are recognised. Bytes in missing_bytes() give the unknown token, or nothing if there is none.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The text of ids, without special tokens unless `keep_special`. Throws Error on an id outside the
  /// vocabulary. Ids need not form whole characters: bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool keep_special = false) const;
  /// The same, but returns the bytes unchanged instead of U+FFFD.
  std::string decode_bytes(std::span<const std::int32_t> ids, bool keep_special = false) const;

  /// The number of ids, which run from 0 to vocabulary_size() - 1.
  std::int32_t vocabulary_size() const;
  /// How a token is spelled in the file ("Ġ" stands for a space); empty for an id that the file leaves out.
  /// Throws Error on an id outside the vocabulary.
  const std::string& token(std::int32_t id) const;
  /// The id of a token as spelled in the file.
  std::optional<std::int32_t> find(std::string_view token) const;
  /// The same for a required token such as "<pad>"; throws Error if it is missing. A mark may go by another
  /// name: [PAD], [UNK], [CLS], `<bos>`, `<|begin_of_text|>` for `<s>`, [SEP], `<eos>`, `<|endoftext|>`,
  /// `<|end_of_text|>` for `</s>`.
  std::int32_t id_of(std::string_view token) const;
  /// Their ids are those that Hugging Face's tokenizers give, whatever the file says: the vocabulary's, else
  /// one after the other from the number of its tokens on.
  const std::vector<AddedToken>& added_tokens() const;
  /// Bytes without a token. Empty for what train() makes; a file from elsewhere may lack some, and a
  /// program should report that.
  std::string missing_bytes() const;
  /// The distinct characters of a text that encode() would lose because one of their bytes has no token, in
  /// order of appearance. Always empty when missing_bytes() is.
  std::vector<std::string> unknown_characters(std::string_view text) const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  friend class TokenizerFile;
  std::shared_ptr<const TokenizerParts> parts_;
};

/// What the tokens of a classifier are best made of.
struct TokenKind {
  std::string name;             ///< "words", "characters" or "bpe", as tokenizer.kind has it
  std::string why;              ///< what the texts say for it, for people
  std::int64_t vocabulary = 0;  ///< how many tokens serve best; 0: all that there are
};

/// Chosen by the letters of the texts and by how many of their words stand there once: about as many words of
/// new texts are unknown (Good 1953, "The population frequencies of species and the estimation of population
/// parameters"). Texts of plain a to z keep words, however few they are.
TokenKind token_kind_for(const TextSource& texts);

}  // namespace heed
