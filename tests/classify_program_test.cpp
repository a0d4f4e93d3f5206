// The classify program from the outside: what it prints, what it leaves behind, and its exit status.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/learner.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/page_json.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/run_records.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;

/// A model that a step of takes a few milliseconds.
Arguments classify_training(const fs::path& run, const Arguments& more) {
  Arguments arguments = {"train",
                         "--out",
                         run.string(),
                         "--set",
                         "threads=1",
                         "--set",
                         "data.listops.count=200",
                         "--set",
                         "model.width=16",
                         "--set",
                         "model.feed_forward=16",
                         "--set",
                         "model.heads=2",
                         "--set",
                         "model.encoder_layers=2",
                         "--set",
                         "tokenizer.vocabulary=280",
                         "--set",
                         "training.batch_tokens=256",
                         "--set",
                         "training.evaluate_every=5",
                         "--set",
                         "training.log_every=2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void classify_refuses(const ProgramResult& result, int status, const std::string& part) {
  CAPTURE(result.errors);
  CHECK(result.status == status);
  CHECK(contains(result.errors, "classify: error: "));
  CHECK(contains(result.errors, part));
  CHECK(result.output.empty());
}

/// Lines that are labelled by the word in them.
std::string labelled_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i % 2 == 0 ? "good a fine day number " : "bad a sad night number ") + std::to_string(i) + "\n";
  return text;
}

/// One short run for all tests that only look at a run.
const fs::path& finished_classify() {
  static const TemporaryFolder folder;
  static const fs::path run = [] {
    const std::string data = write_content(folder / "data.txt", labelled_lines(200));
    const ProgramResult result = run_program(
        "classify",
        classify_training(
            folder / "run",
            {"--data", data, "--format", "lines", "--steps", "40", "--test-fraction", "0.2", "--set",
             "training.schedule.learning_rate=0.01", "--set", "training.schedule.warmup_steps=5", "--set",
             "training.ema_decay=0.0", "--set", "model.dropout=0.0"}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return folder / "run";
  }();
  return run;
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

  const ProgramResult labels =
      run_program("classify", {"predict", "--run", run}, "a fine day number 3\n\na sad night number 8");
  REQUIRE_MESSAGE(labels.status == 0, labels.errors);
  CHECK(labels.output.starts_with("good\n"));
  CHECK(labels.output.ends_with("\nbad\n"));
  CHECK(std::count(labels.output.begin(), labels.output.end(), '\n') == 3);
  const ProgramResult sure =
      run_program("classify", {"predict", "--run", run, "--probability"}, "a fine day number 3\n");
  REQUIRE(sure.output.starts_with("good\t"));
  CHECK(std::stod(sure.output.substr(5)) > 0.5);
  CHECK(std::stod(sure.output.substr(5)) <= 1);
}

TEST_CASE("classify evaluate prints a table for people") {
  const std::string run = finished_classify().string();
  const ProgramResult table =
      run_program("classify", {"evaluate", "--run", run, "--part", "test", "--table"});
  REQUIRE_MESSAGE(table.status == 0, table.errors);
  CAPTURE(table.output);
  CHECK(table.output.starts_with("part"));
  CHECK(contains(table.output, "\naccuracy  1.0000\n"));
  CHECK(
      contains(table.output, "class  precision  recall      f1  support\nbad       1.0000  1.0000  1.0000"));
  CHECK(contains(table.output, "expected \\ predicted  bad  good\nbad"));
  classify_refuses(run_program("classify", {"evaluate", "--run", run, "--table", "--json"}), 2, "give one");
  const ProgramResult line =
      run_program("classify", {"predict", "--run", run, "--json"}, "a fine day number 3\n");
  const auto answer = nlohmann::json::parse(line.output);
  CHECK(answer["label"] == "good");
  CHECK(answer["alternatives"][1]["label"] == "bad");
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
  const ProgramResult result = run_program(
      "classify",
      classify_training(folder / "run", {"--data", data, "--label-column", "kind", "--text-columns",
                                         "sentence", "--test", data, "--steps", "4"}));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(contains(result.errors, "rows.csv: its fields are separated by semicolons"));
  CHECK(contains(result.errors, "57 texts of 2 classes to learn from"));
  CHECK(contains(result.errors, "test: accuracy "));
}

TEST_CASE("classify predict shows the inside of a model on request") {
  const TemporaryFolder folder;
  const std::string file = (folder / "inside.safetensors").string();
  const ProgramResult result =
      run_program("classify", {"predict", "--run", finished_classify().string(), "--capture", file},
                  "a day\na sad night\n");
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const std::string content = content_of(file);
  for (const char* name : {"lines.0.tokens", "lines.1.encoder.layers.1.attention.weights"}) {
    CAPTURE(name);
    CHECK(contains(content, name));
  }
}

TEST_CASE("classify resumes to the same bits") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  // The schedule follows the number of steps, so it is kept constant.
  const Arguments constant = {"--set", "training.schedule.name=constant"};
  Arguments first = classify_training(run, {"--steps", "4"});
  first.insert(first.end(), constant.begin(), constant.end());
  REQUIRE(run_program("classify", first).status == 0);
  REQUIRE(run_program("classify", {"train", "--out", run.string(), "--resume", "--steps", "10"}).status == 0);
  Arguments again = classify_training(folder / "again", {"--steps", "10", "--threads", "3"});
  again.insert(again.end(), constant.begin(), constant.end());
  REQUIRE(run_program("classify", again).status == 0);
  CHECK(content_of(run / "model.safetensors") == content_of(folder / "again/model.safetensors"));
}

TEST_CASE("every attention variant and both poolings train in classify") {
  const TemporaryFolder folder;
  for (const heed::AttentionVariant& variant : heed::attention_variants()) {
    const std::string name(variant.name);
    CAPTURE(name);
    const ProgramResult result = run_program(
        "classify",
        classify_training(folder / name, {"--steps", "3", "--attention", name, "--set", "data.max_tokens=64",
                                          "--set", "model.pooling=attention"}));
    CHECK_MESSAGE(result.status == 0, result.errors);
  }
}

TEST_CASE("auxiliary losses stand by themselves in the metrics") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      "classify", classify_training(folder / "run", {"--steps", "4", "--attention", "clusterformer", "--set",
                                                     "model.encoder_attention.clusters=3"}));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  bool found = false;
  for (const nlohmann::json& record : json_lines(content_of(folder / "run" / "metrics.jsonl")))
    found = found || (record.contains("loss") && contains(record.dump(), "cluster"));
  CHECK(found);
}

TEST_CASE("classify reads CSV and folders, and says what it cannot know") {
  const TemporaryFolder folder;
  const std::string csv = write_content(folder / "a.csv", "1,\"x, y\"\n2,z\n1,w\n2,v\n1,q\n2,p\n");
  write_content(folder / "set/neg/1", "bad \xe9\n");
  write_content(folder / "set/neg/2", "sad\n");
  write_content(folder / "set/pos/1", "fine\nday\n");
  write_content(folder / "set/pos/2", "good\n");
  const auto train = [&](const Arguments& more) {
    static int count = 0;
    Arguments all = {"--steps", "2", "--valid-fraction", "0.25"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program("classify", classify_training(folder / ("run" + std::to_string(++count)), all));
  };
  CHECK(train({"--data", csv}).status == 0);
  CHECK(train({"--data", (folder / "set").string(), "--encoding", "latin-1"}).status == 0);
  classify_refuses(train({"--data", (folder / "set").string()}), 1, "1:1: ");
  classify_refuses(train({"--data", write_content(folder / "a.txt", "1 x\n2 y\n")}), 2, "--format");
  classify_refuses(train({"--data", csv, "--format", "cvs"}), 2, "csv");
  classify_refuses(train({"--data", csv, "--encoding", "latin1"}), 2, "latin-1");
  classify_refuses(train({"--data", write_content(folder / "b.csv", "1,\"x\n")}), 1, "b.csv:1: ");
  classify_refuses(train({"--data", write_content(folder / "c.csv", "1,x\n1,y\n1,z\n1,w\n")}), 1,
                   "two classes");
  classify_refuses(train({"--data", (folder / "none.csv").string()}), 1, "none.csv");
  classify_refuses(train({"--data", write_content(folder / "empty.csv", "")}), 1, "empty");
  classify_refuses(train({"--valid", csv}), 2, "--data");
  classify_refuses(train({"--data", csv, "--valid", write_content(folder / "d.csv", "1,x\n3,y\n")}), 1,
                   "d.csv:2: ");
  classify_refuses(train({"--data", csv, "--test-fraction", "0.9"}), 1, "fractions");
  classify_refuses(train({"--data", csv, "--labels", csv}), 2, "data.labels");
  classify_refuses(
      train({"--data", write_content(folder / "a-images-idx3-ubyte", "x"), "--set", "data.label_column=2"}),
      2, "not for images");
}

TEST_CASE("classify finds a header, keeps its columns, and answers tables by them") {
  const TemporaryFolder folder;
  std::string rows = "id,opinion,kind\n";
  for (int i = 0; i < 40; ++i)
    rows += std::to_string(i) + (i % 2 == 0 ? ",\"a fine, good day\",good\n" : ",a sad night,bad\n");
  const std::string data = write_content(folder / "data.csv", rows), run = (folder / "run").string();
  const auto train = [&](const Arguments& more) {
    static int count = 0;
    Arguments all = {"--data",         data,
                     "--label-column", "3",
                     "--text-columns", "2",
                     "--steps",        "40",
                     "--set",          "training.schedule.learning_rate=0.01",
                     "--set",          "model.dropout=0.0",
                     "--set",          "training.schedule.warmup_steps=5",
                     "--set",          "training.ema_decay=0.0"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program("classify",
                       classify_training(++count == 1 ? fs::path(run) : folder / std::to_string(count), all));
  };
  const ProgramResult trained = train({});
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  CHECK(contains(trained.errors,
                 "data.csv: its first row, \"id\", \"opinion\", \"kind\", names the columns; --no-header"));
  const auto config = nlohmann::json::parse(content_of(folder / "run/config.json"));
  CHECK(config["data"]["label_column"] == "kind");
  CHECK(config["data"]["text_columns"] == nlohmann::json({"opinion"}));
  const ProgramResult as_data = train({"--no-header"});
  CHECK(as_data.status == 0);
  CHECK(contains(as_data.errors, "\"kind\" 1"));
  classify_refuses(train({"--no-header", "--label-column", "kind"}), 2, "--label-column");
  classify_refuses(train({"--header", "--no-header"}), 2, "contradict");

  // other files by name, in another order and with semicolons; the label may be missing
  const std::string other =
      write_content(folder / "other.csv", "kind;opinion\ngood;a fine day\nbad;a sad night\n");
  const ProgramResult measured = run_program("classify", {"evaluate", "--run", run, "--data", other});
  REQUIRE_MESSAGE(measured.status == 0, measured.errors);
  CHECK(nlohmann::json::parse(measured.output)["accuracy"] == 1.0);
  const std::string file =
      write_content(folder / "new.csv", "opinion;n\n\"a good; \"\"fine\"\" day\";1\na sad night;2\n");
  const auto predict = [&](const Arguments& more) {
    Arguments all = {"predict", "--run", run};
    all.insert(all.end(), more.begin(), more.end());
    return run_program("classify", all);
  };
  const ProgramResult plain = predict({"--data", file});
  CHECK(plain.output == "good\nbad\n");
  CHECK(contains(plain.errors, "the text is read from the column \"opinion\""));
  CHECK(predict({"--data", file, "--keep-columns"}).output ==
        "opinion;n;predicted_label\n\"a good; \"\"fine\"\" day\";1;good\na sad night;2;bad\n");
  const std::string probable = predict({"--data", file, "--keep-columns", "--probability"}).output;
  CHECK(probable.starts_with("opinion;n;predicted_label;predicted_probability\n"));
  CHECK(contains(probable, "\na sad night;2;bad;0."));
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
  classify_refuses(predict({"--keep-columns"}), 2, "--data");
  classify_refuses(predict({"--data", file, "--source", file}), 2, "not both");
  classify_refuses(predict({"--data", write_content(folder / "x.csv", "text\na\n")}), 1,
                   "x.csv:1: there is no column \"opinion\"");
  classify_refuses(predict({"--data", write_content(folder / "y.csv", "opinion,predicted_label\na,b\n"),
                            "--keep-columns"}),
                   1, "two columns \"predicted_label\"");
}

TEST_CASE("every program says which data its defaults are for, and takes an encoding") {
  for (const heed::TaskKind* kind : heed::task_kinds()) {
    const std::string name(kind->name);
    CAPTURE(name);
    const ProgramResult rule = run_program(name, {"train", "--help-settings"});
    CHECK(rule.output.starts_with("Defaults for data made by rule ("));
    const std::string with_data = rule.output.substr(0, rule.output.find('\n'));
    Arguments own = {"train", "--help-settings", "--data", "x.csv"};
    if (name == "recommend") own.insert(own.end(), {"--news", "news.tsv"});
    const std::string shown = run_program(name, own).output;
    CHECK(with_data.ends_with("; with --data: for " + shown.substr(13, shown.find('\n') - 13)));
    for (const char* command : {"train", "evaluate", "predict"})
      CHECK(contains(run_program(name, {command, "--help"}).output, "--encoding"));
  }
}

TEST_CASE("texts that are too long are an error, or are cut and counted") {
  const TemporaryFolder folder;
  const std::string run = finished_classify().string();
  std::string long_text;
  for (int i = 0; i < 150; ++i) long_text += "a day ";
  const std::string text = "a fine day\n" + long_text + "y\n";
  const ProgramResult refused =
      run_program("classify", {"predict", "--run", run, "--batch-size", "1", "--set", "data.max_tokens=100"},
                  long_text + "\na fine day\n");
  CHECK(refused.status == 1);
  CHECK(contains(refused.errors, "classify: error: standard input, line 1"));
  CHECK(refused.output.starts_with("\n"));  // the line has no answer, the next one has
  CHECK(std::count(refused.output.begin(), refused.output.end(), '\n') == 2);
  const ProgramResult result = run_program(
      "classify", {"predict", "--run", run, "--set", "data.max_tokens=100", "--set", "data.long_texts=cut"},
      text);
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 2);
  CHECK(contains(result.errors, "1 text is longer"));
}

TEST_CASE("evaluate names labels that the run does not know, and damaged runs") {
  const TemporaryFolder folder;
  fs::copy(finished_classify(), folder / "run", fs::copy_options::recursive);
  const std::string run = (folder / "run").string();
  const std::string data = write_content(folder / "other.txt", "good day\nugly day\n");
  classify_refuses(run_program("classify", {"evaluate", "--run", run, "--data", data}), 1, "other.txt:2: ");
  classify_refuses(run_program("classify", {"evaluate", "--run", run, "--part", "tset"}), 2, "test");
  write_content(folder / "run/classes.json", "{\"good\": 1}");
  classify_refuses(run_program("classify", {"predict", "--run", run}, "x\n"), 1, "classes.json");
}

TEST_CASE("balanced class weights change what is learned, and nothing where the classes are alike") {
  const TemporaryFolder folder;
  std::string rare = labelled_lines(20);
  for (int i = 0; i < 60; ++i) rare += "good a day like any other " + std::to_string(i) + "\n";
  const std::string files[] = {write_content(folder / "alike.txt", labelled_lines(40)),
                               write_content(folder / "rare.txt", rare)};
  const auto weights_after = [&](const std::string& data, const std::string& choice) {
    const fs::path run = folder / (fs::path(data).stem().string() + choice);
    const ProgramResult result = run_program(
        "classify",
        classify_training(run, {"--data", data, "--format", "lines", "--steps", "4", "--valid-fraction", "0",
                                "--set", "training.class_weights=" + choice}));
    REQUIRE_MESSAGE(result.status == 0, result.errors);
    return content_of(run / "model.safetensors");
  };
  CHECK(weights_after(files[0], "equal") == weights_after(files[0], "balanced"));
  CHECK(weights_after(files[1], "equal") != weights_after(files[1], "balanced"));
}

TEST_CASE("a setting that a command does not read is no error, in every program") {
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
  same("classify", {"predict", "--set", "data.long_texts=cut"},
       {"--format", "csv", "--set", "data.valid_fraction=0.5"});
  same("translate", {"score", "--source", lines, "--target", lines}, {"--beam", "2", "--temperature", "0.5"});
  same("language_model", {"generate", "--prompt", "a", "--temperature", "0"}, {"--top-k", "3"});
  const std::string pairs = write_content(folder / "pairs.csv", "1,one,eins\n").string();
  const ProgramResult columns =
      run_program("translate", {"evaluate", "--run", small_run("translate").string(), "--data", pairs,
                                "--source-column", "2", "--target-column", "3"});
  CHECK_MESSAGE(columns.status == 0, columns.errors);
}
