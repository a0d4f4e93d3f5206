// heed compare: trains one task with several attentions, settings and seeds, and says which is best at what
// cost.
//
//   heed compare --task classify --data subj.all --format lines --encoding cp1252 --test-fraction 0.1
//                --attention dot_product,fastformer,clusterformer --seeds 1,2,3 --out runs/which
//   heed compare --suite recall --attention dot_product,mamba2,gated_deltanet --out runs/recall
//   heed compare --task classify --data subj.all --format lines --encoding cp1252 --random 20 --halving
//                --grid training.schedule.learning_rate=5e-4..1e-2 --grid model.width=32,64,128 --out runs/search
//
// Every cell is a process of its own, so that a failing one does not stop the others. The same command
// resumes an interrupted comparison.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/compare/comparison.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/train.h"
#include "heed/base/descriptor.h"
#include "heed/base/file.h"
#include "heed/base/open_folder.h"
#include "heed/base/unicode.h"
#include "heed/training/progress.h"

namespace heed::programs {
namespace {

namespace fs = std::filesystem;

/// Trains a cell in its own process. Returns the exit status.
int train_cell(const TaskEntry& entry, const ComparisonCell& cell, const OpenFolder& folder) {
  const InterruptGuard interrupt;
  CellResult result;
  result.settings = cell.settings.json();
  try {
    apply_threads(cell.settings);
    ProgressPrinter printer(std::cerr, ProgressPrinter::Style());
    TrainerCallbacks callbacks;
    callbacks.progress = [&](const Progress& progress) { printer.show(progress); };
    callbacks.message = [&](std::string_view text) { printer.message(text); };
    callbacks.stop_requested = InterruptGuard::interrupted;
    std::optional<CellResult> found = run_cell(entry, cell, folder.path(), callbacks);
    printer.finish();
    if (!found) return InterruptGuard::exit_status();
    result = std::move(*found);
  } catch (const std::bad_alloc&) {
    result.failure = "out of memory";
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  if (!result.failure.empty()) print_message("error", result.failure);
  write_result(result, folder);
  return result.failure.empty() ? exit_success : exit_failure;
}

pid_t start_cell(const TaskEntry& entry, const ComparisonCell& cell, const OpenFolder& folder) {
  const Descriptor log(folder.open_to_append("log.txt"));
  const pid_t parent = ::getpid(), child = ::fork();
  check(child >= 0, "a process for ", cell.name, " could not be started: ", std::strerror(errno));
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // no cell outlives the comparison
  if (::getppid() != parent) ::_exit(exit_failure);
  ::dup2(log.value, STDOUT_FILENO);
  ::dup2(log.value, STDERR_FILENO);
  int status = exit_failure;
  try {
    status = train_cell(entry, cell, folder);
  } catch (const std::exception& error) {
    print_message("error", error.what());
  }
  std::cout.flush();
  std::exit(status);
}

/// Trains the cells that have no result yet, `jobs` at a time, each in a process of its own that writes its
/// progress to log.txt in the cell's folder. Construct it before any device is opened.
class CellProcesses {
 public:
  CellProcesses(const TaskEntry& entry, std::span<const ComparisonCell> cells, const fs::path& folder)
      : entry_(entry),
        cells_(cells),
        folder_(folder),
        results_(cells.size()),
        waiting_(cells_to_train(entry, cells, folder, results_)) {
    create_folders(folder);
    opened_.emplace(folder);
    if (waiting_.size() < cells.size())
      std::cerr << "compare: " << cells.size() - waiting_.size() << " of " << cells.size()
                << " cells are done\n";
  }

  /// Returns all results: empty for interrupted cells, the reason for cells that failed or whose
  /// process was killed.
  std::vector<std::optional<CellResult>> run(int jobs) {
    std::size_t next = 0;
    while (next < waiting_.size() || !running_.empty()) {
      const bool stop = InterruptGuard::interrupted();
      if (stop && !std::exchange(ending_, true))
        for (const auto& [process, cell] : running_) ::kill(process, SIGTERM);
      if (stop && running_.empty()) break;
      for (; !stop && next < waiting_.size() && running_.size() < static_cast<std::size_t>(jobs); ++next)
        running_[start_cell(entry_, cells_[waiting_[next]], opened(waiting_[next]))] = waiting_[next];
      collect();
    }
    const std::string fate = opened_->fate();
    check(fate.empty(), "the folder of the comparison, ", folder_, ", ", fate,
          " while its cells were trained: no tables were made");
    return std::move(results_);
  }

 private:
  OpenFolder opened(std::size_t cell) const { return opened_->make_folder(cells_[cell].name); }

  /// Collects the result of a process that ended; sleeps briefly if there is none.
  void collect() {
    int status = 0;
    const pid_t process = ::waitpid(-1, &status, WNOHANG);
    if (process <= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;
    }
    const auto found = running_.find(process);
    if (found == running_.end()) return;
    const std::size_t cell = found->second;
    running_.erase(found);
    if (WIFSIGNALED(status)) {
      CellResult& killed = results_[cell].emplace();
      killed.settings = cells_[cell].settings.json();
      killed.failure = concat_text("its process was ended by signal ", WTERMSIG(status), " (",
                                   ::strsignal(WTERMSIG(status)), ")");
      write_result(killed, opened(cell));
    } else if (WEXITSTATUS(status) == exit_success) {
      results_[cell] = read_result(cells_[cell], folder_ / cells_[cell].name);
    } else if (WEXITSTATUS(status) == exit_failure) {
      results_[cell] = read_failure(folder_ / cells_[cell].name);
    }
    show(cell);
  }

  void show(std::size_t cell) {
    const std::optional<CellResult>& result = results_[cell];
    const std::string outcome =
        !result                    ? "interrupted; run the same command to resume"
        : !result->failure.empty() ? concat_text("failed: ", result->failure)
        : result->metrics.empty()
            ? "done"
            : concat_text(result->metrics.front().name, ' ', result->metrics.front().value, ", ",
                          duration_text(result->training_seconds));
    print_message("compare", concat_text(++shown_, " of ", waiting_.size(), ", ", cells_[cell].choice,
                                         ", seed ", cells_[cell].seed, ": ", outcome));
  }

  const TaskEntry& entry_;
  std::span<const ComparisonCell> cells_;
  fs::path folder_;
  std::optional<OpenFolder> opened_;  // the folder, once it is made
  std::vector<std::optional<CellResult>> results_;
  std::vector<std::size_t> waiting_;
  std::map<pid_t, std::size_t> running_;
  std::size_t shown_ = 0;
  bool ending_ = false;
};

/// Splits "a,b,c" at the commas outside brackets and quotes.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (!quoted) depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0 && !quoted)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// Returns the setting of a data flag of the task's program: data.file for --data,
/// data.valid_source for --valid-source.
std::string setting_of_flag(const std::string& flag, const Settings& settings) {
  std::vector<std::string> flags;
  for (const Setting& setting : settings.declared()) {
    if (!setting.name.starts_with("data.") || setting.name.find('.', 5) != std::string::npos) continue;
    flags.push_back(SettingFlag(setting.name).flag);
    if (flags.back() == flag) return setting.name;
  }
  check_name("flag", flag, flags);
  return "";
}

/// Exercises (apps/data/exercises.h) by which mechanisms are compared in miniature.
struct Suite {
  std::string name;
  std::vector<ComparedSetting> settings;
};
const std::vector<Suite> suites = {
    {"recall", {{"data.rule", {"mqar"}}, {"data.exercise.pairs", {"4", "16", "64"}}}},
    {"mad",
     {{"data.rule",
       {"recall", "fuzzy_recall", "noisy_recall", "selective_copying", "compression", "memorization"}}}},
    {"state", {{"data.rule", {"parity", "s5"}}}}};

class CompareCommand {
 public:
  explicit CompareCommand(CLI::App& app) {
    task_.add(app, "--task", "NAME", "Task: classify, translate, ...");
    suite_.add(
        app, "--suite", "NAME",
        "Exercises for language models, instead of --task: recall (of 4, 16 and 64 pairs), mad (six tasks "
        "of MAD) or state (parity and permutations, at twice the trained length)");
    out_.add(app, "--out", "DIR", "Folder of the comparison: a run for each cell, and the tables");
    attention_.add(app, "--attention", "NAMES", "Attentions to compare, separated by commas");
    seeds_.add(app, "--seeds", "NUMBERS", "Seeds for each choice (default: the seed in the settings)");
    steps_.add(app, "--steps", "N", "Steps of each training (default: from the task's settings)");
    config_.add(app, "--config", "FILE", "JSON file of settings that override the defaults");
    jobs_.add(app, "--jobs", "N", "Number of parallel trainings (default: 1)");
    threads_.add(app, "--threads", "N", "Threads per training (default: processors divided by jobs)");
    device_.add(app, "--device", "DEVICE", "Device to compute on");
    format_.add(app, "--table", "FORMAT",
                "Format of the printed table: text (the default), markdown or json");
    const auto add_settings = [&](const char* flag, const char* type, auto& list, const char* help) {
      app.add_option(flag, list, help)->type_name(type)->allow_extra_args(false);
    };
    add_settings("--grid", "KEY=VALUES", grid_,
                 "A setting that varies: values separated by commas, or with --random a range LOW..HIGH");
    random_.add(app, "--random", "N", "Number of random choices to try, instead of all combinations");
    app.add_flag("--halving", halving_,
                 "Successive halving: short trainings select a third of the choices for longer ones, until "
                 "three are trained fully");
    add_settings("--set", "KEY=VALUE", assignments_, "A setting; several values act as --grid");
    app.allow_extras();
    app.footer("Data flags (--data, --format, --source ...) are those of the task's own program.\n");
    app_ = &app;
  }

  int run() {
    if (task_.given() == suite_.given() || !out_.given())
      throw SettingsError("give --task or --suite, and --out");
    const std::string table = format_.value("text");
    check_name("--table", table, {"text", "markdown", "json"});
    const int jobs = jobs_.count(1, 1024);
    const ComparisonPlan plan = make_plan(jobs);
    const fs::path folder = out_.value();
    const InterruptGuard interrupt;
    const Comparison found = compare(
        plan, folder,
        [&](std::span<const ComparisonCell> cells) {
          return CellProcesses(plan.entry, cells, folder).run(jobs);
        },
        [](std::string_view text) { print_message("compare", std::string(text)); });
    std::cout << (table == "text"   ? comparison_text(found.rows)
                  : table == "json" ? comparison_json_lines(found.rows)
                                    : comparison_markdown(found.rows));
    flush_output();
    if (InterruptGuard::interrupted()) return InterruptGuard::exit_status();
    const bool failed =
        std::ranges::any_of(found.rows, [](const auto& row) { return !row.failures.empty(); });
    return found.finished && !failed ? exit_success : exit_failure;
  }

 private:
  ComparisonPlan make_plan(int jobs) const {
    const TaskEntry* entry = nullptr;
    try {
      entry = &task_entry(task_.value("language_model"));
    } catch (const Error& error) {
      throw SettingsError(concat_text("--task: ", error.what()));
    }
    Settings settings = training_settings(*entry, given_settings(*entry));
    if (settings.read<RuntimeSettings>("").threads == 0) {
      const int processors = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
      settings.set("threads", std::to_string(std::max(1, processors / jobs)), "--jobs");
    }
    ComparisonPlan plan{*entry, settings, {}, {}, {}};
    if (attention_.given()) plan.attentions = parts_of(attention_.value());
    plan.halving = halving_;
    plan.draws = random_.given() ? random_.count(1, 10'000) : 0;
    if (suite_.given()) {
      std::vector<std::string> names;
      for (const Suite& suite : suites) names.push_back(suite.name);
      check_name("--suite", suite_.value(), names);
      plan.settings = std::ranges::find(suites, suite_.value(), &Suite::name)->settings;
    }
    for (const std::string& assignment : grid_) plan.settings.push_back(varied_setting(assignment));
    for (const std::string& assignment : assignments_)
      if (!is_plain(*entry, assignment)) {
        const std::string name = assigned_name(assignment);
        plan.settings.push_back({name, parts_of(assignment.substr(name.size() + 1))});
      }
    std::vector<std::string> names;
    for (const Setting& setting : settings.declared()) names.push_back(setting.name);
    for (const ComparedSetting& setting : plan.settings) {
      if (!belongs_to_attention(entry->stacks, setting.name)) check_name("setting", setting.name, names);
      if (steps_.given() && setting.name == "training.steps")
        throw SettingsError("--steps and --set training.steps set the same setting: give one");
    }
    const auto sets_seed = [](const std::string& assignment) { return assigned_name(assignment) == "seed"; };
    if (seeds_.given() && std::ranges::any_of(assignments_, sets_seed))
      throw SettingsError("--seeds and --set seed set the same setting: give one");
    for (const std::string& seed : parts_of(seeds_.value(settings.json("seed")))) {
      Settings checked = settings;
      checked.set("seed", seed, "--seeds");
      plan.seeds.push_back(checked.read<RuntimeSettings>("").seed);
    }
    return plan;
  }

  /// Parses "KEY=LOW..HIGH" or "KEY=A,B,C".
  static ComparedSetting varied_setting(const std::string& assignment) {
    const std::string name = assigned_name(assignment), values = assignment.substr(name.size() + 1);
    const std::size_t dots = values.find("..");
    if (dots == std::string::npos || values.find_first_of(",[{\"") != std::string::npos)
      return {name, parts_of(values)};
    return {name, {values.substr(0, dots), values.substr(dots + 2)}, true};
  }

  /// A single value that does not belong to an attention, applied below the flags. Settings of an attention
  /// are applied after it is chosen.
  static bool is_plain(const TaskEntry& entry, const std::string& assignment) {
    const std::string name = assigned_name(assignment);
    return !belongs_to_attention(entry.stacks, name) &&
           parts_of(assignment.substr(name.size() + 1)).size() == 1;
  }

  /// Returns the given settings in the order --config < --set < flags.
  GivenSettings given_settings(const TaskEntry& entry) const {
    GivenSettings given{.config = config_.value()};
    const auto add = [&](const std::string& name, const std::string& value, const std::string& origin) {
      given.settings.push_back({name, value, origin});
    };
    for (const std::string& assignment : assignments_)
      if (const std::string name = assigned_name(assignment); is_plain(entry, assignment))
        add(name, assignment.substr(name.size() + 1), "--set " + assignment);
    const Settings settings = entry.settings(true);
    const std::vector<std::string> rest = app_->remaining();
    for (std::size_t i = 0; i < rest.size(); ++i) {
      std::string flag = rest[i], value;
      if (!flag.starts_with("--"))
        throw SettingsError("unexpected \"" + flag + "\": lists are separated by commas, not spaces");
      if (const std::size_t sign = flag.find('='); sign != std::string::npos) {
        value = flag.substr(sign + 1);
        flag.resize(sign);
      } else if (++i < rest.size()) {
        value = rest[i];
      } else {
        throw SettingsError(flag + " needs a value");
      }
      add(setting_of_flag(flag, settings), value, flag);
    }
    if (steps_.given()) add("training.steps", steps_.value(), "--steps");
    if (threads_.given()) add("threads", threads_.value(), "--threads");
    if (device_.given()) add("device", device_.value(), "--device");
    return given;
  }

  CLI::App* app_;
  TextFlag task_, suite_, out_, attention_, seeds_, steps_, config_, random_;
  TextFlag jobs_, threads_, device_, format_;
  std::vector<std::string> assignments_, grid_;
  bool halving_ = false;
};

}  // namespace

std::function<int()> add_compare_command(CLI::App& app) {
  CLI::App& command = subcommand(
      app, "compare",
      "Trains one task with several attentions, settings and seeds, and compares quality and cost");
  auto compare = std::make_shared<CompareCommand>(command);
  return [compare] { return compare->run(); };
}

}  // namespace heed::programs
