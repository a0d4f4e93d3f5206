#include "heed/models/decoding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {

Tensor exclude_token(const Tensor& logits, std::int32_t token) {
  if (token < 0) return logits;
  check(token < logits.size(-1), "search: the excluded token ", token, " is outside the vocabulary of ",
        logits.size(-1));
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

void EncoderDecoderSteps::reorder(std::span<const std::int32_t> rows) {
  check(!rows.empty(), "reorder: there is no row to continue");
  std::vector<std::int32_t> sources;
  for (const std::int32_t row : rows) sources.push_back(row / static_cast<std::int32_t>(sharing_));
  // Usually every source has the same number of adjacent hypotheses, and its memory is kept only once.
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

/// Reads the texts from position `begin` on, in one pass.
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
  const TransformerConfig& config = model_.config();
  std::int64_t kept = state_.position + 1;
  if (state_.position >= length_)
    kept = std::max<std::int64_t>(length_ / 2, 1);
  else if (config.rotary_scaling != "longrope" || state_.position != config.rotary_length)
    return model_.step(tokens, state_, context_);
  state_ = model_.start();  // at rotary_length, the keys that were read have the angles of shorter texts
  return read(texts_, end - static_cast<std::size_t>(kept));
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

/// The tokens that pass top_k and top_p, most probable first; `weights` are unnormalised probabilities.
static std::vector<std::size_t> kept_tokens(std::span<const double> logits, std::span<const double> weights,
                                            const SamplingOptions& options) {
  const auto ranks_below = [&](std::size_t a, std::size_t b) {  // among equals, the higher id
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::vector<std::size_t> all(logits.size());
  std::iota(all.begin(), all.end(), 0);
  std::priority_queue ranking(ranks_below, std::move(all));  // a heap, because only a few are needed
  const auto next = [&] {
    const std::size_t token = ranking.top();
    ranking.pop();
    return token;
  };
  const std::size_t most =
      options.top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(options.top_k)) : logits.size();
  std::vector<std::size_t> kept;
  double sum = 0;
  if (options.top_k == 0)
    sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  else
    for (std::size_t i = 0; i < most; ++i) sum += weights[kept.emplace_back(next())];
  if (options.top_p == 1) return kept;
  double reached = 0;
  for (std::size_t i = 0; i < most; ++i) {
    if (i == kept.size()) kept.push_back(next());
    reached += weights[kept[i]];
    if (reached >= options.top_p * sum) {
      kept.resize(i + 1);
      break;
    }
  }
  return kept;
}

/// The logarithm of softmax(logits)[token]; at least one logit must be finite.
static double log_probability(std::span<const double> logits, std::int32_t token) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(sum);
}

void check_sampling(const SamplingOptions& options) {
  check(options.temperature >= 0 && std::isfinite(options.temperature),
        "temperature must not be negative (0 is greedy), is ", options.temperature);
  check(options.top_k >= 0, "top_k must not be negative (0: all tokens), is ", options.top_k);
  check(options.top_p > 0 && options.top_p <= 1, "top_p must be above 0 and at most 1, is ", options.top_p);
  check(options.min_p >= 0 && options.min_p <= 1, "min_p must be 0 to 1, is ", options.min_p);
  check(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
        "repetition_penalty must be above 0 (1: none), is ", options.repetition_penalty);
}

std::vector<double> sampling_probabilities(std::span<const double> logits, const SamplingOptions& options) {
  check_sampling(options);
  check(std::none_of(logits.begin(), logits.end(), [](double logit) { return std::isnan(logit); }),
        "sampling: a logit is not a number");
  const auto top = std::max_element(logits.begin(), logits.end());  // the first among equals
  check(top != logits.end() && std::isfinite(*top), "sampling: no token has a finite logit");
  std::vector<double> probabilities(logits.size());
  if (options.temperature == 0) {
    probabilities[static_cast<std::size_t>(top - logits.begin())] = 1;
    return probabilities;
  }
  for (std::size_t i = 0; i < logits.size(); ++i)
    probabilities[i] = std::exp((logits[i] - *top) / options.temperature);
  if (options.top_k > 0 || options.top_p < 1) {
    std::vector<double> of_kept(logits.size());
    for (const std::size_t token : kept_tokens(logits, probabilities, options))
      of_kept[token] = probabilities[token];
    probabilities = std::move(of_kept);
  }
  for (double& probability : probabilities)  // that of the likeliest token is 1 here
    if (probability < options.min_p) probability = 0;
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

std::int32_t sample_token(std::span<const double> logits, const SamplingOptions& options, double uniform) {
  const std::vector<double> probabilities = sampling_probabilities(logits, options);
  double reached = 0;
  std::int32_t last = 0;  // the sum may end below 1 by rounding
  for (std::size_t token = 0; token < probabilities.size(); ++token) {
    if (probabilities[token] == 0) continue;
    last = static_cast<std::int32_t>(token);
    reached += probabilities[token];
    if (uniform < reached) break;
  }
  return last;
}

/// Applies SamplingOptions::repetition_penalty.
static void penalize(std::span<double> logits, const std::vector<bool>& read, double penalty) {
  for (std::size_t token = 0; token < read.size(); ++token)
    if (read[token]) logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
}

std::vector<Tokens> sample(StepModel& model, std::span<const std::int32_t> first,
                           std::span<const std::int64_t> max_lengths, const SamplingOptions& options,
                           std::span<const std::int32_t> ends, std::uint64_t seed,
                           std::span<const std::uint32_t> streams, std::vector<double>* log_probabilities,
                           const TokenWatch& watch, std::span<const std::int32_t> before,
                           const TextIsOver& is_over) {
  check_sampling(options);
  check(first.size() == max_lengths.size(), "sample: needs a first token and a length for each text, got ",
        first.size(), " and ", max_lengths.size());
  check(streams.empty() || streams.size() == first.size(), "sample: ", streams.size(), " streams for ",
        first.size(), " texts");
  const NoGrad no_grad;
  std::vector<Tokens> texts(first.size());
  std::vector<std::vector<bool>> read(options.repetition_penalty == 1 ? 0 : first.size());  // by token
  const auto add_read = [&](std::size_t text, std::int32_t token) {
    if (read.empty()) return;
    const auto place = static_cast<std::size_t>(token);
    if (read[text].size() <= place) read[text].resize(place + 1);
    read[text][place] = true;
  };
  for (std::size_t text = 0; text < read.size(); ++text) {
    for (const std::int32_t token : before) add_read(text, token);
    add_read(text, first[text]);
  }
  if (log_probabilities) log_probabilities->assign(first.size(), 0);
  std::vector<std::size_t> open(first.size());  // the text of each row
  std::iota(open.begin(), open.end(), 0);
  std::vector<std::int32_t> tokens(first.begin(), first.end());  // the next token of each row
  std::vector<bool> goes_on;
  for (const std::int64_t length : max_lengths) goes_on.push_back(length > 0);
  const auto drop_finished = [&] {
    const std::vector<std::int32_t> rows = rows_that_go_on(goes_on);
    keep_rows(model, rows, goes_on.size());
    for (std::size_t place = 0; place < rows.size(); ++place) {
      open[place] = open[static_cast<std::size_t>(rows[place])];
      tokens[place] = tokens[static_cast<std::size_t>(rows[place])];
    }
    open.resize(rows.size());
    tokens.resize(rows.size());
  };
  drop_finished();
  for (std::uint32_t drawn = 0; !open.empty(); ++drawn) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const Tensor logits = model.step(Tensor::from(tokens, {count}, model.device()));
    check(logits.rank() == 2 && logits.size(0) == count, "sample: the model gave logits of shape ",
          logits.shape(), " for ", count, " texts");
    std::vector<double> values = logits.to_doubles();  // on the host, because devices may lack f64
    const auto vocabulary = static_cast<std::size_t>(logits.size(1));
    goes_on.assign(open.size(), false);
    for (std::size_t row = 0; row < open.size(); ++row) {
      const std::size_t text = open[row];
      const RandomKey key{seed, drawn, streams.empty() ? static_cast<std::uint32_t>(text) : streams[text]};
      const auto of_row = std::span(values).subspan(row * vocabulary, vocabulary);
      std::vector<double> of_model;  // before the penalty
      if (!read.empty()) {
        of_model.assign(of_row.begin(), of_row.end());
        penalize(of_row, read[text], options.repetition_penalty);
      }
      tokens[row] = sample_token(of_row, options, unit_interval(random_word(key, 0)));
      if (log_probabilities)
        (*log_probabilities)[text] += log_probability(of_model.empty() ? of_row : of_model, tokens[row]);
      if (std::ranges::find(ends, tokens[row]) != ends.end()) continue;
      texts[text].push_back(tokens[row]);
      add_read(text, tokens[row]);
      if (watch) watch(text, texts[text]);
      goes_on[row] = static_cast<std::int64_t>(texts[text].size()) < max_lengths[text] &&
                     !(is_over && is_over(texts[text]));
    }
    drop_finished();
  }
  return texts;
}

std::vector<Tokens> generate(LanguageModel& model, std::span<const std::int32_t> prompt, std::int64_t samples,
                             const GenerationOptions& options, std::vector<double>* log_probabilities,
                             const TokenWatch& watch) {
  check_sampling(options.sampling);
  checked_range("generate: the context", options.context, 2, std::int64_t{1} << 24);
  checked_range("generate: the number of new tokens", options.tokens, 0, std::int64_t{1} << 31);
  LanguageModelSteps steps(model, prompt, samples, options.context);
  const std::vector<std::int32_t> first(static_cast<std::size_t>(samples), prompt.back());
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples), options.tokens);
  return sample(steps, first, lengths, options.sampling, options.ends, options.seed, {}, log_probabilities,
                watch, prompt, options.is_over);
}

}  // namespace heed
