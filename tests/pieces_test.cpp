// WordPiece, Unigram and the parts around them; tokenizer_test.cpp compares whole files with Hugging Face
// tokenizers.

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/data/text_rules.h"
#include "heed/data/token_models.h"
#include "heed/data/tokenizer.h"

using namespace heed;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

namespace {

template <class Model>
Ids cut(const Model& model, std::string_view word) {
  Ids ids;
  model.encode_word(word, ids);
  return ids;
}

Json word_piece_file() {
  return Json::parse(
      R"({"pre_tokenizer": {"type": "BertPreTokenizer"}, "normalizer": {"type": "BertNormalizer"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
      "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "un": 1, "##able": 2, "u": 3, "##a": 4, ".": 5}}})");
}

std::string error_of(const Json& file) {
  try {
    Tokenizer::from_json(file.dump(), "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string with(const char* pointer, const Json& value) {
  Json file = word_piece_file();
  file[Json::json_pointer(pointer)] = value;
  return error_of(file);
}

}  // namespace

TEST_CASE("A tree of strings tells all that begin at a place, the longest first") {
  rc::check("as tried out at each place", [] {
    const auto word =
        rc::gen::resize(6, rc::gen::container<std::string>(rc::gen::elementOf(std::string("aab"))));
    const auto words = *rc::gen::unique<std::vector<std::string>>(word);
    const std::string text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("aab")));
    const StringTree tree({words.begin(), words.end()});
    Ids found;
    tree.longest(text, 0, text.size(), found);
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::vector<std::string> expected, given;
      for (std::size_t length = text.size() - at; length > 0; --length)
        if (std::find(words.begin(), words.end(), text.substr(at, length)) != words.end())
          expected.push_back(text.substr(at, length));
      for (std::int32_t id = found[at]; id >= 0; id = tree.longest_beginning(id))
        given.push_back(words[static_cast<std::size_t>(id)]);
      RC_ASSERT(given == expected);
    }
  });
}

TEST_CASE("WordPiece takes the longest token at each place, or the word is unknown") {
  const WordPieceModel model({"[UNK]", "un", "##able", "##aff", "una", "##b"},
                             {.max_input_chars_per_word = 9});
  CHECK(cut(model, "unable") == Ids{0});  // "una", then nothing begins with "ble" but "b"
  CHECK(cut(model, "unaffable") == Ids{0});
  CHECK(cut(model, "unb") == Ids{1, 5});
  CHECK(cut(model, "unaffables") == Ids{0});
  CHECK(cut(WordPieceModel({"[UNK]", "un", "##aff", "##able"}, {}), "unaffable") == Ids{1, 2, 3});
  CHECK(cut(model, "").empty());
  CHECK_THROWS_WITH_AS(WordPieceModel({"a"}, {}), "unk_token \"[UNK]\" is not in the vocabulary", Error);
}

TEST_CASE("Unigram finds the most probable tokens") {
  const UnigramModel model({"<unk>", "a", "b", "ab", "abc"}, {0, -2, -2, -3, -9}, {.unk_id = 0});
  CHECK(cut(model, "ab") == Ids{3});  // -3 beside -4
  CHECK(cut(model, "aba") == Ids{3, 1});
  CHECK(cut(model, "abc") == Ids{4});         // -9 beside -3 and an unknown
  CHECK(cut(model, "axyb") == Ids{1, 0, 2});  // two unknown characters are one
  const UnigramModel bytes({"a", "<0x78>", "<0x79>", "?"}, {-1, -5, -5, -5},
                           {.unk_id = 3, .byte_fallback = true});
  CHECK(cut(bytes, "axy") == Ids{0, 1, 2});
  CHECK(cut(bytes, "az") == Ids{0, 3});
  const UnigramModel without_unknown({"a"}, {-1}, {});
  CHECK_THROWS_AS(cut(without_unknown, "b"), Error);
  CHECK_THROWS_AS(UnigramModel({"a", "a"}, {-1, -1}, {}), Error);
  CHECK_THROWS_AS(UnigramModel({"a"}, {std::nan("")}, {}), Error);
  CHECK_THROWS_AS(UnigramModel({"a"}, {-1, -1}, {}), Error);
  CHECK_THROWS_AS(UnigramModel({"a"}, {-1}, {.unk_id = 1}), Error);
}

TEST_CASE("A WordPiece file is read, written and read again") {
  const Tokenizer tokenizer = Tokenizer::from_json(word_piece_file().dump(), "t.json");
  CHECK(tokenizer.encode(" Únable. x") == Ids{1, 2, 5, 0});
  CHECK(tokenizer.decode(Ids{1, 2, 5}) == "unable.");
  CHECK(Tokenizer::from_json(tokenizer.to_json(), "written").to_json() == tokenizer.to_json());
}

TEST_CASE("A file that cannot be followed is refused by the name of what is wrong") {
  CHECK(
      with("/model/vocab/u", 9) ==
      "t.json: model.vocab: token \"u\" has id 9, but a vocabulary of 6 must use the ids 0 to 5, each once");
  CHECK(with("/model/vocab/u", 1).find("share the id 1") != std::string::npos);
  CHECK(with("/model/unk_token", "x") == "t.json: unk_token \"x\" is not in the vocabulary");
  CHECK(with("/model/max_input_chars_per_word", -1).find("max_input_chars_per_word is -1") !=
        std::string::npos);
  CHECK(with("/pre_tokenizer", {{"type", "ByteLevel"}}).find("are supported together alone") !=
        std::string::npos);
  CHECK(with("/decoder", {{"type", "CTC"}}).starts_with("t.json: decoder \"CTC\" is not supported"));
  CHECK(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}) ==
        "t.json: normalizer.precompiled_charsmap is not base64");
  CHECK(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}})
            .starts_with("t.json: normalizer.precompiled_charsmap says"));
}

TEST_CASE("A mark is found by the names that other programs give it") {
  const Tokenizer tokenizer = Tokenizer::from_json(word_piece_file().dump(), "t.json");
  CHECK(tokenizer.id_of("<unk>") == 0);
  CHECK_THROWS_WITH_AS(tokenizer.id_of("</s>"),
                       "the tokenizer has no token \"</s>\" (nor [SEP], <eos>, <|endoftext|>)", Error);
}

TEST_CASE("Long words and texts are cut in linear time") {
  std::vector<std::string> tokens = {"[UNK]", "a", "##a"};
  tokens.push_back("##" + std::string(100'000, 'a') + "b");
  const WordPieceModel model(tokens, {.max_input_chars_per_word = 10'000'000});
  CHECK(cut(model, std::string(400'000, 'a')).size() == 400'000);
  const UnigramModel unigram({"a", std::string(100'000, 'a') + "b", "?"}, {-1, -1, -1}, {.unk_id = 2});
  CHECK(cut(unigram, std::string(400'000, 'a')).size() == 400'000);
}
