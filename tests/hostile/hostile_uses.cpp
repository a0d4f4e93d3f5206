#include "heed/tests/hostile/hostile_uses.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/core/error.h"
#include "heed/tests/temporary_folder.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Uses = std::vector<HostileUse>;
using Before = std::function<void(const fs::path&)>;

const std::vector<std::string> tasks = {"translate", "classify", "language_model"};

// --- what is prepared

Before write(const std::string& name, const std::string& content) {
  return [=](const fs::path& folder) { write_content(folder / name, content); };
}

Before make_folder(const std::string& name) {
  return [=](const fs::path& folder) { fs::create_directories(folder / name); };
}

Before make_fifo(const std::string& name) {
  return [=](const fs::path& folder) {
    fs::remove(folder / name);
    if (::mkfifo((folder / name).c_str(), 0666) != 0) throw CannotPrepare{"a FIFO cannot be made here"};
  };
}

/// The node of /dev/null or the like: only where this user may make one, and may use it.
Before make_device(const std::string& name, unsigned minor) {
  return [=](const fs::path& folder) {
    const fs::path path = folder / name;
    if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, minor)) != 0)
      throw CannotPrepare{"this user may not make device nodes"};
    const int descriptor = ::open(path.c_str(), O_RDWR);
    if (descriptor < 0) throw CannotPrepare{"device nodes do not work in this folder"};
    ::close(descriptor);
  };
}

Before in_turn(std::vector<Before> all) {
  return [all = std::move(all)](const fs::path& folder) {
    for (const Before& one : all) one(folder);
  };
}

Before remove_file(const std::string& name) {
  return [=](const fs::path& folder) { check(fs::remove(folder / name), "there is no ", name); };
}

/// Changes a JSON file through `change`.
Before edit_json(const std::string& name, std::function<void(Json&)> change) {
  return [=](const fs::path& folder) {
    Json content = Json::parse(content_of(folder / name));
    change(content);
    write_content(folder / name, content.dump(2) + "\n");
  };
}

void replace_in(const fs::path& path, const std::string& from, const std::string& to) {
  std::string content = content_of(path);
  const std::size_t at = content.find(from);
  check(at != std::string::npos, path, " has no ", from);
  write_content(path, content.replace(at, from.size(), to));
}

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

/// A safetensors file whose header names so many empty tensors.
std::string crowded_safetensors(int tensors) {
  std::string header = "{";
  for (int i = 0; i < tensors; ++i)
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header;
}

// --- what has to hold afterwards

using After = std::function<void(const fs::path&, const ProgramResult&)>;

/// The weights of an untouched run that was trained for ten steps more.
const std::string& continued_tensors(const std::string& task) {
  static const TemporaryFolder folder;
  static std::map<std::string, std::string> all;
  if (all.contains(task)) return all.at(task);
  const fs::path run = folder / task;
  copy_run(small_run(task), run);
  const ProgramResult result = run_program(task, {"train", "--resume", "--steps", "30", "--out", run.string()});
  check(result.status == 0, result.errors);
  return all.emplace(task, tensors_of(run / "model.safetensors")).first->second;
}

// --- helpers of rows

std::string last_part(const std::string& setting) {
  return setting.substr(setting.rfind('.') + 1);
}

std::string attention_setting(const std::string& task) {
  return task == "language_model" ? "model.decoder_attention" : "model.encoder_attention";
}

std::string layers_setting(const std::string& task) {
  return task == "language_model" ? "model.decoder_layers" : "model.encoder_layers";
}

Arguments use_command(const std::string& task, const Arguments& more = {}) {
  Arguments command = predict_command(task);
  return joined(joined({command.front(), "--run", "{run}"}, {command.begin() + 1, command.end()}), more);
}

Arguments train_command(const Arguments& more = {}) {
  return joined({"train", "--out", "{t}/out", "{small}"}, more);
}

/// Everything that writes one file beside a run: the program, the command without the file, the name of the file.
struct OutputUse {
  std::string program, flag;
  Arguments arguments;
  std::string input, suffix;
};

std::vector<OutputUse> uses_with_output() {
  std::vector<OutputUse> uses;
  for (const std::string& task : tasks)
    for (const char* suffix : {".safetensors", ".html"})
      uses.push_back({task, "--capture", use_command(task), small_line(task), suffix});
  uses.push_back({"classify", "--errors", {"evaluate", "--run", "{run}"}, "", ".jsonl"});
  return uses;
}

}  // namespace

Uses uses_that_could_lose_files() {
  Uses uses;
  const Before thesis = in_turn({write("out/thesis.tmp/chapter", "one"), write("out/notes.tmp", "two")});
  for (const std::string& task : tasks) {
    uses.push_back({"train in a folder with files of others", task, train_command(), 1, "part of a run", "", thesis});
    uses.push_back({"resume in a folder with files of others", task, train_command({"--resume"}), 1, "--resume", "",
                    thesis});
    uses.push_back({"files of others in a run stay", task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30"}, 0, "", "",
                    in_turn({write("run/thesis.tmp/chapter", "one"), write("run/notes.tmp", "two"),
                             write("run/checkpoint.tmp/diary", "three"), write("run/model.safetensors.tmp", "four")}),
                    [](const fs::path& folder, const ProgramResult&) {
                      CHECK(content_of(folder / "run/thesis.tmp/chapter") == "one");
                      CHECK(content_of(folder / "run/notes.tmp") == "two");
                      CHECK(content_of(folder / "run/checkpoint.tmp/diary") == "three");
                      CHECK(content_of(folder / "run/model.safetensors.tmp") == "four");
                    }});
    uses.push_back({"a run is not trained over", task, {"train", "--out", "{run}", "{small}"}, 1, "--resume"});
    uses.push_back({"resume without a run", task, train_command({"--resume"}), 1, "no run"});
  }
  const std::string task = "classify";
  uses.push_back({"--out is a file", task, train_command(), 1, "out", "", write("out", "a text")});
  uses.push_back({"--out lies below a file", task, {"train", "--out", "{t}/text/out", "{small}"}, 1, "text", "",
                  write("text", "a text")});
  uses.push_back({"--out is a link to nothing", task, train_command(), 1, "out", "",
                  [](const fs::path& folder) { fs::create_symlink(folder / "nothing", folder / "out"); }});
  uses.push_back({"--out is a link to somebody's folder", task, train_command(), 1, "part of a run", "",
                  in_turn({write("home/diary", "dear"), [](const fs::path& folder) {
                             fs::create_directory_symlink(folder / "home", folder / "out");
                           }})});
  uses.push_back({"--out is a device", task, train_command(), 1, "out", "", make_device("out", 3)});
  uses.push_back({"--out is empty", task, {"train", "--out", "", "{small}"}, 2, "--out"});
  uses.push_back({"--out holds a file called run.json", task, train_command(), 1, "run.json", "",
                  write("out/run.json", "{\"mine\": true}")});
  uses.push_back({"--out has a config.json of something else", task, train_command(), 1, "out", "",
                  write("out/config.json", "{\"editor\": \"dark\"}")});
  uses.push_back({"resume on a config.json of something else", task, train_command({"--resume"}), 1, "out", "",
                  write("out/config.json", "{\"editor\": \"dark\"}")});

  for (const OutputUse& one : uses_with_output()) {
    const std::string file = "x" + one.suffix;
    const auto row = [&](const std::string& name, int status, const std::string& says, const Before& before,
                         const After& after = {}, const Arguments& more = {}) {
      uses.push_back({one.flag + " " + one.suffix + ": " + name, one.program,
                      joined(joined(one.arguments, {one.flag, "{t}/" + file}), more), status, says, one.input, before,
                      after});
    };
    row("a file that is there is kept", 1, "--overwrite", write(file, "mine"));
    row("--overwrite replaces it", 0, "", write(file, "mine"),
        [=](const fs::path& folder, const ProgramResult&) { CHECK(content_of(folder / file) != "mine"); },
        {"--overwrite"});
    const Before link = in_turn({write("target", "mine"), [=](const fs::path& folder) {
                                   fs::create_symlink(folder / "target", folder / file);
                                 }});
    row("a link to a file", 1, "--overwrite", link);
    row("a link stays a link", 0, "", link,
        [=](const fs::path& folder, const ProgramResult&) {
          CHECK(fs::is_symlink(folder / file));
          CHECK(content_of(folder / "target") != "mine");
        },
        {"--overwrite"});
    row("a folder", 1, "folder", make_folder(file));
    row("in a folder that is not there", 1, "folder", {}, {}, {});
    uses.back().arguments.back() = "{t}/none/" + file;
    for (const Arguments& more : {Arguments{}, Arguments{"--overwrite"}}) {
      row("a device is written to, not replaced", 0, "", make_device(file, 3),
          [=](const fs::path& folder, const ProgramResult&) {
            CHECK(fs::is_character_file(folder / file));
            CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 2);
          },
          more);
    }
    row("a device that is full", 1, "full", make_device(file, 7));
    uses.back().answers = true;
    row("a FIFO that nobody reads", 1, "FIFO", make_fifo(file));
    uses.back().answers = true;
  }
  return uses;
}

Uses uses_with_sizes_without_sense() {
  Uses uses;
  const std::string largest = "9223372036854775807";
  for (const std::string& task : tasks) {
    const auto refuse = [&](const std::string& setting, const std::vector<std::string>& values) {
      for (const std::string& value : values)
        uses.push_back({setting + "=" + value, task, train_command({"--set", setting + "=" + value}), 2,
                        last_part(setting)});
    };
    refuse(layers_setting(task), {"1000000000", largest, "-1", "2.5"});
    refuse("model.width", {"2147483648", largest, "0", "-16", "17"});
    refuse("model.heads", {"0", "-2", "4294967296", largest});
    refuse("model.feed_forward", {"4611686018427387904", "0"});
    refuse("model.dropout", {"nan", "1e400", "-0.1", "1.5", "null"});
    refuse("model.epsilon", {"nan", "-1"});
    refuse("training.batch_tokens", {"4611686018427387904", largest, "0", "-1"});
    refuse("training.steps", {"-1", "1e3", "10.0", "9223372036854775808"});
    refuse("training.accumulation", {largest, "0"});
    refuse("training.save_every", {"-1"});
    refuse("training.clip_norm", {"nan", "-1"});
    refuse("training.schedule.learning_rate", {"inf", "nan", "-1", "1e400"});
    refuse("training.optimizer.beta1", {"1", "nan"});
    refuse("training.label_smoothing", {"1", "-1"});
    refuse("tokenizer.vocabulary", {"1099511627776", largest, "-1"});
    refuse("seed", {"-1", "18446744073709551616", "1e3"});
    refuse("threads", {"-1", "2147483648"});
    refuse(task == "classify" ? "data.max_tokens" : "model.max_length", {"1099511627776", largest, "0"});
    refuse("data.max_bytes", {"0", "-1"});
    if (task == "translate") refuse("data.max_tokens", {"1099511627776", "0"});
    if (task != "translate") refuse("data.valid_fraction", {"2", "nan", "-0.1"});

    const std::string attention = attention_setting(task);
    const auto refuse_option = [&](const std::string& name, const std::string& option,
                                   const std::vector<std::string>& values) {
      for (const std::string& value : values)
        uses.push_back({name + " " + option + "=" + value, task,
                        train_command({"--set", attention + "=" + name, "--set", attention + "." + option + "=" + value}),
                        2, option});
    };
    refuse_option("bigbird", "block", {"4294967296", largest, "0", "-1", "nan"});
    refuse_option("bigbird", "random_blocks", {"4611686018427387904", "-1"});
    refuse_option("sparse_transformer", "stride", {largest, "0"});
    refuse_option("reformer", "chunk", {largest, "4294967296", "0"});
    refuse_option("reformer", "rounds", {largest, "0"});
    refuse_option("reformer", "buckets", {largest, "3"});
    refuse_option("longformer", "window", {largest, "-1"});
    refuse_option("longformer", "dilation", {largest, "0"});
    refuse_option("routing_transformer", "clusters", {largest, "0"});
    refuse_option("clusterformer", "clusters", {largest, "0"});
    refuse_option("fastformer", "global_keys", {largest, "-1"});
    refuse_option("hard_coded_gaussian", "sigma", {"0", "nan", "1e300"});
    refuse_option("dot_product", "heads", {"4294967296", "3"});

    // The same, found in a run that somebody sent: the file says so itself where it was changed.
    for (const auto& [name, option] : {std::pair{"bigbird", "block"}, {"reformer", "chunk"},
                                       {"sparse_transformer", "stride"}}) {
      const Before received = edit_json("run/config.json", [=](Json& config) {
        config["model"][last_part(attention)] = {{"name", name}, {option, INT64_MAX}};
      });
      uses.push_back({std::string("received: ") + option, task, use_command(task, {"--unverified"}), 1, option,
                      small_line(task), received});
      uses.push_back({std::string("received and checked: ") + option, task, use_command(task), 1, "changed",
                      small_line(task), received});
      uses.push_back({std::string("received and trained on: ") + option, task,
                      {"train", "--out", "{run}", "--resume", "--steps", "30"}, 1, "config.json", "", received});
    }
    for (const auto& [group, key, value] :
         {std::tuple{"model", "width", Json(INT64_MAX)}, {"model", "heads", Json(0)},
          {"training", "steps", Json(-1)}, {"training", "batch_tokens", Json(INT64_MAX)},
          {"model", "dropout", Json("nan")}, {"training", "steps", Json(1e300)}})
      uses.push_back({std::string("received: ") + key, task, use_command(task, {"--unverified"}), 1, key,
                      small_line(task),
                      edit_json("run/config.json", [=](Json& config) { config[group][key] = value; })});

    uses.push_back({"a model of a terabyte", task,
                    train_command({"--set", layers_setting(task) + "=1000", "--set", "model.width=16384", "--set",
                                   "model.feed_forward=65536"}),
                    2, "GB"});
    uses.push_back({"a step of a terabyte", task,
                    train_command({"--set", "training.batch_tokens=1000000000", "--set", "model.width=1024"}), 2, "GB"});
  }
  const auto refuse_use = [&](const std::string& task, const std::string& setting,
                              const std::vector<std::string>& values) {
    for (const std::string& value : values)
      uses.push_back({setting + "=" + value, task, use_command(task, {"--set", setting + "=" + value}), 2,
                      last_part(setting), small_line(task)});
  };
  const std::string huge = "1152921504606846976";  // 2^60
  refuse_use("translate", "decoding.batch_size", {huge, largest, "0", "-1"});
  refuse_use("translate", "decoding.beam", {"1000000000", largest, "0"});
  refuse_use("translate", "decoding.length_ratio", {"1e300", "nan", "inf", "-1"});
  refuse_use("translate", "decoding.length_extra", {largest, "-1"});
  refuse_use("translate", "decoding.length_penalty", {"1e300", "nan"});
  refuse_use("translate", "decoding.max_source_tokens", {largest, "0"});
  refuse_use("classify", "prediction.batch_size", {huge, largest, "0"});
  refuse_use("classify", "data.max_tokens", {largest, "0"});
  refuse_use("language_model", "generation.tokens", {huge, largest, "0"});
  refuse_use("language_model", "generation.samples", {huge, largest, "0"});
  refuse_use("language_model", "generation.top_k", {largest, "-1"});
  refuse_use("language_model", "generation.top_p", {"nan", "0", "2"});
  refuse_use("language_model", "generation.temperature", {"nan", "inf", "-1"});
  refuse_use("language_model", "generation.seed", {"-1", "18446744073709551616"});
  for (const auto& [task, flag, value] :
       {std::tuple{"translate", "--beam", "1000000000"}, {"translate", "--batch-size", huge.c_str()},
        {"classify", "--batch-size", largest.c_str()}, {"language_model", "--samples", "1e3"},
        {"language_model", "--top-k", "4611686018427387904"}})
    uses.push_back({std::string(flag) + " " + value, task, use_command(task, {flag, value}), 2, value,
                    small_line(task)});
  uses.push_back({"evaluation.stride", "language_model",
                  {"evaluate", "--run", "{run}", "--set", "evaluation.stride=" + largest}, 2, "stride"});
  uses.push_back({"evaluation.sentences", "language_model",
                  {"evaluate", "--run", "{run}", "--set", "evaluation.sentences=" + huge}, 2, "sentences"});
  for (const auto& [task, setting] :
       {std::pair{"translate", "data.numbers"}, {"translate", "data.held_out_numbers"},
        {"classify", "data.listops.count"}, {"classify", "data.listops.max_depth"},
        {"classify", "data.listops.max_arguments"}, {"language_model", "data.sentences"}})
    for (const std::string& value : {huge, std::string("-1")})
      uses.push_back({std::string(setting) + "=" + value, task,
                      train_command({"--set", setting + std::string("=") + value}), 2, last_part(setting)});
  uses.push_back({"ListOps expressions that there are not", "classify",
                  train_command({"--set", "data.listops.longer_than=999999", "--set", "data.listops.shorter_than=1000000"}),
                  1, "hardly any"});
  return uses;
}

Uses uses_with_little_memory() {
  Uses uses;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow takes terabytes of addresses
  for (const std::string& task : tasks)
    for (const std::uint64_t megabytes : {40, 80, 150, 200, 300, 600, 1000}) {
      const auto row = [&](const char* name, const Arguments& arguments, const std::string& input) {
        uses.push_back({name + (" with " + std::to_string(megabytes)) + " MB of addresses", task, arguments, 1, "memory",
                        input, {}, {}, true, false, true, {.address_space = megabytes << 20}});
      };
      row("train", train_command({"--threads", "2"}), "");
      row("predict", use_command(task, {"--threads", "2"}), small_line(task));
    }
#endif
  return uses;
}

Uses uses_with_files_that_are_none() {
  Uses uses;
  const auto train_on = [&](const std::string& name, const std::string& task, const Arguments& more,
                            const std::string& says, const Before& before, int status = 1) {
    uses.push_back({name, task, train_command(more), status, says, "", before});
  };
  for (const std::string& task : tasks) {
    train_on("a FIFO as configuration", task, {"--config", "{t}/fifo"}, "FIFO", make_fifo("fifo"), 2);
    train_on("a folder as configuration", task, {"--config", "{t}/folder"}, "folder", make_folder("folder"), 2);
    train_on("a device as configuration", task, {"--config", "/dev/zero"}, "device", {}, 2);
    train_on("a configuration that is not there", task, {"--config", "{t}/none"}, "none", {}, 2);
    for (const char* name : {"config.json", "run.json", "tokenizer.json", "trainer_state.json", "best.safetensors"}) {
      const std::string file = std::string("run/") + name;
      uses.push_back({std::string("a FIFO as ") + name, task, use_command(task), 1, "FIFO", small_line(task),
                      make_fifo(file)});
      uses.push_back({std::string("a folder as ") + name, task, use_command(task), 1, "folder", small_line(task),
                      in_turn({remove_file(file), make_folder(file)})});
      uses.push_back({std::string("a link in a circle as ") + name, task, use_command(task), 1, name, small_line(task),
                      in_turn({remove_file(file), [=](const fs::path& folder) {
                                 fs::create_symlink(folder / file, folder / file);
                               }})});
    }
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      uses.push_back({std::string("a FIFO as ") + name + " of a run that goes on", task,
                      {"train", "--out", "{run}", "--resume", "--steps", "30"}, 1, "FIFO", "",
                      make_fifo(std::string("run/") + name)});
    uses.push_back({"a FIFO as metrics.jsonl of a run that goes on", task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30"}, 0, "metrics", "",
                    make_fifo("run/metrics.jsonl")});
    Arguments command = predict_command(task);
    const Arguments rest(command.begin() + 1, command.end());
    uses.push_back({"--run is a file", task, joined({command.front(), "--run", "{t}/text"}, rest), 1, "text",
                    small_line(task), write("text", "a text")});
    uses.push_back({"--run is not there", task, joined({command.front(), "--run", "{t}/none"}, rest), 1, "none",
                    small_line(task)});
    uses.push_back({"--run is an empty folder", task, joined({command.front(), "--run", "{t}"}, rest), 1, "no run",
                    small_line(task)});
    uses.push_back({"--run is empty", task, joined({command.front(), "--run", ""}, rest), 2, "--run", small_line(task)});
    if (task == "language_model") continue;
    uses.push_back({"predict --source is a folder", task, use_command(task, {"--source", "{t}"}), 1, "folder"});
    uses.push_back({"predict --source is not there", task, use_command(task, {"--source", "{t}/none"}), 1, "none"});
    uses.push_back({"predict --source waits for who writes to a FIFO", task,
                    use_command(task, {"--source", "{t}/fifo"}), 0, "", "",
                    in_turn({make_fifo("fifo"),
                             [](const fs::path& folder) {
                               const std::string fifo = (folder / "fifo").string();
                               check(std::system(("(sleep 0.3; echo one > '" + fifo + "') &").c_str()) == 0, "no writer could be started");
                             }}),
                    [](const fs::path&, const ProgramResult& result) { CHECK(contains(result.output, "\n")); }});
  }
  // The data of each task: the flag, and others that go with it.
  const std::vector<std::tuple<std::string, std::string, Arguments>> data = {
      {"classify", "--data", {"--format", "lines"}},
      {"language_model", "--data", {}},
      {"translate", "--source", {"--target", "{t}/text"}},
      {"translate", "--target", {"--source", "{t}/text"}},
      {"translate", "--valid-source", {"--source", "{t}/text", "--target", "{t}/text", "--valid-target", "{t}/text"}},
      {"classify", "--valid", {"--data", "{t}/text", "--format", "lines"}},
      {"classify", "--test", {"--data", "{t}/text", "--format", "lines"}},
      {"language_model", "--valid", {"--data", "{t}/text"}}};
  const std::string text = "good a first line that is long enough for a window of tokens\nbad a second line of it\n";
  for (const auto& [task, flag, more] : data) {
    const auto row = [&, &task = task, &flag = flag, &more = more](const std::string& name, const std::string& file,
                                                                  const std::string& says, const Before& before) {
      train_on(flag + " is " + name, task, joined({flag, file}, more), says,
               before ? in_turn({write("text", text + text + text + text), before})
                      : write("text", text + text + text + text));
    };
    row("a FIFO", "{t}/fifo", "FIFO", make_fifo("fifo"));
    row("a device without an end", "/dev/zero", "device", {});
    row("not there", "{t}/none", "none", {});
    row("empty", "{t}/empty", "empty", write("empty", ""));
    row("a link in a circle", "{t}/circle", "circle",
        [](const fs::path& folder) { fs::create_symlink(folder / "circle", folder / "circle"); });
    row("an empty folder", "{t}/folder", "folder", make_folder("folder"));
    row("a file whose name has escapes", "{t}/no\x1b[2Jne", "\\x1b", {});
    row("a file whose name is not UTF-8", "{t}/caf\xe9", "\\xe9", {});
    row("cut-off gzip", "{t}/cut.gz", "cut off", write("cut.gz", "\x1f\x8b\x08"));
  }
  uses.push_back({"a file that is there, whose name is not UTF-8", "classify",
                  train_command({"--data", "{t}/caf\xe9", "--format", "lines"}), 2, "UTF-8", "",
                  write("caf\xe9", text + text)});
  uses.push_back({"a run whose name is not UTF-8", "classify", {"train", "--out", "{t}/caf\xe9", "{small}"}, 0});

  static const std::string bomb = zeros_as_gzip(std::size_t{1} << 30);
  for (const auto& [task, flag, more] : data) {
    if (flag.starts_with("--valid") || flag == "--test") continue;
    train_on("a gzip file that unpacks to a gigabyte", task,
             joined(joined({flag, "{t}/bomb.gz"}, more), {"--set", "data.max_bytes=100000000"}), "data.max_bytes",
             in_turn({write("text", text), write("bomb.gz", bomb)}));
  }
  const std::string lines = "forty\n" + std::string(100 << 20, 'x') + "\nnine\n";
  for (const std::string task : {"translate", "classify"}) {
    const std::string run = task == "classify" ? "a fine day number 3\n" : "forty-two\n";
    uses.push_back({"a line of 100 MB costs that line alone", task, use_command(task), 1, "line 2", lines, {},
                    [](const fs::path&, const ProgramResult& result) {
                      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 3);
                      CHECK(!result.output.ends_with("\n\n"));
                    },
                    false, true});
    uses.push_back({"a gzip file of standard input that unpacks to a gigabyte", task, use_command(task), 1, "line 1",
                    bomb, {}, {}, false, true});
  }
  uses.push_back({"a prompt of 100 MB", "language_model", use_command("language_model"), 1, "line 2",
                  "the cat\n" + std::string(100 << 20, 'x') + "\n", {}, {}, false, true});
  return uses;
}

Uses uses_of_damaged_runs() {
  Uses uses;
  for (const std::string& task : tasks) {
    const auto use = [&](const std::string& name, const std::string& says, const Before& before,
                         const Arguments& more = {}, int status = 1) {
      uses.push_back({name, task, use_command(task, more), status, says, small_line(task), before});
    };
    const auto resume = [&](const std::string& name, const std::string& says, const Before& before) {
      uses.push_back({name + ", and goes on", task, {"train", "--out", "{run}", "--resume", "--steps", "30"}, 1, says, "",
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
        std::fill(content.end() - 2000, content.end(), '\0');
        write_content(folder / "run" / name, content);
      };
    };
    use("flipped bits in the weights", "changed", flip("best.safetensors"));
    use("zeros in the weights", "changed", zero("best.safetensors"));
    use("best weights of another run", "another run", take_from_other("best.safetensors"));
    use("no best weights", "best.safetensors", remove_file("run/best.safetensors"));
    use("no best weights, and none asked for", "", remove_file("run/best.safetensors"), {"--weights", "last"}, 0);
    use("a configuration that was changed", "changed",
        edit_json("run/config.json", [](Json& config) { config["seed"] = 3; }));
    use("the checkpoint of another run", "another run", take_from_other("trainer_state.json"));
    use("an older version's run", "older version", remove_file("run/run.json"));
    use("an unknown task", "poetry", edit_json("run/run.json", [](Json& run) { run["task"] = "poetry"; }));
    use("a vocabulary that was changed", "tokenizer.json", flip("tokenizer.json"));
    use("a checkpoint's state that was changed", "changed",
        edit_json("run/trainer_state.json", [](Json& state) { state["step"] = 11; }));
    use("NUL behind the configuration", "NUL",
        [](const fs::path& folder) {
          write_content(folder / "run/config.json", content_of(folder / "run/config.json") + std::string("\0{}", 3));
        },
        {"--unverified"});
    use("a million tensors in the weights", "best.safetensors",
        write("run/best.safetensors", crowded_safetensors(1'000'000)), {"--unverified"});
    use("a header longer than the file", "best.safetensors",
        write("run/best.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)), {"--unverified"});
    uses.push_back({"80,000 added tokens", task, use_command(task, {"--unverified"}), 1, "tokenizer.json",
                    small_line(task), edit_json("run/tokenizer.json", [](Json& tokenizer) {
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
    resume("no best weights", "best.safetensors", remove_file("run/best.safetensors"));
    resume("no weights", "model.safetensors", remove_file("run/model.safetensors"));
    resume("an older version's run", "older version", remove_file("run/run.json"));
    resume("a vocabulary that was changed", "tokenizer.json", flip("tokenizer.json"));

    const auto continues = [&](const std::string& name, const Before& before, const std::string& says) {
      uses.push_back({name + " end no training", task, {"train", "--out", "{run}", "--resume", "--steps", "30"}, 0, says,
                      "", before,
                      [=](const fs::path& folder, const ProgramResult&) {
                        CHECK(tensors_of(folder / "run/model.safetensors") == continued_tensors(task));
                        CHECK(contains(content_of(folder / "run/metrics.jsonl"), "\"step\":30"));
                      }});
    };
    continues("metrics of 6e70 steps",
              [](const fs::path& folder) { replace_in(folder / "run/metrics.jsonl", "\"steps\":20", "\"steps\":6e70"); },
              "metrics.jsonl, line 1");
    continues("metrics with a bad line in the middle",
              [](const fs::path& folder) {
                std::string text = content_of(folder / "run/metrics.jsonl");
                const std::size_t second = text.find('\n') + 1;
                text[second] = '#';
                write_content(folder / "run/metrics.jsonl", text);
              },
              "metrics.jsonl, line 2");
    continues("metrics that are missing", remove_file("run/metrics.jsonl"), "metrics.jsonl");
    continues("a folder in place of metrics", in_turn({remove_file("run/metrics.jsonl"), make_folder("run/metrics.jsonl")}),
              "metrics");
    uses.back().after = {};
    continues("a folder in place of the report", in_turn({remove_file("run/report.html"), make_folder("run/report.html")}),
              "report");

    for (const std::string& other : tasks) {
      if (other == task) continue;
      Arguments command = predict_command(task);
      uses.push_back({"the run of another task", task, joined({command.front(), "--run", "{t}/other"},
                                                              {command.begin() + 1, command.end()}),
                      1, "this is a " + other + " run", small_line(task),
                      [=](const fs::path& folder) { copy_run(small_run(other), folder / "other"); }});
    }
    uses.push_back({"the run of another task, and goes on", task,
                    {"train", "--out", "{t}/other", "--resume", "--steps", "30"}, 1, "rate run", "",
                    [=](const fs::path& folder) { copy_run(small_run("rate"), folder / "other"); }});
  }
  const std::string task = "classify";
  const auto permute = [](const fs::path& folder) {
    write_content(folder / "run/classes.json", "[\n  \"good\",\n  \"bad\"\n]\n");
  };
  uses.push_back({"exchanged classes", task, use_command(task), 1, "classes.json", small_line(task), permute});
  uses.push_back({"exchanged classes, unverified", task, use_command(task, {"--unverified"}), 1, "classes.json",
                  small_line(task), permute});
  uses.push_back({"exchanged classes, and goes on", task, {"train", "--out", "{run}", "--resume", "--steps", "30"}, 1,
                  "classes.json", "", permute});

  // The data of a run was put in another order: its parts are no longer those that it was trained with.
  const auto train_on_own_data = [](const fs::path& folder) {
    const std::string text = content_of(small_texts());
    write_content(folder / "texts", text);
    const ProgramResult result = run_program(
        "classify", small_train("classify", folder / "run", {"--data", (folder / "texts").string(), "--format", "lines",
                                                             "--test-fraction", "0.2"}));
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
    uses.push_back({std::string("the data was sorted: ") + part, task,
                    {"evaluate", "--run", "{t}/run", "--part", part}, 1, "not what the run was made with", "",
                    in_turn({train_on_own_data, sort_data})});
    uses.push_back({std::string("the data is as it was: ") + part, task,
                    {"evaluate", "--run", "{t}/run", "--part", part}, 0, "", "", train_on_own_data});
  }
  uses.push_back({"the data was sorted, and goes on", task,
                  {"train", "--out", "{t}/run", "--resume", "--steps", "30"}, 1, "data", "",
                  in_turn({train_on_own_data, sort_data})});
  return uses;
}

Uses uses_with_wrong_flags() {
  Uses uses;
  for (const std::string& task : tasks) {
    const std::string attention = attention_setting(task);
    const auto refuse = [&](const std::string& name, const Arguments& more, const std::string& says) {
      uses.push_back({name, task, train_command(more), 2, says});
    };
    refuse("an option that the attention does not know", {"--attention", "bigbird", "--set", attention + ".blok=2"},
           "block");
    refuse("an option of another attention", {"--attention", "fastformer", "--set", attention + ".block=2"}, "block");
    refuse("an attention named twice", {"--attention", "bigbird", "--set", attention + "=fastformer"}, attention);
    refuse("an attention that there is not", {"--attention", "bigbrd"}, "bigbird");
    refuse("a flag given twice", {"--steps", "3", "--steps", "4"}, "--steps");
    refuse("--out given twice", {"--out", "{t}/again"}, "--out");
    refuse("steps as 1e3", {"--steps", "1e3"}, "digits");
    refuse("steps of nothing", {"--steps", ""}, "steps");
    refuse("a seed below zero", {"--seed", "-1"}, "seed");
    refuse("a seed of 2^64", {"--seed", "18446744073709551616"}, "seed");
    refuse("an unknown flag", {"--stepz", "3"}, "--steps");
    refuse("an unknown setting", {"--set", "model.widht=8"}, "model.width");
    refuse("a group as setting", {"--set", "model=3"}, "model");
    refuse("a setting without a value", {"--set", "training.steps"}, "key=value");
    refuse("a setting without a name", {"--set", "=3"}, "key=value");
    refuse("a setting with escapes", {"--set", "\x1b]0;title\x07=1"}, "\\x1b");
    refuse("a setting that is not UTF-8", {"--set", "caf\xe9=1"}, "\\xe9");
    refuse("a value that is not UTF-8", {"--set", "training.keep_best_by=caf\xe9"}, "keep_best_by");
    refuse("a device that there is not", {"--device", "vulkan:99"}, "vulkan:99");
    refuse("f16 on the CPU", {"--precision", "f16", "--device", "cpu"}, "f16");
    const auto refuse_file = [&](const std::string& name, const std::string& content, const std::string& says) {
      uses.push_back({name, task, train_command({"--config", "{t}/config.json"}), 2, says, "",
                      write("config.json", content)});
    };
    refuse_file("a configuration with bytes behind a NUL", std::string("{\"seed\": 3}\0{\"seed\": 4}", 23), "NUL");
    refuse_file("a configuration that ends with NUL", std::string("{\"seed\": 3}\0", 12), "NUL");
    refuse_file("a configuration that ends too early", "{\n\"seed\":\n", "config.json");
    refuse_file("a configuration with an error in line 3", "{\n\"seed\": 3,\n\"training\": {,}\n}", "line 3");
    refuse_file("a configuration that is a list", "[1, 2]", "config.json");
    refuse_file("an empty configuration", "", "config.json");
    refuse_file("a configuration that is not UTF-8", "{\"device\": \"caf\xe9\"}", "config.json");
    refuse_file("a configuration with a number beyond all", "{\"training\": {\"clip_norm\": 1e999}}", "config.json");
    refuse_file("a configuration with a nesting of 100,000", std::string(100'000, '['), "config.json");
    refuse_file("a configuration with a key that is not there", "{\"training\": {\"stepz\": 3}}", "training.steps");
    refuse_file("a configuration with escapes", "{\"\\u001b[2J\": 3}", "\\x1b");

    uses.push_back({"an option of the attention takes effect", task,
                    train_command({"--attention", "bigbird", "--set", attention + ".block=2", "--steps", "2"}), 0, "",
                    "", {}, [=](const fs::path& folder, const ProgramResult&) {
                      const Json config = Json::parse(content_of(folder / "out/config.json"));
                      CHECK(config["model"][last_part(attention)] == Json({{"name", "bigbird"}, {"block", 2}}));
                    }});
    for (const char* setting : {"model.width=32", "model.dropout=0.5", "tokenizer.vocabulary=300", "training.steps=3",
                                "seed=7", "model.norm=pre", "precision=f16"})
      uses.push_back({std::string("a use that changes the model: ") + setting, task,
                      use_command(task, {"--set", setting}), 2, "cannot be changed", small_line(task)});
    uses.push_back({"a use with a configuration that changes the model", task,
                    use_command(task, {"--config", "{t}/config.json"}), 2, "cannot be changed", small_line(task),
                    write("config.json", "{\"model\": {\"width\": 32}}")});
    uses.push_back({"weights of a name that there is not", task, use_command(task, {"--weights", "newest"}), 2,
                    "best or last", small_line(task)});
    uses.push_back({"a run that goes on with another seed", task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30", "--seed", "2"}, 1, "seed"});
    uses.push_back({"a run that goes on with another width", task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30", "--set", "model.width=32"}, 1, "width"});
    uses.push_back({"no command", task, {}, 2, "subcommand"});
    uses.back().says = "";
    uses.push_back({"--run twice", task, use_command(task, {"--run", "{run}"}), 2, "--run", small_line(task)});
    uses.push_back({"a part of the data that there is not", task, {"evaluate", "--run", "{run}", "--part", "tset"}, 2,
                    "test"});

    // The rate is so large that nothing can come of it: that is said, and nothing is called the best.
    for (const char* rate : {"1e6", "1e30"}) {
      uses.push_back({std::string("a learning rate of ") + rate, task,
                      train_command({"--set", std::string("training.schedule.learning_rate=") + rate, "--set",
                                     "training.schedule.name=constant", "--set", "training.schedule.warmup_steps=0",
                                     "--steps", "60"}),
                      1, "learning_rate", "", {},
                      [=](const fs::path& folder, const ProgramResult& result) {
                        std::istringstream lines(result.errors);
                        for (std::string line; std::getline(lines, line);)
                          CHECK_FALSE((contains(line, "(best)") && (contains(line, "inf") || contains(line, "nan"))));
                        const bool warned = contains(result.errors, "learning_rate") || contains(result.errors, "learning rate");
                        CHECK_MESSAGE(warned, result.errors);
                        // What is kept can be used, or says why not.
                        if (!fs::exists(folder / "out/trainer_state.json")) return;
                        Arguments command = joined(predict_command(task), {"--run", (folder / "out").string()});
                        const ProgramResult use = run_program(task, command, small_line(task));
                        CHECK_MESSAGE((use.status == 0 || use.status == 1), use.status);
                      },
                      true, false, true});
    }
  }
  uses.push_back({"--source without --target", "translate", train_command({"--source", "{t}/x"}), 2, "--target"});
  uses.push_back({"evaluate with one of two files", "translate", {"evaluate", "--run", "{run}", "--source", "{t}/x"}, 2,
                  "--target"});
  uses.push_back({"--prompt and --prompts", "language_model",
                  {"generate", "--run", "{run}", "--prompt", "the", "--prompts"}, 2, "--prompt"});
  for (const auto& [name, flag] : {std::pair{"bigbird", "--decoder-attention"}, {"bigbird", "--cross-attention"}})
    uses.push_back({std::string(flag) + " with an option that it does not know", "translate",
                    train_command({flag, name, "--set",
                                   std::string("model.") + (std::string(flag) == "--decoder-attention" ? "decoder" : "cross") +
                                       "_attention.blok=2"}),
                    2, ""});
  return uses;
}

Uses uses_with_odd_texts() {
  Uses uses;
  std::string texts;
  for (int i = 0; i < 40; ++i)
    texts += (i % 2 == 0 ? "\x1b[31mbad\x07 a sad \x1b]0;title\x07 night " : "good\xc2\x9b" "2J a fine \x1b[2J day ") +
             std::to_string(i) + "\n";
  uses.push_back({"labels and texts with escapes", "classify",
                  train_command({"--data", "{t}/texts", "--format", "lines"}), 0, "\\x1b[31mbad\\x07", "",
                  write("texts", texts)});
  uses.push_back({"a label with escapes that the run does not know", "classify",
                  {"evaluate", "--run", "{run}", "--data", "{t}/texts", "--format", "lines"}, 1, "\\x1b[31mbad", "",
                  write("texts", texts)});
  uses.push_back({"texts with NUL", "classify", train_command({"--data", "{t}/texts", "--format", "lines"}), 0, "", "",
                  [](const fs::path& folder) {
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
  uses.push_back({"a prompt with escapes", "language_model",
                  {"generate", "--run", "{run}", "--prompt", "\x1b[2Jthe"}, 2, "\\x1b"});
  uses.push_back({"a prompt that is not UTF-8", "language_model",
                  {"generate", "--run", "{run}", "--prompt", "caf\xe9"}, 2, "UTF-8"});
  for (const std::string task : {"translate", "classify"}) {
    uses.push_back({"bytes that are not UTF-8 cost their line alone", task, use_command(task), 1, "line 2",
                    "one\ncaf\xe9 \x1b[2J\nnine\n", {},
                    [](const fs::path&, const ProgramResult& result) {
                      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 3);
                      CHECK(!result.output.ends_with("\n\n"));
                    },
                    false, true});
    uses.push_back({"blank lines stay blank", task, use_command(task), 0, "", "\n \n\t\n", {},
                    [](const fs::path&, const ProgramResult& result) { CHECK(result.output == "\n\n\n"); }});
    uses.push_back({"lines with escapes and NUL are texts", task, use_command(task), 0, "",
                    std::string("one \x1b[2J\nnine\0\n", 15), {},
                    [](const fs::path&, const ProgramResult& result) {
                      CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 2);
                    }});
  }
  return uses;
}

}  // namespace heed::test
