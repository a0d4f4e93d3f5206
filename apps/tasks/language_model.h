#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/apps/data/exercises.h"
#include "heed/apps/data/large_text.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/models/decoding.h"
#include "heed/text/tokenizer.h"
#include "heed/training/perplexity.h"

// Language models with the causal and the masked objective.

namespace heed {

/// The mark before every document of the token stream. It begins and ends a text, unless
/// tokenizer.begin and tokenizer.end name other marks.
inline const std::string text_mark = "<|endoftext|>";
/// The mask token, which replaces a token that a masked model must predict.
inline const std::string mask_token = "<mask>";

// --- settings

struct TextObjective {
  enum class Objective { causal, masked } objective = Objective::causal;
};
void for_each_setting(auto&& visit, TextObjective& text) {
  visit(text.objective, "objective", {"causal", "masked"},
        "causal: each token is predicted from those before it, to write text; masked: hidden tokens are "
        "guessed from both sides, to fill in blanks and to understand text");
}

struct TextData {
  std::string file = {}, valid = {};
  enum class Format { text, jsonl } format = Format::text;
  double valid_fraction = 0.1;
  TextOptions text = {};
  std::int64_t memory_bytes = default_memory_bytes, sentences = 20000, held_out_sentences = 500;
};
void for_each_setting(auto&& visit, TextData& data) {
  visit(data.file, "file", "Training text: a file, plain or gzip, or a folder of files");
  visit(data.valid, "valid", "Validation text; empty: the end of data.file");
  visit(data.format, "format", {"text", "jsonl"},
        "text: each file is a document; jsonl: each line is a document, an object with a \"text\" member");
  visit(data.valid_fraction, "valid_fraction", 0, below_one,
        "Without data.valid: share of the characters to hold out for validation");
  for_each_setting(visit, data.text);
  visit(data.memory_bytes, "memory_bytes", 0, 0x1p63,
        "Bytes of a text, and of its tokens, to keep in memory; the rest goes to temporary files");
  visit(data.sentences, "sentences", 1, 1e8, "Without data: number of generated training examples");
  visit(data.held_out_sentences, "held_out_sentences", 1, 1e8,
        "Without data: number of generated held-out examples");
}

/// Data made by rule, for training without a text: sentences, or exercises (apps/data/exercises.h).
struct RuleData {
  ExerciseOptions exercise = {.rule = "sentences"};
  std::int64_t test_length = 0;
  bool has_exercises() const { return exercise.rule != "sentences"; }
};
void for_each_setting(auto&& visit, RuleData& data) {
  std::vector<std::string> rules = exercise_rules();
  rules.insert(rules.begin(), "sentences");
  visit(data.exercise.rule, "rule", rules,
        "Without data: sentences of English, or exercises in recalling, copying, memorizing or tracking a "
        "state");
  visit(data.exercise.vocabulary, "exercise.vocabulary", 0, 1 << 20,
        "Tokens of the exercises; 0: as in the rule's paper");
  visit(data.exercise.length, "exercise.length", 0, 1 << 20,
        "Length of an exercise; 0: as in the rule's paper");
  visit(data.test_length, "exercise.test_length", 0, 1 << 20,
        "parity and s5: length of the test exercises, of which the part beyond exercise.length counts; 0: "
        "twice "
        "that length");
  visit(data.exercise.pairs, "exercise.pairs", 0, 1 << 16,
        "mqar: keys with their values; selective_copying: tokens to copy; 0: 16");
  visit(data.exercise.noise, "exercise.noise", 0, below_one,
        "noisy_recall: share of the pairs that is noise");
}

struct TextTokenizer {
  std::int64_t training_bytes = std::int64_t{1} << 28;
  BeginMark mark = {
      .help =
          "Mark before every text, such as <s>; the end mark then only ends texts. masked: mark before every "
          "line to fill in, such as [CLS], which the end mark then closes; empty: none"};
  std::string end = {};
  std::vector<std::string> more_ends = {};
};
void for_each_setting(auto&& visit, TextTokenizer& tokenizer) {
  visit(
      tokenizer.training_bytes, "training_bytes", 1, 0x1p63,
      "bpe and words: bytes at the beginning of the text to learn the vocabulary from, rounded up to pieces");
  for_each_setting(visit, tokenizer.mark);
  visit(tokenizer.end, "end",
        "Mark that ends a text, if it is not <|endoftext|>, </s> or another usual name");
  visit(tokenizer.more_ends, "more_ends", "Further tokens that end a generated text",
        {.changes = Changes::at_any_time});
}

struct TextTraining {
  double short_share = 0, mask_share = 0.15;
};
void for_each_setting(auto&& visit, TextTraining& training) {
  visit(training.short_share, "short_share", 0, 1,
        "First share of the training, whose windows are cut in two");
  visit(training.mask_share, "mask_share", 0.001, 1, "masked: share of the tokens to predict");
}

struct MaskedPrediction {
  std::int64_t best = 5;
};
void for_each_setting(auto&& visit, MaskedPrediction& prediction) {
  visit(prediction.best, "best", 1, 1000, "masked: number of alternative fillings of a line in JSON answers");
}

struct TextEvaluation {
  std::int64_t characters = 1'000'000, stride = 0, sentences = 200;
};
void for_each_setting(auto&& visit, TextEvaluation& evaluation) {
  visit(evaluation.characters, "characters", 0, 0x1p63,
        "Characters of the validation text to evaluate on during training, from the beginning; 0: all");
  visit(evaluation.stride, "stride", 0, 1 << 24,
        "Tokens between windows: each token is predicted from at least context - stride others; 0: half the "
        "context");
  visit(evaluation.sentences, "sentences", 0, 100'000,
        "After training on generated text: number of sentences to generate and check against its rule");
}

/// Settings of text generation.
struct Generation {
  GenerationOptions options = {.sampling = {}, .tokens = 500};
  std::int64_t samples = 1;
  bool past_end = false;
  std::vector<std::string> stop = {};
};
void for_each_setting(auto&& visit, Generation& generation) {
  visit_sampling(visit, generation.options.sampling, generation.options.seed);
  visit(generation.options.tokens, "tokens", 1, 1e6, "Most tokens to add to the prompt");
  visit(generation.samples, "samples", 1, 1e6, "Number of texts to generate");
  visit(generation.past_end, "past_end", "Write on past the tokens that end a text");
  visit(generation.stop, "stop", "Texts that end a generated text, before which it is cut",
        {.changes = Changes::in_use});
}

/// Returns windows of model.max_length tokens, as many per batch as training.batch_tokens allows.
/// Throws a SettingsError if it allows none.
WindowOptions training_windows(const Settings& settings);

/// Throws an Error naming characters of the text that the tokenizer cannot encode, if any.
void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what);

// --- both objectives

/// Returns the loss of logits [count, V] in nats, the number of targets, and how many have the largest logit.
std::vector<double> scored_targets(const Tensor& logits, const Targets& targets);

/// Reads the texts, learns the tokenizer and cuts the token stream into windows.
class TextTask : public Task, public HasOutputs {
 public:
  TextTask(const TaskEntry& entry, Settings settings);

  /// Converts the parts to token streams and plans the windows.
  void prepare_training() override;
  std::int64_t batches(std::int64_t epoch) override { return windows_.count(epoch); }
  Measurement measured(const MeasureSource& source) override;
  TextReader reader(bool /*of_outputs*/) const override {
    return {&*tokenizer_, [this](const std::string& text, bool marks) { return encoded(text, marks); }};
  }
  /// Returns some lines, each cut to what the model reads.
  std::vector<std::string> example_lines(std::size_t count) const override;

 protected:
  /// Reads the parts that the settings name; without validation data, holds out a share of the
  /// characters at the end.
  std::map<std::string, std::string> read_parts() override;
  /// Returns the tokenizer of the settings. Characters are collected from all parts; words and BPE
  /// are learned from the training part.
  NamedFiles learned_files() override;
  void open(const ReadFile& read) override;
  /// Returns the tokens of a text; with `marks` also a begin mark that it lacks, and a masked model's marks.
  Tokens encoded(const std::string& text, bool marks) const;
  /// Measures a text; `by_rule`: it is the built-in one.
  virtual Measurement measured_text(const LargeText& documents, bool by_rule) = 0;

  /// Returns the windows of a batch. Early in training each is cut in two (training.short_share).
  std::vector<Window> windows_at(std::int64_t epoch, std::int64_t batch);
  /// Returns the token stream of documents, each after its mark. `what` names them in errors and in
  /// a remark on `<unk>`.
  TokenStream tokenize_stream(const LargeText& documents, std::string_view what);
  /// The mark that ends a text. Throws an Error if the tokenizer does not have it.
  std::int32_t end_mark() const;
  std::int64_t vocabulary_size() const { return tokenizer_ ? tokenizer_->vocabulary_size() : 300; }

  const TransformerConfig config_;  // without its vocabulary
  const TextData data_;
  const TextTokenizer marks_;
  const TextTraining text_training_;
  const TextEvaluation evaluation_;
  std::optional<Tokenizer> tokenizer_;
  Tokens begin_;                       // the mark before a text that is to be continued, or none
  TokenStream train_{0}, valid_{0};    // `valid_` is empty without validation data
  std::int64_t valid_characters_ = 0;  // of the text of `valid_`

 private:
  LargeText read(const std::string& file, const TextData& layout, ReadReport& report) const;
  std::int64_t short_batches() const;

  DataParts<LargeText> parts_;
  EpochBatches<WindowPlan> windows_;
  std::int64_t batches_per_epoch_ = 0;
};

// --- the causal objective

/// The task with the causal objective, which generates text.
class TextWriter : public TextTask, public GeneratesText {
 public:
  TextWriter(const TaskEntry& entry, Settings settings);

  void prepare_training() override;
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override;
  Evaluation evaluate() override;

  /// Returns a continuation for each line; blank lines get none.
  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options) override;
  /// Returns the logits [B, N, V] of the next token after each token of each line.
  Tensor line_outputs(std::span<const std::string> lines, Context& context) override;
  /// Throws an Error for a prompt that the model cannot read.
  void check_prompt(const std::string& prompt) const { prompt_tokens(prompt); }
  /// Returns `samples` continuations of a prompt; text i depends only on the prompt, the settings
  /// and i. An empty prompt means the mark that begins a text, or a line break if there is none.
  /// Throws an Error for a prompt that the model cannot read.
  std::vector<Prediction> write(const std::string& prompt, std::int64_t samples,
                                const PredictOptions& options) {
    return write(prompt, samples, options, generation_, stop_);
  }
  std::vector<Prediction> generate(const std::string& prompt, const TextGenerationOptions& options) override;

 protected:
  void open(const ReadFile& read) override;
  std::unique_ptr<Module> make_model() override;
  Measurement measured_text(const LargeText& documents, bool by_rule) override;

 private:
  std::vector<Prediction> write(const std::string& prompt, std::int64_t samples,
                                const PredictOptions& options, GenerationOptions generation,
                                const std::vector<std::string>& stop, bool marks = true);
  double share_by_rule(std::int64_t count);
  std::string continuation(const Tokens& prompt, std::span<const std::int32_t> tokens) const;
  Tokens prompt_tokens(const std::string& given, bool marks = true) const;
  void show_inside(Tokens tokens, const std::string& name, CaptureFile& file);

  const TextLossOptions measured_windows_;
  GenerationOptions generation_;  // with its ends when the vocabulary is open
  const std::vector<std::string> stop_;
};

/// Returns the task of a language_model run as a TextWriter. Throws an Error for another task.
TextWriter& text_writer(Task& task);

// --- the masked objective (masked_language_model.cpp)

/// Creates the task of a language_model run with objective=masked: an encoder
/// (models/language_model.h) that predicts hidden tokens from both sides and fills in given lines.
/// It has model.decoder_layers layers of model.decoder_attention, which can be any mechanism that
/// can serve in an encoder.
///
/// Besides the loss of the hidden tokens it measures their accuracy and pseudo_perplexity,
/// exp(loss). This is not a perplexity, because the model sees most of the text.
std::unique_ptr<Task> make_masked_task(const TaskEntry& entry, Settings settings);

// --- exercises (exercise_task.cpp)

/// Returns why the decoder's attention cannot have rotary positions; "": it can.
std::string rotary_obstacle(const Settings& settings);

/// Creates the task of a language_model run with data.rule: a causal model that answers exercises. Its
/// lines are tokens as numbers, such as "3 12 3", and its prediction is the answer to the last token, or for
/// compression the tokens before it.
std::unique_ptr<Task> make_exercise_task(const TaskEntry& entry, Settings settings);

}  // namespace heed
