// What a model would cost, known before it holds any memory.

#include <sys/resource.h>

#include "heed/apps/tasks/recipe.h"
#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/module.h"
#include "heed/tests/child_process.h"
#include "heed/tests/model_support.h"

namespace {

std::unique_ptr<Module> make_model(int kind, const TransformerConfig& config) {
  if (kind == 0) return std::make_unique<EncoderClassifier>(config);
  if (kind == 1) return std::make_unique<EncoderDecoder>(config);
  if (kind == 2) return std::make_unique<LanguageModel>(config);
  return std::make_unique<MaskedLanguageModel>(config);
}

std::vector<std::string> lines_of_tensors(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> lines;
  for (const NamedTensor& entry : tensors)
    lines.push_back(concat_text(entry.name, ' ', entry.tensor->shape(), ' ', entry.tensor->dtype()));
  return lines;
}

}  // namespace

TEST_CASE("model cost: the largest parameter is named, and sparse features cost little") {
  TransformerConfig config = tiny_config();
  config.source_vocabulary = 1 << 30;
  // 1024: the tokens of a batch, here and below.
  CHECK_THROWS_WITH_AS(check_model([&] { return model_of<EncoderClassifier>(config, 1024); }),
                       doctest::Contains("embedding.weight [1073741824, 8], 137 GB)"), SettingsError);
  config.source_vocabulary = 100;
  config.sparse_features = 1 << 28;
  config.classes = 10'000;  // the table has at most 2^25 elements
  CHECK_NOTHROW(check_model([&] { return model_of<EncoderClassifier>(config, 1024); }));
}

TEST_CASE("child: model cost under a limit of this process" * doctest::skip()) {
  TransformerConfig config = tiny_config();
  config.source_vocabulary = 1 << 25;  // 4.3 GB
  CHECK_THROWS_WITH_AS(check_model([&] { return model_of<EncoderClassifier>(config, 1024); }),
                       doctest::Contains("but this process may use 2.15 GB"), SettingsError);
  CHECK_NOTHROW(check_model([&] { return model_of<EncoderClassifier>(config, 0); }));  // 1.1 GB to use it
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which reserve terabytes at their start
TEST_CASE("model cost: a limit on this process counts, too") {
  const ChildResult result =
      run_in_child("child: model cost under a limit of this process", {.address_space = rlim_t{2} << 30});
  CHECK_MESSAGE(result.status == 0, result.text());
  CHECK(contains(result.output, "1 passed"));
}
#endif

TEST_CASE("model cost: shapes alone are those of the real model, for every variant and kind of model") {
  int built = 0;
  for (const AttentionVariant& variant : attention_variants()) {
    for (int kind = 0; kind < 4; ++kind) {
      CAPTURE_ALL(variant.name, kind);
      TransformerConfig config = tiny_config();
      config.encoder_layers = config.decoder_layers = 2;
      config.positions = kind % 2 ? "learned" : "sinusoidal";
      config.norm = kind % 2 ? "pre" : "post";
      config.pooling = "attention";
      config.attention_bias = true;
      config.encoder_attention[0].name = variant.name;
      if (variant.capabilities.causal) config.decoder_attention[0].name = variant.name;
      if (variant.capabilities.cross && variant.capabilities.cross_by_step)
        config.cross_attention[0].name = variant.name;
      const auto real = make_model(kind, config);
      std::unique_ptr<Module> shapes;
      {
        const ShapesOnly scope;
        shapes = make_model(kind, config);
      }
      CHECK(lines_of_tensors(shapes->parameters()) == lines_of_tensors(real->parameters()));
      CHECK(lines_of_tensors(shapes->buffers()) == lines_of_tensors(real->buffers()));
      CHECK(shapes->parameter_count() == real->parameter_count());
      for (const NamedTensor& entry : shapes->state()) CHECK(entry.tensor->storage()->bytes() <= 64);
      ++built;
    }
  }
  CHECK(built == 4 * static_cast<int>(attention_variants().size()));
}

TEST_CASE("model cost: the widest and deepest model is costed at once and in next to no memory") {
  TransformerConfig config;
  config.width = 65536;
  config.heads = 1024;
  config.feed_forward = 1 << 20;
  config.decoder_layers = 1024;
  config.target_vocabulary = 2147483647;
  config.max_length = 1 << 24;
  config.tie_embeddings = "decoder";
  const std::int64_t before = peak_memory() >> 20;
  const auto start = std::chrono::steady_clock::now();
  std::int64_t parameters = 0;
  {
    const ShapesOnly scope;
    LanguageModel model(config);
    parameters = model.parameter_count();
  }
  const auto took = std::chrono::steady_clock::now() - start;
  const std::int64_t d = config.width, f = config.feed_forward, layer = 4 * d * d + 2 * d * f + f + d + 4 * d;
  CHECK(parameters == config.target_vocabulary * d + 1024 * layer);
  CHECK(took < std::chrono::seconds(1));
  CHECK((peak_memory() >> 20) - before < 100);
}

TEST_CASE("model cost: any variant at the ends of its ranges is costed or refused, never built") {
  const std::int64_t before = peak_memory() >> 20;
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(variant.name);
    release_freed_memory();
    TransformerConfig config;
    config.width = 65536;
    config.heads = 64;
    config.encoder_layers = 64;
    config.source_vocabulary = 1 << 20;
    config.classes = 2;
    config.max_length = 1 << 24;
    config.encoder_attention[0].name = variant.name;
    const auto start = std::chrono::steady_clock::now();
    const std::string message = error_of([&] {
      const ShapesOnly scope;
      EncoderClassifier model(config);
      CHECK(model.parameter_count() > 64 * config.width * config.feed_forward);
    });
    // Only a matrix for each pair of positions can be more than numbers reach, and that is said.
    if (!message.empty()) CHECK(contains(message, " is not a size"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  }
  CHECK((peak_memory() >> 20) - before < 100);
}

TEST_CASE("model cost: what makes no sense is refused as ever, and the scope ends where it ends") {
  TransformerConfig config = tiny_config();
  const auto refused = [&](auto&& change) {
    TransformerConfig wrong = config;
    change(wrong);
    const ShapesOnly scope;
    return error_of([&] { EncoderClassifier model(wrong); });
  };
  CHECK(contains(refused([](auto& c) { c.heads = 3; }), "width 8 and 3 heads"));
  CHECK(contains(refused([](auto& c) { c.encoder_attention[0].options.set("windw", std::int64_t{3}); }),
                 "windw"));
  CHECK(contains(refused([](auto& c) { c.width = 1 << 20; }), "'width' must be 1 to 65536, is 1048576"));

  CHECK_FALSE(ShapesOnly::active());
  {
    const ShapesOnly scope;
    { const ShapesOnly inner; }
    CHECK(ShapesOnly::active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = ShapesOnly::active(); }).join();
    CHECK_FALSE(elsewhere);
  }
  CHECK_FALSE(ShapesOnly::active());
  EncoderClassifier real(config);
  CHECK(real.parameters().front().tensor->is_contiguous());
}
