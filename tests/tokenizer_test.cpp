#include "heed/data/tokenizer.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer_parts.h"

using namespace heed;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

namespace {

// Files made by Hugging Face tokenizers; make_cases.py beside them says how.
const std::filesystem::path folder = std::filesystem::path(HEED_SOURCE_DIR) / "tests/data/tokenizer";

std::vector<std::string> text() {
  return read_lines(folder / "text.txt");
}

Json file_of(const std::string& name) {
  return Json::parse(read_file(folder / name));
}

/// A whole tokenizer file with three tokens; the tests break it in one place each.
Json small_file() {
  return Json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "<s>", "special": true}], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]]}})");
}

std::string error_of(const Json& file) {
  try {
    Tokenizer::from_json(file.dump(), "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> words_of(std::string_view text) {
  const auto words = split_words(text);
  return {words.begin(), words.end()};
}

}  // namespace

TEST_CASE("Files made by Hugging Face tokenizers give the same ids and texts") {
  std::map<std::string, Tokenizer> tokenizers;
  const Json cases = file_of("cases.json");
  REQUIRE(cases.size() > 100);
  for (const Json& one : cases) {
    CAPTURE(one.dump());
    const auto name = one["file"].get<std::string>();
    if (!tokenizers.contains(name)) tokenizers.emplace(name, Tokenizer::load(folder / name));
    const Tokenizer& tokenizer = tokenizers.at(name);
    const Ids ids = one["ids"].get<Ids>();
    CHECK(tokenizer.encode(one["text"].get<std::string>()) == ids);
    CHECK(tokenizer.decode(ids) == one["decoded"].get<std::string>());
    CHECK(tokenizer.decode(ids, true) == one["with_special"].get<std::string>());
  }
}

TEST_CASE("Training gives the very file that Hugging Face tokenizers gives") {
  TokenizerTraining options;
  options.vocabulary_size = 420;
  CHECK(Json::parse(Tokenizer::train(text(), options).to_json()) == file_of("plain.json"));
  options.vocabulary_size = 320;
  options.add_prefix_space = true;
  CHECK(Json::parse(Tokenizer::train(text(), options).to_json()) == file_of("prefix_space.json"));
  options.add_prefix_space = false;
  options.normalizer = {TextStep::nfkc, TextStep::lower_case};
  CHECK(Json::parse(Tokenizer::train(text(), options).to_json()) == file_of("lower_case.json"));
  options.vocabulary_size = 340;
  options.normalizer.clear();
  options.split_words = false;
  CHECK(Json::parse(Tokenizer::train(text(), options).to_json()) == file_of("whole_lines.json"));
}

TEST_CASE("A file that is read and written again says the same") {
  for (const char* name :
       {"plain", "prefix_space", "whole_lines", "lower_case", "composed", "few_bytes", "dropped_bytes"})
    CHECK(Json::parse(Tokenizer::load(folder / (std::string(name) + ".json")).to_json()) ==
          file_of(std::string(name) + ".json"));
}

TEST_CASE("Training depends on the lines, not on their order") {
  auto lines = text();
  const std::string json = Tokenizer::train(lines).to_json();
  std::reverse(lines.begin(), lines.end());
  CHECK(Tokenizer::train(lines).to_json() == json);
}

TEST_CASE("Special tokens take the first ids and are recognised in text") {
  const Tokenizer tokenizer = Tokenizer::train(text());
  CHECK(tokenizer.id_of("<pad>") == 0);
  CHECK(tokenizer.id_of("<s>") == 1);
  CHECK(tokenizer.id_of("</s>") == 2);
  CHECK(tokenizer.id_of("<unk>") == 3);
  CHECK_THROWS_WITH_AS(tokenizer.id_of("<mask>"), "the tokenizer has no token \"<mask>\"", Error);
  const Ids ids = tokenizer.encode("<s>the ship</s><pad>");
  CHECK(ids.front() == 1);
  CHECK(std::vector(ids.end() - 2, ids.end()) == Ids{2, 0});
  CHECK(tokenizer.decode(ids) == "the ship");
  CHECK(tokenizer.decode(ids, true) == "<s>the ship</s><pad>");
  CHECK(tokenizer.missing_bytes().empty());
}

TEST_CASE("Decoding gives back any bytes") {
  const Tokenizer tokenizer = Tokenizer::train(text());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  CHECK(tokenizer.decode_bytes(tokenizer.encode(all)) == all);
  CHECK(rc::check("decode_bytes(encode(text)) == text", [&](const std::string& bytes) {
    RC_ASSERT(tokenizer.decode_bytes(tokenizer.encode(bytes), true) == bytes);
  }));
  const Tokenizer whole_lines = Tokenizer::load(folder / "whole_lines.json");
  CHECK(rc::check("the same without the word split", [&](const std::string& bytes) {
    RC_ASSERT(whole_lines.decode_bytes(whole_lines.encode(bytes), true) == bytes);
  }));
  CHECK(rc::check("the words of a text join to the text", [&](const std::string& bytes) {
    std::string joined;
    for (const auto& word : words_of(bytes)) joined += word;
    RC_ASSERT(joined == bytes);
  }));
}

TEST_CASE("Ids that are not whole characters decode to valid UTF-8") {
  const Tokenizer tokenizer = Tokenizer::train(text());
  const Ids ids = tokenizer.encode("😀");
  REQUIRE(ids.size() == 4);
  CHECK(tokenizer.decode(std::span(ids).first(3)) == "\uFFFD");
  CHECK_THROWS_AS(tokenizer.decode(Ids{-1}), Error);
  CHECK_THROWS_AS(tokenizer.decode(Ids{tokenizer.vocabulary_size()}), Error);
}

TEST_CASE("Words are split as GPT-2 does") {
  using Words = std::vector<std::string>;
  CHECK(words_of("It's 12 o'clock, isn't it?") ==
        Words{"It", "'s", " 12", " o", "'", "clock", ",", " isn", "'t", " it", "?"});
  CHECK(words_of("a  b   ") == Words{"a", " ", " b", "   "});
  CHECK(words_of("a\t\tb\n") == Words{"a", "\t", "\t", "b", "\n"});
  CHECK(words_of("a \u00a0b") == Words{"a", " ", "\u00a0", "b"});
  CHECK(words_of("'ll'lL") == Words{"'ll", "'", "lL"});
  CHECK(words_of("").empty());
}

TEST_CASE("Bytes without a token are reported") {
  CHECK(Tokenizer::load(folder / "few_bytes.json").missing_bytes().size() > 100);
}

TEST_CASE("Long words take no more than n log n steps") {
  const Tokenizer tokenizer = Tokenizer::load(folder / "whole_lines.json");
  const std::string longest(400'000, 'e');
  CHECK(tokenizer.decode_bytes(tokenizer.encode(longest)) == longest);
}

TEST_CASE("A tokenizer may be used by several threads") {
  const Tokenizer tokenizer = Tokenizer::load(folder / "plain.json");
  const auto lines = text();
  std::vector<std::vector<Ids>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (const auto& line : lines) result.push_back(tokenizer.encode(line));
    });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == results.front());
}

TEST_CASE("A saved file is the file that was saved") {
  const auto path = std::filesystem::temp_directory_path() / "heed_tokenizer_test.json";
  const Tokenizer tokenizer = Tokenizer::train(text());
  tokenizer.save(path);
  CHECK(Tokenizer::load(path).to_json() == tokenizer.to_json());
  std::filesystem::remove(path);
  CHECK_THROWS_AS(Tokenizer::load(path), Error);
  CHECK_THROWS_AS(tokenizer.save(path / "no" / "folder.json"), Error);
}

TEST_CASE("Training options that cannot work are refused") {
  TokenizerTraining options;
  options.vocabulary_size = 259;
  CHECK_THROWS_WITH_AS(Tokenizer::train(text(), options),
                       "a vocabulary of 259 is too small: the special tokens and the 256 bytes alone are 260",
                       Error);
  options = {};
  options.special_tokens = {"<s>", "<s>"};
  CHECK_THROWS_WITH_AS(Tokenizer::train(text(), options), "special token \"<s>\" is given twice", Error);
  options.special_tokens = {"\xff"};
  CHECK_THROWS_AS(Tokenizer::train(text(), options), Error);
  CHECK_THROWS_AS(Tokenizer::train(std::vector<std::string>{"", ""}), Error);
}

TEST_CASE("Damaged files are refused with the path and what is wrong") {
  REQUIRE(error_of(small_file()) == "no error");
  Json file = small_file();
  file.erase("model");
  CHECK(error_of(file) == "t.json: model is missing");
  file = small_file();
  file["model"]["vocab"]["a"] = 7;
  CHECK(error_of(file) ==
        "t.json: token \"a\" has id 7, but a vocabulary of 4 must use the ids 0 to 3, each once");
  file["model"]["vocab"]["a"] = 2;
  CHECK(error_of(file) == "t.json: tokens \"a\" and \"b\" share the id 2");
  for (const Json& bad : {Json(-1), Json(1.5), Json("1"), Json(nullptr), Json(std::uint64_t{1} << 63)}) {
    file["model"]["vocab"]["a"] = bad;
    CHECK(error_of(file).find("not a token id") != std::string::npos);
  }
  file = small_file();
  file["model"]["merges"][0] = {"a", "c"};
  CHECK(error_of(file) == "t.json: model.merges[0] names \"c\", which is not in the vocabulary");
  file["model"]["merges"][0] = {"b", "a"};
  CHECK(error_of(file) == "t.json: merge 0 gives \"ba\", which is not in the vocabulary");
  file["model"]["merges"][0] = "a b c";
  CHECK(error_of(file) == "t.json: model.merges[0] is neither two strings nor \"left right\"");
  file["model"]["merges"][0] = "a b";
  CHECK(error_of(file) == "no error");
  file = small_file();
  file["added_tokens"][0]["id"] = 1;
  CHECK(error_of(file) == "t.json: added token \"<s>\" has id 1, but the vocabulary gives it 0");
  file["added_tokens"][0]["content"] = "<new>";
  CHECK(error_of(file) == "t.json: added token \"<new>\" has id 1; the next free id is 4");
  CHECK_THROWS_AS(Tokenizer::from_json("{\"model\": ", "t.json"), Error);
  CHECK_THROWS_AS(Tokenizer::from_json("", "t.json"), Error);
  CHECK_THROWS_AS(Tokenizer::from_json("[1]", "t.json"), Error);
  CHECK_THROWS_AS(Tokenizer::from_json(std::string(100'000, '['), "t.json"), Error);
}

TEST_CASE("Every cut and every changed byte of a file gives an Error or a tokenizer, never a crash") {
  const std::string whole = small_file().dump();
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK_THROWS_AS(Tokenizer::from_json(std::string_view(whole).substr(0, length), "t"), Error);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '\xff', '"', '9', ']'}) {
      std::string changed = whole;
      changed[at] = byte;
      try {
        const Tokenizer tokenizer = Tokenizer::from_json(changed, "t");
        tokenizer.decode(tokenizer.encode("ab <s>"));
      } catch (const Error&) {
      }
    }
  }
}

TEST_CASE("What the fuzzer starts from and has found gives an Error or a tokenizer") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "../../fuzz/corpus/tokenizer")) {
    CAPTURE(entry.path().string());
    const std::string bytes = read_file(entry.path());
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(bytes, "corpus");
      CHECK(Tokenizer::from_json(tokenizer.to_json(), "written").encode(bytes) == tokenizer.encode(bytes));
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("corpus: "));
    }
    ++files;
  }
  CHECK(files > 0);
}

TEST_CASE("Parts that encode() cannot follow are refused by name") {
  const auto refusal = [](const char* pointer, const Json& value) {
    Json file = small_file();
    file[Json::json_pointer(pointer)] = value;
    return error_of(file);
  };
  CHECK(refusal("/model/type", "WordPiece") == "t.json: model \"WordPiece\" is not supported (BPE is)");
  CHECK(refusal("/model/dropout", 0.1) == "t.json: model.dropout is not supported");
  CHECK(refusal("/model/byte_fallback", true) == "t.json: model.byte_fallback is not supported");
  CHECK(refusal("/model/end_of_word_suffix", "</w>") == "t.json: model.end_of_word_suffix is not supported");
  CHECK(refusal("/model/unk_token", "<unk>") == "t.json: unk_token \"<unk>\" is not in the vocabulary");
  CHECK(refusal("/pre_tokenizer", nullptr) ==
        "t.json: pre_tokenizer is missing: only byte-level BPE is supported");
  CHECK(refusal("/pre_tokenizer/type", "Metaspace") ==
        "t.json: pre_tokenizer \"Metaspace\" is not supported (ByteLevel is)");
  CHECK(refusal("/decoder/type", "WordPiece") ==
        "t.json: decoder \"WordPiece\" is not supported (ByteLevel is)");
  CHECK(refusal("/normalizer", {{"type", "StripAccents"}}) ==
        "t.json: normalizer \"StripAccents\" is not supported (NFC, NFD, NFKC, NFKD, Lowercase and Sequence "
        "of these are)");
  CHECK(refusal("/truncation", {{"max_length", 5}}).starts_with("t.json: truncation is set"));
}
