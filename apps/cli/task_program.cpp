// What the programs of tasks have in common, and those whose main() only calls run_task() with their name.
// language_model, which can do more, and own_task, which brings its own task, have files of their own.
//
//   translate train --source train.en.gz --target train.de.gz --valid-fraction 0.01 --out run
//   translate predict --run run < english > german
//   translate score --run run --source english --target german
//   summarize train --data articles.csv --source-column 3 --target-column 2 --test test.csv --out run
//   converse train --data dialogues.txt --test dialogues_test.txt --out run
//   echo "Good morning . __eou__ Hello , how are you ?" | converse predict --run run --method sample
//   classify train --data subj.all --format lines --encoding cp1252 --out runs/subj
//   classify evaluate --run runs/subj
//   match train --data WikiQA-train.txt --config examples/configs/wikiqa.json --out runs/wikiqa
//   tag train --data eng.train --valid eng.testa --test eng.testb --out runs/names
//   embed_text train --data pairs.tsv --out runs/pairs
//   recommend train --data behaviors.tsv --news news.tsv --out runs/mind
//   printf 'N138 N64727\tN50329 N11853\n' | recommend predict --run runs/mind --json

#include "heed/apps/cli/task_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"

namespace heed::programs {
namespace {

/// Returns the placeholder for the value of a setting in the help.
std::string value_name(const SettingFlag& flag, const Setting& setting) {
  if (!flag.value_name.empty()) return flag.value_name;
  if (setting.kind == Setting::Kind::integer) return "N";
  if (setting.kind == Setting::Kind::number) return "X";
  if (!setting.choices.empty()) return "NAME";
  if (setting.kind == Setting::Kind::columns) return "COLUMNS";
  return setting.name.ends_with("_column") ? "COLUMN" : "PATH";
}

/// Returns the heading of the help section with the flag of a setting.
std::string help_group(const std::string& setting) {
  for (const auto& [beginning, group] :
       {std::pair("data.", "Data"), {"model.", "Model"}, {"training.", "Training"}})
    if (setting.starts_with(beginning)) return group;
  return "Options";
}

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

std::string SettingFlag::text() const {
  if (!is_list) return given.value();
  std::string all;
  for (const std::string& one : given.values) all += (all.empty() ? "" : ",") + one;
  return all;
}

void add_encoding_flags(const TaskEntry& entry, std::vector<SettingFlag>& flags) {
  if (entry.settings(true).has("data.encoding"))
    flags.insert(flags.end(), {"data.encoding", "data.on_bad_bytes"});
}

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

void add_setting_flags(CLI::App& command, const TaskEntry& entry, std::vector<SettingFlag>& flags) {
  const Settings settings = entry.settings(true);
  for (SettingFlag& one : flags) {
    const Setting& setting = settings.setting(one.setting);
    command.option_defaults()->group(help_group(one.setting));
    one.is_list = setting.kind == Setting::Kind::columns;
    register_flag(one.setting, one.flag, one.value);
    if (one.value.empty())
      one.given.add(command, one.flag, value_name(one, setting), setting.help);
    else
      command.add_flag_function(
          one.flag, [&one](std::int64_t) { one.given.values = {one.value}; },
          one.value == "false" ? "csv and tsv: the first row is data, not a header"
          : one.value == "0"   ? "Uses no validation data"
                               : setting.help);
  }
  command.option_defaults()->group("Options");
}

void add_set_flag(CLI::App& command, std::vector<std::string>& assignments) {
  command
      .add_option("--set", assignments,
                  "A setting by its dotted name, for example training.steps=500; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

std::string json_text(const nlohmann::ordered_json& value) {
  return unicode::printable(dumped(value));
}

namespace {
const SettingFlag no_validation{"data.valid_fraction", "--no-validation", "", "0"};
}

void add_labelled_flags(TaskProgram& program) {
  program.has_labels = true;
  program.train_flags = {"data.file",          "data.valid", "data.test",  "data.valid_fraction",
                         "data.test_fraction", "data.folds", no_validation};
  program.evaluate_flags = {"prediction.batch_size"};
  program.predict_flags = {"prediction.batch_size"};
  add_table_flags(program, {"data.label_column"});
}

void add_table_flags(TaskProgram& program, const std::vector<SettingFlag>& columns) {
  for (auto* flags : {&program.train_flags, &program.evaluate_flags, &program.predict_flags}) {
    flags->insert(flags->end(), {"data.format",
                                 {"data.header", "", "", "true"},
                                 {"data.header", "--no-header", "", "false"},
                                 "data.delimiter"});
    flags->insert(flags->end(), columns.begin(), columns.end());
  }
}

void add_pair_flags(TaskProgram& program) {
  program.train_flags = {"data.source",      "data.target",         "data.valid_source", "data.valid_target",
                         "data.test_source", "data.test_target",    "data.file",         "data.valid",
                         "data.test",        "data.valid_fraction", no_validation};
  add_table_flags(program, {"data.source_column"});
  for (auto* flags : {&program.train_flags, &program.evaluate_flags})  // predict reads no targets
    flags->emplace_back("data.target_column");
}

void add_decoding_flags(TaskProgram& program) {
  for (auto* flags : {&program.evaluate_flags, &program.predict_flags})
    flags->insert(flags->end(), {"decoding.beam",
                                 "decoding.n_best",
                                 "decoding.method",
                                 "decoding.temperature",
                                 "decoding.top_k",
                                 "decoding.top_p",
                                 {"decoding.seed", "--decoding-seed"},
                                 "decoding.length_penalty",
                                 "decoding.batch_size"});
}

RunFlags::RunFlags(CLI::App& command, const TaskProgram& program, const std::vector<SettingFlag>& flags,
                   bool reads_files)
    : program_(program.entry.name), entry_(program.entry), flags_(flags) {
  run_.add(command, "--run", "RUN", "Folder of a trained run");
  weights_.add(command, "--weights", "WHICH",
               "best: of the best evaluation; last: of the last checkpoint; default: best if there is one");
  config_.add(command, "--config", "FILE", "JSON file of settings that override the run's");
  add_set_flag(command, assignments_);
  command.add_flag("--unverified", unverified_,
                   "Also accepts files that were changed after the run wrote them");
  if (reads_files) add_encoding_flags(program.entry, flags_);
  flags_.insert(flags_.end(), runtime_flags.begin(), runtime_flags.begin() + 2);
  add_setting_flags(command, program.entry, flags_);
}

Run RunFlags::open(Reads reads) const {
  if (!run_.given()) throw SettingsError("give --run, the folder of a trained run");
  RunOptions options;
  options.weights = weights_.value();
  if (weights_.given() && options.weights != "best" && options.weights != "last")
    throw SettingsError("--weights must be best or last, not " + options.weights);
  options.verify = !unverified_;
  options.config = config_.value();
  options.settings = assignments_;
  for (const SettingFlag* flag : given_flags(flags_))
    options.settings.push_back(flag->setting + "=" + flag->text());
  options.entry = &entry_;
  options.reads = reads;
  Run run = Run::open(run_.value(), options);
  apply_threads(run.settings());
  return run;
}

TextOptions RunFlags::options_of_lines(const Run& run, bool of_file) const {
  auto options = run.settings().read<TextOptions>("data");
  if (of_file) return options;
  for (const SettingFlag* flag : given_flags(flags_))
    if (flag->setting == "data.encoding" && flag->given.value() != "utf-8")
      throw SettingsError(concat_text("--encoding ", flag->given.value(),
                                      " is for files, but standard input is UTF-8: name the file (--source), "
                                      "or convert the input (iconv)"));
  options.encoding = Encoding::utf8;
  return options;
}

DataFlags::DataFlags(CLI::App& command, const TaskProgram& program)
    : reads_parallel_(program.entry.settings(true).has("data.source")) {
  data_.add(command, "--data", "PATH", program.files);
  if (!reads_parallel_) return;
  source_.add(command, "--source", "PATH", "Instead of --data: sources, one per line");
  target_.add(command, "--target", "PATH", "Expected targets, line by line");
}

std::vector<std::string> DataFlags::given() const {
  if (source_.given() != target_.given())
    throw SettingsError("--source and --target go together, but only one is given");
  if (source_.given() && data_.given()) throw SettingsError("give " + names() + ", not both");
  if (source_.given()) return {source_.value(), target_.value()};
  if (data_.given()) return {data_.value()};
  return {};
}

std::string DataFlags::names() const {
  return reads_parallel_ ? "--data, or --source and --target" : "--data";
}

CaptureFlags::CaptureFlags(CLI::App& command) {
  capture_.add(command, "--capture",
               "Writes the attention weights, cluster assignments and orders of every example to FILE: a "
               "page with maps for FILE.html, otherwise safetensors; slow");
}

void CaptureFlags::save() const {
  if (capture_.given()) content_.save(capture_.value(), capture_.overwrite);
}

void print_remarks(const std::string& program, Task& task) {
  for (const std::string& text : task.take_remarks()) print_message(program, text);
}

int run_task_program(const TaskProgram& program, int argc, char** argv,
                     const std::vector<AddCommand>& commands) {
  CLI::App app(std::string(program.entry.summary) + ".\nWithout data flags, it learns " + program.by_rule +
                   ", from generated data.",
               std::string(program.entry.name));
  std::vector<std::function<int()>> bodies;
  for (const AddCommand& add : commands) bodies.push_back(add(app, program));
  if (program.entry.stacks == Stacks::encoder_decoder) bodies.push_back(add_score(app, program));
  return run_commands(app, argc, argv, bodies);
}

// --- the programs that have no file of their own

namespace {

/// The parts of a program that differ between tasks.
struct TaskRow {
  const char* name;
  const char* by_rule;  ///< the built-in data
  const char* suits;    ///< the user data that its defaults suit
  const char* example;  ///< example flags of train, for the help
  const char* answer;   ///< the name of an answer
  const char* files;    ///< data for evaluate other than the run's
  void (*add_flags)(TaskProgram& program);
};

void add_text_to_text_flags(TaskProgram& program) {
  add_pair_flags(program);
  add_decoding_flags(program);
}

void add_text_columns_flags(TaskProgram& program) {
  for (auto* flags : {&program.train_flags, &program.evaluate_flags, &program.predict_flags})
    flags->emplace_back("data.text_columns");
}

constexpr TaskRow task_rows[] = {
    {"translate", "German translations of English number words",
     "tens of thousands of pairs of sentences (29,000 captions: examples/configs/multi30k.json)",
     "--source train.en --target train.de --valid-fraction 0.01 --out runs/en-de", "translation",
     "A table of pairs",
     [](TaskProgram& program) {
       add_text_to_text_flags(program);
       program.has_preset = true;
     }},
    {"summarize", "headlines of short reports",
     "a few thousand texts with summaries that copy words of the text (news: "
     "examples/configs/ag_news_headlines.json)",
     "--data news.csv --source-column text --target-column title --out runs/news", "summary",
     "A table of pairs", add_text_to_text_flags},
    {"converse", "small talk", "thousands of short dialogues (examples/configs/dailydialog.json)",
     "--data dialogues.txt --test dialogues_test.txt --out runs/talk", "reply", "Dialogues",
     [](TaskProgram& program) {
       program.train_flags = {"data.file", "data.valid", "data.test", "data.valid_fraction", "data.turns"};
       add_decoding_flags(program);
     }},
    {"classify", "the values of short ListOps expressions",
     "a few thousand short texts, such as subj, mpqa, mr and cr (long ones: examples/configs/20news.json)",
     "--data reviews.csv --label-column stars --text-columns text --out runs/reviews", "label",
     "Labelled texts",
     [](TaskProgram& program) {
       add_labelled_flags(program);
       add_text_columns_flags(program);
       program.train_flags.emplace_back("data.labels");
     }},
    {"match", "answers to simple questions",
     "a few thousand pairs of sentences, such as snli, mrpc, quora and rte",
     "--data pairs.tsv --test pairs_test.tsv --out runs/pairs", "label", "Pairs", add_labelled_flags},
    {"rate", "the value of a number from its English words",
     "a few thousand texts with a number each, such as the stars of reviews",
     "--data reviews.csv --label-column stars --text-columns text --out runs/stars", "number", "Rated texts",
     [](TaskProgram& program) {
       add_labelled_flags(program);
       program.has_labels = false;
       add_text_columns_flags(program);
     }},
    {"tag", "the names in sentences, from the words around them",
     "thousands of sentences, such as CoNLL-2003's, WNUT 17's and LeNER-Br's",
     "--data train.conll --test test.conll --out runs/names", "tagged", "Labelled sentences",
     [](TaskProgram& program) {
       program.has_labels = true;
       program.train_flags = {"data.file",          "data.valid", "data.test",  "data.valid_fraction",
                              "data.test_fraction", "data.folds", no_validation};
       program.evaluate_flags = {"prediction.batch_size"};
       program.predict_flags = {"prediction.batch_size"};
       for (auto* flags : {&program.train_flags, &program.evaluate_flags, &program.predict_flags})
         flags->insert(flags->end(), {"data.format", "data.word_column"});
       for (auto* flags : {&program.train_flags, &program.evaluate_flags})
         flags->emplace_back("data.label_column");
     }},
    {"embed_text", "which number words have the same meaning",
     "thousands of pairs of sentences; not tuned on any data set", "--data pairs.tsv --out runs/pairs",
     "vector", "A table of pairs", add_pair_flags},
    {"recommend", "which topics the users like",
     "impressions of news, such as MIND's (examples/configs/mind.json)",
     "--data behaviors.tsv --news news.tsv --out runs/mind", "news", "Impressions", [](TaskProgram& program) {
       program.train_flags = {"data.file", "data.news",           "data.valid",
                              "data.test", "data.valid_fraction", "data.test_fraction"};
       program.evaluate_flags = {"prediction.news", "prediction.batch_size"};
       program.predict_flags = program.evaluate_flags;
     }}};

}  // namespace

int run_task(const char* name, int argc, char** argv) {
  const TaskRow& row = *std::ranges::find(task_rows, std::string_view(name),
                                          [](const TaskRow& one) { return std::string_view(one.name); });
  TaskProgram program{.entry = task_entry(name),
                      .by_rule = row.by_rule,
                      .suits = row.suits,
                      .example = row.example,
                      .answer = row.answer,
                      .files = concat_text(row.files, " to evaluate on; default: a part of the run's data")};
  row.add_flags(program);
  return run_task_program(program, argc, argv);
}

}  // namespace heed::programs
