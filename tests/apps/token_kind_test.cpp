// tokenizer.kind=auto: what it takes for texts of several scripts, and what a run keeps of that.

#include "heed/apps/tasks/run.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/text/tokenizer.h"

namespace {

using Lines = std::vector<std::string>;

std::string kind_for(const Lines& texts) {
  return token_kind_for(source_of(texts)).name;
}

const Lines finnish = {"Hyvää päivää, mitä kuuluu?", "Kiitos, minulle kuuluu hyvää", "Söin tänään keittoa",
                       "Järvellä on vielä jäätä"};
const Lines korean = {"오늘 날씨가 좋다", "나는 학교에 간다", "밥을 먹고 싶다", "영화가 재미있다"};

struct Trained {
  std::string kind, said;
};

/// A small run of own data.
Trained trained(const std::filesystem::path& out, const std::string& task, const std::string& file,
                const Lines& more, bool resume = false) {
  Settings settings = task_entry(task).settings(true);
  if (resume) settings = run_settings(task_entry(task), *open_run(out));
  for (const char* const setting :
       {"data.valid_fraction=0", "training.steps=2", "training.batch_tokens=64", "model.width=16",
        "model.feed_forward=16", "model.heads=2", "model.sparse_features=16", "data.max_tokens=32"})
    if (!resume) settings.assign(setting);
  if (!resume) settings.assign("data.file=\"" + file + "\"");
  for (const std::string& setting : more) settings.assign(setting);
  std::string said;
  TrainRequest request{out, resume, true, {}};
  request.callbacks.message = [&](std::string_view text) { said.append(text).append("\n"); };
  train_run(task_entry(task), settings, request);
  return {Run::open(out).settings().get<std::string>("tokenizer.kind"), said};
}

/// The texts by turns of the classes a and b; of pairs with itself.
std::string labelled(const std::filesystem::path& path, const Lines& texts, bool pairs = false) {
  std::string content;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string label = i % 2 == 0 ? "a" : "b", &text = texts[i];
    content += (pairs ? text + "\t" + text + "\t" + label : label + "\t" + text) + "\n";
  }
  return write_content(path, content).string();
}

}  // namespace

TEST_CASE("Letters that are a syllable or a word ask for characters") {
  CHECK(kind_for(korean) == "characters");
  CHECK(kind_for({"今天天气很好，我们去公园吧。", "这本书不错"}) == "characters");
  CHECK(kind_for({"今日は天気がいいですね。", "カメラを買いました"}) == "characters");
  CHECK(kind_for({"Samsung 오늘 LG"}) == "bpe");  // fewer than half of the letters
}

TEST_CASE("Other letters than a to z ask for parts of words where many words occur once") {
  CHECK(kind_for(finnish) == "bpe");
  CHECK(kind_for({"วันนี้อากาศดีมาก", "ฉันอยากไปเที่ยวทะเล"}) == "bpe");
  CHECK(kind_for({"Сегодня хорошая погода", "Я иду в школу"}) == "bpe");
  Lines twice = finnish;
  twice.insert(twice.end(), finnish.begin(), finnish.end());
  CHECK(kind_for(twice) == "words");
  CHECK(contains(token_kind_for(source_of(finnish)).why, "% of the words occur once"));
}

TEST_CASE("a to z, and texts without letters, keep words, however rare these are") {
  CHECK(
      kind_for({"a café nobody had heard of before tonight, with no two words alike in it, of which quite a "
                "few are rather long: extraordinarily, incomprehensible, hospitality, neighbourhoods, "
                "establishments, circumstances, notwithstanding",
                "Another line says much the same again through other, equally uncommon expressions"}) ==
      "words");
  CHECK(kind_for({"1 2 3 → 😀", "", "caf\xe9"}) == "words");
  CHECK(kind_for({}) == "words");
}

TEST_CASE("A run keeps the kind that was chosen, and a kind that is given is kept") {
  const TemporaryFolder folder;
  const std::string file = labelled(folder / "data.tsv", korean);
  const auto [kind, said] = trained(folder / "run", "classify", file, {});
  CHECK(kind == "characters");
  CHECK(contains(said, "tokens are characters, since most letters represent a syllable or a word"));
  CHECK(Run::open(folder / "run").predict(Lines{"오늘 좋다"})[0].error.empty());
  CHECK(trained(folder / "run", "classify", file, {"training.steps=3"}, true).kind == "characters");

  const Trained given = trained(folder / "given", "classify", file, {"tokenizer.kind=words"});
  CHECK(given.kind == "words");
  CHECK_FALSE(contains(given.said, "tokens are"));

  const std::string pairs = labelled(folder / "pairs.tsv", korean, true);
  CHECK(trained(folder / "match", "match", pairs, {}).kind == "characters");
}

TEST_CASE("Parts of words are few, unless their number is given") {
  const TemporaryFolder folder;
  const std::string file = labelled(folder / "data.tsv", finnish);
  const auto tokens = [&](const char* run, const Lines& more) {
    const Trained made = trained(folder / run, "classify", file, more);
    CHECK(made.kind == "bpe");
    const auto parts = Run::open(folder / run).settings().get<std::int64_t>("tokenizer.vocabulary");
    CHECK(contains(made.said, concat_text("tokens are parts of words (bpe, ", parts, " of them), since ")));
    return parts;
  };
  CHECK(tokens("run", {}) == 2000);
  CHECK(tokens("given", {"tokenizer.vocabulary=300"}) == 300);
}

TEST_CASE("Vectors of words ask for words") {
  const TemporaryFolder folder;
  std::string vector = "학교에";
  for (int i = 0; i < 16; ++i) vector += " 0.5";
  const std::string file = labelled(folder / "data.tsv", korean),
                    vectors = write_content(folder / "vectors", vector + "\n").string();
  CHECK(trained(folder / "run", "classify", file,
                {"training.embeddings=\"" + vectors + "\"", "tokenizer.min_frequency=1"})
            .kind == "words");
}

TEST_CASE("A tokenizer that is given is not asked for its kind") {
  const TemporaryFolder folder;
  const std::string file = labelled(folder / "data.tsv", korean);
  trained(folder / "first", "classify", file, {"tokenizer.kind=bpe", "tokenizer.vocabulary=300"});
  const std::string from = "training.from=\"" + (folder / "first").string() + "\"",
                    tokens = "tokenizer.file=\"" + (folder / "first/tokenizer.json").string() + "\"";
  CHECK_FALSE(
      contains(trained(folder / "from", "classify", file, {from, "tokenizer.kind=auto"}).said, "tokens are"));
  CHECK_FALSE(contains(trained(folder / "file", "classify", file, {tokens}).said, "tokens are"));
}
