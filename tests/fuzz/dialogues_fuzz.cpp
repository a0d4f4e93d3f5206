#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/dialogues.h"

// Any bytes as dialogues: an Error, or turns that say something and are UTF-8.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  try {
    const auto dialogues = heed::parse_dialogues(input.bytes, "input", input.text_options());
    for (const heed::Dialogue& turns : dialogues) {
      require(!turns.empty());
      for (const std::string& turn : turns) {
        require(!turn.empty() && turn.find(heed::turn_end) == std::string::npos);
        require(heed::unicode::find_invalid(turn) == std::string::npos);
      }
    }
    require(heed::answers_in(dialogues, 2).source.size() == heed::answers_in(dialogues, 1).target.size());
  } catch (const heed::Error&) {
  }
  return 0;
}
