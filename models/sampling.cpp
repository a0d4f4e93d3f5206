#include "heed/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {
namespace {

/// Token ids, the most probable first.
std::vector<std::size_t> ranked(std::span<const double> logits) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  return order;
}

/// How many of the ranked tokens stay, their weights being relative to those kept by top_k.
std::size_t nucleus_size(std::span<const double> weights, std::span<const std::size_t> kept, double top_p) {
  double sum = 0;
  for (const std::size_t token : kept) sum += weights[token];
  double reached = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    reached += weights[kept[i]];
    if (reached >= top_p * sum) return i + 1;
  }
  return kept.size();
}

/// A text under way.
struct Row {
  std::size_t sample;
  Tokens text;  // prompt included
};

/// Reads texts of one length together, a row for each, and starts over when the context is full.
class Reader {
 public:
  Reader(LanguageModel& model, std::int64_t context) : model_(model), context_length_(context) {
    state_ = model.start();
  }

  /// Logits [R, V] of what follows the texts, of which the last token (at first: all) has not been read.
  Tensor read(const std::vector<Row>& rows) {
    const auto length = static_cast<std::int64_t>(rows.front().text.size());
    if (state_.position == context_length_) {
      state_ = model_.start();
      read_ = length - std::max<std::int64_t>(context_length_ / 2, 1);
    }
    Tensor logits;
    for (; read_ < length; ++read_) {
      Tokens tokens;
      for (const Row& row : rows) tokens.push_back(row.text[static_cast<std::size_t>(read_)]);
      const auto count = static_cast<std::int64_t>(tokens.size());
      logits = model_.step(Tensor::from(tokens, {count}, model_.device()), state_, context_);
    }
    return logits;
  }

  void keep(const std::vector<std::int32_t>& rows) {
    state_.reorder(Tensor::from(rows, {static_cast<std::int64_t>(rows.size())}, model_.device()));
  }

 private:
  LanguageModel& model_;
  std::int64_t context_length_;
  Context context_ = Context::inference();
  DecoderState state_;
  std::int64_t read_ = 0;  // how many tokens of the texts were read, or are out of sight
};

/// Draws the next token of every row; rows whose text ends move to `ended`. Returns the places of those that
/// stay.
std::vector<std::int32_t> extend(std::vector<Row>& rows, std::vector<Row>& ended, const Tensor& logits,
                                 std::int64_t drawn, const GenerationOptions& options) {
  const std::vector<double> values = cast(logits, DType::f64).to_vector<double>();
  const auto vocabulary = static_cast<std::size_t>(logits.size(1));
  std::vector<std::int32_t> stay;
  std::vector<Row> open;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RandomKey key{options.seed, static_cast<std::uint32_t>(drawn),
                        static_cast<std::uint32_t>(rows[i].sample)};
    const std::int32_t token = sample_token(std::span(values).subspan(i * vocabulary, vocabulary),
                                            options.sampling, unit_interval(random_word(key, 0)));
    if (token == options.end) {
      ended.push_back(std::move(rows[i]));
      continue;
    }
    open.push_back(std::move(rows[i]));
    open.back().text.push_back(token);
    stay.push_back(static_cast<std::int32_t>(i));
  }
  rows = std::move(open);
  return stay;
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  check(options.temperature >= 0 && std::isfinite(options.temperature),
        "temperature must not be negative (0 is greedy), is ", options.temperature);
  check(options.top_k >= 0, "top_k must not be negative (0: all tokens), is ", options.top_k);
  check(options.top_p > 0 && options.top_p <= 1, "top_p must be above 0 and at most 1, is ", options.top_p);
}

std::vector<double> sampling_probabilities(std::span<const double> logits, const SamplingOptions& options) {
  check_sampling(options);
  check(std::none_of(logits.begin(), logits.end(), [](double logit) { return std::isnan(logit); }),
        "sampling: a logit is not a number");
  const std::vector<std::size_t> order = ranked(logits);
  check(!order.empty() && std::isfinite(logits[order.front()]), "sampling: no token has a finite logit");
  const double largest = logits[order.front()];
  std::vector<double> probabilities(logits.size());
  if (options.temperature == 0) {
    probabilities[order.front()] = 1;
    return probabilities;
  }
  for (std::size_t i = 0; i < logits.size(); ++i)
    probabilities[i] = std::exp((logits[i] - largest) / options.temperature);
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  if (options.top_p < 1) kept = nucleus_size(probabilities, std::span(order).first(kept), options.top_p);
  for (const std::size_t token : std::span(order).subspan(kept)) probabilities[token] = 0;
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

std::vector<Tokens> generate(LanguageModel& model, std::span<const std::int32_t> prompt, std::int64_t samples,
                             const GenerationOptions& options) {
  check_sampling(options.sampling);
  check(options.context >= 2, "generate: the context must be at least 2 tokens, is ", options.context);
  check(!prompt.empty(), "generate: the prompt is empty; a text needs a token to begin with");
  check(static_cast<std::int64_t>(prompt.size()) <= options.context, "generate: the prompt has ",
        prompt.size(), " tokens, but the model sees at most ", options.context, " at a time");
  check(samples >= 1 && options.tokens >= 0,
        "generate: needs at least one sample and no negative length, got ", samples, " samples of ",
        options.tokens, " tokens");
  const NoGrad no_grad;
  std::vector<Row> rows, ended;
  for (std::int64_t i = 0; i < samples; ++i)
    rows.push_back({static_cast<std::size_t>(i), Tokens(prompt.begin(), prompt.end())});
  Reader reader(model, options.context);
  for (std::int64_t drawn = 0; drawn < options.tokens && !rows.empty(); ++drawn) {
    const std::size_t before = rows.size();
    const std::vector<std::int32_t> stay = extend(rows, ended, reader.read(rows), drawn, options);
    if (!stay.empty() && stay.size() < before) reader.keep(stay);
  }
  std::vector<Tokens> results(static_cast<std::size_t>(samples));
  for (std::vector<Row>* list : {&rows, &ended}) {
    for (const Row& row : *list)
      results[row.sample].assign(row.text.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
                                 row.text.end());
  }
  return results;
}

}  // namespace heed
