// The program that measures the costs of attention by length.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/models/attention/attention.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/run_records.h"

using namespace heed;
using namespace heed::test;

namespace {

using Arguments = std::vector<std::string>;

ProgramResult bench(Arguments more) {
  Arguments arguments{"bench", "attention"};
  // As short as it gets, but for what a test asks for itself.
  const std::vector<std::pair<std::string, std::string>> small{
      {"--width", "16"}, {"--heads", "2"}, {"--repetitions", "1"}};
  for (const auto& [flag, value] : small)
    if (std::find(more.begin(), more.end(), flag) == more.end())
      arguments.insert(arguments.end(), {flag, value});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program("heed", arguments);
}

}  // namespace

TEST_CASE("heed bench attention --json: a line per variant and length") {
  const ProgramResult result = bench({"--variants", "all", "--lengths", "24,12", "--json"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(result.errors.empty());
  std::set<std::string> measured, variants;
  for (const nlohmann::json& line : json_lines(result.output)) {
    CAPTURE(line.dump());
    const std::string variant = line.at("variant");
    CHECK((line.at("length") == 12 || line.at("length") == 24));
    CHECK(line.at("ms").get<double>() > 0);
    CHECK(line.at("peak_mb").get<double>() > 0);
    CHECK((line.at("parameters").get<int>() > 0) == (variant != "fnet"));  // which has none
    CHECK(line.at("flops").get<double>() > 0);
    CHECK(line.size() == 6);
    measured.insert(variant + line.at("length").dump());
    variants.insert(variant);
  }
  CHECK(variants.size() == heed::attention_variants().size() + 1);  // and the composed dot product
  CHECK(variants.count("dot_product_composed") == 1);
  CHECK(measured.size() == 2 * variants.size());
}

TEST_CASE("heed bench attention counts the operations of a layer") {
  const ProgramResult result = bench({"--variants", "dot_product_composed", "--lengths", "32", "--json"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const nlohmann::json line = json_lines(result.output).at(0);
  // Forward, and twice as much backward: four projections and two products with N x N weights.
  CHECK(line.at("flops") == 3.0 * (4 * 2 * 32 * 16 * 16 + 2 * 2 * 32 * 32 * 16));
  CHECK(line.at("parameters") == 4 * 16 * 16);
}

TEST_CASE("heed bench attention: settings of a variant, causal forms, and a table for people") {
  const ProgramResult result = bench(
      {"--variants", "reformer,linformer", "--lengths", "24,48", "--causal", "--set", "reformer.rounds=1"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(contains(result.output, "peak MB"));
  CHECK(contains(result.output, "skipped: it has no causal form"));
}

TEST_CASE("heed bench attention leaves out what would need too much memory, and says so") {
  const ProgramResult result = bench(
      {"--variants", "dot_product_composed", "--lengths", "16,32,512", "--json", "--memory-limit", "2"});
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  const std::vector<nlohmann::json> lines = json_lines(result.output);
  REQUIRE(lines.size() == 3);
  CHECK(lines[2].at("length") == 512);
  CHECK(contains(lines[2].at("skipped"), "more than the limit of 2 MB"));
}

TEST_CASE("heed bench attention explains what it cannot do") {
  const auto refused = [](Arguments arguments, const std::string& part) {
    CAPTURE(part);
    const ProgramResult result = bench(std::move(arguments));
    CHECK(result.status == 2);
    CHECK(result.output.empty());
    CHECK(contains(result.errors, part));
  };
  refused({"--variants", "longfromer"}, "did you mean 'longformer'?");
  refused({"--variants", "all", "--lengths", "0"}, "lengths must be positive");
  refused({"--lengths", "many"}, "--lengths");
  refused({"--heads", "3"}, "is not a multiple of 3 heads");
  refused({"--repetitions", "-1"}, "repetitions must be positive");
  refused({"--set", "refromer.rounds=3"}, "did you mean 'reformer'?");
  refused({"--device", "gpu"}, "device");
  for (const char* limit : {"-1", "nan"})
    refused({"--memory-limit", limit}, "memory-limit must be 0 or more");
  refused({"--variants", "dot_product,reformer", "--set", "reformer.rounds=0"}, "'rounds' must be 1 to 128");
}
