// The attentions that sort words first, held to their definitions between all pairs of words.

#include "heed/models/attention/attention.h"
#include "heed/models/attention/cluster_count.h"
#include "heed/models/classifier.h"
#include "heed/tests/model_support.h"
#include "heed/training/checkpoint.h"

namespace {

constexpr std::int64_t layer_width = 8, layer_heads = 2;

std::unique_ptr<Attention> layer_of(const char* name, Options options, bool causal = false) {
  AttentionConfig config;
  config.width = layer_width;
  config.heads = layer_heads;
  config.causal = causal;
  config.options = std::move(options);
  config.seed = 5;
  auto layer = make_attention(name, config);
  layer->to(DType::f64, {});
  return layer;
}

Tensor random_words(std::int64_t batch, std::int64_t n) {
  return normal({batch, n, layer_width}, 0, 1, {21, 0, static_cast<std::uint32_t>(n)}, DType::f64);
}

bool all_zero(const Tensor& x) {
  return max(abs(contiguous(x.detach()))).item() == 0;
}

}  // namespace

TEST_CASE("clusterformer: a second layer goes on with the centroids of the first, or says what is missing") {
  AttentionConfig config;
  config.width = layer_width;
  config.heads = layer_heads;
  config.options = options_of({{"clusters", 3}});
  const auto first = make_attention("clusterformer", config);
  config.layer = 1;
  config.first = first.get();
  const auto second = make_attention("clusterformer", config);
  CHECK(!has_name(*second, "centroids"));
  Context context;
  const Tensor x = cast(random_words(1, 6), DType::f32);
  CHECK_ERROR((*second)({x}, context), "centroids");
  context.shared_tensors["clusterformer.centroids"] = Tensor::ones({1, 2, layer_width});
  CHECK_ERROR((*second)({x}, context), "2 clusters, this one 3");
  context.shared_tensors["clusterformer.centroids"] = Tensor::ones({1, 3, layer_width});
  (*second)({x}, context);
  CHECK(context.losses.size() == 2);
}

TEST_CASE("sorting attention: few words, many clusters, and a sample of padding alone") {
  struct Case {
    const char* name;
    Options options;
    bool causal;
  };
  const std::vector<Case> cases = {{"clusterformer", options_of({{"clusters", 7}}), false},
                                   {"clusterformer", options_of({{"clusters", 1}}), false},
                                   {"clusterformer", options_of({{"clusters", 7}}), true},
                                   {"reformer", options_of({{"chunk", 2}}), false},
                                   {"reformer", options_of({{"chunk", 1}}), true},
                                   {"routing_transformer", options_of({{"clusters", 7}}), false},
                                   {"routing_transformer", options_of({{"window", 50}}), true}};
  for (const Case& each : cases) {
    for (const std::int64_t n : {1, 2, 5}) {
      CAPTURE(each.name);
      CAPTURE(n);
      const auto layer = layer_of(each.name, each.options, each.causal);
      const Tensor x = parameter(random_words(2, n));
      Ints mask(static_cast<std::size_t>(2 * n), 0);
      std::fill(mask.begin(), mask.begin() + n, 1);
      Context context = Context::train(1, 1);
      const Tensor out = (*layer)({x, Tensor::from(mask, {2, n}), {}, {}}, context);
      CHECK(all_zero(slice(out, 0, 1, 2)));
      Tensor loss = sum(out);
      if (const Tensor extra = context.auxiliary_loss(); extra.defined()) loss = loss + extra;
      CHECK(std::isfinite(loss.item()));
      backward(loss);
      CHECK(all_zero(slice(gradient(x), 0, 1, 2)));
      for (const double value : gradient(x).to_vector<double>()) CHECK(std::isfinite(value));
      for (const NamedTensor& entry : layer->state()) {
        for (const double value : entry.tensor->to_vector<double>()) CHECK(std::isfinite(value));
      }

      // Padding alone: nothing comes out, and no loss.
      Context none = Context::train(1, 1);
      const Tensor padding = Tensor::zeros({2, n}, DType::i32);
      CHECK(all_zero((*layer)({random_words(2, n), padding, {}, {}}, none)));
      for (const AuxiliaryLoss& term : none.losses) {
        CAPTURE(term.name);
        CHECK(std::abs(term.value.item()) == 0);
      }
    }
  }
}

TEST_CASE("routing transformer: centroids move in training alone, by either rule") {
  for (const char* update : {"ema", "paper"}) {
    CAPTURE(update);
    const auto layer =
        layer_of("routing_transformer", options_of({{"clusters", 3}, {"update", update}, {"decay", 0.5}}));
    const auto centroids = [&] {
      for (const NamedTensor& entry : layer->buffers()) {
        if (contains(entry.name, "centroids")) return entry.tensor->to_vector<double>();
      }
      return Doubles{};
    };
    const auto before = centroids();
    REQUIRE(before.size() == layer_heads * 3 * layer_width / layer_heads);
    Context inference;
    (*layer)({random_words(2, 6), {}, {}, {}}, inference);
    CHECK(centroids() == before);
    Context training = Context::train(1, 1);
    (*layer)({random_words(2, 6), {}, {}, {}}, training);
    CHECK(centroids() != before);
    REQUIRE(training.losses.size() == 1);
    CHECK(training.losses[0].value.item() > 0);
  }
}

// --- How many clusters a ClusterFormer has when it is to choose by itself.

namespace {

AttentionConfig automatic(std::int64_t width, std::int64_t max_length) {
  AttentionConfig config;
  config.width = width;
  config.max_length = max_length;
  config.options = options_of({{"clusters", "auto"}});
  return config;
}

/// 60 words in `groups` groups of equal size, each at a corner of its own, with a centroid there; K - groups
/// further centroids have no words. Observes 10 passes and says what was chosen.
std::int64_t chosen_for(std::int64_t groups) {
  ClusterCount count(automatic(256, 60));
  Context context = Context::train(1, 1);
  const std::int64_t clusters = count.of(60, true);
  Floats words(60 * 256, 0), centroids(static_cast<std::size_t>(clusters * 256), 0);
  Ints assignment;
  for (std::int64_t i = 0; i < 60; ++i) {
    words[static_cast<std::size_t>(i * 256 + i % groups)] = 1;
    assignment.push_back(static_cast<std::int32_t>(i % groups));
  }
  for (std::int64_t k = 0; k < clusters; ++k) centroids[static_cast<std::size_t>(k * 256 + k)] = 1;
  for (int pass = 0; pass < 10; ++pass) {
    CHECK(count.of(60, true) == clusters);
    count.observe(Tensor::from(words, {1, 60, 256}), Tensor::from(centroids, {1, clusters, 256}),
                  Tensor::from(assignment, {1, 60}), {}, context);
  }
  return count.of(60, true);
}

TransformerConfig classifier_config() {
  TransformerConfig config = test::tiny_config();
  config.encoder_layers = config.decoder_layers = 2;
  config.max_length = 64;
  config.encoder_attention = {
      {"clusterformer", 0, options_of({{"clusters", "auto"}, {"phi_scale", 0.1}, {"cosine", false}})}};
  return config;
}

/// Sentences whose lengths follow the pass.
PaddedTokens sentences_of(std::uint32_t pass) {
  std::vector<Tokens> sentences;
  for (std::uint32_t s = 0; s < 3; ++s) {
    Tokens tokens;
    for (std::uint32_t i = 0; i < 20 + (pass * 7 + s * 5) % 11; ++i)
      tokens.push_back(static_cast<std::int32_t>(random_word({3, pass, s}, i) % 11));
    sentences.push_back(tokens);
  }
  return pad_tokens(sentences);
}

void train_passes(EncoderClassifier& model, std::uint32_t from, std::uint32_t to) {
  const NoGrad no_grad;
  for (std::uint32_t pass = from; pass < to; ++pass) {
    Context context = Context::train(1, pass + 1);
    model.logits(sentences_of(pass), context);
  }
}

std::int32_t chosen_in(Module& model) {
  for (const NamedTensor& entry : model.buffers())
    if (entry.name.ends_with("count.chosen")) return entry.tensor->to_vector<std::int32_t>().front();
  return -1;
}

std::int64_t clusters_shown(EncoderClassifier& model, std::uint32_t pass) {
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  model.logits(sentences_of(pass), context);
  return capture.find("centroids").size(1);
}

}  // namespace

TEST_CASE("clusters auto: as many as the groups of words suggest, within the limits of the cost") {
  // Blocks twice as large as a group; K0 = sqrt(2 * 60) = 11.
  CHECK(chosen_for(10) == 5);
  CHECK(chosen_for(6) == 3);
  CHECK(chosen_for(4) == 2);
  CHECK(chosen_for(1) == 1);
  // K0 = sqrt(2 * 12) = 5; 2 clusters cost 14 % more than 5, and 1 cluster 51 %.
  CHECK(ClusterCount::choose(12, 1, 8) == 2);
  CHECK(ClusterCount::choose(12, 8, 8) == 4);
  CHECK(ClusterCount::choose(12, 100, 8) == 5);
  // With wide words the projections cost most, so that K hardly matters; with long sentences it does.
  CHECK(ClusterCount::choose(25, 1, 300) == 1);
  CHECK(ClusterCount::choose(5000, 1, 64) == 33);
  CHECK(ClusterCount::choose(1, 1, 64) == 1);
}

TEST_CASE("clusters: blocks of 256 words when nothing is said, and sqrt(max_length) in the causal form") {
  const auto silent = [](std::int64_t max_length, bool causal) {
    AttentionConfig config;
    config.width = 64;
    config.max_length = max_length;
    config.causal = causal;
    return ClusterCount(config).most();
  };
  CHECK(silent(0, false) == 3);
  CHECK(silent(30, false) == 2);
  CHECK(silent(512, false) == 2);
  CHECK(silent(513, false) == 3);
  CHECK(silent(8192, false) == 32);
  CHECK(silent(0, true) == 3);
  CHECK(silent(400, true) == 20);
}

TEST_CASE("clusters auto: chosen once, from the seed alone, also across a kill and a resume") {
  const TransformerConfig config = classifier_config();
  EncoderClassifier whole(config), first(config), second(config);
  train_passes(whole, 0, 20);
  const std::int32_t chosen = chosen_in(whole);
  CHECK(chosen > 0);
  CHECK(clusters_shown(whole, 0) == chosen);
  CHECK(clusters_shown(whole, 5) == chosen);

  train_passes(first, 0, 6);
  CHECK(chosen_in(first) == 0);
  load_model_state(second, model_state(first), "the first half");
  train_passes(second, 6, 20);
  CHECK(chosen_in(second) == chosen);
  const PaddedTokens sentences = sentences_of(2);
  Context context = Context::inference(), other = Context::inference();
  CHECK(whole.logits(sentences, context).to_vector<float>() ==
        second.logits(sentences, other).to_vector<float>());

  // A model that has chosen takes the choice of the weights it is given.
  EncoderClassifier fresh(config);
  load_model_state(second, model_state(fresh), "new weights");
  CHECK(clusters_shown(second, 0) == clusters_shown(fresh, 0));
}

TEST_CASE("clusters auto: every causal layer chooses for itself") {
  AttentionConfig config = automatic(8, 32);
  config.heads = 2;
  config.causal = true;
  const auto layer = make_attention("clusterformer", config);
  const Tensor x = uniform({2, 20, 8}, -1, 1, {9, 0, 0});
  for (std::uint32_t pass = 0; pass < 51; ++pass) {
    Context context = Context::train(1, pass + 1);
    (*layer)({x}, context);
  }
  CHECK(chosen_in(*layer) > 0);
  for (const std::int32_t cluster : Watched(*layer, {x}).ids("assignment"))
    CHECK(cluster < chosen_in(*layer));
}
