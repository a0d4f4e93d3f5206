#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/tokenizer.h"

using namespace heed;
using Ids = std::vector<std::int32_t>;

namespace {

// One to four bytes of UTF-8; "é" and "è" share their first byte, "→" and "↑" their first two.
const std::vector<std::string> texts = {"naïve café\n", "è → ↑ 😀", "a"};
const std::vector<std::string> special = {"<|endoftext|>"};

}  // namespace

TEST_CASE("A character tokenizer has a token for each character, and its text comes back") {
  const Tokenizer tokenizer = Tokenizer::train_characters(texts, special);
  CHECK(tokenizer.id_of("<|endoftext|>") == 0);
  for (const std::string& text : texts) {
    const Ids ids = tokenizer.encode(text);
    std::size_t characters = 0;
    for (std::size_t at = 0; at < text.size(); ++characters)
      at += static_cast<std::size_t>(unicode::decode(text, at).length);
    CHECK(ids.size() == characters);
    CHECK(tokenizer.decode(ids) == text);
    CHECK(tokenizer.unknown_characters(text).empty());
  }
  CHECK(tokenizer.encode("é").front() != tokenizer.encode("è").front());
}

TEST_CASE("Any sequence of known characters is encoded one by one, across all borders") {
  const Tokenizer tokenizer = Tokenizer::train_characters(texts, special);
  const std::vector<std::string> characters = {"a", "\n", "é", "è", "ï", "→", "↑", "😀"};
  rc::check("characters in, tokens out", [&] {
    const auto places =
        *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, characters.size()));
    std::string text;
    Ids expected;
    for (const std::size_t place : places) {
      text += characters[place];
      expected.push_back(tokenizer.encode(characters[place]).at(0));
    }
    RC_ASSERT(tokenizer.encode(text) == expected);
    RC_ASSERT(tokenizer.decode(expected) == text);
  });
}

TEST_CASE("Plain text gives no more tokens than it has characters") {
  const std::vector<std::string> plain = {"hello world\n"};
  const Tokenizer tokenizer = Tokenizer::train_characters(plain, special);
  CHECK(tokenizer.vocabulary_size() == 1 + 9);  // "helo wrd" and the line break
  CHECK(tokenizer.encode("hello").size() == 5);
}

TEST_CASE("The file of a character tokenizer is read again, as byte-level BPE") {
  const Tokenizer tokenizer = Tokenizer::train_characters(texts, special);
  const auto file = nlohmann::json::parse(tokenizer.to_json());
  CHECK(file["model"]["type"] == "BPE");
  CHECK(file["pre_tokenizer"]["type"] == "ByteLevel");
  CHECK(file["pre_tokenizer"]["use_regex"] == false);
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json(), "characters");
  for (const std::string& text : texts) CHECK(again.encode(text) == tokenizer.encode(text));
  CHECK(again.to_json() == tokenizer.to_json());
}

TEST_CASE("The order of the texts does not matter") {
  const std::vector<std::string> reversed(texts.rbegin(), texts.rend());
  CHECK(Tokenizer::train_characters(reversed, special).to_json() ==
        Tokenizer::train_characters(texts, special).to_json());
}

TEST_CASE("Characters without a token are named, each once") {
  const Tokenizer tokenizer = Tokenizer::train_characters(texts, special);
  CHECK(tokenizer.unknown_characters("caféz ☃ z☃") == std::vector<std::string>{"z", "☃"});
  // Byte-level BPE knows them all.
  TokenizerTraining options;
  options.vocabulary_size = 300;
  CHECK(Tokenizer::train(texts, options).unknown_characters("z ☃").empty());
}

TEST_CASE("Texts that give no characters are refused") {
  CHECK_THROWS_AS(Tokenizer::train_characters({}, special), Error);
  CHECK_THROWS_AS(Tokenizer::train_characters(std::vector<std::string>{""}, special), Error);
  CHECK_THROWS_AS(Tokenizer::train_characters(std::vector<std::string>{"caf\xe9"}, special), Error);
  CHECK_THROWS_AS(Tokenizer::train_characters(texts, {"a"}), Error);
  CHECK_THROWS_AS(Tokenizer::train_characters(texts, {"<s>", "<s>"}), Error);
}
