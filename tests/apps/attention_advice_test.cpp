// What heed says of its mechanisms, and which it advises to take.

#include "heed/apps/cli/attention_advice.h"
#include "heed/base/plain_numbers.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/made_part.h"
#include "heed/tests/program_runner.h"

namespace {

bool advises(const AdviceQuestion& question, std::string_view name) {
  return std::ranges::any_of(advise(question), [&](const AttentionNotes* one) { return one->name == name; });
}

std::string in_code(std::string_view name) {
  return concat_text('`', name, '`');
}

/// A row of a table in Markdown.
std::string row_of(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += concat_text(' ', cell, " |");
  return row + '\n';
}

/// Its head: titles, and the line below them.
std::string head_of(const std::vector<std::string>& titles) {
  std::string rule = "|";
  for (std::size_t i = 0; i < titles.size(); ++i) rule += "---|";
  return row_of(titles) + rule + '\n';
}

/// The tables of docs/explanation/experiments.md: accuracy, and cost, of every mechanism on every task.
std::string arena_markdown() {
  std::vector<std::string> titles{"accuracy, %"}, lowest{"the most frequent answer"},
      costs{"steps per second, MB"};
  for (const ArenaTask& task : arena_tasks()) {
    titles.emplace_back(task.name);
    costs.emplace_back(task.name);
    lowest.push_back(formatted("%.1f", task.chance));
  }
  titles.emplace_back("mean");
  double mean = 0;
  for (const ArenaTask& task : arena_tasks()) mean += task.chance / static_cast<double>(arena_tasks().size());
  lowest.push_back(formatted("%.1f", mean));
  std::string accuracy = head_of(titles) + row_of(lowest), cost = head_of(costs);
  for (const AttentionNotes& one : attention_notes()) {
    if (one.arena.empty()) continue;
    std::vector<std::string> cells{in_code(one.name)}, paid{in_code(one.name)};
    for (const ArenaResult& result : one.arena) {
      cells.push_back(formatted("%.1f ± %.1f", result.accuracy, result.deviation));
      const double speed = result.steps_per_second;
      paid.push_back(formatted(speed >= 100  ? "%.0f, "
                               : speed >= 10 ? "%.1f, "
                                             : "%.2f, ",
                               speed) +
                     formatted("%.0f", result.megabytes));
    }
    cells.push_back(formatted("%.1f", one.mean_accuracy()));
    accuracy += row_of(cells);
    cost += row_of(paid);
  }
  return accuracy + '\n' + cost;
}

/// The table of docs/explanation/which_attention.md: the first of advise() by length, form and task.
std::string decisions_markdown() {
  std::vector<std::string> titles{"", "by the mean"};
  for (const ArenaTask& task : arena_tasks()) titles.emplace_back(task.name);
  std::string table = head_of(titles);
  for (const bool causal : {false, true})
    for (const std::int64_t length : {1024, 4096}) {
      std::vector<std::string> cells{
          concat_text(length <= 1024 ? "up to 1,024 tokens" : "more tokens", causal ? ", causal" : "")};
      for (std::size_t task = 0; task < titles.size() - 1; ++task) {
        const std::string name = task == 0 ? "" : arena_tasks()[task - 1].name;
        const auto best = advise({.length = length, .causal = causal, .task = name});
        std::string cell;
        for (std::size_t i = 0; i < 3; ++i)
          cell += concat_text(i == 0 ? "" : ", ", in_code(best[i]->name), ' ',
                              formatted("%.1f", advised_accuracy(*best[i], name)));
        cells.push_back(cell);
      }
      table += row_of(cells);
    }
  return table;
}

}  // namespace

TEST_CASE("advice: every mechanism of heed has its notes, a line each, and figures") {
  for (std::size_t i = 0; i < attention_notes().size(); ++i) {
    const AttentionNotes& notes = attention_notes()[i];
    CAPTURE(notes.name);
    CHECK(notes.name == attention_variants()[i].name);
    for (const std::string& line : {notes.what, notes.when}) {
      CHECK(line.size() <= 92);
      CHECK(line.ends_with('.'));
    }
    CHECK(notes.when.starts_with("Use it "));
    CHECK((notes.arena.empty() || notes.arena.size() == arena_tasks().size()));
    for (const ArenaResult& result : notes.arena) {
      CHECK(result.accuracy > 0);
      CHECK(result.steps_per_second > 0);
      CHECK(result.megabytes > 0);
    }
  }
  // Only what an application registered comes after them.
  CHECK(attention_notes(attention_variants().front().name) == attention_notes().data());
  CHECK(attention_notes("no_such_mechanism") == nullptr);
}

TEST_CASE("advice: GFLOP go through the measured ones") {
  for (const AttentionNotes& notes : attention_notes()) {
    CAPTURE(notes.name);
    CHECK(notes.gflop(1024) == doctest::Approx(notes.gflop_1024).epsilon(0.1));  // none grows by less than N
    CHECK(notes.gflop(8192) == doctest::Approx(notes.gflop_8192));
    CHECK(notes.gflop(16384) >= 2 * notes.gflop(8192) * 0.999);
  }
}

TEST_CASE("advice: only those that can serve") {
  CHECK(advise({}).size() == attention_notes().size());
  CHECK(advises({}, "linformer"));
  CHECK_FALSE(advises({.causal = true}, "linformer"));
  CHECK(advises({.cross = true}, "linformer"));
  CHECK_FALSE(advises({.cross = true}, "local"));
  for (const AttentionNotes* const one : advise({.length = 4096, .causal = true}))
    CHECK(attention_variant(one->name).capabilities.causal);
}

TEST_CASE("advice: by accuracy while texts are short; where they are long, those of slow growth come first") {
  for (const std::string_view task : {"", "listops", "pixels"}) {
    CAPTURE(task);
    const auto at_short = advise({.length = 1024, .task = task}),
               at_long = advise({.length = 4096, .task = task});
    const auto better = [&](const AttentionNotes* a, const AttentionNotes* b) {
      return advised_accuracy(*a, task) > advised_accuracy(*b, task);
    };
    CHECK(std::ranges::is_sorted(at_short, better));
    const auto first_dear =
        std::ranges::find_if(at_long, [](const AttentionNotes* one) { return one->growth == "N^2"; });
    CHECK(first_dear != at_long.begin());
    CHECK(std::is_sorted(at_long.begin(), first_dear, better));
    CHECK(std::is_sorted(first_dear, at_long.end(), better));
    CHECK(std::all_of(first_dear, at_long.end(),
                      [](const AttentionNotes* one) { return one->growth == "N^2"; }));
  }
}

TEST_CASE("advice: questions that have no answer") {
  CHECK(error_of([] { advise({.task = "chess"}); }).find("'chess' among the measured tasks: listops, text") !=
        std::string::npos);
  CHECK(error_of([] { advise({.length = 0}); }).find("at least 1") != std::string::npos);
}

TEST_CASE("advice: a line and a reason for each") {
  const std::string text = advice_text({.length = 4096, .causal = true});
  CHECK(text.starts_with("mechanism "));
  CHECK(static_cast<std::size_t>(std::ranges::count(text, '\n')) ==
        1 + 2 * advise({.length = 4096, .causal = true}).size());
}

TEST_CASE("heed variants: notes below each mechanism, and advice") {
  const auto variants = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "variants");
    return run_program("heed", flags);
  };
  const std::string list = variants({}).output;
  for (const AttentionNotes& notes : attention_notes()) {
    CAPTURE(notes.name);
    CHECK(list.find(concat_text("    ", notes.what, "\n    ", notes.when, "\n")) != std::string::npos);
  }
  CHECK(variants({"--advise", "--length", "4096", "--causal", "--task", "text"}).output ==
        advice_text({.length = 4096, .causal = true, .task = "text"}));
  CHECK(variants({"--advise", "--causal", "--cross"}).status == 2);
  CHECK(variants({"--advise", "--task", "chess"}).errors.find("listops, text") != std::string::npos);
  CHECK(variants({"--length", "4096"}).status == 2);
}

TEST_CASE("advice: the table in docs is the one that the notes make") {
  check_made_part("docs/explanation/experiments.md", "arena", arena_markdown());
  check_made_part("docs/explanation/which_attention.md", "decisions", decisions_markdown());
}
