#include "task_program.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "evaluation_table.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"
#include "heed/core/profile.h"
#include "heed/data/table.h"
#include "heed/data/text_file.h"
#include "heed/models/attention/attention.h"
#include "heed/models/config.h"
#include "heed/tasks/recipe.h"
#include "heed/tasks/run.h"
#include "heed/tasks/train.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<SettingFlag> runtime_flags = {"threads", {"device", "", "DEVICE"}, "precision"};

/// How bytes are read, where the task reads any.
void add_encoding_flags(const TaskKind& kind, std::vector<SettingFlag>& flags) {
  if (kind.settings(true).has("data.encoding"))
    flags.insert(flags.end(), {"data.encoding", "data.on_bad_bytes"});
}

/// What stands for the value of a setting in the help.
std::string value_name(const SettingFlag& flag, const Setting& setting) {
  if (!flag.value_name.empty()) return flag.value_name;
  if (setting.kind == Setting::Kind::integer) return "N";
  if (setting.kind == Setting::Kind::number) return "X";
  if (!setting.choices.empty()) return "NAME";
  return setting.name.ends_with("_column") ? "COLUMN" : "PATH";
}

/// The heading in the help under which the flag of a setting stands.
std::string group_of(const std::string& setting) {
  for (const auto& [beginning, group] :
       {std::pair("data.", "Data"), {"model.", "Model"}, {"training.", "Training"}})
    if (setting.starts_with(beginning)) return group;
  return "Options";
}

/// Those on the command line. Throws a SettingsError for two that say what one setting is.
std::vector<const SettingFlag*> given_flags(const std::vector<SettingFlag>& flags) {
  std::vector<const SettingFlag*> given;
  for (const SettingFlag& flag : flags) {
    if (!flag.given.given()) continue;
    for (const SettingFlag* other : given)
      if (other->setting == flag.setting)
        throw SettingsError(other->flag + " and " + flag.flag + " contradict each other: give one");
    given.push_back(&flag);
  }
  return given;
}

/// The command keeps references to the flags.
void add_setting_flags(CLI::App& command, const TaskKind& kind, std::vector<SettingFlag>& flags) {
  const Settings settings = kind.settings(true);
  for (SettingFlag& one : flags) {
    const Setting& setting = settings.setting(one.setting);
    command.option_defaults()->group(group_of(one.setting));
    if (one.value.empty())
      one.given.add(command, one.flag, value_name(one, setting), setting.help);
    else
      command.add_flag_function(
          one.flag, [&one](std::int64_t) { one.given.values = {one.value}; },
          one.value == "false" ? "The same with false" : setting.help);
  }
  command.option_defaults()->group("Options");
}

void add_set_flag(CLI::App& command, std::vector<std::string>& assignments) {
  command
      .add_option("--set", assignments,
                  "One setting by its dotted name, for example training.steps=500; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

/// Escapes of JSON strings, so that a line stays a line and no control character reaches a terminal.
std::string json_text(const Json& value) {
  return unicode::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// --- train

/// What one of several processes does. The first to end with an error ends all, by mpirun or by the process
/// that forked them; so that one message is printed, rank 0 goes first with what all have found, then who
/// alone has failed, and last who knows only that another is gone.
int as_rank(std::string program, Ranks& ranks, const std::function<int()>& body) {
  const auto leave = [&](std::chrono::seconds delay) {
    std::this_thread::sleep_for(delay + std::chrono::seconds(ranks.is_first() ? 0 : 1));
    if (!ranks.is_first()) program += concat_text(" (rank ", ranks.rank(), ")");
    ranks.abandon(report_exception(program));
    return exit_failure;  // never
  };
  try {
    return body();
  } catch (const RankSilent&) {
    return leave(std::chrono::seconds(0));
  } catch (const RankLost&) {
    return leave(std::chrono::seconds(2));
  } catch (const std::exception&) {
    return leave(std::chrono::seconds(0));
  }
}

class TrainCommand {
 public:
  TrainCommand(CLI::App& command, const TaskProgram& program)
      : program_(program), printer_(std::cerr, ProgressPrinter::style_of(STDERR_FILENO)) {
    out_.add(command, "--out", "RUN", "Folder of the run: configuration, weights, checkpoint, metrics");
    config_.add(command, "--config", "FILE", "Settings from a JSON file, laid over the defaults");
    add_set_flag(command, assignments_);
    flags_ = program.train_flags;
    add_encoding_flags(program.kind, flags_);
    flags_.insert(flags_.end(), {"seed",
                                 "training.steps",
                                 "training.save_every",
                                 {"training.from", "", "RUN"},
                                 {"training.freeze", "", "PARTS"},
                                 "training.embeddings"});
    flags_.insert(flags_.end(), runtime_flags.begin(), runtime_flags.end());
    flags_.emplace_back("training.tensorboard", "", "", "true");
    const Settings settings = program.kind.settings(true);
    const bool encodes = settings.has("model.encoder_layers");
    for (SettingFlag flag : {SettingFlag("training.epochs"),
                             {"training.schedule.learning_rate"},
                             {"model.width"},
                             {encodes ? "model.encoder_layers" : "model.decoder_layers", "--layers"},
                             {"model.dropout"},
                             {"training.batch_tokens"},
                             {"data.max_tokens", "--max-length"}})
      if (settings.has(flag.setting)) flags_.push_back(std::move(flag));
    add_setting_flags(command, program.kind, flags_);
    const bool both = program.kind.stacks == Stacks::encoder_decoder;
    command.option_defaults()->group("Model");
    attention_.add(
        command, "--attention", "NAME",
        std::string(both ? "Self-attention of the encoder, and of the decoder where it can serve there"
                         : "Self-attention") +
            ": " + listed(attention_names()));
    if (both) {
      decoder_.add(command, "--decoder-attention", "NAME", "Self-attention of the decoder");
      cross_.add(command, "--cross-attention", "NAME",
                 "Attention of the decoder to the encoder's output, dot_product unless named here");
    }
    if (program.has_preset)
      preset_.add(command, "--preset", "NAME",
                  "A model of the hard-coded Gaussian paper: " + listed(preset_names()) +
                      ". Sets all attentions; the attention flags lie over it");
    command.option_defaults()->group("Options");
    command.add_flag(
        "--resume", resume_,
        "Continues the run in --out from its last checkpoint, to the same bits as without the break");
    command.add_flag("--unverified", unverified_,
                     "With --resume: goes on even where files or data were changed since");
    ranks_.add(command, "--ranks", "N",
               "Trains with N processes of this machine, which share the batches of every step "
               "(training.accumulation); the result is that of one. mpirun serves several machines");
    rank_timeout_.add(
        command, "--rank-timeout", "SECONDS",
        "Ends the training when one of several processes has not answered for so long; without it, "
        "who has not is said after 10 s, and waited for");
    command.add_flag("--profile", profile_, "Prints at the end where the time went, per kernel");
    command.add_flag("--print-config", print_config_, "Prints the settings as JSON and ends");
    command.add_flag("--help-settings", help_settings_,
                     "Prints every setting with default, range and meaning, and ends");
  }

  int run() {
    if (help_settings_) {
      const Settings settings = resolve();
      std::cout << "Defaults for "
                << (program_.kind.names_data(settings) ? program_.suits
                                                       : concat_text("data made by rule (", program_.by_rule,
                                                                     "); with --data: for ", program_.suits))
                << "\n\n"
                << settings_table(settings);
      return exit_success;
    }
    if (started_by_mpi() && !print_config_) {
      if (ranks_.given())
        throw SettingsError("--ranks starts processes of its own, and so has mpirun: give one");
      const std::unique_ptr<Ranks> ranks = open_mpi(rank_patience());
      muted_ = !ranks->is_first();
      return as_rank(std::string(program_.kind.name), *ranks, [&] { return train(resolve(), ranks.get()); });
    }
    const Settings settings = resolve();
    if (print_config_) {
      std::cout << settings.json("", 2) << '\n';
      return exit_success;
    }
    const int ranks = ranks_.count(1, 1024);
    if (rank_timeout_.given() && ranks == 1)
      throw SettingsError("--rank-timeout is for several processes: give --ranks, or start them by mpirun");
    return ranks > 1 ? train_among(ranks, settings) : train(settings, nullptr);
  }

 private:
  RankPatience rank_patience() {
    RankPatience patience;
    if (rank_timeout_.given()) patience.timeout = rank_timeout_.count(0, 1'000'000);
    patience.say = [this](const std::string& text) { printer_.message(text); };
    return patience;
  }

  /// With processes of this machine. Signals come to this one, which does nothing but wait.
  int train_among(int count, const Settings& settings) {
    check_flags();
    const InterruptGuard interrupt;
    const auto body = [&](Ranks& ranks) {
      return as_rank(std::string(program_.kind.name), ranks, [&] { return train(settings, &ranks); });
    };
    try {
      const int status = run_local_ranks(count, body, InterruptGuard::interrupted, rank_patience());
      return status > 128 && InterruptGuard::interrupted() ? InterruptGuard::exit_status() : status;
    } catch (const RankLost& error) {
      if (!path_exists(folder_of_settings(out_.value()) / "config.json")) throw;
      throw Error(concat_text(error.what(), "; --resume goes on from the last checkpoint"));
    }
  }

  void check_flags() const {
    if (!out_.given()) throw SettingsError("train needs --out, the folder of the run");
    if (unverified_ && !resume_)
      throw SettingsError("--unverified is for a run that goes on: give --resume, too");
  }

  int train(const Settings& settings, Ranks* ranks) {
    check_flags();
    const InterruptGuard interrupt;
    TrainRequest request{out_.value(), resume_, !unverified_, {}, ranks};
    const bool is_first = !ranks || ranks->is_first();
    request.callbacks.progress = [&](const Progress& progress) { printer_.show(progress); };
    request.callbacks.message = [&](std::string_view text) { printer_.message(text); };
    request.callbacks.stop_requested = InterruptGuard::interrupted;
    if (ranks)
      request.callbacks.stop_requested = [ranks] {
        return InterruptGuard::interrupted() || ranks->asked_to_stop();
      };
    apply_threads(settings, ranks);
    if (profile_) start_profile();
    if (asks_for_all_folds(settings)) return train_in_folds(settings, request, is_first);
    const TrainResult result = train_run(program_.kind, settings, request);
    if (!is_first) return exit_success;  // rank 0 says what came of it
    printer_.finish();
    print_profile();
    if (!result.finished) {
      const int status = interrupted(concat_text("at step ", result.step));
      write_report_of(program_.kind, request);
      return status;
    }
    write_report_of(program_.kind, request);
    printer_.message(concat_text("done after ", result.step, " steps in ", duration_text(result.seconds),
                                 ": ", out_.value()));
    return exit_success;
  }

  void print_profile() const {
    if (!profile_) return;
    stop_profile();
    std::cerr << profile_table();
  }

  int interrupted(const std::string& where) {
    printer_.message(concat_text("interrupted ", where, "; the checkpoint is in ", out_.value(),
                                 ", and --resume continues from there"));
    return InterruptGuard::exit_status();
  }

  int train_in_folds(const Settings& settings, const TrainRequest& request, bool is_first) {
    const FoldsResult result = train_folds(program_.kind, settings, request);
    if (!is_first) return exit_success;
    printer_.finish();
    print_profile();
    if (!result.finished) return interrupted("in one of the folds");
    std::cout << unicode::printable(result.json) << std::endl;
    return exit_success;
  }

  /// Defaults, or with --resume the settings of the run, < the model of --from < --config < --preset and the
  /// attention flags < --set < flags.
  Settings resolve() {
    GivenSettings given{.config = config_.value(), .verify = !unverified_};
    if (resume_ && out_.given()) given.resumed = out_.value();
    for (const std::string& assignment : assignments_) {
      const std::string name = assigned_name(assignment);
      given.settings.push_back({name, assignment.substr(name.size() + 1), "--set " + assignment});
    }
    for (const SettingFlag* flag : given_flags(flags_))
      given.settings.push_back({flag->setting, flag->given.value(), flag->flag});
    given.attention = {attention_.optional(), decoder_.optional(), cross_.optional(), preset_.optional()};
    return training_settings(program_.kind, given, [this](const std::string& note) {
      if (!muted_) printer_.message(note);
    });
  }

  const TaskProgram& program_;
  ProgressPrinter printer_;
  TextFlag out_, config_, attention_, decoder_, cross_, preset_, ranks_, rank_timeout_;
  std::vector<std::string> assignments_;
  std::vector<SettingFlag> flags_;
  bool resume_ = false, unverified_ = false, profile_ = false, print_config_ = false, help_settings_ = false;
  bool muted_ = false;  // another rank talks
};

// --- evaluate

class EvaluateCommand {
 public:
  EvaluateCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.evaluate_flags), files_(command, program) {
    part_.add(command, "--part", "NAME", "Part of the run's data: valid (the default), test or train");
    command.add_flag("--json", json_,
                     "Prints one JSON object; the default where standard output is no terminal");
    command.add_flag("--table", table_, "Prints figures for people; the default on a terminal");
    if (!program.has_labels) return;
    errors_.add(command, "--errors", "Writes the wrong answers as lines of JSON, the most confident first");
  }

  int run() {
    errors_.check();
    if (json_ && table_) throw SettingsError("--json and --table are two forms of one result: give one");
    const std::vector<std::string> files = files_.given();
    if (!files.empty() && part_.given())
      throw SettingsError("--part is of the run's own data: give it or " + files_.names());
    Run run = run_.open(files.empty() ? RunUse::part : RunUse::files);
    const std::string part = part_.value("valid");
    const Measurement measurement = files.empty() ? run.measure(part) : run.measure_files(files);
    print_remarks(run_.program(), run.learner());
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

// --- predict

/// The cells of a row of a table; of jsonl its line.
struct KeptRow {
  std::vector<std::string> cells;
  char delimiter;
};

class PredictCommand {
 public:
  PredictCommand(CLI::App& command, const TaskProgram& program)
      : answer_(program.answer), run_(command, program, program.predict_flags), capture_(command) {
    source_.add(command, "--source", "FILE", "Lines to answer, one answer each; default: standard input");
    if (program.reads_tables) {
      data_.add(command, "--data", "FILE",
                "In place of lines: a table (csv, tsv, jsonl) as train read it; one answer for each row");
      command.add_flag("--keep-columns", keep_columns_,
                       concat_text("With --data: writes the columns of each row, too, in the format of the "
                                   "file, and the answer as predicted_",
                                   answer_));
    }
    command.add_flag("--probability", probability_, "Writes a tab and the answer's probability behind it");
    command.add_flag("--json", json_, "Writes a line of JSON for each line, with every alternative");
  }

  int run() {
    capture_.check();
    if (json_ && probability_)
      throw SettingsError("--json has the probabilities in it: leave out --probability");
    if (data_.given() && source_.given()) throw SettingsError("give --data or --source, not both");
    if (keep_columns_ && !data_.given())
      throw SettingsError("--keep-columns is for a table: give --data, too");
    Run run = run_.open(data_.given() ? RunUse::rows : RunUse::lines);
    data_.given() ? answer_rows(run) : answer_lines(run);
    capture_.save();
    print_remarks(run_.program(), run.learner());
    return status_;
  }

 private:
  /// What is answered together, and of rows what they were.
  struct Waiting {
    std::vector<std::string> texts, errors, places;
    std::vector<KeptRow> rows;
  };

  void answer_lines(Run& run) {
    LineReader reader(source_.value(), run.settings().read<TextOptions>("data"));
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
    const std::string file = data_.value(), given = run.settings().get<std::string>("data.format");
    format_ = given.empty() ? table_format(file) : given;
    Waiting waiting;
    run.learner().read_table(file, [&](std::string text, const TableCells& row) {
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
    std::vector<Prediction> answers = run.predict(waiting.texts, {capture_.file(), number_});
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!waiting.errors[i].empty()) answers[i].error = waiting.errors[i];
      std::cout << (keep_columns_ ? row_with(waiting.rows[i], answers[i]) : line_of(answers[i])) << '\n';
      if (answers[i].error.empty()) continue;
      print_message(run_.program(), concat_text("error: ", waiting.places[i], ": ", answers[i].error));
      status_ = exit_failure;
    }
    number_ += std::ssize(answers);
    flush_output();
  }

  std::string line_of(const Prediction& answer) const {
    if (json_) return json_text(json_of(answer, true));
    if (!probability_ || answer.text.empty()) return answer.text;
    return answer.text + '\t' + probability_text(answer);
  }

  Json json_of(const Prediction& answer, bool with_alternatives) const {
    if (!answer.error.empty()) return {{"error", answer.error}};
    if (!answer.vector.empty()) return {{answer_, answer.vector}};
    Json line = {{answer_, answer.text}, {"probability", answer.probability}};
    for (const Prediction::Alternative& one : answer.alternatives) {
      if (!with_alternatives) break;
      line["alternatives"].push_back({{answer_, one.text}, {"probability", one.probability}});
      if (one.score) line["alternatives"].back()["score"] = *one.score;
    }
    return line;
  }

  static std::string probability_text(const Prediction& answer) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(4) << answer.probability;
    return text.str();
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
            "\" in what --keep-columns writes; rename the file's");
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
      if (probability_) cells.push_back(answer.error.empty() ? probability_text(answer) : "");
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
  std::int64_t number_ = 0;           // of what was answered
  int status_ = exit_success;
};

}  // namespace

SettingFlag::SettingFlag(std::string_view its_setting, std::string its_flag, std::string its_value_name,
                         std::string its_value)
    : setting(its_setting),
      flag(std::move(its_flag)),
      value_name(std::move(its_value_name)),
      value(std::move(its_value)) {
  if (!flag.empty()) return;
  flag = "--" + (setting == "data.file" ? "data" : setting.substr(setting.rfind('.') + 1));
  std::ranges::replace(flag, '_', '-');
}

void add_labelled_flags(TaskProgram& program) {
  program.has_labels = true;
  program.train_flags = {"data.file",           "data.valid",         "data.test",
                         "data.valid_fraction", "data.test_fraction", "data.folds"};
  program.evaluate_flags = {"prediction.batch_size"};
  program.predict_flags = {"prediction.batch_size"};
  add_table_flags(program, {"data.label_column"});
}

void add_table_flags(TaskProgram& program, const std::vector<SettingFlag>& columns) {
  program.reads_tables = true;
  for (auto* flags : {&program.train_flags, &program.evaluate_flags, &program.predict_flags}) {
    flags->insert(flags->end(), {"data.format",
                                 {"data.header", "", "", "true"},
                                 {"data.header", "--no-header", "", "false"},
                                 "data.delimiter"});
    flags->insert(flags->end(), columns.begin(), columns.end());
  }
}

RunFlags::RunFlags(CLI::App& command, const TaskProgram& program, const std::vector<SettingFlag>& flags)
    : program_(program.kind.name), kind_(program.kind), flags_(flags) {
  run_.add(command, "--run", "RUN", "Folder of a run that train made");
  weights_.add(command, "--weights", "WHICH",
               "best: those of the best evaluation; last: those of the last checkpoint; default: best where "
               "there is one");
  config_.add(command, "--config", "FILE", "Settings from a JSON file, laid over the run's");
  add_set_flag(command, assignments_);
  command.add_flag("--unverified", unverified_,
                   "Uses files of the run even where they were changed after they were written");
  add_encoding_flags(program.kind, flags_);
  flags_.insert(flags_.end(), runtime_flags.begin(), runtime_flags.begin() + 2);
  add_setting_flags(command, program.kind, flags_);
}

Run RunFlags::open(RunUse use) const {
  if (!run_.given()) throw SettingsError("give --run, the folder of a run that train made");
  RunOptions options;
  options.weights = weights_.value();
  if (weights_.given() && options.weights != "best" && options.weights != "last")
    throw SettingsError("--weights must be best or last, not " + options.weights);
  options.verify = !unverified_;
  options.config = config_.value();
  options.settings = assignments_;
  for (const SettingFlag* flag : given_flags(flags_))
    options.settings.push_back(flag->setting + "=" + flag->given.value());
  options.kind = &kind_;
  options.use = use;
  Run run = Run::open(run_.value(), options);
  apply_threads(run.settings());
  return run;
}

DataFlags::DataFlags(CLI::App& command, const TaskProgram& program)
    : files_(program.files), parallel_(program.parallel_files) {
  for (auto* flags : {&files_, &parallel_})
    for (TextFlag& file : *flags)
      file.add(command, file.name, "PATH", file.values.front()), file.values.clear();
}

std::vector<std::string> DataFlags::given() const {
  std::vector<std::string> files;
  for (const auto* flags : {&files_, &parallel_}) {
    const auto count = std::ranges::count_if(*flags, [](const TextFlag& file) { return file.given(); });
    if (count == 0) continue;
    if (!files.empty()) throw SettingsError("give " + names() + ", not both");
    if (static_cast<std::size_t>(count) != flags->size())
      throw SettingsError((*flags)[0].name + " and " + (*flags)[1].name +
                          " go together, but only one is given");
    for (const TextFlag& file : *flags) files.push_back(file.value());
  }
  return files;
}

std::string DataFlags::names() const {
  std::string text;
  for (const auto* flags : {&files_, &parallel_})
    for (const TextFlag& file : *flags) {
      const bool first = &file == &flags->front();
      text += (text.empty() ? "" : first ? ", or " : " and ") + file.name;
    }
  return text;
}

std::string description_of(const TaskProgram& program) {
  return std::string(program.kind.summary) + ".\nWithout data flags it learns " + program.by_rule +
         ", made by rule.";
}

CaptureFlags::CaptureFlags(CLI::App& command) {
  capture_.add(
      command, "--capture",
      "Writes the attention weights, cluster assignments and orders of every example: a page with maps for "
      "FILE.html, else safetensors; slow");
}

void CaptureFlags::save() const {
  if (capture_.given()) content_.save(capture_.value(), capture_.overwrite);
}

void print_remarks(const std::string& program, Learner& learner) {
  for (const std::string& text : learner.take_remarks()) print_message(program, text);
}

std::function<int()> add_train(CLI::App& app, const TaskProgram& program) {
  const auto body =
      add_command<TrainCommand>(app, program, "train", "Learns from data and fills the folder of a run");
  app.get_subcommand("train")->footer(
      "Without data flags: " + program.by_rule +
      ", made by rule.\n"
      "Example: " +
      std::string(program.kind.name) + " train " + program.example +
      "\n"
      "Settings: defaults < --config < --set < flags. --help-settings lists them; config.json keeps them.\n"
      "Ctrl-C ends the step, saves a checkpoint and exits with 130; --resume goes on from there.\n");
  return body;
}

std::function<int()> add_evaluate(CLI::App& app, const TaskProgram& program) {
  return add_command<EvaluateCommand>(app, program, "evaluate", "Measures a trained model");
}

std::function<int()> add_predict(CLI::App& app, const TaskProgram& program) {
  return add_command<PredictCommand>(app, program, "predict", "Answers lines: one line out for each line in");
}

int run_task_program(const TaskProgram& program, int argc, char** argv) {
  CLI::App app(description_of(program), std::string(program.kind.name));
  std::vector<std::function<int()>> commands = {add_train(app, program), add_evaluate(app, program),
                                                add_predict(app, program)};
  if (program.kind.stacks == Stacks::encoder_decoder) commands.push_back(add_score(app, program));
  return run_commands(app, argc, argv, commands);
}

}  // namespace heed::programs
