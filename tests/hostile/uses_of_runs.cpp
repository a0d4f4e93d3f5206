#include "heed/tests/hostile/hostile_uses.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "heed/base/error.h"
#include "heed/tests/temporary_folder.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Uses = std::vector<HostileUse>;

void replace_in(const fs::path& path, const std::string& from, const std::string& to) {
  std::string content = content_of(path);
  const std::size_t at = content.find(from);
  check(at != std::string::npos, path, " has no ", from);
  write_content(path, content.replace(at, from.size(), to));
}

/// A safetensors file whose header names so many empty tensors.
std::string crowded_safetensors(int tensors) {
  std::string header = "{";
  for (int i = 0; i < tensors; ++i)
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header;
}

/// The weights of an untouched run that was trained for ten steps more.
const std::string& continued_tensors(const std::string& task) {
  static const TemporaryFolder folder;
  static std::map<std::string, std::string> all;
  if (all.contains(task)) return all.at(task);
  const fs::path run = folder / task;
  copy_run(small_run(task), run);
  const ProgramResult result =
      run_program(task, {"train", "--resume", "--steps", "30", "--out", run.string()});
  check(result.status == 0, result.errors);
  return all.emplace(task, tensors_of(run / "model.safetensors")).first->second;
}

}  // namespace

Uses uses_of_damaged_runs() {
  Uses uses;
  for (const std::string& task : hostile_tasks) {
    const auto use = [&](const std::string& name, const std::string& says, const Before& before,
                         const Arguments& more = {}, int status = 1) {
      uses.push_back({name, task, use_command(task, more), status, says, small_line(task), before});
    };
    const auto resume = [&](const std::string& name, const std::string& says, const Before& before) {
      uses.push_back({name + ", and goes on",
                      task,
                      {"train", "--out", "{run}", "--resume", "--steps", "30"},
                      1,
                      says,
                      "",
                      before});
    };
    const auto take_from_other = [&](const char* name) -> Before {
      return [=](const fs::path& folder) {
        fs::copy_file(small_run(task, 2) / name, folder / "run" / name, fs::copy_options::overwrite_existing);
      };
    };
    const auto flip = [](const char* name) -> Before {
      return [=](const fs::path& folder) {
        std::string content = content_of(folder / "run" / name);
        content[content.size() - 100] = static_cast<char>(content[content.size() - 100] ^ 0x40);
        write_content(folder / "run" / name, content);
      };
    };
    const auto zero = [](const char* name) -> Before {
      return [=](const fs::path& folder) {
        std::string content = content_of(folder / "run" / name);
        const std::string before = content;
        std::uint64_t header = 0;
        std::memcpy(&header, content.data(), sizeof header);
        std::fill(content.begin() + static_cast<std::ptrdiff_t>(sizeof header + header), content.end(), '\0');
        check(content != before, name, " holds nothing but zeros");
        write_content(folder / "run" / name, content);
      };
    };
    use("flipped bits in the weights", "changed", flip("best.safetensors"));
    use("zeros in the weights", "changed", zero("best.safetensors"));
    use("best weights of another run", "best.safetensors", take_from_other("best.safetensors"));
    use("no best weights", "best.safetensors", without("run/best.safetensors"));
    use("no best weights, and none asked for", "", without("run/best.safetensors"), {"--weights", "last"}, 0);
    use("a configuration that was changed", "changed",
        with_json("run/config.json", [](OrderedJson& config) { config["seed"] = 3; }));
    use("the checkpoint of another run", "another run", take_from_other("trainer_state.json"));
    use("a run without its run.json", "lost its run.json", without("run/run.json"));
    use("an unknown task", "run.json",
        with_json("run/run.json", [](OrderedJson& run) { run["task"] = "poetry"; }));
    use("a vocabulary that was changed", "tokenizer.json", flip("tokenizer.json"));
    use("a checkpoint's state that was changed", "changed",
        with_json("run/trainer_state.json", [](OrderedJson& state) { state["step"] = 11; }));
    use("NUL behind the configuration", "NUL",
        [](const fs::path& folder) {
          write_content(folder / "run/config.json",
                        content_of(folder / "run/config.json") + std::string("\0{}", 3));
        },
        {"--unverified"});
    use("a header longer than the file", "best.safetensors",
        with_file("run/best.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
        {"--unverified"});
    uses.push_back({"80,000 added tokens", task, use_command(task, {"--unverified"}), 1, "tokenizer.json",
                    small_line(task), with_json("run/tokenizer.json", [](OrderedJson& tokenizer) {
                      for (int i = 0; i < 80'000; ++i)
                        tokenizer["added_tokens"].push_back({{"id", 1000 + i},
                                                             {"content", "<" + std::to_string(i) + ">"},
                                                             {"single_word", false},
                                                             {"lstrip", false},
                                                             {"rstrip", false},
                                                             {"normalized", false},
                                                             {"special", true}});
                    })});
    uses.back().says = "";

    resume("another seed's weights", "another run", take_from_other("model.safetensors"));
    resume("another seed's moments", "another run", take_from_other("optimizer.safetensors"));
    resume("another seed's best weights", "best.safetensors", take_from_other("best.safetensors"));
    resume("moments with zeros", "changed", zero("optimizer.safetensors"));
    resume("weights with flipped bits", "changed", flip("model.safetensors"));
    resume("no best weights", "best.safetensors", without("run/best.safetensors"));
    resume("no weights", "model.safetensors", without("run/model.safetensors"));
    uses.push_back({"weights with flipped bits, and goes on all the same",
                    task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30", "--unverified"},
                    0,
                    "",
                    "",
                    flip("model.safetensors")});
    uses.push_back({"no state of the training, and begins anew",
                    task,
                    {"train", "--out", "{run}", "--resume", "--unverified"},
                    0,
                    "",
                    "",
                    without("run/trainer_state.json"),
                    [=](const fs::path& folder, const ProgramResult&) {
                      CHECK(tensors_of(folder / "run/model.safetensors") ==
                            tensors_of(small_run(task) / "model.safetensors"));
                    }});
    resume("no state of the training", "trainer_state.json", without("run/trainer_state.json"));
    resume("a run without its run.json", "lost its run.json", without("run/run.json"));
    resume("a vocabulary that was changed", "tokenizer.json", flip("tokenizer.json"));

    const auto continues = [&](const std::string& name, const Before& before, const std::string& says) {
      uses.push_back({name + " end no training",
                      task,
                      {"train", "--out", "{run}", "--resume", "--steps", "30"},
                      0,
                      says,
                      "",
                      before,
                      [=](const fs::path& folder, const ProgramResult&) {
                        CHECK(tensors_of(folder / "run/model.safetensors") == continued_tensors(task));
                        CHECK(contains(content_of(folder / "run/metrics.jsonl"), "\"step\":30"));
                      }});
    };
    continues(
        "metrics of 6e70 steps",
        [](const fs::path& folder) {
          replace_in(folder / "run/metrics.jsonl", "\"steps\":20", "\"steps\":6e70");
        },
        "metrics.jsonl\", line 1");
    continues(
        "metrics with a bad line in the middle",
        [](const fs::path& folder) {
          std::string text = content_of(folder / "run/metrics.jsonl");
          const std::size_t second = text.find('\n') + 1;
          text[second] = '#';
          write_content(folder / "run/metrics.jsonl", text);
        },
        "metrics.jsonl\", line 2");
    continues("metrics that are missing", without("run/metrics.jsonl"), "metrics.jsonl");
    continues("a folder in place of metrics",
              in_turn({without("run/metrics.jsonl"), with_folder("run/metrics.jsonl")}), "metrics");
    uses.back().after = {};
    continues("a folder in place of the report",
              in_turn({without("run/report.html"), with_folder("run/report.html")}), "report");

    for (const std::string& other : hostile_tasks) {
      if (other == task) continue;
      Arguments command = predict_command(task);
      uses.push_back({"the run of another task", task,
                      joined({command.front(), "--run", "{t}/other"}, {command.begin() + 1, command.end()}),
                      1, "this is a " + other + " run", small_line(task),
                      [=](const fs::path& folder) { copy_run(small_run(other), folder / "other"); }});
    }
    uses.push_back({"the run of another task, and goes on",
                    task,
                    {"train", "--out", "{t}/other", "--resume", "--steps", "30"},
                    1,
                    "rate run",
                    "",
                    [=](const fs::path& folder) { copy_run(small_run("rate"), folder / "other"); }});
  }
  const std::string task = "classify";
  uses.push_back({"a million tensors in the weights", task, use_command(task, {"--unverified"}), 1,
                  "best.safetensors", small_line(task),
                  with_file("run/best.safetensors", crowded_safetensors(1'000'000))});
  const auto permute = [](const fs::path& folder) {
    write_content(folder / "run/classes.json", "[\n  \"good\",\n  \"bad\"\n]\n");
  };
  uses.push_back(
      {"exchanged classes", task, use_command(task), 1, "classes.json", small_line(task), permute});
  uses.push_back({"exchanged classes, unverified", task, use_command(task, {"--unverified"}), 1,
                  "classes.json", small_line(task), permute});
  uses.push_back({"exchanged classes, and goes on",
                  task,
                  {"train", "--out", "{run}", "--resume", "--steps", "30"},
                  1,
                  "classes.json",
                  "",
                  permute});

  // The data of a run was put in another order: its parts are no longer those that it was trained with.
  const auto train_on_own_data = [](const fs::path& folder) {
    const std::string text = content_of(small_texts());
    write_content(folder / "texts", text);
    const ProgramResult result = run_program(
        "classify",
        small_train("classify", folder / "run",
                    {"--data", (folder / "texts").string(), "--format", "lines", "--test-fraction", "0.2"}));
    check(result.status == 0, result.errors);
  };
  const auto sort_data = [](const fs::path& folder) {
    std::istringstream text(content_of(folder / "texts"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    std::string sorted;
    for (const std::string& line : lines) sorted += line + "\n";
    write_content(folder / "texts", sorted);
  };
  for (const char* part : {"test", "valid", "train"}) {
    uses.push_back({std::string("the data was sorted: ") + part,
                    task,
                    {"evaluate", "--run", "{t}/run", "--part", part},
                    1,
                    "not what the run was made with",
                    "",
                    in_turn({train_on_own_data, sort_data})});
    uses.push_back({std::string("the data is as it was: ") + part,
                    task,
                    {"evaluate", "--run", "{t}/run", "--part", part},
                    0,
                    "",
                    "",
                    train_on_own_data});
  }
  uses.push_back({"the data was sorted, and goes on",
                  task,
                  {"train", "--out", "{t}/run", "--resume", "--steps", "30"},
                  1,
                  "data",
                  "",
                  in_turn({train_on_own_data, sort_data})});
  return uses;
}

Uses uses_with_odd_texts() {
  Uses uses;
  std::string texts;
  for (int i = 0; i < 40; ++i)
    texts += (i % 2 == 0 ? "\x1b[31mbad\x07 a sad \x1b]0;title\x07 night "
                         : "good\xc2\x9b"
                           "2J a fine \x1b[2J day ") +
             std::to_string(i) + "\n";
  uses.push_back({"labels and texts with escapes", "classify",
                  train_command({"--data", "{t}/texts", "--format", "lines"}), 0, "\\x1b[31mbad\\x07", "",
                  with_file("texts", texts)});
  uses.push_back({"a label with escapes that the run does not know",
                  "classify",
                  {"evaluate", "--run", "{run}", "--data", "{t}/texts", "--format", "lines"},
                  1,
                  "\\x1b[31mbad",
                  "",
                  with_file("texts", texts)});
  uses.push_back({"a label of a million characters", "classify",
                  train_command({"--data", "{t}/texts", "--format", "lines"}), 1, "has 1000000 bytes", "",
                  with_file("texts", "good a day\n" + std::string(1'000'000, 'x') + " a night\n")});
  uses.push_back({"a setting of a million characters", "classify",
                  train_command({"--config", "{t}/long.json"}), 2, "bytes are left out", "",
                  with_file("long.json", "{\"device\": \"" + std::string(1'000'000, 'x') + "\"}")});
  uses.push_back({"labels that turn the direction of texts", "classify",
                  train_command({"--data", "{t}/texts", "--format", "lines"}), 0, "go\\u202eod", "",
                  with_file("texts", [] {
                    std::string lines;
                    for (int i = 0; i < 40; ++i)
                      lines += (i % 2 == 0 ? "ba\u2066d a sad night " : "go\u202eod a fine day ") +
                               std::to_string(i) + "\n";
                    return lines;
                  }())});
  uses.push_back({"texts with NUL", "classify", train_command({"--data", "{t}/texts", "--format", "lines"}),
                  0, "", "", [](const fs::path& folder) {
                    std::string text;
                    for (int i = 0; i < 40; ++i)
                      text += (i % 2 == 0 ? "bad a\0sad night " : std::string("good a\0fine day ", 16)) +
                              std::to_string(i) + "\n";
                    write_content(folder / "texts", text);
                  }});
  uses.push_back({"a text with NUL", "language_model", train_command({"--data", "{t}/text"}), 0, "", "",
                  [](const fs::path& folder) {
                    std::string text;
                    for (int i = 0; i < 40; ++i) text += std::string("one\0two three\n", 14);
                    write_content(folder / "text", text);
                  }});
  uses.push_back({"a prompt with escapes",
                  "language_model",
                  {"generate", "--run", "{run}", "--prompt", "\x1b[2Jthe"},
                  2,
                  "\\x1b"});
  uses.push_back({"a prompt that is not UTF-8",
                  "language_model",
                  {"generate", "--run", "{run}", "--prompt", "caf\xe9"},
                  2,
                  "UTF-8"});
  for (const std::string task : {"translate", "classify"}) {
    uses.push_back({"bytes that are not UTF-8 cost their line alone",
                    task,
                    use_command(task),
                    1,
                    "line 2",
                    "one\ncaf\xe9 \x1b[2J\nnine\n",
                    {},
                    [](const fs::path&, const ProgramResult& result) {
                      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 3);
                      CHECK(!result.output.ends_with("\n\n"));
                    },
                    false,
                    true});
    uses.push_back({"blank lines stay blank",
                    task,
                    use_command(task),
                    0,
                    "",
                    "\n \n\t\n",
                    {},
                    [](const fs::path&, const ProgramResult& result) { CHECK(result.output == "\n\n\n"); }});
    uses.push_back({"lines with escapes and NUL are texts",
                    task,
                    use_command(task),
                    0,
                    "",
                    std::string("one \x1b[2J\nnine\0\n", 15),
                    {},
                    [](const fs::path&, const ProgramResult& result) {
                      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 2);
                    }});
  }
  return uses;
}

}  // namespace heed::test
