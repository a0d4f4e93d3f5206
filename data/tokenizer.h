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

namespace heed {

/// A token that is found in the text as it stands, before any word splitting; named as in a tokenizer.json
/// file.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< Found only where no word character touches it.
  bool lstrip = false;       ///< Takes the white space on its left with it.
  bool rstrip = false;       ///< Takes the white space on its right with it.
  bool normalized = false;   ///< Looked for in the normalised text instead of the raw text.
  bool special = false;      ///< Left out by decode() unless asked for.
};

/// A step that changes the text before it is cut into tokens; a tokenizer has a list of them, usually empty.
/// The tables are those of the utf8proc in use: the newest characters may differ from another program's.
enum class TextStep { nfc, nfd, nfkc, nfkd, lower_case };

struct TokenizerTraining {
  std::int64_t vocabulary_size = 8000;  ///< All ids, special tokens included.
  std::int64_t min_frequency = 2;       ///< Pairs that are rarer are never merged; words are unknown.
  /// The first ids, from 0, in this order.
  std::vector<std::string> special_tokens = {"<pad>", "<s>", "</s>", "<unk>"};
  /// Puts a space before a text that has none, so that its first word is the same token as elsewhere;
  /// decode() then gives the text back with that space.
  bool add_prefix_space = false;
  /// GPT-2's word split; without it a whole line is one word and merges cross spaces.
  bool split_words = true;
  std::vector<TextStep> normalizer;
};

/// Texts that need not be in memory together: calls take(text) for each.
using TextSource = std::function<void(const std::function<void(std::string_view text)>& take)>;
/// Those of a list, which must outlive it.
TextSource source_of(std::span<const std::string> texts);

/// A tokenizer in the `tokenizer.json` format of Hugging Face tokenizers: byte-level BPE, whole words,
/// WordPiece or Unigram. Any text can be encoded. With byte-level BPE and without a normaliser
/// decode_bytes(encode(text)) is the text, byte for byte (ill-formed UTF-8 included), but for special tokens
/// that stand in it; words come back joined by a space. Copies share the vocabulary; all functions may be
/// called from several threads.
class Tokenizer {
 public:
  /// Learns a vocabulary; the result depends on the lines (not on their order) and the options alone.
  static Tokenizer train(std::span<const std::string> lines, const TokenizerTraining& options = {});
  static Tokenizer train(const TextSource& lines, const TokenizerTraining& options = {});
  /// A tokenizer whose tokens are the characters of the texts, after the special tokens: byte-level BPE that
  /// merges the bytes of one character and nothing else, so that its file is read by other tools too. A run
  /// of bytes that no text has is "<unk>" where that is among the special tokens. Throws Error when a text is
  /// not UTF-8 or all are empty.
  static Tokenizer train_characters(std::span<const std::string> texts,
                                    const std::vector<std::string>& special_tokens,
                                    const std::vector<TextStep>& normalizer = {});
  /// A tokenizer of whole words, cut at white space, with each punctuation mark a word of its own: the most
  /// frequent ones, and "<unk>" for the rest, which must be among the special tokens. `kept_tokens` (such as
  /// "\n") follow these: they are found in the text as they stand, and decode() keeps them. The result
  /// depends on the lines (not on their order) and the options alone, of which add_prefix_space and
  /// split_words say nothing here.
  static Tokenizer train_words(std::span<const std::string> lines, const TokenizerTraining& options = {},
                               const std::vector<std::string>& kept_tokens = {});
  static Tokenizer train_words(const TextSource& lines, const TokenizerTraining& options = {},
                               const std::vector<std::string>& kept_tokens = {});
  /// Reads a file. Throws Error with the path and what is wrong: not there, damaged, or of a kind that
  /// encode() could not follow exactly (it then names the part).
  static Tokenizer load(const std::filesystem::path& path);
  /// Reads the text of such a file; `origin` says in errors where it came from.
  static Tokenizer from_json(std::string_view text, std::string_view origin);
  /// The file's text. Throws Error for tokens that are not valid UTF-8, which JSON cannot hold.
  std::string to_json() const;
  /// Writes the file; never leaves half of one. Throws Error when that fails.
  void save(const std::filesystem::path& path) const;

  /// The ids of a text, as `tokenizers` gives them with add_special_tokens=False. Special tokens that stand
  /// in the text are recognised. Bytes in missing_bytes() give the unknown token, or nothing where there is
  /// none.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The text of ids, special tokens left out unless `keep_special`. Throws Error on an id outside the
  /// vocabulary. Ids need not form whole characters: what is not UTF-8 then becomes U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool keep_special = false) const;
  /// The same without the U+FFFD: the bytes as they are.
  std::string decode_bytes(std::span<const std::int32_t> ids, bool keep_special = false) const;

  /// Number of ids: they are 0 to vocabulary_size() - 1.
  std::int32_t vocabulary_size() const;
  /// How a token is spelled in the file ("Ġ" stands for a space). Throws Error on an id outside the
  /// vocabulary.
  const std::string& token(std::int32_t id) const;
  /// The id of a token as spelled in the file.
  std::optional<std::int32_t> find(std::string_view token) const;
  /// The same for a token that must be there, such as "<pad>"; throws Error otherwise. Where a mark goes by
  /// another name, that one serves: [PAD], [UNK], [CLS] or `<bos>` for `<s>`, [SEP], `<eos>` or
  /// `<|endoftext|>` for `</s>`.
  std::int32_t id_of(std::string_view token) const;
  const std::vector<AddedToken>& added_tokens() const;
  /// Bytes without a token. Empty for what train() makes; a foreign file may lack some, and a program should
  /// say so.
  std::string missing_bytes() const;
  /// The distinct characters of a text that encode() would lose, for they have a byte without a token; in
  /// their order in the text. Empty for any text when missing_bytes() is.
  std::vector<std::string> unknown_characters(std::string_view text) const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  friend class TokenizerFile;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace heed
