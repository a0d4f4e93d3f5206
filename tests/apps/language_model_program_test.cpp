// language_model from the outside: what it prints, what it leaves behind, and its exit status.

#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/hostile/killed_training.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/run_records.h"
#include "heed/text/safetensors.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string name = "language_model";

/// What a command writes that must succeed.
std::string output_of(const Arguments& arguments) {
  const ProgramResult result = run_program(name, arguments);
  CHECK_MESSAGE(result.status == 0, result.errors);
  return result.output;
}

/// A run with the small settings and more.
fs::path trained_text(const fs::path& out, const Arguments& more) {
  const ProgramResult result = run_program(name, small_train(name, out, more));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  return out;
}

std::string generated(const Arguments& more) {
  return output_of(joined({"generate", "--run", small_run(name).string(), "--tokens", "50"}, more));
}

const fs::path& masked_run() {
  static const TemporaryFolder folder;
  static const fs::path path = trained_text(folder / "run", {"--masked"});
  return path;
}

}  // namespace

TEST_CASE("language_model evaluate ends with a line of JSON, also of another text") {
  const std::string run = small_run(name).string();
  const Json report = Json::parse(output_of({"evaluate", "--run", run, "--sentences", "10"}));
  const double nats = report["nats_per_character"].get<double>();
  CHECK(nats > 0);
  CHECK(nats < std::log(40.0));  // it has learned something
  CHECK(report["bits_per_character"].get<double>() == doctest::Approx(nats / std::log(2.0)));
  CHECK(report["perplexity"].get<double>() == doctest::Approx(std::exp(report["loss"].get<double>())));
  CHECK(report["tokens"] == report["characters"]);
  CHECK(report["stride"] == 16);
  CHECK(report["sentences"] == 10);
  CHECK(report["by_rule"].get<double>() >= 0);
  CHECK(report["by_rule"].get<double>() <= 1);
  const TemporaryFolder folder;
  const std::string text = write_content(folder / "text", "the cat sleeps.\n").string();
  const Json other = Json::parse(output_of({"evaluate", "--run", run, "--data", text}));
  CHECK(other["characters"] == 16);
  CHECK(!other.contains("by_rule"));
}

TEST_CASE("language_model generate continues the prompt, the same with every call") {
  const Arguments prompt = {"--prompt", "the cat"};
  const std::string text = generated(prompt);
  CHECK(text.starts_with("the cat"));
  CHECK(text.size() > 8);
  CHECK(text.size() <= 7 + 50 + 1);
  CHECK(generated(prompt) == text);
  CHECK(generated(joined(prompt, {"--seed", "2"})) != text);
  const std::vector<Json> samples = json_lines(generated(joined(prompt, {"--samples", "3", "--json"})));
  REQUIRE(samples.size() == 3);
  CHECK("the cat" + samples[0]["text"].get<std::string>() + "\n" == text);
  CHECK(samples[2]["sample"] == 3);
  CHECK(generated({"--top-k", "1", "--seed", "5"}) == generated({"--temperature", "0"}));
}

TEST_CASE("language_model names a large text before it reads it") {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 10'000'000) text += "the cat sleeps and the dog runs to the old house by the river.\n";
  const std::string file = write_content(folder / "text", text).string();
  const ProgramResult result =
      run_program(name, small_train(name, folder / "run",
                                    {"--data", file, "--steps", "1", "--set", "data.valid_fraction=0.001"}));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const std::size_t reading = result.errors.find("reading " + file + ", 10 MB"),
                    learning = result.errors.find("learning the vocabulary"),
                    cutting = result.errors.find("cutting the texts into tokens"),
                    counted = result.errors.find("characters for training");
  CHECK(reading < learning);
  CHECK(learning < cutting);
  CHECK(cutting < counted);
  CHECK(counted != std::string::npos);
}

TEST_CASE("language_model learns from a folder of files, with characters or BPE") {
  const TemporaryFolder folder;
  write_content(folder / "texts/a", "über den Fluß und in die Wälder, wo die Vögel singen\n");
  write_content(folder / "texts/more/b", "and back again, over the hills and far away\n");
  for (const char* kind : {"characters", "bpe"}) {
    CAPTURE(kind);
    const std::string run =
        trained_text(folder / kind, {"--data", (folder / "texts").string(), "--steps", "3", "--tokenizer",
                                     kind, "--set", "data.valid_fraction=0.3"})
            .string();
    CHECK(Json::parse(output_of({"evaluate", "--run", run}))["characters"].get<int>() == 30);
    CHECK(output_of({"generate", "--run", run, "--prompt", "über", "--tokens", "5"}).starts_with("über"));
  }
}

TEST_CASE("language_model: a text that does not stay in memory is learned to the same bits") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i)
    text += "line " + std::to_string(std::int64_t{i} * i) + " of a long text\n";
  const std::string file = write_content(folder / "text", text).string();
  const auto trained = [&](const char* kept, const std::string& said) {
    const fs::path run = folder / kept;
    const ProgramResult result =
        run_program(name, small_train(name, run,
                                      {"--data", file, "--steps", "4", "--set", kept, "--set",
                                       "data.valid_fraction=0.01", "--set", "evaluation.characters=5000"}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    CHECK(contains(result.errors, said));
    return content_of(run / "model.safetensors") + output_of({"evaluate", "--run", run.string()});
  };
  CHECK(trained("data.memory_bytes=0", "evaluations read the first 5000 of these characters") ==
        trained("data.memory_bytes=100000000", ""));
}

// --- language_model --masked from the outside; tests/apps/tasks_test.cpp does the same for the causal one.

TEST_CASE("masked language model: measured by what was hidden, the same with every call") {
  const Arguments evaluate = {"evaluate", "--run", masked_run().string()};
  const std::string measured = output_of(evaluate);
  const Json json = Json::parse(measured);
  CHECK(json["objective"] == "masked");
  CHECK(json["pseudo_perplexity"].get<double>() == doctest::Approx(std::exp(json["loss"].get<double>())));
  CHECK(!json.contains("perplexity"));
  CHECK(json["accuracy"].get<double>() >= 0);
  CHECK(json["accuracy"].get<double>() <= 1);
  const double share = json["masked_tokens"].get<double>() / json["characters"].get<double>();
  CHECK(share == doctest::Approx(0.15).epsilon(0.1));
  CHECK(output_of(evaluate) == measured);
}

TEST_CASE("masked language model: fills in the places of a line, with both marks, the best first") {
  const ProgramResult result = run_program(
      name, {"predict", "--run", masked_run().string(), "--json", "--best", "4"},
      "the <mask>at sleep[MASK]\n\nthe cat\nthe <mask>at?!\n" + std::string(40, 'a') + "<mask>\n");
  CHECK(result.status == 1);
  const std::vector<Json> answers = json_lines(result.output);
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
  CHECK(contains(answers[1]["error"], "blank"));
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
  CHECK(contains(text.errors, "--masked"));
  CHECK(run_program(name, {"evaluate", "--run", run, "--set", "objective=causal"}).status == 2);
}

TEST_CASE("masked language model: killed at random moments and resumed to the same bits") {
  check_killed_training(name, kills_wanted(2), {"--masked"});
}

TEST_CASE(
    "masked language model: the same bits for any number of threads; attentions that see both sides serve") {
  const WithThreads keep(cpu_threads());
  const TemporaryFolder folder;
  const TaskEntry& entry = task_entry(name);
  const auto train = [&](const std::string& attention, const std::string& threads) {
    const fs::path run = folder / (attention + threads);
    const Settings settings = small_settings_of(
        entry, {"objective=masked", "training.steps=3", threads, "model.decoder_attention=" + attention});
    apply_threads(settings);
    CHECK(train_run(entry, settings, {run}).step == 3);
    return run;
  };
  const auto weights = [&](const std::string& threads) {
    return tensors_of(train("dot_product", threads) / "model.safetensors");
  };
  CHECK(weights("threads=1") == weights("threads=3"));
  for (const char* const attention : {"dot_product", "fnet", "nystromformer", "linformer"}) {
    CAPTURE(attention);
    Run run = Run::open(train(attention, "threads=2"));
    const std::vector<Prediction> answers = run.predict(std::vector<std::string>{"the <mask>at sleeps."});
    CHECK(answers.front().error == "");
    CHECK(answers.front().text.size() == 15);
  }
}
