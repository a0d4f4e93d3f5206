#pragma once

#include <iostream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heed/apps/cli/program.h"
#include "heed/apps/tasks/run.h"

// The program of a task: flags become settings, results become output. What the task is stands in
// tasks/<task>.cpp.

namespace heed::programs {

/// A flag that stands for a setting: "--valid-fraction" for "data.valid_fraction", "--data" for "data.file".
struct SettingFlag {
  // Not explicit: a list of flags reads as a list of settings.
  SettingFlag(std::string_view its_setting, std::string its_flag = {}, std::string its_value_name = {},
              std::string its_value = {});
  SettingFlag(const char* its_setting) : SettingFlag(std::string_view(its_setting)) {}

  std::string setting, flag;
  std::string value_name;  ///< in the help; "": by the kind of the setting
  std::string value;       ///< what the flag stands for if it takes no value
  bool is_list = false;    ///< of columns: it may be given several times
  TextFlag given = {};     ///< what the command line says
  /// As the setting takes it.
  std::string text() const;
};

/// What a task's program has beside what all have.
struct TaskProgram {
  const TaskKind& kind;
  std::string by_rule;                        ///< what it learns without data flags
  std::string suits;                          ///< which data of a user its defaults are for
  std::string example;                        ///< flags of a training, for the help
  std::string answer;                         ///< what it answers a line with, as `predict --json` names it
  std::vector<SettingFlag> train_flags = {};  ///< of train
  std::vector<SettingFlag> evaluate_flags = {};  ///< of evaluate
  std::vector<SettingFlag> predict_flags = {};   ///< of predict, or what stands in its place
  std::string files = {};       ///< of evaluate: what --data names in place of the run's data, for the help
  bool reads_parallel = false;  ///< --source and --target may stand in place of --data
  bool has_preset = false;      ///< of a model with two stacks
  bool has_labels = false;      ///< its answers are right or wrong
  bool reads_tables = false;    ///< what it answers may stand in a table
};

/// The flags of a task that learns from labelled texts (apps/tasks/labelled.h).
void add_labelled_flags(TaskProgram& program);
/// How tables are laid out, and which `columns` are read.
void add_table_flags(TaskProgram& program, const std::vector<SettingFlag>& columns);

/// --threads, --device and --precision, of commands that train; the first two, of those that use a run.
inline const std::vector<SettingFlag> runtime_flags = {"threads", {"device", "", "DEVICE"}, "precision"};
/// How bytes are read, where the task reads any.
void add_encoding_flags(const TaskKind& kind, std::vector<SettingFlag>& flags);
/// Adds the flags to a command, which keeps references to them.
void add_setting_flags(CLI::App& command, const TaskKind& kind, std::vector<SettingFlag>& flags);
/// Those on the command line. Throws a SettingsError for two flags of one setting.
std::vector<const SettingFlag*> given_flags(const std::vector<SettingFlag>& flags);
/// --set KEY=VALUE
void add_set_flag(CLI::App& command, std::vector<std::string>& assignments);

/// JSON on one line, without control characters that could steer a terminal.
std::string json_text(const nlohmann::ordered_json& value);

/// The flags of commands that use a trained run.
class RunFlags {
 public:
  /// `reads_files`: the command has --encoding.
  RunFlags(CLI::App& command, const TaskProgram& program, const std::vector<SettingFlag>& flags,
           bool reads_files = true);
  Run open() const;
  /// How lines are read: those of a file as the run's data or as --encoding says, standard input always as
  /// UTF-8. Throws a SettingsError for an --encoding of standard input.
  TextOptions options_of_lines(const Run& run, bool of_file) const;
  const std::string& program() const { return program_; }

 private:
  std::string program_;
  const TaskKind& kind_;
  TextFlag run_, weights_, config_;
  bool unverified_ = false;
  std::vector<std::string> assignments_;
  std::vector<SettingFlag> flags_;
};

/// The files of a program that hold other data than the run's.
class DataFlags {
 public:
  DataFlags(CLI::App& command, const TaskProgram& program);
  /// As Learner::measure_files() takes them; empty when none was given. Throws a SettingsError for half of
  /// them.
  std::vector<std::string> given() const;
  /// "--data, or --source and --target"
  std::string names() const;

 private:
  TextFlag data_, source_, target_;
  const bool reads_parallel_;
};

/// --capture FILE and --overwrite: where to write what the model shows of its inside.
class CaptureFlags {
 public:
  explicit CaptureFlags(CLI::App& command);
  /// Throws an Error when the file cannot be written; before the work.
  void check() const { capture_.check(); }
  CaptureFile* file() { return capture_.given() ? &content_ : nullptr; }
  void save() const;

 private:
  OutputFlag capture_;
  CaptureFile content_;
};

/// Prints what the task has to say on standard error, with the program's name.
void print_remarks(const std::string& program, Learner& learner);

template <class Command>
std::function<int()> add_command(CLI::App& app, const TaskProgram& program, const char* name,
                                 const std::string& help) {
  auto command = std::make_shared<Command>(subcommand(app, name, help), program);
  return [command] { return command->run(); };
}

/// A command: adds itself to the program and returns what to run when it was chosen.
std::function<int()> add_train(CLI::App& app, const TaskProgram& program);
std::function<int()> add_evaluate(CLI::App& app, const TaskProgram& program);
std::function<int()> add_predict(CLI::App& app, const TaskProgram& program);
std::function<int()> add_score(CLI::App& app, const TaskProgram& program);

using AddCommand = std::function<std::function<int()>(CLI::App& app, const TaskProgram& program)>;
/// The whole program; for tasks that write a text for a text (apps/tasks/text_to_text.h) also score, which
/// says how likely given targets are.
int run_task_program(const TaskProgram& program, int argc, char** argv,
                     const std::vector<AddCommand>& commands = {add_train, add_evaluate, add_predict});

/// --data, --source, --target and the others that name pairs, and how tables are read.
void add_pair_flags(TaskProgram& program);
/// How outputs are searched for or drawn.
void add_decoding_flags(TaskProgram& program);

}  // namespace heed::programs
