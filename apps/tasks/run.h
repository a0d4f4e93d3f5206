#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "heed/apps/tasks/learner.h"
#include "heed/training/checkpoint.h"

// Trained runs, of whatever task, and how many threads use one at once.

namespace heed {

/// How a trained run is opened.
struct RunOptions {
  std::string device = {};  ///< as find_device() has it; "": the one that the run names
  /// "best": of the best evaluation; "last": of the last checkpoint; "initial": as training began; "": best
  /// where the run has measured itself, else last.
  std::string weights = {};
  std::string config = {};  ///< a JSON file of settings, laid over the run's; "": none
  /// "decoding.beam=1", over that. None may change the model. `threads` is recorded and left to the program,
  /// whose whole process it is about (set_cpu_threads).
  std::vector<std::string> settings = {};
  bool verify = true;              ///< false: files that were changed after they were written are used anyway
  const TaskKind* kind = nullptr;  ///< of a task that is not in the list; null: the run says
};

/// A trained run, of whatever task:
///
///   auto run = heed::Run::open("runs/subj");
///   for (const heed::Prediction& answer : run.predict(lines)) std::cout << answer.text << '\n';
///
/// Any number of threads may call predict(), outputs(), log_probabilities(), generate() and stream() at once,
/// all with the same weights; only those of a recommend run wait for each other. measure() and its kin read
/// data into the run: they wait until no other call is under way, and others for them.
class Run {
 public:
  /// Opens a run with its settings, vocabulary and weights. Throws an Error when there is none, when a file
  /// is missing, damaged or of another run, and a SettingsError for options that make no sense.
  static Run open(const std::filesystem::path& folder, const RunOptions& options = {});

  std::string_view task() const { return learner_->kind().name; }
  const Settings& settings() const { return learner_->settings(); }
  /// The task at work, for what is its own.
  Learner& learner() { return *learner_; }

  /// One answer for each line. Throws an Error that names the line for one that is not UTF-8, and, unless
  /// `return_errors` asks for its Prediction::error, for one that cannot be answered.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options = {}) const;
  std::vector<Prediction> predict(const std::vector<std::string>& lines,
                                  const PredictOptions& options = {}) const {
    return predict(std::span(lines), options);
  }
  /// What the model computes for lines (Learner::outputs_of_lines). Throws an Error for one that is not
  /// UTF-8.
  Tensor outputs(std::span<const std::string> lines, Context& context) const;
  /// How likely targets are, given lines (Learner::log_probabilities_of): [B].
  Tensor log_probabilities(std::span<const std::string> lines, std::span<const std::string> targets,
                           Context& context) const;
  /// The answer to one line, of a task that writes texts: `on_text` gets it in pieces, in this thread, as
  /// soon as they are certain: of greedy search and sampling token by token, of beam search when all
  /// hypotheses agree. Together they are the answer's text, the same as predict() gives. When `on_text`
  /// returns false the answer is the text so far, with probability 0.
  Prediction stream(const std::string& line, const OnText& on_text) const;
  /// Texts that go on from a prompt, or for a task that writes a text for a text, answers to it: `samples` of
  /// them. Greedy with temperature 0. A text has its log-probability as the score of its only alternative.
  /// Throws an Error for options out of range and for a prompt that the model cannot read.
  std::vector<Prediction> generate(const std::string& prompt, const WritingOptions& options = {}) const;
  /// The digest of a part of the run's own data, "valid", "test" or "train"; "" where there is none.
  std::string data_digest(std::string_view part) const { return files_.data_digest(part); }
  bool has_part(std::string_view part) const { return !data_digest(part).empty(); }
  /// Measures on a part of the run's own data: "valid", "test" or "train". Throws an Error when that data is
  /// no longer what the run was made with.
  Measurement measure(std::string_view part = "valid");
  /// Measures on other files, as many as the task's data takes: texts, or sources and targets.
  Measurement measure_files(std::span<const std::string> files);
  /// Measures on examples in memory.
  Measurement measure_examples(const Examples& examples);

 private:
  Run(std::unique_ptr<Learner> learner, RunFiles files)
      : learner_(std::move(learner)), files_(std::move(files)) {}

  std::unique_ptr<Learner> learner_;
  RunFiles files_;
  std::unique_ptr<std::shared_mutex> use_ = std::make_unique<std::shared_mutex>();
};

/// The settings of a run in a folder, over the task's defaults. Throws an Error for a run of another task.
Settings settings_of_run(const TaskKind& kind, const RunFiles& files);

struct QueueOptions {
  std::int64_t max_batch = 32;  ///< the most texts that are answered in one pass, 1 to 65,536
  std::int64_t workers = 1;     ///< threads that answer, 1 to 1,000
  bool return_errors = false;   ///< true: a text that cannot be answered gets its Prediction::error
};

/// Answers the texts of many threads with one run, those that wait together in one pass:
///
///   heed::AnswerQueue queue(run);
///   // in each thread of a server:
///   const heed::Prediction answer = queue.answer(text);
///
/// A worker takes the text that has waited longest and those of like length that wait, too, up to
/// `max_batch`; while nothing waits a text is answered at once. An answer is that of Run::predict() to the
/// text alone, but for the last bits of probabilities, which follow from the padding and the size of a pass.
/// A language_model answers its lines one by one: there more workers help, not larger passes.
class AnswerQueue {
 public:
  /// The run must outlive the queue. Throws an Error for options out of range.
  explicit AnswerQueue(const Run& run, const QueueOptions& options = {});
  /// No thread may still ask.
  ~AnswerQueue();
  AnswerQueue(const AnswerQueue&) = delete;
  AnswerQueue& operator=(const AnswerQueue&) = delete;

  /// Waits for the answer. Throws an Error for a text that is not UTF-8 or, unless `return_errors`, cannot be
  /// answered, and Interrupted when a StopCheck of the calling thread says so. May be called from any thread.
  Prediction answer(const std::string& text);

 private:
  struct Question {
    std::string text;
    std::promise<std::optional<Prediction>> answer;
  };
  std::vector<Question> next_batch();
  void work();

  const Run& run_;
  const QueueOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> waiting_;
  bool ending_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace heed
