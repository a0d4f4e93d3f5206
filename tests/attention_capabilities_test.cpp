// Every variant is held to what it declares, by trying it, and so is the table in the documentation.

#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>

#include "heed/base/file.h"
#include "heed/tests/cases/attention_capabilities.h"

using namespace heed;

namespace {

const std::vector<TriedCapabilities>& tried() {
  static const std::vector<TriedCapabilities> rows = try_all_capabilities();
  return rows;
}

}  // namespace

TEST_CASE("capabilities: every variant does what it declares, and nothing beyond") {
  REQUIRE(tried().size() == attention_variants().size());
  for (std::size_t i = 0; i < tried().size(); ++i) {
    const Capabilities &declared = attention_variants()[i].capabilities, &seen = tried()[i].can;
    CAPTURE(tried()[i].name);
    CHECK(seen.causal == declared.causal);
    if (declared.causal) CHECK(seen.strictly_causal == declared.strictly_causal);
    CHECK(seen.cross == declared.cross);
    if (declared.cross) CHECK(seen.cross_by_step == declared.cross_by_step);
    CHECK(seen.padding == declared.padding);
    CHECK(seen.any_length == declared.any_length);
    CHECK(seen.rotary == declared.rotary);
    CHECK(seen.alibi == declared.alibi);
    CHECK(seen.relative == declared.relative);
    CHECK(seen.deterministic == declared.deterministic);
    // Whoever asks for more is told why not.
    if (!declared.causal || !declared.cross || !declared.cross_by_step) CHECK(!declared.reason.empty());
  }
}

TEST_CASE("capabilities: a variant that breaks its word is found out") {
  // Dot-product attention under a false name: it has all forms, whatever it declares.
  AttentionVariant liar = attention_variant("dot_product");
  liar.capabilities = {};
  const Capabilities seen = try_capabilities(liar).can;
  CHECK(seen.causal);
  CHECK(seen.strictly_causal);
  CHECK(seen.cross);
  CHECK(seen.any_length);
  liar.name = "linformer";  // and one that declares to be causal is refused
  liar.capabilities.causal = true;
  CHECK_FALSE(try_capabilities(liar).can.causal);
}

TEST_CASE("capabilities: the table in docs/attention.md is the one that the variants make") {
  const std::string path = std::string(HEED_SOURCE_DIR) + "/docs/attention.md";
  const std::string begin = "<!-- capabilities: made by ./dev docs -->\n",
                    end = "<!-- end of capabilities -->\n";
  const std::string text = read_file(path);
  const std::size_t first = text.find(begin), last = text.find(end);
  REQUIRE(first != std::string::npos);
  REQUIRE(last != std::string::npos);
  const std::string before = text.substr(0, first + begin.size()), after = text.substr(last);
  const std::string expected = before + capability_table(tried(), true) + after;
  if (std::getenv("HEED_WRITE_DOCS") && expected != text) write_file_atomically(path, expected);
  CHECK_MESSAGE(read_file(path) == expected, "the table is out of date: ./dev docs makes it anew");
}

TEST_CASE("capabilities: the table lines up for terminals") {
  const std::string table = capability_table(tried(), false);
  std::istringstream lines(table);
  std::string header, first;
  std::getline(lines, header);
  std::getline(lines, first);
  CHECK(header.starts_with("variant"));
  CHECK(first.starts_with("dot_product"));
  CHECK(header.find("causal") == first.find("strictly"));
}
