#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/models/decoding.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/search.h"
#include "heed/text/batching.h"
#include "heed/text/tokenizer.h"
#include "heed/training/text_metrics.h"

// Shared code of tasks that map a text to a text: an encoder-decoder Transformer
// (models/encoder_decoder.h) over one vocabulary, learned from pairs. A task defines the source of
// its pairs and its metrics.

namespace heed {

/// Settings of generation with an encoder-decoder, by beam search or sampling.
struct Decoding {
  enum class Method { beam, sample } method = Method::beam;
  SearchOptions search = {};  ///< its length limits, marks and `best` also apply to sampling
  SamplingOptions sampling = {};
  std::uint64_t seed = 1;
  std::int64_t batch_size = 64, max_source_tokens = 1024;
};

void for_each_setting(auto&& visit, Decoding& decoding) {
  visit(decoding.method, "method", {"beam", "sample"},
        "beam: search for the most probable output; sample: draw it at random");
  SearchOptions& search = decoding.search;
  visit(search.beam, "beam", 1, 1024, "Beam size; 1: greedy");
  visit(search.best, "n_best", 1, 1024,
        "Number of outputs in JSON answers: at most the beam size, or any number of samples");
  visit(search.length_penalty, "length_penalty", 0, 100, "Exponent of the length penalty; 0: none");
  visit(search.length_ratio, "length_ratio", 0, 1000,
        "Most output tokens for each source token, plus decoding.length_extra");
  visit(search.length_extra, "length_extra", 0, 1e6,
        "Constant part of the output limit; see decoding.length_ratio");
  visit(search.early_stop, "early_stop", "Stop the search once `beam` hypotheses have ended");
  visit_sampling(visit, decoding.sampling, decoding.seed);
  visit(decoding.batch_size, "batch_size", 1, 1e6, "Number of sources per batch");
  visit(decoding.max_source_tokens, "max_source_tokens", 1, 1 << 24,
        "Most tokens of a source in use; longer sources are cut and reported");
}

/// The data settings of these tasks.
struct TextToTextData {
  std::int64_t max_tokens = 256;
  enum class LongSources { leave_out, cut } long_sources = LongSources::leave_out;
};
void for_each_setting(auto&& visit, TextToTextData& data) {
  visit(data.max_tokens, "max_tokens", 1, 1 << 24,
        "Most tokens of a side in training; longer pairs are left out and reported");
  visit(data.long_sources, "long_sources", {"leave_out", "cut"},
        "What happens to training pairs with a longer source: left out, or the source is cut");
}

struct TextToTextEvaluation {
  std::int64_t pairs = 0;
};
void for_each_setting(auto&& visit, TextToTextEvaluation& evaluation) {
  visit(evaluation.pairs, "pairs", 0, 1e9,
        "Validation pairs to answer in each evaluation; 0: all. The loss always covers all pairs");
}

struct TextToTextTokenizer {
  std::string begin = "<s>";
  bool separate = false;
};
void for_each_setting(auto&& visit, TextToTextTokenizer& tokenizer) {
  visit(tokenizer.begin, "begin", "Mark that begins an output");
  visit(tokenizer.separate, "separate", "Use a separate vocabulary for targets, in target_tokenizer.json");
}

/// Declares all settings above, and those of the tokenizer, the model and its training. `settings`
/// has those of the data.
void declare_text_to_text(Settings& settings, std::span<const MetricKind> metrics,
                          const SearchOptions& search = {});

/// Tokenized pairs; targets have no end mark.
struct TokenizedPairs {
  std::vector<Tokens> sources, targets;
  Lengths lengths() const { return {lengths_of(sources), lengths_of(targets, 1)}; }
};

/// The probability that the model assigns to a target, given its source.
struct TargetScore {
  double log_probability = 0;  ///< of all its tokens and the end mark, natural logarithm
  std::int64_t tokens = 0;     ///< their number
  double perplexity() const;   ///< exp(-log_probability / tokens)
};

class TextToTextTask : public Task, public GeneratesText {
 public:
  void prepare_training() override;
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override;
  /// Answers at most evaluation.pairs pairs by greedy search: evaluations are frequent, and this
  /// hardly changes the ranking of models. The loss covers all pairs.
  Evaluation evaluate() override;

  TextReader reader(bool of_outputs) const override;
  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options) override;
  std::vector<Prediction> generate(const std::string& prompt, const TextGenerationOptions& options) override;
  /// Returns log p(target | line) for each pair, [B], natural logarithm, including the end of the
  /// target. Tracked.
  Tensor target_log_probabilities(std::span<const std::string> lines, std::span<const std::string> targets,
                                  Context& context);

  /// Reads the pairs of files, a table, or sources and targets. Throws an Error if blank lines were
  /// left out.
  ParallelText read_files(std::span<const std::string> files);
  /// Returns the probability of each target. Records no gradient.
  std::vector<TargetScore> score(const ParallelText& pairs);
  Measurement measured(const MeasureSource& source) override;
  std::vector<std::string> example_lines(std::size_t count) const override;
  /// Returns at most `count` pairs of the data, held out if possible.
  ParallelText example_pairs(std::size_t count) const;

 protected:
  struct Traits {
    std::int64_t max_epochs = 0;          ///< the most if the user set no steps; 0: no limit
    std::vector<std::string> marks = {};  ///< special tokens of sources, besides the usual ones
    bool keeps_end = false;               ///< cuts long sources at the beginning, not at the end
  };
  TextToTextTask(const TaskEntry& entry, Settings settings, Traits traits);

  // --- implemented by each task; by default, pairs are those of PairFiles

  virtual PairParts parts_made_by_rule() const = 0;
  virtual PairParts named_parts(ReadReport& report) const { return read_pair_parts(settings_, report); }
  virtual ParallelText read(const Settings& layout, std::span<const std::string> files,
                            ReadReport& report) const {
    return read_pairs(layout, files, report);
  }
  /// Returns the model's source for a line of input; "" for a blank one.
  virtual std::string source_of(const std::string& line) const { return is_blank(line) ? "" : line; }
  /// Sets what the data decides about measuring, before training. `evaluated`: the validation pairs
  /// that evaluations answer.
  virtual void choose_measures(const ParallelText& /*train*/, const ParallelText& /*evaluated*/) {}
  /// Scores answers against references, with the task's metrics that apply to these pairs. `loss`:
  /// the mean over all target tokens, without label smoothing.
  virtual Measurement quality(std::span<const std::string> answers, const ParallelText& pairs,
                              double loss) const = 0;

  std::map<std::string, std::string> read_parts() override;
  NamedFiles learned_files() override;
  void open(const ReadFile& read) override;
  std::unique_ptr<Module> make_model() override;

 private:
  EncoderDecoder& network() { return model_as<EncoderDecoder>(); }
  const Tokenizer& target_tokenizer() const { return target_tokenizer_ ? *target_tokenizer_ : *tokenizer_; }
  void set_gamma();
  Tokens source_tokens(std::string_view source, std::int64_t limit);
  TokenizedPairs tokens_of(const ParallelText& pairs, std::int64_t source_limit);
  TranslationBatch make_pair_batch(const TokenizedPairs& pairs, const Batch& rows);
  std::int64_t answered_limit();
  void report_truncation(const std::string& limit);
  std::string text_of(std::span<const std::int32_t> tokens) const;
  std::vector<Prediction> answers_to(std::span<const std::string> sources, const Decoding& decoding,
                                     const PredictOptions& options);
  double mean_loss(const ParallelText& pairs);
  Measurement measure_quality(const ParallelText& pairs, const Decoding& decoding, std::int64_t most);
  void show_inside(const std::string& example, const Tokens& source, const Tokens& target, CaptureFile& file);

  const Traits traits_;
  const TextToTextData data_;
  const TextToTextTokenizer marks_;
  const std::int64_t evaluated_pairs_;
  Decoding decoding_;  // with its marks when the vocabulary is open
  PairParts parts_;
  std::optional<Tokenizer> tokenizer_, target_tokenizer_;  // the second where targets have one of their own
  TokenizedPairs pairs_;
  std::atomic<std::int64_t> cut_lines_ = 0;
};

/// BLEU of all answers, and the contribution of each.
struct AnswersBleu {
  BleuScore score;
  ExampleStatistics examples;
};
AnswersBleu bleu_of_answers(std::span<const std::string> answers, std::span<const std::string> expected);
/// Whether any text has four words, which BLEU needs for its longest n-grams.
bool has_four_words(const TextList& texts);

/// Returns the task of a run as a text-to-text task. Throws an Error for another kind of
/// task.
TextToTextTask& text_to_text(Task& task);

}  // namespace heed
