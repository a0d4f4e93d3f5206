#include "task.h"

#include "../common/tokenizer_settings.h"
#include "heed/autograd/autograd.h"
#include "heed/core/error.h"
#include "heed/training/bleu.h"

namespace heed::programs {
namespace {

std::vector<Tokens> encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& lines,
                               bool source) {
  std::vector<Tokens> tokens;
  tokens.reserve(lines.size());
  for (const std::string& line : lines)
    tokens.push_back(source ? tokens_with_end(tokenizer, line) : tokenizer.encode(line));
  return tokens;
}

/// Greedy: validation is often, and the order of models hardly depends on the beam.
Translator validation_translator(EncoderDecoder& model, const Tokenizer& tokenizer,
                                 const Settings& settings) {
  SearchOptions options = search_options(settings, tokenizer);
  options.beam = 1;
  return Translator(model, tokenizer, options, settings.get<std::int64_t>("decoding.batch_size"),
                    settings.get<std::int64_t>("decoding.max_source_tokens"));
}

}  // namespace

TokenizedText::TokenizedText(const Tokenizer& tokenizer, const ParallelText& text,
                             const BatchOptions& options)
    : sources_(encode_all(tokenizer, text.source, true)),
      targets_(encode_all(tokenizer, text.target, false)),
      plan_(lengths_of(sources_), lengths_of(targets_, 1), options) {}

TranslationBatch TokenizedText::batch(const Batch& rows, std::int32_t begin, std::int32_t end,
                                      Device device) const {
  return make_translation_batch(pick(sources_, rows), pick(targets_, rows), begin, end, device);
}

double translation_loss(EncoderDecoder& model, const Tokenizer& tokenizer, const ParallelText& text) {
  const NoGrad no_grad;
  const TokenizedText tokens(tokenizer, text, evaluation_batches(32));
  double sum = 0;
  std::int64_t count = 0;
  for (const Batch& rows : tokens.plan().epoch(0)) {
    Context context = Context::inference();
    const ModelLoss loss = model.loss(
        tokens.batch(rows, tokenizer.id_of("<s>"), tokenizer.id_of("</s>"), model.device()), 0, context);
    sum += loss.sum.item();
    count += loss.count;
  }
  return sum / static_cast<double>(count);
}

TranslationQuality measure(EncoderDecoder& model, const Tokenizer& tokenizer, const ParallelText& text,
                           Translator& translator) {
  const std::vector<std::string> translations = translator(text.source);
  const BleuScore bleu = corpus_bleu(translations, text.target);
  std::size_t exact = 0;
  for (std::size_t i = 0; i < translations.size(); ++i) exact += translations[i] == text.target[i] ? 1 : 0;
  return {translation_loss(model, tokenizer, text), bleu.score,
          static_cast<double>(exact) / static_cast<double>(text.size()), bleu.signature};
}

TranslationTask::TranslationTask(EncoderDecoder& model, Tokenizer tokenizer, Corpus corpus,
                                 const Settings& settings)
    : model_(model),
      tokenizer_(std::move(tokenizer)),
      valid_(std::move(corpus.valid)),
      train_(tokenizer_, corpus.train, training_batches(settings)),
      translator_(validation_translator(model, tokenizer_, settings)),
      keep_best_by_(settings.get<std::string>("training.keep_best_by")),
      label_smoothing_(settings.get<double>("training.label_smoothing")) {
  check_name("metric in training.keep_best_by", keep_best_by_, {"bleu", "loss", "exact"});
}

BatchLoss TranslationTask::loss(std::int64_t epoch, std::int64_t batch, Context& context) {
  const Batch& rows = batches_.of(train_.plan(), epoch)[static_cast<std::size_t>(batch)];
  const ModelLoss loss =
      model_.loss(train_.batch(rows, tokenizer_.id_of("<s>"), tokenizer_.id_of("</s>"), model_.device()),
                  label_smoothing_, context);
  return {loss.sum, loss.count, /*is_mean=*/false};
}

Evaluation TranslationTask::evaluate() {
  if (valid_.size() == 0) return {};
  const TranslationQuality quality = measure(model_, tokenizer_, valid_, translator_);
  return {{{"loss", quality.loss}, {"bleu", quality.bleu}, {"exact", quality.exact}},
          keep_best_by_,
          keep_best_by_ != "loss"};
}

}  // namespace heed::programs
