// Damages small runs of every task at random and looks what programs make of them (run_mutations.h).
//
//   mutate_runs --runs 1000 --seed 1 [--task classify]

#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "heed/tests/hostile/run_mutations.h"

namespace {

struct Options {
  std::uint64_t runs = 1000, seed = 1;
  std::vector<std::string> tasks = {"translate", "classify", "language_model", "rate"};
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(flag + " needs a value");
    if (flag == "--runs")
      options.runs = std::stoull(argv[i + 1]);
    else if (flag == "--seed")
      options.seed = std::stoull(argv[i + 1]);
    else if (flag == "--task")
      options.tasks = {argv[i + 1]};
    else
      throw std::invalid_argument("unknown flag " + flag + "; known are --runs, --seed, --task");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    std::uint64_t faults = 0;
    for (const std::string& task : options.tasks) {
      std::uint64_t refused = 0, wrong = 0;
      for (std::uint64_t i = 0; i < options.runs; ++i) {
        const heed::test::MutationResult result = heed::test::check_mutation(task, options.seed + i);
        refused += result.refused ? 1 : 0;
        if (result.fault.empty()) continue;
        ++wrong;
        std::cout << task << ", seed " << options.seed + i << ": " << result.description << ": "
                  << result.fault << std::endl;
      }
      std::cout << task << ": " << options.runs << " damaged runs, " << refused << " refused, " << wrong
                << " wrong, the others answered as the untouched run, or --unverified\n";
      faults += wrong;
    }
    std::cout << faults << " faults\n";
    return faults == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "mutate_runs: error: " << error.what() << '\n';
    return 2;
  }
}
