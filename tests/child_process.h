#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace heed::test {

/// What became of a test case that ran in a process of its own.
struct ChildResult {
  int status = -1;  ///< what it returned; -1: a signal ended it, or it took too long
  int signal = 0;
  bool timed_out = false;
  std::string output;

  std::string text() const {
    return "status " + std::to_string(status) + ", signal " + std::to_string(signal) +
           (timed_out ? ", took too long" : "") + ":\n" + output;
  }
};

struct ChildOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};
  rlim_t address_space = RLIM_INFINITY;  ///< bytes
  std::chrono::seconds timeout{60};
};

/// Runs one test case of this program, which is skipped elsewhere (`* doctest::skip()`), in a process of its
/// own: for what a process can do only once, such as leaving.
inline ChildResult run_in_child(const std::string& test_case, const ChildOptions& options = {}) {
  const std::string filter = "--test-case=" + test_case;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (options.address_space != RLIM_INFINITY) {
      const rlimit limit{options.address_space, options.address_space};
      ::setrlimit(RLIMIT_AS, &limit);
    }
#ifdef HEED_EMULATOR  // it runs this program, and the kernel cannot
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    ::execlp(HEED_EMULATOR, HEED_EMULATOR, program.c_str(), filter.c_str(), "--no-skip", "--no-intro",
             nullptr);
#else
    ::execl("/proc/self/exe", "heed_tests", filter.c_str(), "--no-skip", "--no-intro", nullptr);
#endif
    ::_exit(127);
  }
  ::close(ends[1]);
  ChildResult result;
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  for (bool open = child > 0; open;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{ends[0], POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) {
      result.timed_out = true;
      ::kill(child, SIGKILL);
      break;
    }
    char buffer[4096];
    const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    open = got > 0;
    if (got > 0) result.output.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  if (child > 0 && ::waitpid(child, &status, 0) == child) {
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  }
  return result;
}

}  // namespace heed::test
