// Tasks with labels: how classes are measured, and what weights and numbers do.

#include "heed/apps/tasks/labelled.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/class_heads.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
#include "heed/base/file.h"
#include "heed/base/plain_numbers.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/temporary_folder.h"
#include "heed/text/safetensors.h"

using namespace heed;
using namespace heed::test;
using Json = nlohmann::json;

TEST_CASE("labels that are none are refused with the columns that there are, before anything is built") {
  const auto csv = [](std::size_t classes, std::size_t texts) {
    std::string rows = "question,answer,label\n";
    for (std::size_t i = 0; i < classes * texts; ++i)
      rows += concat_text("q ", i, ",a", i % classes, ",", i % 2, "\n");
    return read_labelled_text({rows, "f.csv"},
                              {.format = "csv", .label_column = "2", .header = Header::present});
  };
  for (const auto& size : {std::pair{201, 2}, {11'000, 1}}) {
    const auto [classes, texts] = size;
    CAPTURE(size.first);
    const LabelledText text = csv(static_cast<std::size_t>(classes), static_cast<std::size_t>(texts));
    CHECK_THROWS_WITH_AS(
        check_labels(text, "f.csv"),
        doctest::Contains("data.label_column=N names it; the first line has the columns 1 (\"question\"), "
                          "2 (\"answer\"), 3 (\"label\")"),
        SettingsError);
  }
  for (const auto& [classes, texts] : {std::pair{200, 1}, {2000, 3}})
    CHECK_NOTHROW(check_labels(csv(static_cast<std::size_t>(classes), static_cast<std::size_t>(texts)), ""));

  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 1000; ++i) rows += concat_text("label", i, " a text\n");
  write_file_atomically(folder / "data.txt", rows);
  Settings settings = task_entry("classify").settings(true);
  settings.assign("data.format=lines");
  settings.set("data.file", (folder / "data.txt").string(), "test");
  CHECK_THROWS_WITH_AS(train_run(task_entry("classify"), settings, {folder / "run"}),
                       doctest::Contains("data.txt: its 1000 texts have more than"), SettingsError);
  CHECK(!path_exists(folder / "run"));
}

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> abc = {"a", "b", "c"};

/// Returns a head whose classes are a, b and c.
template <class Head>
Head head_of_abc() {
  static const Settings settings = [] {
    Settings made = task_entry("classify").settings(true);
    made.set("data.label_separator", std::is_same_v<Head, ClassSetHead> ? "|" : "", "test");
    return made;
  }();
  Head head(task_entry("classify"), settings);
  head.open([](std::string_view) { return classes_to_json(abc); });
  return head;
}

ClassQuality quality_of(const std::vector<Output>& scores, const std::vector<ClassSet>& labels) {
  return head_of_abc<ClassHead>().quality(scores, labels, 3);
}

}  // namespace

TEST_CASE("Quality of classes: a case worked out by hand") {
  // Expected a a a b b; predicted a b a b a.
  const std::vector<ClassSet> labels = {{0}, {0}, {0}, {1}, {1}};
  const Output a = {std::log(0.5F), std::log(0.3F), std::log(0.2F)},
               b = {std::log(0.1F), std::log(0.8F), std::log(0.1F)};
  const std::vector<Output> scores = {a, b, a, b, a};
  const ClassQuality quality = quality_of(scores, labels);
  CHECK(quality.accuracy == doctest::Approx(0.6));
  CHECK(quality.loss ==
        doctest::Approx(-(2 * std::log(0.5) + std::log(0.1) + std::log(0.8) + std::log(0.3)) / 5));
  // F1: a 2 * 2 / (3 + 3), b 2 * 1 / (2 + 2); c has neither texts nor answers, and does not count.
  CHECK(quality.macro_f1 == doctest::Approx((4.0 / 6 + 0.5) / 2));
  CHECK(quality.confusion == std::vector<std::vector<std::int64_t>>{{2, 1, 0}, {1, 1, 0}, {0, 0, 0}});

  LabelledText text;
  for (int i = 0; i < 5; ++i) text.add("text", i < 3 ? "a" : "b", "f:" + std::to_string(i + 1));
  const Measurement measured = head_of_abc<ClassHead>().measurement(scores, labels, text);
  const Json json = Json::parse(measured.json);
  CHECK(json["accuracy"] == 0.6);
  CHECK(json["texts"] == 5);
  CHECK(json["confusion"][0] == Json({2, 1, 0}));
  CHECK(json["classes"]["a"]["recall"] == doctest::Approx(0.6667));
  CHECK(json["classes"]["b"]["precision"] == 0.5);
  REQUIRE(measured.mistakes.size() == 2);
  CHECK(measured.mistakes[0].place == "f:2");  // the more confident one
  CHECK(measured.mistakes[0].predicted == "b");

  CHECK(head_of_abc<ClassHead>().quality({}, {}, 300).confusion.empty());
}

TEST_CASE(
    "macro_f1: the mean over the classes that occur among the labels or the answers, as scikit-learn has "
    "it") {
  const Output a = {0, -9, -9}, b = {-9, 0, -9}, c = {-9, -9, 0};
  const auto macro_f1 = [](const std::vector<Output>& scores, const std::vector<ClassSet>& labels) {
    return quality_of(scores, labels).macro_f1;
  };
  // sklearn.metrics.f1_score(labels, answers, average="macro")
  CHECK(macro_f1({a, a, b}, {{0}, {1}, {1}}) == doctest::Approx(2.0 / 3));  // c occurs nowhere
  CHECK(macro_f1({a, a, c}, {{0}, {1}, {1}}) == doctest::Approx(2.0 / 9));  // c is an answer alone
  CHECK(macro_f1({a, a, a}, {{0}, {1}, {1}}) == doctest::Approx(0.25));     // b is a label alone
  CHECK(macro_f1({c}, {{2}}) == 1);
  CHECK(macro_f1({}, {}) == 0);
}

TEST_CASE("A sample of pairs has whole groups") {
  LabelledText pairs;
  for (int question = 0; question < 6; ++question)
    for (int answer = 0; answer < 3; ++answer)
      pairs.add_pair(std::to_string(question), std::to_string(answer), "no", "a table");
  using Rows = std::vector<std::size_t>;
  CHECK(sampled_rows(pairs, 10) == Rows{0, 1, 2, 6, 7, 8, 12, 13, 14});
  CHECK(sampled_rows(pairs, 1) == Rows{0, 1, 2});
  CHECK(sampled_rows(pairs, 18).size() == 18);
  CHECK(sampled_rows(pairs, 0).size() == 18);
  LabelledText texts;
  for (int i = 0; i < 5; ++i) texts.add("the same", "yes", "a table");
  CHECK(sampled_rows(texts, 2) == Rows{0, 2});
}

TEST_CASE("Several labels a text: sets of classes, and their figures as scikit-learn has them") {
  LabelledText text;
  text.add("one", "a|b", "f", 1);
  text.add("two", "", "f", 2);
  text.add("three", "c|c", "f", 3);
  const auto head = head_of_abc<ClassSetHead>();
  CHECK(head.targets(text) == std::vector<ClassSet>{{0, 1}, {}, {2}});
  CHECK(head.learned_files(text).at("classes.json") == classes_to_json(abc));
  LabelledText wrong;
  wrong.add("four", "d|e", "f", 4);
  CHECK_THROWS_WITH_AS(head.targets(wrong), doctest::Contains("f:4: the label \"d\""), Error);
  wrong.add("five", "a|", "f", 5);
  CHECK_THROWS_WITH_AS(head.targets(wrong), doctest::Contains("f:5: the labels \"a|\" have an empty one"),
                       Error);

  const float yes = std::log(0.9F), no = std::log(0.2F), half = std::log(0.5F);
  const std::vector<Output> scores = {{yes, no, no}, {no, no, no}, {yes, no, half}};
  const ClassQuality quality = head.quality(scores, head.targets(text), 3);
  CHECK(quality.accuracy == doctest::Approx(1.0 / 3));
  // sklearn.metrics.f1_score([[1, 1, 0], [0, 0, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 0], [1, 0, 1]],
  // average=...)
  CHECK(quality.micro_f1 == doctest::Approx(2.0 / 3));
  CHECK(quality.macro_f1 == doctest::Approx((2.0 / 3 + 0 + 1) / 3));
  CHECK(quality.loss == doctest::Approx(-(std::log(0.9) + std::log(0.2) + std::log(0.8) + 3 * std::log(0.8) +
                                          std::log(0.1) + std::log(0.8) + std::log(0.5)) /
                                        3));
  const std::vector<Prediction> answers = head.predictions(scores);
  CHECK(answers[0].text == "a");
  CHECK(answers[1].text.empty());
  CHECK(answers[2].text == "a|c");
  CHECK(answers[2].probability == doctest::Approx(0.9 * 0.8 * 0.5));
  CHECK(answers[1].alternatives.size() == 3);
}

TEST_CASE("Shares of several labels a text: those with the smallest cross entropy, also of huge logits") {
  SparseLinear sparse(8, 2);
  std::vector<std::vector<float>> logits;
  std::vector<ClassSet> labels;
  for (int i = 0; i < 2000; ++i) {  // the deep part is right twice as often as not, the sparse one is noise
    const bool first = i % 2 == 0, second = i % 4 < 2, right = i % 3 != 0;
    const float sign = right ? 1 : -1;
    logits.push_back(
        {first ? sign : -sign, second ? sign : -sign, i % 5 < 2 ? 1.F : -1.F, i % 7 < 3 ? 1.F : -1.F});
    labels.push_back({});
    if (first) labels.back().push_back(0);
    if (second) labels.back().push_back(1);
  }
  sparse.fit_shares(logits, labels);
  std::vector<float> shares = sparse.shares.to_vector<float>();
  CHECK(shares[0] == doctest::Approx(std::log(2.0)).epsilon(0.15));  // log(p / (1 - p)) of p = 2/3
  CHECK(shares[1] < 0.2F);
  for (std::vector<float>& one : logits)
    for (float& value : one) value *= 1e30F;
  sparse.fit_shares(logits, labels);
  for (const float share : sparse.shares.to_vector<float>()) CHECK(std::isfinite(share));
}

TEST_CASE("Weights: a rare class counts more, examples as their data say, and the mean is 1") {
  LabelledText text;
  const ClassSet labels = {0, 0, 0, 1};
  CHECK(example_weights(text).empty());
  std::vector<float> weights = example_weights(text, labels);
  CHECK(weights[2] == doctest::Approx(4.0 / (2 * 3)));
  CHECK(weights[3] == doctest::Approx(4.0 / (2 * 1)));
  text.weights = {3e38F, 0, 3e38F, 3e38F};
  weights = example_weights(text, labels);
  CHECK(weights[0] == doctest::Approx(4.0 / 5));
  CHECK(weights[1] == 0);
  CHECK(weights[3] == doctest::Approx(4.0 * 3 / 5));
  CHECK(example_weights(text)[3] == doctest::Approx(4.0 / 3));
  text.weights = {0, 0};
  CHECK_THROWS_WITH_AS(example_weights(text), doctest::Contains("none counts"), Error);
}

namespace {

Settings small_table_run(const std::string& task, const std::filesystem::path& file,
                         const std::vector<std::string>& more) {
  Settings settings = small_settings_of(task_entry(task), {}, true);
  settings.set("data.file", file.string(), "test");
  for (const std::string& one : more) settings.assign(one);
  return settings;
}

}  // namespace

TEST_CASE("Weights of the data: an example that counts three times is as good as three of it") {
  const TemporaryFolder folder;
  std::string weighted = "w,text,label\n", repeated = "text,label\n";
  for (int i = 0; i < 20; ++i) {
    const std::string row = concat_text(static_cast<char>('a' + i), ',', i % 2 == 0 ? "in" : "out", '\n');
    weighted += concat_text(i < 10 ? "1.5" : "0.5", ',', row);
    for (int copy = 0; copy < (i < 10 ? 3 : 1); ++copy) repeated += row;
  }
  write_file_atomically(folder / "weighted.csv", weighted);
  write_file_atomically(folder / "repeated.csv", repeated);
  // One batch holds all of either, so that its mean loss is the same.
  const std::vector<std::string> whole = {
      "training.steps=3",     "training.batch_tokens=100000", "data.valid_fraction=0",    "model.dropout=0",
      "model.word_dropout=0", "tokenizer.kind=words",         "tokenizer.min_frequency=1"};
  const auto loss_of = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), whole.begin(), whole.end());
    double loss = 0;
    train_run(task_entry("classify"), small_table_run("classify", folder / (name + ".csv"), more),
              {.folder = folder / (name + "-run"),
               .callbacks = {.progress = [&](const Progress& progress) { loss = progress.loss; }}});
    return loss;
  };
  const double expected = loss_of("repeated", {});
  CHECK(loss_of("weighted", {"data.weight_column=w"}) == doctest::Approx(expected).epsilon(1e-5));
  for (const char* const bad : {"-1", "nan", "", "much", "1e39"}) {
    CAPTURE(bad);
    write_file_atomically(folder / "bad.csv", concat_text("w,text,label\n1,a,x\n", bad, ",b,y\n"));
    CHECK_THROWS_WITH_AS(loss_of("bad", {"data.weight_column=w"}), doctest::Contains("bad.csv:3: the weight"),
                         Error);
  }
}

TEST_CASE("Ratings: numbers at any magnitude, alike or not, are learned in units of their deviation") {
  const TemporaryFolder folder;
  for (const std::string scale : {"e0", "e-37", "e37", "e-300"}) {
    CAPTURE(scale);
    std::string rows = "id,stars,text\n";
    for (int i = 0; i < 60; ++i)
      rows += concat_text(i, ',', i % 3 == 0 ? 8 : 2, scale, i % 3 == 0 ? ",it is good\n" : ",it is bad\n");
    write_file_atomically(folder / "rated.csv", rows);
    const Settings settings = small_table_run("rate", folder / "rated.csv",
                                              {"training.steps=150", "training.schedule.warmup_steps=5"});
    const std::filesystem::path out = folder / ("run" + scale);
    train_run(task_entry("rate"), settings, {.folder = out});
    Run run = Run::open(out);
    const std::vector<std::string> lines = {"it is good", "", "it is bad"};
    const std::vector<Prediction> answers = run.predict(lines, {.return_errors = true});
    const double unit = std::stod("1" + scale);
    CHECK(std::stod(answers[0].text) == doctest::Approx(8 * unit).epsilon(0.2));
    CHECK(answers[1].text.empty());
    CHECK(std::stod(answers[2].text) == doctest::Approx(2 * unit).epsilon(0.4));
    CHECK(run.measure("valid").metrics[2].value > 0.8);  // r2
  }
  write_file_atomically(folder / "same.tsv", "5\tone\n5\ttwo\n5\tthree\n5\tfour\n");
  train_run(task_entry("rate"),
            small_table_run("rate", folder / "same.tsv", {"training.steps=2", "data.valid_fraction=0.3"}),
            {.folder = folder / "same"});
  CHECK(Run::open(folder / "same").predict(std::vector<std::string>{"two"})[0].text == "5");
}

TEST_CASE("Ratings: a constant that is added to all numbers changes no answer but by itself") {
  const TemporaryFolder folder;
  const std::vector<std::string> lines = {"it is good", "it is bad", "well, it is"};
  std::vector<double> plain;
  double plain_r2 = 0;
  for (const double constant : {0., 1e4, 1.7e9, -1e12}) {
    CAPTURE(constant);
    std::string rows = "stars,text\n";
    for (int i = 0; i < 60; ++i)
      rows += concat_text(number_text(constant + (i % 3 == 0 ? 8 : 2) + i % 2 * 0.25),
                          i % 3 == 0 ? ",it is good\n" : ",it is bad\n");
    write_file_atomically(folder / "data.csv", rows);
    const std::filesystem::path out = folder / concat_text("run", constant);
    train_run(task_entry("rate"),
              small_table_run("rate", folder / "data.csv",
                              {"training.steps=150", "training.schedule.warmup_steps=5"}),
              {.folder = out});
    Run run = Run::open(out);
    const double r2 = run.measure("valid").metrics[2].value;
    Context context = Context::inference();
    const std::vector<double> outputs = run.outputs(lines, context).to_doubles();
    const std::vector<Prediction> answers = run.predict(lines);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const double answer = *parsed_number(answers[i].text) - constant;
      if (constant == 0) plain.push_back(answer);
      CHECK(answer == doctest::Approx(plain[i]).epsilon(1e-3));
      CHECK(outputs[i] - constant == doctest::Approx(plain[i]).epsilon(1e-3));
    }
    if (constant == 0) plain_r2 = r2;
    CHECK(r2 == doctest::Approx(plain_r2).epsilon(1e-3));
    if (constant == 0) CHECK(answers[0].text.size() < 13);  // no digits that the model does not tell
  }
  CHECK(plain_r2 > 0.8);
}

TEST_CASE("Ratings: of pairs, read by two towers, jointly, or as one text") {
  const TemporaryFolder folder;
  const std::vector<std::string> things = {"red", "blue", "green", "black", "white", "brown"};
  std::string rows = "left\tright\talike\n";
  for (std::size_t i = 0; i < 180; ++i) {
    const std::string &one = things[i % 6], &other = things[i / 6 % 6];
    rows +=
        concat_text("the ", one, " hat ", i, "\ta hat so ", other, '\t', one == other ? "4.5" : "1.5", '\n');
  }
  write_file_atomically(folder / "pairs.tsv", rows);
  const std::vector<std::string> base = {"training.steps=200",      "training.schedule.warmup_steps=5",
                                         "data.label_column=alike", "data.first_column=left",
                                         "tokenizer.kind=words",    "data.second_column=right"};
  for (const char* form : {"model.kind=joint", "model.kind=towers", "tokenizer.between=so"}) {
    CAPTURE(form);
    std::vector<std::string> chosen = base;
    chosen.emplace_back(form);
    const std::filesystem::path out = folder / ("run" + std::string(form, 13));
    train_run(task_entry("rate"), small_table_run("rate", folder / "pairs.tsv", chosen), {.folder = out});
    Run run = Run::open(out);
    const std::vector<std::string> lines = {"the red hat\ta hat so red", "the red hat\ta hat so blue",
                                            "alone"};
    const std::vector<Prediction> answers = run.predict(lines, {.return_errors = true});
    const bool is_joined = contains(form, "between");  // by a small model that does not see which words match
    if (!is_joined) CHECK(std::stod(answers[0].text) > std::stod(answers[1].text));
    CHECK(contains(answers[2].error, "two texts") != is_joined);
    CHECK(run.measure("valid").count > 0);
    const std::vector<std::string> files = {(folder / "pairs.tsv").string()};
    const Json found = Json::parse(run.measure_files(files).json);
    CHECK(found.at(is_joined ? "texts" : "pairs") == 180);
    if (!is_joined) CHECK(found.at("r2") > 0.5);
  }
  // The defaults of fine-tuning, not those of pairs, hold for a model that starts from a run.
  GivenSettings given;
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"data.file", folder / "pairs.tsv"},
                                    {"data.first_column", "left"},
                                    {"data.second_column", "right"},
                                    {"training.from", folder / "runmodel.kind=jo"}})
    given.settings.push_back({name, value, "the test"});
  const Settings tuned = training_settings(task_entry("rate"), given);
  for (const char* name : {"training.schedule.learning_rate", "training.ema_decay", "model.sparse_features"})
    CHECK(task_entry("rate").make(tuned)->settings().json(name) == tuned.json(name));
  const auto refused = [&](std::vector<std::string> settings) -> std::string {
    settings.emplace_back("data.label_column=alike");
    try {
      train_run(task_entry("rate"), small_table_run("rate", folder / "pairs.tsv", settings),
                {.folder = folder / "refused"});
    } catch (const SettingsError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(refused({"model.kind=towers"}), "model.kind is for pairs"));
  CHECK(contains(refused({"data.second_column=right", "data.text_columns=left"}), "leave it out"));
}

TEST_CASE("Ratings: labels that are no numbers of f32, and columns that could all be the number") {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::string& content) -> std::string {
    write_file_atomically(folder / "data.csv", content);
    try {
      train_run(task_entry("rate"), small_table_run("rate", folder / "data.csv", {"training.steps=1"}),
                {.folder = folder / "run"});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(error_of("label,text\n1,a b\nfine,c d\n"), "data.csv:3: \"fine\" is not a number"));
  CHECK(contains(error_of("label,text\n1,a b\n1e39,c d\n"), "\"1e39\" is not a number in"));
  CHECK(contains(error_of("label,text\n1,a b\nnan,c d\n"), "\"nan\" is not a number"));
  std::string rows = "depth,text,width\n";
  for (int i = 0; i < 20; ++i) rows += concat_text(i * i, ",word ", i, " of many,", i * 2 % 7, ".5\n");
  CHECK(contains(error_of(rows), "could both be the label"));
}

TEST_CASE("Texts that are read by themselves show each its own inside, of every kind of mechanism") {
  const TaskEntry& entry = task_entry("match");
  for (const std::string name : {"dot_product", "reformer", "clusterformer", "synthesizer_random"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    Settings settings = small_settings_of(entry);
    for (const std::string& setting : {std::string("model.kind=towers"), std::string("training.steps=1"),
                                       "model.encoder_attention=\"" + name + "\""})
      settings.assign(setting);
    if (name == "reformer") settings.assign("model.encoder_attention.rounds=2");
    train_run(entry, settings, {.folder = folder / "run"});
    CaptureFile file;
    Run::open(folder / "run")
        .predict(std::vector<std::string>{"where is emma ?\temma waits here ?"},
                 {&file, 0});  // of equal length
    std::size_t first = 0, second = 0;
    for (const auto& tensor : file.content().tensors) {
      const auto& [entry, value] = tensor;
      CAPTURE(tensor.first);
      first += entry.starts_with("lines.0-first.encoder.") ? 1 : 0;
      second += entry.starts_with("lines.0-second.encoder.") ? 1 : 0;
      const bool in_rounds = value.rank() == 4 && (entry.ends_with("buckets") || entry.ends_with("order"));
      CHECK(value.size(in_rounds ? 1 : 0) == 1);
      if (in_rounds) CHECK(value.size(0) == 2);
    }
    CHECK(first == (name == "dot_product" || name == "synthesizer_random" ? 1 : name == "reformer" ? 3 : 4));
    CHECK(second == first);
  }
}

TEST_CASE("A label that training lacks counts as wrong, is a class of the measurement, and is said") {
  const TemporaryFolder folder;
  std::string rows, test = "odd a fine day\nstrange a fine day\n";
  for (int i = 0; i < 30; ++i) rows += i % 2 == 0 ? "good a fine day\n" : "bad a sad night\n";
  for (int i = 0; i < 4; ++i) test += i % 2 == 0 ? "good a fine day\n" : "bad a sad night\n";
  write_file_atomically(folder / "data.txt", rows);
  write_file_atomically(folder / "test.txt", test);
  for (const char* const part : {"data.test", "data.valid"}) {
    CAPTURE(part);
    Settings settings =
        small_settings_of(task_entry("classify"), {"data.format=lines", "training.steps=30"}, true);
    settings.set("data.file", (folder / "data.txt").string(), "test");
    settings.set(part, (folder / "test.txt").string(), "test");
    std::string said;
    const std::filesystem::path folder_of_run = folder / part;
    train_run(task_entry("classify"), settings,
              {.folder = folder_of_run,
               .callbacks = {.message = [&](std::string_view text) { said.append(text).append("\n"); }}});
    const std::string unknown =
        "2 of 6 texts have labels that training lacks, \"odd\", \"strange\": they count as wrong answers, "
        "and the "
        "loss leaves them out";
    CHECK(contains(said, unknown));
    Run run = Run::open(folder_of_run);
    const Measurement measured = run.measure(std::string(part).substr(5));
    CHECK(contains(listed(run.task().take_remarks()), unknown));
    const Json json = Json::parse(measured.json);
    CHECK(json["texts"] == 6);
    CHECK(json["accuracy"].get<double>() == doctest::Approx(4.0 / 6).epsilon(0.001));
    CHECK(std::isfinite(json["loss"].get<double>()));
    CHECK(json["classes"]["odd"] == Json({{"texts", 1}, {"precision", 0.0}, {"recall", 0.0}, {"f1", 0.0}}));
    CHECK(json["confusion"].size() == 4);
    CHECK(json["confusion"][2] == Json({0, 1, 0, 0}));
    CHECK(measured.mistakes.size() == 2);
  }
}

TEST_CASE("Defaults of texts with labels: long ones are cut, and every class is held out by the same share") {
  for (const char* const task : {"classify", "match", "embed_text"}) {
    const Settings settings = task_entry(task).settings(true);
    CHECK(settings.get<std::string>("data.long_texts") == "cut");
    if (settings.has("data.stratified")) CHECK(settings.get<bool>("data.stratified"));
  }
}

TEST_CASE("Static word vectors: what a word means that training lacks, by the words near it") {
  const TemporaryFolder folder;
  Json vocabulary = {{"[UNK]", 0}};
  std::vector<std::string> texts, labels, others, expected;
  std::vector<std::int32_t> rows = {2};
  for (int i = 0; i < 40; ++i) {
    const std::string word =
        concat_text("w", static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26));
    vocabulary[word] = i + 1;
    rows.push_back(i % 2);
    (i < 24 ? texts : others).push_back(concat_text(word, " zzz ", word));  // zzz is unknown
    (i < 24 ? labels : expected).emplace_back(i % 2 == 0 ? "even" : "odd");
  }
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", {{"max_length", 1}}},
                          {"pre_tokenizer", {{"type", "Whitespace"}}},
                          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "[UNK]"}}}};
  const std::vector<float> vectors = {1, 0.5F, 0, 0, 0.5F, 1, 7, 7, 7};
  const auto write = [&](std::map<std::string, Tensor> tensors) {
    create_folders(folder / "vectors");
    write_file_atomically(folder / "vectors/tokenizer.json", tokenizer.dump());
    save_safetensors(folder / "vectors/model.safetensors", {std::move(tensors), {}});
  };
  const Tensor table = Tensor::from(vectors, {3, 3}), mapping = Tensor::from(rows, {41}),
               weights = Tensor::from(std::vector<float>(41, 2), {41});
  write({{"embeddings", table}, {"mapping", mapping}, {"weights", weights}});
  const StaticVectors read = StaticVectors::load(folder / "vectors");
  const std::vector<float> mean = read("wba zzz waa waa");  // (2 (1, 0.5, 0) + (0, 0.5, 1)) / its length
  const float length = std::sqrt(4 + 2.25F + 1);
  for (const auto& [at, value] : {std::pair{0, 2.F}, {1, 1.5F}, {2, 1.F}})
    CHECK(mean[static_cast<std::size_t>(at)] == doctest::Approx(value / length));
  CHECK(read("zzz") == std::vector<float>(3));
  CHECK(StaticVectors(read.tokenizer_json(), read.tensors(), "a copy")("wba waa waa") == mean);

  const auto trained = [&](const std::string& name, const std::vector<std::string>& more) {
    const Examples examples[] = {{"train", {texts, labels}}};
    const TaskEntry& entry = task_entry("classify");
    Settings settings = entry.settings(true);
    for (const std::string& one : joined({"training.steps=2", "model.width=8", "model.heads=2",
                                          "model.sparse_features=4096", "data.valid_fraction=0"},
                                         more))
      settings.assign(one);
    train(entry, settings, {.folder = folder / name, .examples = examples, .report = false});
    return folder / name;
  };
  const auto right = [&](const fs::path& run) {
    const std::vector<Prediction> answers = Run::open(run).predict(others);
    std::size_t count = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) count += answers[i].text == expected[i] ? 1 : 0;
    return count;
  };
  const std::string named = concat_text("training.vectors=", (folder / "vectors").string());
  const fs::path with = trained("with", {named});
  CHECK_THROWS_WITH_AS(trained("encoder", {named, "model.sparse_features=0"}),
                       doctest::Contains("training.vectors are for the linear part"), SettingsError);
  write({{"embeddings", table}});
  CHECK_THROWS_WITH_AS(trained("other", {named}), doctest::Contains("has 41 tokens, but there are 3 vectors"),
                       Error);
  write({{"vectors", table}});
  CHECK_THROWS_WITH_AS(trained("none", {named}), doctest::Contains("neither \"embeddings\" nor"), Error);
  fs::remove_all(folder / "vectors");
  CHECK_THROWS_WITH_AS(trained("gone", {named}), doctest::Contains("is no folder of static vectors"), Error);
  CHECK(right(with) == others.size());  // the run has a copy
  CHECK(right(trained("without", {})) < others.size());
}
