// Every task of the list, through its life: trained, killed, resumed, opened, asked; with every attention
// that can serve.

#include "heed/tests/hostile/killed_training.h"

#include <nlohmann/json.hpp>

#include "heed/apps/compare/comparison.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/text_to_text.h"
#include "heed/apps/tasks/train.h"
#include "heed/models/attention/attention.h"
#include "heed/models/module.h"

namespace {

namespace fs = std::filesystem;

/// Whether two answers say the same. The last digits of a vector may depend on the row of the batch in which
/// a line stands: kernels of products take rows in blocks, and round a row at a block's end otherwise.
bool same_answer(const std::string& one, const std::string& other) {
  const auto words = [](const std::string& text) {
    std::istringstream stream(text);
    return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
  };
  return std::ranges::equal(words(one), words(other), [](const std::string& a, const std::string& b) {
    char* end = nullptr;
    const double number = std::strtod(a.c_str(), &end);
    const bool is_number = end == a.c_str() + a.size();
    return is_number ? std::strtod(b.c_str(), nullptr) == doctest::Approx(number).epsilon(1e-5) : a == b;
  });
}

/// A line that every run of the task can answer, without its end.
std::string line_for(const TaskEntry& entry) {
  std::string line = small_line(std::string(entry.name));
  line.pop_back();
  return line;
}

}  // namespace

TEST_CASE(
    "tasks: trained in one process, opened, measured and asked; the same bits for any number of threads") {
  const WithThreads keep(cpu_threads());
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(std::string(entry->name));
    const TemporaryFolder folder;
    std::string expected;
    for (const char* threads : {"threads=1", "threads=3"}) {
      CAPTURE(threads);
      const fs::path run = folder / threads;
      const Settings settings = small_settings_of(*entry, {threads});
      apply_threads(settings);
      const TrainResult result = train_run(*entry, settings, {run});
      CHECK(result.finished);
      CHECK(result.step == 20);
      const std::string found = tensors_of(run / "model.safetensors");
      if (expected.empty()) expected = found;
      CHECK(found == expected);
    }
    Run run = Run::open(folder / "threads=1");
    CHECK(run.task_name() == entry->name);
    const std::vector<std::string> lines = {line_for(*entry), "", line_for(*entry)};
    CHECK_THROWS_WITH_AS(run.predict(std::vector<std::string>{lines.front(), "a\xff"}),
                         "predict: lines[1] is not UTF-8 at byte 2", Error);
    const std::vector<Prediction> answers = run.predict(lines, {.return_errors = true});
    REQUIRE(answers.size() == 3);
    CHECK(answers[0].error == "");
    CHECK_MESSAGE(same_answer(answers[0].text, answers[2].text), answers[0].text, " and ", answers[2].text);
    CHECK(contains(answers[1].error, "blank"));
    const Measurement measurement = run.measure();
    std::vector<std::string_view> names;
    for (const MetricKind& metric : entry->metrics)  // those that say something of data made by rule
      if (metric.name != "micro_f1" && (entry->name != "translate" || metric.name != "bleu"))
        names.push_back(metric.name);
    REQUIRE(measurement.metrics.size() == names.size());
    for (std::size_t i = 0; i < measurement.metrics.size(); ++i) {
      CHECK(measurement.metrics[i].name == names[i]);
      CHECK(std::isfinite(measurement.metrics[i].value));
    }
    CHECK(measurement.count > 0);
    const ExampleStatistics& examples = measurement.examples;
    if (entry->name == "translate") CHECK(examples.metric == "exact");  // of number words
    REQUIRE_FALSE(examples.rows.empty());
    Doubles sums(examples.rows.front().size(), 0);
    for (const Doubles& row : examples.rows)
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += row[k];
    const auto whole = std::ranges::find(measurement.metrics, examples.metric, &Metric::name);
    REQUIRE(whole != measurement.metrics.end());
    CHECK(combined_metric(examples.combine, sums) == doctest::Approx(whole->value));
    CHECK_THROWS_AS(run.measure("tset"), SettingsError);
  }
}

TEST_CASE("tasks: with attentions that can serve, and a reason where one cannot") {
  const WithThreads keep(cpu_threads());
  std::size_t cell = 0;
  for (const TaskEntry* entry : task_table())
    for (const AttentionVariant& variant : attention_variants()) {
      if (++cell % (sanitized ? 5 : 3) != 0) continue;  // each task with some, each mechanism in some task
      CAPTURE_ALL(entry->name, variant.name);
      const TemporaryFolder folder;
      Settings settings = small_settings_of(*entry, {"training.steps=3"});
      AttentionNames names;
      names.attention = std::string(variant.name);
      choose_attentions(settings, entry->stacks, names);
      if (entry->stacks == Stacks::decoder && !variant.capabilities.causal) {
        CHECK_THROWS_AS(train_run(*entry, settings, {folder / "run"}), SettingsError);
        CHECK(!fs::exists(folder / "run"));
        continue;
      }
      CHECK(train_run(*entry, settings, {folder / "run"}).step == 3);
      for (const char* const weights : {"int8_weights=false", "int8_weights=true", "bf16_weights=true"}) {
        Run run = Run::open(folder / "run", {.settings = {weights}});
        const std::vector<Prediction> answers = run.predict(std::vector<std::string>{line_for(*entry)});
        REQUIRE(answers.size() == 1);
        CHECK(answers[0].error == "");
      }
      CHECK_THROWS_WITH_AS(
          Run::open(folder / "run", {.settings = {"int8_weights=true", "bf16_weights=true"}}),
          doctest::Contains("are both true"), SettingsError);
    }
}

TEST_CASE("tasks: killed at random moments and resumed to the same bits") {
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(std::string(entry->name));
    check_killed_training(std::string(entry->name), kills_wanted(2));
  }
}

TEST_CASE("tasks: the worked example is trained, killed, resumed, measured and asked") {
  check_killed_training("own_task", kills_wanted(2));
  const std::string run = small_run("own_task").string();
  const ProgramResult measured = run_program("own_task", {"evaluate", "--run", run});
  CHECK_MESSAGE(measured.status == 0, measured.errors);
  CHECK(contains(measured.output, "accuracy"));
  const ProgramResult answers = run_program("own_task", {"predict", "--run", run}, "seven hundred\n\nnine\n");
  CHECK_MESSAGE(answers.status == 0, answers.errors);
  CHECK(std::count(answers.output.begin(), answers.output.end(), '\n') == 3);
  CHECK(std::count(answers.output.begin(),
                   answers.output.begin() + static_cast<std::ptrdiff_t>(answers.output.find('\n')),
                   ' ') == 1);
  // An example is in no list: a run of it is opened by its own program alone, and says so.
  CHECK_ERROR(Run::open(run), "own_task");
}

TEST_CASE("tasks: the number of threads is the program's, whatever a run's settings say") {
  const WithThreads keep(cpu_threads());
  const TemporaryFolder folder;
  const TaskEntry& entry = task_entry("classify");
  const Settings settings = small_settings_of(entry, {"threads=1", "training.steps=2"});
  set_cpu_threads(3);
  train_run(entry, settings, {folder / "run"});
  CHECK(cpu_threads() == 3);
  const Run run = Run::open(folder / "run");
  CHECK(cpu_threads() == 3);
  CHECK(run.settings().get<std::int64_t>("threads") == 1);
  apply_threads(run.settings());
  CHECK(cpu_threads() == 1);
}

TEST_CASE("tasks: training where nothing is recorded is refused and leaves no folder") {
  const TemporaryFolder folder;
  const TaskEntry& entry = task_entry("classify");
  const Settings settings = small_settings_of(entry, {"training.steps=2"});
  const NoGrad no_grad;
  CHECK_ERROR(train_run(entry, settings, {folder / "run"}), "train: recording is off on this thread");
  CHECK_FALSE(fs::exists(folder / "run"));
}

TEST_CASE("tasks: a run with a mechanism that is not registered here says so") {
  const TemporaryFolder folder;
  const TaskEntry& entry = task_entry("classify");
  const Settings settings = small_settings_of(entry, {"training.steps=2"});
  train_run(entry, settings, {folder / "run"});
  const fs::path config = folder / "run" / "config.json";
  const std::string text = read_file(config), name = "\"dot_product\"";
  REQUIRE(contains(text, name));
  for (const char* const own :
       {"\"elsewhere\"", R"({"name": "mixed_heads", "parts": ["dot_product", "elsewhere"]})"}) {
    CAPTURE(own);
    std::string other = text;
    other.replace(text.find(name), name.size(), own);
    write_file_atomically(config, other);
    const auto opened = [&] { Run::open(folder / "run", {.verify = false}); };
    CHECK_ERROR(opened(), "unknown attention 'elsewhere'");
    CHECK_ERROR(opened(), "register_attention");
  }
}

TEST_CASE("tasks: answers that are not finite are errors") {
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(entry->name);
    Run run = Run::open(small_run(std::string(entry->name)));
    for (const NamedTensor& one : run.task().model().parameters()) {
      const Floats spoiled(static_cast<std::size_t>(one.tensor->count()),
                           std::numeric_limits<float>::quiet_NaN());
      one.tensor->assign(std::span<const float>(spoiled));
    }
    run.task().model().state_changed();
    CHECK(error_of([&] { run.predict(std::vector<std::string>{line_for(*entry)}); }) != "");
    CHECK(error_of([&] { run.measure("valid"); }) != "");
    if (auto* writer = dynamic_cast<TextToTextTask*>(&run.task())) {
      ParallelText pair;
      pair.source.push_back("a");
      pair.target.push_back("b");
      CHECK_ERROR(writer->score(pair), "pair 1 a log probability of");
    }
  }
}

TEST_CASE("embed_text: texts that cannot be told apart are ranked as chance would") {
  const TemporaryFolder folder;
  Run run = Run::open(small_run("embed_text"));
  const std::vector<std::string> files = {
      write_content(folder / "same.tsv", "one\teins\ntwo\teins\nthree\teins\n").string()};
  const Measurement found = run.measure_files(files);
  REQUIRE(found.metrics.size() == 2);
  CHECK(found.metrics[0].value == doctest::Approx((1 + 1.0 / 2 + 1.0 / 3) / 3));
  CHECK(found.metrics[1].value == doctest::Approx(1.0 / 3));
}

TEST_CASE(
    "language_model: a short text is read ten times, and positions are rotary where the attention can") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += concat_text("the cat sees ", i, " dogs.\n");
  const std::string file = write_content(folder / "text", text).string();
  std::string said;
  const auto trained = [&](const std::string& name, const std::vector<std::string>& more) {
    Settings settings = task_entry("language_model").settings(true);
    for (const char* const one :
         {"model.width=16", "model.heads=2", "model.feed_forward=16", "model.max_length=32",
          "model.decoder_layers=1", "training.batch_tokens=64"})
      settings.assign(one);
    settings.assign("data.file=" + file);
    for (const std::string& one : more) settings.assign(one);
    said.clear();
    train_run(task_entry("language_model"), settings,
              {.folder = folder / name,
               .callbacks = {.message = [&](std::string_view line) { said.append(line).append("\n"); }}});
    return nlohmann::json::parse(read_file(folder / name / "config.json"));
  };
  const nlohmann::json usual = trained("usual", {});
  CHECK(usual["model"]["positions"] == "rotary");
  CHECK(usual["training"]["steps"] == 300);  // at least
  CHECK(contains(said, "10 passes over this little data"));
  CHECK_FALSE(contains(said, "positions are learned"));

  const std::vector<std::string> delta = {"training.steps=1", "model.decoder_attention=gated_deltanet"};
  CHECK(trained("delta", delta)["model"]["positions"] == "learned");
  CHECK(contains(said, "positions are learned, since attention 'gated_deltanet' cannot have rotary ones"));
  CHECK(trained("odd", {"training.steps=1", "model.width=18"})["model"]["positions"] == "learned");
  CHECK(contains(said, "heads of the odd width 9"));
  const std::vector<std::string> given = {delta[0], delta[1], "model.positions=rotary"};
  CHECK_ERROR(trained("given", given), "cannot have rotary positions");
}

TEST_CASE("classify and match: many texts take more steps, and long texts of many classes larger batches") {
  const TemporaryFolder folder;
  // `texts` rows of a class from 0 to `classes` - 1 and one or two texts of `words` words
  const auto chosen = [&](const std::string& name, int texts, int classes, int words,
                          const std::vector<std::string>& more) {
    std::string rows;
    for (int i = 0; i < texts; ++i) {
      rows += concat_text("c", i % classes);
      for (int column = 0; column < (name == "match" ? 2 : 1); ++column) {
        rows += '\t';
        for (int word = 0; word < words; ++word) rows += concat_text("w", (i + word) % 50, " ");
      }
      rows += '\n';
    }
    const TaskEntry& entry = task_entry(name);
    Settings settings = entry.settings(true);
    settings.assign("data.file=" + write_content(folder / "rows.tsv", rows).string());
    for (const char* const one : {"data.header=false", "data.label_column=1", "model.width=8",
                                  "model.heads=2", "model.feed_forward=8"})
      settings.assign(one);
    if (name == "match")
      for (const char* const one : {"data.first_column=2", "data.second_column=3"}) settings.assign(one);
    for (const std::string& one : more) settings.assign(one);
    const std::unique_ptr<Task> task = entry.make(settings);
    task->check_settings();
    task->read_data();
    task->learn_vocabulary();
    task->build(device_of(settings));
    task->prepare_training();
    const auto number = [&](const std::string& setting) {
      return task->settings().get<std::int64_t>("training." + setting);
    };
    return std::array{number("steps"), number("batch_tokens"), task->batches(0)};
  };
  for (const std::string task : {"classify", "match"}) {
    CAPTURE(task);
    const std::vector<std::string> small = {"training.batch_tokens=24"};
    const auto [steps, tokens, batches] = chosen(task, 4000, 2, 6, small);
    CHECK(batches > 1000);
    CHECK(steps == batches);
    CHECK(chosen(task, 4000, 2, 6, {small[0], "training.accumulation=2"})[0] ==
          std::max<std::int64_t>(1000, (batches + 1) / 2));
    CHECK(chosen(task, 4000, 2, 6, {small[0], "training.steps=1200"})[0] == 1200);
  }
  CHECK(chosen("classify", 200, 2, 100, {})[1] == 1024);
  CHECK(chosen("classify", 200, 20, 100, {})[1] == 20 * 101);  // with the end mark
  CHECK(chosen("classify", 200, 50, 100, {})[1] == 4096);
  CHECK(chosen("classify", 200, 20, 100, {"training.batch_tokens=512"})[1] == 512);
}

TEST_CASE(
    "translate: few pairs end a training after sixty passes, unless steps are given, and resume to the same "
    "bits") {
  const TemporaryFolder folder;
  const auto steps_of = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"data.numbers=200", "training.batch_tokens=2000"});
    Settings fresh = task_entry("translate").settings(false);
    for (const std::string& one :
         {std::string("model.width=16"), std::string("model.heads=2"), std::string("model.feed_forward=16")})
      fresh.assign(one);
    for (const std::string& one : more) fresh.assign(one);
    std::string said;
    train_run(task_entry("translate"), fresh,
              {.folder = folder / name,
               .callbacks = {.message = [&](std::string_view text) { said.append(text).append("\n"); }}});
    CHECK(contains(said, "60 passes over this little data") == (name == "few"));
    return nlohmann::json::parse(read_file(folder / name / "config.json"))["training"];
  };
  const nlohmann::json few = steps_of("few", {"training.evaluate_every=50"});
  CHECK(few["steps"] < 800);
  CHECK(few["steps"] >= 100);
  CHECK(few["schedule"]["warmup_steps"] < 100);
  CHECK(few["evaluate_every"] == 50);
  CHECK(steps_of("given", {"training.steps=2"})["steps"] == 2);
}
