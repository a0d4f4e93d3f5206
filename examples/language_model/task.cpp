#include "task.h"

#include "../common/program.h"
#include "heed/core/error.h"

namespace heed::programs {
namespace {

WindowOptions training_windows(const Settings& settings) {
  WindowOptions options;
  options.length = settings.get<std::int64_t>("model.max_length");
  const auto tokens = settings.get<std::int64_t>("training.batch_tokens");
  if (tokens < options.length)
    throw UsageError(concat_text("training.batch_tokens is ", tokens,
                                 ", but a single window (model.max_length) takes ", options.length));
  options.rows = tokens / options.length;
  options.seed = settings.get<std::uint64_t>("seed");
  return options;
}

}  // namespace

LanguageModelTask::LanguageModelTask(LanguageModel& model, const Tokenizer& tokenizer, const Corpus& corpus,
                                     const Settings& settings)
    : model_(model),
      train_(stream_of(tokenizer, corpus.train, "the text to learn from")),
      valid_(stream_of(tokenizer, corpus.valid, "the text to measure with")),
      valid_characters_(character_count(corpus.valid)),
      plan_(static_cast<std::int64_t>(train_.size()), training_windows(settings)),
      evaluation_(evaluation_windows(settings)),
      label_smoothing_(settings.get<double>("training.label_smoothing")) {}

BatchLoss LanguageModelTask::loss(std::int64_t epoch, std::int64_t batch, Context& context) {
  const std::vector<Window>& windows = batches_.of(plan_, epoch)[static_cast<std::size_t>(batch)];
  const ModelLoss loss =
      model_.loss(window_batch(train_, windows, model_.device()), label_smoothing_, context);
  return {loss.sum, loss.count, /*is_mean=*/false};
}

Evaluation LanguageModelTask::evaluate() {
  if (valid_.empty()) return {};
  const TextLoss loss = text_loss(model_, valid_, valid_characters_, evaluation_);
  return {{{"loss", loss.nats_per_token()},
           {"perplexity", loss.perplexity()},
           {"nats_per_character", loss.nats_per_character()},
           {"bits_per_character", loss.bits_per_character()}},
          "loss",
          /*larger_is_better=*/false};
}

}  // namespace heed::programs
