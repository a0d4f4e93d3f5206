// The commands evaluate, which measures a run on data, and score, which prints the probability of
// given targets.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/tasks/class_heads.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/text_to_text.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/training/progress.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

// --- the table of evaluate

using Row = std::vector<std::string>;

/// Formats rows as a table, with the first column aligned left and all others right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], unicode::columns(row[i]));
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - unicode::columns(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// Formats the name of a class or figure.
std::string cell(const std::string& name) {
  return unicode::shortened(unicode::printable(name), 40);
}

/// Formats numbers with four decimals, or those of another magnitude with four digits, counts as
/// integers, and anything else as JSON.
std::string cell(const Json& value) {
  if (!value.is_number_float()) return value.dump();
  const double number = value.get<double>(), size = std::abs(number);
  return formatted(size == 0 || (size >= 1e-4 && size < 1e7) ? "%.4f" : "%.4g", number);
}

std::size_t table_width(const std::string& table) {
  return unicode::columns(std::string_view(table).substr(0, table.find('\n')));
}

std::string class_table(const Json& classes) {
  std::vector<Row> rows = {{"class", "precision", "recall", "f1", "support"}};
  for (const auto& [name, one] : classes.items())
    rows.push_back(
        {cell(name), cell(one["precision"]), cell(one["recall"]), cell(one["f1"]), cell(one["texts"])});
  return aligned(rows);
}

std::string confusion_matrix(const Json& confusion, const std::vector<std::string>& names) {
  std::vector<Row> rows = {{"expected \\ predicted"}};
  rows.front().insert(rows.front().end(), names.begin(), names.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    rows.push_back({names[i]});
    for (const Json& count : confusion[i]) rows.back().push_back(cell(count));
  }
  return aligned(rows);
}

std::string frequent_confusions(const Json& confusion, const std::vector<std::string>& names) {
  const std::vector<Confusion> pairs = confusions_in(confusion);
  if (pairs.empty()) return {};
  constexpr std::size_t most = 20;
  std::vector<Row> rows = {{"expected", "predicted", "texts"}};
  for (std::size_t i = 0; i < std::min(pairs.size(), most); ++i)
    rows.push_back({names[pairs[i].expected], names[pairs[i].predicted], std::to_string(pairs[i].count)});
  std::string text = aligned(rows);
  if (pairs.size() > most)
    text += concat_text("and ", pairs.size() - most, " rarer confusions; --json prints the whole matrix\n");
  return text;
}

/// Formats the result of `evaluate` for people: a line for each figure and, for classes, a table of
/// precision, recall and F1 and the confusion matrix. A matrix wider than `columns` is replaced by
/// the most frequent confusions. `found` is the JSON object that evaluate prints.
std::string evaluation_table(const Json& found, int columns) {
  std::vector<Row> figures;
  for (const auto& [name, value] : found.items())
    if (name != "classes" && name != "confusion")
      figures.push_back({cell(metric_title(name)),
                         value.is_string() ? unicode::printable(value.get<std::string>()) : cell(value)});
  std::string text = aligned(figures);
  if (!found.contains("classes")) return text;
  text += '\n' + class_table(found["classes"]);
  if (!found.contains("confusion")) return text;
  std::vector<std::string> names;
  for (const auto& [name, one] : found["classes"].items()) names.push_back(cell(name));
  std::string confusions = confusion_matrix(found["confusion"], names);
  if (table_width(confusions) > static_cast<std::size_t>(columns))
    confusions = frequent_confusions(found["confusion"], names);
  if (!confusions.empty()) text += '\n' + confusions;
  return text;
}

// --- the commands

Reads input_kind(const std::vector<std::string>& files) {
  return files.empty() ? Reads::parts : files.size() == 1 ? Reads::table : Reads::parallel;
}

class EvaluateCommand {
 public:
  EvaluateCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.evaluate_flags), files_(command, program) {
    part_.add(command, "--part", "NAME", "Part of the run's data: valid (the default), test or train");
    command.add_flag("--json", json_,
                     "Prints one JSON object; the default if standard output is not a terminal");
    command.add_flag("--table", table_, "Prints a table; the default on a terminal");
    if (!program.has_labels) return;
    errors_.add(command, "--errors", "Writes wrong answers as lines of JSON, the most confident first");
  }

  int run() {
    errors_.check();
    if (json_ && table_) throw SettingsError("--json and --table contradict each other: give one");
    const std::vector<std::string> files = files_.given();
    if (!files.empty() && part_.given())
      throw SettingsError("--part names a part of the run's own data: give it or " + files_.names());
    Run run = run_.open(input_kind(files));
    const std::string part = part_.value("valid");
    const Measurement measurement = files.empty() ? run.measure(part) : run.measure_files(files);
    print_remarks(run_.program(), run.task());
    if (errors_.given()) write_mistakes(measurement);
    Json result = files.empty() ? Json{{"part", part}} : Json{{"files", files}};
    result.update(Json::parse(measurement.json));
    if (table_ || (!json_ && isatty(STDOUT_FILENO) == 1))
      std::cout << evaluation_table(result, ProgressPrinter::style_of(STDOUT_FILENO).columns) << std::flush;
    else
      std::cout << json_text(result) << std::endl;
    return exit_success;
  }

 private:
  void write_mistakes(const Measurement& measurement) const {
    std::string lines;
    for (const Mistake& one : measurement.mistakes)
      lines += json_text({{"place", one.place},
                          {"expected", one.expected},
                          {"predicted", one.predicted},
                          {"probability", one.probability},
                          {"text", one.text}}) +
               "\n";
    write_output(errors_.value(), lines, errors_.overwrite);
  }

  RunFlags run_;
  DataFlags files_;
  TextFlag part_;
  OutputFlag errors_;
  bool json_ = false, table_ = false;
};

class ScoreCommand {
 public:
  ScoreCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.evaluate_flags), files_(command, program) {
    command.add_flag("--json", json_, "Writes a line of JSON for each pair");
  }

  int run() {
    const std::vector<std::string> files = files_.given();
    if (files.empty()) throw SettingsError("score needs the pairs to score: " + files_.names());
    Run run = run_.open(input_kind(files));
    TextToTextTask& task = text_to_text(run.task());
    for (const TargetScore& score : task.score(task.read_files(files))) {
      if (json_)
        std::cout << Json{{"log_probability", score.log_probability},
                          {"perplexity", score.perplexity()},
                          {"tokens", score.tokens}}
                  << '\n';
      else
        std::cout << formatted("%.4f\t%.4f\n", score.log_probability, score.perplexity());
    }
    flush_output();
    print_remarks(run_.program(), run.task());
    return exit_success;
  }

 private:
  RunFlags run_;
  DataFlags files_;
  bool json_ = false;
};

}  // namespace

std::function<int()> add_evaluate(CLI::App& app, const TaskProgram& program) {
  return add_command<EvaluateCommand>(app, program, "evaluate", "Evaluates a trained model");
}

std::function<int()> add_score(CLI::App& app, const TaskProgram& program) {
  return add_command<ScoreCommand>(app, program, "score",
                                   "Prints the probability of given targets: a line with log-probability "
                                   "(natural) and perplexity for each");
}

}  // namespace heed::programs
