#include "heed/training/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "heed/base/digest.h"
#include "heed/base/open_folder.h"
#include "heed/tests/training_objectives.h"
#include "heed/text/safetensors.h"
#include "heed/training/trainer.h"

namespace fs = std::filesystem;

namespace {

constexpr const char* config = R"({"model":{"width":16},"steps":20,"threads":2})";
const std::vector<std::string> free_keys{"threads"};

/// What the runs of these tests start with.
RunStart start_with(std::string text = config) {
  return {.task = "count",
          .config = std::move(text),
          .files = {{"words.txt", "one two three"}},
          .data = {{"train", compute_digest("the texts")}}};
}

/// Everything that a checkpoint has to carry is in use: accumulation, averages,
/// evaluations, records between checkpoints.
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
                     TrainerOptions options = run_options(), bool verify = true) {
  TinyObjective objective;
  const bool again = fs::exists(path / "config.json");
  RunFolder folder = again ? RunFolder::resume(path, start_with(), free_keys, verify)
                           : RunFolder::create(path, start_with());
  return Trainer(objective, options, std::move(callbacks)).run(&folder);
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
Doubles recorded_losses(const fs::path& run) {
  Doubles losses;
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

/// Runs the test case "checkpoint child" of this program in a process of its own: a fork alone
/// would have no pool of threads.
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

bool same_weights(Module& a, Module& b) {
  const std::vector<NamedTensor> first = a.state(), second = b.state();
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].tensor->to_vector<float>() != second[i].tensor->to_vector<float>()) return false;
  }
  return first.size() == second.size();
}

/// trainer_state.json with other content, and the digest of that.
std::string with_digest(const std::string& state) {
  return trainer_state_text(parse_trainer_state(state, "edited", false));
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  REQUIRE(text.find(what) != text.npos);
  return text.replace(text.find(what), what.size(), by);
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
  std::string said;
  const TrainResult last =
      train_in(folder / "parts", {.message = [&](std::string_view text) { said += text; }});
  CHECK(said == "resuming from step 14 of 20 (epoch 5, batch 3 of 5)");
  CHECK(last.finished);
  CHECK(last.best_step == whole.best_step);
  CHECK(last.best_metric == whole.best_metric);
  check_same_run(folder / "parts", folder / "whole");
  CHECK(names_in(folder / "parts") == std::set<std::string>{"run.json", "words.txt", "config.json",
                                                            "model.safetensors", "optimizer.safetensors",
                                                            "best.safetensors", "trainer_state.json",
                                                            "metrics.jsonl"});
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
  fs::copy(run, other);
  train_in(other, stop_after(5));  // the same run, five steps on
  const std::vector<std::string> set{"best.safetensors", "model.safetensors", "optimizer.safetensors",
                                     "trainer_state.json"};
  const auto step_of = [](const fs::path& path) {
    return parse_trainer_state(read_file(path / "trainer_state.json"), "x").step;
  };

  // Killed while the new files were being written: the old set stays.
  fs::create_directory(run / ".heed-checkpoint.tmp");
  fs::copy(other / "model.safetensors", run / ".heed-checkpoint.tmp/model.safetensors");
  write_file_atomically(run / ".heed-checkpoint.tmp/.heed-best.safetensors-1-0123456789abcdef.tmp", "half");
  write_file_atomically(run / ".heed-report.html-123-0123456789abcdef.tmp", "half");
  { RunFolder::resume(run, start_with(), free_keys); }
  CHECK(step_of(run) == 4);
  for (const std::string& name : names_in(run)) CHECK_FALSE(name.starts_with(".heed"));

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
    TinyObjective read, expected;
    RunFiles::open(copy)->load_weights(read.model(), "last");
    load_model(expected.model(), other / "model.safetensors");
    CHECK(same_weights(read.model(), expected.model()));
    const RunFolder opened = RunFolder::resume(copy, start_with(), free_keys);
    TinyObjective objective;
    Optimizer optimizer(objective.model().parameters(), {});
    MovingAverage average(objective.model().parameters(), 0.95);
    CHECK(load_checkpoint(opened, {objective.model(), optimizer, &average}).step == 9);
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
    CHECK_ERROR(train_in(run), "cannot write");
  }
  CHECK((read_file(run / "model.safetensors") == before));
  for (const std::string& name : names_in(run)) CHECK_FALSE(name.starts_with(".heed"));
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
    CHECK_ERROR(train_in(run), name);
    CHECK_ERROR(train_in(run), reason);
    write_file_atomically(run / name, good);
  };
  const std::string model = read_file(run / "model.safetensors"),
                    state = read_file(run / "trainer_state.json");
  refused("model.safetensors", model.substr(0, model.size() / 2), "");
  refused("model.safetensors", damaged(model, 9), "");
  refused("model.safetensors", "", "too few");
  refused("optimizer.safetensors", model, "changed after it was written");
  refused("optimizer.safetensors", "not a safetensors", "");
  refused("trainer_state.json", "{}", "format");
  refused("trainer_state.json", "not json", "damaged");
  refused("trainer_state.json", state.substr(0, state.size() - 20), "damaged");
  const std::string other_step = replaced(state, "\"step\": 4,\n  \"epoch", "\"step\": 5,\n  \"epoch");
  refused("trainer_state.json", other_step, "changed after it was written");
  const std::string good = read_file(run / "trainer_state.json");
  write_file_atomically(run / "trainer_state.json", with_digest(other_step));
  CHECK_ERROR(train_in(run), "do not belong together");
  write_file_atomically(run / "trainer_state.json", good);
  TinyObjective wider({.width = 32});
  RunFolder opened = RunFolder::resume(run, start_with(), free_keys);
  CHECK_ERROR(Trainer(wider, run_options()).run(&opened), "does not fit the model");
  TrainerOptions options = run_options();
  options.seed = 6;
  TinyObjective objective;
  CHECK_ERROR(Trainer(objective, options).run(&opened), "the seed is 6");
  options = run_options();
  options.ema_decay = 0;
  CHECK_ERROR(Trainer(objective, options).run(&opened), "ema_decay is 0");
  TinyObjective shorter({.batches = 4});
  CHECK_ERROR(Trainer(shorter, run_options()).run(&opened), "data or the batching changed");
}

TEST_CASE("checkpoint: files of another run and changed ones are refused, unless that is asked for") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", other = folder / "other";
  train_in(run, stop_after(8));
  TrainerOptions faster = run_options();  // an equal run's files are equal, too
  faster.schedule.learning_rate = 0.02;
  train_in(other, stop_after(8), faster);
  const auto refused = [&](const char* name, const std::string& content, const char* reason,
                           const char* weights) {
    CAPTURE(name);
    CAPTURE(reason);
    const std::string good = read_file(run / name);
    write_file_atomically(run / name, content);
    CHECK_ERROR(train_in(run), name);
    CHECK_ERROR(train_in(run), reason);
    CHECK_NOTHROW(train_in(run, stop_after(1), run_options(), false));
    fs::remove_all(run);
    fs::copy(folder / "good", run);
    if (weights != nullptr) {
      write_file_atomically(run / name, content);
      TinyObjective objective;
      CHECK_ERROR(RunFiles::open(run)->load_weights(objective.model(), weights), reason);
      CHECK_NOTHROW(RunFiles::open(run, false)->load_weights(objective.model(), weights));
    }
    write_file_atomically(run / name, good);
  };
  fs::copy(run, folder / "good");
  const auto rewritten = [&](const char* name, const auto& change) {
    TensorFile file = load_safetensors(run / name);
    change(file);
    save_safetensors(folder / "rewritten", file);
    return read_file(folder / "rewritten");
  };
  refused("model.safetensors", read_file(other / "model.safetensors"), "belongs to another run", "last");
  refused("optimizer.safetensors", read_file(other / "optimizer.safetensors"), "another run", nullptr);
  refused("best.safetensors", read_file(other / "best.safetensors"), "another run", "best");
  refused("trainer_state.json", read_file(other / "trainer_state.json"), "another run", "last");
  const std::string model = read_file(run / "model.safetensors");
  refused("model.safetensors", damaged(model, model.size() - 2), "changed after it was written", "last");
  const auto exchange = [](TensorFile& file) {
    std::swap(file.tensors.at("norm"), file.tensors.at("norm_bias"));
  };
  refused("model.safetensors", rewritten("model.safetensors", exchange), "changed after", "last");
  refused("best.safetensors", rewritten("best.safetensors", exchange), "changed after", "best");
  const auto forget = [](TensorFile& file) {
    for (auto& [name, tensor] : file.tensors) {
      if (name.starts_with("second_moment.")) tensor = Tensor::zeros(tensor.shape());
    }
  };
  refused("optimizer.safetensors", rewritten("optimizer.safetensors", forget), "changed after", nullptr);
  const std::string state = read_file(run / "trainer_state.json");
  refused("trainer_state.json", replaced(state, "\"batch\": 1", "\"batch\": 2"), "changed after", "last");
  refused("words.txt", "one three two", "changed after", nullptr);
  CHECK_ERROR(
      [&] {
        write_file_atomically(run / "words.txt", "one three two");
        RunFiles::open(run)->text("words.txt");
      }(),
      "words.txt\" was changed after");
  CHECK(RunFiles::open(run, false)->text("words.txt") == "one three two");
}

TEST_CASE("checkpoint: best weights that are gone are not silently other ones") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(8));
  fs::remove(run / "best.safetensors");
  TinyObjective objective;
  const auto files = RunFiles::open(run);
  CHECK(files->has_best());
  CHECK_ERROR(files->load_weights(objective.model(), "best"),
              "is missing, but the run wrote it in step 6; put it back");
  CHECK_NOTHROW(files->load_weights(objective.model(), "last"));
  CHECK_ERROR(train_in(run), "best.safetensors\" is missing");
  CHECK(train_in(run, {}, run_options(), false).best_step > 8);  // all that was better is forgotten
  CHECK(fs::exists(run / "best.safetensors"));
}

TEST_CASE("checkpoint: weights that are not finite are named") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(8));
  fs::copy(run, folder / "good");
  const auto spoil = [&](const char* name, const char* tensor) {
    fs::remove_all(run);
    fs::copy(folder / "good", run);
    TensorFile file = load_safetensors(run / name);
    Tensor& spoiled = file.tensors.at(tensor);
    Floats values = spoiled.to_vector<float>();
    values[3] = std::numeric_limits<float>::quiet_NaN();
    spoiled = Tensor::from(values, spoiled.shape());
    save_safetensors(run / name, file);
    const std::string found = concat_text("\"", tensor, "\" holds nan at element 3");
    CHECK_ERROR(train_in(run, {}, run_options(), false), found.c_str());
  };
  spoil("model.safetensors", "first_bias");
  TinyObjective objective;
  CHECK_ERROR(load_model(objective.model(), run / "model.safetensors"),
              "model.safetensors does not fit the model: the tensor \"first_bias\"");
  spoil("optimizer.safetensors", "second_moment.output");
  CHECK_ERROR(train_in(run, {}, run_options(), false), "optimizer.safetensors");
}

TEST_CASE("checkpoint: one that could not be resumed does not replace the last good one") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  TrainerOptions options = run_options();
  options.optimizer.kind = OptimizerKind::adam;
  options.clip_norm = 0;
  train_in(run, stop_after(8), options);
  const std::string state = read_file(run / "trainer_state.json");
  // The square of 1e21 w is infinite in f32, so Adam stands still: weights stay finite, moments do not.
  options.optimizer.weight_decay = 1e21;
  const std::string error = error_of([&] { train_in(run, {}, options); });
  CHECK(contains(error, "\"second_moment."));
  CHECK(contains(error, "the last checkpoint is kept"));
  CHECK(read_file(run / "trainer_state.json") == state);
  options.optimizer.weight_decay = 0;
  CHECK(train_in(run, {}, options).step == 20);

  TinyObjective objective;
  Floats values = objective.model().parameters()[0].tensor->to_vector<float>();
  values[1] = std::numeric_limits<float>::infinity();
  objective.model().parameters()[0].tensor->assign(std::span<const float>(values));
  CHECK_ERROR(save_model(objective.model(), folder / "model"), "holds inf at element 1");
  CHECK_FALSE(fs::exists(folder / "model"));
}

TEST_CASE("run folder: a run that was copied by hard links shares nothing that is written") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", copy = folder / "copy";
  TrainerOptions options = run_options();
  options.tensorboard = true;
  train_in(run, stop_after(8), options);
  fs::create_directories(copy / "tensorboard");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run))
    if (entry.is_regular_file()) fs::create_hard_link(entry.path(), copy / fs::relative(entry.path(), run));
  std::map<fs::path, std::string> before;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run))
    if (entry.is_regular_file()) before[entry.path()] = read_file(entry.path());
  train_in(copy, {}, options);
  for (const auto& [path, content] : before) {
    CAPTURE(path);
    CHECK((read_file(path) == content));
  }
  train_in(run, {}, options);
  check_same_run(copy, run);
}

TEST_CASE("run files: what a run was made of, while it trains and afterwards") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  CHECK_ERROR(RunFiles::open(run), "there is no run in");
  fs::create_directory(run);
  CHECK_ERROR(RunFiles::open(run), "it has no config.json");
  write_file_atomically(folder / "file", "x");
  CHECK_ERROR(RunFiles::open(folder / "file"), "it is a file");
  TinyObjective objective;
  {
    const RunFolder held = RunFolder::create(run, start_with());
    const auto files = RunFiles::open(run);
    CHECK(files->identity() == held.identity());
    CHECK(is_digest(files->identity()));
    CHECK(files->task() == "count");
    CHECK(files->config() == config);
    CHECK(files->text("words.txt") == "one two three");
    CHECK_ERROR(files->text("tokenizer.json"), "has no tokenizer.json");
    CHECK(files->data_digest("train") == compute_digest("the texts"));
    CHECK(files->data_digest("test").empty());
    CHECK_FALSE(files->has_best());
    CHECK_ERROR(files->load_weights(objective.model(), "last"), "first checkpoint");
    CHECK_ERROR(files->saved("last"), "first checkpoint");
  }
  train_in(run, stop_after(3));
  const auto files = RunFiles::open(run);
  CHECK(files->saved("last").step == 3);
  CHECK(files->saved("last").digest == files->weights("last").digest);
  CHECK_ERROR(files->saved("best"), "no best weights yet");
  CHECK_FALSE(files->has_best());
  CHECK_ERROR(files->load_weights(objective.model(), "best"), "no best weights yet");
  CHECK_ERROR(files->load_weights(objective.model(), "bets"), "choose best or last");
  // Read from another thread while it trains: always one whole checkpoint.
  {
    std::atomic<bool> trains = true;
    int read = 0;
    std::string failures;
    std::jthread reader([&] {
      TinyObjective seen;
      while (trains) {
        try {
          files->load_weights(seen.model(), "last");
          ++read;
        } catch (const Error& error) {
          failures += error.what();
        }
      }
    });
    train_in(run);
    trains = false;
    reader.join();
    CHECK(read > 0);
    CHECK(failures == "");
  }
  CHECK(files->has_best());
  TinyObjective best, expected;
  files->load_weights(best.model(), "best");
  load_model(expected.model(), run / "best.safetensors");
  CHECK(same_weights(best.model(), expected.model()));

  fs::remove(run / "run.json");
  CHECK_ERROR(RunFiles::open(run), "has lost its run.json");
  CHECK_ERROR(train_in(run), "has lost its run.json");
}

TEST_CASE("checkpoint: one made on another platform is used, with a warning") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(4));
  const std::string state = read_file(run / "trainer_state.json");
  write_file_atomically(run / "trainer_state.json",
                        with_digest(replaced(state, platform_name({}), "OpenBLAS Abacus, fingers")));
  std::string said;
  train_in(run, {.message = [&](std::string_view text) { said += text; }});
  CHECK(contains(said, "OpenBLAS Abacus, fingers"));
}

TEST_CASE("run folder: a fresh run does not touch one that is there") {
  const TemporaryFolder folder;
  { RunFolder::create(folder / "a/b/run", start_with()); }
  CHECK(read_file(folder / "a/b/run/config.json") == config);
  CHECK_ERROR(RunFolder::create(folder / "a/b/run", start_with()), "resume=true");
  write_file_atomically(folder / "file", "x");
  CHECK_ERROR(RunFolder::create(folder / "file/run", start_with()), "Not a directory");
}

TEST_CASE("run folder: a folder that holds anything else is refused, and nothing in it is touched") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "d/thesis.tmp");
  write_file_atomically(folder / "d/thesis.tmp/chapter", "long");
  const std::vector<std::pair<const char*, const char*>> foreign{{"thesis.tmp", "chapter"},
                                                                 {"notes.tmp", "x"}};
  CHECK_ERROR(RunFolder::create(folder / "d", start_with()), "holds \"thesis.tmp\"");
  CHECK(read_file(folder / "d/thesis.tmp/chapter") == "long");
  CHECK(names_in(folder / "d") == std::set<std::string>{"thesis.tmp"});

  for (const char* name : {"notes.tmp", "tokenizer.json", ".heed-notes.tmp", "run.json"}) {
    fs::create_directory(folder / name);
    write_file_atomically(folder / name / fs::path(name), "mine");
    CHECK_ERROR(RunFolder::create(folder / name, start_with()), name);
    CHECK(read_file(folder / name / fs::path(name)) == "mine");
  }
}

TEST_CASE("run folder: what somebody else puts into a run stays as it is") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(4));
  fs::create_directories(run / "thesis.tmp");
  fs::create_directories(run / ".heed-plots-1-0123456789abcdef.tmp");
  fs::create_directories(run / "checkpoint.tmp");
  for (const char* name : {"thesis.tmp/chapter", "notes.tmp", "checkpoint.tmp/mine"})
    write_file_atomically(run / name, "mine");
  CHECK(train_in(run).finished);
  for (const char* name : {"thesis.tmp/chapter", "notes.tmp", "checkpoint.tmp/mine"})
    CHECK(read_file(run / name) == "mine");
  CHECK(fs::exists(run / ".heed-plots-1-0123456789abcdef.tmp"));
}

TEST_CASE("run folder: a link in place of a folder of checkpoints is refused, and not followed") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", other = folder / "other";
  for (const fs::path& one : {run, other}) train_in(one, stop_after(4));
  const std::set<std::string> before = names_in(other);
  for (const char* name : {".heed-checkpoint.tmp", "checkpoint.new"})
    for (const char* target : {"../other", "nowhere"}) {
      CAPTURE(name);
      CAPTURE(target);
      fs::create_symlink(target, run / name);
      CHECK_ERROR(train_in(run), "is a link");
      CHECK(fs::is_symlink(run / name));
      CHECK(names_in(other) == before);
      fs::remove(run / name);
    }
  CHECK(train_in(run).finished);
}

namespace {

/// Does something to the run when it has made `step` steps.
TrainerCallbacks disturbed_at(std::int64_t step, const std::function<void()>& disturb) {
  TrainerCallbacks callbacks;
  callbacks.progress = [=](const Progress& progress) {
    if (progress.step == step && !progress.is_evaluation()) disturb();
  };
  return callbacks;
}

}  // namespace

TEST_CASE(
    "run folder: moved, exchanged or removed while it trains, the end is an error that says what is left") {
  const TemporaryFolder folder;
  train_in(folder / "whole");
  const fs::path run = folder / "run", away = folder / "away";
  for (const std::int64_t save_every : {1, 0})
    for (const bool is_exchanged : {false, true}) {
      CAPTURE(save_every);
      CAPTURE(is_exchanged);
      TrainerOptions options = run_options();
      options.save_every = save_every;
      const auto move = [&] {
        fs::rename(run, away);
        if (is_exchanged) fs::create_directory(run);
      };
      const std::string expected = concat_text("was moved to ", away);
      CHECK_ERROR(train_in(run, disturbed_at(9, move), options), expected.c_str());
      CHECK(fs::exists(run) == is_exchanged);
      if (is_exchanged) CHECK(fs::is_empty(run));
      CHECK(train_in(away, {}, options).finished);
      check_same_run(away, folder / "whole");
      fs::remove_all(run);
      fs::remove_all(away);
    }
  CHECK_ERROR(train_in(run, disturbed_at(9, [&] { fs::remove_all(run); })),
              "was removed while it trained; there is nothing left to resume");
  CHECK_FALSE(fs::exists(run));
}

TEST_CASE("run folder: what disappears from a run while it trains is an error, and put back it goes on") {
  const TemporaryFolder folder;
  train_in(folder / "whole");
  const fs::path run = folder / "run", kept = folder / "kept";
  for (const std::int64_t step : {9, 20})  // between two checkpoints, and at the end
    for (const char* name : {"config.json", "run.json", "words.txt", "best.safetensors"}) {
      if (step == 20 && name == std::string("best.safetensors"))
        continue;  // its evaluation is the best again
      CAPTURE(step);
      CAPTURE(name);
      CHECK_ERROR(train_in(run, disturbed_at(step, [&] { fs::rename(run / name, kept); })),
                  concat_text(name, "\" disappeared during training").c_str());
      CHECK_FALSE(fs::exists(run / name));
      fs::rename(kept, run / name);
      CHECK(train_in(run).finished);
      CHECK(RunFiles::open(run)->text("words.txt") == "one two three");
      check_same_run(run, folder / "whole");
      fs::remove_all(run);
    }

  CHECK_ERROR(train_in(run, disturbed_at(9, [&] { write_file_atomically(run / "words.txt", "four"); })),
              "words.txt\" was changed");
  write_file_atomically(run / "words.txt", "one two three");
  check_same_run(run, folder / "whole");
}

TEST_CASE("run folder: links in a run that was sent lead nothing out of it") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", home = folder / "home";
  fs::create_directory(home);
  train_in(run, stop_after(4));
  TrainerOptions options = run_options();
  options.tensorboard = true;
  const auto link = [&](const char* name) {
    if (fs::exists(run / name)) fs::copy(run / name, home / name);
    fs::remove(run / name);
    fs::create_symlink(home / name, run / name);
  };
  link("metrics.jsonl");
  fs::create_directory(home / "tensorboard");
  link("tensorboard");
  const std::string metrics = read_file(home / "metrics.jsonl");
  std::string said;
  const TrainerCallbacks listens{.message = [&](std::string_view text) { said += text; }};
  CHECK(train_in(run, listens, options).finished);
  for (const char* name : {"metrics.jsonl", "tensorboard"})
    CHECK_MESSAGE(said.find(concat_text(run / name, " is a link")) != said.npos, name);
  CHECK(read_file(home / "metrics.jsonl") == metrics);
  CHECK(fs::is_empty(home / "tensorboard"));

  fs::remove(run / "tensorboard");
  fs::create_directory(run / "tensorboard");
  write_file_atomically(home / "profile", "mine");
  fs::create_symlink(home / "profile", run / "tensorboard/events.out.tfevents.0000000001.heed");
  train_in(run, {}, options);
  CHECK(read_file(home / "profile") == "mine");

  link("config.json");
  const RunStart other = start_with(replaced(config, "\"threads\":2", "\"threads\":3"));
  RunFolder opened = RunFolder::resume(run, other, free_keys);
  const std::string manifest = read_file(run / "run.json");
  CHECK_ERROR(opened.write_config(), "is a link");
  CHECK(read_file(run / "run.json") == manifest);
  CHECK(read_file(home / "config.json") == config);
}

TEST_CASE("run folder: killed while it was started, a run can be started again") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  { RunFolder::create(run, start_with()); }
  fs::remove(run / "config.json");
  write_file_atomically(run / ".heed-config.json-77-0123456789abcdef.tmp", "{\"mod");
  { RunFolder::create(run, start_with()); }
  CHECK(names_in(run) == std::set<std::string>{"run.json", "words.txt", "config.json"});
  fs::remove(run / "config.json");
  fs::remove(run / "words.txt");
  { RunFolder::resume(run, start_with(), free_keys); }
  CHECK(RunFiles::open(run)->text("words.txt") == "one two three");
}

TEST_CASE("run folder: a run goes on with the task, the files and the data that it started with") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  { RunFolder::create(run, start_with()); }
  const auto refused = [&](const auto& change, const char* reason) {
    RunStart now = start_with();
    change(now);
    CHECK_ERROR(RunFolder::resume(run, now, free_keys), reason);
  };
  refused([](RunStart& now) { now.task = "guess"; }, "is a \"count\" run, and this is \"guess\"");
  refused([](RunStart& now) { now.data["train"] = compute_digest("x"); }, "the data \"train\" differs");
  refused([](RunStart& now) { now.data["test"] = compute_digest("x"); }, "the data \"test\" was not there");
  refused([](RunStart& now) { now.data.clear(); }, "the data \"train\" is not given now");
  refused([](RunStart& now) { now.files["words.txt"] = "two"; }, "the file \"words.txt\" differs");
  RunStart now = start_with();
  now.data["train"] = compute_digest("x");
  { RunFolder::resume(run, now, free_keys, false); }

  // A key that may change is written down, and the run is still known as unchanged.
  now = start_with(replaced(config, "\"threads\":2", "\"threads\":8"));
  { RunFolder::resume(run, now, free_keys); }
  CHECK(RunFiles::open(run)->config() == config);  // not before its checkpoint was found to be in order
  { RunFolder::resume(run, now, free_keys).write_config(); }
  CHECK(RunFiles::open(run)->config() == now.config);
  { RunFolder::resume(run, start_with(), free_keys).write_config(); }
  CHECK(RunFiles::open(run)->config() == config);
  write_file_atomically(run / "config.json", replaced(config, "\"width\":16", "\"width\":17"));
  CHECK_ERROR(RunFiles::open(run), "config.json\" was changed after");
  CHECK_ERROR(RunFolder::resume(run, start_with(), free_keys), "was changed");
}

TEST_CASE("run folder: names and bytes that JSON does not hold are refused in our own words") {
  const TemporaryFolder folder;
  const auto refused = [&](const RunStart& start, const char* reason) {
    CHECK_ERROR(RunFolder::create(folder / "run", start), reason);
    CHECK_FALSE(fs::exists(folder / "run/config.json"));
  };
  refused({.task = "t", .config = std::string("{}\0{\"a\":1}", 10)}, "is a NUL");
  refused({.task = "t\xff", .config = "{}"}, "not valid UTF-8");
  for (const char* name : {"words\xff.txt", "../words.txt", "a/b", ".hidden", "model.safetensors", ""})
    refused({.task = "t", .config = "{}", .files = {{name, "x"}}}, "a run has no file of the name");
}

TEST_CASE("run folder: only a run can be resumed, and only by one process") {
  const TemporaryFolder folder;
  const auto resume = [&](const fs::path& path) { RunFolder::resume(path, start_with(), free_keys); };
  CHECK_ERROR(resume(folder / "absent"), "no run to resume");
  fs::create_directory(folder / "killed_at_once");
  resume(folder / "killed_at_once");
  CHECK(fs::exists(folder / "killed_at_once/config.json"));
  fs::create_directory(folder / "pictures");
  write_file_atomically(folder / "pictures/cat.png", "meow");
  CHECK_ERROR(resume(folder / "pictures"), "not a run folder");

  CHECK_FALSE(is_training(folder / "absent"));
  CHECK_FALSE(is_training(folder / "killed_at_once"));
  const RunFolder held = RunFolder::create(folder / "run", start_with());
  CHECK_FALSE(held.has_checkpoint());
  CHECK(is_training(folder / "run"));
  CHECK_ERROR(resume(folder / "run"), "another process is training");
  CHECK_ERROR(run_file(folder / "run", "model.safetensors"), "first checkpoint");
  // Who looks whether it trains holds the lock for a moment, and is in nobody's way.
  const int looking = ::open((folder / "killed_at_once").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(::flock(looking, LOCK_SH | LOCK_NB) == 0);
  const std::jthread soon_gone([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::close(looking);
  });
  CHECK_NOTHROW(resume(folder / "killed_at_once"));
}

TEST_CASE("run folder: a configuration that differs is refused by the name of its key") {
  const auto compare = [](const char* now) {
    compare_configurations(config, now, free_keys, "run/config.json");
  };
  compare(R"({"model":{"width":16},"steps":20,"threads":8})");
  compare(R"({"steps":20,"model":{"width":16}})");
  CHECK_ERROR(compare(R"({"model":{"width":32},"steps":20})"),
              "\"model.width\" is 32, but the run in run/config.json was started with 16");
  CHECK_ERROR(compare(R"({"model":{"width":16}})"), "\"steps\" is not set");
  CHECK_ERROR(compare(R"({"model":{"width":16,"norm":"pre"},"steps":20})"),
              "\"model.norm\" is \"pre\", but the run in run/config.json was "
              "started without it");
  CHECK_ERROR(compare("[1]"), "not a JSON object");
  CHECK_ERROR(compare("{"), "not valid JSON");
  CHECK_ERROR(compare(std::string(100'000, '[').c_str()), "nested");
}

TEST_CASE("metrics: what was written after the checkpoint is cut off") {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  std::int64_t bytes = 0;
  {
    MetricsLog log(OpenFolder(folder.path()), 0);
    log.append({.step = 1, .steps = 9});
    bytes = log.sync();
    log.append({.step = 2, .steps = 9});
    std::ofstream(path, std::ios::app) << "{\"step\":3,";  // a line that a kill tore
  }
  MetricsLog log(OpenFolder(folder.path()), bytes);
  log.append({.step = 2, .steps = 9});
  const std::vector<Progress> records = log.records();
  REQUIRE(records.size() == 2);
  CHECK(records[1].step == 2);
  std::string said;
  MetricsLog shorter(OpenFolder(folder.path()), 1 << 20, [&](std::string_view text) { said += text; });
  CHECK(contains(said, "lines were removed"));
  shorter.append({.step = 3, .steps = 9});
  CHECK(shorter.records().size() == 3);
}

TEST_CASE("metrics: a line that is none is said, kept, and stops nothing") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  train_in(run, stop_after(7));
  const std::string good = read_file(run / "metrics.jsonl");
  std::string said;
  const auto listen = [&] {
    said.clear();
    TrainerCallbacks callbacks = stop_after(1);
    callbacks.message = [&](std::string_view text) { said += std::string(text) + "\n"; };
    return callbacks;
  };
  // Of the same length, as flipped bytes are.
  std::string bad = good;
  bad[2] = '\0';
  write_file_atomically(run / "metrics.jsonl", bad);
  train_in(run, listen());
  CHECK(contains(said, "line 1 is not a line of metrics"));
  CHECK(contains(said, "1 such line stays in the file"));
  CHECK(read_file(run / "metrics.jsonl").starts_with(bad));
  train_in(run, listen());
  const std::string now = read_file(run / "metrics.jsonl");
  CHECK(now.starts_with(bad));
  CHECK(now.size() > bad.size());
  CHECK(MetricsLog(OpenFolder(run), static_cast<std::int64_t>(now.size())).records().size() ==
        static_cast<std::size_t>(std::count(now.begin(), now.end(), '\n') - 1));

  // Cut short in the middle of a line, gone, or not even a file.
  write_file_atomically(run / "metrics.jsonl", good.substr(0, good.size() / 2));
  train_in(run, listen());
  CHECK(contains(said, "lines were removed"));
  fs::remove(run / "metrics.jsonl");
  train_in(run, listen());
  CHECK(contains(said, "is missing"));
  fs::remove(run / "metrics.jsonl");
  fs::create_directory(run / "metrics.jsonl");
  TrainerCallbacks callbacks = listen();
  callbacks.report = [](const RunFolder&, std::span<const Progress>) { fail("no room"); };
  CHECK(train_in(run, callbacks).step == 12);
  CHECK(contains(said, "lines of metrics are lost"));
  CHECK(contains(said, "without a report: no room"));
  CHECK(train_in(run).finished);
}

TEST_CASE("metrics: numbers that are no counts are no records") {
  const std::string line = metrics_line({.step = 1, .steps = 9});
  for (const char* number : {"6e70", "-1", "1.5", "18446744073709551615", "\"9\"", "null"}) {
    CAPTURE(number);
    CHECK_ERROR(parse_metrics_line(replaced(line, "\"steps\":9", std::string("\"steps\":") + number)),
                "\"steps\" is");
  }
  CHECK_ERROR(parse_metrics_line(line + std::string("\0", 1)), "NUL");
}

TEST_CASE("metrics: on a full disk records are lost, and training goes on") {
  const TemporaryFolder folder;
  std::string said;
  MetricsLog log(OpenFolder(folder.path()), 0, [&](std::string_view text) { said += text; });
  log.append({.step = 1, .steps = 9});
  const std::int64_t bytes = log.sync();
  {
    const FullDisk full(static_cast<rlim_t>(bytes + 10));
    log.append({.step = 2, .steps = 9});
    log.append({.step = 3, .steps = 9});
  }
  CHECK(said.find("lines of metrics are lost") == said.rfind("lines of metrics are lost"));
  CHECK(contains(said, "lines of metrics are lost"));
  log.append({.step = 4, .steps = 9});
  const std::vector<Progress> records = log.records();
  REQUIRE(records.size() == 2);
  CHECK(records[1].step == 4);
  CHECK(static_cast<std::uintmax_t>(log.sync()) == fs::file_size(folder / "metrics.jsonl"));
}

TEST_CASE("model file: weights survive, and what does not fit changes nothing") {
  const TemporaryFolder folder;
  TinyObjective a({}, 1), b({}, 2), wider({.width = 32});
  save_model(a.model(), folder / "m", {{"note", "x"}});
  CHECK(load_model(b.model(), folder / "m").at("note") == "x");
  save_model(b.model(), folder / "n", {{"note", "x"}});
  CHECK((read_file(folder / "m") == read_file(folder / "n")));
  CHECK_ERROR(load_model(wider.model(), folder / "m"), "\"embedding\"");
}
