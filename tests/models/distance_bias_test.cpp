// Positions by what is added to the logits of attention: ALiBi's slopes and T5's learned numbers, from the
// options of the kernel to whole models.

#include "heed/autograd/graph.h"
#include "heed/models/classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/positions.h"
#include "heed/tests/decoding_support.h"
#include "heed/tests/model_support.h"

namespace {

AttentionConfig config_with(bool AttentionConfig::*positions, bool causal, std::int64_t heads = 4) {
  AttentionConfig config;
  config.width = 8;
  config.heads = heads;
  config.causal = causal;
  config.max_length = 400;
  config.seed = 5;
  config.*positions = true;
  return config;
}

/// The weights of 1 x length words that are all alike, so that only distances tell keys apart: [1, H, N, N].
Tensor weights_of_like_words(Attention& layer, std::int64_t length) {
  layer.to(DType::f64, {});
  const NoGrad no_grad;
  return Watched(layer, {Tensor::ones({1, length, 8}, DType::f64)}).capture.find("weights");
}

TransformerConfig model_config(const std::string& positions) {
  TransformerConfig config = tiny_config();
  config.heads = 4;
  config.decoder_layers = 2;
  config.positions = positions;
  return config;
}

}  // namespace

TEST_CASE("attention bias: what does not fit is refused, and says what would") {
  const Tensor x = normal_numbers(23, {2, 3, 5, 4}, 1);
  const auto with = [&](const Tensor& slopes, const Tensor& bias) {
    AttentionOptions options;
    options.slopes = slopes;
    options.bias = bias;
    return error_of([&] { attention(x, x, x, options); });
  };
  CHECK(with(normal_numbers(23, {3}, 2), normal_numbers(23, {1, 3, 5, 5}, 2)) == "");
  CHECK(with({}, normal_numbers(23, {2, 1, 5, 5}, 2)) == "");
  CHECK(contains(with(normal_numbers(23, {2}, 2), {}),
                 "slopes must be f64 of shape [H] = [3], got f64 of shape [2]"));
  CHECK(contains(with(Tensor::ones({3}), {}), "got f32"));
  CHECK(contains(with(parameter(normal_numbers(23, {3}, 2)), {}), "slopes have no gradient"));
  CHECK(contains(with({}, normal_numbers(23, {3, 1, 5, 5}, 2)),
                 "bias of shape [3, 1, 5, 5] must be [1 or B, 1 or H, N, M]"));
  CHECK(contains(with({}, normal_numbers(23, {1, 2, 5, 5}, 2)), "for [B, H, N, M] = [2, 3, 5, 5]"));
  CHECK(contains(with({}, normal_numbers(23, {1, 1, 1, 5}, 2)), "bias of shape"));
  CHECK(contains(with({}, normal_numbers(23, {5, 5}, 2)), "bias of shape"));
  CHECK(contains(with({}, Tensor::ones({1, 3, 5, 5})), "operands of different types"));
}

TEST_CASE("attention bias: at -infinity there is no pair, fused and composed, and no gradient") {
  const Tensor q = parameter(normal_numbers(23, {1, 2, 3, 4}, 1)), k = normal_numbers(23, {1, 2, 4, 4}, 2),
               v = normal_numbers(23, {1, 2, 4, 3}, 3);
  Doubles values = normal_numbers(23, {24}, 4).to_doubles();
  for (const std::size_t at : {1U, 6U, 8U, 9U, 10U, 11U, 22U})  // query 2 of head 0 sees nothing
    values[at] = -infinity;
  const Tensor bias = parameter(Tensor::from(values, {1, 2, 3, 4}));
  AttentionOptions options;
  options.bias = bias;
  std::vector<Tensor> outputs, slopes;
  for (const bool composed : {false, true}) {
    CAPTURE(composed);
    std::unique_ptr<ComposeOnly> scope;
    if (composed) scope = std::make_unique<ComposeOnly>();
    const Tensor out = attention(q, k, v, options);
    zero_gradient(bias);
    backward(sum(square(out)));
    outputs.push_back(out.detach());
    slopes.push_back(gradient(bias));
    const Doubles found = slopes.back().to_doubles(), sums = out.to_doubles();
    for (const std::size_t at : {1U, 6U, 8U, 9U, 10U, 11U, 22U}) CHECK(found[at] == 0);
    for (const std::size_t at : {6U, 7U, 8U}) CHECK(sums[at] == 0);
    CHECK(std::abs(found[0]) > 1e-3);
  }
  CHECK(worst_difference(outputs[0], outputs[1]) < 1e-12);
  CHECK(worst_difference(slopes[0], slopes[1]) < 1e-12);
}

TEST_CASE("attention bias: one that an earlier op broadcasts gets the sum of what it stands for") {
  const Tensor x = normal_numbers(23, {2, 3, 5, 4}, 1),
               of_keys = parameter(normal_numbers(23, {2, 1, 1, 5}, 2));
  const auto loss = [&](const Tensor& bias) {
    AttentionOptions options;
    options.bias = bias;
    return sum(square(attention(x, x, x, options)));
  };
  backward(loss(expand(of_keys, {2, 1, 5, 5})));
  const Tensor fused = gradient(of_keys);
  zero_gradient(of_keys);
  const ComposeOnly composed;
  backward(loss(expand(of_keys, {2, 1, 5, 5})));
  CHECK(worst_difference(fused, gradient(of_keys)) < 1e-12);
}

TEST_CASE("alibi: weights fall with the distance as the paper says") {
  for (const char* name : {"dot_product", "longformer", "bigbird"}) {
    for (const bool causal : {false, true}) {
      CAPTURE_ALL(name, causal);
      const auto layer = make_attention(name, config_with(&AttentionConfig::alibi, causal));
      const Tensor weights = weights_of_like_words(*layer, 9);
      REQUIRE(weights.shape() == Shape{1, 4, 9, 9});
      for (int head = 0; head < 4; ++head) {
        const double m = std::pow(2.0, -2.0 * (head + 1));  // 1/4, 1/16, 1/64, 1/256
        for (int i = 0; i < 9; ++i)
          for (int j = 0; j < (causal ? i + 1 : 9); ++j)
            CHECK(weights[0][head][i][j].item() / weights[0][head][i][i].item() ==
                  doctest::Approx(std::exp(-m * std::abs(i - j))));
      }
    }
  }
}

TEST_CASE("alibi: interleaved slopes are those of BLOOM, where the number of heads is no power of two") {
  const std::pair<int, Doubles> rows[] = {
      {4, {2, 4, 6, 8}}, {6, {2, 4, 6, 8, 1, 3}}, {12, {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}}};
  for (const auto& [heads, powers] : rows) {
    CAPTURE(heads);
    AttentionConfig config = config_with(&AttentionConfig::alibi, true, heads);
    config.head_width = 2;
    config.interleaved_slopes = true;
    const Tensor weights = weights_of_like_words(*make_attention("dot_product", config), 5);
    for (int head = 0; head < heads; ++head)
      CHECK(weights[0][head][4][1].item() / weights[0][head][4][4].item() ==
            doctest::Approx(std::exp(-3 * std::exp2(-powers[static_cast<std::size_t>(head)]))));
  }
}

TEST_CASE("alibi: Longformer with a window over all is the dot product, with global tokens or without") {
  for (const bool causal : {false, true}) {
    for (const std::int64_t global : {0, 2}) {
      CAPTURE_ALL(causal, global);
      AttentionConfig config = config_with(&AttentionConfig::alibi, causal);
      const auto plain = make_attention("dot_product", config);
      config.options.set("window", std::int64_t{64});
      config.options.set("global_tokens", global);
      const auto windows = make_attention("longformer", config);
      for (const char* map : {"query", "key", "value", "output"}) {
        const auto& from = dynamic_cast<Linear&>(*plain->find(map));
        for (const std::string& prefix : {std::string(), std::string("global_")})
          if (Module* to = windows->find(prefix + map)) dynamic_cast<Linear&>(*to).weight = from.weight;
      }
      plain->to(DType::f64, {});
      windows->to(DType::f64, {});
      Context context = Context::inference();
      const Tensor x = normal_numbers(23, {2, 11, 8}, 1);
      const Tensor mask =
          Tensor::from(Ints{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 11});
      CHECK(worst_difference((*plain)({x, mask}, context), (*windows)({x, mask}, context)) < 1e-12);
    }
  }
}

TEST_CASE("relative positions: distances fall into buckets as T5's do") {
  // Of `transformers`' T5, for keys that stand so far ahead.
  const std::pair<int, int> both_ways[] = {{-300, 15}, {-128, 15}, {-64, 14}, {-63, 13}, {-32, 12}, {-31, 11},
                                           {-16, 10},  {-8, 8},    {-7, 7},   {0, 0},    {1, 17},   {7, 23},
                                           {8, 24},    {16, 26},   {64, 30},  {128, 31}, {300, 31}};
  for (const auto& [ahead, bucket] : both_ways) CHECK(DistanceBias::bucket(ahead, false) == bucket);
  const std::pair<int, int> behind[] = {{-300, 31}, {-128, 31}, {-91, 29}, {-64, 26}, {-32, 21}, {-16, 16},
                                        {-15, 15},  {-1, 1},    {0, 0},    {5, 0},    {300, 0}};
  for (const auto& [ahead, bucket] : behind) CHECK(DistanceBias::bucket(ahead, true) == bucket);
}

TEST_CASE("relative positions: the table's numbers are added to the logits") {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const auto layer = make_attention("dot_product", config_with(&AttentionConfig::relative, causal));
    CHECK(layer->parameter_count() == 4 * 8 * 8 + 32 * 4);
    const Tensor weights = weights_of_like_words(*layer, 40);
    const Tensor table = dynamic_cast<DistanceBias&>(*layer->find("relative")).weight;
    for (int head = 0; head < 4; ++head)
      for (int i : {0, 17, 39})
        for (int j = 0; j < (causal ? i + 1 : 40); ++j)
          CHECK(weights[0][head][i][j].item() / weights[0][head][i][i].item() ==
                doctest::Approx(std::exp(table[DistanceBias::bucket(j - i, causal)][head].item() -
                                         table[0][head].item())));
  }
}

TEST_CASE(
    "distances: one pass and steps agree, for every causal variant that has them, and for shared keys") {
  for (const AttentionVariant& variant : attention_variants()) {
    for (const char* positions : {"alibi", "relative"}) {
      const Capabilities& can = variant.capabilities;
      if (!can.causal || !(positions == std::string("alibi") ? can.alibi : can.relative)) continue;
      CAPTURE_ALL(variant.name, positions);
      TransformerConfig config = model_config(positions);
      config.decoder_attention = {{variant.name, 0, {}}};
      LanguageModel model(config);
      check_steps(model);
    }
  }
  for (const char* positions : {"alibi", "relative"}) {
    for (const std::int64_t kv_heads : {1, 2}) {
      CAPTURE_ALL(positions, kv_heads);
      TransformerConfig config = model_config(positions);
      config.decoder_attention.front().options.set("kv_heads", kv_heads);
      LanguageModel model(config);
      check_steps(model);
    }
  }
}

TEST_CASE("distances: several new tokens at a time give what one pass gives, behind padding too") {
  for (const char* positions : {"alibi", "relative"}) {
    CAPTURE(positions);
    const auto layer = make_attention(
        "dot_product",
        config_with(positions == std::string("alibi") ? &AttentionConfig::alibi : &AttentionConfig::relative,
                    true));
    layer->to(DType::f64, {});
    Context context = Context::inference();
    const NoGrad no_grad;
    const Tensor x = normal_numbers(23, {2, 7, 8}, 1);
    const Tensor mask = Tensor::from(Ints{1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1}, {2, 7});
    const Tensor whole = (*layer)({x, mask}, context);
    AttentionCache cache;
    std::int64_t begin = 0;
    for (const std::int64_t end : {3, 4, 7}) {
      const Tensor part =
          layer->step({contiguous(slice(x, 1, begin, end)), contiguous(slice(mask, 1, begin, end)), {}, {}},
                      cache, context);
      const Tensor expected = slice(whole, 1, begin, end), real = slice(mask, 1, begin, end);
      CHECK(worst_difference(where(unsqueeze(real, 2), part, 0.0), contiguous(expected)) < 1e-12);
      begin = end;
    }
  }
}

TEST_CASE("distances: a translator's steps give what one pass gives") {
  for (const char* positions : {"alibi", "relative"}) {
    CAPTURE(positions);
    check_translator_steps(model_config(positions));
  }
}

TEST_CASE("positions within attention: no vectors, any length, and order matters") {
  const auto difference = [](TransformerConfig config) {  // between two orders of the tokens before the last
    config.decoder_layers = 1;
    LanguageModel model(config);
    Context context = Context::inference();
    const auto last = [&](const Ints& ids) {
      return contiguous(select(model.hidden({Tensor::from(ids, {1, 4})}, context), 1, 3));
    };
    return worst_difference(last({1, 2, 3, 4}), last({2, 1, 3, 4}));
  };
  for (const char* positions : {"rotary", "alibi", "relative"}) {
    CAPTURE(positions);
    TransformerConfig config = model_config(positions);
    config.max_length = 3;
    LanguageModel model(config);
    CHECK_FALSE(has_name(model, "input.positions.weight"));
    check_steps(model);  // of 5 tokens
    CHECK(difference(config) > 1e-4);
    ImageClassifierConfig images{tiny_config(), 4, 6, 2};
    images.positions = positions;
    CHECK_FALSE(has_name(*std::make_unique<ImageClassifier>(images), "input.positions.weight"));
  }
  CHECK(difference(model_config("none")) < 1e-6);
  const ImageClassifierConfig images{tiny_config(), 4, 6, 2};  // learned ones otherwise
  CHECK(has_name(*std::make_unique<ImageClassifier>(images), "input.positions.weight"));
}

TEST_CASE("distances: what cannot have them says so by name") {
  Options alike;
  alike.set("parts", std::vector<std::string>{"dot_product", "longformer"});
  struct Row {
    const char *positions, *encoder, *says;
    Options options = {};
  };
  const Row rows[] = {{"rotary", "fastformer", "'fastformer' cannot have rotary positions"},
                      {"rotary", "mixed_heads", "'mixed_heads' cannot have rotary positions"},
                      {"rotary", "mixed_heads", "", alike},
                      {"alibi", "fastformer", "'fastformer' cannot have alibi positions"},
                      {"alibi", "sparse_transformer", "these can: dot_product, longformer, bigbird"},
                      {"alibi", "longformer", ""},
                      {"alibi", "mixed_heads", "'mixed_heads' cannot have alibi positions"},
                      {"alibi", "mixed_heads", "", alike},
                      {"relative", "longformer", "'longformer' cannot have relative positions"},
                      {"relative", "linformer", "these can: dot_product"},
                      {"relative", "mixed_heads", "'mixed_heads' cannot have relative positions", alike}};
  for (const Row& row : rows) {
    TransformerConfig config = model_config(row.positions);
    config.encoder_attention = {{row.encoder, 0, row.options}};
    const std::string said = error_of([&] { EncoderDecoder model(config); });
    CHECK_MESSAGE((row.says[0] == '\0' ? said.empty() : contains(said, row.says)), row.encoder, ": ", said);
  }
  for (bool AttentionConfig::*positions : {&AttentionConfig::alibi, &AttentionConfig::relative}) {
    AttentionConfig cross = config_with(positions, false);
    cross.cross = true;
    CHECK(contains(error_of([&] { make_attention("dot_product", cross); }),
                   "cross-attention has no distances"));
  }
}
