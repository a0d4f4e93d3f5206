#pragma once

#include <memory>
#include <string>

#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// What a recommender has beside its TransformerConfig.
struct RecommenderConfig {
  bool titles = true;           ///< news are read by their titles (source_vocabulary, encoder_layers)
  std::int64_t identities = 0;  ///< news with a learned vector of their own
  std::int64_t categories = 0;  ///< categories with a learned vector
  std::int64_t user_layers = 1;
  std::int64_t max_history = 50;  ///< the most clicked news of a user
};

/// News as the model reads them, n of them.
struct NewsInput {
  PaddedTokens titles;  ///< of those that have one; undefined when none has
  Tensor title_rows;    ///< i32 [n]: the row of its title, -1: it has none
  Tensor identities;    ///< i32 [n]: 1 to `identities`; 0: any other news; -1: none is to be added
  Tensor categories;    ///< i32 [n]: 0 to categories - 1, -1: none
};

/// Users and what they were shown. Numbers are rows of NewsRecommender::table().
struct ClickInput {
  PaddedTokens history;  ///< ids i32 [B, N]: `anyone`, then what each user has clicked, oldest first
  Tensor candidates;     ///< i32 [B, C]; -1: padding
};

/// News recommendation as Fastformer's paper has it (Wu et al., arXiv 2108.09084, section 4): a news encoder,
/// a user encoder over the vectors of the clicked news, both with any mechanism and pooled to one vector, and
/// the product
///
///   score(user, news) = u . n / sqrt(d)
///
/// A news is the sum of what is known of it: its pooled title, a learned vector of its own, one of its
/// category. Those without a vector of their own share one. Every history begins with `anyone`, a learned
/// vector: so a user without clicks has one, too, and what all like has a place to be learned.
///
/// Parts "title" (a SequenceEncoder), "identity", "category", "user_positions", "user_encoder",
/// "user_pooling"; the parameter "anyone" [1, d].
class NewsRecommender : public Module {
 public:
  NewsRecommender(const TransformerConfig& config, const RecommenderConfig& sizes);
  ~NewsRecommender() override;

  /// Vectors [n, d] of news.
  Tensor news(const NewsInput& input, Context& context);
  /// The table [1 + n, d] that histories and candidates point into: `anyone` in row 0, news i in row i + 1.
  Tensor table(const Tensor& news) const;
  static constexpr std::int32_t anyone = 0;
  /// Vectors [B, d] of users.
  Tensor users(const Tensor& table, const PaddedTokens& history, Context& context);
  /// Scores [B, C] of the candidates of each user, 0 for padding.
  Tensor scores(const Tensor& users, const Tensor& table, const Tensor& candidates) const;
  /// Cross entropy of the first candidate of each user among all, summed; what the layers add is in the
  /// context.
  Loss loss(const NewsInput& input, const ClickInput& clicks, double smoothing, Context& context);

  Device device() const { return anyone_vector_.device(); }

 private:
  class Title;
  NewsRecommender(const TransformerConfig& config, const RecommenderConfig& sizes, Initialiser initialiser);

  double dropout_, input_scale_, score_scale_;
  std::string pooling_;
  std::unique_ptr<Title> title_;         // null: titles are not read
  Embedding identity_;                   // row 0: of all news without a row
  std::unique_ptr<Embedding> category_;  // null: there is none
  Positions user_positions_;
  bool has_positions_;
  Encoder user_encoder_;
  std::unique_ptr<AttentionPooling> user_pooling_;  // null: the mean or the largest
  Tensor anyone_vector_;
};

}  // namespace heed
