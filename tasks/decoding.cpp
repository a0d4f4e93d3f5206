#include "heed/tasks/decoding.h"

#include <algorithm>
#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {
namespace {

/// A model that never writes one of its tokens.
class WithoutToken : public StepModel {
 public:
  WithoutToken(StepModel& model, std::int32_t token) : model_(model), token_(token) {}
  Tensor step(const Tensor& tokens) override { return without_token(model_.step(tokens), token_); }
  void reorder(std::span<const std::int32_t> rows) override { model_.reorder(rows); }
  Device device() const override { return model_.device(); }

 private:
  StepModel& model_;
  std::int32_t token_;
};

/// `best` texts of each source, drawn side by side.
std::vector<std::vector<Hypothesis>> sampled(EncoderDecoder& model, std::span<const Tokens> sources,
                                             std::span<const std::int64_t> numbers,
                                             const Decoding& decoding) {
  const SearchOptions& search = decoding.search;
  const std::vector<std::int64_t> longest = output_limits(model, sources, search);
  std::vector<Tokens> repeated;
  std::vector<std::int64_t> limits;
  std::vector<std::uint32_t> streams;
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (std::int64_t k = 0; k < search.best; ++k) {
      repeated.push_back(sources[i]);
      limits.push_back(longest[i]);
      streams.push_back(static_cast<std::uint32_t>(numbers[i] * search.best + k));
    }
  EncoderDecoderSteps all(model, pad_tokens(repeated, model.device()));
  WithoutToken steps(all, search.never);
  const std::vector<std::int32_t> first(repeated.size(), search.begin);
  const std::vector<Tokens> texts =
      sample(steps, first, limits, decoding.sampling, search.end, decoding.seed, streams);
  const std::vector<double> probabilities =
      log_probabilities(model, repeated, texts, search.begin, search.end);
  std::vector<std::vector<Hypothesis>> outputs(sources.size());
  for (std::size_t i = 0; i < texts.size(); ++i)
    outputs[i / static_cast<std::size_t>(search.best)].push_back(
        {texts[i], probabilities[i], probabilities[i]});
  for (std::vector<Hypothesis>& of_source : outputs)
    std::stable_sort(of_source.begin(), of_source.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return outputs;
}

}  // namespace

void declare_decoding(Settings& settings, const SearchOptions& defaults) {
  settings.choice("decoding.method", "beam", {"beam", "sample"},
                  "How outputs are found: the most probable by beam search, or drawn at random");
  settings.integer("decoding.beam", defaults.beam, 1, 1024,
                   "Hypotheses that the search keeps for each sentence; 1: greedy");
  settings.integer("decoding.n_best", defaults.best, 1, 1024,
                   "How many outputs `predict --json` shows: of the search, at most the beam, or drawn");
  settings.number("decoding.length_penalty", defaults.length_penalty, 0, 100,
                  "Exponent of the length penalty; 0: none");
  settings.number(
      "decoding.length_ratio", defaults.length_ratio, 0, 1000,
      "An output has at most so many tokens for each of its source's, and decoding.length_extra more");
  settings.integer("decoding.length_extra", defaults.length_extra, 0, 1'000'000, "See decoding.length_ratio");
  settings.flag("decoding.early_stop", defaults.early_stop,
                "Whether a sentence ends once `beam` hypotheses have");
  settings.number("decoding.temperature", 1.0, 0, 1e6,
                  "Of sampling; below 1: likelier tokens, above 1: more variety; 0: the most probable one");
  settings.integer("decoding.top_k", 0, 0, 1 << 30, "Of sampling: only the k most probable tokens; 0: all");
  settings.number("decoding.top_p", 1.0, 1e-9, 1,
                  "Of sampling: only the most probable tokens that together reach this probability; 1: all");
  settings.integer("decoding.seed", 1, 0, std::numeric_limits<std::int64_t>::max(), "Seed of what is drawn");
  settings.integer("decoding.batch_size", 64, 1, 1'000'000, "Sources that are answered at a time");
  settings.integer("decoding.max_source_tokens", 1024, 1, 1 << 24,
                   "Longer sources are cut when they are answered, and said");
}

Decoding decoding_options(const Settings& settings) {
  Decoding decoding;
  SearchOptions& search = decoding.search;
  search.beam = settings.get<std::int64_t>("decoding.beam");
  search.length_penalty = settings.get<double>("decoding.length_penalty");
  search.length_ratio = settings.get<double>("decoding.length_ratio");
  search.length_extra = settings.get<std::int64_t>("decoding.length_extra");
  search.early_stop = settings.get<bool>("decoding.early_stop");
  search.best = settings.get<std::int64_t>("decoding.n_best");
  decoding.sampled = settings.get<std::string>("decoding.method") == "sample";
  decoding.sampling = {settings.get<double>("decoding.temperature"),
                       settings.get<std::int64_t>("decoding.top_k"), settings.get<double>("decoding.top_p")};
  decoding.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("decoding.seed"));
  if (!decoding.sampled && search.best > search.beam)
    throw SettingsError(
        concat_text("decoding.n_best is ", search.best, ", more than decoding.beam, ", search.beam));
  return decoding;
}

std::vector<std::vector<Hypothesis>> write_outputs(EncoderDecoder& model, std::span<const Tokens> sources,
                                                   std::span<const std::int64_t> numbers,
                                                   const Decoding& decoding) {
  const NoGrad no_grad;
  return decoding.sampled ? sampled(model, sources, numbers, decoding)
                          : translate(model, sources, decoding.search);
}

std::vector<double> log_probabilities(EncoderDecoder& model, std::span<const Tokens> sources,
                                      std::span<const Tokens> targets, std::int32_t begin, std::int32_t end) {
  const NoGrad no_grad;
  Context context = Context::inference();
  const TranslationBatch batch = make_translation_batch(sources, targets, begin, end, model.device());
  const Tensor memory = model.encode(batch.source, context),
               hidden = model.decode(batch.target, memory, batch.source.mask, context);
  const auto longest = static_cast<std::size_t>(hidden.size(1));
  std::vector<std::int32_t> expected(targets.size() * longest);  // what follows each token; padding: 0
  for (std::size_t row = 0; row < targets.size(); ++row) {
    std::copy(targets[row].begin(), targets[row].end(),
              expected.begin() + static_cast<std::ptrdiff_t>(row * longest));
    expected[row * longest + targets[row].size()] = end;
  }
  const Tensor ids =
      Tensor::from(expected, {static_cast<std::int64_t>(targets.size()), hidden.size(1), 1}, model.device());
  const std::vector<double> found =
      gather(model.log_probabilities(hidden, memory, batch.source, context), 2, ids).to_doubles();
  std::vector<double> sums;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i <= targets[row].size(); ++i) sum += found[row * longest + i];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace heed
