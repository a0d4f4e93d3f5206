#include "cell_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <optional>
#include <thread>

#include "heed/core/descriptor.h"
#include "heed/core/file.h"
#include "heed/examples/common/program.h"
#include "heed/tasks/recipe.h"
#include "heed/training/progress.h"

namespace heed::programs {
namespace {

namespace fs = std::filesystem;

/// The whole life of the process of a cell: its exit status.
int train_cell(const TaskKind& kind, const ComparisonCell& cell, const OpenFolder& folder) {
  const InterruptGuard interrupt;
  CellResult result;
  result.settings = cell.settings.json();
  try {
    apply_threads(cell.settings);
    ProgressPrinter printer(std::cerr, ProgressPrinter::Style());
    TrainerCallbacks callbacks;
    callbacks.progress = [&](const Progress& progress) { printer.show(progress); };
    callbacks.message = [&](std::string_view text) { printer.message(text); };
    callbacks.stop_requested = [] { return InterruptGuard::interrupted(); };
    std::optional<CellResult> found = run_cell(kind, cell, folder.path(), callbacks);
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

pid_t start_cell(const TaskKind& kind, const ComparisonCell& cell, const OpenFolder& folder) {
  const Descriptor log(folder.open_to_append("log.txt"));
  const pid_t parent = ::getpid(), child = ::fork();
  check(child >= 0, "a process for ", cell.name, " could not be started: ", std::strerror(errno));
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // no cell trains on when the comparison is gone
  if (::getppid() != parent) ::_exit(exit_failure);
  ::dup2(log.value, STDOUT_FILENO);
  ::dup2(log.value, STDERR_FILENO);
  int status = exit_failure;
  try {
    status = train_cell(kind, cell, folder);
  } catch (const std::exception& error) {
    print_message("error", error.what());
  }
  std::cout.flush();
  std::exit(status);
}

class CellProcesses {
 public:
  CellProcesses(const TaskKind& kind, std::span<const ComparisonCell> cells, const fs::path& folder)
      : kind_(kind), cells_(cells), folder_(folder), results_(cells.size()) {
    ComparedData data(kind);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      results_[i] = read_result(cells[i], folder_of(i));
      if (results_[i])
        data.check_same(cells[i], folder_of(i));
      else
        waiting_.push_back(i);
    }
    if (!waiting_.empty()) data.check_measurable(cells[waiting_.front()]);
    create_folders(folder);
    opened_.emplace(folder);
    if (waiting_.size() < cells.size())
      std::cerr << "compare: " << cells.size() - waiting_.size() << " of " << cells.size()
                << " cells are done\n";
  }

  std::vector<std::optional<CellResult>> run(int jobs, const std::function<bool()>& stop_requested) {
    std::size_t next = 0;
    while (next < waiting_.size() || !running_.empty()) {
      const bool stop = stop_requested();
      if (stop) end_running();
      if (stop && running_.empty()) break;
      for (; !stop && next < waiting_.size() && running_.size() < static_cast<std::size_t>(jobs); ++next)
        running_[start_cell(kind_, cells_[waiting_[next]], opened(waiting_[next]))] = waiting_[next];
      collect();
    }
    const std::string fate = opened_->fate();
    check(fate.empty(), "the folder of the comparison, ", folder_, ", ", fate,
          " while its cells were trained: no tables were made");
    return std::move(results_);
  }

 private:
  fs::path folder_of(std::size_t cell) const { return folder_ / cells_[cell].name; }
  OpenFolder opened(std::size_t cell) const { return opened_->make_folder(cells_[cell].name); }

  void end_running() {
    if (ending_) return;
    ending_ = true;
    for (const auto& [process, cell] : running_) ::kill(process, SIGTERM);
  }

  /// Takes what processes have left that ended; sleeps a little when none has.
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
      CellResult killed;
      killed.settings = cells_[cell].settings.json();
      killed.failure = concat_text("its process was ended by signal ", WTERMSIG(status), " (",
                                   ::strsignal(WTERMSIG(status)), ")");
      write_result(killed, opened(cell));
      results_[cell] = std::move(killed);
    } else if (WEXITSTATUS(status) == exit_success) {
      results_[cell] = read_result(cells_[cell], folder_of(cell));
    } else if (WEXITSTATUS(status) == exit_failure) {
      results_[cell] = read_failure(folder_of(cell));
    }
    show(cell);
  }

  void show(std::size_t cell) {
    const std::optional<CellResult>& result = results_[cell];
    const std::string outcome =
        !result                    ? "interrupted; the same command goes on"
        : !result->failure.empty() ? concat_text("failed: ", result->failure)
        : result->metrics.empty()
            ? "done"
            : concat_text(result->metrics.front().name, ' ', result->metrics.front().value, ", ",
                          duration_text(result->training_seconds));
    print_message("compare", concat_text(++shown_, " of ", waiting_.size(), ", ", cells_[cell].choice,
                                         ", seed ", cells_[cell].seed, ": ", outcome));
  }

  const TaskKind& kind_;
  std::span<const ComparisonCell> cells_;
  fs::path folder_;
  std::optional<OpenFolder> opened_;  // the folder, once it is made
  std::vector<std::optional<CellResult>> results_;
  std::vector<std::size_t> waiting_;
  std::map<pid_t, std::size_t> running_;
  std::size_t shown_ = 0;
  bool ending_ = false;
};

}  // namespace

std::vector<std::optional<CellResult>> run_cells(const TaskKind& kind, std::span<const ComparisonCell> cells,
                                                 const fs::path& folder, int jobs,
                                                 const std::function<bool()>& stop_requested) {
  return CellProcesses(kind, cells, folder).run(jobs, stop_requested);
}

}  // namespace heed::programs
