// What later models put in place of the blocks of 2017: gated feed-forward layers, RMS normalisation, rotary
// positions and grouped queries.

#include <numbers>

#include "heed/models/attention/shared/token_sums.h"
#include "heed/models/classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/loss.h"
#include "heed/models/news_recommender.h"
#include "heed/models/positions.h"
#include "heed/tests/decoding_support.h"
#include "heed/tests/model_support.h"

namespace {

AttentionConfig rotary_config(std::int64_t width, std::int64_t heads) {
  AttentionConfig config;
  config.width = width;
  config.heads = heads;
  config.rotary = true;
  config.seed = 5;
  return config;
}

TransformerConfig modern_config(std::int64_t kv_heads = 2) {
  TransformerConfig config = tiny_config();
  config.width = 16;
  config.heads = 4;
  config.norm = "pre";
  config.activation = "swiglu";
  config.norm_kind = "rms";
  config.positions = "rotary";
  config.encoder_layers = config.decoder_layers = 2;
  for (AttentionChoices* choices :
       {&config.encoder_attention, &config.decoder_attention, &config.cross_attention})
    choices->front().options.set("kv_heads", kv_heads);
  return config;
}

std::int64_t cached_elements(LanguageModel& model) {
  const NoGrad no_grad;
  Context context = Context::inference();
  DecoderState state = model.start();
  model.step(tokens(), state, context);
  std::int64_t count = 0;
  for (const DecoderLayerCache& layer : state.layers)
    count += layer.self.key.count() + layer.self.value.count();
  return count;
}

}  // namespace

TEST_CASE("gated feed-forward: the gate multiplies a second map, and is a map more") {
  for (const char* name : {"swiglu", "geglu"}) {
    CAPTURE(name);
    Initialiser initialiser(3);
    FeedForward layer(6, 10, find_activation(name), 0, initialiser);
    layer.to(DType::f64, {});
    CHECK(names_of(layer.parameters()) == std::vector<std::string>{"input.weight", "input.bias",
                                                                   "gate.weight", "gate.bias",
                                                                   "output.weight", "output.bias"});
    CHECK(layer.parameter_count() == 3 * 60 + 10 + 10 + 6);
    const auto part = [&](const char* which) -> const Linear& {
      return dynamic_cast<const Linear&>(*layer.find(which));
    };
    const Tensor x = normal_numbers(17, {2, 3, 6}, 1), gate = part("gate")(x);
    // Shazeer 2020, eq. 6; the activations by their definitions: x sigmoid(x), x Phi(x).
    const Tensor activated = std::string(name) == "swiglu" ? gate / (exp(-gate) + 1.0)
                                                           : gate * (erf(gate / std::sqrt(2.0)) + 1.0) * 0.5;
    Context context = Context::inference();
    CHECK(worst_difference(layer(x, context), part("output")(activated * part("input")(x))) < 1e-12);
  }
  Initialiser initialiser(3);
  FeedForward plain(6, 10, Activation::gelu, 0, initialiser);
  CHECK(plain.find("gate") == nullptr);
}

TEST_CASE("gated feed-forward: far-off gates are closed or linear, and so are their gradients") {
  const Tensor gate = parameter(Tensor::from(Floats{-1e4F, 1e4F, -200, 200}, {4})),
               x = parameter(Tensor::from(Floats{3, 3, 3, 3}, {4}));
  for (const BinaryOp op : {BinaryOp::swiglu, BinaryOp::geglu}) {
    const Tensor y = binary(op, gate, x);
    CHECK(y.to_vector<float>() == Floats{0, 3e4F, 0, 600});
    zero_gradient(gate);
    zero_gradient(x);
    backward(sum(y));
    CHECK(gradient(gate).to_vector<float>() == Floats{0, 3, 0, 3});
    CHECK(gradient(x).to_vector<float>() == Floats{0, 1e4F, 0, 200});
  }
}

TEST_CASE("RMS normalisation: each row by its root mean square, with a weight alone") {
  Norm norm(NormKind::rms, 5, 1e-3);
  norm.to(DType::f64, {});
  CHECK(names_of(norm.parameters()) == std::vector<std::string>{"weight"});
  norm.weight = normal_numbers(17, {5}, 2);
  const Tensor x = normal_numbers(17, {3, 5}, 1) * 4 + 2;
  CHECK(worst_difference(norm(x), x / sqrt(mean(square(x), -1, true) + 1e-3) * norm.weight) < 1e-12);
  CHECK_ERROR(norm(normal_numbers(17, {3, 4}, 1)), "RMSNorm");
  CHECK_ERROR(rms_norm(x, normal_numbers(17, {4}, 1)), "rms_norm: weight of shape [4]");
}

TEST_CASE("RMS normalisation: as a setting it is in every place of a model") {
  TransformerConfig config = modern_config();
  config.embedding_norm = true;
  EncoderDecoder model(config);
  int norms = 0;
  for (const NamedTensor& entry : model.parameters()) {
    if (!contains(entry.name, "norm.")) continue;
    ++norms;
    CAPTURE(entry.name);
    CHECK(entry.name.ends_with("weight"));
  }
  CHECK(norms ==
        2 + 2 * 2 + 2 * 3 + 2);  // embeddings, encoder's and decoder's sub-layers, ends of the stacks
}

TEST_CASE("rotary positions: pairs are turned as the paper's matrix does") {
  constexpr std::int64_t heads = 3, half = 2, length = 4;
  Rotary turn(rotary_config(heads * 2 * half, heads));
  const Tensor x = normal_numbers(17, {2, length, heads * 2 * half}, 1);
  const Doubles in = x.to_doubles(), out = turn(x, 5).to_doubles();
  for (std::size_t row = 0; row < 2 * length * heads; ++row) {
    const double position = 5 + static_cast<double>(row / heads % length);
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / (2 * half));
      const std::size_t a = row * 2 * half + i, b = a + half;
      CHECK(out[a] == doctest::Approx(in[a] * std::cos(angle) - in[b] * std::sin(angle)).epsilon(1e-12));
      CHECK(out[b] == doctest::Approx(in[b] * std::cos(angle) + in[a] * std::sin(angle)).epsilon(1e-12));
    }
  }
  CHECK(worst_difference(slice(turn(x), 1, 0, 1), slice(x, 1, 0, 1)) == 0);  // position 0 is not turned
  const Tensor chosen = Tensor::from(Ints{3, 0}, {2});
  CHECK(worst_difference(turn.at(index_select(x, 1, chosen), chosen, length),
                         index_select(turn(x), 1, chosen)) == 0);
}

TEST_CASE("rotary positions: other bases and longer texts turn pairs as their formulas say") {
  constexpr std::int64_t half = 8;
  const auto turned_by = [&](const RotaryAngles& angles) {  // what each pair turns by at position 1
    AttentionConfig config = rotary_config(2 * half, 1);
    config.angles = angles;
    Rotary turn(config);
    const Tensor x =
        concat({Tensor::ones({1, 1, half}, DType::f64), Tensor::zeros({1, 1, half}, DType::f64)}, 2);
    Doubles all = turn(x, 1).to_doubles(), found;
    for (std::size_t i = 0; i < half; ++i) found.push_back(std::atan2(all[i + half], all[i]));
    return found;
  };
  const Doubles linear = turned_by({.base = 500, .factor = 4}),
                longer = turned_by({.base = 500, .factor = 8, .length = 64});
  bool keeps = false, slows = false, between = false;
  for (std::size_t i = 0; i < half; ++i) {
    const double plain = std::pow(500.0, -static_cast<double>(i) / half), wave = 2 * std::numbers::pi / plain;
    CHECK(linear[i] == doctest::Approx(plain / 4).epsilon(1e-12));
    // The code published with Llama 3.1 compares wave lengths with those of the ends, 64 / 1 and 64 / 4.
    const double smooth = (64 / wave - 1) / (4 - 1);
    const double expected = wave < 64.0 / 4 ? plain
                            : wave > 64     ? plain / 8
                                            : (1 - smooth) * plain / 8 + smooth * plain;
    CHECK(longer[i] == doctest::Approx(expected).epsilon(1e-12));
    (wave < 64.0 / 4 ? keeps : wave > 64 ? slows : between) = true;
  }
  CHECK((keeps && slows && between));
}

/// By how much each pair of a head turns from one position to the next, in a text read up to `end`, and the
/// amplitude.
Doubles turned_by(const RotaryAngles& angles, std::int64_t end, double& amplitude) {
  constexpr std::int64_t half = 8;
  AttentionConfig config = rotary_config(2 * half, 1);
  config.angles = angles;
  Rotary turn(config);
  const Tensor x =
      concat({Tensor::ones({1, end, half}, DType::f64), Tensor::zeros({1, end, half}, DType::f64)}, 2);
  const Doubles all = slice(turn(x), 1, 1, 2).to_doubles();
  Doubles found;
  for (std::size_t i = 0; i < half; ++i) {
    found.push_back(std::atan2(all[i + half], all[i]));
    amplitude = std::hypot(all[i + half], all[i]);
  }
  return found;
}

TEST_CASE("rotary positions: YaRN, dynamic and longrope turn pairs as their formulas say") {
  const auto plain = [](std::size_t i, double base) { return std::pow(base, -static_cast<double>(i) / 8); };
  double amplitude = 0;
  RotaryAngles angles{.base = 500, .factor = 8, .length = 64, .scaling = RotaryScaling::yarn};
  const Doubles yarn = turned_by(angles, 4, amplitude);
  CHECK(amplitude == doctest::Approx(0.1 * std::log(8) + 1));
  // The pairs that turn 32 times and once in 64 tokens: 16 ln(64 / (2 pi n)) / (2 ln 500), below 0 and 2.99.
  for (std::size_t i = 0; i < 8; ++i) {
    const double slowed = std::min(static_cast<double>(i) / 3, 1.0);
    CHECK(yarn[i] == doctest::Approx(plain(i, 500) * (1 - slowed + slowed / 8)).epsilon(1e-12));
  }
  angles.amplitude = 1.25;
  turned_by(angles, 4, amplitude);
  CHECK(amplitude == doctest::Approx(1.25));
  angles = {.base = 500, .factor = 8, .length = 64, .scaling = RotaryScaling::dynamic};
  for (const std::int64_t end : {4, 64, 65, 128}) {
    const double growth = end > 64 ? 8 * static_cast<double>(end) / 64 - 7 : 1;
    const Doubles found = turned_by(angles, end, amplitude);
    for (std::size_t i = 0; i < 8; ++i)
      CHECK(found[i] == doctest::Approx(plain(i, 500 * std::pow(growth, 16.0 / 14))).epsilon(1e-12));
  }
  angles.scaling = RotaryScaling::longrope;
  CHECK_ERROR(turned_by(angles, 4, amplitude), "must hold 8 numbers");
  angles.short_factors = {1, 2, 3, 4, 5, 6, 7, 8};
  angles.long_factors = {2, 4, 6, 8, 10, 12, 14, 16};
  for (const std::int64_t end : {64, 65}) {
    const Doubles found = turned_by(angles, end, amplitude);
    CHECK(amplitude == doctest::Approx(std::sqrt(1 + std::log(8) / std::log(64))));
    for (std::size_t i = 0; i < 8; ++i)
      CHECK(found[i] ==
            doctest::Approx(plain(i, 500) / static_cast<double>(i + 1) / (end > 64 ? 2 : 1)).epsilon(1e-12));
  }
  angles.length = 0;
  CHECK_ERROR(turned_by(angles, 4, amplitude), "rotary_length");
  CHECK_ERROR(turned_by({.few_turns = 4}, 4, amplitude), "'rotary_few_turns' is 4");
  TransformerConfig config = modern_config();
  config.rotary_long = "1,x";
  CHECK_ERROR(LanguageModel{config},
              "'rotary_long' must hold positive numbers between commas, but holds 'x'");
}

TEST_CASE("rotary positions: a share of each head turns like a narrower head, the rest stays") {
  AttentionConfig config = rotary_config(16, 2);
  Rotary narrow(rotary_config(8, 2));
  config.angles.share = 0.5;
  Rotary some(config);
  const Tensor x = normal_numbers(17, {2, 5, 2, 8}, 1);
  const Tensor found = reshape(some(reshape(x, {2, 5, 16}), 3), {2, 5, 2, 8});
  const Tensor expected = narrow(reshape(contiguous(slice(x, 3, 0, 4)), {2, 5, 8}), 3);
  CHECK(worst_difference(slice(found, 3, 0, 4), reshape(expected, {2, 5, 2, 4})) == 0);
  CHECK(worst_difference(slice(found, 3, 4, 8), slice(x, 3, 4, 8)) == 0);
}

TEST_CASE("windows and caps of the dot product: a mask, and tanh on the logits") {
  for (const bool causal : {false, true})
    for (const bool left : {false, true}) {
      CAPTURE_ALL(causal, left);
      AttentionConfig config = rotary_config(12, 2);
      config.rotary = false;
      config.causal = causal;
      const auto plain = make_attention("dot_product", config);
      config.options.set("window", std::int64_t{3});
      config.options.set("logit_cap", 0.25);
      config.options.set("logit_scale", 2.0);
      const auto capped = make_attention("dot_product", config);
      Ints padding(2 * 9, 1), window;
      std::fill_n(padding.begin() + (left ? 9 : 14), 4, 0);
      for (int i = 0; i < 9; ++i)
        for (int j = 0; j < 9; ++j) window.push_back(causal ? i - j >= 0 && i - j < 3 : std::abs(i - j) < 3);
      const Tensor x = normal_numbers(17, {2, 9, 12}, 1) * 30, mask = Tensor::from(padding, {2, 9});
      for (Attention* one : {plain.get(), capped.get()}) one->to(DType::f64, {});
      const NoGrad no_grad;
      const auto heads = [&](const char* map) {
        return split_heads(dynamic_cast<Linear&>(*plain->find(map))(x), 2);
      };
      const Tensor logits = tanh(matmul(heads("query"), transpose(heads("key"), 2, 3)) * 2 / 0.25) * 0.25;
      const Tensor seen = Tensor::from(window, {1, 1, 9, 9}) * reshape(mask, {2, 1, 1, 9});
      const Tensor output = merge_heads(matmul(masked_softmax(logits, seen), heads("value")));
      const Tensor expected =
          dynamic_cast<Linear&>(*plain->find("output"))(output) * unsqueeze(cast(mask, DType::f64), 2);
      Context context = Context::inference();
      CHECK(worst_difference((*capped)({x, mask}, context), expected) < 1e-12);
      capped->to(DType::f32, {});
      CHECK(worst_difference((*capped)({cast(x, DType::f32), mask}, context), cast(expected, DType::f32)) <
            1e-4);
      CHECK((*capped)({Tensor::zeros({2, 0, 12})}, context).shape() == Shape{2, 0, 12});
    }
  AttentionConfig config = rotary_config(12, 2);
  config.rotary = false;
  config.options.set("rotary_base", 5.0);
  CHECK_ERROR(make_attention("dot_product", config), "'rotary_base' of an attention needs");
  config.options = {};
  config.options.set("window", std::int64_t{3});
  config.cross = true;
  CHECK_ERROR(make_attention("dot_product", config), "windows and distances are within one sequence");
}

TEST_CASE("windows of the dot product: steps agree with one pass, in a cache of constant size") {
  for (const std::int64_t window : {1, 3, 40}) {
    CAPTURE(window);
    TransformerConfig config = modern_config();
    config.norm = "sandwich";
    config.output_cap = 2;
    Options& options = config.decoder_attention.front().options;
    options.set("window", window);
    options.set("logit_cap", 3.0);
    options.set("rotary_base", 100.0);
    LanguageModel model(config);
    check_steps(model);
    if (window == 3) CHECK(cached_elements(model) == 2 * 2 * 2 * (window - 1) * 8);
  }
}

TEST_CASE("a cap of the output: c tanh(z / c), also in the loss") {
  TransformerConfig config = modern_config();
  LanguageModel plain(config);
  config.output_cap = 0.125;
  LanguageModel capped(config);
  Context context = Context::inference();
  const Tensor hidden = cast(normal_numbers(17, {2, 3, 16}, 1), DType::f32);
  CHECK(worst_difference(capped.logits(hidden), tanh(plain.logits(hidden) / 0.125) * 0.125) < 1e-6);
  Tokens many(600);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(i * 7 % 11);
  const LanguageModelBatch batch = make_language_model_batch({&many, 1});  // more than the loss takes at once
  const Tensor logits = reshape(capped.logits(capped.hidden(batch.input, context)), {599, -1});
  CHECK(capped.loss(batch, 0.1, context).sum.item() ==
        doctest::Approx(sum(cross_entropy(logits, batch.targets.ids, 0.1)).item()));
}

TEST_CASE("normalised queries and keys: each head is divided by its root mean square") {
  AttentionConfig config = rotary_config(12, 2);
  config.rotary = false;
  config.epsilon = 1e-3;
  config.options.set("kv_heads", std::int64_t{1});
  const auto plain = make_attention("dot_product", config);
  config.options.set("qk_norm", true);
  const auto normalised = make_attention("dot_product", config);
  CHECK(normalised->parameter_count() == plain->parameter_count() + 2 * 6);
  const Tensor x = normal_numbers(17, {2, 5, 12}, 1);
  for (Attention* one : {plain.get(), normalised.get()}) one->to(DType::f64, {});
  auto &query_norm = dynamic_cast<Norm&>(*normalised->find("query_norm")),
       &key_norm = dynamic_cast<Norm&>(*normalised->find("key_norm"));
  query_norm.weight = normal_numbers(17, {6}, 3);
  key_norm.weight = normal_numbers(17, {6}, 4);
  const NoGrad no_grad;
  const auto heads_of = [&](const char* map, const Tensor& weight) {
    const auto& linear = dynamic_cast<Linear&>(*plain->find(map));
    const Tensor heads = split_heads(linear(x), linear.weight.size(0) / 6);  // [B, H, N, 6]
    return heads / sqrt(mean(square(heads), -1, true) + 1e-3) * weight;
  };
  const Tensor query = heads_of("query", query_norm.weight), key = heads_of("key", key_norm.weight);
  const Tensor expected = attention_weights(query, concat({key, key}, 1), {});
  const Capture seen = Watched(*normalised, {x}).capture;
  CHECK(worst_difference(seen.entries.at(0).value, expected) < 1e-12);
}

TEST_CASE("value residuals: later layers mix the values of the first into their own") {
  for (const char* name : {"dot_product", "local", "moba", "deepseek_sparse"}) {
    CAPTURE(name);
    AttentionConfig config = rotary_config(12, 2);
    config.options.set("value_residual", true);
    const auto first = make_attention(name, config);
    config.first = first.get();
    config.seed = 6;
    const auto later = make_attention(name, config);
    CHECK(later->parameter_count() == first->parameter_count() + 2);
    for (Attention* one : {first.get(), later.get()}) one->to(DType::f64, {});
    for (const NamedTensor& entry : later->parameters())
      if (entry.name == "value_residual") *entry.tensor = parameter(Tensor::from(Doubles{0.3, -1.2}, {2}));
    const Tensor x = normal_numbers(17, {2, 5, 12}, 1), y = normal_numbers(17, {2, 5, 12}, 2);
    const NoGrad no_grad;
    const auto values = [](Attention& layer, const Tensor& input) {
      return dynamic_cast<Linear&>(*layer.find("value"))(input);
    };
    Context context;
    Capture seen;
    (*first)({x}, context);
    context.capture = &seen;
    const Tensor found = (*later)({y}, context);
    const Tensor mixed = values(*first, x) * 0.3 - values(*later, y) * 1.2;
    const Tensor expected = merge_heads(matmul(seen.find("weights"), split_heads(mixed, 2)));
    CHECK(worst_difference(found, dynamic_cast<Linear&>(*later->find("output"))(expected)) < 1e-12);
    Context fresh;
    CHECK(contains(error_of([&] { (*later)({y}, fresh); }), "in the first layer with this mechanism, too"));
  }
}

TEST_CASE("value residuals and Canon layers: one pass and steps agree, and saved models are what they were") {
  for (const char* name : {"dot_product", "differential", "local", "moba", "deepseek_sparse"}) {
    CAPTURE(name);
    TransformerConfig config = modern_config();
    config.canon = 3;
    config.decoder_attention = {{name, 0, options_of({{"value_residual", true}})}};
    LanguageModel model(config);
    check_steps(model);
    config.seed = 77;
    LanguageModel other(transformer_config_from_json(to_json(config)));
    other.to(DType::f64, {});
    const std::vector<NamedTensor> from = model.state(), to = other.state();
    REQUIRE(from.size() == to.size());
    for (std::size_t i = 0; i < from.size(); ++i) *to[i].tensor = from[i].tensor->detach();
    Context context = Context::inference();
    CHECK(worst_difference(model.logits(model.hidden({tokens(), {}}, context)),
                           other.logits(other.hidden({tokens(), {}}, context))) == 0);
  }
}

TEST_CASE("value residuals: where nothing has values, or all layers have the same, they are refused") {
  const auto error_with = [](const char* name, const char* shared) {
    TransformerConfig config = modern_config();
    config.positions = "none";
    config.share_layers = shared;
    config.decoder_attention = {{name, 0, options_of({{"value_residual", true}})}};
    return error_of([&] { LanguageModel model(config); });
  };
  CHECK(contains(error_with("mamba2", "none"), "has no setting 'value_residual'"));
  CHECK(contains(error_with("dot_product", "attention"), "share_layers=attention leaves no layer"));
  CHECK(contains(error_with("dot_product", "all"), "share_layers=all leaves no layer"));
  CHECK(error_with("dot_product", "none").empty());
}

TEST_CASE("Canon layers: a sum over the last tokens before attention and feed-forward, which skips padding") {
  TransformerConfig config = modern_config();
  config.encoder_layers = 1;
  config.first_norm = false;
  const auto encoder_of = [](const TransformerConfig& config) {
    Initialiser initialiser(3);
    auto encoder = std::make_unique<Encoder>(config, initialiser);
    encoder->to(DType::f64, {});
    return encoder;
  };
  const auto plain = encoder_of(config);
  config.canon = 3;
  const auto canon = encoder_of(config);
  CHECK(canon->parameter_count() == plain->parameter_count() + 2 * 3 * 16);
  for (const NamedTensor& entry : canon->parameters()) {
    if (entry.name == "layers.0.canon_feed_forward.weight") *entry.tensor = parameter(*entry.tensor * 0);
    for (const NamedTensor& same : plain->parameters())
      if (same.name == entry.name) *entry.tensor = parameter(same.tensor->detach());
  }
  const NoGrad no_grad;
  Context context;
  const Tensor x = normal_numbers(17, {1, 6, 16}, 1);
  const auto weight_of = [&](std::int64_t back) {
    return select(dynamic_cast<ShortConvolution&>(*canon->find("layers.0.canon_attention")).weight, 0,
                  2 - back);
  };
  Tensor summed = x * (weight_of(0) + 1);
  for (const std::int64_t back : {1, 2})
    summed = summed + pad(slice(x, 1, 0, 6 - back), 1, back, 0) * weight_of(back);
  auto& attention = dynamic_cast<Attention&>(*plain->find("layers.0.attention"));
  auto& feed_forward = dynamic_cast<FeedForward&>(*plain->find("layers.0.feed_forward"));
  auto& norm = dynamic_cast<Norm&>(*plain->find("layers.0.feed_forward_norm"));
  const Tensor attended = x + attention({summed}, context);
  const Tensor expected =
      dynamic_cast<Norm&>(*plain->find("norm"))(attended + feed_forward(norm(attended), context));
  CHECK(worst_difference((*canon)(x, {}, context), expected) < 1e-12);
  // Padding on either side changes nothing; rotary positions tell distances alone.
  const Tensor padded = concat({x * 3, x, x * 5}, 1);
  const Tensor mask = Tensor::from(Ints{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}, {1, 18});
  CHECK(worst_difference(slice((*canon)(padded, mask, context), 1, 6, 12), expected) < 1e-12);
}

TEST_CASE("widths of heads: they need not divide the width, and mechanisms that cannot have them say so") {
  TransformerConfig config = modern_config();
  config.head_width = 6;
  LanguageModel model(config);
  CHECK(dynamic_cast<Linear&>(*model.find("decoder.layers.0.self_attention.query")).weight.shape() ==
        Shape{24, 16});
  CHECK(dynamic_cast<Linear&>(*model.find("decoder.layers.0.self_attention.key")).weight.shape() ==
        Shape{12, 16});
  CHECK(dynamic_cast<Linear&>(*model.find("decoder.layers.0.self_attention.output")).weight.shape() ==
        Shape{16, 24});
  check_steps(model);
  config.heads = 3;
  config.decoder_attention = {{"dot_product", 0, {}}};
  LanguageModel undivided(config);
  check_steps(undivided);
  config.heads = 4;
  config.positions = "none";
  config.decoder_attention = {{"fastformer", 0, {}}};
  CHECK_ERROR(LanguageModel{config}, "head_width");
  config.head_width = 4;  // width / heads
  LanguageModel same(config);
}

TEST_CASE("biases: feed-forward layers and the output of attention have theirs by themselves") {
  const auto biases = [](const TransformerConfig& config) {
    std::set<std::string> found;
    LanguageModel model(config);
    for (const NamedTensor& one : model.parameters())
      if (one.name.starts_with("decoder.layers.0.") && one.name.ends_with(".bias"))
        found.insert(one.name.substr(17, one.name.size() - 17 - 5));
    return found;
  };
  TransformerConfig config = modern_config();
  CHECK(biases(config) ==
        std::set<std::string>{"feed_forward.gate", "feed_forward.input", "feed_forward.output"});
  config.feed_forward_bias = false;
  CHECK(biases(config).empty());
  config.attention_bias = true;
  CHECK(biases(config) == std::set<std::string>{"self_attention.query", "self_attention.key",
                                                "self_attention.value", "self_attention.output"});
  config.decoder_attention.front().options.set("output_bias", false);
  CHECK(biases(config) ==
        std::set<std::string>{"self_attention.query", "self_attention.key", "self_attention.value"});
  for (const char* activation : {"swiglu", "relu"}) {  // the same as biases of 0
    Initialiser one(3), two(3);
    FeedForward without(6, 10, find_activation(activation), 0, one, false),
        with(6, 10, find_activation(activation), 0, two);
    const NoGrad no_grad;
    for (const NamedTensor& parameter : with.parameters())
      if (parameter.name.ends_with("bias")) *parameter.tensor = Tensor::zeros(parameter.tensor->shape());
    for (const NamedTensor& parameter : without.parameters())
      for (const NamedTensor& same : with.parameters())
        if (same.name == parameter.name) *same.tensor = *parameter.tensor;
    Context context = Context::inference();
    const Tensor x = cast(normal_numbers(17, {3, 6}, 1), DType::f32);
    CHECK(worst_difference(without(x, context), with(x, context)) == 0);
  }
}

TEST_CASE("rotary positions: products depend on distances alone, far beyond any length of training") {
  Rotary turn(rotary_config(8, 1));
  const Tensor query = normal_numbers(17, {1, 6, 8}, 1), key = normal_numbers(17, {1, 6, 8}, 2);
  const auto products = [&](std::int64_t begin) {
    return matmul(turn(query, begin), transpose(turn(key, begin), 1, 2));
  };
  CHECK(worst_difference(products(0), products(31)) < 1e-12);
  CHECK(worst_difference(products(0), products(20000)) < 1e-10);
  CHECK(worst_difference(products(0), matmul(query, transpose(key, 1, 2))) > 0.1);
}

TEST_CASE("rotary positions: what cannot have them says so by name") {
  const auto building = [](const std::function<void(TransformerConfig&)>& change) {
    TransformerConfig config = tiny_config();
    config.positions = "rotary";
    change(config);
    return error_of([&] { EncoderDecoder model(config); });
  };
  CHECK(building([](TransformerConfig&) {}) == "");
  CHECK(contains(building([](TransformerConfig& config) {
                   config.width = 6;
                   config.heads = 2;
                 }),
                 "a head has a width of 3"));
  AttentionConfig cross = rotary_config(8, 2);
  cross.cross = true;
  CHECK(contains(error_of([&] { make_attention("dot_product", cross); }), "cross-attention has no rotary"));
}

TEST_CASE(
    "rotary positions: a recommender tells the order of clicks by them, and without positions not at all") {
  const Tensor table = normal({6, 8}, 0, 1, {17, 0, 3});
  const auto user = [&](const char* positions, const Ints& clicks) {
    TransformerConfig config = tiny_config();
    config.positions = positions;
    NewsRecommender model(config, {.titles = false, .identities = 5});
    Context context = Context::inference();
    return model.users(table, {Tensor::from(clicks, {1, 4})}, context);
  };
  for (const char* positions : {"rotary", "sinusoidal", "none"}) {
    CAPTURE(positions);
    const double moved = worst_difference(user(positions, {0, 1, 2, 3}), user(positions, {0, 3, 2, 1}));
    CHECK((moved < 1e-5) == (positions == std::string("none")));
  }
}

TEST_CASE("modern blocks: one pass and steps agree, for every causal variant with rotary positions") {
  for (const AttentionVariant& variant : attention_variants()) {
    if (!variant.capabilities.causal || !variant.capabilities.rotary) continue;
    CAPTURE(variant.name);
    TransformerConfig config = modern_config();
    config.decoder_attention = {{variant.name, 0, {}}};
    LanguageModel model(config);
    check_steps(model);
  }
  for (const std::int64_t kv_heads : {0, 1, 2, 4}) {
    CAPTURE(kv_heads);
    LanguageModel model(modern_config(kv_heads));
    check_steps(model);
  }
}

TEST_CASE("modern blocks: a translator's steps give what one pass gives") {
  check_translator_steps(modern_config(1));
}

TEST_CASE("grouped queries: they are a dot product whose heads have equal keys and values") {
  constexpr std::int64_t width = 12, heads = 6, groups = 2, head = width / heads;
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    AttentionConfig config = rotary_config(width, heads);
    config.causal = causal;
    config.bias = true;
    const auto full = make_attention("dot_product", config);
    config.options.set("kv_heads", groups);
    const auto grouped = make_attention("dot_product", config);
    CHECK(grouped->parameter_count() ==
          2 * (width * width + width) + 2 * (groups * head * width + groups * head));
    full->to(DType::f64, {});
    grouped->to(DType::f64, {});
    for (const char* map : {"query", "key", "value", "output"}) {
      auto &from = dynamic_cast<Linear&>(*grouped->find(map)), &to = dynamic_cast<Linear&>(*full->find(map));
      const auto for_all = [&](const Tensor& held) {  // [G dh, ...] -> [H dh, ...]
        if (held.size(0) == to.weight.size(0)) return held.detach();
        std::vector<Tensor> rows;
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t group = h / (heads / groups);
          rows.push_back(slice(held.detach(), 0, group * head, (group + 1) * head));
        }
        return concat(rows, 0);
      };
      to.bias = for_all(from.bias + normal_numbers(17, from.bias.shape(), 9));
      from.bias = from.bias + normal_numbers(17, from.bias.shape(), 9);
      to.weight = for_all(from.weight);
    }
    const Tensor x = normal_numbers(17, {2, 7, width}, 1);
    const Tensor mask = Tensor::from(Ints{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 7});
    Context context = Context::inference();
    const NoGrad no_grad;
    CHECK(worst_difference((*grouped)({x, mask}, context), (*full)({x, mask}, context)) < 1e-12);
    const Capture few = Watched(*grouped, {x}).capture, all = Watched(*full, {x}).capture;
    CHECK(worst_difference(few.entries.at(0).value, all.entries.at(0).value) < 1e-12);
  }
}

TEST_CASE("grouped queries: what decoding remembers shrinks, and other divisions are refused") {
  LanguageModel whole(modern_config(0)), half(modern_config(2)), one(modern_config(1));
  CHECK(cached_elements(half) * 2 == cached_elements(whole));
  CHECK(cached_elements(one) * 4 == cached_elements(whole));
  CHECK_ERROR(LanguageModel{modern_config(3)}, "setting 'kv_heads' must divide the 4 heads");
  CHECK_ERROR(LanguageModel{modern_config(8)}, "got 8");
  CHECK_ERROR(LanguageModel{modern_config(-1)}, "kv_heads");
}
