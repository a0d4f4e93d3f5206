#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "fuzz_choices.h"
#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/tokenizer.h"

namespace {

using MadeJson = nlohmann::json;

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

MadeJson made_model(FuzzChoices& choices, const std::vector<std::string>& tokens) {
  const unsigned kind = choices.below(3);
  MadeJson model = {{"type", std::array{"WordLevel", "WordPiece", "Unigram"}[kind]}};
  if (kind == 2) {
    model["vocab"] = MadeJson::array();
    for (const std::string& token : tokens)
      model["vocab"].push_back({token, -0.25 * static_cast<double>(choices.below(64))});
    model["byte_fallback"] = choices.below(2) == 1;
    if (choices.below(4) > 0) model["unk_id"] = 0;
    return model;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) model["vocab"][tokens[i]] = i;
  model["unk_token"] = "[UNK]";
  if (kind == 1) {
    model["continuing_subword_prefix"] = choices.below(4) == 0 ? "" : "##";
    model["max_input_chars_per_word"] = choices.below(12);
  }
  return model;
}

MadeJson made_part(FuzzChoices& choices, const std::vector<const char*>& parts) {
  const unsigned part = choices.below(static_cast<unsigned>(parts.size()) + 1);
  return part == parts.size() ? MadeJson() : MadeJson::parse(parts[part]);
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

// A tokenizer.json of whole words, WordPiece or Unigram, with normaliser, pre-tokenizer, decoder and added
// tokens by the input: an Error or a tokenizer that encodes any bytes within its vocabulary, decodes them,
// and that its own file gives again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzChoices choices({reinterpret_cast<const char*>(data), size});
  const std::vector<std::string> tokens = made_vocabulary(choices);
  MadeJson file = {{"model", made_model(choices, tokens)},
                   {"normalizer", made_part(choices, made_normalizers)},
                   {"pre_tokenizer", made_part(choices, made_pre_tokenizers)},
                   {"decoder", made_part(choices, made_decoders)},
                   {"added_tokens", MadeJson::array()}};
  auto next = static_cast<std::int64_t>(tokens.size());
  for (unsigned left = choices.below(4); left > 0; --left) {
    const std::string content = choices.text();
    const auto known = std::find(tokens.begin(), tokens.end(), content);
    file["added_tokens"].push_back(
        added_token(choices, content, known == tokens.end() ? next++ : known - tokens.begin()));
  }
  const std::string_view text = choices.rest();
  try {
    const auto tokenizer = heed::Tokenizer::from_json(file.dump(), "made");
    const auto ids = tokenizer.encode(text);
    for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
    tokenizer.decode(ids, true);
    tokenizer.unknown_characters(text);
    const auto again = heed::Tokenizer::from_json(tokenizer.to_json(), "written");
    require(again.encode(text) == ids && again.to_json() == tokenizer.to_json());
    require(again.decode_bytes(ids, false) == tokenizer.decode_bytes(ids, false));
  } catch (const heed::Error&) {
  }
  return 0;
}
