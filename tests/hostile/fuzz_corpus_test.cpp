// Every input that a fuzzer starts from or has found, under the properties that the fuzzer demands; one that
// does not hold aborts.

#include "heed/tests/fuzz/fuzz_support.h"
#include "heed/tests/support.h"

namespace {

using heed::fuzz::Fuzzer;

/// Runs an input whole and cut anywhere; whether the whole was accepted.
bool run_cut(const Fuzzer& fuzzer, std::string_view input) {
  const bool whole = fuzzer.run(input);
  for (std::size_t length = input.size(); length > 0;) fuzzer.run(input.substr(0, length = length * 3 / 4));
  return whole;
}

}  // namespace

TEST_CASE("What the fuzzers start from and have found holds their properties") {
  for (const Fuzzer& fuzzer : heed::fuzz::fuzzers()) {
    CAPTURE(fuzzer.parser);
    int inputs = 0, accepted = 0;
    for (const auto& [name, input] : heed::fuzz::corpus(std::string(fuzzer.parser) + "/")) {
      ++inputs;
      accepted += run_cut(fuzzer, input) ? 1 : 0;
    }
    CHECK(inputs > 0);
    if (fuzzer.parser != "pipeline_cache") CHECK(accepted > 0);  // a cache belongs to a driver
    if (fuzzer.parser == "run_manifest" || fuzzer.parser == "trainer_state" || fuzzer.parser == "metrics")
      CHECK(accepted < inputs);
    if (fuzzer.parser != "tokenizer") continue;
    for (const auto& entry : std::filesystem::directory_iterator(HEED_SOURCE_DIR "/tests/data/tokenizer"))
      if (entry.path().extension() == ".json") run_cut(fuzzer, heed::read_file(entry.path()));
  }
}
