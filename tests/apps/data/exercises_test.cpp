// Exercises made by rule: each answer is checked against what the sequence says.

#include "heed/apps/data/exercises.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
#include "heed/base/error.h"
#include "heed/tests/hostile/small_runs.h"

using namespace heed;
using namespace heed::test;

namespace {

/// Exercises of a rule whose tokens and answers were found to be in the vocabulary.
std::vector<Exercise> drawn(const ExerciseOptions& options, std::uint32_t count = 50) {
  std::vector<Exercise> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    all.push_back(draw_exercise(options, 7, i));
    const Exercise& one = all.back();
    REQUIRE(one.tokens.size() == one.answers.size());
    REQUIRE(std::ssize(one.tokens) <= options.length);
    for (std::size_t k = 0; k < one.tokens.size(); ++k) {
      REQUIRE((one.tokens[k] >= 0 && one.tokens[k] < options.vocabulary));
      REQUIRE((one.answers[k] >= -1 && one.answers[k] < options.vocabulary));
    }
    CHECK(std::ranges::count(one.answers, -1) < std::ssize(one.answers));
  }
  CHECK(all[0].tokens != all[1].tokens);
  CHECK(draw_exercise(options, 7, 0).tokens == all[0].tokens);
  CHECK(draw_exercise(options, 8, 0).tokens != all[0].tokens);
  return all;
}

ExerciseOptions options_of(const std::string& rule) {
  return completed({.rule = rule});
}

}  // namespace

TEST_CASE("exercises: mqar asks once for the value of each key") {
  for (const std::int64_t pairs : {1, 16, 64}) {
    const ExerciseOptions options = completed({.rule = "mqar", .pairs = pairs});
    CHECK(options.length == std::max<std::int64_t>(64, 4 * pairs));
    for (const Exercise& one : drawn(options, 20)) {
      REQUIRE(std::ssize(one.tokens) == options.length);
      std::map<std::int32_t, std::int32_t> values;
      for (std::size_t k = 0; k < static_cast<std::size_t>(2 * pairs); k += 2) {
        CHECK(one.answers[k] == -1);
        CHECK(values.emplace(one.tokens[k], one.tokens[k + 1]).second);
      }
      std::set<std::int32_t> asked;
      for (std::size_t k = static_cast<std::size_t>(2 * pairs); k < one.tokens.size(); ++k) {
        if (one.answers[k] < 0) continue;
        CHECK(one.answers[k] == values.at(one.tokens[k]));
        asked.insert(one.tokens[k]);
      }
      CHECK(std::ssize(asked) == pairs);
    }
  }
}

TEST_CASE("exercises: recall asks for values that were read after the same key") {
  for (const Exercise& one : drawn(options_of("recall"))) {
    std::map<std::int32_t, std::int32_t> values;
    for (std::size_t k = 0; k < one.tokens.size(); k += 2) {
      const bool is_last = k + 1 == one.tokens.size();
      const auto known = values.find(one.tokens[k]);
      CHECK(one.answers[k] == (known == values.end() ? -1 : known->second));
      if (!is_last)
        CHECK(values.try_emplace(one.tokens[k], one.tokens[k + 1]).first->second == one.tokens[k + 1]);
    }
    CHECK(one.answers.back() >= 0);
  }
  std::int64_t noise = 0, all = 0;
  for (const Exercise& one : drawn(options_of("noisy_recall"), 200)) {
    all += std::ssize(one.tokens);
    noise += std::ranges::count_if(one.tokens, [](std::int32_t token) { return token >= 16; });
  }
  CHECK(static_cast<double>(noise) / static_cast<double>(all) == doctest::Approx(0.2).epsilon(0.1));
  std::set<std::int64_t> answers;
  for (const Exercise& one : drawn(options_of("fuzzy_recall"), 200)) {
    CHECK(one.answers.back() >= 0);  // the key at the end was there before
    for (std::size_t k = 0; k + 1 < one.answers.size(); ++k)
      if (one.answers[k] >= 0) CHECK(one.answers[k] == one.tokens[k + 1]);
    std::int64_t asked = 0;
    while (one.answers[one.answers.size() - 1 - static_cast<std::size_t>(asked)] >= 0) ++asked;
    answers.insert(asked);
  }
  CHECK(answers == std::set<std::int64_t>{1, 2, 3});
}

TEST_CASE("exercises: copying, compression and memorization") {
  for (const Exercise& one : drawn(options_of("selective_copying"))) {
    Tokens read, asked;
    for (std::size_t k = 0; k < one.tokens.size(); ++k) {
      if (one.tokens[k] < 14) read.push_back(one.tokens[k]);
      if (one.answers[k] >= 0) asked.push_back(one.answers[k]);
    }
    CHECK(asked.size() == 16);
    CHECK(read == asked);
  }
  for (const Exercise& one : drawn(options_of("compression"))) {
    CHECK(one.answers.back() == -1);
    CHECK(std::equal(one.tokens.begin(), one.tokens.end() - 1, one.answers.begin()));
  }
  std::map<std::int32_t, std::int32_t> values;
  for (const Exercise& one : drawn(options_of("memorization"), 200))
    for (std::size_t k = 0; k + 1 < one.tokens.size(); k += 2)
      CHECK(values.try_emplace(one.tokens[k], one.answers[k + 1]).first->second == one.answers[k + 1]);
  std::set<std::int32_t> different;
  for (const auto& [key, value] : values) different.insert(value);
  CHECK(values.size() == 127);
  CHECK(different.size() == 127);
}

TEST_CASE("exercises: a state is that of all tokens so far") {
  for (const Exercise& one : drawn(options_of("parity"))) {
    int state = 0;
    for (std::size_t k = 0; k < one.tokens.size(); ++k) CHECK(one.answers[k] == (state ^= one.tokens[k]));
  }
  std::vector<std::array<int, 5>> all;
  std::array<int, 5> next = {0, 1, 2, 3, 4};
  do all.push_back(next);
  while (std::next_permutation(next.begin(), next.end()));
  for (const Exercise& one : drawn(options_of("s5"))) {
    std::array<int, 5> things = {0, 1, 2, 3, 4};
    for (std::size_t k = 0; k < one.tokens.size(); ++k) {
      for (int& thing : things)
        thing = all[static_cast<std::size_t>(one.tokens[k])][static_cast<std::size_t>(thing)];
      CHECK(all[static_cast<std::size_t>(one.answers[k])] == things);
    }
  }
}

TEST_CASE("exercises: sizes that a rule cannot have are refused") {
  CHECK_THROWS_WITH_AS(completed({.rule = "mqar", .length = 63}),
                       "exercises of the rule mqar need a length of at least 64, not 63", Error);
  CHECK_THROWS_WITH_AS(completed({.rule = "mqar", .vocabulary = 33}), doctest::Contains("at least 34"),
                       Error);
  CHECK_THROWS_WITH_AS(completed({.rule = "s5", .vocabulary = 100}), doctest::Contains("of 120, not 100"),
                       Error);
  CHECK_THROWS_WITH_AS(completed({.rule = "fuzzy_recall", .length = 20}), doctest::Contains("at least 21"),
                       Error);
  for (const std::string& rule : exercise_rules())  // the smallest
    for (std::int64_t length = 1;; ++length) {
      ExerciseOptions options{.rule = rule, .length = length};
      const bool has_pairs = rule == "mqar" || rule == "selective_copying";
      if (has_pairs) options.pairs = 1;
      if (rule != "parity" && rule != "s5") options.vocabulary = 16;
      try {
        options = completed(options);
      } catch (const Error&) {
        continue;
      }
      if (rule != "parity" && rule != "s5") drawn(options, 20);
      break;
    }
}

TEST_CASE("exercises: a run of each rule is trained, measured and asked") {
  const TaskEntry& entry = task_entry("language_model");
  for (const std::string& rule : exercise_rules()) {
    CAPTURE(rule);
    const TemporaryFolder folder;
    const std::string chosen = "data.rule=" + rule;
    std::string expected;
    for (const char* threads : {"threads=1", "threads=3"}) {
      const Settings settings = small_settings_of(
          entry, {chosen, threads, "data.sentences=60", "data.held_out_sentences=20", "training.steps=4"});
      apply_threads(settings);
      CHECK(train_run(entry, settings, {folder / threads}).finished);
      const std::string found = tensors_of(folder / threads / "model.safetensors");
      if (expected.empty()) expected = found;
      CHECK(found == expected);
    }
    Run run = Run::open(folder / "threads=1");
    const Measurement test = run.measure("test");
    REQUIRE(test.metrics.size() == 2);
    CHECK(test.metrics[0].name == "accuracy");
    CHECK(std::isfinite(test.metrics[1].value));
    if (rule == "s5") CHECK(test.count == 20 * 32);  // 64 tokens, of which those beyond 32 are asked
    const std::vector<std::string> lines = {"1 0 1", "-1", "1 x"};
    const std::vector<Prediction> answers = run.predict(lines, {.return_errors = true});
    CHECK(answers[0].error == "");
    CHECK(std::ranges::count(answers[0].text, ' ') == (rule == "compression" ? 1 : 0));
    CHECK(answers[1].error.find("'-1' is no token") != std::string::npos);
    CHECK(answers[2].error.find("'x' is no token") != std::string::npos);
  }
}

TEST_CASE("exercises: what contradicts a rule is refused before anything is written") {
  const TaskEntry& entry = task_entry("language_model");
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<std::string> settings, const char* reason) {
    CHECK_THROWS_WITH_AS(train_run(entry, small_settings_of(entry, settings), {folder / "run"}),
                         doctest::Contains(reason), Error);
    CHECK(!std::filesystem::exists(folder / "run"));
  };
  refused({"data.rule=mqar", "data.file=x.txt"}, "leave out data.file");
  refused({"data.rule=s5", "data.exercise.test_length=32"}, "above data.exercise.length, 32");
  refused({"data.rule=mqar", "data.exercise.length=10"}, "at least 64");
  refused({"data.rule=mqar", "objective=masked"}, "objective");
  refused({"data.rule=mqar", "training.short_share=0.5"}, "short_share");
}
