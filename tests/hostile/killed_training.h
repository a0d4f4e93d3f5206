#pragma once

#include <csignal>
#include <random>

#include "heed/tests/hostile/small_runs.h"

namespace heed::test {

/// Returns how often trainings are killed: HEED_KILLS, or `by_default`.
inline int kills_wanted(int by_default) {
  const char* wanted = std::getenv("HEED_KILLS");
  return wanted ? std::atoi(wanted) : by_default;
}

/// Kills a task's program at random moments (SIGKILL) while it trains with the small settings, and
/// resumes it, again and again. The weights must equal those of an undisturbed training. `more`:
/// flags of both. A training that finishes before it was killed often enough is started again.
inline void check_killed_training(const std::string& task, int kills, const Arguments& more = {}) {
  using Clock = std::chrono::steady_clock;
  const TemporaryFolder folder;
  // Long enough to be killed many times in one training, however fast the machine is.
  const Arguments flags = joined({"--save-every", "3", "--steps", std::to_string(20 + 20 * kills)}, more);
  const auto start = Clock::now();
  const ProgramResult whole = run_program(task, small_train(task, folder / "whole", flags));
  REQUIRE_MESSAGE(whole.status == 0, whole.errors);
  const std::string expected = tensors_of(folder / "whole/model.safetensors");
  const std::string best = tensors_of(folder / "whole/best.safetensors");
  // The start of a program is a good part of a training: many kills meet it, and the first moments of a run.
  const auto longest =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count() / (kills + 1) +
      100'000;

  std::mt19937_64 random(task.size());
  int done = 0;
  for (int training = 0; done < kills; ++training) {
    const std::filesystem::path run = folder / std::to_string(training);
    const auto arguments = [&] {
      return small_train(task, run,
                         std::filesystem::exists(run / "config.json") ? joined(flags, {"--resume"}) : flags);
    };
    while (done < kills) {
      BackgroundProgram program(task, arguments());
      std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<std::uint64_t>(longest)));
      if (!program.running()) break;
      program.send(SIGKILL);
      program.wait();
      ++done;
    }
    const ProgramResult last = run_program(task, arguments());
    // A training that was done has nothing left to do.
    REQUIRE_MESSAGE(last.status == 0, last.errors);
    CHECK(tensors_of(run / "model.safetensors") == expected);
    CHECK(tensors_of(run / "best.safetensors") == best);
  }
}

}  // namespace heed::test
