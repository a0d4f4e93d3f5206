// An attention mechanism that an application registers (examples/embed/alibi.cpp is linked with this program)
// is found by its name like heed's own, and mistakes in registering one are errors.

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN

#include "heed/apps/tasks/task.h"
#include "heed/models/attention/attention.h"
#include "heed/models/cases/attention_capabilities.h"
#include "heed/models/classifier.h"
#include "heed/tests/support.h"

namespace {

AttentionConfig small_config() {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.max_length = 16;
  return config;
}

/// One of heed's under another name.
AttentionVariant renamed(const std::string& name) {
  AttentionVariant variant = attention_variant("dot_product");
  variant.name = name;
  return variant;
}

Tensor output_of(Attention& layer, const Tensor& x) {
  Context context = Context::inference();
  return layer({x}, context);
}

}  // namespace

TEST_CASE("own attention: it stands in the list, behind heed's own") {
  const auto variants = attention_variants();
  REQUIRE(variants.size() > 1);
  CHECK(variants.front().name == "dot_product");
  CHECK(std::ranges::count(variants, "alibi", &AttentionVariant::name) == 1);
  CHECK(attention_variant("alibi").capabilities.causal);
  const std::vector<Options::Asked> settings = attention_settings("alibi");
  REQUIRE(settings.size() == 1);
  CHECK(settings[0].name == "slope");
}

TEST_CASE("own attention: it can do what it declares, and no more") {
  check_attention("alibi");
  CHECK_FALSE(tried_capabilities(attention_variant("alibi")).cross);
  AttentionConfig config = small_config();
  config.cross = true;
  CHECK_ERROR(make_attention("alibi", config), "distances are those within one sequence");
}

TEST_CASE("own attention: weights fall with the distance as the paper says") {
  AttentionConfig config = small_config();
  config.seed = 4;
  const auto layer = make_attention("alibi", config);
  layer->to(DType::f64, {});
  Context context = Context::inference();
  Capture capture;
  context.capture = &capture;
  // All words alike: the logits differ by m_h |i - j| alone, with m = 1/16 and 1/256 for two heads.
  (*layer)({Tensor::ones({1, 6, 8}, DType::f64)}, context);
  const Tensor weights = capture.find("weights");
  REQUIRE(weights.shape() == Shape{1, 2, 6, 6});
  for (int head = 0; head < 2; ++head) {
    const double m = head == 0 ? 1.0 / 16 : 1.0 / 256;
    for (int distance = 1; distance < 6; ++distance)
      CHECK(weights[0][head][0][distance].item() / weights[0][head][0][0].item() ==
            doctest::Approx(std::exp(-m * distance)));
  }
}

TEST_CASE("own attention: settings are read, ranges kept, and misspelt ones refused") {
  AttentionConfig config = small_config();
  const Tensor x = normal({1, 5, 8}, 0, 1, {1, 0, 0});
  const auto with_default = output_of(*make_attention("alibi", config), x).to_vector<float>();
  config.options.set("slope", 1.0);
  CHECK(output_of(*make_attention("alibi", config), x).to_vector<float>() != with_default);
  config.options.set("slope", 65.0);
  CHECK_ERROR(make_attention("alibi", config), "slope");
  AttentionConfig misspelt = small_config();
  misspelt.options.set("slop", 1.0);
  CHECK_ERROR(make_attention("alibi", misspelt), "slope");
}

TEST_CASE("own attention: models, settings and mixed heads take it") {
  TransformerConfig transformer;
  transformer.width = 8;
  transformer.heads = 2;
  transformer.feed_forward = 16;
  transformer.encoder_layers = 2;
  transformer.source_vocabulary = 20;
  transformer.classes = 3;
  transformer.encoder_attention.resize(2);
  transformer.encoder_attention[0].name = "alibi";
  EncoderClassifier model(transformer);
  CHECK(model.find("encoder.layers.0.attention") != nullptr);

  Settings settings = task_entry("classify").settings(false);
  settings.assign("model.encoder_attention=alibi");
  CHECK(settings.json("model.encoder_attention").find("alibi") != std::string::npos);

  AttentionConfig mixed = small_config();
  mixed.options.set("parts", std::vector<std::string>{"alibi", "dot_product"});
  CHECK(output_of(*make_attention("mixed_heads", mixed), Tensor::ones({1, 4, 8})).shape() == Shape{1, 4, 8});
}

TEST_CASE("own attention: names and makers that cannot be are refused") {
  const std::size_t before = attention_variants().size();
  const std::pair<const char*, const char*> wrong[] = {{"", "the name is empty"},
                                                       {"alibi", "'alibi': this name is taken"},
                                                       {"dot_product", "this name is taken"},
                                                       {"none", "no attention at all"},
                                                       {"Mine", "lower-case"},
                                                       {"a.b", "lower-case"},
                                                       {"a b", "lower-case"}};
  for (const auto& row : wrong) {
    const auto& [name, message] = row;
    CAPTURE(row.first);
    CHECK_ERROR(register_attention(renamed(name)), message);
  }
  AttentionVariant without_maker = renamed("without_maker");
  without_maker.make = nullptr;
  CHECK_ERROR(register_attention(without_maker), "no function that makes a layer");
  CHECK(attention_variants().size() == before);
  CHECK_ERROR(attention_variant("without_maker"), "register_attention");
}

TEST_CASE("own attention: a maker that makes nothing, or throws, is reported with the name") {
  register_attention(
      {"makes_nothing", {}, [](const AttentionConfig&) { return std::unique_ptr<Attention>(); }});
  CHECK_THROWS_WITH_AS(make_attention("makes_nothing", small_config()),
                       "attention 'makes_nothing': what makes it gave no layer", Error);
  register_attention(
      {"throws", {}, [](const AttentionConfig&) -> std::unique_ptr<Attention> { fail("not today"); }});
  CHECK_THROWS_WITH_AS(make_attention("throws", small_config()), "attention 'throws': not today", Error);
}

namespace {

/// Dot-product attention that breaks its word in one way.
class Liar : public Attention {
 public:
  Liar(const AttentionConfig& config, std::string lie)
      : Attention(config), inner_(make_attention("dot_product", honest(config, lie))), lie_(std::move(lie)) {
    add_module("inner", *inner_);
    add_buffer("passes", passes_, Tensor::zeros({1}));
  }
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    const Tensor out = Attention::step(input, cache, context);
    return lie_ == "decoding" ? out + 0.25 : out;
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    AttentionInput given = input;
    if (lie_ == "padding") given.mask = {};
    if (lie_ == "samples") given.x = input.x + mean(input.x, 0, true);
    const Tensor out = (*inner_)(given, context);
    if (lie_ == "random") return out * uniform({1}, 0.5, 1.5, context.random.next(), out.dtype());
    if (lie_ == "buffers" && context.training) passes_ = passes_ + 1.0;
    if (lie_ == "gradient") return out + input.x.detach();
    if (lie_ == "empty" && input.mask.defined()) return out * mean(cast(max(input.mask, 1), out.dtype()));
    if (lie_ == "nothing" && input.mask.defined())
      context.losses.push_back({"size", 1, sum(square(out)) / sum(cast(input.mask, out.dtype()))});
    return out;
  }

 private:
  static AttentionConfig honest(AttentionConfig config, const std::string& lie) {
    config.alibi = false;
    if (lie == "future") config.causal = false;
    return config;
  }

  std::unique_ptr<Attention> inner_;
  std::string lie_;
  Tensor passes_;
};

}  // namespace

TEST_CASE("own attention: one that breaks its word is told how, where, and by which values") {
  const std::pair<const char*, const char*> lies[] = {
      {"future", "attention 'liar_future', causal: it is declared causal, but outputs before position 2"},
      {"padding", "words that are padding change outputs: sample 1, position 0, element 0 is "},
      {"random",
       "it is declared deterministic, but inference draws numbers: sample 0, position 0, element 0"},
      {"samples", "samples of a batch mix: sample 0, position 0"},
      {"decoding", "liar_decoding', causal: decoding step at position 0 of 1 words: sample 0, position 0"},
      {"buffers", "a training pass changes the buffer 'passes' itself"},
      {"gradient", "the gradient of input 0, element "},
      {"empty",
       "a sample without a real word changes the outputs of others: sample 0, position 0, element 0"},
      {"nothing", "with a batch of padding alone, a loss in f32 has "}};
  for (const auto& [lie, message] : lies) {
    const std::string name = concat_text("liar_", lie);
    const std::string kind = lie;
    CAPTURE(kind);
    register_attention({name, {.causal = true}, [kind](const AttentionConfig& config) {
                          return std::make_unique<Liar>(config, kind);
                        }});
    CHECK_ERROR(check_attention(name), message);
  }
  register_attention({"liar_none", {.causal = true}, [](const AttentionConfig& config) {
                        return std::make_unique<Liar>(config, "none");
                      }});
  CHECK_NOTHROW(check_attention("liar_none"));
  AttentionVariant turned = attention_variant("liar_none");
  turned.name = "liar_alibi";
  turned.capabilities.alibi = true;
  register_attention(turned);
  CHECK_ERROR(check_attention("liar_alibi"), "declared alibi, but with alibi");
  CHECK_ERROR(check_attention("liar_non"), "did you mean 'liar_none'");
}

TEST_CASE("own attention: threads register while others look and build") {
  constexpr int writers = 3, each = 40;
  const AttentionVariant* const first = &attention_variant("dot_product");
  std::atomic<int> refused = 0, wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < writers; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) {
          const std::string name = "thread_" + std::to_string(t) + "_" + std::to_string(i);
          const auto* const added = &register_attention(renamed(name));
          if (added->name != name || &attention_variant(name) != added) ++wrong;
          try {
            register_attention(renamed("contested_" + std::to_string(i)));
          } catch (const Error&) {
            ++refused;
          }
        }
      });
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          for (const AttentionVariant& variant : attention_variants())
            if (variant.name.empty() || !variant.make) ++wrong;
          if (!make_attention("dot_product", small_config())) ++wrong;
        }
      });
  }
  CHECK(wrong == 0);
  CHECK(refused == (writers - 1) * each);  // one of each contested name won
  CHECK(first == &attention_variant("dot_product"));
  CHECK(attention_variant("thread_2_39").capabilities.causal);
}
