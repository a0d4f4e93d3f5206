// Runs that were damaged at random, and what programs make of them.
//
//   HEED_MUTATIONS=1000 heed_tests --source-file='*/mutations_test.cpp'   does so many for each task

#include <nlohmann/json.hpp>
#include <random>

#include "heed/tests/hostile/small_runs.h"

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

/// Random choices that are the same with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(engine_() % bound);
  }
  template <class T>
  const T& pick(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 engine_;
};

std::vector<std::string> files_of(const fs::path& run) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(run))
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> with_ending(const std::vector<std::string>& names, const std::string& ending) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (name.ends_with(ending)) found.push_back(name);
  return found;
}

// --- mutations: each says what it did, or "" when there was nothing to do

std::string on_bytes(const fs::path& path, const char* what,
                     const std::function<void(std::string&)>& change) {
  std::string content = content_of(path);
  if (content.empty()) return "";
  const std::string before = content;
  change(content);
  if (content == before) return "";
  write_content(path, content);
  return what + (" of " + path.filename().string());
}

std::string flip_bits(const fs::path& run, const fs::path&, Dice& dice) {
  return on_bytes(run / dice.pick(files_of(run)), "bits", [&](std::string& content) {
    for (std::size_t i = 0, count = 1 + dice.below(8); i < count; ++i) {
      char& byte = content[dice.below(content.size())];
      byte = static_cast<char>(byte ^ (1 << dice.below(8)));
    }
  });
}

std::string truncate(const fs::path& run, const fs::path&, Dice& dice) {
  return on_bytes(run / dice.pick(files_of(run)), "the end",
                  [&](std::string& content) { content.resize(dice.below(content.size())); });
}

std::string insert_bytes(const fs::path& run, const fs::path&, Dice& dice) {
  return on_bytes(run / dice.pick(files_of(run)), "bytes inserted into the middle",
                  [&](std::string& content) {
                    std::string bytes(1 + dice.below(64), '\0');
                    for (char& byte : bytes) byte = static_cast<char>(dice.below(256));
                    content.insert(dice.below(content.size() + 1), bytes);
                  });
}

std::string zero_range(const fs::path& run, const fs::path&, Dice& dice) {
  return on_bytes(run / dice.pick(files_of(run)), "zeros in the middle", [&](std::string& content) {
    const std::size_t first = dice.below(content.size());
    const std::size_t count = std::min(content.size() - first, 1 + dice.below(4096));
    std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(first), count, '\0');
  });
}

std::string change_lines(const fs::path& run, const fs::path&, Dice& dice) {
  const std::string name = dice.pick(files_of(run));
  if (name.ends_with(".safetensors")) return "";
  return on_bytes(run / name, "lines", [&](std::string& content) {
    std::vector<std::string> lines;
    std::istringstream stream(content);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    const auto at = static_cast<std::ptrdiff_t>(dice.below(lines.size()));
    const std::string line = lines[static_cast<std::size_t>(at)];
    const std::size_t kind = dice.below(3);
    if (kind == 0) lines.insert(lines.begin() + at, line);
    if (kind == 1) lines.erase(lines.begin() + at);
    if (kind == 2) std::swap(lines[static_cast<std::size_t>(at)], lines[dice.below(lines.size())]);
    content.clear();
    for (const std::string& one : lines) content += one + "\n";
  });
}

std::string delete_file(const fs::path& run, const fs::path&, Dice& dice) {
  const std::string name = dice.pick(files_of(run));
  fs::remove(run / name);
  return name + " deleted";
}

std::string take_from_other(const fs::path& run, const fs::path& other, Dice& dice) {
  const std::string name = dice.pick(files_of(other));
  fs::copy_file(other / name, run / name, fs::copy_options::overwrite_existing);
  return name + " of another run";
}

std::string take_from_itself(const fs::path& run, const fs::path&, Dice& dice) {
  const std::string from = dice.pick(files_of(run)), to = dice.pick(files_of(run));
  if (from == to) return "";
  fs::copy_file(run / from, run / to, fs::copy_options::overwrite_existing);
  return from + " in place of " + to;
}

std::string leave_commit(const fs::path& run, const fs::path& other, Dice& dice) {
  const std::string name = dice.pick(with_ending(files_of(other), ".safetensors"));
  fs::create_directories(run / "checkpoint.new");
  fs::copy_file(other / name, run / "checkpoint.new" / name, fs::copy_options::overwrite_existing);
  return name + " of another run in checkpoint.new";
}

/// Where the tensors of a safetensors file lie: first byte and count.
std::vector<std::pair<std::size_t, std::size_t>> places_of_tensors(const std::string& content) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::uint64_t length = 0;
  if (content.size() < sizeof length) return places;
  std::memcpy(&length, content.data(), sizeof length);
  if (length > content.size() - sizeof length) return places;
  const std::size_t data = sizeof length + length;
  const OrderedJson header = OrderedJson::parse(content.substr(sizeof length, length), nullptr, false);
  if (!header.is_object()) return places;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") continue;
    const auto first = value["data_offsets"][0].get<std::size_t>(),
               end = value["data_offsets"][1].get<std::size_t>();
    if (first <= end && end <= content.size() - data)  // unless an earlier mutation cut the file
      places.emplace_back(data + first, end - first);
  }
  return places;
}

/// Two tensors of one size change places, or one is taken from another run.
std::string exchange_tensors(const fs::path& run, const fs::path& other, Dice& dice) {
  const std::vector<std::string> names = with_ending(files_of(run), ".safetensors");
  if (names.empty()) return "";
  const std::string name = dice.pick(names);
  const bool from_other = dice.below(2) == 0;
  return on_bytes(run / name, from_other ? "a tensor of another run's" : "two tensors exchanged",
                  [&](std::string& content) {
                    const auto places = places_of_tensors(content);
                    if (places.empty()) return;
                    const auto [at, count] = dice.pick(places);
                    if (from_other) {
                      const std::string bytes = content_of(other / name);
                      if (bytes.size() == content.size()) content.replace(at, count, bytes, at, count);
                      return;
                    }
                    std::vector<std::size_t> alike;
                    for (const auto& [first, size] : places)
                      if (size == count && first != at) alike.push_back(first);
                    if (alike.empty()) return;
                    const auto one = content.begin() + static_cast<std::ptrdiff_t>(at),
                               to = content.begin() + static_cast<std::ptrdiff_t>(dice.pick(alike));
                    std::swap_ranges(one, one + static_cast<std::ptrdiff_t>(count), to);
                  });
}

void collect_numbers(OrderedJson& value, std::vector<OrderedJson*>& numbers) {
  if (value.is_number()) numbers.push_back(&value);
  if (value.is_structured())
    for (OrderedJson& part : value) collect_numbers(part, numbers);
}

std::string extreme_number(const fs::path& run, const fs::path&, Dice& dice) {
  static const std::vector<std::string> extremes = words(
      "0 -1 1 2147483648 4294967296 9223372036854775807 -9223372036854775808 18446744073709551615 "
      "1e300 -1e300 0.5 1e-300 6e70 null");
  const std::vector<std::string> names = with_ending(files_of(run), ".json");
  if (names.empty()) return "";
  return on_bytes(run / dice.pick(names), "an extreme number", [&](std::string& content) {
    OrderedJson json = OrderedJson::parse(content, nullptr, false);
    if (json.is_discarded()) return;
    std::vector<OrderedJson*> numbers;
    collect_numbers(json, numbers);
    if (numbers.empty()) return;
    *numbers[dice.below(numbers.size())] = OrderedJson::parse(dice.pick(extremes));
    content = json.dump(2) + "\n";
  });
}

std::string permute_list(const fs::path& run, const fs::path&, Dice& dice) {
  std::string name = "classes.json";
  if (!fs::exists(run / name)) name = "tokenizer.json";
  if (!fs::exists(run / name)) return "";
  return on_bytes(run / name, "the order", [&](std::string& content) {
    OrderedJson json = OrderedJson::parse(content, nullptr, false);
    if (json.is_discarded()) return;
    OrderedJson* list = json.is_array() ? &json : nullptr;
    if (json.is_object() && json.contains("model") && json["model"].contains("merges"))
      list = &json["model"]["merges"];
    if (!list || list->size() < 2) return;
    std::swap((*list)[dice.below(list->size())], (*list)[dice.below(list->size())]);
    content = json.dump(2) + "\n";
  });
}

using Mutation = std::string (*)(const fs::path& run, const fs::path& other, Dice& dice);
const std::vector<Mutation> mutations = {flip_bits,    truncate,         insert_bytes,    zero_range,
                                         change_lines, delete_file,      take_from_other, take_from_itself,
                                         leave_commit, exchange_tensors, extreme_number,  permute_list};

// --- what is run

/// A command on a run, and what counts of its results.
struct Use {
  std::string name;
  Arguments arguments;  // before "--out" or "--run" and the folder
  bool trains = false;
};

std::vector<Use> uses_of(const std::string& task) {
  return {{"predict", predict_command(task)},
          {"evaluate", {"evaluate"}},
          {"train --resume", {"train", "--resume", "--steps", "30"}, true}};
}

ProgramResult run_use(const std::string& task, Use use, const fs::path& run, bool verify = true) {
  if (!verify) use.arguments.push_back("--unverified");
  const std::string input = small_line(task) + "\n" + small_line(task);
  return run_program(task, joined(use.arguments, {use.trains ? "--out" : "--run", run.string()}),
                     use.trains ? "" : input, ".", {.seconds = most_seconds});
}

/// The files of a run that say what it answers; as they are, but for what the metrics say of time.
std::string results_of(const Use& use, const fs::path& run, const ProgramResult& result) {
  if (!use.trains) return result.output;
  std::string all;
  for (const std::string& name : files_of(run)) {
    if (name.ends_with(".safetensors") && name != "optimizer.safetensors")
      all += name + tensors_of(run / name);
    if (name == "tokenizer.json" || name == "classes.json" || name == "config.json")
      all += content_of(run / name);
  }
  return all;
}

/// Of the untouched run.
const std::string& expected_results(const std::string& task, const Use& use) {
  static std::map<std::string, std::string> all;
  const auto found = all.find(task + use.name);
  if (found != all.end()) return found->second;
  const TemporaryFolder folder;
  copy_run(small_run(task), folder / "run");
  const ProgramResult result = run_use(task, use, folder / "run");
  check(result.status == 0, "the untouched run failed: ", result.errors);
  return all.emplace(task + use.name, results_of(use, folder / "run", result)).first->second;
}

/// Damages a copy of a small run; what was done.
std::string damage(const fs::path& run, const fs::path& other, Dice& dice) {
  std::string description;
  for (std::size_t done = 0, count = 1 + dice.below(2); done < count;) {
    const std::string what = dice.pick(mutations)(run, other, dice);
    if (what.empty()) continue;
    description += what + ", ";
    ++done;
  }
  return description;
}

/// Damages a copy of a small run of a task's program at random; the same seed, the same damage. Then a
/// command reads the run, or goes on with it: it fails with status 1 or 2, or its results are those of the
/// untouched run, to the last bit. One command in four takes the run --unverified: its results may be others.
/// Returns whether it failed.
bool check_mutation(const std::string& task, std::uint64_t seed) {
  Dice dice(seed * 1000003 + task.size());
  const Use use = dice.pick(uses_of(task));
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  copy_run(small_run(task), run);
  const std::string damaged = damage(run, small_run(task, 2), dice);
  const bool verify = dice.below(4) > 0;
  CAPTURE_ALL(damaged, use.name, verify);
  const ProgramResult found = run_use(task, use, run, verify);
  CAPTURE(found.errors);
  CHECK_FALSE(found.hung);
  CHECK(found.peak_bytes <= most_bytes);
  if (found.status == 1 || found.status == 2)
    CHECK(contains(found.errors, task + ": error: "));
  else
    CHECK(found.status == 0);
  if (found.status == 0 && verify) {
    const bool same = results_of(use, run, found) == expected_results(task, use);
    CHECK(same);
  }
  return found.status != 0;
}

}  // namespace

TEST_CASE("a run that was damaged at random is refused, or gives the results of the untouched one") {
  const char* const wanted = std::getenv("HEED_MUTATIONS");
  const int runs = wanted ? std::atoi(wanted) : sanitized ? 25 : 100;
  for (const char* task : {"translate", "classify", "language_model", "tag", "own_task"}) {
    CAPTURE(task);
    int refused = 0;
    for (int seed = 1; seed <= runs; ++seed) {
      CAPTURE(seed);
      refused += check_mutation(task, static_cast<std::uint64_t>(seed)) ? 1 : 0;
    }
    CHECK(refused > runs / 3);  // else the mutations do nothing
  }
}
