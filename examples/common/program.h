#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// What every sample program does the same way: errors become one line on standard error and an exit status,
// Ctrl-C becomes a flag that is read between steps.

namespace heed::programs {

inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_interrupted = 130;  ///< 128 + SIGINT, as shells report it

/// The command line or the configuration is wrong: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Parses the command line and runs `body`, which returns the exit status. Errors are printed as one line,
/// "name: error: ...": status 2 for usage, 1 for anything else. An unknown flag or command is answered with
/// the nearest one.
int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

/// The same for a program of several commands: runs the body of the one that was given. `bodies` stand in the
/// order in which the commands were added.
int run_commands(CLI::App& app, int argc, char** argv, const std::vector<std::function<int()>>& bodies);

/// While it lives, SIGINT and SIGTERM set the flag instead of ending the program; a second signal ends it at
/// once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
};

/// Flushes standard output; throws an Error when it could not be written (a full disk).
void flush_output();

}  // namespace heed::programs
