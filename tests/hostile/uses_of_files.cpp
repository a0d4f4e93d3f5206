#include "heed/tests/hostile/hostile_uses.h"

#include <zlib.h>

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using Uses = std::vector<HostileUse>;

/// A gzip file of zeros: a thousandth of its content.
std::string zeros_as_gzip(std::size_t bytes) {
  z_stream z{};
  check(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2 failed");
  std::string packed;
  const std::string zeros(1 << 20, '\0');
  std::string buffer(1 << 16, '\0');
  for (std::size_t done = 0; done < bytes; done += zeros.size()) {
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(zeros.data()));
    z.avail_in = static_cast<uInt>(zeros.size());
    const int flush = done + zeros.size() >= bytes ? Z_FINISH : Z_NO_FLUSH;
    do {
      z.next_out = reinterpret_cast<Bytef*>(buffer.data());
      z.avail_out = static_cast<uInt>(buffer.size());
      deflate(&z, flush);
      packed.append(buffer, 0, buffer.size() - z.avail_out);
    } while (z.avail_out == 0);
  }
  deflateEnd(&z);
  return packed;
}

/// Everything that writes one file beside a run: the program, the flag that names the file, the command
/// without it.
struct OutputUse {
  std::string program, flag;
  Arguments arguments;
  std::string input, suffix;
};

std::vector<OutputUse> uses_with_output() {
  std::vector<OutputUse> uses;
  for (const std::string& task : hostile_tasks)
    for (const char* suffix : {".safetensors", ".html"})
      uses.push_back({task, "--capture", use_command(task), small_line(task), suffix});
  // All labels are wrong, so that there is something to write.
  static const TemporaryFolder wrong;
  const std::string texts =
      write_content(wrong / "texts", "bad a fine day number 2\ngood a sad night number 3\n").string();
  const Arguments evaluate = {"evaluate", "--run", "{run}", "--data", texts, "--format", "lines"};
  uses.push_back({"classify", "--errors", evaluate, "", ".jsonl"});
  return uses;
}

/// A link in place of what is there.
Before with_link(const std::string& name, const std::string& target) {
  return [=](const fs::path& folder) {
    fs::remove_all(folder / name);
    fs::create_symlink(folder / target, folder / name);
  };
}

void add_outputs(Uses& uses, const OutputUse& one) {
  const std::string file = "x" + one.suffix;
  const UsesOf program(uses, one.program);
  const auto row = [&](const std::string& name, int status, const std::string& says, const Before& before,
                       const Arguments& more = {}) -> HostileUse& {
    return program.call(one.flag + " " + one.suffix + ": " + name,
                        joined(joined(one.arguments, {one.flag, "{t}/" + file}), more), status, says, before,
                        one.input);
  };
  row("a file that is there is kept", 1, "--overwrite", with_file(file, "mine"));
  row("--overwrite replaces it", 0, "", with_file(file, "mine"), {"--overwrite"}).after =
      [=](const fs::path& folder, const ProgramResult&) { CHECK(content_of(folder / file) != "mine"); };
  const Before link = in_turn({with_file("target", "mine"), with_link(file, "target")}),
               dangling = with_link(file, "target");
  row("a link to a file", 1, "--overwrite", link);
  row("a link stays a link", 0, "", link, {"--overwrite"}).after = [=](const fs::path& folder,
                                                                       const ProgramResult&) {
    CHECK(fs::is_symlink(folder / file));
    CHECK(content_of(folder / "target") != "mine");
  };
  row("a link to nothing", 1, "does not exist", dangling);
  row("a link to nothing, with --overwrite", 1, "does not exist", dangling, {"--overwrite"});
  row("a folder", 1, "folder", with_folder(file));
  row("in a folder that is not there", 1, "folder", {}).arguments.back() = "{t}/none/" + file;
  for (const Arguments& more : {Arguments{}, Arguments{"--overwrite"}})
    row("a device is written to, not replaced", 0, "", with_device(file, 3), more).after =
        [=](const fs::path& folder, const ProgramResult&) {
          CHECK(fs::is_character_file(folder / file));
          CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 2);
        };
  row("a device that is full", 1, "No space", with_device(file, 7)).answers = true;
  row("a FIFO that nobody reads", 1, "FIFO", with_fifo(file)).answers = true;
}

}  // namespace

Uses uses_that_could_lose_files() {
  Uses uses;
  const Before thesis =
      in_turn({with_file("out/thesis.tmp/chapter", "one"), with_file("out/notes.tmp", "two")});
  const std::vector<std::pair<std::string, std::string>> of_others = {{"run/thesis.tmp/chapter", "one"},
                                                                      {"run/notes.tmp", "two"},
                                                                      {"run/checkpoint.tmp/diary", "three"},
                                                                      {"run/model.safetensors.tmp", "four"}};
  for (const std::string& task : hostile_tasks) {
    const UsesOf program(uses, task);
    program.train("train in a folder with files of others", {}, 1, "part of a run", thesis);
    program.train("resume in a folder with files of others", {"--resume"}, 1, "no run", thesis);
    program.train("resume without a run", {"--resume"}, 1, "no run");
    program.call("a run is not trained over", {"train", "--out", "{run}", "{small}"}, 1, "--resume");
    HostileUse& stay = program.go_on("files of others in a run stay", {}, 0, "");
    stay.before = [=](const fs::path& folder) {
      for (const auto& [name, content] : of_others) write_content(folder / name, content);
    };
    stay.after = [=](const fs::path& folder, const ProgramResult&) {
      for (const auto& [name, content] : of_others) CHECK(content_of(folder / name) == content);
    };
  }
  const UsesOf classify(uses, "classify");
  const Before other_settings = with_file("out/config.json", "{\"editor\": \"dark\"}");
  classify.train("--out is a file", {}, 1, "out", with_file("out", "a text"));
  classify.call("--out lies below a file", {"train", "--out", "{t}/text/out", "{small}"}, 1, "text",
                with_file("text", "a text"));
  classify.train("--out is a link to nothing", {}, 1, "out", with_link("out", "nothing"));
  classify.train("--out is a link to somebody's folder", {}, 1, "part of a run",
                 in_turn({with_file("home/diary", "dear"), with_link("out", "home")}));
  classify.train("--out is a device", {}, 1, "out", with_device("out", 3));
  classify.call("--out is empty", {"train", "--out", "", "{small}"}, 1, "empty");
  classify.train("--out holds a file called run.json", {}, 1, "run.json",
                 with_file("out/run.json", "{\"mine\": true}"));
  classify.train("--out has a config.json of something else", {}, 1, "out", other_settings);
  classify.train("resume on a config.json of something else", {"--resume"}, 1, "out", other_settings);

  // Links in a run that somebody sent, to files and folders of the user.
  const Before profile = with_file("profile", "mine");
  for (const std::string name : {"report.html", "metrics.jsonl"})
    classify
        .go_on("a link as " + name, {"--tensorboard"}, 0, "is a link",
               in_turn({profile, with_link("run/" + name, "profile")}))
        .after = [](const fs::path& folder, const ProgramResult&) {
      CHECK(content_of(folder / "profile") == "mine");
    };
  classify
      .go_on("a link as tensorboard", {"--tensorboard"}, 0, "is a link",
             in_turn({with_folder("home"), with_link("run/tensorboard", "home")}))
      .after = [](const fs::path& folder, const ProgramResult&) { CHECK(fs::is_empty(folder / "home")); };
  classify.go_on("a link as config.json", {"--tensorboard"}, 1, "is a link", [](const fs::path& folder) {
    fs::rename(folder / "run/config.json", folder / "settings");
    fs::create_symlink(folder / "settings", folder / "run/config.json");
  });
  UsesOf(uses, "heed")
      .call("a link as report.html", {"report", "{t}/sent"}, 1, "is a link", [=](const fs::path& folder) {
        copy_run(small_run("classify"), folder / "sent");
        in_turn({profile, with_link("sent/report.html", "profile")})(folder);
      });
  for (const OutputUse& one : uses_with_output()) add_outputs(uses, one);
  return uses;
}

namespace {

/// A way to name data of a task: the flag, and others that go with it.
struct DataFlag {
  std::string task, flag;
  Arguments more;
};

const std::vector<DataFlag> data_flags = {
    {"classify", "--data", {"--format", "lines"}},
    {"language_model", "--data", {}},
    {"translate", "--source", {"--target", "{t}/text"}},
    {"translate", "--target", {"--source", "{t}/text"}},
    {"translate",
     "--valid-source",
     {"--source", "{t}/text", "--target", "{t}/text", "--valid-target", "{t}/text"}},
    {"classify", "--valid", {"--data", "{t}/text", "--format", "lines"}},
    {"classify", "--test", {"--data", "{t}/text", "--format", "lines"}},
    {"language_model", "--valid", {"--data", "{t}/text"}},
    {"translate", "--data", {"--format", "tsv"}},
    {"summarize", "--data", {"--format", "jsonl"}},
    {"converse", "--data", {}}};

void add_files_of_a_run(Uses& uses, const std::string& task) {
  const UsesOf program(uses, task);
  for (const std::string name :
       {"config.json", "run.json", "tokenizer.json", "trainer_state.json", "best.safetensors"}) {
    const std::string file = "run/" + name;
    program.ask("a FIFO as " + name, {}, 1, "FIFO", with_fifo(file));
    program.ask("a folder as " + name, {}, 1, "folder", in_turn({without(file), with_folder(file)}));
    program.ask("a link in a circle as " + name, {}, 1, name, with_link(file, file));
  }
  for (const std::string name : {"model.safetensors", "optimizer.safetensors"})
    program.go_on("a FIFO as " + name, {}, 1, "FIFO", with_fifo("run/" + name));
  program.go_on("a FIFO as metrics.jsonl", {}, 0, "metrics", with_fifo("run/metrics.jsonl"));
  const auto use = [&](const std::string& name, const std::string& run, const std::string& says,
                       const Before& before = {}) {
    program.call("--run is " + name, use_command(task, run), 1, says, before, small_line(task));
  };
  use("a file", "{t}/text", "text", with_file("text", "a text"));
  use("not there", "{t}/none", "none");
  use("an empty folder", "{t}", "no run");
  use("empty", "", "no run");
}

/// Data that is there, and cannot be learned from.
void add_data_that_cannot_be_used(Uses& uses) {
  struct Row {
    std::string task, name, file, content, flags;
    int status;
    std::string says;
  };
  const std::string csv = "1,\"x, y\"\n2,z\n1,w\n2,v\n1,q\n2,p\n",
                    text =
                        "more than enough text to fill a window of 32 tokens, and a little more than that\n";
  for (const Row& row : std::vector<Row>{
           {"translate", "files of two lengths", "three", "a\nb\nc\n",
            "--source {t}/other --target {t}/three", 1, "3"},
           {"translate", "lines that are not UTF-8", "latin", "caf\xe9\nx\n",
            "--source {t}/latin --target {t}/other", 1, "UTF-8"},
           {"classify", "folders that are not UTF-8", "set/neg/1", "bad \xe9\n", "--data {t}/set", 1,
            "1:1: "},
           {"classify", "a file of no format", "a.txt", "1 x\n2 y\n", "--data {t}/a.txt", 2, "--format"},
           {"classify", "an unknown format", "a.csv", csv, "--data {t}/a.csv --format cvs", 2, "csv"},
           {"classify", "an unknown encoding", "a.csv", csv, "--data {t}/a.csv --encoding latin1", 2,
            "latin-1"},
           {"classify", "an open quote", "b.csv", "1,\"x\n", "--data {t}/b.csv", 1, "b.csv:1: "},
           {"classify", "one class", "c.csv", "1,x\n1,y\n1,z\n1,w\n", "--data {t}/c.csv", 1, "two classes"},
           {"classify", "--valid without --data", "a.csv", csv, "--valid {t}/a.csv", 2, "--data"},
           {"classify", "a class that is not learned", "a.csv", csv, "--data {t}/a.csv --valid {t}/other.csv",
            0, "that training lacks"},
           {"classify", "nothing to learn from", "a.csv", csv,
            "--data {t}/a.csv --valid-fraction 0.25 --test-fraction 0.9", 1, "fractions"},
           {"classify", "labels of texts", "a.csv", csv, "--data {t}/a.csv --labels {t}/a.csv", 2,
            "data.labels"},
           {"classify", "columns of images", "a-images-idx3-ubyte", "x",
            "--data {t}/a-images-idx3-ubyte --set data.label_column=2", 2, "not for images"},
           {"language_model", "less than a window", "text", "too short for a window", "--data {t}/text", 1,
            "window"},
           {"language_model", "a text that is not UTF-8", "text", "caf\xe9, " + text, "--data {t}/text", 1,
            "UTF-8"},
           {"language_model", "a text to measure that is not UTF-8", "text", text,
            "--data {t}/text --valid {t}/latin", 1, "UTF-8"},
           {"language_model", "nothing to learn from", "text", text,
            "--data {t}/text --set data.valid_fraction=1", 2, "valid_fraction"}})
    UsesOf(uses, row.task)
        .train(row.name, words(row.flags), row.status, row.says,
               in_turn({with_file("other", "a b\nc d\n"), with_file("other.csv", "1,x\n3,y\n"),
                        with_file("latin", "caf\xe9\n"), with_file(row.file, row.content)}));
  UsesOf(uses, "classify")
      .call("a label that the run does not know",
            {"evaluate", "--run", "{run}", "--data", "{t}/other.txt", "--format", "lines"}, 0,
            "that training lacks", with_file("other.txt", "good day\nugly day\n"));
  const UsesOf language_model(uses, "language_model");
  language_model.train("a folder without files", {"--data", "{t}/none"}, 1, "no files", with_folder("none"));
  language_model.call("a text of unknown characters", {"evaluate", "--run", "{run}", "--data", "{t}/text"}, 1,
                      "'!'", with_file("text", "the cat sleeps!\n"));
}

}  // namespace

Uses uses_with_files_that_are_none() {
  Uses uses;
  for (const std::string& task : hostile_tasks) {
    const UsesOf program(uses, task);
    program.train("a FIFO as configuration", {"--config", "{t}/fifo"}, 2, "FIFO", with_fifo("fifo"));
    program.train("a folder as configuration", {"--config", "{t}/folder"}, 2, "folder",
                  with_folder("folder"));
    program.train("a device as configuration", {"--config", "/dev/zero"}, 2, "device");
    program.train("a configuration that is not there", {"--config", "{t}/none"}, 2, "none");
    add_files_of_a_run(uses, task);
    if (task == "language_model") continue;
    const auto source = [&](const std::string& file, int status, const std::string& says,
                            const Before& before) -> HostileUse& {
      return program.call("predict --source " + file, use_command(task, "{run}", {"--source", file}), status,
                          says, before);
    };
    source("{t}", 1, "folder", {});
    source("{t}/none", 1, "none", {});
    source("{t}/fifo", 0, "",  // which it reads when somebody writes
           [line = small_line(task)](const fs::path& folder) {
             with_fifo("fifo")(folder);
             const std::string fifo = (folder / "fifo").string();
             const std::string writer = "(sleep 0.3; printf %s '" + line + "' > '" + fifo + "') &";
             check(std::system(writer.c_str()) == 0, "no writer could be started");
           })
        .after = [](const fs::path&, const ProgramResult& result) { CHECK(contains(result.output, "\n")); };
  }
  const std::string text =
      "good a first line that is long enough for a window of tokens\nbad a second line of it\n";
  static const std::string bomb = zeros_as_gzip(std::size_t{1} << 30);
  for (const DataFlag& one : data_flags) {
    const auto row = [&](const std::string& name, const std::string& file, const std::string& says,
                         const Before& before, const Arguments& more = {}) -> HostileUse& {
      const Before texts = with_file("text", text + text + text + text);
      return UsesOf(uses, one.task)
          .train(one.flag + " is " + name, joined(joined({one.flag, file}, one.more), more), 1, says,
                 before ? in_turn({texts, before}) : texts);
    };
    row("a FIFO", "{t}/fifo", "FIFO", with_fifo("fifo"));
    row("a device without an end", "/dev/zero", "device", {});
    row("not there", "{t}/none", "none", {});
    row("empty", "{t}/empty", "empty", with_file("empty", ""));
    row("a link in a circle", "{t}/circle", "circle", with_link("circle", "circle"));
    row("an empty folder", "{t}/folder", "folder", with_folder("folder"));
    row("a file whose name has escapes", "{t}/no\x1b[2Jne", "\\x1b", {});
    row("a file whose name is not UTF-8", "{t}/caf\xe9", "\\xe9", {}).status = 2;  // not for config.json
    row("cut-off gzip", "{t}/cut.gz", "cut off", with_file("cut.gz", "\x1f\x8b\x08"));
    if (!one.flag.starts_with("--valid") && one.flag != "--test")
      row("a gzip file that unpacks to a gigabyte", "{t}/bomb.gz", "data.max_bytes",
          with_file("bomb.gz", bomb), {"--set", "data.max_bytes=100000000"});
  }
  const UsesOf classify(uses, "classify");
  classify.train("a file that is there, whose name is not UTF-8",
                 {"--data", "{t}/caf\xe9", "--format", "lines"}, 2, "UTF-8",
                 with_file("caf\xe9", text + text));
  classify.call("a run whose name is not UTF-8", {"train", "--out", "{t}/caf\xe9", "{small}"}, 0, "");

  add_data_that_cannot_be_used(uses);
  const std::string long_line = std::string(100 << 20, 'x') + "\n";
  const auto answered_in_part = [&](const std::string& name, const std::string& task,
                                    const std::string& input, const std::string& says) -> HostileUse& {
    HostileUse& use = UsesOf(uses, task).call(name, use_command(task), 1, says, {}, input);
    use.answers = true;
    return use;
  };
  for (const std::string task : {"translate", "classify"}) {
    answered_in_part("a line of 100 MB costs that line alone", task, "forty\n" + long_line + "nine\n",
                     "line 2")
        .after = [](const fs::path&, const ProgramResult& result) {
      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 3);
      CHECK(!result.output.ends_with("\n\n"));
    };
    answered_in_part("a gzip file of standard input that unpacks to a gigabyte", task, bomb, "line 1");
  }
  answered_in_part("a prompt of 100 MB", "language_model", "the cat\n" + long_line, "line 2");
  return uses;
}

}  // namespace heed::test
