#include <doctest/doctest.h>

#include "heed/base/error.h"
#include "heed/data/tokenizer.h"
#include "heed/data/tokenizer_parts.h"
#include "heed/tasks/recipe.h"
#include "heed/tasks/start.h"

using namespace heed;
using Ids = std::vector<std::int32_t>;

namespace {

const std::vector<std::string> lines = {"the cat sat", "the cat, the mat", "A dog sat"};

std::vector<std::string> parts(std::string_view text) {
  const auto words = split_at_punctuation(text);
  return {words.begin(), words.end()};
}

Tokenizer words(std::int64_t vocabulary, std::int64_t min_frequency, bool lower_case = false) {
  TokenizerTraining options;
  options.vocabulary_size = vocabulary;
  options.min_frequency = min_frequency;
  if (lower_case) options.normalizer = {TextStep::lower_case};
  return Tokenizer::train_words(lines, options, {"\n"});
}

Settings tokenizer_settings(const std::string& kind) {
  Settings settings;
  settings.declare("tokenizer", VocabularySettings{.vocabulary = 300});
  settings.declare("training", TrainingSettings{.keep_best_by = "loss", .metrics = {"loss"}});
  settings.set("tokenizer.kind", kind, "test");
  return settings;
}

}  // namespace

TEST_CASE("Words end at white space, and each punctuation mark is one") {
  CHECK(parts(" don't,  go\t!") == std::vector<std::string>{"don", "'", "t", ",", "go", "!"});
  CHECK(parts("1+1=2 a_b «x»\u00a0y") ==
        std::vector<std::string>{"1", "+", "1", "=", "2", "a", "_", "b", "«", "x", "»", "y"});
  CHECK(parts(" \n ").empty());
  CHECK(parts("a\xff"
              "b") == std::vector<std::string>{"a\xff"
                                               "b"});
}

TEST_CASE("A tokenizer of words has the most frequent ones, and <unk> for the rest") {
  const Tokenizer tokenizer = words(8, 2);
  CHECK(tokenizer.vocabulary_size() == 8);  // four marks, "\n", the, cat, sat
  CHECK(tokenizer.encode("the cat sat") == Ids{5, 6, 7});
  CHECK(tokenizer.encode("The cat\nsat, <pad>") == Ids{3, 6, 4, 7, 3, 0});
  CHECK(tokenizer.decode(Ids{5, 4, 3, 6}) == "the \n cat");
  CHECK(tokenizer.decode(Ids{5, 3}, true) == "the <unk>");
  CHECK(words(100, 1).vocabulary_size() == 12);
  CHECK(words(100, 1, true).encode("CAT A") == words(100, 1, true).encode("cat a"));
  CHECK(words(100, 1).find("A").has_value());
  CHECK_FALSE(words(100, 1, true).find("A").has_value());
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json(), "written");
  CHECK(again.to_json() == tokenizer.to_json());
  CHECK(again.encode("the\ncat") == tokenizer.encode("the\ncat"));
}

TEST_CASE("A vocabulary of words that cannot be is refused") {
  CHECK_THROWS_WITH_AS(words(5, 1), "a vocabulary of 5 is too small: the special tokens alone are 5", Error);
  CHECK_THROWS_AS(Tokenizer::train_words(std::vector<std::string>{" ", "<pad>"}), Error);
  TokenizerTraining without_unknown;
  without_unknown.special_tokens = {"<pad>"};
  CHECK_THROWS_AS(Tokenizer::train_words(lines, without_unknown), Error);
}

TEST_CASE("Words that are not UTF-8 have no JSON") {
  TokenizerTraining options;
  options.special_tokens = {"<unk>"};
  const std::vector<std::string> lines(3, "caf\xe9 caf\xe9");
  CHECK_THROWS_AS(Tokenizer::train_words(lines, options).to_json(), Error);
}

TEST_CASE("tokenizer.kind says what a token is") {
  CHECK(learn_tokenizer(tokenizer_settings("words"), lines).encode("the cat") == Ids{4, 5});
  CHECK(learn_tokenizer(tokenizer_settings("words"), lines, {"<|end|>"}).id_of("<unk>") == 1);
  const Tokenizer characters = learn_tokenizer(tokenizer_settings("characters"), lines);
  CHECK(characters.encode("the").size() == 3);
  CHECK(characters.encode("thé") == Ids{characters.encode("th").at(0), characters.encode("h").at(0), 3});
  CHECK(learn_tokenizer(tokenizer_settings("bpe"), lines).encode("the cat").size() == 2);
}
