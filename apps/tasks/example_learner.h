#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/capture.h"
#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/learner.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/core/ranks.h"
#include "heed/data/batching.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/config.h"

// The frame of a task. A task says what it reads, what it loses, what it answers and what it shows; its
// data's parts, batches, scoring on several ranks, measuring, and answers line by line are here.

namespace heed {

/// A learner whose data come in three parts. Data has a size(): LabelledText, ParallelText, a list, ...
template <class Data>
class DataLearner : public Learner {
 public:
  using Learner::Learner;

  void read_data() override {
    ReadReport report;
    parts_ = read_parts(report);
    remark_on_reading(report);
  }

  std::map<std::string, std::string> data_digests() const override {
    std::map<std::string, std::string> digests;
    for (const char* part : {"train", "valid", "test"})
      if (part_of(part).size() > 0) digests[part] = digest(part_of(part));
    return digests;
  }

  Measurement measure(std::string_view part) override {
    const Data& data = part_of(part);
    check(data.size() > 0, "the ", part, " part of the run's data is empty: name files to measure on");
    return measurement_of(data);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    ReadReport report;
    const Data data = read(files, report);
    remark_on_reading(report);
    return measurement_of(data);
  }

 protected:
  /// The data of the settings, or what is made by rule where these name none.
  virtual DataParts<Data> read_parts(ReadReport& report) = 0;
  virtual Data read(std::span<const std::string> files, ReadReport& report) = 0;
  virtual std::string digest(const Data& data) const = 0;
  virtual Measurement measurement_of(const Data& data) = 0;

  const Data& part_of(std::string_view name) const {
    return name == "valid" ? parts_.valid : name == "test" ? parts_.test : parts_.train;
  }
  /// What a report shows examples of: held-out data where there are any.
  const Data& shown_data() const { return part_of(parts_.valid.size() > 0 ? "valid" : "train"); }

  DataParts<Data> parts_;
};

/// Lengths of examples, by which batches are put together: of the first side and, where there is one, of the
/// second.
using Lengths = std::array<std::vector<std::int32_t>, 2>;

/// A learner of examples: an encoder reads an Input, such as the tokens of a text, and is to answer its
/// Target. Inputs are read in batches of like lengths.
template <class Data, class Input, class Target>
class ExampleLearner : public DataLearner<Data> {
 public:
  using DataLearner<Data>::DataLearner;

  void learn_vocabulary() override {
    const TextSource texts = texts_of(parts_.train);
    this->choose_token_kind(texts);
    set_tokenizer(learn_tokenizer(settings_, texts));
  }
  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->tokenizer().to_json()}};
  }
  void open_files(const std::function<std::string(std::string_view)>& read) override {
    set_tokenizer(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"));
  }

  void prepare_training() override {
    train_ = examples_of(parts_.train);
    say_what_was_cut();
    valid_ = examples_of(parts_.valid);
    say_what_was_cut();
    plan_batches(training_lengths(train_), training_batches(settings_));
  }

  Tensor outputs_of_lines(std::span<const std::string> lines, Context& context) override {
    check(!lines.empty(), "outputs: there are no lines");
    std::vector<Input> inputs;
    for (const std::string& line : lines) inputs.push_back(input_of_line(line));
    prepare_outputs(inputs);
    return raw_outputs(inputs, context);
  }

  std::string unit() const override { return "texts"; }
  std::int64_t batches(std::int64_t epoch) override { return batches_.count(epoch); }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    return loss_of(pick(train_.inputs, rows), pick(train_.targets, rows), context);
  }

  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    return this->evaluation(measured(valid_, parts_.valid).metrics);
  }

  /// Blank lines get no answer; what is wrong with a line becomes its error.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    std::vector<Prediction> predictions(lines.size());
    std::vector<Input> inputs;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (is_blank(lines[i])) continue;
      try {
        inputs.push_back(input_of_line(lines[i]));
        places.push_back(i);
      } catch (const Error& error) {
        predictions[i].error = error.what();
      }
    }
    say_what_was_cut();
    std::vector<Prediction> answers = answers_to(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      predictions[places[i]] = std::move(answers[i]);
      const std::int64_t line = options.first_line + static_cast<std::int64_t>(places[i]);
      if (options.capture) show_inside(inputs[i], "lines." + std::to_string(line), *options.capture);
    }
    return predictions;
  }

 protected:
  struct Examples {
    std::vector<Input> inputs;
    std::vector<Target> targets;
  };
  /// What the model gives for an input: scores of classes, a vector, a number.
  using Output = std::vector<float>;

  // --- what it reads
  /// The texts that the tokenizer is learned from; the data outlive them.
  virtual TextSource texts_of(const Data& data) const = 0;
  virtual Examples examples_of(const Data& data) = 0;
  /// Throws an Error for a line that is no input.
  virtual Input input_of_line(const std::string& line) = 0;
  virtual Lengths lengths(const std::vector<Input>& inputs) const = 0;
  virtual Lengths training_lengths(const Examples& examples) const { return lengths(examples.inputs); }
  virtual void set_tokenizer(Tokenizer tokenizer) { tokenizer_.emplace(std::move(tokenizer), settings_); }
  /// How many texts were cut since the last call; "": none.
  virtual std::string take_cut_message() { return tokenizer_ ? tokenizer_->take_cut_message() : ""; }

  // --- what it loses
  /// Of a batch. A task whose loss depends on more than that, such as what is drawn, overrides loss()
  /// instead.
  virtual Loss loss_of(const std::vector<Input>& /*inputs*/, const std::vector<Target>& /*targets*/,
                       Context& /*context*/) {
    fail("the task ", this->kind().name, " has no loss");
  }

  // --- what it answers
  /// [B, ...]: B times as many numbers as an Output has.
  virtual Tensor outputs(const std::vector<Input>& inputs, Context& context) = 0;
  /// The same before it is normalised.
  virtual Tensor raw_outputs(const std::vector<Input>& inputs, Context& context) {
    return outputs(inputs, context);
  }
  /// Called with all inputs before their batches are read.
  virtual void prepare_outputs(const std::vector<Input>& /*inputs*/) {}
  virtual Prediction prediction_of(const Input& input, const Output& output) const = 0;
  virtual std::vector<Prediction> answers_to(const std::vector<Input>& inputs) {
    const std::vector<Output> outputs = outputs_of(inputs);
    std::vector<Prediction> answers;
    for (std::size_t i = 0; i < inputs.size(); ++i) answers.push_back(prediction_of(inputs[i], outputs[i]));
    return answers;
  }
  virtual Measurement measured(const Examples& examples, const Data& data) = 0;

  // --- what it shows
  /// The tokens of an input, a row for each text that is read by itself; none for what is no text.
  virtual std::vector<Tokens> rows_of(const Input& input) const = 0;
  /// One pass over an input in which the model shows its inside.
  virtual void show_inside(const Input& input, const std::string& name, CaptureFile& file) {
    const Capture capture = captured([&](Context& context) { outputs({input}, context); });
    const std::vector<Tokens> rows = rows_of(input);
    if (rows.empty()) return file.add(name, capture);
    add_pass(file, name, capture, rows, tokenizer_->tokenizer());
  }

  // --- what is done for it
  /// The output of each input, in their order. Inputs of like lengths are read together; ranks share the
  /// batches.
  std::vector<Output> outputs_of(const std::vector<Input>& inputs) {
    const NoGrad no_grad;
    std::vector<Output> all(inputs.size());
    if (inputs.empty()) return all;
    prepare_outputs(inputs);
    const Settings& settings = this->settings();
    const auto [first, second] = lengths(inputs);
    const BatchPlan plan(first, second,
                         evaluation_batches(settings.get<std::int64_t>("prediction.batch_size")));
    const std::vector<Batch> batches = plan.epoch(0);
    const auto found = deal_out_numbers<float>(this->ranks(), batches.size(), [&](std::size_t batch) {
      Context context = Context::inference();
      return outputs(pick(inputs, batches[batch]), context).template to_vector<float>();
    });
    for (std::size_t batch = 0; batch < batches.size(); ++batch) {
      const auto each = std::ssize(found[batch]) / std::ssize(batches[batch]);
      auto next = found[batch].begin();
      for (const std::int32_t row : batches[batch]) {
        all[static_cast<std::size_t>(row)].assign(next, next + each);
        next += each;
      }
    }
    return all;
  }

  Measurement measurement_of(const Data& data) override {
    const Examples examples = examples_of(data);
    say_what_was_cut();
    return measured(examples, data);
  }

  void plan_batches(const Lengths& lengths, const BatchOptions& options) {
    const BatchPlan plan(lengths[0], lengths[1], options);
    if (const std::string left_out = plan.left_out_message(); !left_out.empty()) this->remark(left_out);
    batches_.plan(plan);
  }

  void say_what_was_cut() {
    if (std::string cut = take_cut_message(); !cut.empty()) this->remark(std::move(cut));
  }

  std::int64_t vocabulary_size() const { return tokenizer_->tokenizer().vocabulary_size(); }

  /// The shape of the model, as the settings have it.
  TransformerConfig config(std::int64_t vocabulary, std::int64_t classes = 0) const {
    TransformerConfig config = model_config(this->trained());
    config.source_vocabulary = vocabulary;
    config.classes = classes;
    return config;
  }

  using DataLearner<Data>::parts_;
  using DataLearner<Data>::settings_;
  std::optional<BoundedTokenizer> tokenizer_;  // none: the inputs are no texts
  Examples train_, valid_;
  EpochBatches<BatchPlan> batches_;
};

/// The same where a Model reads texts, each by itself. Data are LabelledText or ParallelText.
template <class Model, class Data, class Target>
class TextExampleLearner : public ExampleLearner<Data, Tokens, Target> {
 public:
  using ExampleLearner<Data, Tokens, Target>::ExampleLearner;

  void check_settings() const override {
    this->kind().names_data(this->settings());
    check_model<Model>(this->config(300, classes()), this->batch_tokens());
  }
  void build(Device device) override {
    model_ =
        make_model<Model>(this->config(this->vocabulary_size(), classes()), this->batch_tokens(), device);
  }
  Module& model() override { return *model_; }

 protected:
  /// How many logits a classifier has.
  virtual std::int64_t classes() const { return 0; }

  std::string digest(const Data& data) const override { return digest_of(data); }
  TextSource texts_of(const Data& data) const override { return all_texts(data); }
  Tokens input_of_line(const std::string& line) override { return (*this->tokenizer_)(line); }
  Lengths lengths(const std::vector<Tokens>& texts) const override { return {lengths_of(texts), {}}; }
  std::vector<Tokens> rows_of(const Tokens& text) const override { return {text}; }

  std::unique_ptr<Model> model_;
};

}  // namespace heed
