#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed {

/// A hash of strings that finds a view in a table of strings without making a string of it.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// The tokens of a model by id, and the ids of tokens.
class TokenVocabulary {
 public:
  /// `tokens` are the spellings by id, all different; throws Error otherwise.
  explicit TokenVocabulary(std::vector<std::string> tokens);

  const std::vector<std::string>& tokens() const { return tokens_; }
  /// The id of a spelling, if it is in the vocabulary.
  std::optional<std::int32_t> find(std::string_view spelling) const;
  /// The same for a token that a model names, such as its unknown token; `what` says so in the Error.
  std::int32_t id_of(std::string_view spelling, std::string_view what) const;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
};

/// A set of strings, found in a text: which of them begin at each place. Time is linear in the strings, and
/// then in each text: the strings are a tree read from their ends (Aho and Corasick, "Efficient string
/// matching", 1975), so that a pass over the text from its end tells for every place what begins there.
class StringTree {
 public:
  /// Empty strings are never found; of two that are alike the first counts.
  explicit StringTree(const std::vector<std::string_view>& strings = {});

  /// For each byte of text[begin, end) the longest string that begins there, by its number, or -1. The string
  /// may reach beyond `end`.
  void longest(std::string_view text, std::size_t begin, std::size_t end,
               std::vector<std::int32_t>& found) const;
  /// The longest string that is a proper beginning of this one, or -1: with longest(), all that begin at a
  /// place.
  std::int32_t longest_beginning(std::int32_t string) const {
    return beginnings_[static_cast<std::size_t>(string)];
  }
  std::size_t length(std::int32_t string) const { return lengths_[static_cast<std::size_t>(string)]; }
  std::size_t longest_length() const { return longest_; }

 private:
  /// The end of a string, of which it is the node's path from the root, read backwards.
  struct Node {
    std::int32_t shorter = 0;  // the node of the longest beginning of this one that ends a string, too
    std::int32_t found = -1;   // the longest string that is a beginning of this one
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;  // -1: there is none
  std::int32_t child_or_new(std::int32_t node, unsigned char byte);
  std::int32_t step(std::int32_t node, unsigned char byte) const;

  std::vector<std::size_t> lengths_;
  std::vector<std::int32_t> beginnings_;
  std::vector<Node> nodes_ = {Node{}};
  std::array<std::int32_t, 256> ends_{};  // the root's child for each byte that ends a string, else the root
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // of 256 * node + byte
  std::size_t longest_ = 0;
};

/// Words (raw bytes) with the number of times that each occurs, in the order in which they came first.
class WordCounts {
 public:
  struct Word {
    std::string text;
    std::int64_t count = 0;
  };
  void add(std::string_view word);
  bool empty() const { return words_.empty(); }
  std::vector<Word>::const_iterator begin() const { return words_.begin(); }
  std::vector<Word>::const_iterator end() const { return words_.end(); }

 private:
  /// Where a word with this hash may be found: open addressing touches two places of memory for a word that
  /// is known, where std::unordered_map follows a list.
  struct Place {
    std::uint32_t hash = 0, number = 0;  // of the word from 1; 0: free
  };
  Place& free_place(std::uint32_t hash);
  void grow();

  std::vector<Word> words_;
  std::vector<Place> places_;  // a power of two, half of them free
};

/// A vocabulary of whole words ("WordLevel" in a tokenizer.json file): all others are the unknown token.
class WordModel : public TokenVocabulary {
 public:
  /// Throws Error when the unknown token is not in the vocabulary.
  WordModel(std::vector<std::string> tokens, const std::string& unknown);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const std::string& unknown() const { return tokens()[static_cast<std::size_t>(unknown_)]; }

 private:
  std::int32_t unknown_;
};

struct WordTraining {
  std::int64_t vocabulary_size = 8000;    ///< All ids, the first tokens included.
  std::int64_t min_frequency = 2;         ///< Words that are rarer are unknown.
  std::vector<std::string> first_tokens;  ///< They take the first ids, in this order.
  std::string unknown = "<unk>";          ///< One of them.
};

/// The most frequent words, of words equally frequent those that come first by their bytes. Throws Error when
/// the vocabulary cannot hold a single word.
WordModel frequent_words(const WordCounts& words, const WordTraining& options);

/// The settings of a WordPiece model beside its vocabulary, named as in a tokenizer.json file.
struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";  ///< before tokens that begin inside a word
  std::int64_t max_input_chars_per_word = 100;   ///< a longer word is unknown
};

/// The longest token that begins a word, then the longest that goes on, to its end (Wu et al. 2016, arXiv
/// 1609.08144); a word that cannot be cut so is unknown as a whole. In linear time, as StringTree has it.
class WordPieceModel : public TokenVocabulary {
 public:
  /// Throws Error when the unknown token is not in the vocabulary.
  WordPieceModel(std::vector<std::string> tokens, WordPieceOptions options);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const WordPieceOptions& options() const { return options_; }

 private:
  WordPieceOptions options_;
  std::int32_t unknown_;
  StringTree first_, next_;  // of tokens as they stand, and of those inside a word without the prefix
  std::vector<std::int32_t> next_ids_;  // of the strings of next_
};

/// The settings of a Unigram model beside its vocabulary, named as in a tokenizer.json file.
struct UnigramOptions {
  std::optional<std::int32_t> unk_id;
  bool byte_fallback = false;  ///< what is unknown becomes its bytes "<0x41>", where the vocabulary has them
};

/// The most probable sequence of tokens whose texts make the word (Kudo 2018, arXiv 1804.10959), found by
/// Viterbi's algorithm; a character that no token gives costs 10 more than the rarest token, and a run of
/// such is one unknown. Linear in the text, times the tokens that begin at a place.
class UnigramModel : public TokenVocabulary {
 public:
  /// How much an unknown character is behind the rarest token; SentencePiece's.
  static constexpr double unknown_penalty = 10;

  /// `scores` are logarithms of probabilities by id. Throws Error when they do not fit the tokens, when one
  /// is not finite, and for an unknown token outside the vocabulary.
  UnigramModel(std::vector<std::string> tokens, std::vector<double> scores, UnigramOptions options);
  /// Throws Error for what is unknown where the model has no unknown token.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const std::vector<double>& scores() const { return scores_; }
  const UnigramOptions& options() const { return options_; }

 private:
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  StringTree tree_;
};

}  // namespace heed
