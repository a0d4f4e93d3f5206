// language_model from the outside: what it prints, what it leaves behind, and its exit status.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"
#include "heed/core/device.h"
#include "heed/data/safetensors.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/hostile/killed_training.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A model that a step of takes a few milliseconds.
const Arguments tiny_text_model = {"--set", "data.sentences=300",
                                   "--set", "data.held_out_sentences=20",
                                   "--set", "model.width=16",
                                   "--set", "model.feed_forward=16",
                                   "--set", "model.heads=2",
                                   "--set", "model.decoder_layers=1",
                                   "--set", "model.max_length=32",
                                   "--set", "training.batch_tokens=512",
                                   "--set", "training.evaluate_every=20",
                                   "--set", "training.schedule.warmup_steps=5",
                                   "--set", "training.log_every=5"};

ProgramResult run(const Arguments& arguments) {
  return run_program("language_model", arguments);
}

Arguments language_model_training(const fs::path& folder, const Arguments& more) {
  return joined(joined({"train", "--out", folder.string(), "--set", "threads=1"}, tiny_text_model), more);
}

/// One line, "program: error: ...", with the part that matters, and the status.
void language_model_refuses(const ProgramResult& result, int status, const std::string& part) {
  CAPTURE(result.errors);
  CHECK(result.status == status);
  CHECK(contains(result.errors, "language_model: error: "));
  CHECK(contains(result.errors, part));
  CHECK(result.output.empty());
}

/// One short run for all tests that only look at a run.
const fs::path& finished_language_model() {
  static const TemporaryFolder folder;
  static const fs::path path = [] {
    const ProgramResult result = run(language_model_training(folder / "run", {"--steps", "30"}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return folder / "run";
  }();
  return path;
}

Arguments generate_arguments(const Arguments& more) {
  return joined({"generate", "--run", finished_language_model().string(), "--tokens", "50"}, more);
}

}  // namespace

TEST_CASE("language_model train leaves a whole run, the same for any number of threads") {
  for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json",
                           "tokenizer.json", "metrics.jsonl", "best.safetensors"}) {
    CAPTURE(file);
    CHECK(fs::file_size(finished_language_model() / file) > 0);
  }
  const Json config = Json::parse(content_of(finished_language_model() / "config.json"));
  CHECK(!config["model"].contains("encoder_layers"));  // nothing that the model does not read
  const TemporaryFolder folder;
  REQUIRE(run(language_model_training(folder / "run", {"--steps", "30", "--threads", "3"})).status == 0);
  CHECK(content_of(folder / "run/model.safetensors") ==
        content_of(finished_language_model() / "model.safetensors"));
}

TEST_CASE("language_model: a run that was stopped goes on to the same bits") {
  const TemporaryFolder folder;
  const Arguments schedule = {"--set", "training.schedule.name=constant", "--save-every", "7"};
  REQUIRE(run(language_model_training(folder / "whole", joined(schedule, {"--steps", "24"}))).status == 0);
  REQUIRE(run(language_model_training(folder / "part", joined(schedule, {"--steps", "14"}))).status == 0);
  const ProgramResult result =
      run({"train", "--out", (folder / "part").string(), "--resume", "--steps", "24"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(content_of(folder / "part/model.safetensors") == content_of(folder / "whole/model.safetensors"));
}

TEST_CASE("language_model evaluate ends with a line of JSON") {
  const ProgramResult result =
      run({"evaluate", "--run", finished_language_model().string(), "--sentences", "10"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const Json report = Json::parse(result.output);
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
}

TEST_CASE("language_model evaluate measures another text, and says what it cannot read") {
  const TemporaryFolder folder;
  write_content(folder / "text", "the cat sleeps.\n");
  write_content(folder / "unknown", "the cat sleeps!\n");
  const auto evaluate = [&](const std::string& file, const Arguments& more = {}) {
    return run(joined(
        {"evaluate", "--run", finished_language_model().string(), "--data", (folder / file).string()}, more));
  };
  const Json report = Json::parse(evaluate("text").output);
  CHECK(report["characters"] == 16);
  CHECK(!report.contains("by_rule"));
  language_model_refuses(evaluate("unknown"), 1, "'!'");
  language_model_refuses(evaluate("missing"), 1, "missing");
  language_model_refuses(evaluate("text", {"--stride", "33"}), 2, "stride");
  language_model_refuses(evaluate("text", {"--stride", "-1"}), 2, "stride");
}

TEST_CASE("language_model generate --capture writes what the model shows of its inside") {
  const TemporaryFolder folder;
  const std::string file = (folder / "inside.safetensors").string();
  const ProgramResult result =
      run(generate_arguments({"--prompt", "the cat", "--samples", "2", "--capture", file}));
  CHECK(result.status == 0);
  const heed::TensorFile inside = heed::load_safetensors(file);
  for (const std::string sample : {"samples.0", "samples.1"}) {
    REQUIRE(inside.tensors.contains(sample + ".tokens"));
    const std::int64_t length = inside.tensors.at(sample + ".tokens").size(1);
    const std::string weights = sample + ".decoder.layers.0.self_attention.weights";
    REQUIRE_MESSAGE(inside.tensors.contains(weights), weights);
    CHECK(inside.tensors.at(weights).size(2) == length);
    CHECK(inside.tensors.at(weights).size(3) == length);
  }
}

TEST_CASE("language_model generate continues the prompt, the same with every call") {
  const ProgramResult result = run(generate_arguments({"--prompt", "the cat"}));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(result.output.starts_with("the cat"));
  CHECK(result.output.size() > 8);
  CHECK(result.output.size() <= 7 + 50 + 1);
  CHECK(run(generate_arguments({"--prompt", "the cat"})).output == result.output);
  CHECK(run(generate_arguments({"--prompt", "the cat", "--seed", "2"})).output != result.output);
  const ProgramResult lines = run(generate_arguments({"--prompt", "the cat", "--samples", "3", "--json"}));
  std::istringstream stream(lines.output);
  std::vector<Json> samples;
  for (std::string line; std::getline(stream, line);) samples.push_back(Json::parse(line));
  REQUIRE(samples.size() == 3);
  CHECK("the cat" + samples[0]["text"].get<std::string>() + "\n" == result.output);
  CHECK(samples[2]["sample"] == 3);
  const ProgramResult greedy = run(generate_arguments({"--temperature", "0"}));
  REQUIRE_MESSAGE(greedy.status == 0, greedy.errors);
  CHECK(run(generate_arguments({"--top-k", "1", "--seed", "5"})).output == greedy.output);
}

TEST_CASE("language_model: usage errors are named, and end with 2") {
  language_model_refuses(run(generate_arguments({"--temperature", "-1"})), 2, "temperature");
  language_model_refuses(run(generate_arguments({"--top-k", "-1"})), 2, "top_k");
  language_model_refuses(run(generate_arguments({"--top-p", "0"})), 2, "top_p");
  language_model_refuses(run(generate_arguments({"--samples", "0"})), 2, "samples");
  language_model_refuses(run(generate_arguments({"--tokens", "-5"})), 2, "tokens");
  language_model_refuses(run(generate_arguments({"--prompt", "the cat?!"})), 2, "'?', '!'");
  language_model_refuses(run(generate_arguments({"--prompt", "caf\xe9"})), 2, "UTF-8");
  language_model_refuses(run(generate_arguments({"--prompt", std::string(33, 'a')})), 2, "33 tokens");
  language_model_refuses(run(generate_arguments({"--promt", "a"})), 2, "--prompt");
  const TemporaryFolder folder;
  const auto train = [&](const Arguments& more) {
    return run(language_model_training(folder / "run", more));
  };
  language_model_refuses(train({"--tokenizer", "syllables"}), 2, "characters");
  language_model_refuses(train({"--attention", "longfrmer"}), 2, "longformer");
  language_model_refuses(train({"--valid", "x"}), 2, "--data");
  language_model_refuses(train({"--context", "0"}), 2, "max_length");
  language_model_refuses(train({"--context", "1000"}), 2, "batch_tokens");
  language_model_refuses(train({"--set", "evaluation.stride=40"}), 2, "stride");
  language_model_refuses(train({"--set", "model.encoder_layers=2"}), 2, "encoder_layers");
  language_model_refuses(train({"--steps", "0"}), 2, "steps");
  CHECK(!fs::exists(folder / "run"));
}

TEST_CASE("language_model: text that cannot be used is named, and ends with 1") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& file, const Arguments& more = {}) {
    return run(language_model_training(folder / "run",
                                       joined({"--data", (folder / file).string(), "--steps", "2"}, more)));
  };
  write_content(folder / "empty", "");
  write_content(folder / "short", "too short for a window");
  write_content(folder / "latin", "caf\xe9, and more than enough text to fill a window of 32 tokens\n");
  write_content(folder / "text",
                "more than enough text to fill a window of 32 tokens, and a little more than that\n");
  fs::create_directory(folder / "none");
  language_model_refuses(train("missing"), 1, "missing");
  language_model_refuses(train("empty"), 1, "empty");
  language_model_refuses(train("short"), 1, "window");
  language_model_refuses(train("latin"), 1, "UTF-8");
  language_model_refuses(train("none"), 1, "no files");
  language_model_refuses(train("text", {"--set", "data.valid_fraction=1"}), 2, "valid_fraction");
  language_model_refuses(train("text", {"--valid", (folder / "latin").string()}), 1, "UTF-8");
  CHECK(!fs::exists(folder / "run"));
}

TEST_CASE("language_model learns from a folder of files, with characters or BPE") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "texts/more");
  write_content(folder / "texts/a", "über den Fluß und in die Wälder, wo die Vögel singen\n");
  write_content(folder / "texts/more/b", "and back again, over the hills and far away\n");
  for (const char* kind : {"characters", "bpe"}) {
    CAPTURE(kind);
    const fs::path out = folder / kind;
    const ProgramResult result = run(language_model_training(
        out, {"--data", (folder / "texts").string(), "--steps", "3", "--tokenizer", kind, "--set",
              "tokenizer.vocabulary=270", "--set", "data.valid_fraction=0.3"}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    const ProgramResult evaluation = run({"evaluate", "--run", out.string()});
    REQUIRE_MESSAGE(evaluation.status == 0, evaluation.errors);
    CHECK(Json::parse(evaluation.output)["characters"].get<int>() == 30);
    const ProgramResult text = run({"generate", "--run", out.string(), "--prompt", "über", "--tokens", "5"});
    CHECK_MESSAGE(text.status == 0, text.errors);
    CHECK(text.output.starts_with("über"));
  }
}

TEST_CASE("language_model: a text that does not stay in memory is learned to the same bits") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i)
    text += "line " + std::to_string(std::int64_t{i} * i) + " of a long text\n";
  write_content(folder / "text", text);
  const auto train = [&](const std::string& name, const Arguments& more) {
    return run(language_model_training(
        folder / name, joined({"--data", (folder / "text").string(), "--steps", "4", "--set",
                               "data.valid_fraction=0.01", "--set", "evaluation.characters=5000"},
                              more)));
  };
  const ProgramResult in_memory = train("memory", {}),
                      in_files = train("files", {"--set", "data.memory_bytes=0"});
  REQUIRE_MESSAGE(in_memory.status == 0, in_memory.errors);
  REQUIRE_MESSAGE(in_files.status == 0, in_files.errors);
  CHECK(contains(in_files.errors, "progress is measured on the first 5000 of these characters"));
  CHECK(content_of(folder / "files/model.safetensors") == content_of(folder / "memory/model.safetensors"));
  CHECK(run({"evaluate", "--run", (folder / "files").string()}).output ==
        run({"evaluate", "--run", (folder / "memory").string()}).output);
}

// --- language_model --masked from the outside; tests/tasks_test.cpp does the same for the causal one.

namespace {

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
    Settings settings = small_settings_of(kind);
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
