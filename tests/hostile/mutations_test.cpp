// A few dozen of the mutations that the program mutate_runs does by the thousand.

#include <doctest/doctest.h>

#include "heed/tests/hostile/run_mutations.h"

TEST_CASE("a run that was damaged at random is refused, or gives the results of the untouched one") {
  for (const char* task : {"translate", "classify", "language_model", "rate"}) {
    CAPTURE(task);
    int refused = 0;
    constexpr int runs = 100;
    for (int seed = 1; seed <= runs; ++seed) {
      CAPTURE(seed);
      const heed::test::MutationResult result =
          heed::test::check_mutation(task, static_cast<std::uint64_t>(seed));
      CAPTURE(result.description);
      CHECK(result.fault == "");
      refused += result.refused ? 1 : 0;
    }
    CHECK(refused > runs / 3);  // else the mutations do nothing
  }
}
