#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/data/batching.h"
#include "heed/data/tokenizer.h"
#include "heed/models/encoder_decoder.h"
#include "heed/tasks/data.h"
#include "heed/tasks/decoding.h"
#include "heed/tasks/learner.h"
#include "heed/training/bleu.h"

// What tasks have in common that read a text and write one: an encoder-decoder Transformer (models/encoder_decoder.h)
// over one vocabulary, learned from pairs. A task says where its pairs come from and how answers are measured.

namespace heed {

/// "data.max_tokens" and "data.long_sources", "decoding" and "evaluation.pairs".
void declare_text_to_text(Settings& settings, const SearchOptions& search = {});

/// Pairs as tokens, in batches of like length.
class TokenizedPairs {
 public:
  /// `tokenizer`: of the targets; `begin`: the mark that begins them.
  TokenizedPairs(const Tokenizer& tokenizer, std::int32_t begin, std::vector<Tokens> sources,
                 const TextList& targets, const BatchOptions& options);
  const BatchPlan& plan() const { return *plan_; }
  TranslationBatch batch(const Batch& rows, Device device) const {
    return make_translation_batch(pick(sources_, rows), pick(targets_, rows), begin_, end_, device);
  }
  std::vector<double> log_probabilities_of(EncoderDecoder& model, const Batch& rows) const {
    return log_probabilities(model, pick(sources_, rows), pick(targets_, rows), begin_, end_);
  }
  /// Of a target, its end mark included.
  std::int64_t target_tokens(std::int32_t row) const {
    return static_cast<std::int64_t>(targets_[static_cast<std::size_t>(row)].size()) + 1;
  }

 private:
  std::int32_t begin_, end_;
  std::vector<Tokens> sources_, targets_;
  std::optional<BatchPlan> plan_;
};

/// How likely the model takes a given target for its source.
struct TargetScore {
  double log_probability = 0;  ///< of all its tokens and the end mark, natural logarithm
  std::int64_t tokens = 0;     ///< how many these are
  double perplexity() const;   ///< exp(-log_probability / tokens)
};

class TextToTextLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override;
  void read_data() override;
  std::map<std::string, std::string> data_digests() const override;
  void learn_vocabulary() override;
  std::map<std::string, std::string> files() const override;
  void open_files(const std::function<std::string(std::string_view)>& read) override;
  void build(Device device) override;
  void prepare_training() override;

  Module& model() override { return *model_; }
  std::int64_t batches(std::int64_t epoch) override;
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override;
  /// Greedy, and of at most evaluation.pairs: validation is often, and the order of models hardly depends on that. The
  /// loss is that of all pairs.
  Evaluation evaluate() override;

  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options) override;
  Measurement measure(std::string_view part) override;
  Measurement measure_files(std::span<const std::string> files) override;

  std::vector<std::string> example_lines(std::size_t count) const override;

  /// The pairs of files, named as measure_files() has it; an Error where blank lines were left out.
  ParallelText read_files(std::span<const std::string> files);
  /// How likely each target is. Records no gradient.
  std::vector<TargetScore> score(const ParallelText& pairs);

 protected:
  /// What answers are worth beside what was expected.
  struct Quality {
    std::vector<double> values;  ///< of the kind's metrics, in their order
    std::string json;            ///< an object: these by name, and what else there is to say
    ExampleStatistics examples = {};
  };

  // --- what a task says for itself
  virtual PairParts made_by_rule() const = 0;
  virtual PairParts named_parts(ReadReport& report);
  virtual ParallelText named_pairs(std::span<const std::string> files, ReadReport& report) const;
  /// `loss`: the mean over all target tokens, without label smoothing.
  virtual Quality quality(std::span<const std::string> answers, const ParallelText& pairs,
                          double loss) const = 0;
  /// What the model reads for a line of input; "" for one that says nothing.
  virtual std::string source_of(const std::string& line) const;
  /// Special tokens of sources beside those of every tokenizer.
  virtual std::vector<std::string> marks() const { return {}; }
  /// True where the end of a source that is too long matters more than its beginning.
  virtual bool keeps_end() const { return false; }

  PairParts parts_;

 private:
  TransformerConfig config(std::int64_t source_vocabulary, std::int64_t target_vocabulary) const;
  const Tokenizer& target_tokenizer() const { return target_tokenizer_ ? *target_tokenizer_ : *tokenizer_; }
  Decoding decoding() const;
  std::int32_t begin() const;
  void set_gamma();
  Tokens source_tokens(std::string_view source, std::int64_t limit);
  std::vector<Tokens> all_source_tokens(const TextList& sources, std::int64_t limit);
  std::int64_t answered_limit() const;
  void say_what_was_cut(const std::string& limit);
  std::string text_of(const Hypothesis& hypothesis) const;
  std::vector<Prediction> answers_to(std::span<const std::string> sources, const Decoding& decoding,
                                     const PredictOptions& options);
  double mean_loss(const ParallelText& pairs);
  Quality quality_of(const ParallelText& pairs, const Decoding& decoding, std::int64_t most);
  Measurement measurement_of(const ParallelText& pairs);
  void show_inside(std::int64_t line, const Tokens& source, const Tokens& target, CaptureFile& file);

  std::optional<Tokenizer> tokenizer_, target_tokenizer_;  // the second where targets have one of their own
  std::unique_ptr<EncoderDecoder> model_;
  std::optional<TokenizedPairs> pairs_;
  EpochBatches<BatchPlan> batches_;
  std::int64_t cut_lines_ = 0;
};

/// BLEU of all answers, and what each adds to it.
struct AnswersBleu {
  BleuScore score;
  ExampleStatistics examples;
};
AnswersBleu bleu_of_answers(std::span<const std::string> answers, std::span<const std::string> expected);

/// The learner of a run that writes a text for a text; throws an Error for another task's.
TextToTextLearner& text_to_text(Learner& learner);

}  // namespace heed
