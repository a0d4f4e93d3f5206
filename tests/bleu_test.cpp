#include "heed/training/text_metrics.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/file.h"

using namespace heed;

namespace {

BleuOptions options_of(const nlohmann::json& one) {
  BleuOptions options;
  options.lower_case = one["lower_case"].get<bool>();
  if (one["tokens"] == "none") options.tokens = BleuTokens::none;
  if (one["smoothing"] == "none") options.smoothing = BleuSmoothing::none;
  return options;
}

}  // namespace

TEST_CASE("BLEU equals sacreBLEU's score and counts") {
  const auto path = std::filesystem::path(HEED_SOURCE_DIR) / "tests/data/bleu/cases.json";
  const auto cases = nlohmann::json::parse(read_file(path));
  REQUIRE(cases.size() > 50);
  for (const auto& one : cases) {
    CAPTURE(one.dump());
    const auto bleu = corpus_bleu(one["hypotheses"].get<std::vector<std::string>>(),
                                  one["references"].get<std::vector<std::string>>(), options_of(one));
    CHECK(bleu.score == doctest::Approx(one["score"].get<double>()).epsilon(1e-10));
    CHECK(bleu.matches == one["matches"].get<std::array<std::int64_t, 4>>());
    CHECK(bleu.totals == one["totals"].get<std::array<std::int64_t, 4>>());
    CHECK(bleu.hypothesis_length == one["lengths"][0]);
    CHECK(bleu.reference_length == one["lengths"][1]);
    CHECK(bleu.brevity_penalty == doctest::Approx(one["penalty"].get<double>()).epsilon(1e-10));
    CHECK(bleu.signature.starts_with(one["signature"].get<std::string>() + "|version:heed-"));
  }
}

TEST_CASE("BLEU's tokens are those of mteval-v13a") {
  CHECK(bleu_tokenize("Hello, world.") == "Hello , world .");
  CHECK(bleu_tokenize("3.50 and 1,000, or 5-6") == "3.50 and 1,000 , or 5 - 6");
  CHECK(bleu_tokenize("&quot;a&quot; &amp;lt; b") == "\" a \" < b");
  CHECK(bleu_tokenize("don't (stop) <skipped>now") == "don't ( stop ) now");
  CHECK(bleu_tokenize("wait...what") == "wait . . . what");
  CHECK(bleu_tokenize(" a \u00a0 b. ", BleuTokens::none) == "a b.");
  CHECK(bleu_tokenize("") == "");
}

TEST_CASE("BLEU takes bytes that are not UTF-8 as parts of words") {
  const std::vector<std::string> lines = {"a \xff\xfe b c d"};
  CHECK(corpus_bleu(lines, lines).score == doctest::Approx(100));
}

TEST_CASE("BLEU refuses unequal and empty lists") {
  const std::vector<std::string> one = {"a"}, two = {"a", "b"};
  CHECK_THROWS_WITH_AS(corpus_bleu(one, two),
                       "BLEU compares line by line, but there are 1 hypotheses and 2 references", Error);
  CHECK_THROWS_AS(corpus_bleu({}, {}), Error);
}
