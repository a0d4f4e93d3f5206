
#include "heed/models/attention/attention.h"
#include "heed/models/cases/attention_capabilities.h"
#include "heed/tests/made_part.h"
#include "heed/tests/model_support.h"

namespace {

AttentionConfig small(const AttentionVariant& variant) {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.max_length = variant.capabilities.any_length ? 0 : 9;
  config.seed = 3;
  return config;
}

/// Two samples of five positions, the second of which has three real ones; a memory of four, with two.
AttentionInput sample_input(const AttentionConfig& config) {
  AttentionInput input;
  input.x = normal_numbers(11, {2, 5, 8}, 1);
  input.mask = Tensor::from(Ints{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 5});
  if (config.cross) {
    input.memory = normal_numbers(11, {2, 4, 8}, 2);
    input.memory_mask = Tensor::from(Ints{1, 1, 1, 1, 1, 1, 0, 0}, {2, 4});
  }
  return input;
}

/// Its step() is the base version, which keeps the inputs and recomputes.
class Recomputing : public Attention {
 public:
  explicit Recomputing(const AttentionConfig& config)
      : Attention(config), inner_(make_attention("dot_product", config)) {
    add_module("inner", *inner_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override { return (*inner_)(input, context); }

 private:
  std::unique_ptr<Attention> inner_;
};

}  // namespace

TEST_CASE("attention: the list of names has no name twice, and unknown names are explained") {
  std::set<std::string_view> names;
  for (const AttentionVariant& variant : attention_variants()) CHECK(names.insert(variant.name).second);
  CHECK(names.contains("dot_product"));
  CHECK(contains(error_of([] { make_attention("dot_prodcut", {}); }), "did you mean 'dot_product'"));
}

TEST_CASE("attention: every variant refuses what it cannot do, and what makes no sense") {
  for (const AttentionVariant& variant : attention_variants()) {
    const auto message = [&](auto&& change) {
      AttentionConfig config = small(variant);
      change(config);
      return error_of([&] { make_attention(variant.name, config); });
    };
    CAPTURE(variant.name);
    CHECK(contains(message([](auto& c) { c.heads = 3; }), "width 8 and 3 heads"));
    CHECK(contains(message([](auto& c) { c.dropout = 1; }), "dropout"));
    CHECK(contains(message([](auto& c) { c.causal = c.cross = true; }), "cannot"));
    CHECK(contains(message([](auto& c) { c.options.set("no_such_setting", true); }), "'no_such_setting'"));
    CHECK(message([](auto& c) { c.causal = true; }).empty() == variant.capabilities.causal);
    CHECK(message([](auto& c) { c.cross = true; }).empty() == variant.capabilities.cross);
    if (!variant.capabilities.any_length)
      CHECK(contains(message([](auto& c) { c.max_length = 0; }), "max_length"));
  }
}

TEST_CASE("attention: every variant keeps its word") {
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(variant.name);
    CHECK_NOTHROW(check_attention(variant.name));
  }
}

TEST_CASE("attention: cross-attention that cannot go by step says so") {
  for (const AttentionVariant& variant : attention_variants()) {
    if (!variant.capabilities.cross || variant.capabilities.cross_by_step) continue;
    CAPTURE(variant.name);
    AttentionConfig config = small(variant);
    config.cross = true;
    const auto layer = make_attention(variant.name, config);
    AttentionCache cache;
    Context context;
    CHECK(contains(error_of([&] {
                     layer->step({normal_numbers(11, {2, 5, 8}, 1, DType::f32),
                                  {},
                                  normal_numbers(11, {2, 4, 8}, 2, DType::f32),
                                  {}},
                                 cache, context);
                   }),
                   "cannot decode"));
  }
}

TEST_CASE("attention: an output of another shape than the input's is an error, and not broadcast") {
  class Shortened : public Attention {
   public:
    explicit Shortened(const AttentionConfig& config) : Attention(config) {}
    Tensor forward(const AttentionInput& input, Context&) override { return slice(input.x, 1, 0, 1); }
  };
  AttentionConfig config;
  config.width = 8;
  Shortened layer(config);
  Context context;
  CHECK(contains(error_of([&] {
                   layer({Tensor::ones({2, 5, 8})}, context);
                 }),
                 "gave an output of shape [2, 1, 8] for inputs of shape [2, 5, 8]"));
}

TEST_CASE("attention: the base step recomputes from the history, which beam search can reorder") {
  AttentionConfig config = small(attention_variant("dot_product"));
  config.causal = true;
  Recomputing layer(config);
  layer.to(DType::f64, {});
  Context context;
  const AttentionInput input = sample_input(config);
  const Tensor whole = layer({input.x}, context);
  AttentionCache cache;
  layer.step({contiguous(slice(input.x, 1, 0, 1))}, cache, context);
  const Ints swapped{1, 0};
  cache.reorder(RowOrder(swapped), RowOrder(swapped));
  const Tensor swap = Tensor::from(swapped, {2});
  const Tensor second = index_select(slice(input.x, 1, 1, 2), 0, swap);
  const Tensor out = layer.step({second}, cache, context);
  CHECK(worst_difference(index_select(out, 0, swap), contiguous(slice(whole, 1, 1, 2))) < 1e-12);

  // Masks of single steps add up; a first position that is padding is seen by nobody.
  AttentionCache masked;
  const Tensor hidden = Tensor::from(Ints{0, 1}, {2, 1}), shown = Tensor::ones({2, 1}, DType::i32);
  layer.step({slice(input.x, 1, 0, 1), hidden, {}, {}}, masked, context);
  const Tensor next = layer.step({slice(input.x, 1, 1, 2), shown, {}, {}}, masked, context);
  const Tensor alone = layer({contiguous(slice(slice(input.x, 0, 0, 1), 1, 1, 2))}, context);
  CHECK(worst_difference(contiguous(slice(next, 0, 0, 1)), alone) < 1e-12);
}

// --- Every variant is held to what it declares, by trying it, and so is the table in the documentation.

namespace {

const std::vector<TriedCapabilities>& tried() {
  static const std::vector<TriedCapabilities> rows = try_all_capabilities();
  return rows;
}

}  // namespace

TEST_CASE("capabilities: every variant does what it declares, and nothing beyond") {
  for (std::size_t i = 0; i < tried().size(); ++i) {
    const Capabilities &declared = attention_variants()[i].capabilities, &seen = tried()[i].can;
    CAPTURE(tried()[i].name);
    CHECK(seen.causal == declared.causal);
    if (declared.causal) CHECK(seen.strictly_causal == declared.strictly_causal);
    CHECK(seen.cross == declared.cross);
    if (declared.cross) CHECK(seen.cross_by_step == declared.cross_by_step);
    CHECK(seen.padding == declared.padding);
    CHECK(seen.any_length == declared.any_length);
    CHECK(seen.rotary == declared.rotary);
    CHECK(seen.alibi == declared.alibi);
    CHECK(seen.relative == declared.relative);
    CHECK(seen.deterministic == declared.deterministic);
    // Whoever asks for more is told why not.
    if (!declared.causal || !declared.cross || !declared.cross_by_step) CHECK(!declared.reason.empty());
  }
}

TEST_CASE("capabilities: a variant that does not do what it declares is found") {
  // Dot-product attention under a false name: it has all forms, whatever it declares.
  AttentionVariant liar = attention_variant("dot_product");
  liar.capabilities = {};
  const Capabilities seen = tried_capabilities(liar);
  CHECK(seen.causal);
  CHECK(seen.strictly_causal);
  CHECK(seen.cross);
  CHECK(seen.any_length);
  liar.name = "linformer";  // and one that declares to be causal is refused
  liar.capabilities.causal = true;
  CHECK_FALSE(tried_capabilities(liar).causal);
}

TEST_CASE("capabilities: the table in docs/reference/attention.md is the one that the variants make") {
  check_made_part("docs/reference/attention.md", "capabilities", capability_table(tried(), true));
}

TEST_CASE("patterns: the table in docs/reference/attention.md is the one that the variants make") {
  check_made_part("docs/reference/attention.md", "patterns", pattern_table(tried()));
}
