// Tokenizers of characters, words, pieces (WordPiece, Unigram) and of SentencePiece files. Byte-level BPE:
// tokenizer_test.cpp.

#include <rapidcheck.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/base/unicode.h"
#include "heed/tests/support.h"
#include "heed/text/pre_tokenizers.h"
#include "heed/text/sentencepiece.h"
#include "heed/text/token_models.h"
#include "heed/text/tokenizer.h"
#include "heed/text/tokenizer_parts.h"

using Ids = Ints;
using Words = std::vector<std::string>;

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
  // Byte-level BPE knows them all. Of its 300 tokens, 256 are the bytes, and some are merges.
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

using Ids = Ints;
using Words = std::vector<std::string>;

namespace {

const std::vector<std::string> lines = {"the cat sat", "the cat, the mat", "A dog sat"};

std::vector<std::string> parts(std::string_view text) {
  const auto words = split_at_punctuation(text);
  return {words.begin(), words.end()};
}

Tokenizer words_tokenizer(std::int64_t vocabulary, std::int64_t min_frequency, bool lower_case = false) {
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
  CHECK(parts("खुप वाह। می‌خواهم") ==
        std::vector<std::string>{"खुप", "वाह", "।", "می‌خواهم"});
  CHECK(parts("a\xff"
              "b") == std::vector<std::string>{"a\xff"
                                               "b"});
}

TEST_CASE("A tokenizer of words has the most frequent ones, and <unk> for the rest") {
  const Tokenizer tokenizer = words_tokenizer(8, 2);
  CHECK(tokenizer.vocabulary_size() == 8);  // four marks, "\n", the, cat, sat
  CHECK(tokenizer.encode("the cat sat") == Ids{5, 6, 7});
  CHECK(tokenizer.encode("The cat\nsat, <pad>") == Ids{3, 6, 4, 7, 3, 0});
  CHECK(tokenizer.decode(Ids{5, 4, 3, 6}) == "the \n cat");
  CHECK(tokenizer.decode(Ids{5, 3}, true) == "the <unk>");
  CHECK(words_tokenizer(100, 1).vocabulary_size() == 12);
  CHECK(words_tokenizer(100, 1, true).encode("CAT A") == words_tokenizer(100, 1, true).encode("cat a"));
  CHECK(words_tokenizer(100, 1).find("A").has_value());
  CHECK_FALSE(words_tokenizer(100, 1, true).find("A").has_value());
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json(), "written");
  CHECK(again.to_json() == tokenizer.to_json());
  CHECK(again.encode("the\ncat") == tokenizer.encode("the\ncat"));
}

TEST_CASE("Impossible vocabularies of words are refused") {
  CHECK_THROWS_WITH_AS(words_tokenizer(5, 1),
                       "a vocabulary of 5 is too small: the special tokens alone are 5", Error);
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
  CHECK_THROWS_AS(learn_tokenizer(tokenizer_settings("auto"), lines), Error);
}

// --- WordPiece, Unigram and the parts around them; tokenizer_test.cpp compares whole files with Hugging Face
// tokenizers.

using Json = nlohmann::json;
using Ids = Ints;
using Words = std::vector<std::string>;

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

std::string with(const char* pointer, const Json& value) {
  Json file = word_piece_file();
  file[Json::json_pointer(pointer)] = value;
  return error_of([&] { Tokenizer::from_json(file.dump(), "t.json"); });
}

}  // namespace

TEST_CASE("A tree of strings lists all that start at a position, the longest first") {
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
  const WordPieceModel model(Words{"[UNK]", "un", "##able", "##aff", "una", "##b"},
                             {.max_input_chars_per_word = 9});
  CHECK(cut(model, "unable") == Ids{0});  // "una", then nothing begins with "ble" but "b"
  CHECK(cut(model, "unaffable") == Ids{0});
  CHECK(cut(model, "unb") == Ids{1, 5});
  CHECK(cut(model, "unaffables") == Ids{0});
  CHECK(cut(WordPieceModel(Words{"[UNK]", "un", "##aff", "##able"}, {}), "unaffable") == Ids{1, 2, 3});
  CHECK(cut(model, "").empty());
  CHECK_THROWS_WITH_AS(WordPieceModel(Words{"a"}, {}), "unk_token \"[UNK]\" is not in the vocabulary", Error);
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

TEST_CASE("BPE of characters spells those without a token in bytes, where it has all of them") {
  const Words tokens = {"<unk>", "a", "b", "é", "ab", "aé", "<0xE2>", "<0x82>", "<0xAC>", "<0xC3>"};
  const std::vector<BpeModel::Pair> merges = {{1, 2}, {1, 3}};
  const BpeModel model(
      {tokens}, merges,
      {.unk_token = "<unk>", .fuse_unk = true, .byte_fallback = true, .of_characters = true});
  CHECK(cut(model, "abaéb") == Ids{4, 5, 2});
  CHECK(cut(model, "a€b") == Ids{1, 6, 7, 8, 2});
  CHECK(cut(model, "aöüb") == Ids{1, 0, 2});           // ö is C3 B6, and there is no B6
  CHECK(cut(model, "aö€b") == Ids{1, 6, 7, 8, 0, 2});  // as Hugging Face's tokenizers order them
  CHECK(cut(model, "a\xFF") == Ids{1, 0});
  CHECK(cut(model, "").empty());
  const BpeModel single({tokens}, merges, {.unk_token = "<unk>", .of_characters = true});
  CHECK(cut(single, "aöüb") == Ids{1, 0, 0, 2});
  const BpeModel silent({tokens}, merges, {.unk_token = {}, .of_characters = true});
  CHECK(cut(silent, "aöüb") == Ids{4});
}

TEST_CASE("A file of BPE of characters is read, written and read again") {
  Json file = {{"added_tokens", Json::array({{{"id", 0}, {"content", "<s>"}, {"special", true}}})},
               {"normalizer",
                {{"type", "Sequence"},
                 {"normalizers",
                  {{{"type", "Prepend"}, {"prepend", "▁"}},
                   {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
               {"decoder",
                {{"type", "Sequence"},
                 {"decoders",
                  {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}},
                   {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
               {"model",
                {{"type", "BPE"},
                 {"unk_token", "<unk>"},
                 {"byte_fallback", true},
                 {"vocab", {{"<s>", 0}, {"<unk>", 1}, {"▁", 2}, {"a", 3}, {"▁a", 4}, {"<0x62>", 5}}},
                 {"merges", {"▁ a"}}}}};
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "t.json");
  CHECK(tokenizer.encode("a ab") == Ids{4, 4, 5});
  CHECK(tokenizer.encode("<s>a") == Ids{0, 4});
  CHECK(tokenizer.decode(Ids{0, 4, 4, 5}) == "a ab");
  CHECK(tokenizer.missing_bytes().empty());
  CHECK(Tokenizer::from_json(tokenizer.to_json(), "written").to_json() == tokenizer.to_json());
  file["pre_tokenizer"] = {{"type", "ByteLevel"}};
  CHECK_ERROR(Tokenizer::from_json(file.dump(), "t.json"), "byte_fallback");
}

TEST_CASE("A WordPiece file is read, written and read again") {
  const Tokenizer tokenizer = Tokenizer::from_json(word_piece_file().dump(), "t.json");
  CHECK(tokenizer.encode(" Únable. x") == Ids{1, 2, 5, 0});
  CHECK(tokenizer.decode(Ids{1, 2, 5}) == "unable.");
  CHECK(Tokenizer::from_json(tokenizer.to_json(), "written").to_json() == tokenizer.to_json());
}

TEST_CASE("A file may leave its model's type to be seen, as old ones do") {
  const auto ids = [](Json model, const char* text) {
    Json file = word_piece_file();
    file["model"] = std::move(model);
    return Tokenizer::from_json(file.dump(), "t.json").encode(text);
  };
  Json model = word_piece_file()["model"];
  model.erase("type");
  CHECK(ids(model, "unable") == Ids{1, 2});
  model.erase("max_input_chars_per_word");  // Hugging Face's tokenizers then take it for whole words
  CHECK(ids(model, "unable") == Ids{0});
  CHECK(ids({{"vocab",
              Json::array({Json::array({"?", 0}), Json::array({"un", -1}), Json::array({"able", -1})})},
             {"unk_id", 0}},
            "unable") == Ids{1, 2});
  model["type"] = nullptr;
  CHECK(with("/model/type", nullptr) == "t.json: model.type is null, not a string");
}

TEST_CASE(
    "Ids that a vocabulary leaves out are no tokens, and added tokens get theirs as tokenizers gives them") {
  // The expected ids and texts are those of Hugging Face's tokenizers 0.23.
  Json file = {
      {"model", {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"?", 0}, {"a", 1}, {"b", 5}}}}},
      {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"added_tokens", Json::array()}};
  const auto read = [&] { return Tokenizer::from_json(file.dump(), "t.json"); };
  CHECK(read().encode("b a c") == Ids{5, 1, 0});
  CHECK(read().vocabulary_size() == 6);
  CHECK(read().decode(Ids{0, 1, 2, 3, 4, 5}) == "? a b");
  CHECK(read().token(3).empty());
  CHECK_FALSE(read().find("").has_value());
  const auto add = [&](std::initializer_list<std::pair<int, const char*>> tokens) {
    file["added_tokens"] = Json::array();
    for (const auto& [id, content] : tokens)
      file["added_tokens"].push_back({{"id", id}, {"content", content}});
  };
  add({{6, "<x>"}, {7, "<y>"}});
  CHECK(read().encode("a b<x> <y>") == Ids{1, 5, 3, 4});
  CHECK(read().decode(Ids{0, 1, 2, 3, 4, 5}) == "? a <x> <y> b");
  CHECK(Tokenizer::from_json(read().to_json(), "again").to_json() == read().to_json());
  CHECK(Tokenizer::from_json(read().to_json(), "again").encode("a b<x> <y>") == Ids{1, 5, 3, 4});
  file["model"]["vocab"] = {{"?", 0}, {"a", 1}, {"b", 2}};
  add({{4, "<y>"}, {3, "<x>"}});  // out of order
  CHECK(read().encode("a<x><y>") == Ids{1, 4, 3});
  add({{9, "<x>"}, {12, "<y>"}});  // beyond the end
  CHECK(read().encode("a<x><y>") == Ids{1, 3, 4});
  CHECK(read().vocabulary_size() == 5);
  add({{7, "b"}, {5, "<y>"}});  // with another id in the vocabulary
  CHECK(read().encode("a b<y>") == Ids{1, 2, 3});
  file["model"]["vocab"] = {{"", 1}, {"?", 0}, {"a", 3}};  // an empty token is none of the holes
  file["model"]["unk_token"] = "";
  add({});
  CHECK(read().encode("b a") == Ids{1, 3});
  CHECK(Tokenizer::from_json(read().to_json(), "again").encode("b a") == Ids{1, 3});
}

TEST_CASE("Letters in circles and squares are letters of words") {
  const Json file = {{"model",
                      {{"type", "WordLevel"},
                       {"unk_token", "?"},
                       {"vocab", {{"?", 0}, {"vitamin\U0001F171", 1}, {"type", 2}, {"\U0001F17Eneg", 3}}}}},
                     {"pre_tokenizer", {{"type", "Whitespace"}}},
                     {"added_tokens", {{{"id", 4}, {"content", "neg"}, {"single_word", true}}}}};
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "t.json");
  CHECK(tokenizer.encode("vitamin\U0001F171") == Ids{1});
  CHECK(tokenizer.encode("type \U0001F17Eneg neg") == Ids{2, 3, 4});
  int found = 0;
  for (char32_t value = 0x1F100; value < 0x1F200; ++value) found += unicode::is_word(value) ? 1 : 0;
  CHECK(found == 78);
}

TEST_CASE("A text begins with what its first character was normalised to") {
  // The expected pieces are those of Hugging Face's tokenizers 0.23.
  const auto pieces = [](const char* normalizer, const char* text) {
    const Json file = {
        {"model",
         {{"type", "WordLevel"},
          {"unk_token", "?"},
          {"vocab",
           {{"?", 0}, {"_a", 1}, {"a", 2}, {"_\u0308", 3}, {"\u0308", 4}, {"_\u4e2d", 5}, {"\u4e2d", 6}}}}},
        {"normalizer", {{"type", normalizer}}},
        {"pre_tokenizer",
         {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "WhitespaceSplit"}},
            {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"split", true}}}}}}};
    return Tokenizer::from_json(file.dump(), "t.json").encode(text);
  };
  CHECK(pieces("NFKC", "\u00a8 a") == Ids{3, 2});  // a space and a diaeresis
  CHECK(pieces("NFKC", "a \u00a8") == Ids{1, 4});
  CHECK(pieces("NFKC", " a") == Ids{2});
  CHECK(pieces("BertNormalizer", "\u4e2d\u4e2d") == Ids{5, 6});
}

TEST_CASE("An unsupported file is refused, and the error names what is wrong") {
  CHECK(with("/model/vocab/u", 70000) ==
        "t.json: model.vocab: token \"u\" has id 70000, but a vocabulary of 6 must use ids below 65548");
  CHECK(with("/model/vocab/u", 1).find("share the id 1") != std::string::npos);
  CHECK(with("/model/unk_token", "x") == "t.json: unk_token \"x\" is not in the vocabulary");
  CHECK(with("/model/max_input_chars_per_word", -1).find("max_input_chars_per_word is -1") !=
        std::string::npos);
  CHECK(with("/pre_tokenizer", {{"type", "ByteLevel"}}).find("is only supported with model BPE") !=
        std::string::npos);
  CHECK(with("/decoder", {{"type", "CTC"}}).starts_with("t.json: decoder \"CTC\" is not supported"));
  CHECK(with("/decoder", {{"type", "Metaspace"}, {"replacement", ""}})
            .starts_with("t.json: decoder.replacement \"\" is not one character"));
  CHECK(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}) ==
        "t.json: normalizer.precompiled_charsmap is not base64");
  CHECK(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}})
            .starts_with("t.json: normalizer.precompiled_charsmap says"));
}

TEST_CASE("A mark is found by the names that other programs give it") {
  const Tokenizer tokenizer = Tokenizer::from_json(word_piece_file().dump(), "t.json");
  CHECK(tokenizer.id_of("<unk>") == 0);
  CHECK_THROWS_WITH_AS(
      tokenizer.id_of("</s>"),
      "the tokenizer has no token \"</s>\" (nor [SEP], <eos>, <|endoftext|>, <|end_of_text|>)", Error);
}

TEST_CASE("Long words and texts are cut in linear time") {
  std::vector<std::string> tokens = {"[UNK]", "a", "##a"};
  tokens.push_back("##" + std::string(100'000, 'a') + "b");
  const WordPieceModel model(tokens, {.max_input_chars_per_word = 10'000'000});
  CHECK(cut(model, std::string(400'000, 'a')).size() == 400'000);
  const UnigramModel unigram({"a", std::string(100'000, 'a') + "b", "?"}, {-1, -1, -1}, {.unk_id = 2});
  CHECK(cut(unigram, std::string(400'000, 'a')).size() == 400'000);
}

// --- Model files of SentencePiece, written here by hand, field by field.

namespace {

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field(std::uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string field(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}

std::string piece(const std::string& text, float score, std::uint64_t kind = 1) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  std::string number = varint(2 << 3 | 5);
  for (int i = 0; i < 4; ++i) number += static_cast<char>(bits >> (8 * i) & 0xFF);
  return field(1, field(1, text) + number + field(3, kind));
}

const std::string english = piece("<unk>", 0, 2) + piece("</s>", 0, 3) + piece("\u2581", -2) +
                            piece("\u2581the", -3) + piece("tree", -4) + piece("t", -6) + piece("h", -6) +
                            piece("e", -6) + piece("rare", -9);
const std::string usual = field(3, field(1, "nmt_nfkc"));  // the normaliser of most models

std::string sentencepiece_error(const std::string& bytes) {
  return error_of([&] { read_sentencepiece(bytes, "a.spm"); });
}

const std::vector<std::string> english_german = {"</s>", "<unk>",   "\u2581", "\u2581the",  "tree",
                                                 "t",    "h",       "e",      "\u2581Baum", "\u00fc",
                                                 "die",  ">>deu<<", "<pad>"};

}  // namespace

TEST_CASE("sentencepiece: a model is cut as it says, with the ids of a list that two languages share") {
  const SentencePieceModel model = read_sentencepiece(english + field(2, field(3, 1)) + usual, "a.spm");
  CHECK(model.pieces.size() == 9);
  CHECK(model.pieces[3].text == "\u2581the");
  CHECK(model.pieces[3].score == -3);
  const SentencePieceTokenizer made = sentencepiece_tokenizer(model, english_german);
  CHECK(made.without_id == std::vector<std::string>{"rare"});
  const Tokenizer tokenizer = Tokenizer::from_json(made.json, "made");
  const auto ids = [&](const char* text) { return tokenizer.encode(text); };
  CHECK(ids("the tree") == Ints{3, 2, 4});
  CHECK(ids("  the   tree ") == Ints{3, 2, 4});
  CHECK(ids("het") == Ints{2, 6, 7, 5});
  // What the other language alone has is cut into what this one knows, but for characters.
  CHECK(ids("die") == Ints{2, 1, 7});
  CHECK(ids("\u00fc") == Ints{2, 9});
  CHECK(ids(">>deu<< the") == Ints{11, 3});
  CHECK(ids("\x01tree") == ids("tree"));
  CHECK(tokenizer.decode(Ints{10, 8, 9, 12, 0}) == "die Baum\u00fc");
  // The file is one that is read again.
  CHECK(Tokenizer::from_json(tokenizer.to_json(), "again").encode("the t\u00fc") == ids("the t\u00fc"));
  CHECK_ERROR(sentencepiece_tokenizer(model, {"<unk>", "a"}), "no token </s>");
}

TEST_CASE("sentencepiece: what NFKC joins is one character before the model cuts") {
  const std::string korean = piece("<unk>", 0, 2) + piece("</s>", 0, 3) + piece("\u2581", -2) +
                             piece("\ud55c", -3) + piece("\u1ec7", -3);
  const std::vector<std::string> list = {"</s>", "<unk>", "\u2581", "\ud55c", "\u1ec7"};
  const auto ids = [&](const std::string& rule, const char* text) {
    const SentencePieceModel model =
        read_sentencepiece(korean + field(3, field(1, rule) + field(3, 1)), "a.spm");
    return Tokenizer::from_json(sentencepiece_tokenizer(model, list).json, "made").encode(text);
  };
  for (const char* rule : {"nmt_nfkc", "nmt_nfkc_cf"}) {
    CHECK(ids(rule, "\u1112\u1161\u11ab") == Ints{2, 3});
    CHECK(ids(rule, "e\u0323\u0302") == Ints{2, 4});
  }
}

TEST_CASE("sentencepiece: a piece may hold spaces, which are then no borders") {
  const std::string crossing = piece("<unk>", 0, 2) + piece("</s>", 0, 3) + piece("\u2581", -2) +
                               piece("\u2581of\u2581the", -3) + piece("\u2581of", -2.5f) +
                               piece("\u2581the", -2.5f) + piece("a\u2581", -4) + usual;
  const std::vector<std::string> list = {"</s>",     "<unk>",     "\u2581", "\u2581of\u2581the",
                                         "\u2581of", "\u2581the", "a\u2581"};
  const auto made =
      sentencepiece_tokenizer(read_sentencepiece(crossing + field(2, field(22, 0)), "a.spm"), list);
  const Tokenizer tokenizer = Tokenizer::from_json(made.json, "made");
  CHECK(tokenizer.encode("of  the of") == Ids{3, 4});
  CHECK(tokenizer.encode("the of the") == Ids{5, 3});
  CHECK(tokenizer.encode("a a") == Ids{2, 6, 1});
  CHECK(tokenizer.decode(Ids{3, 4}) == "of the of");
}

TEST_CASE("sentencepiece: what a tokenizer.json cannot express is refused by name") {
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const std::string named = field(1, "nmt_nfkc_cf");
  CHECK(sentencepiece_error(english + field(3, named + field(3, 1) + field(4, 1) + field(5, 1))).empty());
  for (const char* rule : {"", "nfkc", "nfkc_cf", "identity", "user_defined"})
    CHECK(contains(sentencepiece_error(english + field(3, field(1, rule))),
                   ("the name of its normalizer_spec is \"" + std::string(rule) + "\"").c_str()));
  CHECK(contains(sentencepiece_error(english), "the name of its normalizer_spec is \"\""));
  // How the pieces were found changes nothing; what is not known may.
  const std::string found = field(2, field(1, "text.txt") + field(4, 8000) + field(22, 0) + field(55, 1));
  CHECK(sentencepiece_error(english + found + usual).empty());
  CHECK(contains(sentencepiece_error(english + field(2, field(35, 1)) + usual), "byte_fallback"));
  CHECK(contains(sentencepiece_error(english + field(2, field(56, 1)) + usual), "the field 56 of a trainer"));
  CHECK(contains(sentencepiece_error(english + field(3, field(7, 1))), "the field 7 of a normalizer"));
  CHECK(contains(sentencepiece_error(english + field(2, field(3, 2))), "model of kind 2"));
  CHECK(contains(sentencepiece_error(english + field(2, field(24, 1))), "spaces after words"));
  CHECK(contains(sentencepiece_error(english + field(3, field(3, 0))), "add_dummy_prefix is false"));
  CHECK(contains(sentencepiece_error(english + field(3, field(4, 0))), "remove_extra_whitespaces is false"));
  CHECK(contains(sentencepiece_error(english + field(3, field(5, 0))), "escape_whitespaces is false"));
  CHECK(contains(sentencepiece_error(english + field(5, field(2, "x"))), "changes decoded texts"));
  CHECK(contains(sentencepiece_error(english + piece("mine", 0, 4)), "piece 9, \"mine\""));
  CHECK(contains(sentencepiece_error(english + piece("<0x41>", 0, 6)), "piece 9, \"<0x41>\""));
  CHECK(contains(sentencepiece_error(english + piece("a", 0, 7)), "kind 7"));
  CHECK(contains(sentencepiece_error(english + piece("\xFF", 0)), "piece 9 is no text"));
  CHECK(contains(sentencepiece_error(english + piece("a", std::bit_cast<float>(0x7FC00000u))),
                 "the score of piece 9"));
  CHECK(contains(sentencepiece_error(""), "no pieces"));
  CHECK(contains(sentencepiece_error("{\"model\": 1}"), "a.spm is not a SentencePiece model"));
}

TEST_CASE("sentencepiece: every cut and every changed byte gives an Error or a model") {
  for (std::size_t at = 0; at < english.size(); ++at) {
    sentencepiece_error(english.substr(0, at));
    for (const int flip : {1, 0x80, 0xFF}) {
      std::string changed = english;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      try {
        const SentencePieceModel model = read_sentencepiece(changed + usual, "a.spm");
        Tokenizer::from_json(sentencepiece_tokenizer(model, english_german).json, "made").encode("the tree");
      } catch (const Error&) {
      }
    }
  }
  CHECK(sentencepiece_error(english.substr(0, english.size() - 1)) != "");
}
