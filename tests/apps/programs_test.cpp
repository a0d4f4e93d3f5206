// The sample programs from the outside: what they print, what they leave behind, and their exit status.

#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/program.h"
#include "heed/apps/data/text_file.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/text/safetensors.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json config_of(const fs::path& run) {
  return Json::parse(content_of(run / "config.json"));
}

}  // namespace

TEST_CASE("programs: training leaves a whole run") {
  for (const std::string task : {"translate", "language_model"}) {
    CAPTURE(task);
    const fs::path& run = small_run(task);
    for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors",
                             "trainer_state.json", "tokenizer.json", "metrics.jsonl", "best.safetensors"})
      CHECK_MESSAGE(fs::file_size(run / file) > 0, file);
    const Json config = config_of(run);
    CHECK(config["training"]["steps"] == 20);
    CHECK(config["model"]["width"] == 16);
    CHECK(config["model"]["norm"].is_string());  // defaults are written out, but nothing that no model reads
    CHECK(config["model"].contains("encoder_layers") == (task == "translate"));
  }
}

TEST_CASE(
    "programs: a run that is given more steps goes on to the bits of one that had them from the start") {
  for (const std::string task : {"classify", "language_model"}) {
    CAPTURE(task);
    const TemporaryFolder folder;
    // The schedule follows the number of steps, so it is kept constant.
    const auto train = [&](const char* name, const Arguments& more) {
      const Arguments constant = {"--set", "training.schedule.name=constant", "--save-every", "7"};
      return run_program(task, small_train(task, folder / name, joined(constant, more)));
    };
    REQUIRE(train("whole", {"--steps", "24", "--threads", "3"}).status == 0);
    REQUIRE(train("part", {"--steps", "14"}).status == 0);
    const ProgramResult result =
        run_program(task, {"train", "--out", (folder / "part").string(), "--resume", "--steps", "24"});
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    CHECK(result.output.empty());  // progress belongs to standard error
    CHECK(content_of(folder / "part/model.safetensors") == content_of(folder / "whole/model.safetensors"));
  }
}

TEST_CASE("the first signal ends a program that still reads its data") {
  const TemporaryFolder folder;
  const std::string text = write_content(folder / "text", std::string(200 << 20, '\n')).string();
  for (const int signal : {SIGTERM, SIGINT}) {
    CAPTURE(signal);
    BackgroundProgram program("language_model",
                              {"train", "--data", text, "--out", (folder / "run").string()});
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    REQUIRE(program.running());
    program.send(signal);
    CHECK(program.wait(std::chrono::seconds(2)) == 128 + signal);
    CHECK_FALSE(fs::exists(folder / "run"));
  }
}

TEST_CASE("a second signal, of whichever kind, ends a program in the middle of a step") {
  const TemporaryFolder folder;
  for (const std::string ranks : {"1", "2"}) {
    CAPTURE(ranks);
    const fs::path run = folder / ranks;
    BackgroundProgram program("translate", small_train("translate", run,
                                                       {"--ranks", ranks, "--steps", "1", "--set",
                                                        "training.accumulation=1000000"}));
    program.wait_for_file(run / "config.json");
    program.send(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    REQUIRE(program.running());
    program.send(SIGINT);
    CHECK(program.wait(std::chrono::seconds(10)) == 130);
    CHECK_FALSE(fs::exists(run / "trainer_state.json"));
  }
}

TEST_CASE("translate evaluate ends with a line of JSON") {
  const TemporaryFolder folder;
  const std::string run = small_run("translate").string();
  const auto evaluate = [&](const Arguments& more) {
    const ProgramResult result = run_program("translate", joined({"evaluate", "--run", run}, more));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return Json::parse(result.output);
  };
  const Json report = evaluate({});
  CHECK(report["exact"].is_number());
  CHECK_FALSE(report.contains("bleu"));  // number words are one word each
  CHECK(report["loss"].get<double>() > 0);
  CHECK(report["sentences"] == 20);
  const std::string words = write_content(folder / "words", "one\ntwo\n").string(),
                    sentences = write_content(folder / "sentences", "eins zwei drei vier\nzwei\n").string();
  const Json counted = evaluate({"--source", words, "--target", sentences});
  CHECK(counted["bleu"].is_number());
  CHECK(contains(counted["signature"], "tok:13a"));
  const ProgramResult trained = run_program(
      "translate", {"train", "--out", (folder / "run").string(), "--source", words, "--target", words,
                    "--valid-source", words, "--valid-target", words, "--steps", "2", "--width", "16"});
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  CHECK(contains(trained.errors, "(training.keep_best_by=exact)"));
  CHECK(config_of(folder / "run")["training"]["keep_best_by"] == "exact");
}

TEST_CASE("translate predict answers lines and the sources of a table, each by itself") {
  const TemporaryFolder folder;
  const auto predict = [&](const std::string& input, const Arguments& more = {}) {
    const ProgramResult result =
        run_program("translate", use_command("translate", small_run("translate").string(), more), input);
    CHECK_MESSAGE(result.status == 0, result.errors);
    return result.output;
  };
  const std::string lines = predict("one\nforty-two\n"),
                    table = write_content(folder / "t.tsv", "id\tsource\n7\tone\n8\tforty-two\n").string();
  CHECK(predict("", {"--data", table, "--header"}) == lines);
  const std::string kept = predict("", {"--data", table, "--header", "--keep-columns"});
  CHECK(kept.starts_with("id\tsource\tpredicted_translation\n7\tone\t"));
  CHECK(contains(kept, "\n8\tforty-two\t"));

  const std::string answers = predict("one\n\nforty-two\r\nseven");
  CHECK(std::ranges::count(answers, '\n') == 4);
  CHECK(contains(answers, "\n\n" + predict("forty-two\n")));  // the blank line stays where it was
  CHECK(predict("").empty());
}

TEST_CASE("programs: --capture writes what a model shows of its inside, and answers the same") {
  /// Attention weights, and the texts whose tokens ask and are asked.
  struct Weights {
    std::string name, queries, keys;
  };
  struct Case {
    std::string task;
    Arguments more;
    std::string input;
    std::vector<Weights> weights;
    std::string absent = "nothing";
  };
  const TemporaryFolder folder;
  const std::vector<Case> cases = {
      {"translate",
       {},
       "one\n\nforty-two\n",
       {{"lines.0.encoder.layers.0.attention.weights", "lines.0.source", "lines.0.source"},
        {"lines.2.encoder.layers.0.attention.weights", "lines.2.source", "lines.2.source"},
        {"lines.2.decoder.layers.0.self_attention.weights", "lines.2.target", "lines.2.target"},
        {"lines.2.decoder.layers.0.cross_attention.weights", "lines.2.target", "lines.2.source"}},
       "lines.1.source"},  // a blank line
      {"classify",
       {},
       "a day\na sad night\n",
       {{"lines.0.encoder.layers.0.attention.weights", "lines.0.tokens", "lines.0.tokens"},
        {"lines.1.encoder.layers.0.attention.weights", "lines.1.tokens", "lines.1.tokens"}}},
      {"language_model",
       {"--samples", "2"},
       "the cat\n",
       {{"samples.0.decoder.layers.0.self_attention.weights", "samples.0.tokens", "samples.0.tokens"},
        {"samples.1.decoder.layers.0.self_attention.weights", "samples.1.tokens", "samples.1.tokens"}}}};
  for (const Case& one : cases) {
    CAPTURE(one.task);
    const std::string run = small_run(one.task).string(),
                      file = (folder / one.task).string() + ".safetensors";
    const Arguments plain = use_command(one.task, run, one.more);
    const ProgramResult result = run_program(one.task, joined(plain, {"--capture", file}), one.input);
    CHECK(result.status == 0);
    CHECK(result.output == run_program(one.task, plain, one.input).output);
    const auto inside = load_safetensors(file).tensors;
    for (const Weights& shown : one.weights) {
      CAPTURE(shown.name);
      REQUIRE(inside.contains(shown.name));
      REQUIRE(inside.contains(shown.queries));
      CHECK(inside.at(shown.name).shape() ==
            Shape{1, 2, inside.at(shown.queries).size(1), inside.at(shown.keys).size(1)});
    }
    CHECK_FALSE(inside.contains(one.absent));
  }
}

TEST_CASE("translate train --preset chooses the attentions, and measures gamma") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& preset, const Arguments& more) {
    const ProgramResult result = run_program("translate", small_train("translate", folder / preset, more));
    CHECK_MESSAGE(result.status == 0, result.errors);
    return config_of(folder / preset).at("model");
  };
  const Json hc_all = train("hc-all", {"--steps", "2", "--preset", "hc-all"});
  CHECK(hc_all.at("encoder_attention") == "hard_coded_gaussian");
  const double gamma = hc_all.at("cross_attention").at("gamma");
  CHECK(gamma > 0.3);
  CHECK(gamma < 3);
  CHECK(gamma != 1);
  // A run goes on with the gamma that it was started with.
  CHECK(train("hc-all", {"--steps", "3", "--resume"}).at("cross_attention").at("gamma") == gamma);
  const Json sh_x = train("sh-x", {"--steps", "2", "--preset", "sh-x", "--set", "model.decoder_layers=2"});
  REQUIRE(sh_x.at("cross_attention").size() == 2);
  CHECK(sh_x.at("cross_attention").at(0) == "none");
  CHECK(sh_x.at("cross_attention").at(1).at("heads") == 1);
  const Json hc_sa =
      train("hc-sa", {"--steps", "2", "--preset", "hc-sa", "--decoder-attention", "fastformer"});
  CHECK(hc_sa.at("decoder_attention") == "fastformer");
}

TEST_CASE("heed devices, gradcheck and verify") {
  const ProgramResult devices = run_program("heed", {"devices"});
  CHECK(devices.status == 0);
  CHECK(contains(devices.output, "cpu"));

  const ProgramResult gradients = run_program("heed", {"gradcheck", "--filter", "attention/linformer"});
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

  fs::remove(folder / "mha__broken.safetensors");
  std::string of_nobody = read_file(HEED_SOURCE_DIR "/tests/vectors/mha__self_pad.safetensors");
  replace_all(of_nobody, "mha", "mhz");
  write_content(folder / "nobody__case.safetensors", of_nobody);
  const ProgramResult unknown = run_program("heed", {"verify", folder.path().string()});
  CHECK(unknown.status == 1);
  CHECK(contains(unknown.output, "0 passed, 0 failed, 1 of unknown variants"));
}

TEST_CASE("programs: errors of the library name settings and arguments, which a program shows as flags") {
  const TemporaryFolder folder;
  const std::string run = small_run("classify").string();
  const auto errors = [&](const Arguments& arguments) {
    const ProgramResult result = run_program("classify", arguments);
    CHECK(result.status != 0);
    return result.errors;
  };
  CHECK(contains(errors({"train", "--out", run}), "continue it with --resume, or"));
  const std::string odd = write_content(folder / "odd", "x y\n").string();
  const std::string format = errors({"train", "--out", (folder / "run").string(), "--data", odd});
  CHECK(contains(format, "--format lines"));
  CHECK_FALSE(contains(format, "data.format="));
  const std::string valid = errors({"train", "--out", (folder / "run").string(), "--valid", odd});
  CHECK(contains(valid, "--valid (data.valid) needs --data (data.file), the training data"));
}

TEST_CASE("programs: a processor without the instructions is told which") {
  using programs::processor_error;
  using programs::ProcessorFeature;
  std::vector<ProcessorFeature> features = programs::needed_features();
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
    for (const std::string program : {"heed", "classify"}) {
      const auto& [processor, missing] = old;
      CAPTURE_ALL(old.first, program);
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
