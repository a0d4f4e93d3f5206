#include "heed/models/step_model.h"

#include <algorithm>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/checked.h"

namespace heed {

Tensor without_token(const Tensor& logits, std::int32_t token) {
  if (token < 0) return logits;
  check(token < logits.size(-1), "search: the token ", token,
        " that no output may have is outside the vocabulary of ", logits.size(-1));
  std::vector<float> added(static_cast<std::size_t>(logits.size(-1)), 0);
  added[static_cast<std::size_t>(token)] = -1e9F;
  return logits + cast(Tensor::from(added, {logits.size(-1)}, logits.device()), logits.dtype());
}

void keep_rows(StepModel& model, std::span<const std::int32_t> rows, std::size_t before) {
  bool same = rows.size() == before;
  for (std::size_t i = 0; same && i < rows.size(); ++i) same = rows[i] == static_cast<std::int32_t>(i);
  if (!same && !rows.empty()) model.reorder(rows);
}

EncoderDecoderSteps::EncoderDecoderSteps(EncoderDecoder& model, const PaddedTokens& sources) : model_(model) {
  const NoGrad no_grad;
  state_ = model.start(model.encode(sources, context_), sources);
}

Tensor EncoderDecoderSteps::step(const Tensor& tokens) {
  return model_.step(tokens, state_, context_);
}

void EncoderDecoderSteps::reorder(std::span<const std::int32_t> rows) {
  check(!rows.empty(), "reorder: there is no row to go on with");
  std::vector<std::int32_t> sources;
  for (const std::int32_t row : rows) sources.push_back(row / static_cast<std::int32_t>(sharing_));
  // Mostly every source has as many hypotheses, side by side, and what is known of it is kept once.
  sharing_ =
      static_cast<std::size_t>(std::find_if(sources.begin(), sources.end(),
                                            [&](std::int32_t source) { return source != sources.front(); }) -
                               sources.begin());
  bool even = rows.size() % sharing_ == 0;
  for (std::size_t i = 0; even && i < sources.size(); ++i) even = sources[i] == sources[i - i % sharing_];
  if (!even) sharing_ = 1;
  std::vector<std::int32_t> once;
  for (std::size_t i = 0; i < sources.size(); i += sharing_) once.push_back(sources[i]);
  state_.reorder(rows, once);
}

LanguageModelSteps::LanguageModelSteps(LanguageModel& model, std::span<const std::int32_t> prompt,
                                       std::int64_t rows, std::int64_t context)
    : model_(model), length_(context), state_(model.start()) {
  check(!prompt.empty(), "generate: the prompt is empty; a text needs a token to begin with");
  check(static_cast<std::int64_t>(prompt.size()) <= context, "generate: the prompt has ", prompt.size(),
        " tokens, but the model sees at most ", context, " at a time");
  checked_range("generate: the number of texts", rows, 1, 65536);
  const NoGrad no_grad;
  texts_.assign(static_cast<std::size_t>(rows), Tokens(prompt.begin(), prompt.end() - 1));
  if (prompt.size() == 1) return;
  read(std::span(texts_).first(1), 0);
  if (rows > 1) state_.reorder(std::vector<std::int32_t>(texts_.size(), 0));
}

/// Reads the texts from `begin` on, in one pass.
Tensor LanguageModelSteps::read(std::span<const Tokens> texts, std::size_t begin) {
  Tokens tokens;
  for (const Tokens& text : texts)
    tokens.insert(tokens.end(), text.begin() + static_cast<std::ptrdiff_t>(begin), text.end());
  const auto rows = static_cast<std::int64_t>(texts.size());
  return model_.step(Tensor::from(tokens, {rows, static_cast<std::int64_t>(tokens.size()) / rows}, device()),
                     state_, context_);
}

Tensor LanguageModelSteps::step(const Tensor& tokens) {
  const std::vector<std::int32_t> added = tokens.to_vector<std::int32_t>();
  check(added.size() == texts_.size(), "a step needs a token for each of ", texts_.size(), " texts, got ",
        added.size());
  for (std::size_t row = 0; row < added.size(); ++row) texts_[row].push_back(added[row]);
  const std::size_t end = texts_.front().size();
  if (state_.position < length_) return model_.step(tokens, state_, context_);
  state_ = model_.start();
  return read(texts_, end - static_cast<std::size_t>(std::max<std::int64_t>(length_ / 2, 1)));
}

void LanguageModelSteps::reorder(std::span<const std::int32_t> rows) {
  std::vector<Tokens> texts;
  for (const std::int32_t row : rows) {
    check(row >= 0 && row < std::ssize(texts_), "reorder: row ", row, " is not one of ", texts_.size());
    texts.push_back(texts_[static_cast<std::size_t>(row)]);
  }
  texts_ = std::move(texts);
  state_.reorder(rows);
}

}  // namespace heed
