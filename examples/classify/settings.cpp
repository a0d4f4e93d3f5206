#include "settings.h"

#include "../common/model_settings.h"
#include "../common/program.h"
#include "../common/runtime.h"
#include "../common/tokenizer_settings.h"
#include "../common/training_run.h"
#include "heed/core/error.h"
#include "labelled_data.h"

namespace heed::programs {
namespace {

Json classifier_model() {
  TransformerConfig config;
  config.encoder_layers = 2;
  config.width = 128;
  config.feed_forward = 256;
  Json settings = model_defaults(config, Stacks::encoder);
  settings.erase("max_length");  // data.max_tokens is the one limit
  return settings;
}

/// A few thousand texts are soon learned by heart: what helps is dropout, decay and averaged weights.
Json text_changes() {
  return {{"tokenizer", {{"vocabulary", 8000}}},
          {"model", {{"dropout", 0.3}}},
          {"training",
           {{"steps", 2000},
            {"evaluate_every", 200},
            {"save_every", 200},
            {"ema_decay", 0.99},
            {"optimizer", {{"name", "adamw"}, {"weight_decay", 0.01}}},
            {"schedule", {{"name", "cosine"}, {"warmup_steps", 200}, {"learning_rate", 0.001}}},
            {"keep_best_by", "accuracy"}}}};
}

Json listops_changes() {
  return {{"tokenizer", {{"vocabulary", 290}}},
          {"model", {{"width", 64}, {"feed_forward", 128}, {"dropout", 0.0}, {"norm", "pre"}}},
          {"training",
           {{"steps", 1500},
            {"batch_tokens", 2048},
            {"evaluate_every", 300},
            {"save_every", 300},
            {"label_smoothing", 0.0},
            {"schedule", {{"name", "cosine"}, {"warmup_steps", 100}, {"learning_rate", 0.003}}},
            {"keep_best_by", "accuracy"}}}};
}

}  // namespace

Settings classification_defaults(DataKind kind) {
  Json defaults = runtime_defaults();
  defaults["data"] = data_defaults();
  defaults["tokenizer"] = tokenizer_defaults();
  defaults["model"] = classifier_model();
  defaults["training"] = training_defaults();
  defaults["training"]["keep_best_by"] = "";
  defaults["prediction"] = {{"batch_size", 64}};
  Settings settings(std::move(defaults), attention_settings(Stacks::encoder));
  settings.merge(kind == DataKind::files ? text_changes() : listops_changes(), "defaults");
  return settings;
}

std::unique_ptr<EncoderClassifier> make_classifier(const Settings& settings, std::int64_t vocabulary,
                                                   std::int64_t classes, Device device) {
  return make_model<EncoderClassifier>(settings,
                                       {{"source_vocabulary", vocabulary},
                                        {"classes", classes},
                                        {"max_length", settings.get<std::int64_t>("data.max_tokens")}},
                                       device);
}

std::int64_t prediction_batch_size(const Settings& settings) {
  const auto size = settings.get<std::int64_t>("prediction.batch_size");
  if (size < 1) throw UsageError(concat_text("prediction.batch_size must be at least 1, not ", size));
  return size;
}

TextEncoder::TextEncoder(Tokenizer tokenizer, const Settings& settings)
    : tokenizer_(std::move(tokenizer)),
      max_tokens_(static_cast<std::size_t>(settings.get<std::int64_t>("data.max_tokens"))),
      cut_(settings.get<std::string>("data.long_texts") == "cut") {
  check_name("choice in data.long_texts", settings.get<std::string>("data.long_texts"), {"error", "cut"});
}

Tokens TextEncoder::operator()(const std::string& text, const std::string& place) {
  Tokens tokens = tokens_with_end(tokenizer_, text);
  if (tokens.size() <= max_tokens_) return tokens;
  check(cut_, place, ": the text has ", tokens.size(), " tokens, more than data.max_tokens = ", max_tokens_,
        "; raise that, or set data.long_texts=cut to read the beginning of such texts");
  ++cut_texts_;
  const std::int32_t end = tokens.back();
  tokens.resize(max_tokens_);
  tokens.back() = end;
  return tokens;
}

std::vector<Tokens> TextEncoder::operator()(const LabelledText& text) {
  std::vector<Tokens> all;
  all.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) all.push_back((*this)(text.texts[i], text.places[i]));
  return all;
}

std::string TextEncoder::cut_message() const {
  if (cut_texts_ == 0) return "";
  return concat_text(cut_texts_, cut_texts_ == 1 ? " text is" : " texts are",
                     " longer than data.max_tokens = ", max_tokens_, " and ",
                     cut_texts_ == 1 ? "was" : "were", " cut");
}

}  // namespace heed::programs
