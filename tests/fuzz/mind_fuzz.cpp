#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/mind.h"

// Any bytes as MIND's files: an Error, or news and impressions whose numbers have names. Byte 0 chooses
// options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  heed::NewsNames names;
  const auto known = [&](std::int32_t number) { return number >= 0 && std::size_t(number) < names.size(); };
  try {
    for (const heed::News& news : heed::parse_news(input.bytes, "input", names, input.text_options()))
      require(known(news.number) && !names.name(news.number).empty());
  } catch (const heed::Error&) {
  }
  try {
    for (const heed::Impression& one :
         heed::parse_impressions(input.bytes, "input", names, input.text_options())) {
      require(one.time >= 0 && one.clicked.size() + one.passed.size() > 0);
      for (const auto* list : {&one.history, &one.clicked, &one.passed})
        for (const std::int32_t number : *list) require(known(number));
    }
  } catch (const heed::Error&) {
  }
  return 0;
}
