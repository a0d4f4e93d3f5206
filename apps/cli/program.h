#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/settings.h"

// Shared code of all programs: errors become one line on standard error and an exit status; signals
// become a flag that is read between steps.

namespace CLI {
class App;  // <CLI/CLI.hpp> takes seconds to compile
}

namespace heed::programs {

inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;

/// Parses the command line and runs the chosen command. Errors are printed as one line, "name:
/// error: ...", with status 2 for a SettingsError and 1 for anything else. For an unknown flag or
/// command, the nearest one is suggested. `bodies` are in the order in which the commands were
/// added and return the exit status; a program without commands has one body.
int run_commands(CLI::App& app, int argc, char** argv, const std::vector<std::function<int()>>& bodies);

/// Adds a command to the program.
CLI::App& subcommand(CLI::App& app, const std::string& name, const std::string& help);

/// Registers the flag of a setting, for in_flags(). `value`: what the flag sets, if it takes none.
void register_flag(const std::string& setting, const std::string& flag, const std::string& value = {});
/// Returns an error message of the library, which speaks of settings and arguments, in the words of
/// the command line: "data.format=csv" becomes "--format csv", and "verify=false" "--unverified".
std::string in_flags(std::string_view message);

/// Prints "program: text" on standard error. Line ends become spaces; control characters are
/// escaped and long texts shortened (see unicode::message_line).
void print_message(std::string_view program, std::string text);

/// Prints the exception that is being handled as run_commands() does, and returns the exit status.
/// Call it in a catch block.
int report_exception(std::string_view program);

/// While it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and a closed standard error request a stop
/// instead of ending the program, once interrupted() has been called. Before that (while data is
/// read), and on a second signal of any kind, the program ends at once. Signals that the parent
/// ignores (nohup) stay ignored. A guard also works in a process forked while it lives, where
/// creating another guard has no effect; a signal that the parent passes on requests a stop there
/// and does not count as a second one.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
  /// The exit status that shells expect: 130 after SIGINT, 143 after anything else.
  static int exit_status();

 private:
  bool is_first_;
};

/// Flushes standard output. Throws an Error if writing failed, for example on a full disk.
void flush_output();

/// A flag that takes a value and may be given once.
struct TextFlag {
  std::vector<std::string> values;
  std::string name;
  void add(CLI::App& command, const std::string& flag, const std::string& value_name,
           const std::string& help);
  bool given() const { return !values.empty(); }
  /// The value, or `fallback` if the flag was not given. Throws a SettingsError if it was given
  /// twice.
  std::string value(const std::string& fallback = {}) const;
  /// The value; nothing if the flag was not given.
  std::optional<std::string> optional() const { return given() ? std::optional(value()) : std::nullopt; }
  /// A number from 1 to `largest`, or `fallback` if the flag was not given. Throws a SettingsError
  /// for any other value.
  int count(int fallback, int largest) const;
};

/// A flag that names a file to write, and --overwrite.
struct OutputFlag : TextFlag {
  void add(CLI::App& command, const std::string& flag, const std::string& help);
  /// Throws a SettingsError for --overwrite alone, and an Error if the file exists or cannot be
  /// written.
  void check() const;
  bool overwrite = false;
};

// --- processor requirements

/// An instruction set that the library needs, and whether this processor supports it.
struct ProcessorFeature {
  const char* name;
  bool is_there;
};

// The library is compiled for x86-64-v2. The programs are not, so that they can report what is
// missing.

/// Returns the instruction sets that x86-64-v2 adds to baseline x86-64; empty on other processors.
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

/// Returns an error message naming missing instruction sets; "" if there are none.
inline std::string processor_error(std::span<const ProcessorFeature> features) {
  std::string missing;
  for (const ProcessorFeature& feature : features)
    if (!feature.is_there) missing += (missing.empty() ? "" : ", ") + std::string(feature.name);
  if (missing.empty()) return {};
  return "this processor lacks " + missing + "; heed needs x86-64-v2, that of any processor since 2009";
}

// --- the heed tool

/// Adds --load, which names libraries for load_attentions().
std::shared_ptr<std::vector<std::string>> add_load_flag(CLI::App& command);
/// Loads shared libraries that register attentions, and returns the names of the new attentions.
/// Throws a SettingsError for a library that cannot be opened or registers nothing.
std::vector<std::string> load_attentions(const std::vector<std::string>& libraries);

// Each function adds a command to the program and returns its body, which returns the exit status.
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
