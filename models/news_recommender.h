#pragma once

#include <memory>
#include <string>

#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// The settings of a recommender that TransformerConfig lacks.
struct RecommenderConfig {
  bool titles = true;           ///< read news by their titles (source_vocabulary, encoder_layers)
  std::int64_t identities = 0;  ///< number of news with a learned vector of their own
  std::int64_t categories = 0;  ///< number of categories, each with a learned vector
  std::int64_t user_layers = 1;
  std::int64_t max_history = 50;  ///< the most clicked news per user
};

/// The input of the news encoder: n items.
struct NewsInput {
  PaddedTokens titles;  ///< of the news that have one; undefined when none has
  Tensor title_rows;    ///< i32 [n]: the row of the news' title; -1: no title
  Tensor identities;    ///< i32 [n]: 1 to `identities`; 0: any other news; -1: add no vector
  Tensor categories;    ///< i32 [n]: 0 to categories - 1, -1: none
};

/// Users and the news that they were shown. All numbers are rows of NewsRecommender::table().
struct ClickInput {
  PaddedTokens history;  ///< ids i32 [B, N]: `anyone`, then the clicks of each user, oldest first
  Tensor candidates;     ///< i32 [B, C]; -1: padding
};

/// News recommendation following Fastformer's paper (Wu et al., arXiv 2108.09084, section 4): a
/// news encoder, a user encoder over the vectors of the clicked news, both with any attention
/// mechanism and pooled to one vector, and the product
///
///   score(user, news) = u . n / sqrt(d)
///
/// The vector of a news item is the sum of its pooled title, a learned vector of its own and one of
/// its category, as far as it has them. News without a vector of their own share one. Every history
/// begins with `anyone`, a learned vector. It gives users without clicks a vector too, and can
/// learn what everybody likes.
///
/// Parts "title" (a SequenceEncoder), "identity", "category", "user_positions", "user_encoder",
/// "user_pooling"; the parameter "anyone" [1, d].
class NewsRecommender : public Module {
 public:
  NewsRecommender(const TransformerConfig& config, const RecommenderConfig& sizes);

  /// Returns vectors [n, d] of news.
  Tensor news(const NewsInput& input, Context& context);
  /// Returns the table [1 + n, d] that histories and candidates index: `anyone` in row 0, news i in
  /// row i + 1.
  Tensor table(const Tensor& news) const { return concat({anyone_vector_, news}, 0); }
  static constexpr std::int32_t anyone = 0;
  /// Returns vectors [B, d] of users.
  Tensor users(const Tensor& table, const PaddedTokens& history, Context& context);
  /// Returns scores [B, C] of the candidates of each user, 0 for padding.
  Tensor scores(const Tensor& users, const Tensor& table, const Tensor& candidates) const;
  /// Returns the cross entropy of each user's first candidate among all of them, summed. Auxiliary
  /// losses of layers are in the context.
  Loss loss(const NewsInput& input, const ClickInput& clicks, double smoothing, Context& context);

  Device device() const { return anyone_vector_.device(); }

 private:
  NewsRecommender(const TransformerConfig& config, const RecommenderConfig& sizes, Initialiser initialiser);

  double dropout_, input_scale_, score_scale_;
  std::string pooling_;
  std::unique_ptr<SequenceEncoder> title_;  // null: titles are not used
  Embedding identity_;                      // row 0: shared by all news without a row
  std::unique_ptr<Embedding> category_;     // null: no categories
  Positions user_positions_;
  bool has_positions_;
  Encoder user_encoder_;
  std::unique_ptr<AttentionPooling> user_pooling_;  // null: mean or maximum
  Tensor anyone_vector_;
};

}  // namespace heed
