#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/data/large_text.h"
#include "heed/data/tokenizer.h"
#include "heed/tasks/example_learner.h"

// What language models of both objectives have in common: settings, texts, tokenizer, windows.

namespace heed {

/// Stands before every document of the stream that a model learns, so it begins a text and ends it.
inline const std::string text_mark = "<|endoftext|>";
/// Stands for a token that a masked model is to guess.
inline const std::string mask_token = "<mask>";

/// All settings of both objectives; the metrics are those that the best weights may be kept by.
Settings text_settings(bool own_data, std::span<const MetricKind> metrics);
/// True when the settings name a text; throws a SettingsError when they name half of it.
bool names_text(const Settings& settings);
/// Whether "objective" is masked.
bool is_masked(const Settings& settings);

/// Windows of model.max_length, as many as training.batch_tokens takes. Throws a SettingsError when it takes
/// none.
WindowOptions training_windows(const Settings& settings);

/// Throws an Error that names the characters of the text which the tokenizer does not know, if any.
void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what);

/// A learner of text: reads it, learns its tokens and cuts it into windows.
class TextLearner : public DataLearner<LargeText> {
 public:
  using DataLearner::DataLearner;

  /// The characters of all the text there is; words and BPE are learned from what is trained on.
  void learn_vocabulary() override;
  std::map<std::string, std::string> files() const override;
  void open_files(const std::function<std::string(std::string_view)>& read) override;
  void prepare_training() override;
  std::int64_t batches(std::int64_t epoch) override { return batches_.count(epoch); }
  /// Each line by itself; blank ones get no answer.
  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options) override;
  /// Lines of the text; a masked model gets a word of each to guess.
  std::vector<std::string> example_lines(std::size_t count) const override;

 protected:
  /// Throws an Error for a line that the model cannot read.
  virtual Prediction answer(const std::string& line, const PredictOptions& options) = 0;

  /// The stream of the documents: the mark and the text of each. `what` names them in errors, and in a remark
  /// on `<unk>`.
  TokenStream stream_of(const LargeText& documents, std::string_view what);
  std::vector<Window> windows_of(std::int64_t epoch, std::int64_t batch) { return batches_.at(epoch, batch); }
  /// True for a part of the embedded text, which follows a rule.
  bool has_rule(const LargeText& documents) const {
    return !names_text(settings_) && (&documents == &parts_.train || &documents == &parts_.valid);
  }

  std::optional<Tokenizer> tokenizer_;
  TokenStream train_{0}, valid_{0};    // nothing to measure with: empty
  std::int64_t valid_characters_ = 0;  // of the validation text, as far as progress is measured on it

 private:
  std::int64_t memory_bytes() const { return settings_.get<std::int64_t>("data.memory_bytes"); }
  DataParts<LargeText> read_parts(ReadReport& report) override;
  LargeText read(std::span<const std::string> files, ReadReport& report) override;
  std::string digest(const LargeText& text) const override;

  EpochBatches<WindowPlan> batches_;
};

}  // namespace heed
