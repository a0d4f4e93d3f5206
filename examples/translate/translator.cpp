#include "translator.h"

#include <algorithm>
#include <numeric>

#include "../common/tokenizer_settings.h"
#include "heed/autograd/autograd.h"

namespace heed::programs {
namespace {

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

}  // namespace

Tokens Translator::tokens_of(const std::string& line) {
  Tokens tokens = tokens_with_end(tokenizer_, line);
  if (static_cast<std::int64_t>(tokens.size()) > max_source_tokens_) {
    ++cut_lines_;
    const std::int32_t end = tokens.back();
    tokens.resize(static_cast<std::size_t>(max_source_tokens_));
    tokens.back() = end;
  }
  return tokens;
}

std::string Translator::text_of(const Hypothesis& hypothesis) const {
  std::string text = tokenizer_.decode(hypothesis.tokens);
  // A model may produce any byte, but a line stays a line.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::vector<std::string> Translator::operator()(std::span<const std::string> lines) {
  const NoGrad no_grad;
  std::vector<Tokens> tokens;
  std::vector<std::size_t> order;  // of the lines that say something, by length, so that little is padded
  for (const std::string& line : lines) {
    tokens.push_back(is_blank(line) ? Tokens() : tokens_of(line));
    if (!tokens.back().empty()) order.push_back(tokens.size() - 1);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tokens[a].size() < tokens[b].size(); });

  std::vector<std::string> results(lines.size());
  const auto batch_size = static_cast<std::size_t>(batch_size_);
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    const std::size_t end = std::min(order.size(), begin + batch_size);
    std::vector<Tokens> sources;
    for (std::size_t i = begin; i < end; ++i) sources.push_back(tokens[order[i]]);
    const auto hypotheses = translate(model_, sources, options_);
    for (std::size_t i = begin; i < end; ++i) {
      const Hypothesis& best = hypotheses[i - begin].front();
      results[order[i]] = text_of(best);
      if (capture_) show_inside(lines_ + order[i], tokens[order[i]], best.tokens);
    }
  }
  lines_ += lines.size();
  return results;
}

void Translator::show_inside(std::size_t line, const Tokens& source, const Tokens& target) {
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  const TranslationBatch batch =
      make_translation_batch({&source, 1}, {&target, 1}, options_.begin, options_.end, model_.device());
  const Tensor memory = model_.encode(batch.source, context);
  model_.decode(batch.target, memory, batch.source.mask, context);
  const std::string example = "lines." + std::to_string(line);
  capture_->add(example + ".source", batch.source.ids);
  capture_->add(example + ".target", batch.target.ids);
  capture_->add(example, capture);
}

}  // namespace heed::programs
