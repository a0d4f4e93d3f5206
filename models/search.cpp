#include "heed/models/search.h"

#include <algorithm>
#include <cmath>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {
namespace {

/// An open hypothesis and its row in the model.
struct Open {
  Tokens tokens;
  double log_probability = 0;
  std::int32_t row = 0;
};

struct Sentence {
  std::int64_t max_length = 0;
  std::vector<Open> open;
  std::vector<Hypothesis> finished;  // best first, at most `beam`
};

/// One way to continue an open hypothesis of a sentence.
struct Continuation {
  double log_probability;
  std::size_t parent;
  std::int32_t token;
};

/// The most probable next tokens of each row and the log-probability of ending, on the host. Only these few
/// log-probabilities are computed: that of the most probable token is minus its cross entropy, and the
/// others differ from it as their logits do.
struct Candidates {
  std::vector<double> log_probabilities;  // [rows, k], descending
  std::vector<std::int32_t> tokens;       // [rows, k]
  std::vector<double> end;                // [rows]
  std::size_t k = 0;
};

Candidates next_candidates(StepModel& model, const std::vector<std::int32_t>& tokens, std::int64_t k,
                           const SearchOptions& options) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const Tensor logits =
      exclude_token(model.step(Tensor::from(tokens, {rows}, model.device())), options.never);
  check(logits.rank() == 2 && logits.size(0) == rows, "search: the model gave logits of shape ",
        logits.shape(), " for ", rows, " hypotheses");
  check(options.end >= 0 && options.end < logits.size(1), "search: the end token ", options.end,
        " is outside the vocabulary of ", logits.size(1));
  const auto [values, ids] = top_k(logits, std::min(k, logits.size(1)));
  Candidates out{values.to_doubles(), ids.to_vector<std::int32_t>(),
                 select(logits, 1, options.end).to_doubles(), static_cast<std::size_t>(values.size(1))};
  const std::vector<double> surprise = cross_entropy(logits, contiguous(select(ids, 1, 0))).to_doubles();
  for (std::size_t row = 0; row < surprise.size(); ++row) {
    const double shift = out.log_probabilities[row * out.k] + surprise[row];
    out.end[row] -= shift;
    for (std::size_t i = 0; i < out.k; ++i) out.log_probabilities[row * out.k + i] -= shift;
  }
  const auto is_nan = [](double value) { return std::isnan(value); };
  check(std::none_of(out.log_probabilities.begin(), out.log_probabilities.end(), is_nan),
        "search: the model's logits are not finite");
  return out;
}

Hypothesis finished(Tokens tokens, double log_probability, const SearchOptions& options) {
  const auto length = static_cast<std::int64_t>(tokens.size()) + 1;
  return {std::move(tokens), log_probability,
          log_probability / compute_length_penalty(length, options.length_penalty)};
}

/// Keeps at most `beam` hypotheses, best first; ties rank behind earlier ones.
void add_finished(Sentence& sentence, Hypothesis hypothesis, const SearchOptions& options) {
  auto& list = sentence.finished;
  const auto worse = [&](const Hypothesis& other) { return other.score < hypothesis.score; };
  list.insert(std::find_if(list.begin(), list.end(), worse), std::move(hypothesis));
  if (static_cast<std::int64_t>(list.size()) > options.beam) list.pop_back();
}

/// The 2 * beam best continuations of a sentence, best first.
std::vector<Continuation> best_continuations(const Sentence& sentence, const Candidates& candidates,
                                             const SearchOptions& options) {
  std::vector<Continuation> all;
  for (std::size_t parent = 0; parent < sentence.open.size(); ++parent) {
    const Open& open = sentence.open[parent];
    const std::size_t first = static_cast<std::size_t>(open.row) * candidates.k;
    for (std::size_t i = first; i < first + candidates.k; ++i)
      all.push_back({open.log_probability + candidates.log_probabilities[i], parent, candidates.tokens[i]});
  }
  const auto better = [](const Continuation& a, const Continuation& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  };
  const auto kept = std::min(all.size(), static_cast<std::size_t>(2 * options.beam));
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), better);
  all.resize(kept);
  return all;
}

/// True when no open hypothesis can enter the best ones any more.
bool is_decided(const Sentence& sentence, const std::vector<Open>& open, const SearchOptions& options) {
  if (open.empty()) return true;
  const auto count = static_cast<std::int64_t>(sentence.finished.size());
  if ((options.early_stop || options.beam == 1) && count >= options.beam) return true;
  if (count < options.best) return false;
  // Further tokens only lower the probability, and no length penalty exceeds that of the maximum length.
  const double attainable =
      open.front().log_probability / compute_length_penalty(sentence.max_length + 1, options.length_penalty);
  return sentence.finished[static_cast<std::size_t>(options.best - 1)].score >= attainable;
}

/// Advances a sentence by one token: finishes hypotheses and replaces the open ones, which keep their
/// parents' rows.
void advance(Sentence& sentence, const Candidates& candidates, const SearchOptions& options) {
  std::vector<Open> next;
  if (static_cast<std::int64_t>(sentence.open.front().tokens.size()) == sentence.max_length) {
    for (Open& open : sentence.open) {
      const double end = candidates.end[static_cast<std::size_t>(open.row)];
      add_finished(sentence, finished(std::move(open.tokens), open.log_probability + end, options), options);
    }
  } else {
    std::int64_t rank = 0;
    for (const Continuation& continuation : best_continuations(sentence, candidates, options)) {
      const Open& parent = sentence.open[continuation.parent];
      if (continuation.token == options.end) {
        if (rank < options.beam)
          add_finished(sentence, finished(parent.tokens, continuation.log_probability, options), options);
      } else if (static_cast<std::int64_t>(next.size()) < options.beam) {
        next.push_back({parent.tokens, continuation.log_probability, parent.row});
        next.back().tokens.push_back(continuation.token);
      }
      ++rank;
    }
    if (is_decided(sentence, next, options)) next.clear();
  }
  sentence.open = std::move(next);
}

/// Returns the tokens that the best hypothesis will certainly begin with. It is an open hypothesis,
/// or the best finished one.
std::span<const std::int32_t> certain_tokens(const Sentence& sentence) {
  std::span<const std::int32_t> shared =
      sentence.open.empty() ? sentence.finished.front().tokens : sentence.open.front().tokens;
  const auto keep_common = [&](std::span<const std::int32_t> other) {
    shared =
        shared.first(static_cast<std::size_t>(std::ranges::mismatch(shared, other).in1 - shared.begin()));
  };
  for (const Open& open : sentence.open) keep_common(open.tokens);
  if (!sentence.finished.empty()) keep_common(sentence.finished.front().tokens);
  return shared;
}

/// The assignment of model rows to sentences: place p has rows p width ... (p + 1) width - 1.
struct Places {
  std::vector<std::size_t> sentences;  // of each place
  std::size_t width = 1;               // 0: sentences have different numbers of rows
};

/// The number of hypotheses of each unfinished sentence; 0 when they differ.
std::size_t common_width(const std::vector<Sentence>& sentences) {
  std::size_t width = 0;
  for (const Sentence& sentence : sentences) {
    if (sentence.open.empty()) continue;
    if (width > 0 && sentence.open.size() != width) return 0;
    width = sentence.open.size();
  }
  return width;
}

/// The rows in the order of sentences and their hypotheses.
std::vector<std::int32_t> rows_in_order(std::vector<Sentence>& sentences, Places& places) {
  std::vector<std::int32_t> rows;
  places = {{}, common_width(sentences)};
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    if (!sentences[s].open.empty()) places.sentences.push_back(s);
    for (Open& open : sentences[s].open) {
      rows.push_back(open.row);
      open.row = static_cast<std::int32_t>(rows.size()) - 1;
    }
  }
  return rows;
}

/// Gives every open hypothesis, which still has its parent's row, a row of its own, and returns for each
/// new row the model row that it continues. Moves as few rows as possible, and none onto a row that is
/// still to be read: sentences stay in place, except that the last ones fill the places of those that have
/// ended; within a sentence the first hypothesis of a parent keeps its row.
std::vector<std::int32_t> rows_of_hypotheses(std::vector<Sentence>& sentences, Places& places) {
  const std::size_t width = places.width;
  if (width == 0 || common_width(sentences) != width) return rows_in_order(sentences, places);
  std::vector<bool> goes_on;
  for (const std::size_t s : places.sentences) goes_on.push_back(!sentences[s].open.empty());
  const std::vector<std::int32_t> from = rows_that_go_on(goes_on);
  std::vector<std::int32_t> rows(from.size() * width, -1);
  for (std::size_t place = 0; place < from.size(); ++place) {
    const auto before = static_cast<std::size_t>(from[place]);
    places.sentences[place] = places.sentences[before];
    const std::span<std::int32_t> mine = std::span(rows).subspan(place * width, width);
    const auto first = static_cast<std::int32_t>(place * width);
    std::vector<Open*> later;
    for (Open& open : sentences[places.sentences[place]].open) {
      const std::size_t at = static_cast<std::size_t>(open.row) - before * width;
      if (mine[at] >= 0) {
        later.push_back(&open);
        continue;
      }
      mine[at] = open.row;
      open.row = first + static_cast<std::int32_t>(at);
    }
    for (std::size_t at = 0, next = 0; next < later.size(); ++at) {
      if (mine[at] >= 0) continue;
      mine[at] = later[next]->row;
      later[next++]->row = first + static_cast<std::int32_t>(at);
    }
  }
  places.sentences.resize(from.size());
  return rows;
}

}  // namespace

void check_search(const SearchOptions& options) {
  checked_range("search: the beam", options.beam, 1, 1024);
  check(options.best >= 1 && options.best <= options.beam, "search: can return between 1 and ", options.beam,
        " hypotheses (the beam), asked for ", options.best);
  const auto in_range = [](double value) { return value >= 0 && value <= 1000; };
  check(in_range(options.length_penalty), "search: the length penalty must be 0 to 1000, is ",
        options.length_penalty);
  check(in_range(options.length_ratio), "search: length_ratio must be 0 to 1000, is ", options.length_ratio);
  checked_range("search: length_extra", options.length_extra, 0, std::int64_t{1} << 24);
}

double compute_length_penalty(std::int64_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

std::vector<Hypothesis> greedy_search(StepModel& model, std::span<const std::int64_t> max_lengths,
                                      SearchOptions options, const TokenWatch& watch) {
  options.beam = options.best = 1;
  std::vector<Hypothesis> results;
  for (std::vector<Hypothesis>& found : beam_search(model, max_lengths, options, watch))
    results.push_back(std::move(found.front()));
  return results;
}

std::vector<std::vector<Hypothesis>> beam_search(StepModel& model, std::span<const std::int64_t> max_lengths,
                                                 const SearchOptions& options, const TokenWatch& watch) {
  const NoGrad no_grad;
  check_search(options);
  std::vector<Sentence> sentences;
  std::vector<std::size_t> told(max_lengths.size(), 0);  // how many tokens of each sentence
  for (const std::int64_t max_length : max_lengths)
    sentences.push_back({max_length, {{{}, 0, static_cast<std::int32_t>(sentences.size())}}, {}});
  std::vector<std::int32_t> tokens(sentences.size(), options.begin);
  Places places;
  for (std::size_t s = 0; s < sentences.size(); ++s) places.sentences.push_back(s);
  while (!tokens.empty()) {
    const Candidates candidates = next_candidates(model, tokens, 2 * options.beam, options);
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      if (sentences[s].open.empty()) continue;
      advance(sentences[s], candidates, options);
      if (!watch) continue;
      if (const auto certain = certain_tokens(sentences[s]); certain.size() > told[s]) {
        told[s] = certain.size();
        watch(s, certain);
      }
    }
    const std::vector<std::int32_t> rows = rows_of_hypotheses(sentences, places);
    keep_rows(model, rows, tokens.size());
    tokens.resize(rows.size());
    for (const Sentence& sentence : sentences)
      for (const Open& open : sentence.open) tokens[static_cast<std::size_t>(open.row)] = open.tokens.back();
  }
  std::vector<std::vector<Hypothesis>> results;
  for (Sentence& sentence : sentences) {
    const auto count = std::min(sentence.finished.size(), static_cast<std::size_t>(options.best));
    sentence.finished.resize(count);
    results.push_back(std::move(sentence.finished));
  }
  return results;
}

std::vector<std::int64_t> output_limits(const EncoderDecoder& model, std::span<const Tokens> sources,
                                        const SearchOptions& options) {
  const std::int64_t limit = model.target_limit();
  std::vector<std::int64_t> lengths;
  for (const Tokens& source : sources) {
    const double wanted = options.length_ratio * static_cast<double>(source.size());
    const std::int64_t length =
        checked_sum("search: the length limit", static_cast<std::int64_t>(wanted), options.length_extra);
    lengths.push_back(limit > 0 ? std::min(length, limit - 1) : length);
  }
  return lengths;
}

std::vector<std::vector<Hypothesis>> translate(EncoderDecoder& model, std::span<const Tokens> sources,
                                               const SearchOptions& options, const TokenWatch& watch) {
  const NoGrad no_grad;
  check_search(options);
  if (sources.empty()) return {};
  const std::vector<std::int64_t> max_lengths = output_limits(model, sources, options);
  EncoderDecoderSteps translation(model, pad_tokens(sources, model.device()));
  return beam_search(translation, max_lengths, options, watch);
}

}  // namespace heed
