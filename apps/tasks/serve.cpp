#include "heed/apps/tasks/serve.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace heed {
namespace {

/// Whether little is padded when the two are read in one pass.
bool are_alike(const std::string& a, const std::string& b) {
  return std::max(a.size(), b.size()) <= 2 * std::min(a.size(), b.size()) + 32;
}

}  // namespace

AnswerQueue::AnswerQueue(Run& run, const QueueOptions& options) : run_(run), options_(options) {
  checked_range("AnswerQueue: max_batch", options.max_batch, 1, 65'536);
  checked_range("AnswerQueue: workers", options.workers, 1, 1000);
  try {
    for (std::int64_t i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // fewer threads answer the same
    check(!workers_.empty(), "AnswerQueue: the system gives no thread to answer with");
  }
}

AnswerQueue::~AnswerQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

Prediction AnswerQueue::answer(const std::string& text) {
  std::future<std::optional<Prediction>> found;
  {
    Question question{text, {}};
    found = question.answer.get_future();
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(question));
  }
  changed_.notify_one();
  do check_stop();
  while (found.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready);
  if (std::optional<Prediction> answer = found.get()) return std::move(*answer);
  // What is wrong with one text is not the others' fault: each is answered alone, and its error thrown here.
  return run_.predict({&text, 1}).front();
}

/// Empty: the queue ends.
std::vector<AnswerQueue::Question> AnswerQueue::next_batch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
  std::vector<Question> batch;
  std::deque<Question> left;
  for (Question& one : waiting_) {
    const bool joins =
        std::ssize(batch) < options_.max_batch && (batch.empty() || are_alike(batch.front().text, one.text));
    if (joins)
      batch.push_back(std::move(one));
    else
      left.push_back(std::move(one));
  }
  waiting_ = std::move(left);
  return batch;
}

void AnswerQueue::work() {
  for (std::vector<Question> batch = next_batch(); !batch.empty(); batch = next_batch()) {
    std::vector<std::string> texts;
    for (const Question& one : batch) texts.push_back(one.text);
    std::vector<std::optional<Prediction>> answers(batch.size());
    try {
      std::ranges::move(run_.predict(texts, {.each_first = true}), answers.begin());
    } catch (const std::exception&) {  // whoever asked gets to know, see answer()
    }
    for (std::size_t i = 0; i < batch.size(); ++i) batch[i].answer.set_value(std::move(answers[i]));
  }
}

}  // namespace heed
