// Times a run that several threads ask: how many answers a second, and how long each took, when every thread
// has a run of its own, when all share one, and when they ask a queue that answers together what waits. The
// ways take turns, so that what else the machine does meets all alike.

#include <cstdio>
#include <string>
#include <thread>

#include "bench.h"
#include "heed/apps/tasks/run.h"
#include "heed/heed.h"

namespace {

/// Answers a text that thread `thread` asks.
using Answer = std::function<void(std::size_t thread, const std::string& text)>;

struct Times {
  std::vector<double> each;  // seconds of each answer
  double all = 0;            // seconds of all rounds
};

/// One round: each thread asks all texts, beginning with another.
void ask(const std::vector<std::string>& texts, std::size_t threads, const Answer& answer, Times& times) {
  std::vector<std::vector<double>> each(threads);
  std::vector<std::thread> running;
  const double begin = now();
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const double asked = now();
        answer(t, texts[(i + t * texts.size() / threads) % texts.size()]);
        each[t].push_back(now() - asked);
      }
    });
  for (std::thread& one : running) one.join();
  times.all += now() - begin;
  for (const std::vector<double>& one : each) times.each.insert(times.each.end(), one.begin(), one.end());
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder;
  std::size_t threads = 4, rounds = 5, count = 200;
  heed::QueueOptions options;
  CLI::App app("Times a run that several threads ask");
  app.add_option("run", folder, "The folder of a run, whose own data is asked")->required();
  app.add_option("--threads", threads, "Threads that ask")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--texts", count, "Texts that each asks in a round")
      ->capture_default_str()
      ->check(CLI::Range(1, 500));
  app.add_option("--rounds", rounds, "Rounds of each way")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--max-batch", options.max_batch, "Of the queue")->capture_default_str();
  app.add_option("--workers", options.workers, "Of the queue")->capture_default_str();
  return run_program(app, argc, argv, "bench_serving", [&] {
    std::vector<heed::Run> own;
    for (std::size_t t = 0; t < threads; ++t) own.push_back(heed::Run::open(folder));
    heed::Run shared = heed::Run::open(folder);
    heed::Run with_data = heed::Run::open(folder);
    with_data.learner().read_data();
    const std::vector<std::string> texts = with_data.learner().example_lines(count);
    heed::AnswerQueue queue(shared, options);
    const auto predict = [](heed::Run& run, const std::string& text) {
      static_cast<void>(run.predict({&text, 1}));
    };
    const std::pair<const char*, Answer> ways[] = {
        {"a run each", [&](std::size_t t, const std::string& text) { predict(own[t], text); }},
        {"one run", [&](std::size_t, const std::string& text) { predict(shared, text); }},
        {"queue", [&](std::size_t, const std::string& text) { static_cast<void>(queue.answer(text)); }}};
    Times times[std::size(ways)], warm;
    for (const auto& [name, answer] : ways) ask(texts, threads, answer, warm);
    for (std::size_t round = 0; round < rounds; ++round)
      for (std::size_t way = 0; way < std::size(ways); ++way)
        ask(texts, threads, ways[way].second, times[way]);
    std::printf("%zu threads, %zu texts each, %zu rounds, %lld parameters\n", threads, texts.size(), rounds,
                static_cast<long long>(shared.learner().model().parameter_count()));
    for (std::size_t way = 0; way < std::size(ways); ++way)
      std::printf("%-12s %8.1f answers/s (x %.2f)  p50 %7.2f ms  p99 %7.2f ms\n", ways[way].first,
                  static_cast<double>(times[way].each.size()) / times[way].all, times[0].all / times[way].all,
                  1e3 * quantile(times[way].each, 0.5), 1e3 * quantile(times[way].each, 0.99));
    return 0;
  });
}
