#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/apps/tasks/run.h"
#include "heed/base/json.h"
#include "heed/base/plain_numbers.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

/// The setting "data.format" of any task that reads tables.
struct TableFormat {
  std::string name = {};
};
void for_each_setting(auto&& visit, TableFormat& format) {
  visit(format.name, "format", "");
}

/// The cells of a table row; for jsonl, its line.
struct KeptRow {
  std::vector<std::string> cells;
  char delimiter;
};

class PredictCommand {
 public:
  PredictCommand(CLI::App& command, const TaskProgram& program)
      : answer_(program.answer), run_(command, program, program.predict_flags), capture_(command) {
    source_.add(command, "--source", "FILE", "Lines to answer, one answer each; default: standard input");
    if (program.entry.read_rows) {
      data_.add(command, "--data", "FILE",
                "Instead of lines: a table (csv, tsv, jsonl) in the format of the training data; one answer "
                "per row");
      command.add_flag("--keep-columns", keep_columns_,
                       concat_text("With --data: also writes the columns of each row, in the format of the "
                                   "file, with the answer as predicted_",
                                   answer_));
    }
    command.add_flag("--probability", probability_, "Appends a tab and the probability to each answer");
    command.add_flag("--json", json_, "Writes each answer as a line of JSON, with all alternatives");
  }

  int run() {
    capture_.check();
    if (json_ && probability_)
      throw SettingsError("--json includes the probabilities: leave out --probability");
    if (data_.given() && source_.given()) throw SettingsError("give --data or --source, not both");
    if (keep_columns_ && !data_.given()) throw SettingsError("--keep-columns is for tables: give --data too");
    Run run = run_.open(data_.given() ? Reads::rows : Reads::lines);
    data_.given() ? answer_rows(run) : answer_lines(run);
    capture_.save();
    print_remarks(run_.program(), run.task());
    if (failed_ == 0) return exit_success;
    print_message(run_.program(), concat_text("error: lines without an answer: ", failed_, " of ", number_));
    return exit_failure;
  }

 private:
  /// Inputs that are answered in one batch, with their rows if they come from a table.
  struct Waiting {
    std::vector<std::string> texts, errors, places;
    std::vector<KeptRow> rows;
  };

  void answer_lines(Run& run) {
    LineReader reader(source_.value(), run_.options_of_lines(run, source_.given()));
    const std::string origin = source_.value("standard input");
    for (std::vector<InputLine> lines; !(lines = reader.next(most_waiting)).empty();) {
      Waiting waiting;
      for (InputLine& line : lines) {
        waiting.places.push_back(concat_text(origin, ", line ", number_ + std::ssize(waiting.texts) + 1));
        waiting.texts.push_back(line.error.empty() ? std::move(line.text) : std::string());
        waiting.errors.push_back(std::move(line.error));
      }
      answer(run, waiting);
    }
    if (reader.replaced() > 0)
      print_message(run_.program(),
                    concat_text(origin, ": ", reader.replaced(), " bad bytes were replaced by U+FFFD"));
  }

  void answer_rows(Run& run) {
    const std::string file = data_.value(), given = run.settings().read<TableFormat>("data").name;
    format_ = given.empty() ? table_format(file) : given;
    Waiting waiting;
    run.task().read_table(file, [&](std::string text, const TableCells& row) {
      if (keep_columns_ && number_ + std::ssize(waiting.texts) == 0) print_header(row);
      waiting.texts.push_back(std::move(text));
      waiting.errors.emplace_back();
      waiting.places.push_back(row.place());
      if (keep_columns_) waiting.rows.push_back({{row.row.begin(), row.row.end()}, row.delimiter});
      if (waiting.texts.size() < most_waiting) return;
      answer(run, waiting);
      waiting = {};
    });
    answer(run, waiting);
  }

  void answer(Run& run, const Waiting& waiting) {
    std::vector<Prediction> answers = run.predict(
        waiting.texts, {.capture = capture_.file(), .first_line = number_, .return_errors = true});
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!waiting.errors[i].empty()) answers[i].error = waiting.errors[i];
      std::cout << (keep_columns_ ? row_with(waiting.rows[i], answers[i]) : line_of(answers[i])) << '\n';
      const bool is_blank_line = waiting.errors[i].empty() && is_blank(waiting.texts[i]);  // it stays blank
      if (answers[i].error.empty() || is_blank_line) continue;
      print_message(run_.program(), concat_text("error: ", waiting.places[i], ": ", answers[i].error));
      ++failed_;
    }
    number_ += std::ssize(answers);
    flush_output();
  }

  std::string line_of(const Prediction& answer) const {
    if (json_) return json_text(json_of(answer, true));
    if (!probability_ || answer.text.empty()) return answer.text;
    return answer.text + '\t' + formatted("%.4f", answer.probability);
  }

  Json json_of(const Prediction& answer, bool with_alternatives) const {
    if (!answer.error.empty()) return {{"error", answer.error}};
    if (!answer.vector.empty()) return {{answer_, answer.vector}};
    Json line = {{answer_, answer.text}, {"probability", answer.probability}};
    if (!answer.words.empty()) line.update(Json::parse(spans_to_json(answer)));
    for (const Prediction::Alternative& one : answer.alternatives) {
      if (!with_alternatives) break;
      line["alternatives"].push_back({{answer_, one.text}, {"probability", one.probability}});
      if (one.score) line["alternatives"].back()["score"] = *one.score;
    }
    return line;
  }

  // --- rows with their columns

  bool writes_json() const { return json_ || format_ == "jsonl"; }

  void print_header(const TableCells& row) {
    columns_ = row.first;
    for (std::size_t i = 0; !row.has_header && i < columns_.size(); ++i) columns_[i] = std::to_string(i + 1);
    std::vector<std::string> header = columns_;
    for (const char* name : {answer_.c_str(), "probability", "alternatives", "error"})
      header.push_back(concat_text(predicted, name));
    for (const std::string& name : header)
      check(std::ranges::count(header, name) == 1, row.origin, ": there would be two columns \"", name,
            "\" in the output of --keep-columns; rename the column in the file");
    if (writes_json() || !row.has_header) return;
    header.resize(columns_.size() + (probability_ ? 2 : 1));
    std::cout << row_text(header, row.delimiter) << '\n';
  }

  std::string row_text(const std::vector<std::string>& cells, char delimiter) const {
    return format_ == "tsv" ? tsv_row(cells) : csv_row(cells, delimiter);
  }

  std::string row_with(const KeptRow& row, const Prediction& answer) const {
    if (!writes_json()) {
      std::vector<std::string> cells = row.cells;
      cells.push_back(answer.text);
      if (probability_) cells.push_back(answer.error.empty() ? formatted("%.4f", answer.probability) : "");
      return row_text(cells, row.delimiter);
    }
    Json line = Json::object();
    if (format_ == "jsonl")
      line = parse_json<Json>(row.cells.front(), "a row");
    else
      for (std::size_t i = 0; i < columns_.size(); ++i) line[columns_[i]] = row.cells[i];
    const Json found = json_of(answer, json_);
    for (const auto& [name, value] : found.items()) line[predicted + name] = value;
    return json_text(line);
  }

  static constexpr std::size_t most_waiting = 1024;
  const std::string answer_, predicted = "predicted_";
  RunFlags run_;
  CaptureFlags capture_;
  TextFlag source_, data_;
  bool probability_ = false, json_ = false, keep_columns_ = false;
  std::string format_;                // of the table
  std::vector<std::string> columns_;  // its names or numbers
  std::int64_t number_ = 0;           // of lines so far
  std::int64_t failed_ = 0;           // of these, without an answer
};

}  // namespace

std::function<int()> add_predict(CLI::App& app, const TaskProgram& program) {
  return add_command<PredictCommand>(app, program, "predict", "Predicts an answer for each line of input");
}

}  // namespace heed::programs
