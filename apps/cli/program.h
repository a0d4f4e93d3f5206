#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/settings.h"

// What every program does the same way: errors become one line on standard error and an exit status, signals
// become a flag that is read between steps.

namespace CLI {
class App;  // <CLI/CLI.hpp> takes seconds to compile
}

namespace heed::programs {

inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;

/// Parses the command line and runs the command that was given. Errors are printed as one line, "name: error:
/// ...": status 2 for a SettingsError, 1 for anything else. An unknown flag or command is answered with the
/// nearest one. `bodies` stand in the order in which the commands were added, and return the exit status; a
/// program without commands has one.
int run_commands(CLI::App& app, int argc, char** argv, const std::vector<std::function<int()>>& bodies);

/// Adds a command to the program.
CLI::App& subcommand(CLI::App& app, const std::string& name, const std::string& help);

/// A line on standard error, "program: text". Line ends become spaces; nothing in it can steer a terminal or
/// flood it (see unicode::message_line).
void print_message(std::string_view program, std::string text);

/// To be called where an exception is caught: prints it as run_commands() does, and returns the status to end
/// with.
int report_exception(std::string_view program);

/// While it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and a standard error that nobody reads any more ask for
/// an end instead of ending the program, once interrupted() was called; before, while data is read, and a
/// second signal, whichever of them, ends it at once. A signal that the parent ignores (nohup) stays ignored.
/// It holds in a process that is forked while it lives, too, where another one changes nothing; there, a
/// signal that the process with the guard passes on asks for an end and is no second one.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
  /// 130 after SIGINT, 143 after anything else, as shells report it.
  static int exit_status();

 private:
  bool is_first_;
};

/// Flushes standard output; throws an Error when it could not be written (a full disk).
void flush_output();

/// A flag that takes a value and may be given once.
struct TextFlag {
  std::vector<std::string> values;
  std::string name;
  void add(CLI::App& command, const std::string& flag, const std::string& value_name,
           const std::string& help);
  bool given() const { return !values.empty(); }
  /// The value, or `fallback`; throws a SettingsError when it was given twice.
  std::string value(const std::string& fallback = {}) const;
  /// The value; nothing when it was not given.
  std::optional<std::string> optional() const { return given() ? std::optional(value()) : std::nullopt; }
  /// A number from 1 to `largest`, or `fallback`; throws a SettingsError for any other value.
  int count(int fallback, int largest) const;
};

/// A flag that names a file to write, and --overwrite.
struct OutputFlag : TextFlag {
  void add(CLI::App& command, const std::string& flag, const std::string& help);
  /// Throws a SettingsError for --overwrite alone, an Error when the file exists or cannot be written.
  void check() const;
  bool overwrite = false;
};

/// While it lives, nothing written to the stream can steer the terminal behind it
/// (see unicode::printable_lines).
class TerminalOutput : private std::streambuf {
 public:
  explicit TerminalOutput(std::ostream& stream) : stream_(stream), terminal_(stream.rdbuf(this)) {}
  ~TerminalOutput() override;
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

 private:
  int_type overflow(int_type byte) override;
  std::streamsize xsputn(const char* bytes, std::streamsize count) override;
  int sync() override;
  bool pass(std::size_t bytes);

  std::ostream& stream_;
  std::streambuf* const terminal_;
  std::string waiting_;
};

}  // namespace heed::programs
