// Settings of attention from the edge of their ranges and far beyond: either a layer that runs, or an Error.

#include <sys/resource.h>

#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/tests/model_support.h"

namespace {

using Value = Options::Value;
using Asked = Options::Asked;

AttentionConfig config_for(bool causal, bool cross) {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.max_length = 9;
  config.causal = causal;
  config.cross = cross;
  return config;
}

/// Whole numbers as integers, others as they are, as a file would have them.
Value as_value(double number, bool list) {
  if (list) return Doubles{number};
  if (number == std::floor(number) && std::abs(number) < 0x1p62) return static_cast<std::int64_t>(number);
  return number;
}

std::vector<Value> values_for(const Asked& asked) {
  const bool list = std::holds_alternative<Doubles>(asked.fallback);
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = infinity;
  std::vector<Value> values{std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 62};
  for (const double number : {0.0, -1.0, 1.0, 0x1p31, 0x1p32, 1e300, nan, inf, asked.low, asked.high})
    values.push_back(as_value(number, list));
  return values;
}

bool is_numeric(const Asked& asked) {
  return std::holds_alternative<std::int64_t>(asked.fallback) ||
         std::holds_alternative<double>(asked.fallback) || std::holds_alternative<Doubles>(asked.fallback);
}

// Sanitizers hold shadows of memory and keep what was freed.
constexpr std::int64_t most_memory = test::sanitized ? 4000 : 600;

/// Builds and runs a layer; false when it says that it cannot.
bool builds_and_runs(std::string_view variant, const AttentionConfig& config) {
  const Tensor x = parameter(uniform({1, 5, 8}, -1, 1, {1, 0, 1})),
               memory = uniform({1, 7, 8}, -1, 1, {1, 0, 2});
  try {
    const auto layer = make_attention(variant, config);
    for (const bool training : {false, true}) {
      Context context = training ? Context::train(1, 1) : Context::inference();
      const Tensor out = (*layer)({x, {}, config.cross ? memory : Tensor(), {}}, context);
      CHECK(out.shape() == x.shape());
      if (training) backward(sum(out));
    }
  } catch (const Error& error) {
    CHECK(std::string(error.what()) != "");
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("attention ranges: every number that a variant takes has a range, and defaults lie in it") {
  int numbers = 0;
  for (const AttentionVariant& variant : attention_variants()) {
    for (const Asked& asked : attention_settings(variant.name)) {
      CAPTURE_ALL(variant.name, asked.name);
      CHECK(asked.type() != "");
      CHECK(asked.fallback_text() != "");
      if (!is_numeric(asked)) continue;
      ++numbers;
      CHECK(std::isfinite(asked.low));
      CHECK(std::isfinite(asked.high));
      CHECK(asked.low <= asked.high);
      CHECK(asked.range() != "");
    }
  }
  CHECK(numbers > 30);
}

TEST_CASE("attention ranges: any number builds and runs in little memory and time, or is an Error") {
  const std::int64_t before = peak_memory() >> 20;
  int ran = 0, refused = 0;
  for (const AttentionVariant& variant : attention_variants()) {
    const Capabilities& can = variant.capabilities;
    for (const Asked& asked : attention_settings(variant.name)) {
      if (!is_numeric(asked)) continue;
      for (const Value& value : values_for(asked)) {
        for (const int use : {0, 1, 2}) {
          if ((use == 1 && !can.causal) || (use == 2 && !can.cross)) continue;
          AttentionConfig config = config_for(use == 1, use == 2);
          for (const auto& [other, beside] : asked.beside) config.options.set(other, beside);
          config.options.set(asked.name, value);
          CAPTURE_ALL(variant.name, asked.name, use);
          std::visit([](const auto& held) { CAPTURE(held); }, value);
          const auto start = std::chrono::steady_clock::now();
          ++(builds_and_runs(variant.name, config) ? ran : refused);
          CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
        }
      }
    }
  }
  CHECK(ran > 200);
  CHECK(refused > 400);
  CHECK((peak_memory() >> 20) - before < most_memory);
}

TEST_CASE(
    "attention ranges: what makes no sense is refused with the setting, its value and what is allowed") {
  using Texts = std::vector<std::string>;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  struct Row {
    const char *variant, *setting;
    Value value;
    const char* says;
    bool causal = false, cross = false;
  };
  const Row rows[] = {
      {"bigbird", "block", std::int64_t{1} << 32, "'block' must be 1 to 4096, is 4294967296"},
      {"bigbird", "block", 0, "'block' must be 1 to 4096, is 0"},
      {"reformer", "chunk", most, "'chunk' must be 1 to 16777216, is 9223372036854775807"},
      {"reformer", "buckets", 3, "must be even, is 3"},
      {"sparse_transformer", "stride", most, "'stride' must be 1 to 16777216, is 9223372036854775807"},
      {"sparse_transformer", "mode", "merge", "did you mean 'merged'"},
      {"longformer", "window", 5, "even, got 5"},
      {"hard_coded_gaussian", "sigma", 0.0, "'sigma' must be 1e-06 to 1e+06, is 0"},
      {"hard_coded_gaussian", "sigma", std::nan(""), "'sigma' must be 1e-06 to 1e+06, is nan"},
      {"hard_coded_gaussian", "gamma", 1.2, "only cross-attention"},
      {"hard_coded_gaussian", "offsets", Doubles{0, 1e300}, "'offsets'"},
      {"hard_coded_gaussian", "offsets", Doubles{}, "at least one"},
      {"synthesizer_mixture", "components", Texts{"dens"}, "did you mean 'dense'"},
      {"synthesizer_mixture", "components", Texts{"dot", "dot"}, "'dot' twice"},
      {"synthesizer_mixture", "components", Texts{}, "at least one"},
      {"synthesizer_mixture", "tiling", "tile", "no setting 'tiling'"},
      {"synthesizer_factorized_dense", "tiling", "tiles", "'tile' or 'outer'"},
      {"synthesizer_factorized_dense", "b", 2, "a = 3, b = 2 for 9"},
      {"synthesizer_factorized_random", "k", 0, "'k' must be 1 to 65536, is 0"},
      {"linformer", "k", -1, "'k' must be 1 to 65536, is -1"},
      {"clusterformer", "clusters", 0, "'clusters' must be 1 to 65536, is 0"},
      {"clusterformer", "clusters", "many", "\"auto\""},
      {"clusterformer", "block", 4, "'block'"},
      {"clusterformer", "block", 0, "'block' must be 1 to 16777216, is 0", true},
      {"clusterformer", "window", "both", "'next' or 'prev', is 'both'"},
      {"routing_transformer", "window", -1, "'window'"},
      {"routing_transformer", "update", "sgd", "'ema' or 'paper', is 'sgd'"},
      {"nystromformer", "convolution", 4, "convolution is 4"},
      {"nystromformer", "convolution", 5, "cannot serve as cross-attention", false, true},
      {"native_sparse", "kv_heads", 3, "'kv_heads'"},
      {"attention_free_transformer", "rank", 3, "'rank'"},  // which the simple form has not
  };
  for (const Row& row : rows) {
    AttentionConfig config = config_for(row.causal, row.cross);
    config.options.set(row.setting, row.value);
    const std::string said = error_of([&] { make_attention(row.variant, config); });
    CHECK_MESSAGE(contains(said, concat_text("attention '", row.variant, "'")), said);
    CHECK_MESSAGE(contains(said, row.says), row.variant, ", ", row.setting, ": ", said);
  }
}

TEST_CASE("attention ranges: windows far wider than the text are those that just hold it") {
  // Windows that are cut to the text, and whole ones.
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const auto run = [&](double sigma, std::int64_t length) {
      AttentionConfig config = config_for(causal, false);
      config.options.set("sigma", sigma);
      const auto layer = make_attention("hard_coded_gaussian", config);
      layer->to(DType::f64, {});
      Context context;
      return (*layer)({uniform({2, length, 8}, -1, 1, {2, 0, 1}, DType::f64)}, context);
    };
    for (const std::int64_t length : {3, 64, 150}) {
      // Weights of sigma s are 1 / (s sqrt(2 pi)) everywhere, as far as s is large.
      const Tensor wide = run(3e5, length) * 3e5, wider = run(9e5, length) * 9e5;
      const Tensor difference = abs(wide - wider);
      CHECK(max(reshape(difference, {difference.count()}), 0).item() < 1e-6);
      CHECK(max(reshape(abs(wide), {wide.count()}), 0).item() > 1e-3);
    }
  }
}

TEST_CASE("attention ranges: a stride or a block beyond the text is one as long as the text") {
  const auto run = [](const char* variant, const char* name, std::int64_t value, bool causal) {
    AttentionConfig config = config_for(causal, false);
    config.options.set(name, value);
    const auto layer = make_attention(variant, config);
    Context context;
    return (*layer)({uniform({2, 7, 8}, -1, 1, {2, 0, 1})}, context).to_vector<float>();
  };
  for (const bool causal : {false, true}) {
    CHECK(run("sparse_transformer", "stride", 9, causal) ==
          run("sparse_transformer", "stride", std::int64_t{1} << 24, causal));
    CHECK(run("bigbird", "block", 9, causal) == run("bigbird", "block", 4096, causal));
  }
}

TEST_CASE("attention ranges: a setting that no part knows is refused, also where only shapes are made") {
  Options part;
  part.set("longformer.windw", std::int64_t{2});
  part.set("parts", std::vector<std::string>{"longformer", "dot_product"});
  AttentionConfig config = config_for(false, false);
  config.options = part;
  const ShapesOnly scope;
  CHECK(contains(error_of([&] { make_attention("mixed_heads", config); }), "did you mean 'window'"));
}

namespace {

/// The output and all gradients of a layer for inputs of this size.
std::vector<NamedTensor> results_at(double size, const AttentionVariant& variant, int use, DType dtype,
                                    std::vector<Tensor>& kept) {
  AttentionConfig config = config_for(use == 1, use == 2);
  config.width = 32;
  config.max_length = 17;
  const auto layer = make_attention(variant.name, config);
  layer->to(dtype, {});
  const auto drawn = [&](std::int64_t length, std::uint32_t stream) {
    return cast(uniform({2, length, 32}, -1, 1, {7, 0, stream}) * size, dtype);
  };
  const Tensor x = parameter(drawn(17, 1)), memory = parameter(drawn(11, 2));
  Context context;
  const Tensor out = (*layer)({x, {}, use == 2 ? memory : Tensor(), {}}, context);
  backward(out, cast(uniform(out.shape(), -1, 1, {7, 0, 3}), dtype));
  std::vector<std::string> names{"output", "x", "memory"};
  kept = {out.detach(), gradient(x), gradient(memory)};
  for (const NamedTensor& one : layer->parameters())
    if (one.tensor->tracked()) names.push_back(one.name), kept.push_back(gradient(*one.tensor));
  std::vector<NamedTensor> results;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i].defined()) results.push_back({names[i], &kept[i]});
  return results;
}

}  // namespace

TEST_CASE("attention ranges: outputs and gradients in f32 are those in f64, for inputs of any size") {
  for (const AttentionVariant& variant : attention_variants())
    for (const int use : {0, 1, 2}) {
      if ((use == 1 && !variant.capabilities.causal) || (use == 2 && !variant.capabilities.cross)) continue;
      for (const double size : {1e-38, 1e-20, 1e-10, 1.0, 100.0, 1e4, 1e18}) {
        std::vector<Tensor> kept, precise;
        const std::vector<NamedTensor> found = results_at(size, variant, use, DType::f32, kept),
                                       expected = results_at(size, variant, use, DType::f64, precise);
        REQUIRE(found.size() == expected.size());
        // At 1e18 gradients leave f32, and in these the products before a norm do.
        const bool leaves =
            contains(" retnet gated_linear_attention mamba2 log_linear mamba3 rwkv6 based mlstm ",
                     " " + std::string(variant.name) + " ");
        const bool is_largest = size == 1e18;
        for (std::size_t i = 0; i < (is_largest ? 1 : found.size()); ++i) {
          const double largest = max(abs(*expected[i].tensor)).item();
          if (is_largest && (leaves || !(largest < 3e38))) continue;
          CAPTURE_ALL(variant.name, use, size, found[i].name, largest);
          const double error = max(abs(cast(*found[i].tensor, DType::f64) - *expected[i].tensor)).item();
          CHECK(std::isfinite(error));
          // Gradients are sums of terms that cancel, in part.
          const bool of_weights = i > 0 && found[i].name != "x" && found[i].name != "memory";
          const double terms = size > 1 ? size * size * size : of_weights ? size * size : size;
          // Few digits of subnormal numbers; cosformer divides by them.
          const double digits = size > 1e-30 ? 2e-3 : variant.name == "cosformer" ? 1e38 : 0.05;
          if (i == 0 || size <= 100) CHECK(error <= digits * largest + (i == 0 ? 0 : 1e-6) * terms + 1e-40);
        }
      }
    }
}
