#include "heed/tests/program_runner.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "heed/base/error.h"
#include "heed/tests/support.h"

namespace heed {
namespace {

std::string path_of(const std::string& program) {
  return program.starts_with("/") ? program : std::string(HEED_PROGRAM_DIR) + "/" + program;
}

void redirect(int descriptor, const std::filesystem::path& path, int flags) {
  const int opened = open(path.c_str(), flags, 0600);
  if (opened < 0 || dup2(opened, descriptor) < 0) _exit(126);
  close(opened);
}

/// Starts the program; its standard streams are the three files.
pid_t start(const std::string& program, const std::vector<std::string>& arguments,
            const std::filesystem::path& folder, const std::filesystem::path& input,
            const std::filesystem::path& output, const std::filesystem::path& errors,
            const ProgramLimits& limits = {}) {
  const std::string path = path_of(program);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t process = fork();
  check(process >= 0, "fork failed");
  if (process == 0) {
    redirect(STDIN_FILENO, input, O_RDONLY);
    redirect(STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC);
    redirect(STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_TRUNC);
    if (chdir(folder.c_str()) != 0) _exit(126);
    const rlimit space{limits.address_space, limits.address_space}, size{limits.file_size, limits.file_size};
    if (limits.address_space > 0 && setrlimit(RLIMIT_AS, &space) != 0) _exit(126);
    if (limits.file_size > 0 && setrlimit(RLIMIT_FSIZE, &size) != 0) _exit(126);
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  return process;
}

int status_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Waits for the end, but no longer than `seconds`; fills in all but the output.
void wait_for(pid_t process, int seconds, ProgramResult& result) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int status = 0;
  rusage used{};
  while (wait4(process, &status, WNOHANG, &used) == 0) {
    if (std::chrono::steady_clock::now() > end && !result.hung) {
      result.hung = true;
      kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.status = status_of(status);
  result.peak_bytes = static_cast<std::int64_t>(used.ru_maxrss) * 1024;
}

}  // namespace

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& input, const std::filesystem::path& folder,
                          const ProgramLimits& limits) {
  const TemporaryFolder streams;
  std::ofstream(streams / "input", std::ios::binary) << input;
  ProgramResult result;
  wait_for(
      start(program, arguments, folder, streams / "input", streams / "output", streams / "errors", limits),
      limits.seconds, result);
  result.output = test::content_of(streams / "output");
  result.errors = test::content_of(streams / "errors");
  return result;
}

std::vector<std::string> in_shell(const std::string& before, const std::string& program,
                                  const std::vector<std::string>& arguments, const std::string& streams) {
  return test::joined({"-c", before + "exec \"$0\" \"$@\"" + streams, path_of(program)}, arguments);
}

BackgroundProgram::BackgroundProgram(const std::string& program, const std::vector<std::string>& arguments)
    : process_(start(program, arguments, ".", "/dev/null", streams_ / "output", streams_ / "errors")) {}

BackgroundProgram::~BackgroundProgram() {
  if (!running()) return;
  send(SIGKILL);
  wait();
}

void BackgroundProgram::send(int signal) const {
  kill(process_, signal);
}

bool BackgroundProgram::running() {
  int status = 0;
  if (status_ < 0 && waitpid(process_, &status, WNOHANG) == process_) status_ = status_of(status);
  return status_ < 0;
}

bool BackgroundProgram::wait_for_file(const std::filesystem::path& path) {
  while (running() && !std::filesystem::exists(path))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return std::filesystem::exists(path);
}

int BackgroundProgram::wait(std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (running() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return status_;
}

std::string BackgroundProgram::output() const {
  return test::content_of(streams_ / "output");
}

std::string BackgroundProgram::errors() const {
  return test::content_of(streams_ / "errors");
}

}  // namespace heed
