// Comparisons: their cells, their statistics, and the program, interrupted, with cells that fail, and given
// twice.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "heed/apps/compare/comparison.h"
#include "heed/base/file.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/page_json.h"
#include "heed/tests/run_records.h"
#include "heed/training/text_metrics.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

ComparisonPlan small_plan() {
  const TaskEntry& entry = task_entry("classify");
  return {entry, small_settings_of(entry), {}, {}, {1}};
}

ExampleStatistics accuracy_of(const std::vector<int>& right) {
  ExampleStatistics statistics{"accuracy", "mean", {}};
  for (const int one : right) statistics.rows.push_back({static_cast<double>(one), 1});
  return statistics;
}

ProgramResult run_compare(const Arguments& arguments, const std::string& input = {},
                          const fs::path& folder = ".") {
  return run_program("heed", joined({"compare"}, arguments), input, folder);
}

Arguments comparison_of(const fs::path& out, const Arguments& more) {
  return joined(joined({"--task", "classify", "--out", out.string()}, more), small_flags("classify"));
}

}  // namespace

TEST_CASE("comparison: every attention with every value of the grid and every seed") {
  ComparisonPlan plan = small_plan();
  plan.attentions = {"dot_product", "linformer"};
  plan.settings = {{"model.width", {"16", "32"}}, {"model.heads", {"2"}}};
  plan.seeds = {1, 7};
  const std::vector<ComparisonCell> cells = plan_cells(plan);
  REQUIRE(cells.size() == 8);
  CHECK(cells[0].choice == "dot_product, model.width=16");
  CHECK(cells[1].choice == cells[0].choice);
  CHECK(cells[1].seed == 7);
  CHECK(cells[6].choice == "linformer, model.width=32");
  CHECK(cells[6].settings.get<std::int64_t>("model.width") == 32);
  CHECK(cells[6].settings.json("model.encoder_attention") == "\"linformer\"");
  std::set<std::string> names;
  for (const ComparisonCell& cell : cells) names.insert(cell.name);
  CHECK(names.size() == 8);

  plan.attentions = {"dot_product", "dot_product"};
  CHECK_THROWS_WITH_AS(plan_cells(plan), doctest::Contains("named twice"), SettingsError);
  plan.attentions = {"dot_prodcut"};
  CHECK_THROWS_WITH_AS(plan_cells(plan), doctest::Contains("dot_product"), SettingsError);
  plan.attentions = {};
  plan.settings = {{"model.width", {"16", "-3"}}};
  CHECK_THROWS_WITH_AS(plan_cells(plan), doctest::Contains("model.width"), SettingsError);
  plan.settings = {{"data.split_seed", std::vector<std::string>()}};
  for (int i = 0; i < 10'001; ++i) plan.settings[0].values.push_back(std::to_string(i));
  CHECK_THROWS_WITH_AS(plan_cells(plan), doctest::Contains("10000"), SettingsError);
}

TEST_CASE("comparison: choices are drawn from lists and ranges, each once, and the same again") {
  ComparisonPlan plan = small_plan();
  plan.settings = {{"training.schedule.learning_rate", {"1e-4", "1e-1"}, true},
                   {"model.heads", {"1", "2"}, true},
                   {"model.norm", {"pre", "post"}}};
  CHECK_THROWS_WITH_AS(plan_cells(plan), doctest::Contains("random="), SettingsError);
  plan.draws = 40;
  const std::vector<ComparisonCell> cells = plan_cells(plan);
  REQUIRE(cells.size() == 40);
  std::set<std::string> choices;
  int small = 0, one_head = 0;
  for (const ComparisonCell& cell : cells) {
    choices.insert(cell.choice);
    const auto rate = cell.settings.get<double>("training.schedule.learning_rate");
    CHECK((rate >= 1e-4 && rate <= 1e-1));
    small += rate < 3.2e-3 ? 1 : 0;  // the middle of the logarithms
    one_head += cell.settings.get<std::int64_t>("model.heads") == 1 ? 1 : 0;
  }
  CHECK(choices.size() == 40);
  CHECK((small > 10 && small < 30));
  CHECK((one_head > 10 && one_head < 30));
  CHECK(plan_cells(plan)[7].choice == cells[7].choice);
  plan.settings = {{"model.norm", {"pre", "post"}}};
  CHECK(plan_cells(plan).size() == 2);  // there are no more
  plan.draws = 10'000'000'000;
  CHECK(plan_cells(plan).size() == 2);
  plan.settings = {{"model.heads", {"0.5", "3.9"}, true}};
  CHECK(plan_cells(plan).size() == 3);
  plan.settings = {{"model.dropout", {"0.1", "0.9"}, true}};
  CHECK(plan_cells(plan).size() == 801);
  plan.settings.push_back({"training.label_smoothing", {"0.1", "0.9"}, true});
  CHECK_THROWS_WITH_AS(plan_cells(plan), doctest::Contains("at most 10000 cells"), SettingsError);
  plan.draws = 100;
  {
    const StopCheck stop([] { return true; });
    CHECK_THROWS_AS(plan_cells(plan), Interrupted);
  }
  // the ends are among what may be drawn, and nothing beyond them
  for (const auto& [low, high] :
       {std::pair("0.999", "0.9999"), std::pair("0.50009", "0.5001"), std::pair("0.00012345", "0.98765")}) {
    plan.settings = {{"model.dropout", {low, high}, true}};
    std::set<double> drawn;
    for (const ComparisonCell& cell : plan_cells(plan)) {
      const auto value = cell.settings.get<double>("model.dropout");
      CHECK((value >= std::stod(low) && value <= std::stod(high)));
      drawn.insert(value);
    }
    CHECK(drawn.size() > 50);
  }
  for (const ComparedSetting& bad : {ComparedSetting{"model.norm", {"pre", "post"}, true},
                                     {"model.dropout", {"0.5", "0.1"}, true},
                                     {"model.dropout", {"0.5", "inf"}, true},
                                     {"model.heads", {"1.1", "1.9"}, true},
                                     {"model.dropout", {"a", "0.1"}, true}}) {
    plan.settings = {bad};
    CHECK_THROWS_AS(plan_cells(plan), SettingsError);
  }
}

TEST_CASE("comparison: the folder of a cell has a short name of its own, which no other cell changes") {
  ComparisonPlan plan = small_plan();
  const std::string deep = std::string(300, 'x') + "/";
  plan.settings = {{"data.file", {}}, {"model.norm", {"pre", "post"}}};
  for (int i = 0; i < 105; ++i) plan.settings[0].values.push_back(concat_text(deep, i, ".csv"));
  for (const char* const like : {"a b", "a_b", "a/b", "a__b", "a, b"})
    plan.settings[0].values.emplace_back(like);
  const auto names_of = [&] {
    std::vector<std::string> names;
    for (const ComparisonCell& cell : plan_cells(plan)) names.push_back(cell.name);
    return names;
  };
  const std::vector<std::string> one_seed = names_of();
  REQUIRE(one_seed.size() == 220);
  CHECK(std::set(one_seed.begin(), one_seed.end()).size() == 220);
  for (const std::string& name : one_seed) CHECK(name.size() < 180);
  CHECK(one_seed.back().starts_with("data.file=a__b__model.norm=post-"));
  plan.seeds = {1, 2, 9'000'000'000'000'000'000};
  plan.settings[0].values.insert(plan.settings[0].values.begin(), "another");
  const std::vector<std::string> more = names_of();
  CHECK(std::set(more.begin(), more.end()).size() == 666);
  for (std::size_t i = 0; i < one_seed.size(); ++i) CHECK(more[3 * i + 6] == one_seed[i]);
  CHECK(more[3] == "data.file=another__model.norm=post-seed1");
}

TEST_CASE("comparison: the validation part chooses, and the table shows it beside the test part") {
  ComparisonPlan plan = small_plan();
  plan.settings = {{"model.width", {"16", "32"}}, {"model.norm", {"pre", "post"}}};
  plan.seeds = {1, 2};
  const std::vector<ComparisonCell> cells = plan_cells(plan);
  const auto results_of = [&](const char* part, bool has_valid) {
    std::vector<std::optional<CellResult>> results;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      CellResult& result = results.emplace_back().emplace();
      result.part = part;
      result.metrics = {{"accuracy", 0.9 - 0.1 * static_cast<double>(i), true}};
      if (has_valid)  // two choices are equal but for their loss
        result.validation = {{"accuracy", 0.05 * static_cast<double>(std::min<std::size_t>(i, 5)), true},
                             {"loss", 10 - static_cast<double>(i), false}};
    }
    results[4].emplace().failure = "out of memory";
    return results;
  };
  const std::string last = "model.width=32, model.norm=post";
  auto results = results_of("test", true);
  auto rows = comparison_rows(cells, results);
  CHECK(best_choices(rows).front() == last);
  CHECK(best_cells(cells, rows, results) == std::vector<std::size_t>{7, 6, 5, 3, 2, 1, 0, 4});
  CHECK(contains(comparison_text(rows), "valid accuracy"));
  CHECK(contains(comparison_text(rows), concat_text("best by accuracy on the valid part: ", last)));
  CHECK(contains(comparison_markdown(rows), "| choice | width | norm | valid accuracy | accuracy |"));
  CHECK(contains(comparison_markdown(rows), "| 1 (best) | 32 | post |"));
  CHECK(contains(comparison_markdown(rows), "\n| 4 | 16 | pre | 0.025 "));  // the first of the plan
  CHECK(
      contains(comparison_text(rows), "width         86 %                   33 %       16: 0.075, 32: 0.25"));
  const Json line = json_lines(comparison_json_lines(rows)).front();
  CHECK(line["values"] == Json({{"model.width", "16"}, {"model.norm", "pre"}}));
  CHECK(line["validation"]["accuracy"]["mean"] == doctest::Approx(0.025));
  CHECK(line["validation"]["loss"]["mean"] == doctest::Approx(9.5));

  results = results_of("test", false);
  rows = comparison_rows(cells, results);
  CHECK(best_cells(cells, rows, results) == std::vector<std::size_t>{0, 1, 2, 3, 5, 6, 7, 4});
  CHECK(contains(comparison_text(rows),
                 "best by accuracy on the test part: model.width=16, model.norm=pre\n"
                 "without a validation part, this chooses by the test part"));
  CHECK_FALSE(json_lines(comparison_json_lines(rows)).front().contains("validation"));
  CHECK_FALSE(contains(comparison_text(comparison_rows(cells, results_of("valid", true))), "valid accuracy"));
}

TEST_CASE("comparison: what failed in a short training of successive halving is in the table") {
  const TemporaryFolder folder;
  ComparisonPlan plan = small_plan();
  plan.settings = {{"model.dropout", {"0", "0.1", "0.2", "0.3", "0.4"}}};
  plan.halving = true;
  std::size_t round = 0;
  const Comparison found = compare(
      plan, folder.path(),
      [&](std::span<const ComparisonCell> cells) {
        std::vector<std::optional<CellResult>> results;
        for (std::size_t i = 0; i < cells.size(); ++i) {
          CellResult& result = results.emplace_back().emplace();
          if (round == 0 && i == 1)
            result.failure = "out of memory";
          else
            result.metrics = {{"accuracy", 0.5, true}};
        }
        ++round;
        return results;
      },
      [](std::string_view) {});
  CHECK(round == 2);
  REQUIRE(found.rows.size() == 4);
  CHECK(found.cells.size() == 3);
  CHECK(found.rows.back().choice == "model.dropout=0.1");
  CHECK(contains(found.rows.back().failures.front(), "seed 1: out of memory"));
  CHECK(contains(comparison_text(found.rows), "failed: seed 1: out of memory"));
}

TEST_CASE("comparison: successive halving trains thirds of the choices longer, until three are left") {
  CHECK(halving_steps(3, 900).empty());
  CHECK(halving_steps(9, 900) == std::vector<std::int64_t>{300});
  CHECK(halving_steps(20, 900) == std::vector<std::int64_t>{100, 300});
  CHECK(halving_steps(100, 2) == std::vector<std::int64_t>{1, 1, 1, 1});
  CHECK(kept_choices(20) == 7);
  CHECK(kept_choices(2) == 2);
  ComparisonPlan plan = small_plan();
  plan.base.assign("training.steps=90");
  plan.base.assign("training.schedule.warmup_steps=30");
  const std::vector<ComparisonCell> cells = plan_cells(plan), shorter = shortened(cells, 10);
  CHECK(shorter[0].settings.get<std::int64_t>("training.steps") == 10);
  CHECK(shorter[0].settings.get<std::int64_t>("training.schedule.warmup_steps") == 3);
  CHECK(shorter[0].part == "valid");
  CHECK(shorter[0].name != cells[0].name);
  plan.settings = {{"training.steps", {"5", "10"}}};
  CHECK_THROWS_WITH_AS(shortened(plan_cells(plan), 3), doctest::Contains("training.steps is compared"),
                       SettingsError);
}

TEST_CASE("comparison: the paired bootstrap finds what is more than chance") {
  std::vector<int> half, better, worse, other;
  for (int i = 0; i < 400; ++i) {
    half.push_back(i % 2);
    better.push_back(i % 2 == 1 || i % 5 == 0 ? 1 : 0);
    worse.push_back(i % 2 == 1 && i % 5 != 1 ? 1 : 0);
    other.push_back(i % 2 == 1 ? (i % 10 != 1) : (i % 10 == 2));  // right as often, elsewhere
  }
  const auto compared = [](const std::vector<int>& first, const std::vector<int>& second) {
    const ExampleStatistics a = accuracy_of(first), b = accuracy_of(second);
    return paired_bootstrap({&a, 1}, {&b, 1});
  };
  const Difference same = compared(half, half), found = compared(half, better),
                   chance = compared(half, other);
  CHECK(same.value == 0);
  CHECK(same.p == 1);
  CHECK(found.value == doctest::Approx(0.1));
  CHECK(found.p == 0);
  CHECK(found.low > 0.05);
  CHECK(found.high < 0.15);
  CHECK(chance.value == doctest::Approx(0));
  CHECK(chance.p > 0.5);
  CHECK(compared(better, half).value == doctest::Approx(-0.1));
  // The mean over two seeds.
  const std::vector<ExampleStatistics> seeds = {accuracy_of(half), accuracy_of(better)};
  CHECK(paired_bootstrap({seeds.data(), 1}, seeds).value == doctest::Approx(0.05));
  // With one seed, seed variance cannot be estimated; with three, a choice whose seeds differ more than it
  // does from the other is no better by more than chance.
  CHECK_FALSE(found.is_significant());
  const std::vector<ExampleStatistics> steady(3, accuracy_of(half)), ahead(3, accuracy_of(better));
  const std::vector<ExampleStatistics> unsteady = {accuracy_of(half), accuracy_of(better),
                                                   accuracy_of(worse)};
  CHECK(paired_bootstrap(steady, ahead).is_significant());
  CHECK_FALSE(paired_bootstrap(steady, unsteady).is_significant());
  CHECK(paired_bootstrap(steady, unsteady).low < 0);
  CHECK(paired_bootstrap(steady, unsteady).high > 0);
  half.pop_back();
  CHECK_THROWS_WITH_AS(compared(half, better), doctest::Contains("same examples"), Error);
}

TEST_CASE("comparison: BLEU is made of what its sentences add") {
  const std::vector<std::string> answers = {"the cat sat on the mat", "a dog ran home today", "yes"},
                                 expected = {"the cat sat on a mat", "the dog ran home today now", "no"};
  std::vector<double> sums(10, 0);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::vector<double> one = corpus_bleu({&answers[i], 1}, {&expected[i], 1}).statistics();
    for (std::size_t k = 0; k < 10; ++k) sums[k] += one[k];
  }
  CHECK(combined_metric("bleu", sums) == corpus_bleu(answers, expected).score);
  CHECK_THROWS_AS(combined_metric("bleu", std::vector<double>(9)), Error);
  CHECK_THROWS_AS(combined_metric("median", sums), Error);
}

TEST_CASE("comparison: mean and deviation") {
  const Spread spread = mean_and_deviation(std::vector<double>{1, 2, 3, 6});
  CHECK(spread.mean == doctest::Approx(3));
  CHECK(spread.deviation == doctest::Approx(std::sqrt(14.0 / 3)));
  CHECK(mean_and_deviation(std::vector<double>{5}).deviation == 0);
}

TEST_CASE("compare: trains what is missing, shows what failed, and refuses another comparison's folder") {
  const TemporaryFolder folder;
  const fs::path out = folder / "which";
  const Arguments flags = comparison_of(
      out, {"--attention", "dot_product,linformer", "--seeds", "1,2", "--jobs", "2", "--table", "json"});
  const ProgramResult first = run_compare(flags);
  CAPTURE(first.errors);
  REQUIRE(first.status == 0);
  const std::vector<Json> rows = json_lines(first.output);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["choice"] == "dot_product");
  CHECK(rows[0]["seeds"] == 2);
  CHECK(rows[0]["part"] == "valid");
  CHECK(rows[0]["metrics"].contains("accuracy"));
  CHECK(rows[0]["step_gflops"]["mean"] > 0);
  CHECK(rows[0]["peak_bytes"]["mean"] > 1000);
  CHECK_FALSE(rows[0].contains("difference"));
  CHECK(rows[1]["difference"]["metric"] == "accuracy");
  CHECK(content_of(out / "table.jsonl") == first.output);
  CHECK(contains(content_of(out / "table.md"), "| linformer |"));
  CHECK(contains(content_of(out / "table.txt"), "measured on the valid part"));
  const std::string page = content_of(out / "report.html");
  CHECK(page.starts_with("<!DOCTYPE html>"));
  const auto drawn = page_json(page);
  CHECK(drawn["sections"][0]["compact"].back()[0] == "linformer");
  CHECK(contains(drawn["sections"][0]["notes"], "measured on the valid part"));
  const auto marks = section_of(drawn, "Quality against cost")["charts"];
  CHECK(marks[0]["title"] == "accuracy against training time in seconds");
  const auto points = marks[0]["series"][1]["points"];
  REQUIRE(points.size() == 1);  // [x, mean, and the ends of the deviation over two seeds]
  CHECK(points[0][2].get<double>() <= points[0][1].get<double>());
  CHECK(points[0][3].get<double>() >= points[0][1].get<double>());
  CHECK(holds(section_of(drawn, "Curves, one seed each")["curves"][1]["curves"], "validation accuracy"));
  CHECK_FALSE(contains(page, "src=\"http"));
  CHECK(page.size() < 500'000);

  // Again: nothing is trained, and the table is the same.
  const std::string before = tensors_of(out / "dot_product-seed1" / "run" / "model.safetensors");
  const ProgramResult again = run_compare(flags);
  CHECK(again.status == 0);
  CHECK(again.output == first.output);
  CHECK(contains(again.errors, "4 of 4 cells are done"));

  // One cell more, and one that fails: the others stay.
  fs::create_directory(out / "longformer-seed1");
  write_content(out / "longformer-seed1" / "run", "no folder");
  const ProgramResult more = run_compare(
      comparison_of(out, {"--attention", "dot_product,longformer", "--seeds", "1", "--table", "json"}));
  CAPTURE(more.errors);
  CHECK(more.status == 1);
  const std::vector<Json> other = json_lines(more.output);
  REQUIRE(other.size() == 2);
  CHECK(other[0]["seeds"] == 1);
  CHECK(other[1]["failures"].size() == 1);
  CHECK(contains(other[1]["failures"][0].get<std::string>(), "seed 1: "));
  CHECK(tensors_of(out / "dot_product-seed1" / "run" / "model.safetensors") == before);

  // Another model in the same folder.
  const ProgramResult refused =
      run_compare(comparison_of(out, {"--attention", "dot_product", "--set", "model.activation=gelu"}));
  CHECK(refused.status == 1);
  CHECK(contains(refused.errors, "model.activation"));
}

TEST_CASE("compare: choices that are measured on other examples stand side by side, without a difference") {
  const TemporaryFolder folder;
  // As many examples, or more of them.
  for (const char* const choices : {"data.split_seed=1,2", "data.valid_fraction=0.2,0.3"}) {
    CAPTURE(choices);
    const ProgramResult result = run_compare(comparison_of(
        folder / choices, {"--data", small_texts().string(), "--format", "lines", "--set", choices}));
    CAPTURE(result.errors);
    CHECK(result.status == 0);
    CHECK(contains(result.output, "other examples than the first"));
    CHECK_FALSE(contains(result.output, "on the same examples"));
  }
}

TEST_CASE("compare: interrupted, it goes on to the same bits") {
  const TemporaryFolder folder;
  const auto flags = [&](const char* out) {
    return comparison_of(folder / out, {"--attention", "dot_product", "--seeds", "1,2", "--steps", "60"});
  };
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(run_compare(flags("whole")).status == 0);
  const auto whole = std::chrono::steady_clock::now() - start;
  bool interrupted = false;
  for (int i = 0; i < 8; ++i) {
    BackgroundProgram program("heed", joined({"compare"}, flags("broken")));
    // The first signal comes as soon as there is a run, however fast the machine; the others all over the
    // time.
    program.wait_for_file(folder / "broken/dot_product-seed1/run/config.json");
    std::this_thread::sleep_for(whole * i / 8);
    program.send(i % 2 == 0 ? SIGTERM : SIGKILL);
    const int status = program.wait();
    interrupted |= status != 0;
    if (status == 0) break;
  }
  CHECK(interrupted);
  // A process whose parent was killed saves and ends by itself; its folder is locked until then.
  ProgramResult last;
  for (int i = 0; i < 20 && (i == 0 || last.status != 0); ++i) {
    last = run_compare(flags("broken"));
    if (last.status != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  CAPTURE(last.errors);
  REQUIRE(last.status == 0);
  for (const char* cell : {"dot_product-seed1", "dot_product-seed2"})
    CHECK(tensors_of(folder / "broken" / cell / "run" / "model.safetensors") ==
          tensors_of(folder / "whole" / cell / "run" / "model.safetensors"));
}

TEST_CASE("compare: what makes no sense is refused before anything is trained") {
  const TemporaryFolder folder;
  for (const auto& row : std::vector<std::pair<std::string, std::string>>{
           {"", "--task"},
           {"--task clasify --out x", "classify"},
           {"--task classify --out x --jobs 0", "--jobs"},
           {"--task classify --out x --seeds 1,two", "seed"},
           {"--task classify --out x --seeds 3,3", "twice"},
           {"--task classify --out x --attention dot_product,bigbrid", "bigbird"},
           {"--task classify --out x --attention dot_product,", "attention: a name is empty"},
           {"--task classify --out x --dat y", "--data"},
           {"--task classify --out x --table pdf", "--table"},
           {"--task classify --out x --set model.width=16,-1", "model.width"},
           {"--task classify --out x stray", "stray"},
           {"--task classify --out x --attention dot_product,longformer --set "
            "model.encoder_attention=fastformer",
            "set the same setting"},
           {"--task classify --out x --set seed=5,6", "seeds cannot be compared"},
           {"--task classify --out x --seeds 1 --set seed=5", "set the same setting"},
           {"--task classify --out x --steps 2 --set training.steps=5,10", "set the same setting"},
           {"--task classify --out x --steps 0", "training.steps"},
           {"--task classify --out x --grid model.width=8..64", "model.width has a range"},
           {"--task classify --out x --grid model.widht=8,64", "model.width"},
           {"--task classify --out x --random 5", "choices of the grid"},
           {"--task classify --out x --random 0", "--random"},
           {"--task classify --out x --set data.valid_fraction=0", "no valid part"}}) {
    CAPTURE(row.first);
    const ProgramResult result = run_compare(words(row.first), {}, folder.path());
    CHECK(result.status == 2);
    check_refused("heed", result, row.second);
  }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE(
    "compare: a cell is not taken for one of other data or another schedule, and what is damaged is measured "
    "anew") {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += i % 2 == 0 ? "a the cat runs\n" : "b the dogs run\n";
  const std::string data = write_content(folder / "data", lines).string();
  const auto compare = [&](const char* seeds) {
    return run_compare({"--task", "classify", "--data", data, "--format", "lines", "--out",
                        (folder / "out").string(), "--steps", "4", "--seeds", seeds, "--set",
                        "model.width=16", "--set", "model.heads=2", "--set",
                        "training.schedule.warmup_steps=1"});
  };
  REQUIRE(compare("1").status == 0);
  const fs::path result = folder / "out" / "as_set-seed1" / "result.json";
  REQUIRE(fs::exists(result));
  const std::string whole = content_of(result);

  write_content(result, "{");
  CHECK(compare("1").status == 0);
  CHECK(Json::parse(content_of(result))["metrics"] == Json::parse(whole)["metrics"]);

  Json diverged = Json::parse(whole);
  diverged["examples"]["rows"][0][0] = nullptr;
  write_content(result, diverged.dump());
  CHECK(compare("1").status == 0);
  write_content(result, whole);
  write_content(folder / "data", lines + "a the cat runs\n");
  const ProgramResult changed = compare("1,2");
  CAPTURE(changed.errors);
  CHECK(changed.status == 1);
  CHECK(contains(changed.errors, "its data has changed since"));
}

TEST_CASE("compare: what differs from the cells that are there is refused before anything is written") {
  const TemporaryFolder folder;
  const fs::path out = folder / "which", result = out / "linformer-seed1" / "result.json";
  const auto compare = [&](const Arguments& more) {
    return run_compare(comparison_of(out, joined({"--attention", "dot_product,linformer"}, more)));
  };
  const auto refused = [&](const Arguments& more, const std::string& what, const std::string& remedy) {
    const auto before = snapshot(out);
    const ProgramResult second = compare(more);
    CAPTURE(second.errors);
    CHECK(second.status == 1);
    CHECK(contains(second.errors, what));
    CHECK(contains(second.errors, remedy));
    CHECK(difference(before, snapshot(out)) == "");
  };
  REQUIRE(compare({"--steps", "4"}).status == 0);
  refused({"--steps", "2"}, "training.steps=4 (now 2)", "to train it again");
  refused({"--steps", "6"}, "training.steps=4 (now 6)", "to train it again");
  refused({"--steps", "4", "--set", "training.log_seconds=3"}, "training.log_seconds=10.0 (now 3.0)",
          "to train it again");
  refused({"--steps", "4", "--set", "prediction.batch_size=7"}, "prediction.batch_size=64 (now 7)",
          "remove its result.json to measure it again");

  // Threads are no difference, and what was measured with others stays.
  const std::string measured = content_of(result);
  CHECK(compare({"--steps", "4", "--threads", "2"}).status == 0);
  CHECK(content_of(result) == measured);

  // A cell that has failed, one that was interrupted, and one that lacks its result.
  Json failed = Json::parse(measured);
  failed["failure"] = "its training was not finished";
  write_content(result, failed.dump());
  refused({"--steps", "6"}, "training.steps=4 (now 6)", "to train it again");
  fs::remove_all(out / "dot_product-seed1");
  refused({"--steps", "6"}, "training.steps=4 (now 6)", "to train it again");
  fs::remove(result);
  refused({"--steps", "6"}, "training.steps=4 (now 6)", "to train it again");
  CHECK(compare({"--steps", "4", "--set", "prediction.batch_size=7"}).status == 0);
}

TEST_CASE("compare: a folder with files of others is refused, and so are links in one that somebody sent") {
  const TemporaryFolder folder, other, sent;
  const auto refused = [](const fs::path& out, const std::string& says) {
    const ProgramResult result = run_compare(comparison_of(out, {"--steps", "2"}));
    CHECK(result.status == 1);
    check_refused("heed", result, says);
  };
  write_content(other / "notes", "mine");
  refused(other.path(), "\"notes\"");
  const fs::path profile = write_content(folder / "table.txt", "mine");
  refused(folder.path(), "no cells of a comparison");

  const ProgramResult made = run_compare(comparison_of(sent.path(), {"--steps", "2"}));
  REQUIRE_MESSAGE(made.status == 0, made.errors);
  fs::remove(sent / "table.md");
  fs::create_symlink(profile, sent / "table.md");
  refused(sent.path(), "is a link");
  CHECK(content_of(profile) == "mine");
  fs::remove(sent / "table.md");
  const fs::path cell = sent / "as_set-seed1";
  REQUIRE(fs::exists(cell / "run"));
  fs::rename(cell / "run", folder / "run");
  fs::create_symlink(folder / "run", cell / "run");
  fs::remove(cell / "result.json");
  const ProgramResult led = run_compare(comparison_of(sent.path(), {"--steps", "2"}));
  CHECK(led.status == 1);
  CHECK(contains(led.errors, "is a link"));
}

TEST_CASE("compare --suite trains small language models on exercises") {
  const TemporaryFolder folder;
  const Arguments small = {"--steps", "2",
                           "--set",   "model.width=16",
                           "--set",   "data.sentences=20",
                           "--set",   "data.held_out_sentences=4"};
  const Arguments state = {"--suite", "state", "--attention", "dot_product,delta_product", "--table", "json"};
  const ProgramResult found =
      run_compare(joined(joined(state, {"--out", (folder / "state").string()}), small));
  CHECK_MESSAGE(found.status == 0, found.errors);
  for (const char* choice : {"dot_product, data.rule=parity", "delta_product, data.rule=s5"})
    CHECK(contains(found.output, choice));
  CHECK(contains(found.output, "\"accuracy\""));
  const auto refused = [&](const Arguments& arguments, const char* reason) {
    const ProgramResult result = run_compare(joined(arguments, {"--out", (folder / "no").string()}));
    CHECK(result.status == 2);
    CHECK_MESSAGE(contains(result.errors, reason), result.errors);
  };
  refused({"--suite", "stat"}, "state");
  refused({"--suite", "state", "--task", "classify"}, "give --task or --suite");
  refused({"--suite", "recall", "--set", "data.exercise.length=10"}, "at least 16, not 10");
}
