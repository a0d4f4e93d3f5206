#include "settings.h"

#include "../common/attention_flags.h"
#include "../common/model_settings.h"
#include "../common/program.h"
#include "../common/runtime.h"
#include "../common/tokenizer_settings.h"
#include "../common/training_run.h"
#include "heed/core/error.h"
#include "heed/data/number_words.h"

namespace heed::programs {
namespace {

Json translation_model() {
  TransformerConfig config;
  config.tie_embeddings = "all";
  return model_defaults(config, Stacks::encoder_decoder);
}

Json data_defaults() {
  return {{"source", ""},        {"target", ""},      {"valid_source", ""}, {"valid_target", ""},
          {"encoding", "utf-8"}, {"max_tokens", 256}, {"numbers", 20000},   {"held_out_numbers", 500}};
}

Json decoding_defaults() {
  const SearchOptions options;
  return {{"beam", options.beam},
          {"length_penalty", options.length_penalty},
          {"length_ratio", options.length_ratio},
          {"length_extra", options.length_extra},
          {"early_stop", options.early_stop},
          {"batch_size", 64},
          {"max_source_tokens", 1024}};
}

NumberSets numbers_of(const Settings& settings) {
  // The sets do not follow the seed: runs with other seeds are compared on the same numbers.
  return draw_numbers(1, settings.get<std::int64_t>("data.numbers"),
                      settings.get<std::int64_t>("data.held_out_numbers"));
}

/// True when both are given, false when neither is.
bool both_given(const Settings& settings, const std::string& source, const std::string& target,
                const std::string& flags) {
  const bool has_source = !settings.get<std::string>(source).empty(),
             has_target = !settings.get<std::string>(target).empty();
  if (has_source != has_target) throw UsageError(flags + " go together, but only one is given");
  return has_source;
}

/// Sentences need a larger vocabulary and model than number words, which a small model learns within a
/// minute.
Json sentence_changes() {
  return {{"tokenizer", {{"vocabulary", 8000}}},
          {"model", {{"dropout", 0.3}, {"norm", "pre"}}},
          {"training",
           {{"steps", 6000},
            {"batch_tokens", 8192},
            {"evaluate_every", 1000},
            {"save_every", 500},
            {"schedule", {{"warmup_steps", 1000}, {"learning_rate", 0.002}}},
            {"keep_best_by", "bleu"}}}};
}

Json number_word_changes() {
  return {{"tokenizer", {{"vocabulary", 400}}},
          {"model", {{"width", 128}, {"feed_forward", 256}, {"encoder_layers", 2}, {"decoder_layers", 2}}},
          {"training",
           {{"steps", 800},
            {"batch_tokens", 4096},
            {"evaluate_every", 200},
            {"save_every", 200},
            {"label_smoothing", 0.05},
            {"schedule", {{"name", "cosine"}, {"warmup_steps", 100}, {"learning_rate", 0.003}}},
            {"keep_best_by", "exact"}}}};
}

}  // namespace

Settings translation_defaults(DataKind kind) {
  Json defaults = runtime_defaults();
  defaults["data"] = data_defaults();
  defaults["tokenizer"] = tokenizer_defaults();
  defaults["model"] = translation_model();
  defaults["training"] = training_defaults();
  defaults["training"]["keep_best_by"] = "";
  defaults["decoding"] = decoding_defaults();
  Settings settings(std::move(defaults), attention_settings(Stacks::encoder_decoder));
  settings.merge(kind == DataKind::files ? sentence_changes() : number_word_changes(), "defaults");
  return settings;
}

bool has_files(const Settings& settings) {
  const bool train = both_given(settings, "data.source", "data.target", "--source and --target");
  const bool valid =
      both_given(settings, "data.valid_source", "data.valid_target", "--valid-source and --valid-target");
  if (valid && !train) throw UsageError("validation files need --source and --target too");
  return train;
}

std::unique_ptr<EncoderDecoder> make_translator_model(const Settings& settings, std::int64_t vocabulary,
                                                      Device device) {
  return make_model<EncoderDecoder>(
      settings, {{"source_vocabulary", vocabulary}, {"target_vocabulary", vocabulary}}, device);
}

SearchOptions search_options(const Settings& settings, const Tokenizer& tokenizer) {
  SearchOptions options;
  options.begin = tokenizer.id_of("<s>");
  options.end = tokenizer.id_of("</s>");
  options.beam = settings.get<std::int64_t>("decoding.beam");
  options.length_penalty = settings.get<double>("decoding.length_penalty");
  options.length_ratio = settings.get<double>("decoding.length_ratio");
  options.length_extra = settings.get<std::int64_t>("decoding.length_extra");
  options.early_stop = settings.get<bool>("decoding.early_stop");
  if (options.beam < 1) throw UsageError(concat_text("decoding.beam must be at least 1, not ", options.beam));
  return options;
}

ParallelText read_text(const Settings& settings, const std::string& source, const std::string& target) {
  return read_parallel_text(source, target, encoding_from_name(settings.get<std::string>("data.encoding")));
}

Corpus load_corpus(const Settings& settings) {
  if (!has_files(settings)) {
    const NumberSets sets = numbers_of(settings);
    return {number_words(sets.train), number_words(sets.held_out)};
  }
  Corpus corpus;
  corpus.train =
      read_text(settings, settings.get<std::string>("data.source"), settings.get<std::string>("data.target"));
  if (!settings.get<std::string>("data.valid_source").empty()) corpus.valid = load_validation(settings);
  return corpus;
}

ParallelText load_validation(const Settings& settings) {
  if (!has_files(settings)) return number_words(numbers_of(settings).held_out);
  const auto source = settings.get<std::string>("data.valid_source");
  if (source.empty()) throw UsageError("the run has no validation files: give --source and --target");
  return read_text(settings, source, settings.get<std::string>("data.valid_target"));
}

}  // namespace heed::programs
