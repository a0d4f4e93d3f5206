#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
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

// --- which processors can run a program

/// An instruction set that the library is compiled for, and whether this processor has it.
struct ProcessorFeature {
  const char* name;
  bool is_there;
};

// The library is compiled for x86-64-v2; programs are not, so that they can still say what is missing.

/// What x86-64-v2 needs beyond the first x86-64 processors; nothing on processors of another kind.
inline std::vector<ProcessorFeature> needed_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {{"SSE3", __builtin_cpu_supports("sse3") != 0},
          {"SSSE3", __builtin_cpu_supports("ssse3") != 0},
          {"SSE4.1", __builtin_cpu_supports("sse4.1") != 0},
          {"SSE4.2", __builtin_cpu_supports("sse4.2") != 0},
          {"POPCNT", __builtin_cpu_supports("popcnt") != 0}};
#else
  return {};
#endif
}

/// The error that names the missing ones; "" if there are none.
inline std::string processor_error(std::span<const ProcessorFeature> features) {
  std::string missing;
  for (const ProcessorFeature& feature : features)
    if (!feature.is_there) missing += (missing.empty() ? "" : ", ") + std::string(feature.name);
  if (missing.empty()) return {};
  return "this processor lacks " + missing + "; heed needs x86-64-v2, that of any processor since 2009";
}

// --- the heed tool

/// Adds --load, the libraries that load_attentions() opens.
std::shared_ptr<std::vector<std::string>> add_load_flag(CLI::App& command);
/// Opens shared libraries whose attentions register themselves, and returns the names of these. Throws a
/// SettingsError for one that cannot be opened or registers nothing.
std::vector<std::string> load_attentions(const std::vector<std::string>& libraries);

// Each adds a command to the program and returns its body, which returns the exit status.
std::function<int()> add_bench_command(CLI::App& app);
std::function<int()> add_devices_command(CLI::App& app);
std::function<int()> add_export_command(CLI::App& app);
std::function<int()> add_gradcheck_command(CLI::App& app);
std::function<int()> add_import_command(CLI::App& app);
std::function<int()> add_report_command(CLI::App& app);
std::function<int()> add_serve_command(CLI::App& app);
std::function<int()> add_compare_command(CLI::App& app);
std::function<int()> add_tune_gpu_command(CLI::App& app);
std::function<int()> add_variants_command(CLI::App& app);
std::function<int()> add_verify_command(CLI::App& app);

}  // namespace heed::programs
