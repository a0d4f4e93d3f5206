#pragma once

#include "heed/tests/support.h"
#include "heed/training/trainer.h"

// Small tasks for the tests of training/.

/// Fits y = x w + b in f64 to samples of a known line; the batches have different numbers of
/// samples.
class LineModel : public heed::Module {
 public:
  explicit LineModel(heed::DType dtype = heed::DType::f64) {
    add_parameter("weight", weight, heed::Tensor::full({2, 1}, 0.5, dtype));
    add_parameter("bias", bias, heed::Tensor::full({1}, -0.25, dtype));
  }
  heed::Tensor weight, bias;
};

class LineObjective : public heed::Objective {
 public:
  explicit LineObjective(std::vector<std::int64_t> sizes = {3, 5, 2}) : sizes_(std::move(sizes)) {}

  LineModel& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return static_cast<std::int64_t>(sizes_.size()); }
  heed::Loss loss(std::int64_t, std::int64_t batch, heed::Context& context) override {
    std::int64_t first = 0;
    for (std::int64_t i = 0; i < batch; ++i) first += sizes_[static_cast<std::size_t>(i)];
    return loss_of(first, sizes_[static_cast<std::size_t>(batch)], context);
  }
  heed::Evaluation evaluate() override {
    heed::Context context = heed::Context::inference();
    const double mean = loss_of(100, 8, context).sum.item() / 8;
    return {{{"loss", mean}, {"perplexity", std::exp(mean)}}, "loss"};
  }

  bool with_auxiliary = false;
  double auxiliary_weight = 0.1;
  double poison = 0;  ///< added to an input; NaN spoils the gradient

 private:
  heed::Loss loss_of(std::int64_t first, std::int64_t count, heed::Context& context) {
    std::vector<double> x, y;
    for (std::int64_t i = first; i < first + count; ++i) {
      const double a = static_cast<double>(i * 7 % 11) / 11, b = static_cast<double>(i * 5 % 13) / 13;
      x.insert(x.end(), {a + poison, b});
      y.push_back(2 * a - b + 0.5);
    }
    const heed::Tensor inputs = heed::Tensor::from(x, {count, 2}),
                       targets = heed::Tensor::from(y, {count, 1});
    const heed::Tensor errors = heed::square(heed::matmul(inputs, model_.weight) + model_.bias - targets);
    if (with_auxiliary)
      context.losses.push_back({"size", auxiliary_weight, heed::mean(heed::square(model_.weight))});
    return {heed::sum(errors), count};
  }

  std::vector<std::int64_t> sizes_;
  LineModel model_;
};

/// A small Transformer language model: embedding, causal attention, feed-forward,
/// layer norm, dropout, tied output.
class TinyTransformer : public heed::Module {
 public:
  TinyTransformer(std::int64_t vocabulary, std::int64_t width, std::int64_t heads, std::uint64_t seed)
      : heads_(heads) {
    heed::Random random(seed);
    const auto normal = [&](const heed::Shape& shape) { return heed::normal(shape, 0, 0.1, random.next()); };
    add_parameter("embedding", embedding_, normal({vocabulary, width}));
    add_parameter("query_key_value", query_key_value_, normal({3 * width, width}));
    add_parameter("output", output_, normal({width, width}), true);
    add_parameter("first", first_, normal({2 * width, width}), true);
    add_parameter("first_bias", first_bias_, heed::Tensor::zeros({2 * width}));
    add_parameter("second", second_, normal({width, 2 * width}), true);
    add_parameter("norm", norm_, heed::Tensor::ones({width}));
    add_parameter("norm_bias", norm_bias_, heed::Tensor::zeros({width}));
  }

  /// Logits [B, N, vocabulary] of ids [B, N].
  heed::Tensor operator()(const heed::Tensor& ids, heed::Context& context) {
    using namespace heed;
    const double p = context.training ? 0.1 : 0;
    Tensor x = heed::embedding(embedding_, ids);
    x = dropout_add(attend(layer_norm(x, norm_, norm_bias_), p, context), x, p, context.random.next());
    const Tensor hidden = gelu(linear(layer_norm(x, norm_, norm_bias_), first_, first_bias_));
    x = dropout_add(linear(hidden, second_), x, p, context.random.next());
    return linear(x, embedding_);
  }

 private:
  heed::Tensor attend(const heed::Tensor& x, double p, heed::Context& context) {
    using namespace heed;
    const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const Tensor all = linear(x, query_key_value_);
    const auto part = [&](int i) {
      const Tensor own = slice(all, 2, i * width, (i + 1) * width);
      return transpose(reshape(own, {batch, length, heads_, width / heads_}), 1, 2);
    };
    AttentionOptions options;
    options.causal = true;
    options.dropout = p;
    options.dropout_key = context.random.next();
    const Tensor out = attention(part(0), part(1), part(2), options);
    return linear(reshape(transpose(out, 1, 2), {batch, length, width}), output_);
  }

  std::int64_t heads_;
  heed::Tensor embedding_, query_key_value_, output_, first_, first_bias_, second_, norm_, norm_bias_;
};

/// Sizes of a TinyObjective.
struct TinySizes {
  std::int64_t vocabulary = 17, width = 16, heads = 2, batch = 3, length = 7, batches = 5;
};

/// Predicts the next number of sequences, each of which counts up by its own step.
class TinyObjective : public heed::Objective {
 public:
  explicit TinyObjective(const TinySizes& sizes = {}, std::uint64_t seed = 1)
      : sizes_(sizes), model_(sizes.vocabulary, sizes.width, sizes.heads, seed) {}

  heed::Module& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return sizes_.batches; }
  heed::Loss loss(std::int64_t epoch, std::int64_t batch, heed::Context& context) override {
    return loss_of({7, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(batch)}, context);
  }
  heed::Evaluation evaluate() override {
    heed::Context context = heed::Context::inference();
    const heed::Loss loss = loss_of({8, 0, 0}, context);
    return {{{"loss", loss.sum.item() / static_cast<double>(loss.count)}}, "loss"};
  }

 private:
  heed::Loss loss_of(const heed::RandomKey& key, heed::Context& context) {
    using namespace heed;
    std::vector<std::int32_t> ids, targets;
    std::int64_t tokens = 0;
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      const std::uint32_t start = random_word(key, static_cast<std::uint64_t>(2 * b));
      const std::uint32_t distance = 1 + random_word(key, static_cast<std::uint64_t>(2 * b + 1)) % 3;
      const std::int64_t real = sizes_.length - start % 3;  // sequences of different lengths
      for (std::int64_t i = 0; i < sizes_.length; ++i) {
        const auto number = [&](std::int64_t n) {
          return static_cast<std::int32_t>((start % 1000 + distance * n) % sizes_.vocabulary);
        };
        ids.push_back(number(i));
        targets.push_back(i < real ? number(i + 1) : -1);
        tokens += i < real;
      }
    }
    const Shape shape{sizes_.batch, sizes_.length};
    const Tensor logits = model_(Tensor::from(ids, shape), context);
    return {sum(cross_entropy(logits, Tensor::from(targets, shape), 0.1)), tokens};
  }

  TinySizes sizes_;
  TinyTransformer model_;
};
