// What the reference cases of tests/vectors do not show of the mechanisms: decoding with a state, random draws,
// numbers at the ends of their range, and settings other than the defaults.

#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"
#include "heed/tests/model_support.h"

namespace {

constexpr std::int64_t width = 8, heads = 2;

/// The second sample has padding at both ends and within.
Tensor mask_for(std::int64_t length) {
  Ints real(static_cast<std::size_t>(2 * length), 1);
  for (const std::int64_t n : {std::int64_t{0}, length / 2, length - 2, length - 1})
    real[static_cast<std::size_t>(length + n)] = 0;
  return Tensor::from(real, {2, length});
}

std::unique_ptr<Attention> layer_of(const std::string& name, bool causal = false, bool cross = false,
                                    const Options& options = {}) {
  AttentionConfig config;
  config.width = width;
  config.heads = heads;
  config.bias = true;
  config.causal = causal;
  config.cross = cross;
  config.max_length = 256;
  config.seed = 7;
  config.options = options;
  auto layer = make_attention(name, config);
  layer->to(DType::f64, {});
  for (const NamedTensor& entry : layer->parameters())
    *entry.tensor = parameter(*entry.tensor + normal_numbers(23, entry.tensor->shape(), 9) * 0.1);
  return layer;
}

}  // namespace

TEST_CASE("sparse Sinkhorn attention: noise disturbs the sorting in training alone") {
  const auto outputs = [&](bool noise) {
    const auto layer = layer_of("sinkhorn", false, false, options_of({{"block", 2}, {"noise", noise}}));
    const AttentionInput input{normal_numbers(23, {1, 9, width}, 1)};
    Context training = Context::train(1, 1), inference = Context::inference();
    return std::pair((*layer)(input, training).to_doubles(), (*layer)(input, inference).to_doubles());
  };
  const auto with = outputs(true), without = outputs(false);
  CHECK(with.first != with.second);
  CHECK(without.first == without.second);
  CHECK(with.second == without.second);
}

TEST_CASE("Nystromformer: with a landmark for every token and enough iterations it is the dot product") {
  const auto near = layer_of("nystromformer", false, false, options_of({{"iterations", 40}})),
             exact = layer_of("dot_product");
  const AttentionInput input{normal_numbers(23, {2, 12, width}, 1), mask_for(12)};
  Context context;
  CHECK(worst_difference((*near)(input, context), (*exact)(input, context)) < 1e-8);
}

TEST_CASE("Performer: more features estimate the dot product better") {
  const auto exact = layer_of("dot_product");
  const AttentionInput input{normal_numbers(23, {2, 12, width}, 1) * 0.5};  // the variance grows with e^|q|^2
  Context context;
  const Tensor expected = (*exact)(input, context);
  const auto error = [&](std::int64_t features) {
    const auto layer = layer_of("performer", false, false, options_of({{"features", features}}));
    return worst_difference((*layer)(input, context), expected);
  };
  CHECK(error(4096) < 0.1);
  CHECK(error(4096) < 0.5 * error(8));
}

TEST_CASE("Performer: features are drawn anew every `redraw` batches, and inference takes the last draw") {
  const auto outputs = [](std::int64_t redraw) {
    const auto layer = layer_of("performer", false, false, options_of({{"redraw", redraw}}));
    std::vector<Doubles> all;
    const auto run = [&](Context context) {
      all.push_back((*layer)({normal_numbers(23, {1, 5, width}, 1)}, context).to_doubles());
    };
    run(Context::inference());
    for (std::uint32_t batch = 1; batch <= 7; ++batch) run(Context::train(1, batch));
    run(Context::inference());
    return all;
  };
  const auto never = outputs(0), always = outputs(1), third = outputs(3);
  for (std::size_t pass = 1; pass <= 8; ++pass) {
    CAPTURE(pass);
    CHECK(never[pass] == never[0]);
    CHECK((always[pass] == always[pass - 1]) == (pass == 1 || pass == 8));
    CHECK((third[pass] == third[pass - 1]) == (pass != 4 && pass != 7));
  }
}

TEST_CASE("Performer: keys of any length stay within range, in single precision, whole and step by step") {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const auto layer = layer_of("performer", causal);
    // One token in ten is a hundred times as long: without a stabiliser its features are 0 or infinite.
    Tensor x = normal_numbers(23, {1, 150, width}, 3);
    Doubles lengths(150, 1);
    for (std::size_t n = 5; n < 150; n += 10) lengths[n] = 100;
    x = x * Tensor::from(lengths, {1, 150, 1});
    Context context;
    const Tensor exact = (*layer)({x}, context);
    layer->to(DType::f32, {});
    const Tensor single = (*layer)({cast(x, DType::f32)}, context);
    for (const double value : single.to_doubles()) REQUIRE(std::isfinite(value));
    CHECK(worst_difference(cast(single, DType::f64), exact) < 1e-2 * max(abs(exact)).item());
    if (!causal) continue;
    AttentionCache cache;
    const NoGrad no_grad;
    for (std::int64_t t = 0; t < 150; ++t) {
      const Tensor out = layer->step({cast(slice(x, 1, t, t + 1), DType::f32)}, cache, context);
      CHECK(worst_difference(cast(out, DType::f64), slice(exact, 1, t, t + 1)) <
            1e-2 * max(abs(exact)).item());
    }
  }
}

TEST_CASE("Performer: queries and keys so long that every weight before the division is tiny") {
  constexpr std::int64_t wide = 64, length = 24;
  AttentionConfig config;
  config.width = wide;
  config.causal = true;
  config.seed = 5;
  const auto layer = make_attention("performer", config);
  layer->to(DType::f64, {});
  const auto mapped = [&](const Tensor& x, const char* map) {
    for (const NamedTensor& entry : layer->parameters())
      if (entry.name == map) return matmul(x, transpose(entry.tensor->detach(), 0, 1));
    return Tensor();
  };
  const Tensor w = *layer->buffers()[0].tensor, seen = tril(Tensor::ones({length, length}, DType::i32));
  for (const double deviation : {6.0, 9.6, 20.0}) {
    CAPTURE(deviation);
    const Tensor x = parameter(normal_numbers(29, {1, length, wide}, 3) * deviation);
    // Out of logarithms: log sum_m phi_m(q_i) phi_m(k_j).
    const auto log_features = [&](const char* map) {
      const Tensor scaled = mapped(x, map) * std::pow(static_cast<double>(wide), -0.25);
      return matmul(scaled, transpose(w, 0, 1)) - sum(square(scaled), -1, true) * 0.5;
    };
    const Tensor scores = log_sum_exp(
        unsqueeze(log_features("query.weight"), 2) + unsqueeze(log_features("key.weight"), 1), -1);
    const Tensor expected =
        mapped(matmul(masked_softmax(scores, seen), mapped(x, "value.weight")), "output.weight");
    backward(sum(square(expected)));
    const auto error = [&](DType dtype) {
      layer->to(dtype, {});
      const Tensor given = parameter(cast(x.detach(), dtype));
      Context context;
      const Tensor out = (*layer)({given}, context);
      backward(sum(square(out)));
      const auto relative = [](const Tensor& found, const Tensor& exact) {
        return worst_difference(cast(found.detach(), DType::f64), exact.detach()) /
               max(abs(exact.detach())).item();
      };
      const double of_output = relative(out, expected), of_slope = relative(gradient(given), gradient(x));
      layer->to(DType::f64, {});
      return std::max(of_output, of_slope);
    };
    CHECK(error(DType::f64) < 1e-9);
    CHECK(error(DType::f32) < 1e-2);
  }
}

TEST_CASE("mechanisms keep their word with settings other than the defaults") {
  using Texts = std::vector<std::string>;
  using Numbers = Doubles;
  const std::pair<const char*, Options> rows[] = {
      {"hard_coded_gaussian", options_of({{"offsets", Numbers{-1, 0, 1}}})},
      {"hard_coded_gaussian", options_of({{"sigma", 2.5}})},
      {"linformer", options_of({{"k", 3}})},
      {"linformer", options_of({{"share_kv", true}})},
      {"linformer", options_of({{"per_head", true}})},
      {"synthesizer_dense", options_of({{"share_w2", true}})},
      {"synthesizer_dense", options_of({{"logit_bias", false}})},
      {"synthesizer_dense", options_of({{"hidden", 5}})},
      {"synthesizer_random", options_of({{"deviation", 1.5}})},
      {"synthesizer_random_fixed", options_of({{"deviation", 1.5}})},
      {"synthesizer_factorized_random", options_of({{"k", 3}})},
      {"synthesizer_factorized_dense", options_of({{"tiling", "outer"}})},
      {"synthesizer_factorized_dense", options_of({{"a", 3}, {"b", 54}})},
      {"synthesizer_mixture", options_of({{"components", Texts{"dense", "random", "random_fixed",
                                                               "fact_dense", "fact_random", "dot"}}})},
      {"synthesizer_mixture", options_of({{"components", Texts{"dense", "fact_random", "dot"}}})},
      {"synthesizer_mixture", options_of({{"components", Texts{"random", "fact_random"}}})},
      {"performer", options_of({{"features", 3}, {"redraw", 0}})},
      {"fnet", options_of({{"unitary", true}})},
      {"fnet", options_of({{"padding", "counted"}})},
      {"nystromformer", options_of({{"landmarks", 3}, {"iterations", 4}})},
      {"nystromformer", options_of({{"landmarks", 3}, {"padding", "counted"}})},
      {"nystromformer", options_of({{"convolution", 5}})},
      {"retnet", options_of({{"value_width", 1}})},
      {"gated_linear_attention", options_of({{"temperature", 1.0}})},
      {"attention_free_transformer", options_of({{"form", "full"}, {"rank", 3}})},
      {"attention_free_transformer", options_of({{"form", "local"}, {"window", 2}})},
      {"local", options_of({{"reach", 1}})},
      {"sinkhorn", options_of({{"block", 2}})},
      {"local", options_of({{"reach", 2}, {"sinks", 3}, {"sink", "learned"}, {"gate", "headwise"}})},
      {"dot_product", options_of({{"sink", "learned"}, {"gate", "elementwise"}, {"kv_heads", 1}})},
      {"dot_product", options_of({{"sink", "zero"}, {"gate", "headwise"}})},
      {"dot_product", options_of({{"window", 7}, {"kv_heads", 1}})},
      {"dot_product", options_of({{"window", 40}, {"logit_cap", 1.0}, {"sink", "learned"}})},
      {"dot_product", options_of({{"logit_cap", 2.0}, {"logit_scale", 0.5}, {"relative", true}})},
      {"abc", options_of({{"slots", 3}})},
      {"gated_deltanet", options_of({{"gated", false}, {"value_width", 2}, {"convolution", 1}})},
      {"delta_product", options_of({{"rules", 3}, {"value_width", 2}, {"convolution", 1}})},
      {"mamba2", options_of({{"expand", 1}, {"state", 3}, {"convolution", 2}})},
      {"mamba3", options_of({{"expand", 1}, {"state", 5}, {"rank", 2}})},
      {"deepseek_sparse", options_of({{"tokens", 3}, {"index_heads", 2}, {"index_width", 6}})},
      {"multi_head_latent", options_of({{"kv_rank", 3}, {"query_rank", 5}, {"rotary_width", 4}})},
      {"kimi_delta", options_of({{"value_width", 2}, {"convolution", 1}, {"gate_rank", 3}})},
      {"kimi_delta", options_of({{"scale", true}})},
      {"differential", options_of({{"layer", 3}})},
      {"gated_deltanet2", options_of({{"reflect", true}, {"value_width", 2}, {"convolution", 1}})},
      {"comba", options_of({{"correction", 1.0}, {"value_width", 2}})},
      {"log_linear", options_of({{"expand", 1}, {"state", 3}, {"levels", 3}})},
      {"path", options_of({{"rank", 3}, {"convolution", 2}})},
      {"mesa_net", options_of({{"iterations", 8}, {"convolution", 2}})},
      {"rwkv6", options_of({{"mix_rank", 2}, {"rank", 3}})},
      {"gated_slot", options_of({{"slots", 3}, {"temperature", 1.0}})},
      {"based", options_of({{"features", 5}})},
      {"rwkv7", options_of({{"rank", 3}, {"gate_rank", 5}})},
      {"moba", options_of({{"block", 16}, {"blocks", 2}})},
      {"moba", options_of({{"block", 5}, {"blocks", 1}})},
      {"native_sparse", options_of({{"kv_heads", 1}, {"block", 16}, {"blocks", 4}, {"window", 7}})},
      {"native_sparse", options_of({{"block", 5}, {"blocks", 1}, {"window", 1}})},
      {"native_sparse", options_of({{"block", 2}, {"blocks", 2}})},
  };
  for (const auto& row : rows) {
    CAPTURE_ALL(row.first, row.second.values().begin()->first);
    CHECK_NOTHROW(check_attention(row.first, row.second));
  }
}

TEST_CASE("differential: `layer` takes the place of the layer in its stack") {
  AttentionConfig third;
  third.width = width;
  third.heads = heads;
  third.layer = 3;
  AttentionConfig told = third;
  told.layer = 0;
  told.options.set("layer", std::int64_t{3});
  const Tensor x = normal_numbers(23, {1, 5, width}, 1, DType::f32);
  const auto output = [&](const AttentionConfig& config) {
    Context context;
    return (*make_attention("differential", config))({x}, context).to_doubles();
  };
  CHECK(output(told) == output(third));
  told.options = {};
  CHECK(output(told) != output(third));
}

TEST_CASE("delta rules: `scale` divides queries, which RMSNorm cancels where outputs are large") {
  for (const std::string name : {"gated_deltanet", "kimi_delta"})
    for (const double size : {0.01, 1e6}) {
      const Tensor x = normal_numbers(23, {1, 9, width}, 1) * size;
      const auto output = [&](bool scale) {
        Context context;
        return (*layer_of(name, true, false, options_of({{"scale", scale}})))({x}, context);
      };
      const Tensor plain = output(false);
      const double difference = worst_difference(output(true), plain) / max(abs(plain)).item();
      CAPTURE(name);
      CHECK((size < 1 ? difference > 1e-3 : difference < 1e-4));
    }
}

TEST_CASE("forgetting: gradients of gates that close at once are right in single precision, at any length") {
  for (const std::int64_t length : {300, 2500}) {
    const auto layer = layer_of("forgetting", true);
    const auto gradients = [&](DType dtype) {
      layer->to(dtype, {});
      for (const NamedTensor& one : layer->parameters())
        if (one.name == "forget.bias") *one.tensor = parameter(Tensor::full({heads}, -12, dtype));
      Context context;
      const Tensor out = (*layer)({cast(normal_numbers(31, {1, length, width}, 1), dtype)}, context);
      backward(sum(out * cast(normal_numbers(31, {1, length, width}, 2), dtype)));
      for (const NamedTensor& one : layer->parameters())
        if (one.name == "forget.bias") return cast(gradient(*one.tensor), DType::f64);
      return Tensor();
    };
    const Tensor exact = gradients(DType::f64), single = gradients(DType::f32);
    CAPTURE(length);
    CHECK(worst_difference(single, exact) < 5e-4);
  }
}

namespace {

/// Whether positions from `begin` on, a few at a step, get what the whole pass over x gives them.
void check_steps(Attention& layer, const Tensor& x, const Tensor& whole, std::int64_t begin, std::int64_t few,
                 AttentionCache& cache) {
  Context context;
  for (std::int64_t t = begin; t < x.size(1); t += few)
    CHECK(worst_difference(layer.step({slice(x, 1, t, t + few)}, cache, context),
                           slice(whole, 1, t, t + few)) < 1e-12);
}

}  // namespace

TEST_CASE("decoding with a state: it does not grow with the text, and beam search can reorder it") {
  const std::pair<std::string, Options> rows[] = {{"linear_transformer", {}},
                                                  {"performer", {}},
                                                  {"retnet", {}},
                                                  {"gated_linear_attention", {}},
                                                  {"attention_free_transformer", {}},
                                                  {"local", {}},
                                                  {"local", options_of({{"sinks", 3}, {"reach", 5}})},
                                                  {"cosformer", {}},
                                                  {"abc", {}},
                                                  {"mamba2", {}},
                                                  {"gated_deltanet", {}},
                                                  {"gated_deltanet", options_of({{"gated", false}})},
                                                  {"delta_product", {}},
                                                  {"hgrn2", {}},
                                                  {"gated_deltanet2", {}},
                                                  {"comba", {}},
                                                  {"mesa_net", {}},
                                                  {"mamba3", {}},
                                                  {"mamba3", options_of({{"rank", 3}})},
                                                  {"rwkv6", {}},
                                                  {"gated_slot", {}},
                                                  {"based", {}},
                                                  {"mlstm", {}},
                                                  {"kimi_delta", {}},
                                                  {"rwkv7", {}}};
  for (const auto& [name, options] : rows) {
    CAPTURE(name);
    const auto layer = layer_of(name, true, false, options);
    const Tensor x = normal_numbers(23, {2, 150, width}, 4);
    Context context;
    const NoGrad no_grad;
    const Tensor whole = (*layer)({x}, context);
    AttentionCache cache;
    const Tensor prompt = layer->step({slice(x, 1, 0, 100)}, cache, context);
    CHECK(worst_difference(prompt, slice(whole, 1, 0, 100)) < 1e-12);
    const Shape size = cache.key.shape();
    check_steps(*layer, x, whole, 100, 1, cache);
    CHECK(cache.key.shape() == size);

    const Ints swapped{1, 0};
    const Tensor swap = Tensor::from(swapped, {2});
    AttentionCache other;
    layer->step({slice(x, 1, 0, 100)}, other, context);
    other.reorder(RowOrder(swapped), RowOrder(swapped));
    const Tensor next = layer->step({index_select(slice(x, 1, 100, 101), 0, swap)}, other, context);
    CHECK(worst_difference(index_select(next, 0, swap), slice(whole, 1, 100, 101)) < 1e-12);
  }
}

TEST_CASE("latent attention: decoding keeps the latent and the rotary key alone, and gives the whole pass") {
  const auto layer =
      layer_of("multi_head_latent", true, false, options_of({{"kv_rank", 3}, {"rotary_width", 2}}));
  const Tensor x = normal_numbers(23, {2, 40, width}, 4);
  Context context;
  const NoGrad no_grad;
  const Tensor whole = (*layer)({x}, context);
  AttentionCache cache;
  check_steps(*layer, x, whole, 0, 4, cache);
  CHECK(cache.key.shape() == Shape{2, 40, 3});
  CHECK(cache.value.shape() == Shape{2, 40, 2});
}

TEST_CASE("DeltaNet: in single precision it keeps its digits where all keys are alike") {
  const auto layer = layer_of("gated_deltanet", true, false, options_of({{"gated", false}}));
  for (const NamedTensor& entry : layer->parameters())
    if (entry.name == "strength.bias") *entry.tensor = parameter(*entry.tensor + 5);  // beta is nearly 1
  const Tensor x = normal_numbers(23, {1, 1, width}, 6) + normal_numbers(23, {1, 150, width}, 7) * 0.02;
  Context context;
  const Tensor exact = (*layer)({x}, context);
  layer->to(DType::f32, {});
  const Tensor single = (*layer)({cast(x, DType::f32)}, context);
  CHECK(worst_difference(cast(single, DType::f64), exact) < 1e-4 * max(abs(exact)).item());
}

TEST_CASE("recurrences: features that fade at once, beside others that stay, in either precision") {
  struct Row {
    std::string name, parameter = "decay_step";
    double added = 1e3;  // to every other element; e^(c_i - c_j) would be e^16000
  };
  const Row rows[] = {{"kimi_delta"},
                      {"gated_deltanet"},
                      {"delta_product"},
                      {"gated_deltanet2"},
                      {"comba"},
                      {"mamba2", "first_step"},
                      {"log_linear", "first_step"},
                      {"mamba3", "decay.weight"},
                      {"hgrn2", "forget.bias", -1e3},
                      {"rwkv6", "first_decay", 20},
                      {"gated_slot", "control.bias", -1e3},
                      {"mlstm", "first_forget", -1e3},
                      {"mesa_net", "decay.bias", -1e3}};
  for (const auto& [name, changed, added] : rows) {
    for (const bool causal : {true, false}) {
      CAPTURE_ALL(name, causal);
      const auto layer = layer_of(name, causal);
      for (const NamedTensor& entry : layer->parameters()) {
        if (entry.name != changed) continue;
        Doubles steps = entry.tensor->to_doubles();
        for (std::size_t i = 0; i < steps.size(); i += 2) steps[i] += added;
        *entry.tensor = parameter(Tensor::from(steps, entry.tensor->shape()));
      }
      const Tensor x = parameter(normal_numbers(23, {1, 80, width}, 6));
      Context context;
      const Tensor whole = (*layer)({x}, context);
      if (causal) {
        const NoGrad no_grad;
        AttentionCache cache;
        check_steps(*layer, x.detach(), whole.detach(), 0, 5, cache);
      }
      backward(sum(square(whole)));
      const Tensor exact = gradient(x);
      layer->to(DType::f32, {});
      const Tensor single = parameter(cast(x.detach(), DType::f32)), out = (*layer)({single}, context);
      backward(sum(square(out)));
      CHECK(worst_difference(cast(out.detach(), DType::f64), whole.detach()) < 1e-4);
      CHECK(worst_difference(cast(gradient(single), DType::f64), exact) < 1e-3 * max(abs(exact)).item());
    }
  }
}

TEST_CASE("chosen blocks: decoding gives the whole pass, and all blocks chosen are the dot product") {
  const std::pair<std::string, Options> rows[] = {
      {"moba", options_of({{"block", 4}, {"blocks", 3}})},
      {"moba", options_of({{"block", 7}, {"blocks", 1}})},
      {"moba", options_of({{"block", 64}})},
      {"native_sparse", options_of({{"block", 4}, {"blocks", 4}, {"window", 3}, {"kv_heads", 1}})},
      {"native_sparse", options_of({{"block", 8}, {"blocks", 1}, {"window", 30}})},
      {"native_sparse", {}}};
  for (const auto& [name, options] : rows) {
    CAPTURE(name);
    const auto layer = layer_of(name, true, false, options);
    const Tensor x = normal_numbers(23, {2, 150, width}, 4);
    Context context;
    const NoGrad no_grad;
    const Tensor whole = (*layer)({x}, context);
    for (const std::int64_t few : {1, 5, 30}) {
      AttentionCache cache;
      check_steps(*layer, x, whole, 0, few, cache);
    }
    CHECK((*layer)({slice(x, 0, 0, 0)}, context).shape() == Shape{0, 150, width});
  }
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    Context context;
    const AttentionInput input{normal_numbers(23, {2, 50, width}, 1), mask_for(50)};
    const Tensor exact = (*layer_of("dot_product", causal))(input, context);
    for (const std::int64_t blocks : {9, 10}) {  // of 9: at 8 all but one
      const auto layer = layer_of("moba", causal, false, options_of({{"block", 6}, {"blocks", blocks}}));
      CHECK(worst_difference((*layer)(input, context), exact) < 1e-12);
    }
    const auto fewer = layer_of("moba", causal, false, options_of({{"block", 6}, {"blocks", 8}}));
    CHECK(worst_difference((*fewer)(input, context), exact) > 1e-6);
  }
}

TEST_CASE("MoBA: however many queries choose one block, all are served") {
  const auto layer = layer_of("moba", false, false, options_of({{"block", 4}, {"blocks", 2}}));
  Tensor x = normal_numbers(23, {1, 1, width}, 5) + normal_numbers(23, {1, 90, width}, 6) * 0.01;
  x = concat({x, normal_numbers(23, {1, 4, width}, 7) * 9}, 1);  // one block draws them all, or repels them
  Context context, captured;
  Capture capture;
  captured.capture = &capture;
  const Tensor out = (*layer)({x}, context);
  static_cast<void>((*layer)({x}, captured));
  const Tensor weights = capture.find("weights");
  const auto &value = dynamic_cast<Linear&>(*layer->find("value")),
             &output = dynamic_cast<Linear&>(*layer->find("output"));
  const Tensor expected = output(merge_heads(matmul(weights, split_heads(value(x), heads))));
  CHECK(worst_difference(out, expected) < 1e-10);
}

TEST_CASE("Attention Free Transformer: with biases, decoding gives what the whole pass gives") {
  for (const std::string form : {"local", "full"}) {
    CAPTURE(form);
    const auto layer = layer_of("attention_free_transformer", true, false, options_of({{"form", form}}));
    const Tensor x = normal_numbers(23, {2, 40, width}, 4);
    Context context;
    const NoGrad no_grad;
    const Tensor whole = (*layer)({x}, context);
    AttentionCache cache;
    check_steps(*layer, x, whole, 0, 4, cache);
    CHECK(contains(error_of([&] {
                     (*layer)({normal_numbers(23, {1, 257, width}, 4)}, context);
                   }),
                   "longer than max_length = 256"));
  }
}

TEST_CASE("gates that close at once stay within range, in single precision") {
  struct Row {
    const char *name, *bias;
    bool causal;
  };
  for (const auto& [name, bias, causal] :
       {Row{"gated_linear_attention", "fade_out.bias", true}, Row{"forgetting", "forget.bias", false},
        Row{"forgetting", "forget.bias", true}}) {
    CAPTURE_ALL(name, causal);
    const auto layer = layer_of(name, causal);
    for (const NamedTensor& entry : layer->parameters())
      if (entry.name == bias) *entry.tensor = parameter(*entry.tensor - 1e4);
    layer->to(DType::f32, {});
    const Tensor x = parameter(cast(normal_numbers(23, {1, 50, width}, 6), DType::f32));
    Context context;
    const Tensor out = (*layer)({x}, context);
    backward(sum(square(out)));
    for (const Tensor& values : {out, gradient(x)})
      for (const double value : values.to_doubles()) REQUIRE(std::isfinite(value));
  }
}
