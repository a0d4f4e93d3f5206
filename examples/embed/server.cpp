// A server: a run, trained on generated commands for a house, answers requests from several
// threads. They share its weights, and a queue batches waiting requests.
//
//   server [THREADS]

#include <heed/heed.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <iostream>
#include <string>
#include <vector>

namespace {

struct Commands {
  std::vector<std::string> texts, labels;
};

Commands commands(std::size_t count, std::uint64_t seed) {
  const std::vector<std::string> things = {"lamp", "heating", "radio"}, states = {"on", "off"},
                                 rooms = {"kitchen", "hall", "bedroom", "cellar", "garage"},
                                 polite = {"", "please ", "could you ", "i want you to "};
  heed::Draws draws({seed});
  Commands made;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string &thing = draws.pick(things), &state = draws.pick(states);
    const std::string& other = draws.pick(things);  // of which nothing is wanted
    made.texts.push_back(draws.pick(polite) + "turn the " + thing + ' ' + state + " in the " +
                         draws.pick(rooms) + ", not the " + other);
    made.labels.push_back(thing + ' ' + state);
  }
  return made;
}

void train(const std::filesystem::path& folder) {
  const auto [texts, labels] = commands(2000, 1);
  const heed::Examples examples[] = {{"train", {texts, labels}}};
  const heed::TaskEntry& entry = heed::task_entry("classify");
  heed::Settings settings = entry.settings(true);
  for (const char* one : {"training.steps=200", "model.width=32", "model.heads=2"}) settings.assign(one);
  heed::train(entry, settings, {.folder = folder, .examples = examples});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int threads = argc > 1 ? std::stoi(argv[1]) : 4;
    const heed::TemporaryFolder folder;
    train(folder / "run");

    const Commands requests = commands(2000, 2);
    std::vector<heed::Prediction> answers(requests.texts.size());
    std::atomic<std::size_t> next = 0;
    heed::Run run = heed::Run::open(folder / "run");
    heed::AnswerQueue queue(run);
    const auto serve = [&] {
      for (std::size_t i = next++; i < answers.size(); i = next++)
        answers[i] = queue.answer(requests.texts[i]);
    };
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::future<void>> workers;
    for (int i = 0; i < threads; ++i) workers.push_back(std::async(std::launch::async, serve));
    for (std::future<void>& worker : workers) worker.get();  // an error of a thread is thrown here
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

    std::size_t right = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) right += answers[i].text == requests.labels[i];
    std::cout << requests.texts[0] << " -> " << answers[0].text << " (" << answers[0].probability << ")\n"
              << right << " of " << answers.size() << " answers are right; " << threads << " threads gave "
              << static_cast<double>(answers.size()) / seconds.count() << " a second\n";
    return 10 * right > 9 * answers.size() ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "server: " << error.what() << '\n';
    return 1;
  }
}
