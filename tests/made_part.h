#pragma once

#include "heed/tests/support.h"

namespace heed::test {

/// Checks that a page holds `content` between "<!-- NAME: made by ./dev docs -->" and "<!-- end of
/// NAME -->". With HEED_WRITE_DOCS it is written there first.
inline void check_made_part(const std::string& page, const std::string& name, const std::string& content) {
  CAPTURE(page);
  const std::string path = std::string(HEED_SOURCE_DIR) + "/" + page;
  const std::string begin = "<!-- " + name + ": made by ./dev docs -->\n",
                    end = "<!-- end of " + name + " -->\n";
  const std::string text = read_file(path);
  const std::size_t first = text.find(begin), last = text.find(end);
  REQUIRE(first != std::string::npos);
  REQUIRE(last != std::string::npos);
  const std::string expected = text.substr(0, first + begin.size()) + content + text.substr(last);
  if (std::getenv("HEED_WRITE_DOCS") && expected != text) write_file_atomically(path, expected);
  CHECK_MESSAGE(read_file(path) == expected, "the table is out of date: ./dev docs makes it anew");
}

}  // namespace heed::test
