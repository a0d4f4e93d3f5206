#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heed/apps/tasks/task.h"
#include "heed/base/fork.h"
#include "heed/training/checkpoint.h"

// Trained runs of any task, and their use from several threads.

namespace heed {

/// Options for opening a trained run.
struct RunOptions {
  std::string device = {};  ///< a name for find_device(); "": the device in the run's settings
  /// "best": weights of the best evaluation; "last": of the last checkpoint; "initial": before
  /// training; "": best if the run was evaluated, otherwise last.
  std::string weights = {};
  std::string config = {};  ///< a JSON file of settings that override the run's; "": none
  /// Assignments that override `config`: "decoding.beam=1". Settings of the model cannot change.
  /// `threads` is recorded but not applied, because it affects the whole process; programs call
  /// set_cpu_threads().
  std::vector<std::string> settings = {};
  /// The input. Settings of how files are read are then refused if it does not use them.
  std::optional<Reads> reads = {};
  bool verify = true;  ///< false: also accept files changed after they were written
  /// Of a task that is not in the list; null: as recorded in the run.
  const TaskEntry* entry = nullptr;
};

/// A trained run of any task:
///
///   auto run = heed::Run::open("runs/subj");
///   for (const heed::Prediction& answer : run.predict(lines)) std::cout << answer.text << '\n';
///
/// Any number of threads may call predict(), outputs(), log_probabilities(), generate() and
/// stream() concurrently, with shared weights; in a recommend run these calls wait for each other.
/// The measure functions read data into the run, so they exclude all other calls. A run also works
/// in a child of fork(), unless it is on a GPU.
class Run {
 public:
  /// Opens a run with its settings, vocabulary and weights. Throws an Error if there is no run or a
  /// file is missing, damaged or from another run, and a SettingsError for invalid options.
  static Run open(const std::filesystem::path& folder, const RunOptions& options = {});

  std::string_view task_name() const { return task_->entry().name; }
  const Settings& settings() const { return task_->settings(); }
  /// The task instance, for functions that only some tasks have.
  Task& task() { return *task_; }

  /// Returns a prediction for each line. Throws an Error naming a line that is not UTF-8 or, unless
  /// `return_errors` is set, that cannot be answered, such as a blank one.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options = {}) const;
  std::vector<Prediction> predict(const std::vector<std::string>& lines,
                                  const PredictOptions& options = {}) const {
    return predict(std::span(lines), options);
  }
  /// Returns the raw outputs of the model for lines (HasOutputs). Throws an Error
  /// for a line that is not UTF-8.
  Tensor outputs(std::span<const std::string> lines, Context& context) const;
  /// Returns the log-probability [B] of each target, given its line
  /// (TextToTextTask::target_log_probabilities).
  Tensor log_probabilities(std::span<const std::string> lines, std::span<const std::string> targets,
                           Context& context) const;
  /// Returns the hidden states f32 [B, N, width] of each line, padded at the end, of a language model or an
  /// encoder; see Task::reader(). Throws an Error for a run that does not read texts one by one.
  Tensor hidden(std::span<const std::string> lines, Context& context) const;
  /// Answers one line with a task that generates text. `on_text` receives the answer in pieces, on
  /// the calling thread, as soon as they are final: token by token for greedy search and sampling,
  /// and once all hypotheses agree for beam search. The joined pieces equal the answer of
  /// predict() or, with options, of generate(). If `on_text` returns false, generation stops; the answer is
  /// the text so far, with probability 0.
  Prediction stream(const std::string& line, const OnText& on_text, TextGenerationOptions options = {}) const;
  /// Generates `samples` texts: continuations of a prompt, or for a task that maps a text to a
  /// text, answers to it. Greedy at temperature 0. The score of the only alternative of a text is
  /// its log-probability. Throws an Error for options out of range and for a prompt that the model
  /// cannot read.
  std::vector<Prediction> generate(const std::string& prompt,
                                   const TextGenerationOptions& options = {}) const;
  /// Returns the digest of a part of the run's own data, "valid", "test" or "train"; "" if there is
  /// none.
  std::string data_digest(std::string_view part) const { return files_->data_digest(part); }
  bool has_part(std::string_view part) const { return !data_digest(part).empty(); }
  /// Evaluates on a part of the run's own data: "valid", "test" or "train". Throws an Error if the
  /// data changed since training.
  Measurement measure(std::string_view part = "valid");
  /// Evaluates on other files, as many as the task's data takes: texts, or sources and targets.
  Measurement measure_files(std::span<const std::string> files);
  /// Evaluates on examples in memory.
  Measurement measure_examples(const Examples& examples);

 private:
  Run(std::unique_ptr<Task> task, std::shared_ptr<const RunFiles> files, MatmulPrecision precision)
      : task_(std::move(task)), files_(std::move(files)), precision_(precision) {}

  std::unique_ptr<Task> task_;
  std::shared_ptr<const RunFiles> files_;
  MatmulPrecision precision_;  // of answers
  std::unique_ptr<UseLock> use_ = std::make_unique<UseLock>();
};

/// Returns the settings of a run, on top of the task's defaults. Throws an Error for a run of
/// another task.
Settings run_settings(const TaskEntry& entry, const RunFiles& files);

struct QueueOptions {
  std::int64_t max_batch = 32;  ///< the most texts per forward pass, 1 to 65,536
  std::int64_t workers = 1;     ///< number of worker threads, 1 to 1,000
  bool return_errors = false;   ///< true: a text that cannot be answered gets its Prediction::error
};

/// Answers texts from many threads with one run, batching the texts that wait:
///
///   heed::AnswerQueue queue(run);
///   // in each thread of a server:
///   const heed::Prediction answer = queue.answer(text);
///
/// A worker takes the text that has waited longest and other waiting texts of similar length, up to
/// `max_batch`. If nothing else waits, a text is answered at once. Answers equal those of
/// Run::predict() for the single text, except for the last bits of probabilities, which depend on
/// padding and batch size; and except in runs with reformer or routing_transformer, in which the
/// texts of a batch affect each other's answers. A language_model run answers its lines one by one,
/// so more workers help it but larger batches do not. A child of fork() gets workers of its own.
class AnswerQueue {
 public:
  /// The run must outlive the queue. Throws an Error for options out of range.
  explicit AnswerQueue(const Run& run, const QueueOptions& options = {});
  /// No thread may be waiting in answer().
  ~AnswerQueue();
  AnswerQueue(const AnswerQueue&) = delete;
  AnswerQueue& operator=(const AnswerQueue&) = delete;

  /// Waits for the answer to a text. Throws an Error for a text that is not UTF-8 or, unless
  /// `return_errors` is set, that cannot be answered, and Interrupted if a StopCheck of the calling
  /// thread requests it; then the workers drop the text. Thread-safe.
  Prediction answer(const std::string& text);

 private:
  class Workers;
  const Run& run_;
  const QueueOptions options_;
  const std::unique_ptr<PerProcess<Workers>> workers_;
};

}  // namespace heed
