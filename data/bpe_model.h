#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heed {

/// The settings of a BPE model beside its vocabulary and merges, named as in a tokenizer.json file.
struct BpeOptions {
  std::optional<std::string>
      unk_token;               ///< Stands for bytes without a token; without it such bytes are left out.
  bool fuse_unk = false;       ///< A run of such bytes gives one unk_token, not one each.
  bool ignore_merges = false;  ///< A word that is a token by itself is taken whole.
};

/// Byte-pair encoding of single words (Sennrich et al., 2016, arXiv 1508.07909) over the byte alphabet.
class BpeModel {
 public:
  using Pair = std::pair<std::int32_t, std::int32_t>;

  /// `tokens` are the spellings by id, all different; `merges` are pairs of ids, the strongest first.
  /// Throws Error when a merge names an id that does not exist or gives a token that is not in the
  /// vocabulary.
  BpeModel(std::vector<std::string> tokens, std::vector<Pair> merges, BpeOptions options);

  /// Appends the ids of one word, given as raw bytes.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Pair>& merges() const { return merges_; }
  const BpeOptions& options() const { return options_; }
  /// The id of a spelling, if it is in the vocabulary.
  std::optional<std::int32_t> find(std::string_view spelling) const;

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t result = 0;
  };
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  std::vector<std::int32_t> initial_symbols(std::string_view word) const;

  std::vector<std::string> tokens_;
  std::vector<Pair> merges_;
  BpeOptions options_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, Merge> merge_of_pair_;
  std::array<std::int32_t, 256> byte_ids_{};  // -1: the byte has no token
  std::int32_t unknown_ = -1;
};

}  // namespace heed
