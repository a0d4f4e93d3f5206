#include "heed/tests/hostile/hostile_uses.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>

#include "heed/base/error.h"
#include "heed/tests/temporary_folder.h"

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

/// Everything that writes one file beside a run: the program, the command without the file, the name of the
/// file.
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
  uses.push_back({"classify",
                  "--errors",
                  {"evaluate", "--run", "{run}", "--data", texts, "--format", "lines"},
                  "",
                  ".jsonl"});
  return uses;
}

}  // namespace

Uses uses_that_could_lose_files() {
  Uses uses;
  const Before thesis =
      in_turn({with_file("out/thesis.tmp/chapter", "one"), with_file("out/notes.tmp", "two")});
  for (const std::string& task : hostile_tasks) {
    uses.push_back(
        {"train in a folder with files of others", task, train_command(), 1, "part of a run", "", thesis});
    uses.push_back({"resume in a folder with files of others", task, train_command({"--resume"}), 1, "no run",
                    "", thesis});
    uses.push_back({"files of others in a run stay",
                    task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30"},
                    0,
                    "",
                    "",
                    in_turn({with_file("run/thesis.tmp/chapter", "one"), with_file("run/notes.tmp", "two"),
                             with_file("run/checkpoint.tmp/diary", "three"),
                             with_file("run/model.safetensors.tmp", "four")}),
                    [](const fs::path& folder, const ProgramResult&) {
                      CHECK(content_of(folder / "run/thesis.tmp/chapter") == "one");
                      CHECK(content_of(folder / "run/notes.tmp") == "two");
                      CHECK(content_of(folder / "run/checkpoint.tmp/diary") == "three");
                      CHECK(content_of(folder / "run/model.safetensors.tmp") == "four");
                    }});
    uses.push_back(
        {"a run is not trained over", task, {"train", "--out", "{run}", "{small}"}, 1, "--resume"});
    uses.push_back({"resume without a run", task, train_command({"--resume"}), 1, "no run"});
  }
  const std::string task = "classify";
  uses.push_back({"--out is a file", task, train_command(), 1, "out", "", with_file("out", "a text")});
  uses.push_back({"--out lies below a file",
                  task,
                  {"train", "--out", "{t}/text/out", "{small}"},
                  1,
                  "text",
                  "",
                  with_file("text", "a text")});
  uses.push_back({"--out is a link to nothing", task, train_command(), 1, "out", "",
                  [](const fs::path& folder) { fs::create_symlink(folder / "nothing", folder / "out"); }});
  uses.push_back({"--out is a link to somebody's folder", task, train_command(), 1, "part of a run", "",
                  in_turn({with_file("home/diary", "dear"), [](const fs::path& folder) {
                             fs::create_directory_symlink(folder / "home", folder / "out");
                           }})});
  uses.push_back({"--out is a device", task, train_command(), 1, "out", "", with_device("out", 3)});
  uses.push_back({"--out is empty", task, {"train", "--out", "", "{small}"}, 1, "empty"});
  uses.push_back({"--out holds a file called run.json", task, train_command(), 1, "run.json", "",
                  with_file("out/run.json", "{\"mine\": true}")});
  uses.push_back({"--out has a config.json of something else", task, train_command(), 1, "out", "",
                  with_file("out/config.json", "{\"editor\": \"dark\"}")});
  uses.push_back({"resume on a config.json of something else", task, train_command({"--resume"}), 1, "out",
                  "", with_file("out/config.json", "{\"editor\": \"dark\"}")});

  // Links in a run that somebody sent, to files and folders of the user.
  const auto link_to = [](const std::string& name, const std::string& target) -> Before {
    return [=](const fs::path& folder) {
      fs::remove_all(folder / name);
      fs::create_symlink(folder / target, folder / name);
    };
  };
  const Arguments go_on = {"train", "--out", "{run}", "--resume", "--steps", "30", "--tensorboard"};
  for (const char* name : {"report.html", "metrics.jsonl"})
    uses.push_back({std::string("a link as ") + name + " of a run that goes on", task, go_on, 0, "is a link",
                    "",
                    in_turn({with_file("profile", "mine"), link_to(std::string("run/") + name, "profile")}),
                    [](const fs::path& folder, const ProgramResult&) {
                      CHECK(content_of(folder / "profile") == "mine");
                    }});
  uses.push_back(
      {"a link as tensorboard of a run that goes on", task, go_on, 0, "is a link", "",
       in_turn({with_folder("home"), link_to("run/tensorboard", "home")}),
       [](const fs::path& folder, const ProgramResult&) { CHECK(fs::is_empty(folder / "home")); }});
  uses.push_back({"a link as config.json of a run that goes on", task, go_on, 1, "is a link", "",
                  [](const fs::path& folder) {
                    fs::rename(folder / "run/config.json", folder / "settings");
                    fs::create_symlink(folder / "settings", folder / "run/config.json");
                  }});
  uses.push_back({"a link as report.html",
                  "heed",
                  {"report", "{t}/sent"},
                  1,
                  "is a link",
                  "",
                  in_turn({with_file("profile", "mine"),
                           [=](const fs::path& folder) { copy_run(small_run(task), folder / "sent"); },
                           link_to("sent/report.html", "profile")})});

  for (const OutputUse& one : uses_with_output()) {
    const std::string file = "x" + one.suffix;
    const auto row = [&](const std::string& name, int status, const std::string& says, const Before& before,
                         const After& after = {}, const Arguments& more = {}) {
      uses.push_back({one.flag + " " + one.suffix + ": " + name, one.program,
                      joined(joined(one.arguments, {one.flag, "{t}/" + file}), more), status, says, one.input,
                      before, after});
    };
    row("a file that is there is kept", 1, "--overwrite", with_file(file, "mine"));
    row("--overwrite replaces it", 0, "", with_file(file, "mine"),
        [=](const fs::path& folder, const ProgramResult&) { CHECK(content_of(folder / file) != "mine"); },
        {"--overwrite"});
    const Before link = in_turn({with_file("target", "mine"), [=](const fs::path& folder) {
                                   fs::create_symlink(folder / "target", folder / file);
                                 }});
    row("a link to a file", 1, "--overwrite", link);
    row("a link stays a link", 0, "", link,
        [=](const fs::path& folder, const ProgramResult&) {
          CHECK(fs::is_symlink(folder / file));
          CHECK(content_of(folder / "target") != "mine");
        },
        {"--overwrite"});
    const Before dangling = [=](const fs::path& folder) {
      fs::create_symlink(folder / "target", folder / file);
    };
    row("a link to nothing", 1, "does not exist", dangling);
    row("a link to nothing, with --overwrite", 1, "does not exist", dangling, {}, {"--overwrite"});
    row("a folder", 1, "folder", with_folder(file));
    row("in a folder that is not there", 1, "folder", {}, {}, {});
    uses.back().arguments.back() = "{t}/none/" + file;
    for (const Arguments& more : {Arguments{}, Arguments{"--overwrite"}}) {
      row(
          "a device is written to, not replaced", 0, "", with_device(file, 3),
          [=](const fs::path& folder, const ProgramResult&) {
            CHECK(fs::is_character_file(folder / file));
            CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 2);
          },
          more);
    }
    row("a device that is full", 1, "No space", with_device(file, 7));
    uses.back().answers = true;
    row("a FIFO that nobody reads", 1, "FIFO", with_fifo(file));
    uses.back().answers = true;
  }
  return uses;
}

Uses uses_with_files_that_are_none() {
  Uses uses;
  const auto train_on = [&](const std::string& name, const std::string& task, const Arguments& more,
                            const std::string& says, const Before& before, int status = 1) {
    uses.push_back({name, task, train_command(more), status, says, "", before});
  };
  for (const std::string& task : hostile_tasks) {
    train_on("a FIFO as configuration", task, {"--config", "{t}/fifo"}, "FIFO", with_fifo("fifo"), 2);
    train_on("a folder as configuration", task, {"--config", "{t}/folder"}, "folder", with_folder("folder"),
             2);
    train_on("a device as configuration", task, {"--config", "/dev/zero"}, "device", {}, 2);
    train_on("a configuration that is not there", task, {"--config", "{t}/none"}, "none", {}, 2);
    for (const char* name :
         {"config.json", "run.json", "tokenizer.json", "trainer_state.json", "best.safetensors"}) {
      const std::string file = std::string("run/") + name;
      uses.push_back({std::string("a FIFO as ") + name, task, use_command(task), 1, "FIFO", small_line(task),
                      with_fifo(file)});
      uses.push_back({std::string("a folder as ") + name, task, use_command(task), 1, "folder",
                      small_line(task), in_turn({without(file), with_folder(file)})});
      uses.push_back({std::string("a link in a circle as ") + name, task, use_command(task), 1, name,
                      small_line(task), in_turn({without(file), [=](const fs::path& folder) {
                                                   fs::create_symlink(folder / file, folder / file);
                                                 }})});
    }
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      uses.push_back({std::string("a FIFO as ") + name + " of a run that goes on",
                      task,
                      {"train", "--out", "{run}", "--resume", "--steps", "30"},
                      1,
                      "FIFO",
                      "",
                      with_fifo(std::string("run/") + name)});
    uses.push_back({"a FIFO as metrics.jsonl of a run that goes on",
                    task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30"},
                    0,
                    "metrics",
                    "",
                    with_fifo("run/metrics.jsonl")});
    Arguments command = predict_command(task);
    const Arguments rest(command.begin() + 1, command.end());
    uses.push_back({"--run is a file", task, joined({command.front(), "--run", "{t}/text"}, rest), 1, "text",
                    small_line(task), with_file("text", "a text")});
    uses.push_back({"--run is not there", task, joined({command.front(), "--run", "{t}/none"}, rest), 1,
                    "none", small_line(task)});
    uses.push_back({"--run is an empty folder", task, joined({command.front(), "--run", "{t}"}, rest), 1,
                    "no run", small_line(task)});
    uses.push_back({"--run is empty", task, joined({command.front(), "--run", ""}, rest), 1, "no run",
                    small_line(task)});
    if (task == "language_model") continue;
    uses.push_back(
        {"predict --source is a folder", task, use_command(task, {"--source", "{t}"}), 1, "folder"});
    uses.push_back(
        {"predict --source is not there", task, use_command(task, {"--source", "{t}/none"}), 1, "none"});
    uses.push_back(
        {"predict --source waits for who writes to a FIFO", task, use_command(task, {"--source", "{t}/fifo"}),
         0, "", "",
         in_turn({with_fifo("fifo"),
                  [line = small_line(task)](const fs::path& folder) {
                    const std::string fifo = (folder / "fifo").string();
                    const std::string writer = "(sleep 0.3; printf %s '" + line + "' > '" + fifo + "') &";
                    check(std::system(writer.c_str()) == 0, "no writer could be started");
                  }}),
         [](const fs::path&, const ProgramResult& result) { CHECK(contains(result.output, "\n")); }});
  }
  // The data of each task: the flag, and others that go with it.
  const std::vector<std::tuple<std::string, std::string, Arguments>> data = {
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
  const std::string text =
      "good a first line that is long enough for a window of tokens\nbad a second line of it\n";
  for (const auto& [task, flag, more] : data) {
    const auto row = [&, &task = task, &flag = flag, &more = more](
                         const std::string& name, const std::string& file, const std::string& says,
                         const Before& before) {
      train_on(flag + " is " + name, task, joined({flag, file}, more), says,
               before ? in_turn({with_file("text", text + text + text + text), before})
                      : with_file("text", text + text + text + text));
    };
    row("a FIFO", "{t}/fifo", "FIFO", with_fifo("fifo"));
    row("a device without an end", "/dev/zero", "device", {});
    row("not there", "{t}/none", "none", {});
    row("empty", "{t}/empty", "empty", with_file("empty", ""));
    row("a link in a circle", "{t}/circle", "circle",
        [](const fs::path& folder) { fs::create_symlink(folder / "circle", folder / "circle"); });
    row("an empty folder", "{t}/folder", "folder", with_folder("folder"));
    row("a file whose name has escapes", "{t}/no\x1b[2Jne", "\\x1b", {});
    row("a file whose name is not UTF-8", "{t}/caf\xe9", "\\xe9", {});
    uses.back().status = 2;  // it cannot stand in config.json
    row("cut-off gzip", "{t}/cut.gz", "cut off", with_file("cut.gz", "\x1f\x8b\x08"));
  }
  uses.push_back({"a file that is there, whose name is not UTF-8", "classify",
                  train_command({"--data", "{t}/caf\xe9", "--format", "lines"}), 2, "UTF-8", "",
                  with_file("caf\xe9", text + text)});
  uses.push_back(
      {"a run whose name is not UTF-8", "classify", {"train", "--out", "{t}/caf\xe9", "{small}"}, 0});

  static const std::string bomb = zeros_as_gzip(std::size_t{1} << 30);
  for (const auto& [task, flag, more] : data) {
    if (flag.starts_with("--valid") || flag == "--test") continue;
    train_on("a gzip file that unpacks to a gigabyte", task,
             joined(joined({flag, "{t}/bomb.gz"}, more), {"--set", "data.max_bytes=100000000"}),
             "data.max_bytes", in_turn({with_file("text", text), with_file("bomb.gz", bomb)}));
  }
  const std::string lines = "forty\n" + std::string(100 << 20, 'x') + "\nnine\n";
  for (const std::string task : {"translate", "classify"}) {
    const std::string run = task == "classify" ? "a fine day number 3\n" : "forty-two\n";
    uses.push_back({"a line of 100 MB costs that line alone",
                    task,
                    use_command(task),
                    1,
                    "line 2",
                    lines,
                    {},
                    [](const fs::path&, const ProgramResult& result) {
                      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 3);
                      CHECK(!result.output.ends_with("\n\n"));
                    },
                    false,
                    true});
    uses.push_back({"a gzip file of standard input that unpacks to a gigabyte",
                    task,
                    use_command(task),
                    1,
                    "line 1",
                    bomb,
                    {},
                    {},
                    false,
                    true});
  }
  uses.push_back({"a prompt of 100 MB",
                  "language_model",
                  use_command("language_model"),
                  1,
                  "line 2",
                  "the cat\n" + std::string(100 << 20, 'x') + "\n",
                  {},
                  {},
                  false,
                  true});
  return uses;
}

}  // namespace heed::test
