#include "heed/text/tokenizer.h"

#include <rapidcheck.h>

#include <nlohmann/json.hpp>

#include "heed/base/unicode.h"
#include "heed/tests/support.h"
#include "heed/text/tokenizer_parts.h"

using Json = nlohmann::json;
using Ids = Ints;

namespace {

// Files made by Hugging Face tokenizers; make_cases.py beside them says how.
const std::filesystem::path folder = std::filesystem::path(HEED_SOURCE_DIR) / "tests/data/tokenizer";

std::vector<std::string> lines_in(const std::string& name) {
  std::vector<std::string> lines;
  std::istringstream stream(read_file(folder / name));
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> text() {
  return lines_in("text.txt");
}

/// The same, and lines in scripts with vowel signs, joiners and other marks.
std::vector<std::string> text_with_marks() {
  std::vector<std::string> lines = text();
  for (std::string& line : lines_in("marks.txt")) lines.push_back(std::move(line));
  return lines;
}

Json case_file(const std::string& name) {
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

/// Why a tokenizer file is refused, or "".
std::string tokenizer_error(const Json& file) {
  return error_of([&] { Tokenizer::from_json(file.dump(), "t.json"); });
}

/// What TokenMatcher promises, tried out at each place.
std::vector<std::pair<std::string, int>> segments_by_hand(const std::vector<std::string>& patterns,
                                                          std::string_view text) {
  std::vector<std::pair<std::string, int>> segments;
  std::string between;
  const auto put = [&] {
    if (!between.empty()) segments.emplace_back(std::exchange(between, {}), -1);
  };
  while (!text.empty()) {
    std::size_t best = patterns.size();
    for (std::size_t p = 0; p < patterns.size(); ++p)
      if (!patterns[p].empty() && text.starts_with(patterns[p]) &&
          (best == patterns.size() || patterns[p].size() > patterns[best].size()))
        best = p;
    if (best == patterns.size()) {
      between += text.front();
      text.remove_prefix(1);
      continue;
    }
    put();
    segments.emplace_back(patterns[best], static_cast<int>(best));
    text.remove_prefix(patterns[best].size());
  }
  put();
  return segments;
}

std::vector<std::pair<std::string, int>> segments_of(const std::vector<std::string>& patterns,
                                                     std::string_view text) {
  std::vector<TokenMatcher::Pattern> tokens;
  for (std::size_t p = 0; p < patterns.size(); ++p) {
    tokens.push_back({patterns[p], {}});
    tokens.back().token.id = static_cast<std::int32_t>(p);
  }
  std::vector<std::pair<std::string, int>> segments;
  for (const Segment& segment : TokenMatcher(tokens).split(text))
    segments.emplace_back(segment.text, segment.id.value_or(-1));
  return segments;
}

std::vector<std::string> split_words_of(std::string_view text, WordSplit split = WordSplit::gpt2) {
  const auto words = split_words(text, split);
  return {words.begin(), words.end()};
}

}  // namespace

TEST_CASE("Words of Llama 3 and Qwen2: capitals of contractions, marks before letters, numbers, line ends") {
  using List = std::vector<std::string>;
  const auto llama = [](std::string_view text) { return split_words_of(text, WordSplit::llama3); };
  CHECK(llama("I'LL say it'S") == List{"I", "'LL", " say", " it", "'S"});
  CHECK(llama("'\u017Ft '\u017F") == List{"'\u017F", "t", " '", "\u017F"});
  CHECK(llama("(word \"x\" \ta") == List{"(word", " \"", "x", "\"", " ", "\ta"});
  CHECK(llama("12345 1") == List{"123", "45", " ", "1"});
  CHECK(split_words_of("123", WordSplit::qwen2) == List{"1", "2", "3"});
  CHECK(llama("end.\r\n\n  two \n x  y ") ==
        List{"end", ".\r\n\n", " ", " two", " \n", " x", " ", " y", " "});
  CHECK(llama("\n\n  ") == List{"\n\n", "  "});
  CHECK(llama(" ?! \xFFx") == List{" ?!", " \xFF", "x"});
}

TEST_CASE("Words of SmolLM2: a text is cut at every number before it is split as GPT-2's") {
  using List = std::vector<std::string>;
  CHECK(split_words_of("a 12 b  3", WordSplit::digits) == List{"a", " ", "1", "2", " b", "  ", "3"});
  CHECK(split_words_of("it's 4th", WordSplit::digits) == List{"it", "'s", " ", "4", "th"});
  CHECK(split_words_of("½x  y", WordSplit::digits) == List{"½", "x", " ", " y"});
}

TEST_CASE("Pre-tokenizers of Llama 3, Qwen2 and SmolLM2 are told by their patterns, and others refused") {
  Json file = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    file["model"]["vocab"][spell_bytes({&text, 1})] = byte;
  }
  for (const WordSplit split : {WordSplit::digits, WordSplit::llama3, WordSplit::qwen2}) {
    file["pre_tokenizer"] = Json::parse(byte_level_pre_tokenizer(false, split));
    file["pre_tokenizer"]["pretokenizers"][1].erase("trim_offsets");  // which changes no word
    const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "t.json");
    CHECK(tokenizer.decode(tokenizer.encode("It'S 123\n")) == "It'S 123\n");
    CHECK(Tokenizer::from_json(tokenizer.to_json(), "written").to_json() == tokenizer.to_json());
  }
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+";
  CHECK_ERROR(Tokenizer::from_json(file.dump(), "t.json"), "pre_tokenizer");
}

TEST_CASE("Files made by Hugging Face tokenizers give the same ids and texts") {
  std::map<std::string, Tokenizer> tokenizers;
  const Json cases = case_file("cases.json");
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
  const std::vector<std::string> lines = text_with_marks();
  CHECK(Json::parse(Tokenizer::train(lines, options).to_json()) == case_file("whole_plain.json"));
  options.add_prefix_space = true;
  CHECK(Json::parse(Tokenizer::train(lines, options).to_json()) == case_file("whole_prefix_space.json"));
  options.add_prefix_space = false;
  options.normalizer = {TextStep::nfkc, TextStep::lower_case};
  CHECK(Json::parse(Tokenizer::train(lines, options).to_json()) == case_file("whole_lower_case.json"));
  options.vocabulary_size = 340;
  options.normalizer.clear();
  options.split_words = false;
  CHECK(Json::parse(Tokenizer::train(text(), options).to_json()) == case_file("whole_lines.json"));
  options.vocabulary_size = 60;
  options.normalizer = {TextStep::lower_case};
  CHECK(Json::parse(Tokenizer::train_words(text(), options).to_json()) == case_file("words.json"));
}

TEST_CASE("A file that is read and written again says the same") {
  for (const char* name : {"plain", "prefix_space", "whole_lines", "lower_case", "whole_plain",
                           "whole_prefix_space", "whole_lower_case", "composed", "few_bytes", "dropped_bytes",
                           "words", "word_piece", "unigram", "unigram_bytes"})
    CHECK(Json::parse(Tokenizer::load(folder / (std::string(name) + ".json")).to_json()) ==
          case_file(std::string(name) + ".json"));
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
  CHECK_THROWS_WITH_AS(tokenizer.id_of("<mask>"), "the tokenizer has no token \"<mask>\" (nor [MASK])",
                       Error);
  CHECK_THROWS_WITH_AS(tokenizer.id_of(""), "the tokenizer has no token \"\"", Error);
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
    for (const auto& word : split_words_of(bytes, WordSplit::whole)) joined += word;
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
  CHECK(split_words_of("It's 12 o'clock, isn't it?") ==
        Words{"It", "'s", " 12", " o", "'", "clock", ",", " isn", "'t", " it", "?"});
  CHECK(split_words_of("a  b   ") == Words{"a", " ", " b", "   "});
  CHECK(split_words_of("a\t\tb\n") == Words{"a", "\t", "\t", "b", "\n"});
  CHECK(split_words_of("a \u00a0b") == Words{"a", " ", "\u00a0", "b"});
  CHECK(split_words_of("'ll'lL") == Words{"'ll", "'", "lL"});
  CHECK(split_words_of("").empty());
}

TEST_CASE("Words that heed learns keep their vowel signs, joiners and other marks") {
  using Words = std::vector<std::string>;
  const auto words = [](std::string_view text) { return split_words_of(text, WordSplit::whole); };
  CHECK(split_words_of("वाह जी") == Words{"व", "ा", "ह", " ज", "ी"});
  CHECK(words("वाह जी!") == Words{"वाह", " जी", "!"});
  CHECK(words("می‌خواهم") == Words{"می‌خواهم"});
  CHECK(words("ab\u00adc\u200bd") == Words{"ab\u00adc", "\u200b", "d"});
  CHECK(words("1\ufe0f\u20e3a") == Words{"1\ufe0f\u20e3", "a"});
  CHECK(words("\u0301a \u0301!\u0301a") == Words{"\u0301", "a", " \u0301!\u0301", "a"});
  CHECK(words("It's  12 o'clock") == split_words_of("It's  12 o'clock"));
}

TEST_CASE("Bytes without a token are reported") {
  CHECK(Tokenizer::load(folder / "few_bytes.json").missing_bytes().size() > 100);
}

TEST_CASE("Long words take no more than n log n steps") {
  const Tokenizer tokenizer = Tokenizer::load(folder / "whole_lines.json");
  const std::string longest(400'000, 'e');
  CHECK(tokenizer.decode_bytes(tokenizer.encode(longest)) == longest);
}

TEST_CASE("A character of ASCII joins the words that its Unicode category says") {
  for (char c = 0; c < 0x7F; ++c) {
    CAPTURE(static_cast<int>(c));
    const auto value = static_cast<char32_t>(c);
    const auto joins = [&](char before) { return split_words_of(std::string{before, c}).size() == 1; };
    CHECK(joins('a') == unicode::is_letter(value));
    CHECK(joins('0') == unicode::is_number(value));
    CHECK(joins('\t') == unicode::is_space(value));
  }
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

TEST_CASE(
    "A long text gives the tokens of its words, and a long text to learn from the vocabulary of its lines") {
  // Lines end after letters, marks and spaces of several kinds, some of which a cut must not part.
  const std::vector<std::string> parts = {"word", " two", "\n",   "\n", ".\n",    "\u00a0\n",
                                          " \n",  "\n\n", "वाह",  "😀",  "\u0301", "\xff\n",
                                          "7\n ", "it's", "\t\n", "x"};
  std::string text;
  for (std::uint64_t i = 0; text.size() < (std::size_t{5} << 19); ++i)
    text += parts[below(random_word({1, 0, 0}, i), parts.size())];
  const auto check_words = [&](const Tokenizer& tokenizer, std::span<const std::string_view> words) {
    std::map<std::string_view, Ids> known;
    Ids expected;
    for (const std::string_view word : words) {
      const auto [place, is_new] = known.try_emplace(word);
      if (is_new) place->second = tokenizer.encode(word);
      expected.insert(expected.end(), place->second.begin(), place->second.end());
    }
    CHECK(tokenizer.encode(text) == expected);
  };
  const std::vector<std::string> learned_from{text};
  const Tokenizer whole = Tokenizer::train(learned_from), gpt2 = Tokenizer::load(folder / "plain.json");
  check_words(whole, split_words(text, WordSplit::whole));
  check_words(gpt2, split_words(text, WordSplit::gpt2));

  std::vector<std::string> lines{""};  // cut where a line break begins a word
  for (const std::string_view word : split_words(text, WordSplit::whole)) {
    if (word.starts_with('\n')) lines.emplace_back();
    lines.back() += word;
  }
  CHECK(whole.to_json() == Tokenizer::train(lines).to_json());

  std::erase(text, '\xff');  // a tokenizer of characters learns from UTF-8 alone
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < text.size(); at += characters.back().size())
    characters.push_back(
        std::string_view(text).substr(at, static_cast<std::size_t>(unicode::decode(text, at).length)));
  check_words(Tokenizer::train_characters(std::vector{text}, {"<unk>"}), characters);
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
  REQUIRE(tokenizer_error(small_file()) == "");
  Json file = small_file();
  file.erase("model");
  CHECK(tokenizer_error(file) == "t.json: model is missing");
  file = small_file();
  file["model"]["vocab"]["a"] = 65544;
  CHECK(tokenizer_error(file) ==
        "t.json: model.vocab: token \"a\" has id 65544, but a vocabulary of 4 must use ids below 65544");
  file["model"]["vocab"]["a"] = 2;
  CHECK(tokenizer_error(file) == "t.json: model.vocab: tokens \"a\" and \"b\" share the id 2");
  for (const Json& bad : {Json(-1), Json(1.5), Json("1"), Json(nullptr), Json(std::uint64_t{1} << 63)}) {
    file["model"]["vocab"]["a"] = bad;
    CHECK(contains(tokenizer_error(file), "not a token id"));
  }
  file = small_file();
  file["model"]["merges"][0] = {"a", "c"};
  CHECK(tokenizer_error(file) == "t.json: model.merges[0] names \"c\", which is not in the vocabulary");
  file["model"]["merges"][0] = {"b", "a"};
  CHECK(tokenizer_error(file) == "t.json: merge 0 gives \"ba\", which is not in the vocabulary");
  file["model"]["merges"][0] = "a b c";
  CHECK(tokenizer_error(file) == "t.json: model.merges[0] is neither two strings nor \"left right\"");
  file["model"]["merges"][0] = "a b";
  CHECK(tokenizer_error(file) == "");
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

TEST_CASE("Parts that encode() cannot follow are refused by name") {
  const auto refusal = [](const char* pointer, const Json& value) {
    Json file = small_file();
    file[Json::json_pointer(pointer)] = value;
    return tokenizer_error(file);
  };
  CHECK(refusal("/model/type", "Char") ==
        "t.json: model \"Char\" is not supported (BPE, WordLevel, WordPiece and Unigram are)");
  CHECK(refusal("/model/dropout", 0.1) == "t.json: model.dropout is not supported");
  CHECK(refusal("/model/byte_fallback", true)
            .starts_with("t.json: model.byte_fallback is not supported with pre_tokenizer ByteLevel"));
  CHECK(refusal("/model/end_of_word_suffix", "</w>") == "t.json: model.end_of_word_suffix is not supported");
  CHECK(refusal("/model/unk_token", "<unk>") == "t.json: unk_token \"<unk>\" is not in the vocabulary");
  CHECK(refusal("/pre_tokenizer", nullptr) ==
        "t.json: decoder ByteLevel is only supported with pre_tokenizer ByteLevel");
  CHECK(refusal("/pre_tokenizer/type", "UnicodeScripts")
            .starts_with("t.json: pre_tokenizer \"UnicodeScripts\" is not supported ("));
  CHECK(refusal("/decoder/type", "WordPiece")
            .starts_with("t.json: decoder \"WordPiece\" is not supported (for pre_tokenizer ByteLevel,"));
  CHECK(refusal("/normalizer", {{"type", "ByteLevel"}})
            .starts_with("t.json: normalizer \"ByteLevel\" is not supported (NFC, "));
  CHECK(refusal("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}})
            .starts_with("t.json: normalizer \"Replace\" of the regular expression \"a+\" is not supported"));
  CHECK(refusal("/truncation", {{"max_length", 5}}).starts_with("t.json: truncation is set"));
}

TEST_CASE("Added tokens: the longest at each place, from left to right") {
  using Segments = std::vector<std::pair<std::string, int>>;
  CHECK(segments_of({"ab", "abc", "bcd"}, "abcdxabd") ==
        Segments{{"abc", 1}, {"dx", -1}, {"ab", 0}, {"d", -1}});
  CHECK(segments_of({"a", "a", ""}, "ba") == Segments{{"b", -1}, {"a", 0}});
  CHECK(rc::check("as tried out at each place", [&] {
    const auto letters = [](int most) {
      return *rc::gen::resize(most, rc::gen::container<std::string>(rc::gen::elementOf(std::string("aab"))));
    };
    std::vector<std::string> patterns;
    for (int p = *rc::gen::inRange(0, 6); p > 0; --p) patterns.push_back(letters(5));
    const std::string text = letters(40);
    RC_ASSERT(segments_of(patterns, text) == segments_by_hand(patterns, text));
  }));
  // Longer than the block that is searched at a time, with a token across the end of it.
  const std::string text =
      std::string(65'530, 'x') + "<mask token>" + std::string(100'000, 'x') + "<mask token>";
  CHECK(segments_of({"<mask token>"}, text) == segments_by_hand({"<mask token>"}, text));
}

TEST_CASE("An added token may begin with the space that the one before it takes") {
  Json file = small_file();
  const auto id = static_cast<std::int32_t>(file["model"]["vocab"].size());
  for (const Json& token :
       {Json{{"id", id}, {"content", "<m>"}, {"rstrip", true}}, Json{{"id", id + 1}, {"content", " <x>"}},
        Json{{"id", id + 2}, {"content", " "}}})
    file["added_tokens"].push_back(token);
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "t.json");
  CHECK(tokenizer.encode("<m> <x>") == Ids{id, id + 1});
  CHECK(tokenizer.encode("<m>   <x>") == Ids{id, id + 2, id + 2, id + 1});
}

TEST_CASE("Letters and numbers of Unicode 16 are letters and numbers") {
  CHECK(split_words("a\U000105C0\uA7CB 1\U00016D70\U0002EBF0", WordSplit::gpt2) ==
        std::vector<std::string_view>{"a\U000105C0\uA7CB", " 1\U00016D70", "\U0002EBF0"});
  CHECK(unicode::lower_case("\uA7CB\uA7CC\uA7DC\u1C89\U00010D50", unicode::FinalSigma::medial) ==
        "\u0264\uA7CD\u019B\u1C8A\U00010D70");
}

TEST_CASE("Added tokens take time by their number, and texts by their length") {
  Json file = small_file();
  Json& added = file["added_tokens"];
  const int count = 80'000;
  for (int i = 0; i < count; ++i)
    added.push_back(
        {{"id", 4 + i}, {"content", "<extra " + std::to_string(i) + ">"}, {"special", i % 2 == 0}});
  file["post_processor"] = {{"type", "TemplateProcessing"}, {"special_tokens", Json::object()}};
  for (int i = 0; i < count; ++i) file["post_processor"]["special_tokens"]["<" + std::to_string(i) + ">"] = i;
  const std::string text = file.dump();
  double begin = cpu_seconds();
  const Tokenizer tokenizer = Tokenizer::from_json(text, "t.json");
  std::string line;
  Ids ids;
  for (int i = count; i > 0; --i) {
    line += "<extra " + std::to_string(i - 1) + ">ab";
    ids.insert(ids.end(), {3 + i, 3});
  }
  CHECK(tokenizer.encode(line) == ids);
  const std::string written = tokenizer.to_json();
  CHECK(cpu_seconds() - begin < 15);  // the square of them took 19 s to read alone
  CHECK(Tokenizer::from_json(written, "t").to_json() == written);
  CHECK(Json::parse(written)["post_processor"] == file["post_processor"]);

  begin = cpu_seconds();
  const std::string run(300'000, 'a');
  const auto segments = segments_of({"a", run + "b"}, run);
  CHECK(segments.size() == run.size());
  CHECK(cpu_seconds() - begin < 5);
}

TEST_CASE("Characters that a tokenizer lacks are found in any bytes") {
  const Tokenizer tokenizer = Tokenizer::from_json(small_file().dump(), "t.json");
  CHECK(tokenizer.unknown_characters("abéxéa") == std::vector<std::string>{"é", "x"});
  // Bytes that begin no character: looking for the beginning of the second one never ended.
  CHECK(tokenizer.unknown_characters("\x80\x80\xbf") == std::vector<std::string>{"\x80", "\xbf"});
  std::string all;
  for (int value = 0x4E00; value < 0x9FFF; ++value) {
    all += static_cast<char>(0xE0 | (value >> 12));
    all += static_cast<char>(0x80 | ((value >> 6) & 0x3F));
    all += static_cast<char>(0x80 | (value & 0x3F));
  }
  CHECK(tokenizer.unknown_characters(all + all).size() == 0x9FFF - 0x4E00);
}

TEST_CASE("Bytes behind a NUL are not left unread") {
  std::string text = small_file().dump();
  text += '\0';
  text += "[";
  CHECK_ERROR(Tokenizer::from_json(text, "t.json"), "t.json: the JSON is not valid JSON: byte ");
  CHECK(tokenizer_error(small_file()) == "");
  Json deep = small_file();
  deep["post_processor"] = Json::parse(std::string(70, '[') + std::string(70, ']'));
  CHECK(tokenizer_error(deep) == "t.json: the JSON is nested too deeply: 64 levels or more");
  deep["post_processor"] = std::string(100, '[') + "\"\\";  // brackets in a text are none
  CHECK(tokenizer_error(deep) == "");
}
