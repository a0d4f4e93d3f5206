#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "heed/base/error.h"
#include "heed/data/sentencepiece.h"
#include "heed/data/tokenizer.h"

/// Any bytes as a model file of SentencePiece: an Error, or a tokenizer of which every second piece has an
/// id.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto model = heed::read_sentencepiece({reinterpret_cast<const char*>(data), size}, "input");
    std::vector<std::string> tokens = {"</s>", "<unk>"};
    for (std::size_t i = 0; i < model.pieces.size(); i += 2) tokens.push_back(model.pieces[i].text);
    const auto made = heed::sentencepiece_tokenizer(model, tokens);
    const auto tokenizer = heed::Tokenizer::from_json(made.json, "made");
    for (const std::int32_t id : tokenizer.encode("the old tree \xF0\x9F\x8C\xB3"))
      if (id < 0 || id >= tokenizer.vocabulary_size()) std::abort();
  } catch (const heed::Error&) {
  }
  return 0;
}
