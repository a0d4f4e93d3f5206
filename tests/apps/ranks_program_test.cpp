// Programs that train with several ranks, forked by --ranks or started by a launcher of MPI where there is
// one.

#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "heed/models/attention/attention.h"
#include "heed/tests/hostile/killed_training.h"
#include "heed/tests/run_records.h"

namespace {

namespace fs = std::filesystem;

const std::string classify = std::string(HEED_PROGRAM_DIR) + "/classify";
const Arguments four_batches = {"--set", "training.accumulation=4", "--save-every", "3"};

Arguments with_ranks(int count) {
  return {"--ranks", std::to_string(count)};
}

/// All tensors of a run's checkpoint.
std::string tensors_in(const fs::path& run) {
  std::string all;
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "best.safetensors"})
    all += tensors_of(run / name);
  return all;
}

/// All that a training came to, the figures of its evaluations among it.
std::string results_in(const fs::path& run) {
  return tensors_in(run) + records_of(run);
}

/// Trains and returns what came of it.
std::string results_of_training(const std::string& task, const fs::path& run, const Arguments& more) {
  const ProgramResult result = run_program(task, small_train(task, run, joined(four_batches, more)));
  CHECK_MESSAGE(result.status == 0, result.errors);
  return result.status == 0 ? results_in(run) : result.errors;
}

/// Checks that a number of ranks train to what one process does.
void check_same_with(int ranks, const std::string& task, const Arguments& more) {
  const TemporaryFolder folder;
  CHECK(results_of_training(task, folder / "ranks", joined(more, with_ranks(ranks))) ==
        results_of_training(task, folder / "alone", more));
}

/// The processes that a process has started.
std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream file(concat_text("/proc/", parent, "/task/", parent, "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

/// A training of a classifier with three ranks until it is told to stop.
Arguments endless_of_three(const fs::path& run, const Arguments& more = {}) {
  const Arguments endless = {
      "--set", "training.accumulation=4", "--steps", "100000", "--save-every", "100000", "--ranks", "3"};
  return small_train("classify", run, joined(endless, more));
}

/// The ranks of one that trains already.
std::vector<pid_t> three_ranks_of(BackgroundProgram& program, const fs::path& run) {
  REQUIRE_MESSAGE(program.wait_for_file(run / "metrics.jsonl"), program.errors());
  std::vector<pid_t> ranks = children_of(program.id());
  REQUIRE(ranks.size() == 3);
  return ranks;
}

void check_gone(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) CHECK_FALSE(fs::exists(concat_text("/proc/", process)));
}

struct Launcher {
  std::string name, path;
  Arguments flags;
};

/// The launchers of MPI that this machine has. Open MPI refuses root and more ranks than processors unless it
/// is told.
std::vector<Launcher> launchers() {
  const Launcher known[] = {
      {"Open MPI", "/usr/bin/mpirun.openmpi", {"--allow-run-as-root", "--oversubscribe"}},
      {"MPICH", "/usr/bin/mpirun.mpich", {}}};
  std::vector<Launcher> found;
  if (under_emulator) {
    MESSAGE("skipped: this machine's MPI is for another processor");
    return found;
  }
  for (const Launcher& one : known) {
    if (fs::exists(one.path))
      found.push_back(one);
    else
      MESSAGE("skipped: there is no " << one.path << " of " << one.name);
  }
  return found;
}

/// Leaks are not looked for: libraries of MPI leave some, from modules that are closed before they could be
/// named.
ProgramResult launch(const Launcher& launcher, const Arguments& arguments, int seconds = 120,
                     const Arguments& environment = {}) {
  return run_program("/usr/bin/env",
                     joined(joined({"ASAN_OPTIONS=detect_leaks=0"}, environment),
                            joined({launcher.path}, joined(launcher.flags, arguments))),
                     "", ".", {.seconds = seconds});
}

ProgramResult launch(const Launcher& launcher, int count, const std::string& task,
                     const Arguments& arguments) {
  const std::string program = std::string(HEED_PROGRAM_DIR) + "/" + task;
  return launch(launcher, joined({"-n", std::to_string(count), program}, arguments));
}

}  // namespace

TEST_CASE("ranks: translator, classifier and language model are the same bytes for 1, 2, 3 and 4 ranks") {
  for (const std::string task : {"translate", "classify", "language_model"}) {
    CAPTURE(task);
    const TemporaryFolder folder;
    const std::string alone = results_of_training(task, folder / "alone", {});
    for (const int count : sanitized ? std::vector{3} : std::vector{2, 3, 4}) {
      CAPTURE(count);
      const fs::path run = folder / std::to_string(count);
      CHECK(results_of_training(task, run, with_ranks(count)) == alone);
      CHECK(content_of(run / "config.json") == content_of(folder / "alone/config.json"));
    }
  }
}

TEST_CASE("ranks: every other task, with two ranks") {
  for (const std::string task : {"summarize", "converse", "match", "recommend", "tag", "own_task"}) {
    CAPTURE(task);
    check_same_with(2, task, {});
  }
}

TEST_CASE("ranks: attentions whose forward pass moves buffers, or counts batches") {
  const auto same = [](const std::string& task, const Arguments& more) {
    check_same_with(3, task, joined(more, {"--steps", "8"}));
  };
  for (const std::string name : {"routing_transformer", "clusterformer"})
    same("classify", {"--attention", name, "--set", "model.pooling=attention"});
  same("classify", {"--attention", "routing_transformer", "--set", "model.encoder_attention.update=paper"});
  same("classify", {"--attention", "performer", "--set", "model.encoder_attention.redraw=3"});
  // With more than 50 passes the number of clusters is chosen.
  check_same_with(3, "classify",
                  {"--attention", "clusterformer", "--set", "model.encoder_attention.clusters=auto"});
  same("language_model", {"--attention", "clusterformer", "--set", "model.decoder_attention.clusters=auto"});
  same("language_model", {"--attention", "routing_transformer"});
  same("translate", {"--preset", "hc-all"});  // gamma is measured on the data
  same("summarize", {"--cross-attention", "hard_coded_gaussian"});
}

TEST_CASE("ranks: averages, frozen parts, folds, another run to start from and masked words") {
  const TemporaryFolder folder;
  const std::string source = (folder / "source").string();
  results_of_training("classify", source, {});
  for (const auto& row : std::vector<std::pair<std::string, std::string>>{
           {"classify", "--set training.ema_decay=0.9 --set training.clip_norm=0.1"},
           {"classify", "--freeze embedding --set training.part_rates=encoder=0.5"},
           {"language_model", "--steps 0 --set training.epochs=2"},
           {"language_model", "--masked"},
           {"classify", "--from " + source}}) {
    CAPTURE(row.second);
    check_same_with(2, row.first, words(row.second));
  }
  const Arguments crossed = {"--data", small_texts().string(), "--format", "lines", "--folds", "2", "--steps",
                             "4"};
  const ProgramResult alone = run_program("classify", small_train("classify", folder / "folds", crossed));
  const ProgramResult two =
      run_program("classify", small_train("classify", folder / "folds-2", joined(crossed, with_ranks(2))));
  CHECK_MESSAGE(two.status == 0, two.errors);
  CHECK(two.output == alone.output);
  CHECK(contains(two.output, "deviation"));
}

TEST_CASE("ranks: killed at random, any of them, and resumed with another number, to the same bits") {
  std::mt19937_64 random(12);
  const TemporaryFolder folder;
  const int kills = kills_wanted(4);
  const Arguments flags = joined(four_batches, {"--steps", std::to_string(20 + 10 * kills)});
  const ProgramResult whole = run_program("translate", small_train("translate", folder / "alone", flags));
  REQUIRE_MESSAGE(whole.status == 0, whole.errors);
  const fs::path run = folder / "run";
  const auto arguments = [&](int count) {
    Arguments all = joined(small_train("translate", run, flags), with_ranks(count));
    return fs::exists(run / "config.json") ? joined(all, {"--resume"}) : all;
  };
  for (int done = 0; done < kills; ++done) {
    const int count = 1 + static_cast<int>(random() % 4);
    CAPTURE(count);
    BackgroundProgram program("translate", arguments(count));
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + random() % 1500));
    std::vector<pid_t> ranks = children_of(program.id());
    ranks.push_back(program.id());  // the one that started them
    const pid_t victim = ranks[random() % ranks.size()];
    if (!program.running()) break;
    kill(victim, SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const int status = program.wait();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    if (status == 0) {  // it was at its end already
      CHECK(tensors_in(run) == tensors_in(folder / "alone"));
      break;
    }
    ranks.pop_back();
    const auto any_left = [&] {
      return std::ranges::any_of(ranks, [](pid_t rank) { return fs::exists(concat_text("/proc/", rank)); });
    };
    while (any_left() && std::chrono::steady_clock::now() - start < std::chrono::seconds(most_seconds))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(any_left());
  }
  const ProgramResult last = run_program("translate", arguments(2));
  CHECK_MESSAGE(last.status == 0, last.errors);
  CHECK(tensors_in(run) == tensors_in(folder / "alone"));
}

TEST_CASE("ranks: SIGINT and SIGUSR1 save and stop; the run goes on with another number") {
  const TemporaryFolder folder;
  for (const auto& [signal, group] :
       {std::pair{SIGINT, false}, {SIGINT, true}, {SIGUSR1, false}, {SIGUSR1, true}}) {
    const std::string both = concat_text(signal, group);
    CAPTURE(both);
    const fs::path run = folder / both;
    BackgroundProgram program("/usr/bin/setsid", joined({classify}, endless_of_three(run)));
    program.wait_for_file(run / "metrics.jsonl");
    kill(group ? -program.id() : program.id(), signal);
    CHECK(program.wait() == (signal == SIGINT ? 130 : 143));
    CHECK(fs::exists(run / "model.safetensors"));
    const std::string before = tensors_of(run / "model.safetensors");
    const auto reached = nlohmann::json::parse(content_of(run / "trainer_state.json")).at("step").dump();
    const ProgramResult done = run_program(  // all that was asked for is done
        "classify",
        small_train("classify", run,
                    {"--set", "training.accumulation=4", "--resume", "--ranks", "2", "--steps", reached}));
    CHECK_MESSAGE(done.status == 0, done.errors);
    CHECK(tensors_of(run / "model.safetensors") == before);
  }
}

TEST_CASE("ranks: a signal in the first moments of the ranks is not lost") {
  for (int milliseconds = 0; milliseconds < 5; ++milliseconds) {
    CAPTURE(milliseconds);
    const TemporaryFolder folder;
    BackgroundProgram program("classify", endless_of_three(folder / "run"));
    while (program.running() && children_of(program.id()).empty()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    program.send(SIGTERM);
    CHECK(program.wait(std::chrono::seconds(20)) == 143);
  }
}

TEST_CASE(
    "ranks: a rank that was stopped is named after ten seconds, and waited for; the first SIGTERM ends all") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  BackgroundProgram program("classify", endless_of_three(run));
  const std::vector<pid_t> ranks = three_ranks_of(program, run);
  kill(ranks[1], SIGSTOP);
  const auto waits_for = [&](const char* pattern, int seconds) {
    const std::regex text(pattern);
    const auto says = [&] { return std::regex_search(program.errors(), text); };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (program.running() && !says() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_MESSAGE(says(), program.errors());
  };
  // Rank 2 may be waiting for rank 1 itself, and then answers nobody either.
  waits_for("rank(s 1 and 2 have| 1 has) not answered for 1", 20);
  kill(ranks[1], SIGCONT);
  waits_for("rank(s 1 and 2 answer| 1 answers) again", 5);
  const std::string said = program.errors();
  CHECK(said.find("not answered for") == said.rfind("not answered for"));  // one of those that wait speaks
  kill(ranks[0], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  program.send(SIGTERM);
  CHECK(program.wait(std::chrono::seconds(10)) == 143);
  CHECK(fs::exists(run / "model.safetensors"));
  check_gone(ranks);
}

TEST_CASE("ranks: --rank-timeout ends a training whose rank was stopped") {
  const TemporaryFolder folder;
  for (const std::size_t stopped : {0, 1}) {
    CAPTURE(stopped);
    const fs::path run = folder / std::to_string(stopped);
    BackgroundProgram program("classify", endless_of_three(run, {"--rank-timeout", "2"}));
    const std::vector<pid_t> ranks = three_ranks_of(program, run);
    kill(ranks[stopped], SIGSTOP);
    CHECK(program.wait(std::chrono::seconds(20)) == 1);
    const std::string text = program.errors();
    const std::regex names_it(
        stopped == 0 ? "error: ranks: rank(s 0 and [12] have| 0 has) not answered for "
                     : "error: ranks: rank(s 0 and 1 have|s 1 and 2 have| 1 has) not answered for ");
    CHECK_MESSAGE(std::regex_search(text, names_it), text);
    CHECK(text.find("error: ") == text.rfind("error: "));
    check_gone(ranks);
  }
}

TEST_CASE("ranks: whatever goes wrong is said once") {
  const TemporaryFolder folder;
  const auto refused = [&](const Arguments& more, int status, const std::string& says,
                           const ProgramLimits& limits = {.seconds = 30}) {
    const fs::path run = folder / "refused";
    fs::remove_all(run);
    const ProgramResult result =
        run_program("classify", small_train("classify", run, joined(four_batches, more)), "", ".", limits);
    CHECK_FALSE(result.hung);
    CHECK(result.status == status);
    check_refused("classify", result, says);
  };
  for (const char* count : {"0", "-1", "1025", "two", "2.0", ""}) refused({"--ranks", count}, 2, "--ranks");
  refused({"--ranks", "2", "--ranks", "3"}, 2, "2 times");
  refused({"--rank-timeout", "60"}, 2, "--rank-timeout is for several processes");
  for (const char* seconds : {"0", "-1", "1s", ""})
    refused({"--ranks", "2", "--rank-timeout", seconds}, 2, "--rank-timeout: ");
  refused({"--ranks", "3", "--data", "/no/such/file", "--format", "lines"}, 1, "/no/such/file");
  refused({"--ranks", "3", "--set", "model.width=17"}, 2, "width");
  refused({"--ranks", "2", "--set", "training.schedule.learning_rate=1e30"}, 1, "training");
  // A file system that is full, for rank 0 alone: only it writes.
  refused({"--ranks", "3"}, 1, "File too large", {.file_size = 20'000, .seconds = 60});
  if (!sanitized && !under_emulator) {  // sanitizers open pipes to look at memory
    const ProgramResult few = run_program(
        "/bin/sh", in_shell("ulimit -n 6; ", "classify",
                            small_train("classify", folder / "few", joined(four_batches, with_ranks(4)))));
    CHECK(few.status == 1);
    check_refused("classify", few, "cannot be connected: Too many open files; use fewer, or raise ulimit -n");
    CHECK_FALSE(contains(few.errors, "--resume"));
  }
  const ProgramResult idle = run_program(
      "classify",
      small_train("classify", folder / "idle", {"--ranks", "3", "--set", "training.accumulation=2"}));
  CHECK_MESSAGE(idle.status == 0, idle.errors);
  CHECK(contains(idle.errors, "1 of 3 ranks have nothing to compute"));
  CHECK(run_program("classify", small_train("classify", folder / "idle", with_ranks(2))).status == 1);
}

TEST_CASE("ranks: MPI gives the bytes of one process, whichever library") {
  for (const Launcher& launcher : launchers()) {
    CAPTURE(launcher.name);
    for (const std::string task : {"translate", "classify", "language_model"}) {
      CAPTURE(task);
      const TemporaryFolder folder;
      const std::string alone = results_of_training(task, folder / "alone", {});
      for (const int count : task == "classify" ? std::vector<int>{1, 2, 4} : std::vector<int>{2}) {
        CAPTURE(count);
        const fs::path run = folder / std::to_string(count);
        const ProgramResult result = launch(launcher, count, task, small_train(task, run, four_batches));
        CHECK_MESSAGE(result.status == 0, result.errors);
        CHECK(results_in(run) == alone);
      }
    }
  }
}

TEST_CASE("ranks: under MPI other settings are found at the start, and what ends a rank ends all") {
  for (const Launcher& launcher : launchers()) {
    CAPTURE(launcher.name);
    const TemporaryFolder folder;
    const auto with_seed = [&](const char* seed) {
      return joined({"-n", "1", classify}, small_train("classify", folder / "run", {"--seed", seed}));
    };
    const Arguments mixed = joined(joined(with_seed("1"), {":"}), with_seed("2"));
    const ProgramResult differ = launch(launcher, mixed, 30);
    CHECK_FALSE(differ.hung);
    CHECK(differ.status != 0);
    CHECK_MESSAGE(contains(differ.errors, "rank 1 was started with another seed than rank 0: 2, not 1"),
                  differ.errors);
    CHECK_FALSE(fs::exists(folder / "run"));

    const ProgramResult both =
        launch(launcher, 2, "classify", small_train("classify", folder / "both", with_ranks(2)));
    CHECK(both.status != 0);
    CHECK(contains(both.errors, "--ranks"));

    const ProgramResult silent = launch(
        launcher,
        joined(
            {"-n", "3", "/bin/sh", "-c",
             // Of the ranks, whichever names their launcher gives them, number 1 is stopped in its training.
             "test \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = 1 && { (while test ! -e \"$0\"; do sleep 0.1; "
             "done; kill -STOP $$) & }; exec \"$@\"",
             (folder / "silent/metrics.jsonl").string(), classify},
            small_train("classify", folder / "silent",
                        joined(four_batches, {"--steps", "100000", "--rank-timeout", "3"}))),
        60);
    CHECK_FALSE(silent.hung);
    CHECK(silent.status != 0);
    CHECK_MESSAGE(contains(silent.errors, "ranks: rank 1 has not answered for "), silent.errors);

    const ProgramResult lost =
        launch(launcher, joined({"-n", "2", classify}, small_train("classify", folder / "lost")), 30,
               {"HEED_MPI=/no/such/library.so"});
    CHECK(lost.status != 0);
    CHECK_MESSAGE(contains(lost.errors, "/no/such/library.so cannot be opened"), lost.errors);
  }
}
