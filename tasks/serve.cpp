#include "heed/tasks/serve.h"

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

std::future<Prediction> AnswerQueue::ask(std::string text) {
  Question question{std::move(text), {}};
  std::future<Prediction> answer = question.answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(question));
  }
  changed_.notify_one();
  return answer;
}

Prediction AnswerQueue::answer(std::string text) {
  std::future<Prediction> answer = ask(std::move(text));
  do check_stop();
  while (answer.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready);
  return answer.get();
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
  for (std::vector<Question> batch = next_batch(); !batch.empty(); batch = next_batch())
    reply(std::move(batch));
}

void AnswerQueue::reply(std::vector<Question> questions) {
  std::vector<std::string> texts;
  for (const Question& one : questions) texts.push_back(one.text);
  PredictOptions options;
  options.each_first = true;
  std::vector<Prediction> answers;
  try {
    answers = run_.predict(texts, options);
  } catch (...) {
    if (questions.size() == 1) return questions.front().answer.set_exception(std::current_exception());
    for (Question& one : questions) {  // what is wrong with one is not the others' fault
      std::vector<Question> alone;
      alone.push_back(std::move(one));
      reply(std::move(alone));
    }
    return;
  }
  for (std::size_t i = 0; i < questions.size(); ++i) questions[i].answer.set_value(std::move(answers[i]));
}

}  // namespace heed
