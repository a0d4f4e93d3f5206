#include "heed/apps/tasks/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "heed/apps/tasks/example_files.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/text_to_text.h"
#include "heed/base/file.h"
#include "heed/base/unicode.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/pairs.h"

namespace heed {
namespace {

// --- opening

/// Applies the options to the settings of a run. Settings of the model and its training must not
/// change. A published model was not trained with its settings of training: they may be given, and
/// a remark says that nothing reads them.
std::vector<std::string> set_for_use(Settings& settings, const TaskEntry& entry, const RunOptions& options,
                                     bool is_published) {
  std::vector<const Setting*> given;
  std::vector<std::string> remarks;
  const auto check_changeable = [&](const Setting& one, const std::string& name, const std::string& origin) {
    if (is_published && one.name.starts_with("training."))
      remarks.push_back(
          concat_text(origin, ": \"", one.name, "\" is for training; using a model does not read it"));
    else if (one.changes == Changes::never || one.changes == Changes::on_resume)
      throw SettingsError(concat_text(origin, ": \"", name,
                                      "\" belongs to how the run was trained and cannot be changed "
                                      "afterwards"));
  };
  if (!options.config.empty()) {
    const Settings before = settings;
    settings.merge_file(options.config);
    for (const Settings::Declared& one : settings.declared())
      if (before.setting(one.name).value != one.value)
        given.push_back(&one), check_changeable(one, one.name, options.config);
  }
  for (const std::string& assignment : options.settings) {
    const std::string name = assigned_name(assignment);  // of a setting, a group, or an attention's option
    for (const Setting& one : settings.declared())
      if ((name + ".").starts_with(one.name + ".") || one.name.starts_with(name + "."))
        given.push_back(&one), check_changeable(one, name, assignment);
    settings.assign(assignment);
  }
  if (!options.reads) return remarks;
  const bool is_made = options.reads == Reads::parts && !entry.names_data(settings);
  for (const Setting* one : given) check_used(*one, is_made ? Reads::made : *options.reads);
  return remarks;
}

}  // namespace

Settings run_settings(const TaskEntry& entry, const RunFiles& files) {
  check(files.task() == entry.name, "this is a ", files.task(), " run, not one of ", entry.name);
  Settings settings = entry.settings(true);
  try {
    settings.merge(files.config(), "config.json");
    rebase_data_paths(settings, data_of_run, files.path());
  } catch (const SettingsError& error) {
    fail("the configuration of the run is damaged, or of another version: ", error.what());
  }
  return settings;
}

Run Run::open(const std::filesystem::path& folder, const RunOptions& options) {
  std::shared_ptr<const RunFiles> files = open_run(folder, options.verify);
  const TaskEntry& entry = options.entry ? *options.entry : task_entry(files->task());
  const Settings trained = run_settings(entry, *files);
  Settings settings = trained;
  const bool is_published = !path_exists(files->path() / "run.json");
  std::vector<std::string> remarks = set_for_use(settings, entry, options, is_published);
  if (!options.device.empty()) settings.set("device", options.device, "device");
  const Device device = device_of(settings);
  const auto precision = settings.read<RuntimeSettings>("").precision;
  if (precision != trained.read<RuntimeSettings>("").precision && dtype_in(precision) != DType::f32)
    throw SettingsError(concat_text("precision cannot be changed to ", name_of(precision),
                                    ": a run answers in f32, high or medium"));
  std::unique_ptr<Task> task = entry.make(std::move(settings));
  task->remark_all(files->remarks());
  task->remark_all(std::move(remarks));
  task->set_training_settings(trained);
  task->open_files([&](std::string_view name) { return files->text(name); });
  try {
    task->build(device);
  } catch (const SettingsError& error) {  // the caller may not override model settings
    fail("the configuration of the run is damaged, or does not fit this program: ", error.what());
  }
  if (options.weights == "initial")
    restore_start(*task, *files);
  else
    files->load_weights(task->model(), !options.weights.empty() ? options.weights
                                       : files->has_best()      ? "best"
                                                                : "last");
  const auto runtime = task->settings().read<RuntimeSettings>("");
  if (runtime.int8_weights) task->model().round_to_int8();
  if (runtime.bf16_weights) task->model().round_to_bf16();
  return Run(std::move(task), std::move(files), answer_precision_in(precision));
}

// --- using

namespace {

constexpr const char* diverged =
    ": its training has diverged; try a lower learning_rate or more warmup_steps";

Measurement finite(Measurement measurement) {
  if (const Metric* bad = first_not_finite(measurement.metrics))
    fail("the model gives a ", bad->name, " of ", bad->value, ", which is not finite", diverged);
  return measurement;
}

/// Returns the fault of an answer with numbers that are not finite; "" if there is none.
std::string describe_fault(const Prediction& answer) {
  std::vector<double> numbers(answer.vector.begin(), answer.vector.end());
  numbers.push_back(answer.probability);
  for (const Prediction::Alternative& one : answer.alternatives) numbers.push_back(one.probability);
  const auto bad = std::ranges::find_if_not(numbers, [](double value) { return std::isfinite(value); });
  return bad == numbers.end() ? ""
                              : concat_text("the model answers ", *bad, ", which is not finite", diverged);
}

bool is_empty(const Prediction& answer) {
  return answer.text.empty() && answer.alternatives.empty() && answer.vector.empty();
}

void check_utf8(std::span<const std::string> lines, std::string_view what, std::int64_t first_line = 0) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t at = unicode::find_invalid(lines[i]);
    check(at == std::string::npos, what, ": lines[", first_line + static_cast<std::int64_t>(i),
          "] is not UTF-8 at byte ", at + 1);
  }
}

void check_answered(std::span<const Prediction> answers, std::int64_t first_line) {
  const auto is_missing = [](const Prediction& one) { return !one.error.empty(); };
  const auto first = std::ranges::find_if(answers, is_missing);
  if (first == answers.end()) return;
  const auto missing = std::ranges::count_if(answers, is_missing);
  fail("predict: lines[", first_line + (first - answers.begin()), "] cannot be answered: ", first->error,
       missing > 1 ? concat_text(" (the first of ", missing, " such lines)") : "",
       "; leave it out, or set return_errors");
}

/// Returns the answer to a single text, or throws its error.
Prediction checked_answer(Prediction answer, std::string_view what) {
  check(answer.error.empty(), what, ": the text cannot be answered: ", answer.error);
  return answer;
}

}  // namespace

Measurement Run::measure_files(std::span<const std::string> files) {
  const UseLock::Alone alone(*use_);
  const WithMatmulPrecision products(precision_);
  return finite(task_->measured({"", files, settings()}));
}

Measurement Run::measure_examples(const Examples& examples) {
  const UseLock::Alone alone(*use_);
  const WithMatmulPrecision products(precision_);
  const ExampleFiles files(task_->entry(), {&examples, 1});
  const std::string path = files.path_of(examples);
  const Settings layout = example_layout(task_->entry(), settings());
  return finite(task_->measured({"", {&path, 1}, layout}));
}

std::vector<Prediction> Run::predict(std::span<const std::string> lines,
                                     const PredictOptions& options) const {
  check_utf8(lines, "predict", options.first_line);
  const auto use = use_->shared();
  const WithMatmulPrecision products(precision_);
  std::vector<Prediction> answers = task_->predict(lines, options);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    Prediction& answer = answers[i];
    std::string fault = is_empty(answer) && is_blank(lines[i]) ? "the text is blank" : describe_fault(answer);
    if (!answer.error.empty() || fault.empty()) continue;
    answer = {};
    answer.error = std::move(fault);
  }
  for (std::size_t i = 0; options.capture && i < answers.size(); ++i)
    options.capture->add_answer(
        concat_text("lines.", options.first_line + static_cast<std::int64_t>(i)),
        {lines[i], answers[i].error.empty() ? answers[i].text : answers[i].error, answers[i].probability});
  if (!options.return_errors) check_answered(answers, options.first_line);
  return answers;
}

Tensor Run::outputs(std::span<const std::string> lines, Context& context) const {
  check_utf8(lines, "outputs");
  const auto use = use_->shared();
  return as_interface<HasOutputs>(*task_, "the model of a ", task_name(),
                                  " run has no outputs for lines alone: use predict(), or "
                                  "log_probabilities() with targets")
      .line_outputs(lines, context);
}

Tensor Run::log_probabilities(std::span<const std::string> lines, std::span<const std::string> targets,
                              Context& context) const {
  check_utf8(lines, "log probabilities");
  check_utf8(targets, "log probabilities of targets");
  const auto use = use_->shared();
  return as_interface<TextToTextTask>(*task_, "a ", task_name(),
                                      " run has no targets whose probability could be computed")
      .target_log_probabilities(lines, targets, context);
}

Tensor Run::hidden(std::span<const std::string> lines, Context& context) const {
  check_utf8(lines, "hidden");
  const auto use = use_->shared();
  const WithMatmulPrecision products(precision_);
  const TextReader reader = task_->reader(false);
  Module& model = task_->model();
  check(reader.tokenizer && !dynamic_cast<PairMatcher*>(&model), "hidden: a ", task_name(),
        " run does not read texts one by one");
  std::vector<Tokens> rows;
  for (const std::string& line : lines) {
    check(!settings().has("tokenizer.between") || line.find('\t') == std::string::npos,
          "hidden: a tab separates two texts; give one");
    rows.push_back(reader.encode(line, true));
  }
  const PaddedTokens tokens = pad_tokens(rows, device_of(settings()));
  if (auto* const encoder = dynamic_cast<SequenceEncoder*>(&model)) return encoder->hidden(tokens, context);
  if (auto* const writer = dynamic_cast<LanguageModel*>(&model)) return writer->hidden(tokens, context);
  if (auto* const both = dynamic_cast<EncoderDecoder*>(&model)) return both->encode(tokens, context);
  fail("hidden: a ", task_name(), " run has no hidden states of texts");
}

Prediction Run::stream(const std::string& line, const OnText& on_text, TextGenerationOptions options) const {
  as_interface<GeneratesText>(*task_, "a ", task_name(),
                              " run generates no text that could be streamed; use predict()");
  check(options.samples == 1, "stream: samples is ", options.samples, "; one text can be streamed");
  TextPieces pieces(on_text);
  options.pieces = &pieces;
  const PredictOptions asked{.pieces = &pieces, .return_errors = true};
  try {
    Prediction answer = options.has_any() ? generate(line, options).front()
                                          : checked_answer(predict({&line, 1}, asked).front(), "stream");
    pieces.finish(answer.text);
    return answer;
  } catch (const TextPieces::Ended&) {
    Prediction so_far;
    so_far.text = pieces.shown();
    return so_far;
  }
}

std::vector<Prediction> Run::generate(const std::string& prompt, const TextGenerationOptions& options) const {
  check_utf8({&prompt, 1}, "generate");
  checked_range("generate: samples", options.samples, 1, 1024);
  if (options.max_tokens) checked_range("generate: max_tokens", *options.max_tokens, 1, 1'000'000);
  const auto use = use_->shared();
  const WithMatmulPrecision products(precision_);
  auto& task =
      as_interface<GeneratesText>(*task_, "a ", task_name(), " run generates no text; use predict()");
  std::vector<Prediction> texts = task.generate(prompt, options);
  for (const Prediction& text : texts)
    if (const std::string fault = describe_fault(text); !fault.empty()) fail("generate: ", fault);
  return texts;
}

Measurement Run::measure(std::string_view part) {
  if (part != "valid" && part != "test" && part != "train")
    throw SettingsError(concat_text("unknown part \"", part, "\" of the data: valid, test or train"));
  const UseLock::Alone alone(*use_);
  const WithMatmulPrecision products(precision_);
  task_->read_data();
  const auto now = task_->data_digests();
  const auto found = now.find(std::string(part));
  if (found == now.end())
    throw SettingsError(
        concat_text("a ", task_name(), " run has no ", part, " part: name a file to evaluate on"));
  if (files_->data_digest(part).empty())
    throw SettingsError(
        concat_text("the run is a published model without data of its own: name a file to evaluate on"));
  check(found->second == files_->data_digest(part), "the ", part,
        " part of the data has changed since training: the files or their order differ, so it may include "
        "training examples; name a file to evaluate on");
  return finite(task_->measured({part, {}, settings()}));
}

// --- using it from many threads

namespace {

/// Whether two texts have similar lengths, so that batching them needs little padding.
bool are_alike(const std::string& a, const std::string& b) {
  return std::max(a.size(), b.size()) <= 2 * std::min(a.size(), b.size()) + 32;
}

}  // namespace

/// The threads of one process, and the texts that wait for them.
class AnswerQueue::Workers {
 public:
  Workers(const Run& run, const QueueOptions& options) : run_(run), options_(options) {
    try {
      for (std::int64_t i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // fewer threads answer the same
      check(!threads_.empty(), "AnswerQueue: the system cannot start a worker thread");
    }
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& one : threads_) one.join();
  }

  /// Returns the answer of a worker; none if its batch failed.
  std::optional<Prediction> answer(const std::string& text) {
    const auto is_dropped = std::make_shared<std::atomic<bool>>(false);
    std::future<std::optional<Prediction>> found;
    {
      Question question{text, is_dropped, {}};
      found = question.answer.get_future();
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(question));
    }
    changed_.notify_one();
    try {
      do check_stop();
      while (found.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready);
    } catch (...) {
      *is_dropped = true;
      throw;
    }
    return found.get();
  }

 private:
  struct Question {
    std::string text;
    std::shared_ptr<std::atomic<bool>> is_dropped;  // nobody waits for the answer any more
    std::promise<std::optional<Prediction>> answer;
  };

  /// Returns the next batch of questions; empty: the queue is closing.
  std::vector<Question> next_batch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    std::vector<Question> batch;
    std::deque<Question> left;
    for (Question& one : waiting_) {
      const bool joins = std::ssize(batch) < options_.max_batch &&
                         (batch.empty() || are_alike(batch.front().text, one.text));
      if (joins)
        batch.push_back(std::move(one));
      else
        left.push_back(std::move(one));
    }
    waiting_ = std::move(left);
    return batch;
  }

  void work() {
    for (std::vector<Question> batch = next_batch(); !batch.empty(); batch = next_batch()) {
      std::vector<std::string> texts;
      for (const Question& one : batch) texts.push_back(one.text);
      std::vector<std::optional<Prediction>> answers(batch.size());
      try {
        const StopCheck check_stop([&] {
          return std::ranges::all_of(batch, [](const Question& one) { return one.is_dropped->load(); });
        });
        std::ranges::move(run_.predict(texts, {.each_first = true, .return_errors = true}), answers.begin());
      } catch (const std::exception&) {  // whoever asked gets to know, see AnswerQueue::answer()
      }
      for (std::size_t i = 0; i < batch.size(); ++i) batch[i].answer.set_value(std::move(answers[i]));
    }
  }

  const Run& run_;
  const QueueOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

AnswerQueue::AnswerQueue(const Run& run, const QueueOptions& options)
    : run_(run), options_(options), workers_(std::make_unique<PerProcess<Workers>>()) {
  checked_range("AnswerQueue: max_batch", options.max_batch, 1, 65'536);
  checked_range("AnswerQueue: workers", options.workers, 1, 1000);
  workers_->get(run_, options_);
}

AnswerQueue::~AnswerQueue() = default;

Prediction AnswerQueue::answer(const std::string& text) {
  std::optional<Prediction> answer = workers_->get(run_, options_).answer(text);
  // One bad text must not fail the others: each is answered alone, and its error is thrown here.
  if (!answer) answer = run_.predict({&text, 1}, {.return_errors = true}).front();
  return options_.return_errors ? std::move(*answer) : checked_answer(std::move(*answer), "answer");
}

}  // namespace heed
