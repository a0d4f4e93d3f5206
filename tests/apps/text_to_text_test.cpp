// Tasks that write a text for a text: where their pairs come from, how answers are drawn, and how likely
// given ones are.

#include "heed/apps/tasks/text_to_text.h"

#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/task.h"
#include "heed/tests/hostile/small_runs.h"

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;
using Json = nlohmann::json;

/// What a task says while it reads its data.
struct Read {
  std::map<std::string, std::string> digests;
  Lines remarks;
  std::string error;
};
Read read(const TaskEntry& entry, const Lines& settings) {
  Read read;
  try {
    const auto task = entry.make(small_settings_of(entry, settings, true));
    task->read_data();
    read.digests = task->data_digests();
    read.remarks = task->take_remarks();
  } catch (const Error& error) {
    read.error = error.what();
  }
  return read;
}

bool any_contains(const Lines& lines, const std::string& part) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return contains(line, part); });
}

Run open_small(const std::string& task, const Lines& settings = {}) {
  RunOptions options;
  options.settings = settings;
  return Run::open(small_run(task), options);
}

}  // namespace

TEST_CASE("pairs: a table in any format is what two files of lines are") {
  const TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& content) {
    return write_content(folder / name, content).string();
  };
  const std::string source = file("source", "a b\nc \"d\"\ne\n"), target = file("target", "x\ny\nz\n");
  const Read expected = read(task_entry("translate"), {"data.source=" + source, "data.target=" + target});
  CHECK(expected.error == "");
  const Lines csv = {"data.file=" + file("t.csv", "1,x,a b\n2,y,\"c \"\"d\"\"\"\n3,z,e\n"),
                     "data.source_column=3"};
  CHECK(read(task_entry("translate"), csv).digests == expected.digests);
  const Lines tsv = {"data.file=" + file("t", "from\tto\na b\tx\nc \"d\"\ty\ne\tz\n"), "data.format=tsv",
                     "data.header=true", "data.source_column=from", "data.target_column=to"};
  CHECK(read(task_entry("translate"), tsv).digests == expected.digests);
  const Lines jsonl = {"data.file=" + file("t.jsonl", R"({"source": "a b", "target": "x"})"
                                                      "\n"
                                                      R"({"source": "c \"d\"", "target": "y"})"
                                                      "\n"
                                                      R"({"target": "z", "source": "e"})"
                                                      "\n")};
  CHECK(read(task_entry("translate"), jsonl).digests == expected.digests);
  // A line end within a cell is a space: an answer is a line.
  const Lines broken = {"data.file=" + file("u.csv", "\"a\nb\",x\n\"c \"\"d\"\"\",y\ne,z\n")};
  CHECK(read(task_entry("translate"), broken).digests == expected.digests);
}

TEST_CASE("pairs: what is wrong with files is said with file and line") {
  const TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& content) {
    return "data.file=" + write_content(folder / name, content).string();
  };
  const auto error = [&](const Lines& settings) { return read(task_entry("summarize"), settings).error; };
  const std::string one = write_content(folder / "one", "a\n").string(),
                    two = write_content(folder / "two", "a\nb\n").string();
  const std::pair<Lines, const char*> rows[] = {
      {{file("a.csv", "x,y\nx\n")}, "a.csv:2"},
      {{file("b.csv", "x,y\n"), "data.source_column=3"}, "no column 3"},
      {{file("c.jsonl", "{\"source\": \"a\"}\n")}, "target"},
      {{file("empty.csv", "")}, "empty.csv"},
      {{file("odd", "x,y\n")}, "data.format="},
      {{"data.source=" + one, "data.target=" + two}, "1 lines"},
      {{"data.source=" + one, "data.target=" + two}, "has 2"},
      {{"data.source=" + one}, "data.target"},
      {{"data.valid=" + one}, "data.file"},
      {{"data.source=" + one, "data.target=" + one, "data.file=" + one}, "not both"}};
  for (const auto& [settings, says] : rows) CHECK(contains(error(settings), says));
}

TEST_CASE("pairs: a share is held out by a seed of its own") {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += concat_text("text ", i, "\ttitle ", i, "\n");
  const std::string data = "data.file=" + write_content(folder / "t.tsv", rows).string();
  const auto digests = [&](const Lines& more) {
    return read(task_entry("summarize"), joined({data}, more)).digests;
  };
  CHECK(digests({}) == digests({"seed=7"}));
  CHECK(digests({}) != digests({"data.split_seed=7"}));
  CHECK(digests({"data.valid_fraction=0"}).at("train") != digests({}).at("train"));
}

TEST_CASE("converse: dialogues that are measured with are not learned from, and this is said") {
  const TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& content) {
    return write_content(folder / name, content).string();
  };
  const std::string alone = "data.file=" + file("alone", "a __eou__ b __eou__\n");
  const std::string train = "data.file=" + file("train", "a __eou__ b __eou__\nc __eou__ d __eou__\n"),
                    test = "data.test=" + file("test", "c __eou__ d __eou__\ne __eou__ f __eou__\n");
  const Lines all = {"data.valid_fraction=0"};
  const Read shared = read(task_entry("converse"), joined({train, test}, all));
  CHECK(shared.error == "");
  CHECK(any_contains(shared.remarks, "1 training dialogues"));
  CHECK(shared.digests.at("train") == read(task_entry("converse"), joined({alone}, all)).digests.at("train"));
  const Read kept = read(task_entry("converse"), joined({train, test, "data.overlap=keep"}, all));
  CHECK(any_contains(kept.remarks, "kept"));
  CHECK(kept.digests.at("train") == read(task_entry("converse"), joined({train}, all)).digests.at("train"));

  const Read single = read(task_entry("converse"),
                           joined({"data.file=" + file("single", "a __eou__\nb __eou__ c __eou__\n")}, all));
  CHECK(any_contains(single.remarks, "1 training dialogues have a single turn"));
  CHECK(
      contains(read(task_entry("converse"), joined({"data.file=" + file("none", "a __eou__\n")}, all)).error,
               "no dialogue has a second turn"));
  const std::string single_turns = file("turns", "x __eou__\ny __eou__\n");
  CHECK(contains(read(task_entry("converse"), joined({train, "data.test=" + single_turns}, all)).error,
                 "turns: no dialogue has a second turn: there is no answer to test with"));
  CHECK(contains(read(task_entry("converse"), {"data.file=" + file("bad", "a __eou__ b\n")}).error, "bad:1"));
}

TEST_CASE("tokenizer.separate: targets have a vocabulary of their own") {
  const TaskEntry& entry = task_entry("translate");
  const Lines two = {"tokenizer.separate=true", "model.tie_embeddings=decoder"};
  const TemporaryFolder folder;
  train_run(entry, small_settings_of(entry, two), {folder / "run"});
  const Tokenizer source = Tokenizer::load(folder / "run" / "tokenizer.json"),
                  target = Tokenizer::load(folder / "run" / "target_tokenizer.json");
  CHECK(source.to_json() != target.to_json());
  Run run = Run::open(folder / "run");
  const ParallelText pairs{{"forty-two"}, {"zweiundvierzig"}};
  auto& task = dynamic_cast<TextToTextTask&>(run.task());
  CHECK(task.score(pairs)[0].tokens == static_cast<std::int64_t>(target.encode("zweiundvierzig").size()) + 1);
  const std::vector<Prediction> answers = run.predict(pairs.source.strings());
  CHECK(answers[0].error.empty());
  // What starts from it has both.
  Settings started = small_settings_of(entry, {"training.from=" + (folder / "run").string()});
  apply_model_settings(started, (folder / "run").string());
  train_run(entry, started, {folder / "started"});
  CHECK(content_of(folder / "started" / "target_tokenizer.json") ==
        content_of(folder / "run" / "target_tokenizer.json"));

  const auto refusal = [&](const Lines& more) {
    return error_of([&] { train_run(entry, small_settings_of(entry, more), {folder / "refused"}); });
  };
  CHECK(contains(refusal({"tokenizer.separate=true", "model.tie_embeddings=all"}),
                 "set model.tie_embeddings=decoder"));
  CHECK(contains(refusal({"tokenizer.separate=true", "model.pointer=true"}), "which needs one vocabulary"));
  CHECK(contains(refusal({"tokenizer.separate=true", "tokenizer.file=a.json"}), "asks for two"));
}

TEST_CASE("score: of what a model writes it is the probability that predict gives, and its mean the loss") {
  for (const std::string task : {"translate", "summarize", "converse"}) {
    CAPTURE(task);
    Run run = open_small(task, {"decoding.beam=1"});
    const std::string line = small_line(task);
    const Lines lines = {line.substr(0, line.size() - 1), "one one"};
    const std::vector<Prediction> answers = run.predict(lines);
    ParallelText pairs{lines, {answers[0].text, answers[1].text}};
    const std::vector<TargetScore> scores = text_to_text(run.task()).score(pairs);
    Context context = Context::inference();
    const Tensor tracked = run.log_probabilities(lines, pairs.target.strings(), context);
    CHECK(tracked.shape() == Shape{2});
    if (task != "converse")  // of which score() takes sources as they are read
      for (std::size_t i = 0; i < lines.size(); ++i)
        CHECK(tracked.to_doubles()[i] == doctest::Approx(scores[i].log_probability));
    CHECK(error_of([&] {
            run.log_probabilities(lines, Lines{"one"}, context);
          }).find("2 lines and 1 targets") != std::string::npos);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      REQUIRE(answers[i].alternatives.size() == 1);
      CHECK(std::exp(*answers[i].alternatives[0].score) == doctest::Approx(answers[i].probability));
      CHECK(scores[i].tokens > 0);
      CHECK(scores[i].perplexity() ==
            doctest::Approx(std::exp(-scores[i].log_probability / static_cast<double>(scores[i].tokens))));
      // The text of an answer may be cut into other tokens than those that were written.
      CHECK(scores[i].log_probability <= 0);
    }
    const TemporaryFolder folder;
    std::string bytes = task == "converse" ? "a b __eou__ c __eou__ d e __eou__\n" : "a b\tc\nc\td e\n";
    const Lines files = {write_content(folder / "pairs.tsv", bytes).string()};
    double sum = 0;
    std::int64_t tokens = 0;
    for (const TargetScore& score :
         text_to_text(run.task()).score(text_to_text(run.task()).read_files(files))) {
      sum += score.log_probability;
      tokens += score.tokens;
    }
    const double loss = Json::parse(run.measure_files(files).json).at("loss").get<double>();
    CHECK(loss == doctest::Approx(-sum / static_cast<double>(tokens)).epsilon(1e-5));
  }
  Run other = open_small("classify");
  CHECK_THROWS_AS(text_to_text(other.task()), Error);
}

TEST_CASE("sampling: an answer follows from its line and the seed, not from the lines beside it") {
  const Lines sampled = {"decoding.method=sample", "decoding.n_best=3"};
  const std::string line = small_line("converse"), asked = line.substr(0, line.size() - 1);
  const Lines lines = {asked, "i look for tea .", "", asked + " __eou__ hello ann , what do you look for ?"};
  const auto texts = [&](const Lines& more, const Lines& of) {
    Run run = open_small("converse", joined(sampled, more));
    Lines found;
    for (const Prediction& one : run.predict(of, {.return_errors = true})) {
      found.push_back(one.text);
      for (const auto& alternative : one.alternatives) found.push_back(alternative.text);
      CHECK(one.alternatives.size() == (one.text.empty() && found.back().empty() ? 0 : 3));
      for (std::size_t i = 1; i < one.alternatives.size(); ++i)
        CHECK(one.alternatives[i - 1].probability >= one.alternatives[i].probability);
    }
    return found;
  };
  const Lines found = texts({}, lines);
  CHECK(found == texts({"decoding.batch_size=1"}, lines));
  CHECK(found != texts({"decoding.seed=2"}, lines));
  const Lines first = texts({}, {lines[0]});
  CHECK(first == Lines(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(first.size())));
}

TEST_CASE("summarize: stands beside the first words of each text") {
  Run run = open_small("summarize");
  CHECK(run.settings().get<std::int64_t>("evaluation.first_words") == 3);  // "baker helps miller"
  const TemporaryFolder folder;
  const Lines files = {
      write_content(folder / "t.tsv", "the baker slept well\tthe baker sleeps\na\tb\n").string()};
  const Json json = Json::parse(run.measure_files(files).json);
  CHECK(json.at("texts") == 2);
  CHECK(json.at("first_words").at("words") == 3);
  CHECK(json.at("first_words").at("rouge1").get<double>() == doctest::Approx(1.0 / 3.0).epsilon(1e-3));
  for (const char* name : {"rouge1", "rouge2", "rougeL", "loss"}) CHECK(json.at(name).is_number());
}

TEST_CASE("summarize: the first words of a text without spaces are its first words") {
  Run run = open_small("summarize");  // of three words
  const TemporaryFolder folder;
  const Lines files = {write_content(folder / "t.tsv", "北京今天下雨\t北京今\n").string()};
  const Json json = Json::parse(run.measure_files(files).json);
  CHECK(json.at("signature").get<std::string>().starts_with("words:unicode"));
  CHECK(json.at("first_words").at("rouge1") == 1);
}

TEST_CASE("programs: score writes a line for each pair") {
  const TemporaryFolder folder;
  const std::string run = small_run("translate").string();
  const std::string source = write_content(folder / "source", "one\ntwo\n").string(),
                    target = write_content(folder / "target", "eins\nzwei\n").string();
  const Arguments flags = {"score", "--run", run, "--source", source, "--target", target};
  const ProgramResult plain = run_program("translate", flags),
                      json = run_program("translate", joined(flags, {"--json"}));
  CHECK_MESSAGE(plain.status == 0, plain.errors);
  std::istringstream plain_lines(plain.output), json_lines(json.output);
  std::string line;
  for (int i = 0; i < 2; ++i) {
    double log_probability = 0, perplexity = 0;
    plain_lines >> log_probability >> perplexity;
    REQUIRE(std::getline(json_lines, line));
    const Json one = Json::parse(line);
    CHECK(one.at("log_probability").get<double>() == doctest::Approx(log_probability).epsilon(1e-3));
    CHECK(one.at("perplexity").get<double>() == doctest::Approx(perplexity).epsilon(1e-3));
    CHECK(one.at("tokens").get<int>() > 0);
  }
  CHECK(!std::getline(json_lines, line));
}
