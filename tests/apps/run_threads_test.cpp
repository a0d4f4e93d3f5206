// One run that several threads ask: each gets what it gets alone, by itself, through a queue that answers
// together what waits, and in pieces while a text is written.

#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
#include "heed/base/unicode.h"
#include "heed/tests/child_process.h"
#include "heed/tests/hostile/small_runs.h"

namespace {

using Lines = std::vector<std::string>;

/// A run of a task that was hardly trained, made once.
Run opened(const std::string& task, const Lines& settings = {}) {
  static const TemporaryFolder folder;
  const std::filesystem::path path = folder / task;
  const TaskEntry& entry = task_entry(task);
  if (!std::filesystem::exists(path))
    train_run(entry, small_settings_of(entry, {"training.steps=3", "training.evaluate_every=0"}), {path});
  return Run::open(path, {.settings = settings});
}

/// Some lines that the run can answer.
Lines lines_of(const std::string& task, std::size_t count) {
  Run run = opened(task);
  run.task().read_data();
  const Lines lines = run.task().example_lines(count);
  REQUIRE(lines.size() == count);
  return lines;
}

/// The words again and again, until there are so many bytes.
std::string long_text(const std::string& words, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += words;
  return text;
}

bool same_predictions(const Prediction& a, const Prediction& b) {
  return a.text == b.text && a.probability == b.probability && a.vector == b.vector && a.error == b.error &&
         std::ranges::equal(a.alternatives, b.alternatives, [](const auto& one, const auto& other) {
           return one.text == other.text && one.probability == other.probability && one.score == other.score;
         });
}

/// The same answer, whose numbers may differ as the padding of a pass makes them.
bool nearly_same(const Prediction& a, const Prediction& b) {
  const auto near = [](double x, double y) { return std::abs(x - y) <= 1e-5 * std::max(1.0, std::abs(x)); };
  if (!a.vector.empty())  // its text is these numbers
    return std::ranges::equal(a.vector, b.vector, [&](float x, float y) { return near(x, y); });
  const auto number = [](const std::string& text) {  // none is near to nothing
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return *end == '\0' ? value : std::nan("");
  };
  const bool same_text = a.text == b.text || near(number(a.text), number(b.text));
  return same_text && near(a.probability, b.probability) && a.error == b.error &&
         a.alternatives.size() == b.alternatives.size();
}

}  // namespace

TEST_CASE("run threads: many ask one run of every task, or a queue, and get what each gets alone") {
  for (const TaskEntry* entry : task_table()) {
    const std::string task(entry->name);
    CAPTURE(task);
    const Lines lines = lines_of(task, 8);
    std::vector<Prediction> alone;
    for (const std::string& line : lines) alone.push_back(opened(task).predict(Lines{line}).front());
    CHECK(alone[0].text != "");
    Run run = opened(task);
    AnswerQueue queue(run, {.max_batch = 4, .workers = 2});
    std::atomic<int> wrong = 0;
    at_once(8, [&](std::size_t i) {
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t line = (3 * i + k) % lines.size();
        if (!same_predictions(run.predict(Lines{lines[line]}).front(), alone[line])) ++wrong;
        if (!nearly_same(queue.answer(lines[line]), alone[line])) ++wrong;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("run threads: measuring waits for answers, and they for it") {
  const Lines lines = lines_of("classify", 1);
  const Prediction alone = opened("classify").predict(lines).front();
  const std::string measured = opened("classify").measure().json;
  Run run = opened("classify");
  std::atomic<int> wrong = 0;
  at_once(3, [&](std::size_t i) {
    for (int round = 0; round < 3; ++round)
      if (i == 0 ? run.measure().json != measured : !same_predictions(run.predict(lines).front(), alone))
        ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("run threads: texts that were cut are counted, whoever asked") {
  Run run = opened("classify", {"data.long_texts=cut"});
  const std::string line = lines_of("classify", 1).front(), longer = line + long_text(" " + line, 4000);
  run.task().take_remarks();
  at_once(4, [&](std::size_t) { run.predict(Lines{longer, longer, line}); });
  int cut = 0;
  for (const std::string& remark : run.task().take_remarks()) cut += std::stoi(remark);
  CHECK(cut == 8);
}

TEST_CASE("run threads: what a queue draws for a text does not follow from those beside it") {
  const Lines lines = lines_of("translate", 8);
  Run run = opened("translate", {"decoding.method=sample", "decoding.seed=3"});
  std::vector<Prediction> alone;
  for (const std::string& line : lines) alone.push_back(run.predict(Lines{line}).front());
  PredictOptions as_queue;
  as_queue.each_first = true;
  const std::vector<Prediction> together = run.predict(lines, as_queue);
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(nearly_same(together[i], alone[i]));
  const std::vector<Prediction> by_number = run.predict(lines);
  CHECK(std::ranges::equal(by_number, alone, nearly_same) == false);
  AnswerQueue queue(run);
  std::atomic<int> wrong = 0;
  at_once(8, [&](std::size_t i) {
    for (int round = 0; round < 3; ++round)
      if (!nearly_same(queue.answer(lines[i]), alone[i])) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("run threads: a text without an answer throws, or says why where errors are asked for") {
  const std::string line = lines_of("classify", 1).front(), longer = line + long_text(" " + line, 4000);
  Run run = opened("classify", {"data.long_texts=error"});
  const Lines lines = {line, line, longer, longer};
  const std::string error = error_of([&] { run.predict(lines); });
  CHECK(error.starts_with("predict: lines[2] cannot be answered: "));
  CHECK(contains(error, "data.max_tokens"));
  CHECK(contains(error, "the first of 2 such lines"));
  CHECK(error_of([&] { run.predict(lines, {.first_line = 1024}); }).starts_with("predict: lines[1026] "));
  const std::vector<Prediction> answers = run.predict(lines, {.return_errors = true});
  CHECK(contains(answers[2].error, "data.max_tokens"));
  CHECK(same_predictions(answers[0], run.predict(Lines{line}).front()));
  AnswerQueue throwing(run), returning(run, {.return_errors = true});
  CHECK_ERROR(throwing.answer(longer), "cannot be answered");
  CHECK(returning.answer(longer).error == answers[2].error);
  CHECK(throwing.answer(line).text == answers[0].text);
}

TEST_CASE("run threads: a text at fault fails alone") {
  const std::string line = lines_of("classify", 1).front();
  Run run = opened("classify");
  const Prediction alone = run.predict(Lines{line}).front();
  AnswerQueue queue(run);
  std::atomic<int> wrong = 0, refused = 0;
  at_once(8, [&](std::size_t i) {
    for (int round = 0; round < 8; ++round) {
      if (i % 4 == 1) {
        if (error_of([&] { queue.answer("\xff"); }).find("is not UTF-8") != std::string::npos) ++refused;
      } else if (!nearly_same(queue.answer(line), alone)) {
        ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
  CHECK(refused == 16);
  const StopCheck stops([] { return true; });
  CHECK_THROWS_AS(queue.answer(line), Interrupted);
  CHECK(error_of([&] { AnswerQueue(run, {.max_batch = 0}); }).find("max_batch") != std::string::npos);
  CHECK(error_of([&] { AnswerQueue(run, {.workers = 0}); }).find("workers") != std::string::npos);
}

TEST_CASE("run threads: a blank text has no answer, however it is asked") {
  for (const char* task : {"classify", "translate", "language_model", "embed_text"}) {
    CAPTURE(task);
    Run run = opened(task);
    AnswerQueue queue(run), returning(run, {.return_errors = true});
    for (const std::string text : {"", " \t"}) {
      const std::string error = "the text is blank";
      CHECK(contains(error_of([&] { run.predict(Lines{text}); }), error));
      CHECK(run.predict(Lines{text}, {.return_errors = true}).front().error == error);
      CHECK(contains(error_of([&] { queue.answer(text); }), error));
      CHECK(returning.answer(text).error == error);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("run threads: runs and queues also work in a forked child, whatever the parent's threads do") {
  for (const char* task : {"classify", "translate"}) {
    CAPTURE(task);
    const std::string line = lines_of(task, 1).front();
    Run run = opened(task);
    const Prediction alone = run.predict(Lines{line}).front();
    std::atomic<bool> ends = false;
    AnswerQueue queue(run, {.workers = 2}), unused(run);
    std::vector<std::thread> askers;
    for (int i = 0; i < 2; ++i)
      askers.emplace_back([&] {
        while (!ends) queue.answer(line);
      });
    for (int round = 0; round < 5; ++round)
      CHECK(status_of_fork([&] {
              AnswerQueue own(run);
              return nearly_same(queue.answer(line), alone) && nearly_same(own.answer(line), alone) &&
                     run.measure().count > 0;
            }) == 0);
    ends = true;
    for (std::thread& one : askers) one.join();
    CHECK(nearly_same(queue.answer(line), alone));
  }
}
#endif

TEST_CASE("run threads: texts are shown in pieces while they are written, in several threads") {
  const std::vector<std::pair<std::string, Lines>> cases = {
      {"translate", {"decoding.beam=1"}},
      {"translate", {"decoding.beam=4"}},
      {"summarize", {"decoding.method=sample"}},
      {"converse", {"decoding.beam=3", "decoding.early_stop=true"}},
      {"language_model", {"generation.temperature=2"}}};
  for (const auto& row : cases) {
    const auto& [task, settings] = row;
    CAPTURE_ALL(row.first, row.second[0]);
    const Lines lines = lines_of(task, 4);
    Run run = opened(task, settings);
    std::vector<Prediction> alone;
    for (const std::string& line : lines) alone.push_back(run.predict(Lines{line}).front());
    std::vector<Lines> pieces(lines.size());
    std::vector<Prediction> found(lines.size());
    at_once(lines.size(), [&](std::size_t i) {
      found[i] = run.stream(lines[i], [&](std::string_view piece) {
        pieces[i].emplace_back(piece);
        return true;
      });
    });
    std::size_t most = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string whole;
      for (const std::string& piece : pieces[i]) {
        CHECK(piece != "");
        CHECK(unicode::find_invalid(piece) == std::string::npos);
        whole += piece;
      }
      CHECK(whole == found[i].text);
      CHECK(same_predictions(found[i], alone[i]));
      most = std::max(most, pieces[i].size());
    }
    CHECK(most > 1);
    // One that has read enough ends the writing.
    int taken = 0;
    const Prediction ended = run.stream(lines[0], [&](std::string_view) { return ++taken < 1; });
    CHECK(taken == 1);
    CHECK(ended.probability == 0);
    CHECK(ended.text == pieces[0][0]);
  }
}

TEST_CASE("run threads: what cannot be shown in pieces says so") {
  const auto take = [](std::string_view) { return true; };
  const auto error = [&](const std::string& task, const Lines& settings, const std::string& line) {
    Run run = opened(task, settings);
    return error_of([&] { run.stream(line, take); });
  };
  CHECK(contains(error("classify", {}, "[ MAX 1 2 ]"), "generates no text"));
  CHECK(contains(error("translate", {"decoding.method=sample", "decoding.n_best=2"}, "one"), "n_best"));
}
