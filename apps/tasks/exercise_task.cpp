#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/apps/tasks/language_model.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/models/language_model.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
using Exercises = std::vector<Exercise>;

/// A language model that answers exercises. For "compression" it answers from the output h of the last token
/// alone, with a map of h and a position p as in MAD (Poli et al. 2024, appendix B.1):
/// W2 gelu(W1 (h + p) + b1) + b2.
class ExerciseModel : public LanguageModel {
 public:
  ExerciseModel(const TransformerConfig& config, bool compresses)
      : LanguageModel(config), compresses_(compresses) {
    if (!compresses) return;
    Initialiser initialiser(static_cast<std::uint64_t>(config.seed) + 1);
    const std::int64_t width = config.width;
    positions_ = std::make_unique<Positions>("sinusoidal", 0, width, 0, initialiser);
    first_ = std::make_unique<Linear>(width, width, true, initialiser);
    second_ = std::make_unique<Linear>(width, width, true, initialiser);
    add_module("positions", *positions_);
    add_module("unpack_1", *first_);
    add_module("unpack_2", *second_);
  }

  /// Outputs [B, N, d] that hold the answers to the tokens.
  Tensor answers(const PaddedTokens& tokens, Context& context) {
    const Tensor h = hidden(tokens, context);
    if (!compresses_) return h;
    const std::int64_t length = h.size(1);
    const Tensor packed = slice(h, 1, length - 1, length) + (*positions_)(0, length, h);
    return Linear::through(*first_, UnaryOp::gelu, *second_, packed);
  }

 private:
  bool compresses_;
  std::unique_ptr<Positions> positions_;
  std::unique_ptr<Linear> first_, second_;
};

/// Exercises as a batch, with the answers that are asked for.
LanguageModelBatch exercise_batch(const Exercises& exercises, Device device) {
  std::vector<Tokens> tokens;
  Tokens ids, rows;
  for (const Exercise& exercise : exercises) tokens.push_back(exercise.tokens);
  LanguageModelBatch batch{pad_tokens(tokens, device), {}};
  const std::int64_t length = batch.input.ids.size(1);
  for (std::size_t i = 0; i < exercises.size(); ++i)
    for (std::size_t place = 0; place < exercises[i].answers.size(); ++place) {
      if (exercises[i].answers[place] < 0) continue;
      ids.push_back(exercises[i].answers[place]);
      rows.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) * length) +
                     static_cast<std::int32_t>(place));
    }
  const std::int64_t count = std::ssize(ids);
  batch.targets = {Tensor::from(ids, {count}, device), Tensor::from(rows, {count}, device), count};
  return batch;
}

class ExerciseTask : public Task, public HasOutputs {
 public:
  ExerciseTask(const TaskEntry& entry, Settings given)
      : Task(entry, std::move(given)),
        rule_(settings_.read<RuleData>("data")),
        data_(settings_.read<TextData>("data")),
        config_(model_config(settings_)) {
    unit_ = "answers";
  }

  void prepare_training() override {
    std::vector<std::int32_t> lengths;
    for (const Exercise& one : parts_.train) lengths.push_back(static_cast<std::int32_t>(one.tokens.size()));
    plan_batches({lengths, {}}, training_batches(settings_));
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const LanguageModelBatch exercises =
        exercise_batch(pick(parts_.train, batches_.at(epoch, batch)), network().device());
    return network().loss(network().answers(exercises.input, context), exercises.targets, label_smoothing_);
  }

  Evaluation evaluate() override {
    const std::int64_t most = sample() == 0 ? 0 : std::max<std::int64_t>(sample() / config_.max_length, 1);
    const Batch rows = spread_over(parts_.valid.size(), most);
    const Measurement found = measured_exercises(pick(parts_.valid, rows));
    return evaluation(found.metrics, rows.size(), parts_.valid.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return for_each_line(lines, [&](std::size_t i, Prediction& prediction) {
      const NoGrad no_grad;
      const std::vector<Tokens> tokens = {line_tokens(lines[i])};
      Context context = Context::inference();
      Capture capture;
      if (options.capture) context.capture = &capture;
      const Tensor logits =
          network().logits(network().answers(pad_tokens(tokens, network().device()), context));
      if (options.capture) options.capture->add(options.name_of(i), capture);
      const Tensor asked = select(logits, 0, 0);
      const std::vector<std::int32_t> best = contiguous(argmax(asked, -1)).to_vector<std::int32_t>();
      const std::vector<float> likely = max(softmax(asked, -1), {-1}).to_vector<float>();
      const std::size_t end = best.size() - (compresses() ? 1 : 0), begin = compresses() ? 0 : end - 1;
      prediction.probability = 1;
      for (std::size_t at = begin; at < end; ++at) {
        prediction.text += (prediction.text.empty() ? "" : " ") + std::to_string(best[at]);
        prediction.probability *= static_cast<double>(likely[at]);
      }
      prediction.alternatives = {{prediction.text, prediction.probability}};
    });
  }

  /// Returns the logits [B, N, V] of the answer to each token of each line.
  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    const auto all = inputs_of_lines(lines, [&](const std::string& line) { return line_tokens(line); });
    return network().logits(network().answers(pad_tokens(all, network().device()), context));
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < std::min(count, parts_.valid.size()); ++i) {
      std::string& line = lines.emplace_back();
      for (const std::int32_t token : parts_.valid[i].tokens) line += std::to_string(token) + " ";
      line.pop_back();
    }
    return lines;
  }

 protected:
  std::map<std::string, std::string> read_parts() override {
    // As with sentences, all seeds see the same exercises.
    std::uint32_t index = 0;
    const auto draw = [&](const ExerciseOptions& options, std::int64_t count) {
      Exercises drawn;
      while (std::ssize(drawn) < count) drawn.push_back(draw_exercise(options, 1, index++));
      return drawn;
    };
    parts_.valid = draw(rule_.exercise, data_.held_out_sentences);
    ExerciseOptions longer = rule_.exercise;
    if (tracks_state(longer)) longer.length = rule_.test_length;
    parts_.test = draw(longer, data_.held_out_sentences);
    for (Exercise& one : parts_.test)
      if (tracks_state(longer)) std::fill_n(one.answers.begin(), rule_.exercise.length, -1);
    parts_.train = draw(rule_.exercise, data_.sentences);
    return digests_of(parts_, [](const Exercises& part) {
      Digest digest;
      for (const Exercise& one : part)
        for (const Tokens& tokens : {one.tokens, one.answers})
          for (const std::int32_t token : tokens) add_text(digest, std::to_string(token));
      return digest.hex();
    });
  }
  NamedFiles learned_files() override { return {}; }
  void open(const ReadFile& /*read*/) override {}

  std::unique_ptr<Module> make_model() override {
    TransformerConfig config = config_;
    config.target_vocabulary = rule_.exercise.vocabulary;
    return model_of<ExerciseModel>(config, batch_tokens(), compresses());
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [](auto&&...) -> Exercises {
      throw SettingsError("a run with data.rule measures exercises that it makes: name a part, not a file");
    };
    return measured_data(parts_, source, read,
                         [&](const Exercises& part) { return measured_exercises(part); });
  }

 private:
  ExerciseModel& network() { return model_as<ExerciseModel>(); }
  bool compresses() const { return rule_.exercise.rule == "compression"; }

  Measurement measured_exercises(const Exercises& exercises) {
    const NoGrad no_grad;
    const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(4096 / config_.max_length, 1));
    const auto found = share_work<double>((exercises.size() + rows - 1) / rows, [&](std::size_t batch) {
      const auto begin = exercises.begin() + static_cast<std::ptrdiff_t>(batch * rows),
                 end = exercises.begin() +
                       static_cast<std::ptrdiff_t>(std::min(exercises.size(), (batch + 1) * rows));
      const LanguageModelBatch asked = exercise_batch({begin, end}, network().device());
      Context context = Context::inference();
      const Tensor outputs = network().answers(asked.input, context);
      return scored_targets(
          network().logits(index_select(reshape(outputs, {-1, outputs.size(2)}), 0, asked.targets.rows)),
          asked.targets);
    });
    double nats = 0, count = 0, right = 0;
    Measurement measurement;
    measurement.examples = {"accuracy", "mean", {}};
    for (const std::vector<double>& part : found) {
      nats += part[0], count += part[1], right += part[2];
      measurement.examples.rows.push_back({part[2], part[1]});
    }
    measurement.metrics = {{"accuracy", right / count, true}, {"loss", nats / count, false}};
    measurement.count = static_cast<std::int64_t>(count);
    Json json = {{"rule", rule_.exercise.rule}};
    for (const Metric& metric : measurement.metrics) json[metric.name] = metric.value;
    json["answers"] = measurement.count;
    measurement.json = json.dump();
    return measurement;
  }

  Tokens line_tokens(const std::string& line) const {
    Tokens tokens;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      std::int32_t token = -1;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      check(error == std::errc() && end == word.data() + word.size() && token >= 0 &&
                token < rule_.exercise.vocabulary,
            "'", word, "' is no token: the exercises consist of numbers from 0 to ",
            rule_.exercise.vocabulary - 1);
      tokens.push_back(token);
    }
    check(std::ssize(tokens) <= config_.max_length, "the line has ", tokens.size(),
          " tokens, but the model sees at most ", config_.max_length, " at a time (model.max_length)");
    return tokens;
  }

  const RuleData rule_;  // with all sizes
  const TextData data_;
  const TransformerConfig config_;  // without its vocabulary
  DataParts<Exercises> parts_;
};

constexpr const char* for_exercises = R"({
  "model": {"width": 64, "feed_forward": 128},
  "training": {"steps": 1000, "batch_tokens": 4096, "evaluate_every": 500, "schedule": {"learning_rate": 0.005}}})";

/// Sets the defaults of exercises, and what the rule leaves open. A state has no positions, since it must be
/// tracked beyond the trained length.
void complete_settings(Settings& settings) {
  if (names_file(settings)) throw SettingsError("data.rule makes the data: leave out data.file");
  if (settings.read<TextObjective>("").objective == TextObjective::Objective::masked)
    throw SettingsError("exercises are answered in order: data.rule needs objective=causal");
  if (settings.read<TextTraining>("training").short_share > 0)
    throw SettingsError("training.short_share cuts windows of a text: leave it out with data.rule");
  if (settings.read<TrainingSettings>("training").from.empty()) settings.change_defaults(for_exercises);
  RuleData rule = settings.read<RuleData>("data");
  try {
    rule.exercise = completed(rule.exercise);
  } catch (const Error& error) {
    throw SettingsError(concat_text("data.exercise: ", error.what()));
  }
  if (rule.test_length == 0) rule.test_length = 2 * rule.exercise.length;
  const bool is_state = tracks_state(rule.exercise);
  if (is_state && rule.test_length <= rule.exercise.length)
    throw SettingsError(concat_text("data.exercise.test_length is ", rule.test_length,
                                    "; it must be above data.exercise.length, ", rule.exercise.length));
  for (const auto& [name, value] : {std::pair("data.exercise.vocabulary", rule.exercise.vocabulary),
                                    {"data.exercise.length", rule.exercise.length},
                                    {"data.exercise.pairs", rule.exercise.pairs},
                                    {"data.exercise.test_length", rule.test_length}})
    settings.set(name, std::to_string(value), "data.rule");
  const std::int64_t longest = is_state ? rule.test_length : rule.exercise.length;
  if (!settings.setting("model.max_length").is_given)
    settings.set("model.max_length", std::to_string(longest), "data.rule");
  if (!settings.setting("model.positions").is_given)
    settings.set("model.positions",
                 is_state                            ? "none"
                 : rotary_obstacle(settings).empty() ? "rotary"
                                                     : "learned",
                 "data.rule");
}

}  // namespace

std::unique_ptr<Task> make_exercise_task(const TaskEntry& entry, Settings settings) {
  complete_settings(settings);
  return std::make_unique<ExerciseTask>(entry, std::move(settings));
}

}  // namespace heed
