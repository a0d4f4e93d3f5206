#pragma once

#include <iostream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heed/apps/cli/program.h"
#include "heed/apps/tasks/run.h"

// The command-line program of a task: flags become settings, results become output. The task itself
// is in tasks/<task>.cpp.

namespace heed::programs {

/// A flag for a setting: "--valid-fraction" for "data.valid_fraction", "--data" for "data.file".
struct SettingFlag {
  // Not explicit: a list of flags reads as a list of settings.
  SettingFlag(std::string_view its_setting, std::string its_flag = {}, std::string its_value_name = {},
              std::string its_value = {});
  SettingFlag(const char* its_setting) : SettingFlag(std::string_view(its_setting)) {}

  std::string setting, flag;
  std::string value_name;  ///< in the help; "": by the kind of the setting
  std::string value;       ///< the value that the flag sets, if it takes none
  bool is_list = false;    ///< a list of columns: the flag may be repeated
  TextFlag given = {};     ///< as on the command line
  /// The value in the form that the setting accepts.
  std::string text() const;
};

/// The parts of a task's program that differ between tasks.
struct TaskProgram {
  const TaskEntry& entry;
  std::string by_rule;                           ///< the built-in data, used without data flags
  std::string suits;                             ///< the user data that its defaults suit
  std::string example;                           ///< example flags of train, for the help
  std::string answer;                            ///< the name of an answer in `predict --json`
  std::vector<SettingFlag> train_flags = {};     ///< of train
  std::vector<SettingFlag> evaluate_flags = {};  ///< of evaluate
  std::vector<SettingFlag> predict_flags = {};   ///< of predict, or of the command that replaces it
  std::string files = {};                        ///< help of evaluate --data
  bool has_preset = false;                       ///< has --preset, for a model with two stacks
  bool has_labels = false;                       ///< its answers are right or wrong
};

/// Adds the flags of a task that learns from labelled texts (apps/tasks/labelled.h).
void add_labelled_flags(TaskProgram& program);
/// Adds flags for the layout of tables, and for their `columns`.
void add_table_flags(TaskProgram& program, const std::vector<SettingFlag>& columns);

/// The flags --threads, --device and --precision of commands that train. Commands that use a run
/// have the first two.
inline const std::vector<SettingFlag> runtime_flags = {"threads", {"device", "", "DEVICE"}, "precision"};
/// Adds flags for the encoding of files, if the task reads files.
void add_encoding_flags(const TaskEntry& entry, std::vector<SettingFlag>& flags);
/// Adds the flags to a command, which keeps references to them.
void add_setting_flags(CLI::App& command, const TaskEntry& entry, std::vector<SettingFlag>& flags);
/// Returns the flags given on the command line. Throws a SettingsError for two flags of one
/// setting.
std::vector<const SettingFlag*> given_flags(const std::vector<SettingFlag>& flags);
/// Adds --set KEY=VALUE.
void add_set_flag(CLI::App& command, std::vector<std::string>& assignments);

/// Returns JSON on one line, without control characters that could steer a terminal.
std::string json_text(const nlohmann::ordered_json& value);

/// The flags of commands that use a trained run.
class RunFlags {
 public:
  /// `reads_files`: the command has --encoding.
  RunFlags(CLI::App& command, const TaskProgram& program, const std::vector<SettingFlag>& flags,
           bool reads_files = true);
  /// Opens the run. Throws a SettingsError for settings of data that what the command reads does not
  /// use.
  Run open(Reads reads) const;
  /// Returns the encoding of lines: for a file, as the run's data or as --encoding says; for
  /// standard input, UTF-8. Throws a SettingsError for --encoding with standard input.
  TextOptions options_of_lines(const Run& run, bool of_file) const;
  const std::string& program() const { return program_; }

 private:
  std::string program_;
  const TaskEntry& entry_;
  TextFlag run_, weights_, config_;
  bool unverified_ = false;
  std::vector<std::string> assignments_;
  std::vector<SettingFlag> flags_;
};

/// The flags of evaluation data that replaces the run's data.
class DataFlags {
 public:
  DataFlags(CLI::App& command, const TaskProgram& program);
  /// The files, a table or sources and targets; empty if none was given. Throws a SettingsError if
  /// only one of a pair was given.
  std::vector<std::string> given() const;
  /// The names of the flags, for messages: "--data, or --source and --target".
  std::string names() const;

 private:
  TextFlag data_, source_, target_;
  const bool reads_parallel_;
};

/// The flags --capture FILE and --overwrite: the file for the captured attention weights.
class CaptureFlags {
 public:
  explicit CaptureFlags(CLI::App& command);
  /// Throws an Error if the file cannot be written. Call it before the work.
  void check() const { capture_.check(); }
  CaptureFile* file() { return capture_.given() ? &content_ : nullptr; }
  void save() const;

 private:
  OutputFlag capture_;
  CaptureFile content_;
};

/// Prints the task's remarks on standard error, with the program's name.
void print_remarks(const std::string& program, Task& task);

template <class Command>
std::function<int()> add_command(CLI::App& app, const TaskProgram& program, const char* name,
                                 const std::string& help) {
  auto command = std::make_shared<Command>(subcommand(app, name, help), program);
  return [command] { return command->run(); };
}

/// Each function adds a command to the program and returns its body.
std::function<int()> add_train(CLI::App& app, const TaskProgram& program);
std::function<int()> add_evaluate(CLI::App& app, const TaskProgram& program);
std::function<int()> add_predict(CLI::App& app, const TaskProgram& program);
std::function<int()> add_score(CLI::App& app, const TaskProgram& program);

using AddCommand = std::function<std::function<int()>(CLI::App& app, const TaskProgram& program)>;
/// Runs the whole program. Tasks that map a text to a text (apps/tasks/text_to_text.h) also have
/// the command score, which prints the probability of given targets.
int run_task_program(const TaskProgram& program, int argc, char** argv,
                     const std::vector<AddCommand>& commands = {add_train, add_evaluate, add_predict});
/// Runs the program of a task that has a row in tasks.cpp; apps/CMakeLists.txt makes its main().
int run_task(const char* name, int argc, char** argv);

/// Adds --data, --source, --target and the other flags for pairs, and the flags for tables.
void add_pair_flags(TaskProgram& program);
/// Adds the flags for beam search and sampling.
void add_decoding_flags(TaskProgram& program);

}  // namespace heed::programs
