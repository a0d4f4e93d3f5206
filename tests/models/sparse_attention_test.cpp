
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/tests/model_support.h"

namespace heed {
Tensor prefix_pooling(const Tensor& logits, const Tensor& values,
                      const Tensor& allowed = {});  // of fastformer.cpp
}

namespace {

struct Pattern {
  const char* variant;
  Options options;
};

/// Small windows and blocks, so that short sequences show every part of a pattern.
std::vector<Pattern> pattern_settings() {
  std::vector<Pattern> list = {
      {"bigbird", options_of({{"block", 3}, {"random_blocks", 2}})},
      {"bigbird", options_of({{"block", 4}, {"random_blocks", 0}, {"global_blocks", 0}})},
      {"longformer", options_of({{"window", 4}, {"global_tokens", 2}})},
      {"longformer", options_of({{"window", 6}, {"dilation", 3}, {"global_tokens", 0}})},
      {"longformer", options_of({{"window", 256}, {"global_tokens", 1}})}};  // holds whole blocks
  for (const char* pattern : {"strided", "fixed"})
    for (const char* mode : {"heads", "interleaved", "merged"})
      list.push_back({"sparse_transformer",
                      options_of({{"pattern", pattern}, {"mode", mode}, {"stride", 5}, {"summary", 2}})});
  return list;
}

std::unique_ptr<Attention> make(const Pattern& setting, bool causal, std::int64_t layer = 0,
                                std::int64_t max_length = 200) {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.causal = causal;
  config.layer = layer;
  config.max_length = max_length;
  config.bias = true;
  config.options = setting.options;
  std::unique_ptr<Attention> attention = make_attention(setting.variant, config);
  attention->to(DType::f64, {});
  return attention;
}

Tensor parameter_of(Attention& attention, const std::string& name) {
  for (const NamedTensor& entry : attention.parameters())
    if (entry.name == name) return entry.tensor->detach();
  return {};
}

/// The definition: dense attention under the mask of visible keys; rows of global tokens use their own
/// projections.
Tensor dense_form(Attention& attention, const Tensor& x, const Tensor& mask, std::int64_t global_rows) {
  const auto project = [&](const std::string& name) {
    return split_heads(
        linear(x, parameter_of(attention, name + ".weight"), parameter_of(attention, name + ".bias")), 2);
  };
  AttentionOptions options;
  options.key_mask = mask;
  options.mask = unsqueeze(dynamic_cast<PatternAttention&>(attention).visible(x.size(1)), 0);
  const auto attend = [&](const std::string& prefix) {
    return matmul(attention_weights(project(prefix + "query"), project(prefix + "key"), options),
                  project(prefix + "value"));
  };
  Tensor out = attend("");
  const std::int64_t length = x.size(1), rows = std::min(global_rows, length);
  if (rows > 0) out = concat({slice(attend("global_"), 2, 0, rows), slice(out, 2, rows, length)}, 2);
  const Tensor result = linear(merge_heads(out), parameter_of(attention, "output.weight"),
                               parameter_of(attention, "output.bias"));
  return where(unsqueeze(mask, 2), result, Tensor::zeros({1}, DType::f64));
}

/// Two samples: one that ends early, one that is all padding but for sequences of one token.
Tensor ragged_mask(std::int64_t length) {
  Ints mask(static_cast<std::size_t>(2 * length), 0);
  std::fill_n(mask.begin(), std::max<std::int64_t>(1, length - 3), 1);
  return Tensor::from(mask, {2, length});
}

}  // namespace

TEST_CASE("block patterns hold exactly the entries of their definition") {
  for (const std::int64_t queries : {1, 7, 16, 21}) {
    for (const std::int64_t keys : {1, 9, 16}) {
      PatternDefinition definition{queries, keys, 2, 4, {}, {}};
      definition.entry = [](std::int64_t h, std::int64_t i, std::int64_t j) {
        return h == 0 ? std::abs(i - j) <= 5 : (i + j) % 9 == 4;
      };
      definition.content = [](std::int64_t, std::int64_t, std::int64_t) { return BlockContent::some; };
      const auto pattern = make_block_pattern(definition);
      const Ints dense = pattern->dense().to_vector<std::int32_t>();
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < queries; ++i)
          for (std::int64_t j = 0; j < keys; ++j)
            CHECK((dense[static_cast<std::size_t>((h * queries + i) * keys + j)] != 0) ==
                  definition.entry(h, i, j));
    }
  }
}

TEST_CASE("block patterns keep one mask for equal blocks, and none for full ones") {
  PatternDefinition definition{4096, 4096, 1, 64, {}, {}};
  definition.entry = [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i && i - j <= 128; };
  definition.content = [](std::int64_t, std::int64_t row, std::int64_t column) {
    return column <= row && row - column <= 2 ? BlockContent::some : BlockContent::none;
  };
  const auto pattern = make_block_pattern(definition);
  CHECK(pattern->columns.count() == 64 * 3 - 3);
  CHECK(pattern->masks.size(0) == 2);  // the diagonal and the far end of the window
}

TEST_CASE("sparse attention equals dense attention under its definition, at any length") {
  for (const Pattern& setting : pattern_settings()) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t layer : {0, 1}) {
        for (const std::int64_t length : {1, 2, 11, 70, 131}) {
          CAPTURE(setting.variant);
          CAPTURE(setting.options.values().size());
          CAPTURE(causal);
          CAPTURE(length);
          const auto attention = make(setting, causal, layer);
          const Tensor x = normal_numbers(21, {2, length, 8}, 1), mask = ragged_mask(length);
          const bool has_global = std::string(setting.variant) == "longformer";
          const auto global = has_global ? attention->config().options.take_integer("global_tokens", 1) : 0;
          Context context;
          CHECK(worst_difference((*attention)({x, mask}, context), dense_form(*attention, x, mask, global)) <
                1e-12);
        }
      }
    }
  }
}

TEST_CASE("sparse attention decodes step by step what the whole sequence gives") {
  for (const Pattern& setting : pattern_settings()) {
    CAPTURE(setting.variant);
    const auto attention = make(setting, true, 1, 17);
    const Tensor x = normal_numbers(21, {1, 17, 8}, 2);
    Context context;
    const Tensor whole = (*attention)({x}, context);
    AttentionCache cache;
    for (std::int64_t t = 0; t < 17; ++t) {
      const Tensor one = attention->step({slice(x, 1, t, t + 1)}, cache, context);
      CHECK(worst_difference(one, contiguous(slice(whole, 1, t, t + 1))) < 1e-12);
    }
  }
}

TEST_CASE("longformer: global tokens by sample") {
  const Pattern setting{"longformer", options_of({{"window", 2}, {"global_tokens", 2}})};
  for (const bool causal : {false, true}) {
    const auto attention = make(setting, causal);
    const Tensor x = normal_numbers(21, {2, 9, 8}, 4);
    Context context;
    AttentionInput input{x, {}, {}, {}};
    const Tensor by_option = (*attention)(input, context);
    Ints first(18, 0);
    for (const std::size_t i : {0, 1, 9, 10}) first[i] = 1;
    input.global = Tensor::from(first, {2, 9});
    CHECK(worst_difference((*attention)(input, context), by_option) < 1e-14);
    // The second sample does not look at what is global in the first.
    first = Ints(18, 0);
    first[4] = 1;
    input.global = Tensor::from(first, {2, 9});
    const Tensor out = (*attention)(input, context);
    input.x = concat({x, x}, 0);
    input.x = concat({slice(x, 0, 1, 2), slice(x, 0, 1, 2)}, 0);
    const Tensor both = (*attention)(input, context);
    CHECK(worst_difference(contiguous(slice(both, 0, 1, 2)), contiguous(slice(out, 0, 1, 2))) < 1e-14);
    CHECK(worst_difference(contiguous(slice(both, 0, 0, 1)), contiguous(slice(both, 0, 1, 2))) > 1e-3);
  }
  AttentionInput input{normal_numbers(21, {1, 3, 8}, 5), {}, {}, {}};
  input.global = Tensor::ones({1, 3}, DType::i32);
  Context context;
  const auto dot_product = make({"dot_product", {}}, false);
  CHECK_ERROR((*dot_product)(input, context), "no global tokens");
}

TEST_CASE("bigbird: random blocks are distinct, outside the window, not global, and follow the seed") {
  for (const bool causal : {false, true}) {
    const auto blocks = [&](std::uint64_t seed) {
      AttentionConfig config;
      config.width = 8;
      config.heads = 4;
      config.causal = causal;
      config.max_length = 39;
      config.seed = seed;
      config.options.set("block", std::int64_t{2});
      const auto attention = make_attention("bigbird", config);
      const std::vector<NamedTensor> buffers = attention->buffers();
      REQUIRE(buffers.size() == 1);
      CHECK(buffers[0].tensor->shape() == Shape{4, 20, 3});
      return buffers[0].tensor->to_vector<std::int32_t>();
    };
    const Ints drawn = blocks(1);
    CHECK(drawn == blocks(1));
    CHECK(drawn != blocks(2));
    for (std::int32_t row = 0; row < 80; ++row) {
      const std::int32_t bi = row % 20;
      std::set<std::int32_t> seen;
      for (std::int32_t e = 0; e < 3; ++e) {
        const std::int32_t bj = drawn[static_cast<std::size_t>(3 * row + e)];
        if (bj < 0) continue;
        CHECK((bj >= 1 && bj < (causal ? bi : 19) && std::abs(bi - bj) > 1));
        CHECK(seen.insert(bj).second);
      }
      const bool global = bi == 0 || bi == 19;
      const std::size_t expected = global ? 0 : causal ? std::clamp(bi - 2, 0, 3) : 3;
      CHECK(seen.size() == expected);
    }
  }
}

TEST_CASE("prefix pooling is the softmax pooling of every prefix, for any logits and across chunks") {
  for (const std::int64_t length : {1, 64, 65, 150}) {
    const Tensor logits = normal_numbers(21, {2, length}, 7) * 300,
                 values = normal_numbers(21, {2, length, 3}, 8);
    for (const bool masked : {false, true}) {
      Ints allowed(static_cast<std::size_t>(2 * length), 1);
      if (masked)
        for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] = i % 3 == 2 && i < 140;
      const Tensor mask = Tensor::from(allowed, {2, length});
      const Tensor square = expand(unsqueeze(logits, 1), {2, length, length});
      const Tensor positions = Tensor::arange(length);
      const Tensor prefix = less_equal(unsqueeze(positions, 0), unsqueeze(positions, 1)) * unsqueeze(mask, 1);
      const Tensor expected = matmul(masked_softmax(square, prefix), values);
      CHECK(worst_difference(prefix_pooling(logits, values, masked ? mask : Tensor()), expected) < 1e-12);
    }
  }
}

TEST_CASE("prefix pooling: gradients") {
  const Tensor mask = Tensor::from(Ints(70, 1), {1, 70});
  const GradcheckResult result =
      gradcheck([&](std::span<const Tensor> given) { return prefix_pooling(given[0], given[1], mask); },
                {normal_numbers(21, {1, 70}, 9), normal_numbers(21, {1, 70, 2}, 10)});
  CHECK(result.passed);
}

TEST_CASE("DeepSeek sparse attention: the indexer alone learns from its loss, and then finds what matters") {
  const auto layer = make({"deepseek_sparse", options_of({{"tokens", 3}})}, true);
  const Tensor x = parameter(normal_numbers(23, {2, 20, 8}, 1) * 3);
  const auto loss_of = [&] {
    Context context;
    (*layer)({x}, context);
    REQUIRE(context.losses.size() == 1);
    return context.losses[0].value;
  };
  const double first = loss_of().item();
  for (int step = 0; step < 100; ++step) {
    for (const NamedTensor& entry : layer->parameters()) zero_gradient(*entry.tensor);
    backward(loss_of());
    CHECK_FALSE(gradient(x).defined());
    for (const NamedTensor& entry : layer->parameters()) {
      const Tensor found = gradient(*entry.tensor);
      CHECK(found.defined() == entry.name.starts_with("indexer."));
      if (found.defined()) *entry.tensor = parameter(entry.tensor->detach() - found * 0.3);
    }
  }
  CHECK(loss_of().item() < 0.7 * first);
  const NoGrad no_grad;
  Context context;
  (*layer)({x}, context);
  CHECK(context.losses.empty());
}
