// language_model --masked from the outside, and its life as tests/tasks_test.cpp has it for the causal one.

#include "heed/tests/hostile/killed_training.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/core/device.h"
#include "heed/data/safetensors.h"
#include "heed/models/attention/attention.h"
#include "heed/tasks/recipe.h"
#include "heed/tasks/run.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string name = "language_model";

const fs::path& masked_run() {
  static const TemporaryFolder folder;
  static const fs::path path = [] {
    const ProgramResult result = run_program(name, small_train(name, folder / "run", {"--masked"}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return folder / "run";
  }();
  return path;
}

}  // namespace

TEST_CASE("masked language model: measured by what was hidden, the same with every call") {
  const Arguments evaluate = {"evaluate", "--run", masked_run().string()};
  const ProgramResult result = run_program(name, evaluate);
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const Json json = Json::parse(result.output);
  CHECK(json["objective"] == "masked");
  CHECK(json["pseudo_perplexity"].get<double>() == doctest::Approx(std::exp(json["loss"].get<double>())));
  CHECK(!json.contains("perplexity"));
  CHECK(json["accuracy"].get<double>() >= 0);
  CHECK(json["accuracy"].get<double>() <= 1);
  const double share = json["masked_tokens"].get<double>() / json["characters"].get<double>();
  CHECK(share == doctest::Approx(0.15).epsilon(0.1));
  CHECK(run_program(name, evaluate).output == result.output);
}

TEST_CASE("masked language model: fills in the places of a line, with both marks, the best first") {
  const ProgramResult result = run_program(
      name, {"predict", "--run", masked_run().string(), "--json", "--best", "4"},
      "the <mask>at sleep[MASK]\n\nthe cat\nthe <mask>at?!\n" + std::string(40, 'a') + "<mask>\n");
  CHECK(result.status == 1);
  std::istringstream lines(result.output);
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  REQUIRE(answers.size() == 5);
  const Json& best = answers[0]["alternatives"];
  REQUIRE(best.size() == 4);
  CHECK(best[0]["text"] == answers[0]["text"]);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto text = best[i]["text"].get<std::string>();
    CHECK(text.starts_with("the "));
    CHECK(text.size() == std::string("the cat sleeps").size());
    CHECK(text.find("at sleep") == 5);
    texts.insert(text);
    if (i > 0) CHECK(best[i]["probability"] <= best[i - 1]["probability"]);
  }
  CHECK(texts.size() == 4);
  CHECK(answers[1]["text"] == "");
  CHECK(contains(answers[2]["error"], "no <mask> or [MASK]"));
  CHECK(contains(answers[3]["error"], "'?', '!'"));
  CHECK(contains(answers[4]["error"], "41 tokens"));
}

TEST_CASE("masked language model: shows its inside, writes no text, and keeps its objective") {
  const TemporaryFolder folder;
  const std::string file = (folder / "inside.safetensors").string(), run = masked_run().string();
  const ProgramResult shown =
      run_program(name, {"predict", "--run", run, "--capture", file}, "the <mask>at\n");
  REQUIRE_MESSAGE(shown.status == 0, shown.errors);
  CHECK(load_safetensors(file).tensors.contains("lines.0.encoder.layers.0.attention.weights"));
  const ProgramResult text = run_program(name, {"generate", "--run", run});
  CHECK(text.status == 1);
  CHECK(contains(text.errors, "objective=masked"));
  CHECK(run_program(name, {"evaluate", "--run", run, "--set", "objective=causal"}).status == 2);
  const auto refused = [&](const Arguments& more) {
    return run_program(name, small_train(name, folder / "run", more)).status == 2;
  };
  CHECK(refused({"--masked", "--set", "training.keep_best_by=perplexity"}));
  CHECK(refused({"--set", "training.keep_best_by=accuracy"}));
  CHECK(refused({"--set", "objective=both"}));
}

TEST_CASE("masked language model: killed at random moments and resumed to the same bits") {
  check_killed_training(name, kills_wanted(2), {"--masked"});
}

TEST_CASE("masked language model: the same bits for any number of threads; every attention can serve") {
  const int threads_before = cpu_threads();
  const TaskKind& kind = task_kind(name);
  const auto train = [&](const fs::path& folder, const std::string& attention, const std::string& threads) {
    Settings settings = kind.settings(false);
    for (const std::string& setting : small_settings(name)) settings.assign(setting);
    for (const std::string& setting :
         {std::string("objective=masked"), std::string("training.steps=3"), threads})
      settings.assign(setting);
    AttentionNames names;
    names.attention = attention;
    choose_attentions(settings, kind.stacks, names);
    apply_threads(settings);
    CHECK(train_run(kind, settings, {folder}).step == 3);
    return tensors_of(folder / "model.safetensors");
  };
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(std::string(variant.name));
    const TemporaryFolder folder;
    const std::string weights = train(folder / "one", std::string(variant.name), "threads=1");
    if (variant.name == "dot_product")
      CHECK(train(folder / "three", std::string(variant.name), "threads=3") == weights);
    Run run = Run::open(folder / "one");
    const std::vector<Prediction> answers = run.predict(std::vector<std::string>{"the <mask>at sleeps."});
    CHECK(answers.front().error == "");
    CHECK(answers.front().text.size() == 15);
  }
  set_cpu_threads(threads_before);
}
