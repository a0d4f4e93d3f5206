#include "heed/tests/hostile/hostile_uses.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Uses = std::vector<HostileUse>;

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

Before take_from_other(const std::string& task, const char* name) {
  return [=](const fs::path& folder) {
    fs::copy_file(small_run(task, 2) / name, folder / "run" / name, fs::copy_options::overwrite_existing);
  };
}

/// Changes the bytes of a file of the copied run.
Before with_bytes(const std::string& name, const std::function<void(std::string&)>& change) {
  return [=](const fs::path& folder) {
    std::string content = content_of(folder / "run" / name);
    const std::string before = content;
    change(content);
    check(content != before, name, " was not changed");
    write_content(folder / "run" / name, content);
  };
}

Before flip(const std::string& name) {
  return with_bytes(name, [](std::string& content) {
    content[content.size() - 100] = static_cast<char>(content[content.size() - 100] ^ 0x40);
  });
}

Before zero(const std::string& name) {
  return with_bytes(name, [](std::string& content) {
    std::uint64_t header = 0;
    std::memcpy(&header, content.data(), sizeof header);
    std::fill(content.begin() + static_cast<std::ptrdiff_t>(sizeof header + header), content.end(), '\0');
  });
}

Before with_value(const std::string& file, const std::string& key, const OrderedJson& value) {
  return with_json("run/" + file, [=](OrderedJson& json) { json[key] = value; });
}

void add_damaged_runs_that_are_asked(const UsesOf& program, const std::string& task) {
  const Arguments unverified = {"--unverified"};
  program.ask("flipped bits in the weights", {}, 1, "changed", flip("best.safetensors"));
  program.ask(
      "half of the weights", {}, 1, "best.safetensors",
      with_bytes("best.safetensors", [](std::string& content) { content.resize(content.size() / 2); }));
  program.ask("zeros in the weights", {}, 1, "changed", zero("best.safetensors"));
  program.ask("best weights of another run", {}, 1, "best.safetensors",
              take_from_other(task, "best.safetensors"));
  program.ask("no best weights", {}, 1, "best.safetensors", without("run/best.safetensors"));
  program.ask("no best weights, and none asked for", {"--weights", "last"}, 0, "",
              without("run/best.safetensors"));
  program.ask("a configuration that was changed", {}, 1, "changed", with_value("config.json", "seed", 3));
  program.ask("the checkpoint of another run", {}, 1, "another run",
              take_from_other(task, "trainer_state.json"));
  program.ask("a run without its run.json", {}, 1, "lost its run.json", without("run/run.json"));
  program.ask("an unknown task", {}, 1, "run.json", with_value("run.json", "task", "poetry"));
  program.ask("a vocabulary that was changed", {}, 1, "tokenizer.json", flip("tokenizer.json"));
  program.ask("a checkpoint's state that was changed", {}, 1, "changed",
              with_value("trainer_state.json", "step", 11));
  program.ask("NUL behind the configuration", unverified, 1, "NUL",
              with_bytes("config.json", [](std::string& text) { text += std::string("\0{}", 3); }));
  program.ask("a header longer than the file", unverified, 1, "best.safetensors",
              with_file("run/best.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)));
  program.ask("80,000 added tokens", unverified, 1, "",
              with_json("run/tokenizer.json", [](OrderedJson& tokenizer) {
                OrderedJson token = {{"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}};
                for (int i = 0; i < 80'000; ++i) {
                  token["id"] = 1000 + i;
                  token["content"] = "<" + std::to_string(i) + ">";
                  tokenizer["added_tokens"].push_back(token);
                }
              }));
  for (const std::string& other : hostile_tasks)
    if (other != task)
      program.call(
          "the run of another task", use_command(task, "{t}/other"), 1, "this is a " + other + " run",
          [=](const fs::path& folder) { copy_run(small_run(other), folder / "other"); }, small_line(task));
}

void add_damaged_runs_that_go_on(const UsesOf& program, const std::string& task) {
  program.go_on("another seed's weights", {}, 1, "another run", take_from_other(task, "model.safetensors"));
  program.go_on("another seed's moments", {}, 1, "another run",
                take_from_other(task, "optimizer.safetensors"));
  program.go_on("another seed's best weights", {}, 1, "best.safetensors",
                take_from_other(task, "best.safetensors"));
  program.go_on("moments with zeros", {}, 1, "changed", zero("optimizer.safetensors"));
  program.go_on("weights with flipped bits", {}, 1, "changed", flip("model.safetensors"));
  program.go_on("weights with flipped bits, unverified", {"--unverified"}, 0, "", flip("model.safetensors"));
  for (const std::string name : {"best.safetensors", "model.safetensors", "trainer_state.json"})
    program.go_on("no " + name, {}, 1, name, without("run/" + name));
  program
      .call("no state of the training, and begins anew",
            {"train", "--out", "{run}", "--resume", "--unverified"}, 0, "", without("run/trainer_state.json"))
      .after = [=](const fs::path& folder, const ProgramResult&) {
    CHECK(tensors_of(folder / "run/model.safetensors") == tensors_of(small_run(task) / "model.safetensors"));
  };
  program.go_on("a run without its run.json", {}, 1, "lost its run.json", without("run/run.json"));
  program.go_on("a vocabulary that was changed", {}, 1, "tokenizer.json", flip("tokenizer.json"));
  program.call("the run of another task, and goes on",
               {"train", "--out", "{t}/other", "--resume", "--steps", "30"}, 1, "own_task run",
               [](const fs::path& folder) { copy_run(small_run("own_task"), folder / "other"); });

  const auto continues = [&](const std::string& name, const std::string& says,
                             const Before& before) -> HostileUse& {
    HostileUse& use = program.go_on(name, {}, 0, says, before);
    use.after = [=](const fs::path& folder, const ProgramResult&) {
      CHECK(tensors_of(folder / "run/model.safetensors") == continued_tensors(task));
      CHECK(contains(content_of(folder / "run/metrics.jsonl"), "\"step\":30"));
    };
    return use;
  };
  continues("metrics of 6e70 steps", "metrics.jsonl\", line 1",
            with_bytes("metrics.jsonl", [](std::string& text) {
              text.replace(text.find("\"steps\":20"), 10, "\"steps\":6e70");
            }));
  continues("metrics with a bad line in the middle", "metrics.jsonl\", line 2",
            with_bytes("metrics.jsonl", [](std::string& text) { text[text.find('\n') + 1] = '#'; }));
  continues("metrics that are missing", "metrics.jsonl", without("run/metrics.jsonl"));
  continues("a folder in place of metrics", "metrics",
            in_turn({without("run/metrics.jsonl"), with_folder("run/metrics.jsonl")}))
      .after = {};
  continues("a folder in place of the report", "report",
            in_turn({without("run/report.html"), with_folder("run/report.html")}));
}

/// The data of a run was put in another order: its parts are no longer those that it was trained with.
void add_sorted_data(const UsesOf& classify) {
  const Before train_on_own_data = [](const fs::path& folder) {
    fs::copy_file(small_texts(), folder / "texts");
    const ProgramResult result = run_program(
        "classify",
        small_train("classify", folder / "run",
                    {"--data", (folder / "texts").string(), "--format", "lines", "--test-fraction", "0.2"}));
    check(result.status == 0, result.errors);
  };
  const Before sort_data = [](const fs::path& folder) {
    std::istringstream text(content_of(folder / "texts"));
    std::multiset<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.insert(line + "\n");
    std::string sorted;
    for (const std::string& line : lines) sorted += line;
    write_content(folder / "texts", sorted);
  };
  const Before sorted = in_turn({train_on_own_data, sort_data});
  for (const std::string part : {"test", "valid", "train"}) {
    const Arguments evaluate = {"evaluate", "--run", "{t}/run", "--part", part};
    classify.call("the data was sorted: " + part, evaluate, 1, "has changed since training", sorted);
    classify.call("the data is as it was: " + part, evaluate, 0, "", train_on_own_data);
  }
  classify.call("the data was sorted, and goes on",
                {"train", "--out", "{t}/run", "--resume", "--steps", "30"}, 1, "data", sorted);
}

}  // namespace

Uses uses_of_damaged_runs() {
  Uses uses;
  for (const std::string& task : hostile_tasks) {
    const std::size_t first = uses.size();
    add_damaged_runs_that_are_asked({uses, task}, task);
    for (std::size_t i = first; i < uses.size(); ++i) uses[i].shared = true;  // by what opens runs
    add_damaged_runs_that_go_on({uses, task}, task);
  }
  const UsesOf classify(uses, "classify");
  classify.ask("200,000 tensors in the weights", {"--unverified"}, 1, "best.safetensors",
               with_file("run/best.safetensors", crowded_safetensors(200'000)));
  const Before permute = with_file("run/classes.json", "[\n  \"good\",\n  \"bad\"\n]\n");
  classify.ask("exchanged classes", {}, 1, "classes.json", permute);
  classify.ask("two classes of one name", {"--unverified"}, 1, "classes.json",
               with_file("run/classes.json", "[\n  \"good\",\n  \"good\"\n]\n"));
  classify.ask("no list of classes", {}, 1, "classes.json", with_file("run/classes.json", "{\"good\": 1}"));
  classify.go_on("exchanged classes", {}, 1, "classes.json", permute);
  add_sorted_data(classify);
  return uses;
}

Uses uses_with_odd_texts() {
  Uses uses;
  const UsesOf classify(uses, "classify"), language_model(uses, "language_model");
  const Arguments lines = {"--data", "{t}/texts", "--format", "lines"};
  /// So many lines of a text of each kind, numbered.
  const auto texts = [](const std::string& bad, const std::string& good) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += (i % 2 == 0 ? bad : good) + std::to_string(i) + "\n";
    return with_file("texts", text);
  };
  const Before escapes = texts("\x1b[31mbad\x07 a sad \x1b]0;title\x07 night ",
                               "good\xc2\x9b"
                               "2J a fine \x1b[2J day ");
  classify.train("labels and texts with escapes", lines, 0, "\\x1b[31mbad\\x07", escapes);
  classify.call("a label with escapes that the run does not know",
                joined({"evaluate", "--run", "{run}"}, lines), 1, "\\x1b[31mbad", escapes);
  classify.train("a label of a million characters", lines, 1, "has 1000000 bytes",
                 with_file("texts", "good a day\n" + std::string(1'000'000, 'x') + " a night\n"));
  classify.train("a setting of a million characters", {"--config", "{t}/long.json"}, 2, "bytes are left out",
                 with_file("long.json", "{\"device\": \"" + std::string(1'000'000, 'x') + "\"}"));
  classify.train("labels that turn the direction of texts", lines, 0, "go\\u202eod",
                 texts("ba\u2066d a sad night ", "go\u202eod a fine day "));
  classify.train("texts with NUL", lines, 0, "",
                 texts(std::string("bad a\0sad night ", 16), std::string("good a\0fine day ", 16)));
  std::string with_nul;
  for (int i = 0; i < 40; ++i) with_nul += std::string("one\0two three\n", 14);
  language_model.train("a text with NUL", {"--data", "{t}/text"}, 0, "", with_file("text", with_nul));
  language_model.call("a prompt with escapes", {"generate", "--run", "{run}", "--prompt", "\x1b[2Jthe"}, 2,
                      "\\x1b");
  language_model.call("a prompt that is not UTF-8", {"generate", "--run", "{run}", "--prompt", "caf\xe9"}, 2,
                      "UTF-8");
  for (const std::string task : {"translate", "classify"}) {
    const UsesOf program(uses, task);
    const auto ask = [&](const std::string& name, const std::string& input, int status,
                         const std::string& says) -> HostileUse& {
      return program.call(name, use_command(task), status, says, {}, input);
    };
    HostileUse& use =
        ask("bytes that are not UTF-8 cost their line alone", "one\ncaf\xe9 \x1b[2J\nnine\n", 1, "line 2");
    use.answers = true;
    use.after = [](const fs::path&, const ProgramResult& result) {
      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 3);
      CHECK(!result.output.ends_with("\n\n"));
    };
    ask("blank lines stay blank", "\n \n\t\n", 0, "").after =
        [](const fs::path&, const ProgramResult& result) { CHECK(result.output == "\n\n\n"); };
    ask("lines with escapes and NUL are texts", std::string("one \x1b[2J\nnine\0\n", 15), 0, "").after =
        [](const fs::path&, const ProgramResult& result) {
          CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 2);
        };
  }
  return uses;
}

}  // namespace heed::test
