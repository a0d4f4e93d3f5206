#include "heed/tests/hostile/small_runs.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::vector<std::string> for_all = {
    "threads=1",
    "model.width=16",
    "model.feed_forward=16",
    "model.heads=2",
    "tokenizer.vocabulary=280",
    "training.steps=20",
    "training.batch_tokens=256",
    "training.evaluate_every=10",
    "training.save_every=10",
    "training.log_every=5",
    "training.schedule.warmup_steps=5",
};

const std::map<std::string, std::vector<std::string>> for_task = {
    {"translate",
     {"data.numbers=300", "data.held_out_numbers=20", "model.encoder_layers=1", "model.decoder_layers=1",
      "decoding.length_extra=2"}},
    {"classify", {"data.listops.count=200", "model.encoder_layers=1"}},
    {"match", {"data.questions=60"}},
    {"embed_text", {"data.numbers=300", "data.held_out_numbers=20", "model.encoder_layers=1"}},
    {"language_model",
     {"data.sentences=300", "data.held_out_sentences=20", "model.decoder_layers=1", "model.max_length=32",
      "generation.tokens=20", "evaluation.sentences=5"}},
    {"summarize",
     {"data.reports=300", "data.held_out_reports=20", "model.encoder_layers=1", "model.decoder_layers=1",
      "decoding.length_extra=2"}},
    {"converse",
     {"data.dialogues=60", "data.held_out_dialogues=5", "model.encoder_layers=1", "model.decoder_layers=1",
      "decoding.length_extra=10"}},
    {"recommend", {"data.impressions=200", "model.encoder_layers=1", "user.max_history=8"}},
    {"rate", {"model.positions=learned"}},
    {"tag", {"model.positions=learned"}},
    {"own_task", {"model.positions=learned"}},
};

fs::path train_small_run(const std::string& task, int seed, const fs::path& out) {
  const ProgramResult result =
      run_program(task, small_run_train(task, out, {"--seed", std::to_string(seed)}));
  check(result.status == 0, "a small run of ", task, " could not be trained: ", result.errors);
  return out;
}

std::string described(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return "gone";
  if (S_ISREG(status.st_mode)) return "file " + content_of(path);
  if (S_ISLNK(status.st_mode)) return "link " + fs::read_symlink(path).string();
  return concat_text("mode ", status.st_mode, " device ", status.st_rdev);
}

}  // namespace

std::vector<std::string> small_settings(const std::string& task) {
  const auto own = for_task.find(task);
  check(own != for_task.end(), "the task ", task,
        " has no small settings yet: add a line to tests/hostile/small_runs.cpp");
  std::vector<std::string> settings = for_all;
  if (task == "own_task")  // its words are whole
    std::erase_if(settings, [](const std::string& one) { return one.starts_with("tokenizer."); });
  settings.insert(settings.end(), own->second.begin(), own->second.end());
  return settings;
}

Settings small_settings_of(const TaskEntry& entry, const std::vector<std::string>& more, bool own_data) {
  Settings settings = entry.settings(own_data);
  for (const std::string& setting : small_settings(std::string(entry.name))) settings.assign(setting);
  for (const std::string& setting : more) settings.assign(setting);
  return settings;
}

Arguments small_flags(const std::string& task) {
  Arguments flags;
  for (const std::string& setting : small_settings(task)) flags.insert(flags.end(), {"--set", setting});
  return flags;
}

Arguments small_train(const std::string& task, const fs::path& out, const Arguments& more) {
  return joined(joined({"train", "--out", out.string()}, small_flags(task)), more);
}

Arguments small_run_train(const std::string& task, const fs::path& out, const Arguments& more) {
  Arguments arguments = small_train(task, out);
  if (task == "classify")
    arguments =
        joined(arguments, {"--data", small_texts().string(), "--format", "lines", "--test-fraction", "0.2"});
  return joined(arguments, more);
}

const fs::path& small_run(const std::string& task, int seed) {
  static const TemporaryFolder folder;
  static std::map<std::string, fs::path> runs;
  const std::string name = task + "_" + std::to_string(seed);
  const auto found = runs.find(name);
  if (found != runs.end()) return found->second;
  return runs.emplace(name, train_small_run(task, seed, folder / name)).first->second;
}

void copy_run(const fs::path& from, const fs::path& to) {
  fs::copy(from, to, fs::copy_options::recursive);
}

fs::path small_texts() {
  static const TemporaryFolder folder;
  static const fs::path path = [] {
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += concat_text(i % 2 == 0 ? "good a fine day number " : "bad a sad night number ", i, '\n');
    return write_content(folder / "texts", text);
  }();
  return path;
}

std::string small_line(const std::string& task) {
  return task == "classify"         ? "a fine day number 3\n"
         : task == "match"          ? "where is emma ?\temma waits in the garden .\n"
         : task == "language_model" ? "the cat\n"
         : task == "summarize"      ? "on monday the baker helped the miller.\n"
         : task == "converse"       ? "hello , i am ann from rome .\n"
         : task == "recommend"      ? "N1 N2 N7\tN250 N260 N255\n"
                                    : "forty-two\n";
}

Arguments predict_command(const std::string& task) {
  if (task != "language_model") return {"predict"};
  return {"generate", "--prompts", "--tokens", "10"};
}

Arguments use_command(const std::string& task, const std::string& run, const Arguments& more) {
  return joined(joined(predict_command(task), {"--run", run}), more);
}

std::vector<std::string> error_lines(const std::string& program, const std::string& errors) {
  std::vector<std::string> lines;
  std::istringstream stream(errors);
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(program + ": error: ") && !contains(line, "lines without an answer"))
      lines.push_back(line);
  return lines;
}

void check_refused(const std::string& program, const ProgramResult& result, const std::string& says,
                   bool answers) {
  CAPTURE(result.errors);
  const std::vector<std::string> lines = error_lines(program, result.errors);
  CHECK(lines.size() == 1);
  CHECK_FALSE(contains(result.errors, "----"));
  if (!lines.empty()) CHECK_MESSAGE(contains(lines.front(), says), "expected: ", says);
  if (!answers) CHECK(result.output.empty());
}

std::string tensors_of(const fs::path& path) {
  const std::string bytes = content_of(path);
  std::uint64_t length = 0;
  check(bytes.size() >= sizeof length, path, " is no safetensors file");
  std::memcpy(&length, bytes.data(), sizeof length);
  check(length <= bytes.size() - sizeof length, path, " is no safetensors file");
  Json header = Json::parse(bytes.substr(sizeof length, length));
  header.erase("__metadata__");
  return header.dump() + bytes.substr(sizeof length + length);
}

std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    all[entry.path().lexically_relative(folder).string()] = described(entry.path());
  return all;
}

std::string difference(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& after) {
  std::string names;
  for (const auto& [name, content] : before)
    if (!after.contains(name))
      names += name + " is gone; ";
    else if (after.at(name) != content)
      names += name + " was changed; ";
  for (const auto& [name, content] : after)
    if (!before.contains(name)) names += name + " is new; ";
  return names;
}

}  // namespace heed::test
