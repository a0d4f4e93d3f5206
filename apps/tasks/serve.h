#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "heed/apps/tasks/run.h"

namespace heed {

struct QueueOptions {
  std::int64_t max_batch = 32;  ///< the most texts that are answered in one pass, 1 to 65,536
  std::int64_t workers = 1;     ///< threads that answer, 1 to 1,000
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
  explicit AnswerQueue(Run& run, const QueueOptions& options = {});
  /// No thread may still ask.
  ~AnswerQueue();
  AnswerQueue(const AnswerQueue&) = delete;
  AnswerQueue& operator=(const AnswerQueue&) = delete;

  /// Waits for the answer. Throws what predict() throws for this text, and Interrupted when a StopCheck of
  /// the calling thread says so. May be called from any thread.
  Prediction answer(const std::string& text);

 private:
  struct Question {
    std::string text;
    std::promise<std::optional<Prediction>> answer;
  };
  std::vector<Question> next_batch();
  void work();

  Run& run_;
  const QueueOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> waiting_;
  bool ending_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace heed
