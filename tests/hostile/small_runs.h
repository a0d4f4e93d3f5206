#pragma once

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "heed/apps/tasks/train.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/support.h"

// Small trainings of every task, and what tests of whole programs look at: folders, weights, texts.

namespace heed::test {

/// The words between the blanks of a line.
inline Arguments words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// What no program may go beyond, whatever is done to it. Sanitizers cost time and memory of their own.
inline constexpr int most_seconds = sanitized ? 200 : 20;
inline constexpr std::int64_t most_bytes = std::int64_t{sanitized ? 8 : 2} << 30;

/// Settings, "key=value", with which a step of this task's program takes about a millisecond. `rate` is the
/// worked example. Throws for a task that has no line here yet.
std::vector<std::string> small_settings(const std::string& task);
/// The settings of a task with these and `more`.
Settings small_settings_of(const TaskKind& kind, const std::vector<std::string>& more = {},
                           bool own_data = false);
/// Trains without the report, which takes longer than the steps.
inline TrainResult train_run(const TaskKind& kind, const Settings& settings, TrainRequest request) {
  request.report = false;
  return train(kind, settings, request);
}
/// The small settings as flags: {"--set", "key=value", "--set", ...}.
Arguments small_flags(const std::string& task);
/// `train --out out` with the small settings, and `more` behind them.
Arguments small_train(const std::string& task, const std::filesystem::path& out, const Arguments& more = {});
/// The command that small_run(task) was trained with, for another folder. The classifier learns from
/// small_texts().
Arguments small_run_train(const std::string& task, const std::filesystem::path& out,
                          const Arguments& more = {});
/// A trained run of 20 steps, made once for each task and seed. It is to be copied, not changed.
const std::filesystem::path& small_run(const std::string& task, int seed = 1);
void copy_run(const std::filesystem::path& from, const std::filesystem::path& to);
/// Lines of labelled text, "good ..." and "bad ...".
std::filesystem::path small_texts();
/// A line that every run of the task can answer, with its line end.
std::string small_line(const std::string& task);
/// What answers lines: {"predict"}, or {"generate", "--prompts"} with few tokens.
Arguments predict_command(const std::string& task);
/// The command by which a run answers lines.
Arguments use_command(const std::string& task, const std::string& run = "{run}", const Arguments& more = {});

/// The lines "program: error: ...", but for the one that counts the lines without an answer.
std::vector<std::string> error_lines(const std::string& program, const std::string& errors);
/// Checks that a program said once what is wrong, `says` a part of it, and, unless it `answers` all the same,
/// wrote nothing else.
void check_refused(const std::string& program, const ProgramResult& result, const std::string& says,
                   bool answers = false);

/// Names, types, shapes and bytes of the tensors of a safetensors file: all but its metadata, which say which
/// run wrote it.
std::string tensors_of(const std::filesystem::path& path);

/// Everything below a folder: path -> kind and content. FIFOs and devices are not opened.
std::map<std::string, std::string> snapshot(const std::filesystem::path& folder);
/// The names that differ between two snapshots, or "".
std::string difference(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& after);

}  // namespace heed::test
