// The sample programs from the outside: what they print, what they leave behind, and their exit status.

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "heed/apps/cli/program.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/data/safetensors.h"
#include "heed/data/text_file.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;

/// A model that a step of takes a few milliseconds.
const Arguments tiny_translator = {"--set", "data.numbers=300",
                                   "--set", "data.held_out_numbers=20",
                                   "--set", "model.width=16",
                                   "--set", "model.feed_forward=16",
                                   "--set", "model.heads=2",
                                   "--set", "model.encoder_layers=1",
                                   "--set", "model.decoder_layers=1",
                                   "--set", "tokenizer.vocabulary=280",
                                   "--set", "training.batch_tokens=512",
                                   "--set", "training.evaluate_every=20",
                                   "--set", "training.log_every=5",
                                   "--set", "decoding.length_extra=2"};

Arguments translate_training(const fs::path& run, const Arguments& more) {
  Arguments arguments = {"train", "--out", run.string(), "--set", "threads=1"};
  arguments.insert(arguments.end(), tiny_translator.begin(), tiny_translator.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::size_t line_count(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// One line, "program: error: ...", with the part that matters, and the status.
void translate_refuses(const ProgramResult& result, int status, const std::string& part) {
  CAPTURE(result.errors);
  CHECK(result.status == status);
  CHECK(contains(result.errors, "translate: error: "));
  CHECK(result.errors.ends_with('\n'));
  CHECK(contains(result.errors, part));
  CHECK(result.output.empty());
}

/// One short run for all tests that only look at a run.
const fs::path& finished_translate() {
  static const TemporaryFolder folder;
  static const fs::path run = [] {
    const ProgramResult result =
        run_program("translate", translate_training(folder / "run", {"--steps", "30"}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return folder / "run";
  }();
  return run;
}

}  // namespace

TEST_CASE("translate train leaves a whole run") {
  const fs::path& run = finished_translate();
  for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json",
                           "tokenizer.json", "metrics.jsonl", "best.safetensors"}) {
    CAPTURE(file);
    CHECK(fs::file_size(run / file) > 0);
  }
  const auto config = nlohmann::json::parse(content_of(run / "config.json"));
  CHECK(config["training"]["steps"] == 30);
  CHECK(config["model"]["width"] == 16);
  CHECK(config["model"]["norm"].is_string());  // defaults are written out
}

TEST_CASE("the same run gives the same weights with any number of threads") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program("translate", translate_training(folder / "run", {"--steps", "30", "--threads", "3"}));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(content_of(folder / "run/model.safetensors") ==
        content_of(finished_translate() / "model.safetensors"));
  CHECK(result.output.empty());  // progress belongs to standard error
}

TEST_CASE("a killed run resumes to the same bits") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  // Kill it once it has a checkpoint; a fast machine may be done by then, so the run is repeated with an
  // earlier kill.
  BackgroundProgram program("translate", translate_training(run, {"--steps", "30", "--save-every", "3"}));
  while (program.running() && !fs::exists(run / "trainer_state.json"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  program.send(SIGKILL);
  program.wait();
  const ProgramResult result =
      run_program("translate", translate_training(run, {"--steps", "30", "--save-every", "3", "--resume"}));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(content_of(run / "model.safetensors") == content_of(finished_translate() / "model.safetensors"));
}

TEST_CASE("an interrupted run saves, says so and resumes with nothing but the folder") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  BackgroundProgram program("translate", translate_training(run, {"--steps", "100000"}));
  while (program.running() && !fs::exists(run / "metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  program.send(SIGINT);
  CHECK(program.wait() == 130);
  CHECK(fs::exists(run / "trainer_state.json"));
  const auto reached = nlohmann::json::parse(content_of(run / "trainer_state.json"))["step"].get<int>();
  const ProgramResult result = run_program(
      "translate",
      {"train", "--out", run.string(), "--resume", "--threads", "1", "--steps", std::to_string(reached + 2)});
  CHECK_MESSAGE(result.status == 0, result.errors);
  CHECK(nlohmann::json::parse(content_of(run / "trainer_state.json"))["step"] == reached + 2);
}

TEST_CASE("the first signal ends a program that still reads its data") {
  const TemporaryFolder folder;
  const fs::path text = folder / "text";
  std::ofstream(text, std::ios::binary) << std::string(200 << 20, '\n');
  for (const int signal : {SIGTERM, SIGINT}) {
    CAPTURE(signal);
    BackgroundProgram program("language_model",
                              {"train", "--data", text.string(), "--out", (folder / "run").string()});
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    REQUIRE(program.running());
    program.send(signal);
    for (int i = 0; i < 100 && program.running(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(program.running());
    if (program.running()) program.send(SIGKILL);
    CHECK(program.wait() == 128 + signal);
    CHECK_FALSE(fs::exists(folder / "run"));
  }
}

TEST_CASE("a second signal, of whichever kind, ends a program in the middle of a step") {
  const TemporaryFolder folder;
  for (const std::string ranks : {"1", "2"}) {
    CAPTURE(ranks);
    const fs::path run = folder / ranks;
    BackgroundProgram program("translate", translate_training(run, {"--ranks", ranks, "--steps", "1", "--set",
                                                                    "training.accumulation=1000000"}));
    while (program.running() && !fs::exists(run / "config.json"))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    program.send(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    REQUIRE(program.running());
    program.send(SIGINT);
    for (int i = 0; i < 1000 && program.running(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    REQUIRE_FALSE(program.running());
    CHECK(program.wait() == 130);
    CHECK_FALSE(fs::exists(run / "trainer_state.json"));
  }
}

TEST_CASE("a run is not overwritten, and is not continued with other settings") {
  const std::string before = content_of(finished_translate() / "model.safetensors");
  translate_refuses(run_program("translate", translate_training(finished_translate(), {"--steps", "30"})), 1,
                    "--resume");
  translate_refuses(
      run_program("translate", translate_training(finished_translate(), {"--resume", "--seed", "9"})), 1,
      "seed");
  CHECK(content_of(finished_translate() / "model.safetensors") == before);
}

TEST_CASE("translate evaluate ends with a line of JSON") {
  const ProgramResult result = run_program("translate", {"evaluate", "--run", finished_translate().string()});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const auto report = nlohmann::json::parse(result.output);
  CHECK(report["exact"].is_number());
  CHECK_FALSE(report.contains("bleu"));  // number words are one word each
  CHECK(report["loss"].get<double>() > 0);
  CHECK(report["sentences"] == 20);
  const TemporaryFolder folder;
  const std::string words = write_content(folder / "words", "one\ntwo\n").string(),
                    sentences = write_content(folder / "sentences", "eins zwei drei vier\nzwei\n").string();
  const ProgramResult longer = run_program("translate", {"evaluate", "--run", finished_translate().string(),
                                                         "--source", words, "--target", sentences});
  REQUIRE_MESSAGE(longer.status == 0, longer.errors);
  const auto counted = nlohmann::json::parse(longer.output);
  CHECK(counted["bleu"].is_number());
  CHECK(contains(counted["signature"], "tok:13a"));
  const std::string run = (folder / "run").string();
  const ProgramResult trained =
      run_program("translate", {"train", "--out", run, "--source", words, "--target", words, "--valid-source",
                                words, "--valid-target", words, "--steps", "2", "--width", "16"});
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  CHECK(contains(trained.errors, "(training.keep_best_by=exact)"));
  CHECK(contains(content_of(folder / "run" / "config.json"), R"("keep_best_by": "exact")"));
}

TEST_CASE("translate predict answers the sources of a table") {
  const TemporaryFolder folder;
  const std::string run = finished_translate().string(),
                    table = write_content(folder / "t.tsv", "id\tsource\n7\tone\n8\tforty-two\n").string();
  const ProgramResult lines = run_program("translate", {"predict", "--run", run}, "one\nforty-two\n");
  const ProgramResult rows = run_program("translate", {"predict", "--run", run, "--data", table, "--header"});
  REQUIRE_MESSAGE(rows.status == 0, rows.errors);
  CHECK(rows.output == lines.output);
  const ProgramResult kept =
      run_program("translate", {"predict", "--run", run, "--data", table, "--header", "--keep-columns"});
  CHECK(kept.output.starts_with("id\tsource\tpredicted_translation\n7\tone\t"));
  CHECK(contains(kept.output, "\n8\tforty-two\t"));
  const ProgramResult target =
      run_program("translate", {"predict", "--run", run, "--data", table, "--target-column", "2"});
  CHECK(target.status == 2);
  CHECK(contains(target.errors, "unknown option --target-column"));
}

TEST_CASE("translate predict writes a line for each line") {
  const std::string run = finished_translate().string();
  const ProgramResult result =
      run_program("translate", {"predict", "--run", run}, "one\n\nforty-two\r\nseven");
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(line_count(result.output) == 4);
  CHECK(contains(result.output, "\n\n"));  // the blank line stays where it was
  CHECK(run_program("translate", {"predict", "--run", run}, "").output.empty());
  CHECK(run_program("translate", {"predict", "--run", run}, "\n \n").output == "\n\n");
  // Each translation depends on its line alone.
  const ProgramResult alone = run_program("translate", {"predict", "--run", run}, "forty-two\n");
  CHECK(contains(result.output, "\n\n" + alone.output));
}

TEST_CASE("usage errors are named with the nearest name, and end with 2") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  translate_refuses(run_program("translate", {"train", "--out", run, "--sorce", "x"}), 2, "--source");
  translate_refuses(run_program("translate", {"trian"}), 2, "train");
  translate_refuses(run_program("translate", {"train"}), 2, "--out");
  translate_refuses(run_program("translate", {"train", "--out", run, "--set", "model.widht=8"}), 2,
                    "model.width");
  translate_refuses(run_program("translate", {"train", "--out", run, "--set", "model.width=wide"}), 2,
                    "model.width");
  translate_refuses(run_program("translate", {"train", "--out", run, "--set", "model.width=7"}), 2, "width");
  translate_refuses(run_program("translate", {"train", "--out", run, "--attention", "dot_prodct"}), 2,
                    "dot_product");
  translate_refuses(run_program("translate", {"train", "--out", run, "--device", "cpo"}), 2, "cpu");
  translate_refuses(run_program("translate", {"train", "--out", run, "--source", "x"}), 2, "--target");
  translate_refuses(run_program("translate", translate_training(run, {"--steps", "0"})), 2, "steps");
  translate_refuses(
      run_program("translate", translate_training(run, {"--set", "training.schedule.learning_rate=-1"})), 2,
      "rate");
  translate_refuses(run_program("translate", translate_training(run, {"--seed", "-1"})), 2, "seed");
  translate_refuses(run_program("translate", {"train", "--out", run, "--config", run + "/none.json"}), 2,
                    "none.json");
  write_content(folder / "bad.json", "{\"trainig\": {}}");
  translate_refuses(
      run_program("translate", {"train", "--out", run, "--config", (folder / "bad.json").string()}), 2,
      "training");
  CHECK(!fs::exists(run));  // nothing was left behind
}

TEST_CASE("translate predict --capture writes what the model shows of its inside") {
  const TemporaryFolder folder;
  const std::string run = finished_translate().string(), file = (folder / "inside.safetensors").string();
  const Arguments plain = {"predict", "--run", run}, watched = {"predict", "--run", run, "--capture", file};
  const std::string lines = "one\n\nforty-two\n";
  const ProgramResult result = run_program("translate", watched, lines);
  CHECK(result.status == 0);
  CHECK(result.output == run_program("translate", plain, lines).output);
  const heed::TensorFile inside = heed::load_safetensors(file);
  const auto shape_of = [&](const std::string& name) {
    REQUIRE_MESSAGE(inside.tensors.contains(name), name);
    return inside.tensors.at(name).shape();
  };
  const std::int64_t sources = shape_of("lines.2.source")[1], targets = shape_of("lines.2.target")[1];
  CHECK(shape_of("lines.2.encoder.layers.0.attention.weights") == heed::Shape{1, 2, sources, sources});
  CHECK(shape_of("lines.2.decoder.layers.0.self_attention.weights") == heed::Shape{1, 2, targets, targets});
  CHECK(shape_of("lines.2.decoder.layers.0.cross_attention.weights") == heed::Shape{1, 2, targets, sources});
  CHECK(inside.tensors.contains("lines.0.source"));
  CHECK_FALSE(inside.tensors.contains("lines.1.source"));  // a blank line
}

TEST_CASE("translate train --preset chooses the attentions, and measures gamma") {
  const TemporaryFolder folder;
  const auto model_after = [&](const std::string& preset, const Arguments& more) {
    Arguments arguments = translate_training(folder / preset, {"--steps", "2", "--preset", preset});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program("translate", arguments);
    CHECK_MESSAGE(result.status == 0, result.errors);
    return nlohmann::json::parse(content_of(folder / preset / "config.json")).at("model");
  };
  const auto hc_all = model_after("hc-all", {});
  CHECK(hc_all.at("encoder_attention") == "hard_coded_gaussian");
  const double gamma = hc_all.at("cross_attention").at("gamma");
  CHECK(gamma > 0.3);
  CHECK(gamma < 3);
  CHECK(gamma != 1);
  const auto sh_x = model_after("sh-x", {"--set", "model.decoder_layers=2"});
  REQUIRE(sh_x.at("cross_attention").size() == 2);
  CHECK(sh_x.at("cross_attention").at(0) == "none");
  CHECK(sh_x.at("cross_attention").at(1).at("heads") == 1);
  const auto hc_sa = model_after("hc-sa", {"--decoder-attention", "fastformer"});
  CHECK(hc_sa.at("decoder_attention") == "fastformer");
  translate_refuses(run_program("translate", translate_training(folder / "x", {"--preset", "hc-as"})), 2,
                    "hc-sa");
  // A run goes on with the gamma that it was started with.
  const Arguments resumed = {"--steps", "3", "--resume"};
  CHECK(run_program("translate", translate_training(folder / "hc-all", resumed)).status == 0);
}

TEST_CASE("data that cannot be used is named, and ends with 1") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& source, const std::string& target) {
    return run_program("translate",
                       translate_training(folder / "run", {"--source", (folder / source).string(), "--target",
                                                           (folder / target).string(), "--steps", "1"}));
  };
  write_content(folder / "two", "a b\nc d\n");
  write_content(folder / "three", "a\nb\nc\n");
  write_content(folder / "empty", "");
  write_content(folder / "latin", "caf\xe9\nx\n");
  translate_refuses(train("missing", "two"), 1, "missing");
  translate_refuses(train("two", "three"), 1, "3");
  translate_refuses(train("empty", "empty"), 1, "empty");
  translate_refuses(train("latin", "two"), 1, "UTF-8");
  CHECK(!fs::exists(folder / "run"));
}

TEST_CASE("a damaged run is named, and ends with 1") {
  const TemporaryFolder folder;
  fs::copy(finished_translate(), folder / "run", fs::copy_options::recursive);
  const std::string run = (folder / "run").string();
  translate_refuses(run_program("translate", {"predict", "--run", (folder / "nothing").string()}, "one\n"), 1,
                    "nothing");
  const ProgramResult unreadable = run_program("translate", {"predict", "--run", run}, "caf\xe9\none\n");
  CHECK(unreadable.status == 1);
  CHECK(contains(unreadable.errors, "translate: error: standard input, line 1"));
  CHECK(line_count(unreadable.output) == 2);  // the line has no answer, the next one has
  CHECK(unreadable.output.starts_with("\n"));

  const std::string weights = content_of(folder / "run/best.safetensors");
  write_content(folder / "run/best.safetensors", weights.substr(0, weights.size() / 2));
  translate_refuses(run_program("translate", {"predict", "--run", run}, "one\n"), 1, "best.safetensors");
  write_content(folder / "run/tokenizer.json", "{");
  translate_refuses(run_program("translate", {"evaluate", "--run", run}), 1, "tokenizer.json");
  write_content(folder / "run/config.json", "{\"model\": 3}");
  translate_refuses(run_program("translate", {"evaluate", "--run", run}), 1, "config.json");
}

TEST_CASE("heed devices, gradcheck and verify") {
  const ProgramResult devices = run_program("heed", {"devices"});
  CHECK(devices.status == 0);
  CHECK(contains(devices.output, "cpu"));

  const ProgramResult gradients = run_program("heed", {"gradcheck", "--filter", "attention/"});
  CHECK_MESSAGE(gradients.status == 0, gradients.output);
  CHECK(contains(gradients.output, " 0 failed"));
  CHECK(run_program("heed", {"gradcheck", "--filter", "no such case"}).status == 2);

  const TemporaryFolder folder;
  CHECK(run_program("heed", {"verify", folder.path().string()}).status == 2);
  CHECK(run_program("heed", {"verify", (folder / "none").string()}).status == 2);
  write_content(folder / "mha__broken.safetensors", "not a safetensors file");
  const ProgramResult broken = run_program("heed", {"verify", folder.path().string()});
  CHECK(broken.status == 1);
  CHECK(contains(broken.output, "mha__broken"));

  std::filesystem::remove(folder / "mha__broken.safetensors");
  std::string of_nobody = read_file(HEED_SOURCE_DIR "/tests/vectors/mha__self_pad.safetensors");
  replace_all(of_nobody, "mha", "mhz");
  write_content(folder / "nobody__case.safetensors", of_nobody);
  const ProgramResult unknown = run_program("heed", {"verify", folder.path().string()});
  CHECK(unknown.status == 1);
  CHECK(contains(unknown.output, "0 passed, 0 failed, 1 of unknown variants"));
}

TEST_CASE("programs: a processor without the instructions is told which") {
  using heed::programs::processor_error;
  using heed::programs::ProcessorFeature;
  std::vector<ProcessorFeature> features = heed::programs::needed_features();
  CHECK(processor_error(features) == "");  // or this test would not run
#if defined(__x86_64__)
  REQUIRE(features.size() == 5);
#endif
  features = {{"SSE3", true}, {"SSE4.2", false}, {"POPCNT", false}};
  CHECK(processor_error(features) ==
        "this processor lacks SSE4.2, POPCNT; heed needs x86-64-v2, that of any processor since 2009");
}

// No emulator runs what a sanitizer watches.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("programs: on an old processor nothing runs before the message, not even what comes before main") {
  const std::string emulator = "/usr/bin/qemu-x86_64";  // Debian: qemu-user
  if (!fs::exists(emulator)) {
    MESSAGE("skipped: there is no ", emulator);
    return;
  }
  const TemporaryFolder folder;
  for (const auto& old : {std::pair{"kvm64", "SSSE3, SSE4.1, SSE4.2, POPCNT"},
                          {"Conroe", "SSE4.1, SSE4.2, POPCNT"},
                          {"Penryn", "SSE4.2, POPCNT"}})
    for (const std::string program : {"heed", "classify", "compare"}) {
      const auto& [processor, missing] = old;
      CAPTURE(old.first);
      CAPTURE(program);
      const fs::path output = folder / "output";
      const std::string command = heed::concat_text(emulator, " -cpu ", processor, " " HEED_PROGRAM_DIR "/",
                                                    program, " > ", output.string(), " 2>&1");
      const int status = std::system(command.c_str());
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 1);
      CHECK(content_of(output) == program + ": error: this processor lacks " + missing +
                                      "; heed needs x86-64-v2, that of any processor since 2009\n");
    }
}
#endif

TEST_CASE("programs: without the memory to begin they say so") {
  if (sanitized) return;  // shadow memory leaves nothing to limit
  for (const std::string program : {"classify", "heed"}) {
    CAPTURE(program);
    const auto with = [&](std::uint64_t kibibytes) {
      return run_program(program, {"--help"}, {}, ".", {.address_space = kibibytes << 10});
    };
    std::uint64_t enough = 8 << 10;
    while (with(enough).status != 0) {
      enough += 1 << 10;
      REQUIRE(enough < 1 << 20);
    }
    bool said = false;
    for (std::uint64_t less = enough - (3 << 10); less < enough; less += 32) {
      CAPTURE(less);
      const ProgramResult result = with(less);
      CHECK(result.status != 128 + SIGABRT);
      if (result.status == 1) said = said || contains(result.errors, program + ": error: out of memory");
    }
    CHECK(said);
  }
}
