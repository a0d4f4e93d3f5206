#include "trained.h"

#include "../common/program.h"
#include "../common/runtime.h"
#include "heed/core/error.h"

namespace heed::programs {

Trained open_run(const RunFlags& flags) {
  Settings settings = run_settings(language_model_defaults(DataKind::files), flags);
  const Device device = apply_runtime(settings);
  Tokenizer tokenizer = run_tokenizer(flags);
  auto model = make_language_model(settings, tokenizer.vocabulary_size(), device);
  load_run_weights(*model, flags);
  return {std::move(settings), std::move(tokenizer), std::move(model)};
}

GenerationOptions generation_options(const Settings& settings, const Tokenizer& tokenizer) {
  const auto integer = [&](const char* name) {
    return settings.get<std::int64_t>(std::string("generation.") + name);
  };
  GenerationOptions options;
  options.sampling = {settings.get<double>("generation.temperature"), integer("top_k"),
                      settings.get<double>("generation.top_p")};
  options.tokens = integer("tokens");
  options.end = tokenizer.id_of(text_mark);
  options.context = settings.get<std::int64_t>("model.max_length");
  try {
    check_sampling(options.sampling);
    for (const char* name : {"tokens", "samples"})
      check(integer(name) >= 1 && integer(name) <= 1'000'000, name, " must be 1 to 1000000, is ",
            integer(name));
    check(integer("seed") >= 0, "the seed must not be negative, is ", integer("seed"));
  } catch (const Error& error) {
    throw UsageError(concat_text("generation: ", error.what()));
  }
  options.seed = static_cast<std::uint64_t>(integer("seed"));
  return options;
}

}  // namespace heed::programs
