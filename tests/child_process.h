#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "heed/tests/program_runner.h"
#include "heed/tests/support.h"

namespace heed::test {

/// The outcome of a test case that ran in a process of its own.
struct ChildResult {
  int status = -1;  ///< what it returned; -1: a signal ended it, or it took too long
  int signal = 0;
  bool timed_out = false;
  std::string output;  ///< on both streams, the standard output first

  std::string text() const {
    return "status " + std::to_string(status) + ", signal " + std::to_string(signal) +
           (timed_out ? ", took too long" : "") + ":\n" + output;
  }
};

struct ChildOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::uint64_t address_space = 0;  ///< bytes; 0: no limit
  std::chrono::seconds timeout{60};
};

/// Runs one test case of this program, which is skipped elsewhere (`* doctest::skip()`), in a
/// process of its own, for actions that a process can take only once, such as exiting.
inline ChildResult run_in_child(const std::string& test_case, const ChildOptions& options = {}) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : options.environment) arguments.push_back(name + "=" + value);
#ifdef HEED_EMULATOR  // it runs this program, and the kernel cannot
  arguments.emplace_back(HEED_EMULATOR);
#endif
  arguments.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  arguments.insert(arguments.end(), {"--test-case=" + test_case, "--no-skip", "--no-intro"});
  const ProgramResult result = run_program(
      "/usr/bin/env", arguments, {}, ".",
      {.address_space = options.address_space, .seconds = static_cast<int>(options.timeout.count())});
  const int signal = result.status > 128 ? result.status - 128 : 0;
  return {signal == 0 ? result.status : -1, signal, result.hung, result.output + result.errors};
}

/// Runs `body` in a forked child that then leaves as any program does; the status it left with, or -1.
inline int status_of_fork(const std::function<bool()>& body) {
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace heed::test
