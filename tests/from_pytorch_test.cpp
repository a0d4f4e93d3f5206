// docs/from_pytorch.md: its C++ is that of examples/embed/from_pytorch.cpp, which is compiled and run. Its
// Python is run by bindings/python/tests/test_from_pytorch.py.

#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "heed/base/file.h"

namespace {

/// Without the blanks that lines begin with: what stands in a function is further to the right than in the
/// guide.
std::string unindented(const std::string& text) {
  std::istringstream lines(text);
  std::string all, line;
  while (std::getline(lines, line)) {
    line.erase(0, line.find_first_not_of(' '));
    all += line + '\n';
  }
  return all;
}

}  // namespace

TEST_CASE("from PyTorch: the C++ of the guide stands in the example") {
  const std::string doc = heed::read_file(HEED_SOURCE_DIR "/docs/from_pytorch.md"),
                    example = unindented(heed::read_file(HEED_SOURCE_DIR "/examples/embed/from_pytorch.cpp"));
  const std::string fence = "```cpp\n";
  int blocks = 0;
  for (std::size_t at = doc.find(fence); at != std::string::npos; at = doc.find(fence, at)) {
    const std::size_t begin = at + fence.size(), end = doc.find("```", begin);
    REQUIRE(end != std::string::npos);
    const std::string quoted = unindented(doc.substr(begin, end - begin));
    CHECK_MESSAGE(example.find(quoted) != std::string::npos, quoted);
    at = end + 3;
    ++blocks;
  }
  CHECK(blocks == 13);
}
