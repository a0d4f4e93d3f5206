// Fuzzers of tokenizers' files: as they come, and made by the input so that they mean something.

#include "fuzz_support.h"
#include "heed/text/sentencepiece.h"
#include "heed/text/tokenizer.h"

namespace heed::fuzz {
namespace {

using Json = nlohmann::json;

/// An entry of a tokenizer.json's "added_tokens", with flags by the input.
Json added_token(FuzzChoices& choices, const std::string& content, std::int64_t id) {
  const unsigned flags = choices.below(32);
  return {{"id", id},
          {"content", content},
          {"single_word", (flags & 1) != 0},
          {"lstrip", (flags & 2) != 0},
          {"rstrip", (flags & 4) != 0},
          {"normalized", (flags & 8) != 0},
          {"special", (flags & 16) != 0}};
}

/// A small vocabulary, each text once; the first entries are those that the models need.
std::vector<std::string> made_vocabulary(FuzzChoices& choices) {
  std::vector<std::string> tokens = {"[UNK]", "a", "##a", "▁", "▁a"};
  for (unsigned left = choices.below(10); left > 0; --left) {
    std::string token = choices.below(3) == 0 ? "##" : "";
    token += choices.text();
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
  return tokens;
}

Json made_model(FuzzChoices& choices, const std::vector<std::string>& tokens) {
  const unsigned kind = choices.below(4);
  Json model = {{"type", std::array{"WordLevel", "WordPiece", "Unigram", "BPE"}[kind]}};
  if (kind == 2) {
    model["vocab"] = Json::array();
    for (const std::string& token : tokens)
      model["vocab"].push_back({token, -0.25 * static_cast<double>(choices.below(64))});
    model["byte_fallback"] = choices.below(2) == 1;
    if (choices.below(4) > 0) model["unk_id"] = 0;
    return model;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) model["vocab"][tokens[i]] = i;
  model["unk_token"] = "[UNK]";
  if (kind == 3) {
    model["byte_fallback"] = choices.below(2) == 1;
    model["fuse_unk"] = choices.below(2) == 1;
    model["merges"] = Json::array();
    for (const std::string& left : tokens)
      for (const std::string& right : tokens)
        if (model["vocab"].contains(left + right) && choices.below(2) == 1)
          model["merges"].push_back({left, right});
  }
  if (kind == 1) {
    model["continuing_subword_prefix"] = choices.below(4) == 0 ? "" : "##";
    model["max_input_chars_per_word"] = choices.below(12);
  }
  return model;
}

Json made_part(FuzzChoices& choices, const std::vector<const char*>& parts) {
  const unsigned part = choices.below(static_cast<unsigned>(parts.size()) + 1);
  return part == parts.size() ? Json() : Json::parse(parts[part]);
}

const std::vector<const char*> made_normalizers = {
    R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true})",
    R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,"strip_accents":true,"lowercase":false})",
    R"({"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"StripAccents"},{"type":"Lowercase"}]})",
    R"({"type":"Replace","pattern":{"String":"a"},"content":"bb"})", R"({"type":"NFKC"})"};
const std::vector<const char*> made_pre_tokenizers = {
    R"({"type":"BertPreTokenizer"})",
    R"({"type":"Whitespace"})",
    R"({"type":"WhitespaceSplit"})",
    R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})",
    R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})",
    R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation","behavior":"Isolated"},{"type":"WhitespaceSplit"}]})"};
const std::vector<const char*> made_decoders = {
    R"({"type":"WordPiece","prefix":"##","cleanup":true})",
    R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})",
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})"};

}  // namespace

// Any bytes as a tokenizer.json: an Error or a tokenizer that encodes, decodes, and survives writing.
bool fuzz_tokenizer(std::string_view bytes) {
  return accepted(
      [&] {
        const auto tokenizer = Tokenizer::from_json(bytes, "input");
        // The end of the file serves as text: it is full of the tokens that the file names.
        const auto text = bytes.substr(bytes.size() - std::min<std::size_t>(bytes.size(), 1000));
        const auto ids = tokenizer.encode(text);
        tokenizer.decode(ids, true);
        tokenizer.unknown_characters(bytes);
        const auto again = Tokenizer::from_json(tokenizer.to_json(), "written");
        require(again.encode(text) == ids);
        require(again.encode("ab <s> é") == tokenizer.encode("ab <s> é"));
      },
      "input: ");
}

// Any bytes as a model file of SentencePiece: an Error, or a tokenizer of which every second piece has an
// id.
bool fuzz_sentencepiece(std::string_view bytes) {
  return accepted([&] {
    const auto model = read_sentencepiece(bytes, "input");
    std::vector<std::string> tokens = {"</s>", "<unk>"};
    for (std::size_t i = 0; i < model.pieces.size(); i += 2)
      if (model.pieces[i].text != tokens[0] && model.pieces[i].text != tokens[1])
        tokens.push_back(model.pieces[i].text);
    const auto made = sentencepiece_tokenizer(model, tokens);
    const auto tokenizer = Tokenizer::from_json(made.json, "made");
    for (const std::int32_t id : tokenizer.encode("the old tree \xF0\x9F\x8C\xB3"))
      require(id >= 0 && id < tokenizer.vocabulary_size());
  });
}

// A tokenizer.json of another program's making, with a vocabulary, merges and added tokens by the input: an
// Error or a tokenizer that encodes any bytes, in which without normaliser no known byte is lost, and that
// its own file gives again.
bool fuzz_made_tokenizer(std::string_view bytes) {
  FuzzChoices choices(bytes);
  Json file = Json::parse(R"({"normalizer": null, "decoder": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "BPE"}})");
  file["pre_tokenizer"]["add_prefix_space"] = choices.below(2) == 1;
  file["pre_tokenizer"]["use_regex"] = choices.below(2) == 1;
  static constexpr std::array<const char*, 5> steps = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"};
  if (const unsigned step = choices.below(10); step < steps.size())
    file["normalizer"] = {{"type", steps[step]}};
  Json& vocabulary = file["model"]["vocab"] = Json::object();
  Json& merges = file["model"]["merges"] = Json::array();
  int next = 0;
  for (const char* letter : {"a", "b", "c", "Ġ", "Ã", "©"}) vocabulary[letter] = next++;
  for (unsigned left = choices.below(8); left > 0; --left) {
    const std::string first = choices.text(), second = choices.text();
    for (const std::string& token : {first, second, first + second})
      if (!vocabulary.contains(token)) vocabulary[token] = next++;
    merges.push_back({first, second});
  }
  file["model"]["ignore_merges"] = choices.below(2) == 1;
  file["model"]["fuse_unk"] = choices.below(2) == 1;
  if (choices.below(2) == 1) file["model"]["unk_token"] = "a";
  Json& added = file["added_tokens"] = Json::array();
  for (unsigned left = choices.below(6); left > 0; --left) {
    const std::string content = choices.text();
    const bool is_known = vocabulary.contains(content);
    added.push_back(added_token(choices, content, is_known ? vocabulary[content].get<int>() : next));
    next += is_known ? 0 : 1;
  }
  const std::string_view text = choices.rest();
  return accepted([&] {
    const auto tokenizer = Tokenizer::from_json(file.dump(), "made");
    const auto ids = tokenizer.encode(text);
    for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
    const bool stripped = std::any_of(added.begin(), added.end(), [](const Json& one) {
      return one["lstrip"] == true || one["rstrip"] == true;
    });
    const bool as_it_stands =
        file["normalizer"].is_null() && file["pre_tokenizer"]["add_prefix_space"] == false;
    if (as_it_stands && !stripped && tokenizer.unknown_characters(text).empty())
      require(tokenizer.decode_bytes(ids, true) == text);
    const auto again = Tokenizer::from_json(tokenizer.to_json(), "written");
    require(again.encode(text) == ids && again.to_json() == tokenizer.to_json());
  });
}

// A tokenizer.json of whole words, WordPiece or Unigram, with normaliser, pre-tokenizer, decoder and added
// tokens by the input: an Error or a tokenizer that encodes any bytes within its vocabulary, decodes them,
// and that its own file gives again.
bool fuzz_made_words(std::string_view bytes) {
  FuzzChoices choices(bytes);
  const std::vector<std::string> tokens = made_vocabulary(choices);
  Json file = {{"model", made_model(choices, tokens)},
               {"normalizer", made_part(choices, made_normalizers)},
               {"pre_tokenizer", made_part(choices, made_pre_tokenizers)},
               {"decoder", made_part(choices, made_decoders)},
               {"added_tokens", Json::array()}};
  auto next = static_cast<std::int64_t>(tokens.size());
  for (unsigned left = choices.below(4); left > 0; --left) {
    const std::string content = choices.text();
    const auto known = std::find(tokens.begin(), tokens.end(), content);
    file["added_tokens"].push_back(
        added_token(choices, content, known == tokens.end() ? next++ : known - tokens.begin()));
  }
  const std::string_view text = choices.rest();
  return accepted([&] {
    const auto tokenizer = Tokenizer::from_json(file.dump(), "made");
    const auto ids = tokenizer.encode(text);
    for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
    tokenizer.decode(ids, true);
    tokenizer.unknown_characters(text);
    const auto again = Tokenizer::from_json(tokenizer.to_json(), "written");
    require(again.encode(text) == ids && again.to_json() == tokenizer.to_json());
    require(again.decode_bytes(ids, false) == tokenizer.decode_bytes(ids, false));
  });
}

}  // namespace heed::fuzz
