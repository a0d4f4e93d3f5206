// The classify program from the outside: what it prints, what it leaves behind, and its exit status.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/task.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/page_json.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace test;
namespace fs = std::filesystem;

/// What learns its texts in 40 steps.
const Arguments fast = {"--steps", "40",
                        "--set",   "training.schedule.learning_rate=0.01",
                        "--set",   "training.ema_decay=0.0",
                        "--set",   "model.dropout=0.0"};

ProgramResult train_classifier(const fs::path& run, const Arguments& more) {
  return run_program("classify", small_train("classify", run, more));
}

/// One short run for all tests that only look at a run.
const fs::path& finished_classify() {
  static const TemporaryFolder folder;
  static const fs::path run = [] {
    const ProgramResult result = run_program("classify", small_run_train("classify", folder / "run", fast));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return folder / "run";
  }();
  return run;
}

ProgramResult predict_classes(const Arguments& more, const std::string& input = {}) {
  return run_program("classify", joined({"predict", "--run", finished_classify().string()}, more), input);
}

}  // namespace

TEST_CASE("classify trains, evaluates and predicts") {
  const std::string run = finished_classify().string();
  CHECK(nlohmann::json::parse(content_of(finished_classify() / "classes.json")) ==
        nlohmann::json({"bad", "good"}));
  const ProgramResult result = run_program("classify", {"evaluate", "--run", run, "--part", "test"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const auto report = nlohmann::json::parse(result.output);
  CHECK(report["part"] == "test");
  CHECK(report["texts"] == 40);
  CHECK(report["accuracy"] == 1.0);
  CHECK(report["classes"]["good"]["f1"] == 1.0);

  const ProgramResult labels = predict_classes({}, "a fine day number 3\n\na sad night number 8");
  REQUIRE_MESSAGE(labels.status == 0, labels.errors);
  CHECK(labels.output.starts_with("good\n"));
  CHECK(labels.output.ends_with("\nbad\n"));
  CHECK(std::ranges::count(labels.output, '\n') == 3);
  const ProgramResult sure = predict_classes({"--probability"}, "a fine day number 3\n");
  REQUIRE(sure.output.starts_with("good\t"));
  CHECK(std::stod(sure.output.substr(5)) > 0.5);
  CHECK(std::stod(sure.output.substr(5)) <= 1);
  const auto answer = nlohmann::json::parse(predict_classes({"--json"}, "a fine day number 3\n").output);
  CHECK(answer["label"] == "good");
  CHECK(answer["alternatives"][1]["label"] == "bad");
}

TEST_CASE("classify: a setting that changes what is read is used or refused") {
  const TemporaryFolder folder;
  const std::string table =
      write_content(folder / "q.csv", "text\n\"a fine day\nnumber 3\"\na sad night\n").string();
  const ProgramResult rows = predict_classes({"--data", table, "--format", "csv"});
  CHECK_MESSAGE(rows.output == "good\nbad\n", rows.errors);
  const auto refused = [&](const char* command, const Arguments& more, const char* name) {
    const ProgramResult result =
        run_program("classify", joined({command, "--run", finished_classify().string()}, more));
    CHECK(result.status == 2);
    CHECK(result.output.empty());
    CHECK_MESSAGE(contains(result.errors, name), result.errors);
    CHECK(contains(result.errors, " changes nothing here, because "));
  };
  write_content(folder / "config.json", R"({"data": {"format": "csv"}})");
  for (const Arguments& more : {Arguments{"--format", "csv"}, Arguments{"--set", "data.format=csv"},
                                Arguments{"--config", (folder / "config.json").string()}})
    refused("predict", joined({"--source", table}, more), "format");
  refused("predict", {"--source", table, "--no-header"}, "header");
  refused("predict", {"--text-columns", "text"}, "text_columns");
  refused("predict", {"--data", table, "--format", "csv", "--set", "data.missing=drop"}, "missing");
  refused("evaluate", {"--data", table, "--set", "data.weight_column=1"}, "weight_column");
  CHECK(contains(
      run_program("classify", {"train", "--format", "csv", "--out", (folder / "run").string()}).errors,
      " changes nothing here, because the data is generated"));
}

TEST_CASE("classify evaluate prints a table for people") {
  const std::string run = finished_classify().string();
  const ProgramResult table =
      run_program("classify", {"evaluate", "--run", run, "--part", "test", "--table"});
  REQUIRE_MESSAGE(table.status == 0, table.errors);
  CAPTURE(table.output);
  CHECK(table.output.starts_with("part"));
  CHECK(contains(table.output, "\naccuracy          1.0000\n"));
  CHECK(
      contains(table.output, "class  precision  recall      f1  support\nbad       1.0000  1.0000  1.0000"));
  CHECK(contains(table.output, "expected \\ predicted  bad  good\nbad"));
  // The report has what came of the test part.
  const auto measured =
      section_of(page_json(content_of(finished_classify() / "report.html")), "Quality")["measured"];
  CHECK(measured["part"] == "test");
  CHECK(measured["count"] == 40);
  CHECK(holds(measured["metrics"], {"accuracy", 1.0}));
}

TEST_CASE("a table whose columns have names needs no other flag") {
  const TemporaryFolder folder;
  std::string rows = "id;kind;sentence\n";
  for (int i = 0; i < 60; ++i)
    rows += std::to_string(i) + (i % 2 == 0 ? ";good;\"a fine day; \"\n" : ";bad;a sad night\n");
  const std::string data = write_content(folder / "rows.csv", rows);
  const ProgramResult result =
      train_classifier(folder / "run", {"--data", data, "--label-column", "kind", "--text-columns",
                                        "sentence", "--test", data, "--steps", "4"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(contains(result.errors, "rows.csv: its fields are separated by semicolons"));
  CHECK(contains(result.errors, "57 texts of 2 classes for training"));
  CHECK(contains(result.errors, "test: accuracy "));
}

TEST_CASE("classify reads CSV and folders, in the encoding that they have") {
  const TemporaryFolder folder;
  const std::string csv = write_content(folder / "a.csv", "1,\"x, y\"\n2,z\n1,w\n2,v\n1,q\n2,p\n");
  for (const char* text : {"neg/1", "neg/2", "pos/1", "pos/2"})
    write_content(folder / "set" / text, "bad \xe9\nday\n");
  const Arguments few = {"--steps", "2", "--valid-fraction", "0.25"};
  CHECK(train_classifier(folder / "1", joined(few, {"--data", csv})).status == 0);
  CHECK(train_classifier(folder / "2",
                         joined(few, {"--data", (folder / "set").string(), "--encoding", "latin-1"}))
            .status == 0);
  const Arguments predict = {"predict", "--run", (folder / "2").string(), "--json"};
  const std::string source = write_content(folder / "texts", "bad \xe9\n"), typed = "bad \u00e9\n";
  const ProgramResult answered = run_program("classify", predict, typed);  // standard input is UTF-8
  REQUIRE_MESSAGE(answered.status == 0, answered.errors);
  CHECK(answered.output == run_program("classify", joined(predict, {"--source", source})).output);
  const ProgramResult refused = run_program("classify", joined(predict, {"--encoding", "latin-1"}), typed);
  CHECK(refused.status == 2);
  check_refused("classify", refused, "standard input is UTF-8");
}

TEST_CASE("classify finds a header, keeps its columns, and answers tables by them") {
  const TemporaryFolder folder;
  std::string rows = "id,opinion,kind\n";
  for (int i = 0; i < 40; ++i)
    rows += std::to_string(i) + (i % 2 == 0 ? ",\"a fine, good day\",good\n" : ",a sad night,bad\n");
  const std::string data = write_content(folder / "data.csv", rows), run = (folder / "run").string();
  const auto train = [&](const char* name, const Arguments& more) {
    return train_classifier(folder / name,
                            joined(joined(fast, {"--data", data, "--text-columns", "2"}), more));
  };
  const auto refused = [](const ProgramResult& result, int status, const std::string& says) {
    CHECK(result.status == status);
    check_refused("classify", result, says);
  };
  const ProgramResult trained = train("run", {"--label-column", "3"});
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  CHECK(contains(
      trained.errors,
      "data.csv: its first row, \"id\", \"opinion\", \"kind\", is read as a header; data.header=false"));
  const auto config = nlohmann::json::parse(content_of(folder / "run/config.json"));
  CHECK(config["data"]["label_column"] == "kind");
  CHECK(config["data"]["text_columns"] == nlohmann::json({"opinion"}));
  const ProgramResult as_data = train("all", {"--label-column", "3", "--no-header"});
  CHECK(as_data.status == 0);
  CHECK(contains(as_data.errors, "\"kind\" 1"));
  refused(train("none", {"--no-header", "--label-column", "kind"}), 1,
          "the column \"kind\" is given by name, but the file has no header");
  refused(train("none", {"--label-column", "3", "--header", "--no-header"}), 2, "contradict");

  // other files by name, in another order and with semicolons; the label may be missing
  const std::string other =
      write_content(folder / "other.csv", "kind;opinion\ngood;a fine day\nbad;a sad night\n");
  const ProgramResult measured = run_program("classify", {"evaluate", "--run", run, "--data", other});
  REQUIRE_MESSAGE(measured.status == 0, measured.errors);
  CHECK(nlohmann::json::parse(measured.output)["accuracy"] == 1.0);
  const std::string file =
      write_content(folder / "new.csv", "opinion;n\n\"a good; \"\"fine\"\" day\";1\na sad night;2\n");
  const auto predict = [&](const Arguments& more) {
    return run_program("classify", joined({"predict", "--run", run}, more));
  };
  const ProgramResult plain = predict({"--data", file});
  CHECK(plain.output == "good\nbad\n");
  CHECK(contains(plain.errors, "the text is read from the column \"opinion\""));
  CHECK(predict({"--data", file, "--keep-columns"}).output ==
        "opinion;n;predicted_label\n\"a good; \"\"fine\"\" day\";1;good\na sad night;2;bad\n");
  const std::string probable = predict({"--data", file, "--keep-columns", "--probability"}).output;
  CHECK(probable.starts_with("opinion;n;predicted_label;predicted_probability\n"));
  const std::string row = "\na sad night;2;bad;";
  REQUIRE(contains(probable, row));
  const double probability = std::stod(probable.substr(probable.find(row) + row.size()));
  CHECK((probability > 0.5 && probability <= 1));
  const std::string json = predict({"--data", file, "--keep-columns", "--json"}).output;
  const auto line = nlohmann::json::parse(json.substr(0, json.find('\n')));
  CHECK(line["opinion"] == "a good; \"fine\" day");
  CHECK(line["predicted_label"] == "good");
  CHECK(line["predicted_alternatives"].size() == 2);
  const std::string lines =
      write_content(folder / "new.jsonl", "{\"opinion\": \"a sad night\", \"tags\": [1, null]}\n");
  const auto kept = nlohmann::json::parse(predict({"--data", lines, "--keep-columns"}).output);
  CHECK(kept["tags"] == nlohmann::json({1, nullptr}));
  CHECK(kept["predicted_label"] == "bad");
  CHECK_FALSE(kept.contains("predicted_alternatives"));
  refused(predict({"--keep-columns"}), 2, "--data");
  refused(predict({"--data", file, "--source", file}), 2, "not both");
  refused(predict({"--data", write_content(folder / "x.csv", "text\na\n")}), 1,
          "x.csv:1: there is no column \"opinion\"");
  refused(predict({"--data", write_content(folder / "y.csv", "opinion,predicted_label\na,b\n"),
                   "--keep-columns"}),
          1, "two columns \"predicted_label\"");
}

TEST_CASE("every program says which data its defaults are for, and takes an encoding") {
  for (const TaskEntry* entry : task_table()) {
    const std::string name(entry->name);
    CAPTURE(name);
    const ProgramResult rule = run_program(name, {"train", "--help-settings"});
    CHECK(rule.output.starts_with("Defaults for generated data ("));
    const std::string with_data = rule.output.substr(0, rule.output.find('\n'));
    Arguments own = {"train", "--help-settings", "--data", "x.csv"};
    if (name == "recommend") own.insert(own.end(), {"--news", "news.tsv"});
    const std::string shown = run_program(name, own).output;
    CHECK(with_data.ends_with("; with --data: for " + shown.substr(13, shown.find('\n') - 13)));
    for (const char* command : {"train", "evaluate", "predict"})
      CHECK(contains(run_program(name, {command, "--help"}).output, "--encoding"));
  }
}

TEST_CASE("texts that are too long are cut and counted, or an error") {
  std::string long_text;
  for (int i = 0; i < 150; ++i) long_text += "a day ";
  const std::string lines = long_text + "y\na fine day\n";
  const ProgramResult refused = predict_classes(
      {"--batch-size", "1", "--set", "data.max_tokens=100", "--set", "data.long_texts=error"}, lines);
  CHECK(refused.status == 1);
  CHECK(contains(refused.errors, "classify: error: standard input, line 1"));
  CHECK(refused.errors.ends_with("classify: error: lines without an answer: 1 of 2\n"));
  CHECK(refused.output.starts_with("\n"));  // the line has no answer, the next one has
  CHECK(std::ranges::count(refused.output, '\n') == 2);
  const ProgramResult result = predict_classes({"--batch-size", "1", "--set", "data.max_tokens=100"}, lines);
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(std::ranges::count(result.output, '\n') == 2);
  CHECK(contains(result.errors, "1 of 2 texts is longer than "));
  CHECK(contains(result.errors, " = 100 and was cut; "));
  CHECK(contains(result.errors, "data.max_tokens=200 reads more\n"));
  std::string all;
  for (int i = 0; i < 1500; ++i) all += long_text + "\n";
  CHECK(contains(predict_classes({"--set", "data.max_tokens=100"}, all).errors,
                 "1500 of 1500 texts are longer than "));
}

TEST_CASE("a setting that changes nothing of what a command reads is no error, in every program") {
  const TemporaryFolder folder;
  const std::string lines = write_content(folder / "lines", "1 a fine day\n").string();
  const auto same = [&](const char* task, const Arguments& arguments, const Arguments& more) {
    const Arguments command = joined({arguments.front(), "--run", small_run(task).string()},
                                     {arguments.begin() + 1, arguments.end()});
    const ProgramResult plain = run_program(task, command, "1 a fine day\n"),
                        result = run_program(task, joined(command, more), "1 a fine day\n");
    CHECK_MESSAGE(result.status == 0, result.errors);
    CHECK(result.output == plain.output);
  };
  same("classify", {"predict", "--set", "data.long_texts=cut"}, {"--set", "data.valid_fraction=0.5"});
  same("translate", {"score", "--source", lines, "--target", lines}, {"--beam", "2", "--temperature", "0.5"});
  same("language_model", {"generate", "--prompt", "a", "--temperature", "0"}, {"--top-k", "3"});
  const std::string pairs = write_content(folder / "pairs.csv", "1,one,eins\n").string();
  const ProgramResult columns =
      run_program("translate", {"evaluate", "--run", small_run("translate").string(), "--data", pairs,
                                "--source-column", "2", "--target-column", "3"});
  CHECK_MESSAGE(columns.status == 0, columns.errors);
}
