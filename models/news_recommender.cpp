#include "heed/models/news_recommender.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

const TransformerConfig& checked_recommender(const TransformerConfig& config,
                                             const RecommenderConfig& sizes) {
  check_config(config);
  check(!sizes.titles || config.source_vocabulary > 0,
        "a recommender that reads titles needs source_vocabulary");
  check(sizes.identities >= 0 && sizes.categories >= 0 && sizes.max_history >= 0,
        "the sizes of a recommender must not be negative: identities ", sizes.identities, ", categories ",
        sizes.categories, ", max_history ", sizes.max_history);
  return config;
}

/// The configuration of the user encoder, whose tokens are news.
TransformerConfig for_users(TransformerConfig config, const RecommenderConfig& sizes) {
  config.encoder_layers = sizes.user_layers;
  config.max_length = sizes.max_history + 1;
  check_config(config);
  return config;
}

std::unique_ptr<SequenceEncoder> make_title_encoder(const TransformerConfig& config, bool has_titles,
                                                    Initialiser& initialiser) {
  if (!has_titles) return nullptr;
  auto made = std::make_unique<SequenceEncoder>(config, initialiser);
  made->add_pooling(initialiser);
  return made;
}

std::unique_ptr<AttentionPooling> make_attention_pooling(const TransformerConfig& config,
                                                         Initialiser& initialiser) {
  if (config.pooling != "attention") return nullptr;
  return std::make_unique<AttentionPooling>(config.width, initialiser);
}

}  // namespace

NewsRecommender::NewsRecommender(const TransformerConfig& config, const RecommenderConfig& sizes)
    : NewsRecommender(checked_recommender(config, sizes), sizes,
                      Initialiser(static_cast<std::uint64_t>(config.seed))) {}

NewsRecommender::NewsRecommender(const TransformerConfig& config, const RecommenderConfig& sizes,
                                 Initialiser initialiser)
    : dropout_(config.dropout),
      input_scale_(embedding_scale(config)),
      score_scale_(1 / std::sqrt(static_cast<double>(config.width))),
      pooling_(config.pooling),
      title_(make_title_encoder(config, sizes.titles, initialiser)),
      identity_(sizes.identities + 1, config.width, embedding_deviation(config), initialiser),
      category_(sizes.categories > 0 ? std::make_unique<Embedding>(sizes.categories, config.width,
                                                                   embedding_deviation(config), initialiser)
                                     : nullptr),
      user_positions_(config.positions, sizes.max_history + 1, config.width, embedding_deviation(config),
                      initialiser),
      has_positions_(has_position_vectors(config)),
      user_encoder_(for_users(config, sizes), initialiser),
      user_pooling_(make_attention_pooling(config, initialiser)) {
  if (title_) add_module("title", *title_);
  add_module("identity", identity_);
  if (category_) add_module("category", *category_);
  add_module("user_positions", user_positions_);
  add_module("user_encoder", user_encoder_);
  if (user_pooling_) add_module("user_pooling", *user_pooling_);
  add_parameter("anyone", anyone_vector_, initialiser.normal({1, config.width}, embedding_deviation(config)));
}

Tensor NewsRecommender::news(const NewsInput& input, Context& context) {
  Tensor sum = identity_(input.identities);
  if (category_) sum = sum + (*category_)(input.categories);
  if (title_ && input.titles.ids.defined()) {
    const Tensor titles = title_->pooled(title_->hidden(input.titles, context), input.titles.mask);
    sum = sum + embedding(titles, input.title_rows);
  }
  return sum;
}

Tensor NewsRecommender::users(const Tensor& table, const PaddedTokens& history, Context& context) {
  const Tensor clicked = embedding(table, history.ids) * input_scale_;
  const Tensor placed = has_positions_ ? clicked + user_positions_(0, history.ids.size(1), clicked) : clicked;
  const Tensor x = maybe_dropout(placed, dropout_, context);
  const Tensor hidden = user_encoder_(x, history.mask, context);
  return pooled(pooling_, user_pooling_.get(), hidden, history.mask);
}

Tensor NewsRecommender::scores(const Tensor& users, const Tensor& table, const Tensor& candidates) const {
  const Tensor vectors = embedding(table, candidates);  // [B, C, d]
  return squeeze(matmul(vectors, unsqueeze(users, 2)), 2) * score_scale_;
}

Loss NewsRecommender::loss(const NewsInput& input, const ClickInput& clicks, double smoothing,
                           Context& context) {
  const Tensor vectors = table(maybe_dropout(news(input, context), dropout_, context));
  const Tensor logits = scores(users(vectors, clicks.history, context), vectors, clicks.candidates);
  const Tensor first = Tensor::zeros({logits.size(0)}, DType::i32, device());
  return {sum(cross_entropy(logits, first, smoothing)), logits.size(0)};
}

}  // namespace heed
