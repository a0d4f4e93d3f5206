// Pairs of texts: what is matched, what the model reads, and the program from pairs to ranked answers.

#include "heed/models/pairs.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/temporary_folder.h"

using namespace heed;
using namespace heed::test;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

namespace {

PairTokenizer tokenizer_of(const Lines& texts, const Lines& assignments = {}) {
  Settings settings = task_entry("match").settings(true);
  for (const char* one : {"tokenizer.kind=words", "tokenizer.min_frequency=1"}) settings.assign(one);
  for (const std::string& one : assignments) settings.assign(one);
  Lines spaced;
  for (const std::string& text : texts) spaced.push_back(PairTokenizer::spaced(text));
  return {learn_tokenizer(settings, spaced), settings};
}

TransformerConfig small_config() {
  TransformerConfig config;
  config.width = 8;
  config.heads = 2;
  config.feed_forward = 8;
  config.encoder_layers = 1;
  config.source_vocabulary = 20;
  config.classes = 3;
  return config;
}

}  // namespace

TEST_CASE("A word is matched whole, in small or capital letters, and known to the vocabulary or not") {
  for (const char* kind : {"words", "bpe", "characters"}) {
    CAPTURE(kind);
    PairTokenizer tokenizer =
        tokenizer_of({"the cat sat", "a dog, the end"}, {concat_text("tokenizer.kind=", kind)});
    const TokenPair pair = tokenizer("The Zebra sat.", "the dog, a zebra");
    CHECK(pair.first.tokens.size() == pair.first.matches.size());
    CHECK(pair.second.tokens.size() == pair.second.matches.size());
    if (std::string(kind) != "words") continue;
    // the end mark, "sat" and "." are in no other text; neither "The" nor "Zebra" is in the vocabulary
    CHECK(pair.first.matches == Tokens{4, 4, 0, 0, 0});
    CHECK(pair.second.matches == Tokens{1, 0, 0, 0, 4, 0});
  }
  PairTokenizer tokenizer = tokenizer_of({"a b c"}, {"data.max_tokens=3", "data.long_texts=error"});
  CHECK_THROWS_AS(tokenizer("a b", "a b c"), Error);
  PairTokenizer cutting = tokenizer_of({"a b c"}, {"data.max_tokens=3"});
  const TokenPair cut = cutting("a b", "a b c");
  CHECK(cut.second.tokens.size() == 3);
  CHECK(cut.second.matches.size() == 3);
  CHECK(cut.second.matches.back() == 0);
  CHECK(cutting.take_truncation_message() != "");
  CHECK(cutting("", "a").first.tokens.size() == 1);
}

TEST_CASE("A pair has the same logits whatever stands beside it in the batch") {
  const std::vector<TokenPair> pairs = {{{{5, 6, 2}, {0, 1, 0}}, {{6, 2}, {1, 0}}},
                                        {{{7, 2}, {0, 0}}, {{8, 9, 10, 11, 2}, {0, 4, 0, 0, 0}}}};
  for (const bool joint : {true, false})
    for (const char* pooling : {"mean", "attention"}) {
      TransformerConfig config = small_config();
      config.pooling = pooling;
      PairMatcher model(config, joint);
      const NoGrad no_grad;
      Context context = Context::inference();
      const std::vector<double> both = model.logits(model.batch(pairs), context).to_doubles();
      REQUIRE(both.size() == 6);
      for (std::size_t i = 0; i < 2; ++i) {
        const std::vector<double> one = model.logits(model.batch({&pairs[i], 1}), context).to_doubles();
        for (std::size_t k = 0; k < 3; ++k) CHECK(one[k] == doctest::Approx(both[i * 3 + k]).epsilon(1e-4));
      }
      // The match of a token is seen.
      std::vector<TokenPair> other = {pairs[0]};
      other[0].first.matches[1] = 0;
      CHECK(model.logits(model.batch(other), context).to_doubles()[0] !=
            doctest::Approx(both[0]).epsilon(1e-6));
    }
}

TEST_CASE("Where a word has no match, runs of its tokens have, as in scripts without spaces") {
  PairTokenizer tokenizer = tokenizer_of({"猫が座る", "犬が走る"}, {"tokenizer.kind=characters"});
  const TokenPair pair = tokenizer("猫が座る", "犬が座る、猫");
  // A word begins with a space. " 猫" stands in the second text, too, and so does "が座る".
  CHECK(pair.first.matches == Tokens{6, 6, 7, 7, 7, 0});
  CHECK(Tokens(pair.second.matches.begin(), pair.second.matches.begin() + 5) == Tokens{5, 0, 7, 7, 7});
}

TEST_CASE("Questions with answers are a pure function of the seed, and right answers answer") {
  const LabelledText text = draw_answer_pairs(3, 200);
  REQUIRE(text.size() == 1000);
  CHECK(draw_answer_pairs(3, 200).seconds == text.seconds);
  CHECK(draw_answer_pairs(4, 200).seconds != text.seconds);
  std::int64_t right = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string first(text.texts[i]), second(text.seconds[i]);
    const std::string person = second.substr(0, second.find(' '));
    const bool same = contains(first, " " + person + " ");
    const bool place = contains(second, " in the ");
    const bool age =
        contains(second, "is now") || contains(second, "turned") || contains(second, "will soon");
    const bool topic = first.starts_with("where") ? place : first.starts_with("how") ? age : !place && !age;
    CHECK((text.labels[i] == "1") == (same && topic));
    right += text.labels[i] == "1" ? 1 : 0;
  }
  CHECK(right > 100);
  CHECK(right < 300);
}

TEST_CASE("match: from a table to ranked answers, with what is wrong named by file and line") {
  const TemporaryFolder folder;
  std::string pairs = "who\tgood\tclass\tid\n";
  for (int i = 0; i < 120; ++i) {
    const std::string name = "name" + std::to_string(i / 3);
    pairs += name + "\t" + (i % 3 == 0 ? name : "nobody") + " is \"here\"\t" + (i % 3 == 0 ? "yes" : "no") +
             "\t" + std::to_string(i) + "\n";
  }
  const std::string table = write_content(folder / "pairs.txt", pairs), run = (folder / "run").string();
  const auto train = [&](const std::string& data, const Lines& more) {
    const Lines table_flags = {"--data", data, "--format", "tsv", "--header", "--label-column", "class"};
    return run_program("match", joined(small_train("match", run, table_flags), more));
  };
  const ProgramResult trained = train(table, {});
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  const ProgramResult measured = run_program("match", {"evaluate", "--run", run, "--data", table});
  REQUIRE_MESSAGE(measured.status == 0, measured.errors);
  const Json json = Json::parse(measured.output);
  for (const char* name : {"accuracy", "loss", "macro_f1", "f1", "map", "mrr"}) CHECK(json.contains(name));
  CHECK(json["groups"]["ranked"] == 40);
  CHECK(json["confusion"].size() == 2);
  const ProgramResult answers =
      run_program("match", {"predict", "--run", run}, "name1\tname1 is here\n\nno tab\na\tb\tc\nname1\t\n");
  CHECK(answers.status == 1);
  CHECK(contains(answers.errors, "line 3: expected two texts with one tab"));
  CHECK(contains(answers.errors, "line 4: "));
  CHECK(std::count(answers.output.begin(), answers.output.end(), '\n') == 5);

  std::filesystem::remove_all(run);
  const auto file = [&](const char* name, const std::string& content) {
    return write_content(folder / name, content).string();
  };
  struct Refusal {
    std::string data;
    Lines more;
    const char* says;
  };
  const Refusal refusals[] = {
      {file("short.txt", "a\tb\tclass\nc\td\n"), {}, "short.txt:2: the row has 2 fields"},
      {file("none.txt", "a\tb\tlabel\nc\td\t1\n"), {}, "none.txt:1: there is no column \"class\""},
      {file("empty.txt", ""), {}, "empty.txt"},
      {file("one.txt", "a\tb\tclass\nc\td\t1\ne\tf\t1\ng\th\t1\n"), {}, "two classes"},
      {table,
       {"--valid", file("new.txt", "who\tgood\tclass\nc\td\tmaybe\n")},
       "new.txt:2: the label \"maybe\""},
      {table,
       {"--valid", file("flat.txt", "who\tgood\tclass\nc\td\tyes\ne\tf\tno\n"), "--set",
        "training.keep_best_by=map"},
       "gives no map"},
      {table, {"--folds", "1"}, "data.folds"},
      {table, {"--folds", "3", "--test", table}, "data.folds"}};
  for (const auto& [data, more, says] : refusals) {
    const ProgramResult result = train(data, more);
    CAPTURE(result.errors);
    CHECK(result.status != 0);
    CHECK(contains(result.errors, says));
  }
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("--folds: a run for each fold, mean and deviation, and finished folds are not trained again") {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string();
  const Lines train = small_train("match", out, {"--folds", "3"});
  const ProgramResult first = run_program("match", train);
  REQUIRE_MESSAGE(first.status == 0, first.errors);
  const Json json = Json::parse(first.output);
  REQUIRE(json["folds"].size() == 3);
  double mean = 0;
  for (const Json& fold : json["folds"]) mean += fold["accuracy"].get<double>() / 3;
  CHECK(json["accuracy"].get<double>() == doctest::Approx(mean).epsilon(1e-3));
  CHECK(json["deviation"].contains("map"));
  CHECK(run_program("match", train).status != 0);  // there is something already

  const auto last = std::filesystem::path(out) / "fold-3";
  const auto written =
      std::filesystem::last_write_time(std::filesystem::path(out) / "fold-1" / "model.safetensors");
  std::filesystem::remove_all(last);
  const ProgramResult resumed = run_program("match", {"train", "--resume", "--out", out});
  REQUIRE_MESSAGE(resumed.status == 0, resumed.errors);
  CHECK(Json::parse(resumed.output) == json);
  CHECK(std::filesystem::last_write_time(std::filesystem::path(out) / "fold-1" / "model.safetensors") ==
        written);
}
