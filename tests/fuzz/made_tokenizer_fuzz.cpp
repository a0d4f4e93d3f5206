#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "fuzz_choices.h"
#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/tokenizer.h"

using Json = nlohmann::json;

// A tokenizer.json of another program's making, with a vocabulary, merges and added tokens by the input: an
// Error or a tokenizer that encodes any bytes, in which without normaliser no known byte is lost, and that
// its own file gives again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzChoices choices({reinterpret_cast<const char*>(data), size});
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
  try {
    const auto tokenizer = heed::Tokenizer::from_json(file.dump(), "made");
    const auto ids = tokenizer.encode(text);
    for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
    const bool stripped = std::any_of(added.begin(), added.end(), [](const Json& one) {
      return one["lstrip"] == true || one["rstrip"] == true;
    });
    const bool as_it_stands =
        file["normalizer"].is_null() && file["pre_tokenizer"]["add_prefix_space"] == false;
    if (as_it_stands && !stripped && tokenizer.unknown_characters(text).empty())
      require(tokenizer.decode_bytes(ids, true) == text);
    const auto again = heed::Tokenizer::from_json(tokenizer.to_json(), "written");
    require(again.encode(text) == ids && again.to_json() == tokenizer.to_json());
  } catch (const heed::Error&) {
  }
  return 0;
}
