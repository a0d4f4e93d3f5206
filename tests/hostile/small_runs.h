#pragma once

#include "heed/apps/tasks/train.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/support.h"

// Small trainings of every task, and what tests of whole programs compare: folders, weights, texts.

namespace heed::test {

/// Splits a line at blanks.
inline Arguments words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The limits that no program may exceed, whatever is done to it. Sanitizers cost time and memory
/// of their own.
inline constexpr int most_seconds = sanitized ? 200 : 20;
inline constexpr std::int64_t most_bytes = std::int64_t{sanitized ? 8 : 2} << 30;

/// Settings, "key=value", with which a step of this task's program takes about a millisecond.
/// `rate` is the worked example. Throws for a task that has no line here yet.
std::vector<std::string> small_settings(const std::string& task);
/// Returns the settings of a task with the small settings and `more`.
Settings small_settings_of(const TaskEntry& entry, const std::vector<std::string>& more = {},
                           bool own_data = false);
/// Trains without the report, which takes longer than the steps.
inline TrainResult train_run(const TaskEntry& entry, const Settings& settings, TrainRequest request) {
  request.report = false;
  return train(entry, settings, request);
}
/// The small settings as flags: {"--set", "key=value", "--set", ...}.
Arguments small_flags(const std::string& task);
/// Returns `train --out out` with the small settings, followed by `more`.
Arguments small_train(const std::string& task, const std::filesystem::path& out, const Arguments& more = {});
/// Returns the command that small_run(task) was trained with, for another folder. The classifier
/// learns from small_texts().
Arguments small_run_train(const std::string& task, const std::filesystem::path& out,
                          const Arguments& more = {});
/// Returns a trained run of 20 steps, made once for each task and seed. Copy it, do not change it.
const std::filesystem::path& small_run(const std::string& task, int seed = 1);
void copy_run(const std::filesystem::path& from, const std::filesystem::path& to);
/// Lines of labelled text, "good ..." and "bad ...".
std::filesystem::path small_texts();
/// Returns a line that every run of the task can answer, with its line end.
std::string small_line(const std::string& task);
/// Returns the command that answers lines: {"predict"}, or {"generate", "--prompts"} with few
/// tokens.
Arguments predict_command(const std::string& task);
/// Returns the command by which a run answers lines.
Arguments use_command(const std::string& task, const std::string& run = "{run}", const Arguments& more = {});

/// Returns the lines "program: error: ...", except the one that counts unanswered lines.
std::vector<std::string> error_lines(const std::string& program, const std::string& errors);
/// Checks that a program reported its error once, with `says` in it, and, unless it `answers` all
/// the same, wrote nothing else.
void check_refused(const std::string& program, const ProgramResult& result, const std::string& says,
                   bool answers = false);

/// Returns names, types, shapes and bytes of the tensors of a safetensors file, but not its
/// metadata, which names the run that wrote it.
std::string tensors_of(const std::filesystem::path& path);

/// Returns everything below a folder: path -> entry and content. FIFOs and devices are not opened.
std::map<std::string, std::string> snapshot(const std::filesystem::path& folder);
/// Returns the names that differ between two snapshots, or "".
std::string difference(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& after);

}  // namespace heed::test
