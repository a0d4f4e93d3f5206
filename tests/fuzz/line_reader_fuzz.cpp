#include "fuzz_memory_file.h"
#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/text_file.h"

// Any bytes as input by lines: the very lines that read_lines gives, or for each an error where that stops at
// the first.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  const MemoryFile file(input.bytes);
  const heed::TextOptions options = input.text_options();
  std::vector<std::string> lines;
  bool all_are_good = true;
  try {
    heed::LineReader reader(file.name(), options);
    for (auto some = reader.next(3); !some.empty(); some = reader.next(3)) {
      require(some.size() <= 3);
      for (const heed::InputLine& line : some) {
        require(line.error.empty() || line.text.empty());
        require(heed::unicode::find_invalid(line.text) == std::string::npos);
        all_are_good = all_are_good && line.error.empty();
        lines.push_back(line.text);
      }
      require(reader.line_number() == static_cast<std::int64_t>(lines.size()));
    }
  } catch (const heed::Error&) {
    all_are_good = false;
  }
  try {
    const auto whole = heed::parse_lines(input.bytes, "input", options);
    require(all_are_good && whole == heed::TextList(lines));
  } catch (const heed::Error&) {
    // An empty file, and one that is too long, are no errors by lines.
    require(!all_are_good || lines.empty() || input.bytes.size() > 64);
  }
  return 0;
}
