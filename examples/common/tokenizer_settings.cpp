#include "tokenizer_settings.h"

#include <filesystem>

namespace heed::programs {

Json tokenizer_defaults() {
  return {{"vocabulary", 0}, {"min_frequency", 2}};
}

std::optional<Tokenizer> resumed_tokenizer(const TrainFlags& train) {
  const std::filesystem::path file = std::filesystem::path(train.out) / "tokenizer.json";
  if (!resumes(train) || !std::filesystem::exists(file)) return std::nullopt;
  return Tokenizer::load(file);
}

Tokenizer tokenizer_for(const TrainFlags& train, const Settings& settings,
                        std::span<const std::string> lines) {
  if (std::optional<Tokenizer> resumed = resumed_tokenizer(train)) return *resumed;
  TokenizerTraining options;
  options.vocabulary_size = settings.get<std::int64_t>("tokenizer.vocabulary");
  options.min_frequency = settings.get<std::int64_t>("tokenizer.min_frequency");
  return Tokenizer::train(lines, options);
}

Tokens tokens_with_end(const Tokenizer& tokenizer, const std::string& text) {
  Tokens tokens = tokenizer.encode(text);
  tokens.push_back(tokenizer.id_of("</s>"));
  return tokens;
}

}  // namespace heed::programs
