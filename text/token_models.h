#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed {

/// A string hash that looks up a view in a table of strings without making a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// The tokens of a model by id, and their ids.
class TokenVocabulary {
 public:
  /// Builds a vocabulary from `tokens`, the spellings by id. They are all different except for
  /// `holes`, the ids without a token (empty: none); throws Error otherwise.
  TokenVocabulary(std::vector<std::string> tokens, const std::vector<bool>& holes = {});

  /// The spellings by id; a hole is empty.
  const std::vector<std::string>& tokens() const { return tokens_; }
  /// The number of tokens, without the holes.
  std::size_t count() const { return ids_.size(); }
  bool is_hole(std::int32_t id) const {
    const std::string& token = tokens_[static_cast<std::size_t>(id)];
    return token.empty() && find(token) != id;
  }
  /// Returns the id of a spelling, if it is in the vocabulary.
  std::optional<std::int32_t> find(std::string_view spelling) const;
  /// Returns the id of a required token, such as the unknown token. Throws an Error with its
  /// description `what` if it is missing.
  std::int32_t id_of(std::string_view spelling, std::string_view what) const;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
};

/// A search tree that finds, at each place of a text, which of a set of strings begin there. Time
/// is linear in the total length of the strings, and then in each text. The strings form a tree,
/// read from their ends (Aho and Corasick, "Efficient string matching", 1975), so one pass over the
/// text from its end finds what begins at every place.
class StringTree {
 public:
  /// Builds the tree. Empty strings are never found; of equal strings only the first is.
  explicit StringTree(const std::vector<std::string_view>& strings = {});

  /// Finds the index of the longest string that begins at each byte of text[begin, end), or -1. The
  /// string may reach beyond `end`.
  void longest(std::string_view text, std::size_t begin, std::size_t end,
               std::vector<std::int32_t>& found) const;
  /// Returns the longest string that is a proper prefix of this one, or -1. Repeated, starting from
  /// longest(), it gives every string that begins at a place.
  std::int32_t longest_beginning(std::int32_t string) const {
    return beginnings_[static_cast<std::size_t>(string)];
  }
  std::size_t length(std::int32_t string) const { return lengths_[static_cast<std::size_t>(string)]; }
  std::size_t longest_length() const { return longest_; }

 private:
  /// A suffix of a string, spelled by the path from the root, read backwards.
  struct Node {
    std::int32_t shorter = 0;  // the node of its longest proper prefix that is a suffix, too
    std::int32_t found = -1;   // the longest string that is a prefix of it
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;  // -1: none
  std::int32_t child_or_new(std::int32_t node, unsigned char byte);
  std::int32_t step(std::int32_t node, unsigned char byte) const;

  std::vector<std::size_t> lengths_;
  std::vector<std::int32_t> beginnings_;
  std::vector<Node> nodes_ = {Node{}};
  std::array<std::int32_t, 256> ends_{};  // the root's child for each byte that ends a string, else the root
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // by 256 * node + byte
  std::size_t longest_ = 0;
};

/// Words (raw bytes) and their counts, in order of first occurrence.
class WordCounts {
 public:
  struct Word {
    std::string text;
    std::int64_t count = 0;
  };
  void add(std::string_view word, std::int64_t count = 1);
  bool empty() const { return words_.empty(); }
  std::vector<Word>::const_iterator begin() const { return words_.begin(); }
  std::vector<Word>::const_iterator end() const { return words_.end(); }

 private:
  /// A slot of the hash table. With open addressing a known word takes two memory accesses, where
  /// std::unordered_map follows a list.
  struct Place {
    std::uint32_t hash = 0, number = 0;  // number of the word from 1; 0: free
  };
  Place& free_place(std::uint32_t hash);
  void grow();

  std::vector<Word> words_;
  std::vector<Place> places_;  // a power of two, half of them free
};

/// A vocabulary of whole words ("WordLevel" in a tokenizer.json file); all others are the unknown
/// token.
class WordModel : public TokenVocabulary {
 public:
  /// Throws Error when the unknown token is not in the vocabulary.
  WordModel(TokenVocabulary vocabulary, const std::string& unknown);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const std::string& unknown() const { return tokens()[static_cast<std::size_t>(unknown_)]; }

 private:
  std::int32_t unknown_;
};

struct WordTraining {
  std::int64_t vocabulary_size = 8000;    ///< All ids, including the first tokens.
  std::int64_t min_frequency = 2;         ///< Rarer words are unknown.
  std::vector<std::string> first_tokens;  ///< Take the first ids, in this order.
  std::string unknown = "<unk>";          ///< One of the first tokens.
};

/// Returns a model of the most frequent words; ties are ordered by bytes. Throws Error if the
/// vocabulary cannot hold a single word.
WordModel frequent_words(const WordCounts& words, const WordTraining& options);

/// The settings of a WordPiece model besides its vocabulary, named as in a tokenizer.json file.
struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";  ///< marks tokens that begin inside a word
  std::int64_t max_input_chars_per_word = 100;   ///< a longer word is unknown
};

/// The WordPiece model: takes the longest token that begins a word, then the longest that continues
/// it, to its end (Wu et al. 2016, arXiv 1609.08144). A word that cannot be split this way is
/// unknown as a whole. Linear time, through StringTree.
class WordPieceModel : public TokenVocabulary {
 public:
  /// Throws Error when the unknown token is not in the vocabulary.
  WordPieceModel(TokenVocabulary vocabulary, WordPieceOptions options);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const WordPieceOptions& options() const { return options_; }

 private:
  WordPieceOptions options_;
  std::int32_t unknown_;
  StringTree first_, next_;             // all tokens; tokens inside a word, without the prefix
  std::vector<std::int32_t> next_ids_;  // token ids of the strings of next_
};

/// The settings of a Unigram model besides its vocabulary, named as in a tokenizer.json file.
struct UnigramOptions {
  std::optional<std::int32_t> unk_id;
  /// Spells unknown text in bytes such as "<0x41>" if the vocabulary has them.
  bool byte_fallback = false;
};

/// Returns the token of a byte in the spelling of unknown text: "<0x41>".
std::string byte_token(char byte);

/// The Unigram model: finds the most probable sequence of tokens that spell the word (Kudo 2018,
/// arXiv 1804.10959), with the Viterbi algorithm. A character that no token covers costs 10 more
/// than the rarest token, and a run of them is one unknown. Time is linear in the text, times the
/// tokens that begin at a place.
class UnigramModel : public TokenVocabulary {
 public:
  /// The penalty of an unknown character relative to the rarest token; SentencePiece's value.
  static constexpr double unknown_penalty = 10;

  /// Builds the model; `scores` are log probabilities by id. Throws Error if their number does not
  /// match the tokens, if one is not finite, and for an unknown token outside the vocabulary.
  UnigramModel(std::vector<std::string> tokens, std::vector<double> scores, UnigramOptions options);
  /// Appends the ids of a word. Throws Error for unknown characters if the model has no unknown
  /// token.
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
