#include "heed/training/checkpoint.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "full_disk.h"
#include "heed/core/cpu_threads.h"
#include "heed/core/file.h"
#include "heed/training/model_file.h"
#include "heed/training/trainer.h"
#include "temporary_folder.h"
#include "training_tasks.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

constexpr const char* config = R"({"model":{"width":16},"steps":20,"threads":2})";
const std::vector<std::string> free_keys{"threads"};

/// Everything that a checkpoint has to carry is in use: accumulation, averages, evaluations, records between
/// checkpoints.
TrainerOptions run_options() {
  TrainerOptions options;
  options.steps = 20;
  options.accumulation = 2;
  options.clip_norm = 0.5;
  options.ema_decay = 0.95;
  options.schedule = {ScheduleKind::cosine, 0.01, 5, 0};
  options.log_every = 3;
  options.evaluate_every = 6;
  options.save_every = 1;
  options.seed = 5;
  return options;
}

/// Trains in a folder: from the start, or from where it was killed.
TrainResult train_in(const fs::path& path, TrainerCallbacks callbacks = {},
                     TrainerOptions options = run_options()) {
  TinyTask task;
  const bool again = fs::exists(path / "config.json");
  RunFolder folder = again ? RunFolder::resume(path, config, free_keys) : RunFolder::create(path, config);
  return Trainer(task, options, std::move(callbacks)).run(&folder);
}

/// Stops after a step as if the program were asked to end.
TrainerCallbacks stop_after(std::int64_t steps) {
  return {.stop_requested = [left = steps]() mutable { return --left == 0; }};
}

/// The steps of the records in metrics.jsonl, evaluations marked by a sign.
std::vector<std::int64_t> recorded_steps(const fs::path& run) {
  std::vector<std::int64_t> steps;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Progress progress = parse_metrics_line(line);
    steps.push_back(progress.is_evaluation() ? -progress.step : progress.step);
  }
  return steps;
}

/// The losses of the records in metrics.jsonl: they depend on sums that cross checkpoints.
std::vector<double> recorded_losses(const fs::path& run) {
  std::vector<double> losses;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) losses.push_back(parse_metrics_line(line).loss);
  return losses;
}

void check_same_run(const fs::path& run, const fs::path& reference) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "best.safetensors"}) {
    CAPTURE(name);
    CHECK((read_file(run / name) == read_file(reference / name)));
  }
  CHECK(recorded_steps(run) == recorded_steps(reference));
  CHECK(recorded_losses(run) == recorded_losses(reference));
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

/// Runs the test case "checkpoint child" of this program in a process of its own: a fork alone would have no
/// pool of threads.
pid_t start_child(const fs::path& run) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv("HEED_TEST_RUN", run.c_str(), 1);
  ::execl("/proc/self/exe", "heed_tests", "--no-skip", "--test-case=checkpoint child", "--minimal",
          static_cast<char*>(nullptr));
  ::_exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

std::string damaged(std::string bytes, std::size_t where) {
  bytes[where] = static_cast<char>(bytes[where] ^ 0x40);
  return bytes;
}

}  // namespace

TEST_CASE("checkpoint child" * doctest::skip()) {
  const char* run = std::getenv("HEED_TEST_RUN");
  if (run != nullptr) train_in(run);
}

TEST_CASE("checkpoint: a run that was stopped and resumed gives the same bytes") {
  const TemporaryFolder folder;
  const TrainResult whole = train_in(folder / "whole");
  CHECK(whole.finished);
  CHECK(whole.step == 20);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(train_in(folder / "parts", stop_after(7)).finished);
  const TrainResult last = train_in(folder / "parts");
  CHECK(last.finished);
  CHECK(last.best_step == whole.best_step);
  CHECK(last.best_metric == whole.best_metric);
  check_same_run(folder / "parts", folder / "whole");
  CHECK(names_in(folder / "parts") ==
        std::set<std::string>{"config.json", "model.safetensors", "optimizer.safetensors", "best.safetensors",
                              "trainer_state.json", "metrics.jsonl", "report.html"});
  CHECK(train_in(folder / "parts").step == 20);  // nothing is left to do
  check_same_run(folder / "parts", folder / "whole");
}

TEST_CASE("checkpoint: killed at any moment and resumed, a run gives the same bytes") {
  const TemporaryFolder folder;
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(wait_for(start_child(folder / "whole")) == 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  std::mt19937 generator(std::random_device{}());
  int kills = 0;
  for (int round = 0; round < 2; ++round) {
    const fs::path run = folder / ("killed_" + std::to_string(round));
    for (int attempt = 0; attempt < 6; ++attempt) {
      const pid_t child = start_child(run);
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::uniform_real_distribution<double>(0, 0.6 * seconds)(generator)));
      ::kill(child, SIGKILL);
      kills += WIFSIGNALED(wait_for(child));
    }
    CHECK(wait_for(start_child(run)) == 0);
    check_same_run(run, folder / "whole");
  }
  CHECK(kills > 0);
}

TEST_CASE("checkpoint: at every point of writing one, what is opened again is the old set or the new one") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(4));
  const fs::path other = folder / "other";
  train_in(other, stop_after(9));
  const std::vector<std::string> set{"model.safetensors", "optimizer.safetensors", "trainer_state.json"};
  const auto step_of = [](const fs::path& path) {
    return parse_trainer_state(read_file(path / "trainer_state.json"), "x").step;
  };

  // Killed while the new files were being written: the old set stays.
  fs::create_directory(run / "checkpoint.tmp");
  fs::copy(other / "model.safetensors", run / "checkpoint.tmp/model.safetensors");
  write_file_atomically(run / "report.html.123.tmp", "half");
  { RunFolder::resume(run, config, free_keys); }
  CHECK(step_of(run) == 4);
  CHECK_FALSE(fs::exists(run / "checkpoint.tmp"));
  CHECK_FALSE(fs::exists(run / "report.html.123.tmp"));

  // Killed after the commit, with none, some or all of the files moved: the new set.
  for (std::size_t moved = 0; moved <= set.size(); ++moved) {
    CAPTURE(moved);
    const fs::path copy = folder / ("moved_" + std::to_string(moved));
    fs::copy(run, copy);
    fs::create_directory(copy / "checkpoint.new");
    for (std::size_t i = 0; i < set.size(); ++i) {
      fs::copy(other / set[i], copy / (i < moved ? set[i] : "checkpoint.new/" + set[i]),
               fs::copy_options::overwrite_existing);
    }
    // A reader that changes nothing sees the new model too.
    CHECK((read_file(run_file(copy, "model.safetensors")) == read_file(other / "model.safetensors")));
    const RunFolder opened = RunFolder::resume(copy, config, free_keys);
    TinyTask task;
    Optimizer optimizer(task.model().parameters(), {});
    MovingAverage average(task.model().parameters(), 0.95);
    CHECK(load_checkpoint(opened, {task.model(), optimizer, &average}).step == 9);
    CHECK_FALSE(fs::exists(copy / "checkpoint.new"));
  }
}

TEST_CASE("checkpoint: on a full disk the error says so, and the last one stays whole") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(4));
  const std::string before = read_file(run / "model.safetensors");
  {
    const FullDisk full(4000);
    CHECK_THROWS_WITH_AS(train_in(run), doctest::Contains("cannot write"), Error);
  }
  CHECK((read_file(run / "model.safetensors") == before));
  CHECK_FALSE(fs::exists(run / "checkpoint.tmp"));
  train_in(folder / "whole");
  CHECK(train_in(run).finished);
  check_same_run(run, folder / "whole");
}

TEST_CASE("checkpoint: damaged and foreign files are refused by name") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(4));
  const auto refused = [&](const char* name, const std::string& content, const char* reason) {
    CAPTURE(name);
    const std::string good = read_file(run / name);
    write_file_atomically(run / name, content);
    CHECK_THROWS_WITH_AS(train_in(run), doctest::Contains(name), Error);
    CHECK_THROWS_WITH_AS(train_in(run), doctest::Contains(reason), Error);
    write_file_atomically(run / name, good);
  };
  const std::string model = read_file(run / "model.safetensors"),
                    state = read_file(run / "trainer_state.json");
  refused("model.safetensors", model.substr(0, model.size() / 2), "");
  refused("model.safetensors", damaged(model, 9), "");
  refused("model.safetensors", "", "too few");
  refused("optimizer.safetensors", model, "moving average");
  refused("optimizer.safetensors", "no safetensors", "");
  refused("trainer_state.json", "{}", "format");
  refused("trainer_state.json", "not json", "damaged");
  refused("trainer_state.json", state.substr(0, state.size() - 20), "damaged");
  std::string other_step = state;
  other_step.replace(other_step.find("\"step\": 4"), 9, "\"step\": 5");
  refused("trainer_state.json", other_step, "do not belong together");

  TinyTask wider({.width = 32});
  RunFolder opened = RunFolder::resume(run, config, free_keys);
  CHECK_THROWS_WITH_AS(Trainer(wider, run_options()).run(&opened),
                       doctest::Contains("does not fit the model"), Error);
  TrainerOptions options = run_options();
  options.seed = 6;
  TinyTask task;
  CHECK_THROWS_WITH_AS(Trainer(task, options).run(&opened), doctest::Contains("the seed is 6"), Error);
  options = run_options();
  options.ema_decay = 0;
  CHECK_THROWS_WITH_AS(Trainer(task, options).run(&opened), doctest::Contains("ema_decay is 0"), Error);
  TinyTask shorter({.batches = 4});
  CHECK_THROWS_WITH_AS(Trainer(shorter, run_options()).run(&opened),
                       doctest::Contains("data or the batching changed"), Error);
}

TEST_CASE("checkpoint: one made on another platform is used, with a warning") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(4));
  std::string state = read_file(run / "trainer_state.json");
  const std::string platform = platform_name({});
  state.replace(state.find(platform), platform.size(), "OpenBLAS Abacus, fingers");
  write_file_atomically(run / "trainer_state.json", state);
  std::string said;
  train_in(run, {.message = [&](std::string_view text) { said = text; }});
  CHECK(said.find("OpenBLAS Abacus, fingers") != std::string::npos);
}

TEST_CASE("run folder: a fresh run does not touch one that is there") {
  const TemporaryFolder folder;
  { RunFolder::create(folder / "a/b/run", config); }
  CHECK(read_file(folder / "a/b/run/config.json") == config);
  CHECK_THROWS_WITH_AS(RunFolder::create(folder / "a/b/run", config), doctest::Contains("--resume"), Error);
  write_file_atomically(folder / "file", "x");
  CHECK_THROWS_WITH_AS(RunFolder::create(folder / "file/run", config), doctest::Contains("Not a directory"),
                       Error);
}

TEST_CASE("run folder: only a run can be resumed, and only by one process") {
  const TemporaryFolder folder;
  const auto resume = [&](const fs::path& path) { RunFolder::resume(path, config, free_keys); };
  CHECK_THROWS_WITH_AS(resume(folder / "absent"), doctest::Contains("no run to resume"), Error);
  fs::create_directory(folder / "killed_at_once");
  resume(folder / "killed_at_once");
  CHECK(fs::exists(folder / "killed_at_once/config.json"));
  fs::create_directory(folder / "pictures");
  write_file_atomically(folder / "pictures/cat.png", "meow");
  CHECK_THROWS_WITH_AS(resume(folder / "pictures"), doctest::Contains("not a run folder"), Error);

  const RunFolder held = RunFolder::create(folder / "run", config);
  CHECK_FALSE(held.has_checkpoint());
  CHECK_THROWS_WITH_AS(resume(folder / "run"), doctest::Contains("another process"), Error);
  CHECK_THROWS_WITH_AS(run_file(folder / "run", "model.safetensors"), doctest::Contains("first checkpoint"),
                       Error);
}

TEST_CASE("run folder: a configuration that differs is refused by the name of its key") {
  const auto compare = [](const char* now) {
    compare_configurations(config, now, free_keys, "run/config.json");
  };
  compare(R"({"model":{"width":16},"steps":20,"threads":8})");
  compare(R"({"steps":20,"model":{"width":16}})");
  CHECK_THROWS_WITH_AS(
      compare(R"({"model":{"width":32},"steps":20})"),
      doctest::Contains("\"model.width\" is 32, but the run in run/config.json was started with 16"), Error);
  CHECK_THROWS_WITH_AS(compare(R"({"model":{"width":16}})"), doctest::Contains("\"steps\" is not set"),
                       Error);
  CHECK_THROWS_WITH_AS(compare("[1]"), doctest::Contains("not a JSON object"), Error);
  CHECK_THROWS_WITH_AS(compare("{"), doctest::Contains("not valid JSON"), Error);
  CHECK_THROWS_WITH_AS(compare(std::string(100'000, '[').c_str()), doctest::Contains("nested"), Error);
}

TEST_CASE("checkpoint: the fuzzer's corpus of trainer states gives states or errors") {
  int read = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(HEED_SOURCE_DIR) / "tests/fuzz/corpus/trainer_state")) {
    CAPTURE(entry.path());
    try {
      const TrainerState state = parse_trainer_state(read_file(entry.path()), "corpus");
      CHECK(trainer_state_text(parse_trainer_state(trainer_state_text(state), "again")) ==
            trainer_state_text(state));
      ++read;
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("corpus is damaged"));
    }
  }
  CHECK(read > 0);
}

TEST_CASE("metrics: what was written after the checkpoint is cut off") {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  std::int64_t bytes = 0;
  {
    MetricsLog log(path, 0);
    log.append({.step = 1, .steps = 9});
    bytes = log.sync();
    log.append({.step = 2, .steps = 9});
    append_to_file(path, "{\"step\":3,");  // a line that a kill tore
  }
  MetricsLog log(path, bytes);
  log.append({.step = 2, .steps = 9});
  const std::vector<Progress> records = log.records();
  REQUIRE(records.size() == 2);
  CHECK(records[1].step == 2);
  CHECK_THROWS_WITH_AS(MetricsLog(path, 1 << 20), doctest::Contains("lines were removed"), Error);
}

TEST_CASE("model file: weights survive, and what does not fit changes nothing") {
  const TemporaryFolder folder;
  TinyTask a({}, 1), b({}, 2), wider({.width = 32});
  save_model(a.model(), folder / "m", {{"note", "x"}});
  CHECK(load_model(b.model(), folder / "m").at("note") == "x");
  save_model(b.model(), folder / "n", {{"note", "x"}});
  CHECK((read_file(folder / "m") == read_file(folder / "n")));
  CHECK_THROWS_WITH_AS(load_model(wider.model(), folder / "m"), doctest::Contains("\"embedding\""), Error);
}
