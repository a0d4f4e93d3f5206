// Programs in hostile hands: the table of uses_of_*.cpp, and ends by signals and lost streams.
//
// This runs the rows whose names hold a word:
//   HEED_HOSTILE=metrics heed_tests --source-file='*/hostile_test.cpp'

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "heed/apps/data/text_file.h"
#include "heed/tests/hostile/hostile_uses.h"

namespace {

namespace fs = std::filesystem;

bool is_chosen(const std::string& name) {
  const char* part = std::getenv("HEED_HOSTILE");
  return !part || contains(name, part);
}

Arguments filled_in(const HostileUse& use, const fs::path& folder) {
  Arguments arguments;
  for (std::string argument : use.arguments) {
    if (argument == "{small}") {
      arguments = joined(std::move(arguments), small_flags(use.program));
      continue;
    }
    replace_all(argument, "{t}", folder.string());
    replace_all(argument, "{run}", (folder / "run").string());
    arguments.push_back(argument);
  }
  return arguments;
}

std::string command_line(const HostileUse& use, const Arguments& arguments) {
  std::string text = use.program;
  for (const std::string& argument : arguments) text += " " + argument.substr(0, 200);
  return text;
}

/// True when nothing in a text can steer a terminal or flood it.
bool is_harmless(const std::string& text) {
  std::size_t line = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return false;
    line = byte == '\n' ? 0 : line + 1;
    if (line > 10'000) return false;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0)
      return false;  // C1
  }
  for (const char* direction : {"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d",
                                "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"})
    if (contains(text, direction)) return false;
  return true;
}

/// What a terminal gets from a program. Its line ends are "\r\n".
ProgramResult run_on_terminal(const std::string& program, const Arguments& arguments,
                              const std::string& input = {}) {
  std::string command = std::string(HEED_PROGRAM_DIR) + "/" + program;
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  const TemporaryFolder folder;
  write_content(folder / "input", input);
  ProgramResult result =
      run_program("/usr/bin/script", {"-qec", command + " < " + (folder / "input").string(), "/dev/null"}, "",
                  ".", {.seconds = most_seconds});
  replace_all(result.output, "\r\n", "\n");
  return result;
}

/// Names below a folder that only a write under way may have.
std::string temporaries(const fs::path& folder) {
  std::string names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().filename().string().starts_with(".heed-")) names += entry.path().string() + " ";
  return names;
}

void check_use(const HostileUse& use) {
  const TemporaryFolder folder;
  const Arguments arguments = filled_in(use, folder.path());
  const std::string command = command_line(use, arguments);
  CAPTURE_ALL(use.name, command);
  const auto names_run = [](const std::string& argument) { return contains(argument, "{run}"); };
  if (std::ranges::any_of(use.arguments, names_run)) copy_run(small_run(use.program), folder / "run");
  try {
    if (use.before) use.before(folder.path());
  } catch (const CannotPrepare& cannot) {
    MESSAGE("skipped: ", use.name, ": ", cannot.reason);
    return;
  }
  const auto before = snapshot(folder.path());
  ProgramLimits limits = use.limits;
  limits.seconds = most_seconds;
  const ProgramResult result = run_program(use.program, arguments, use.input, ".", limits);
  const std::string errors = result.errors.substr(0, 3000);
  CAPTURE(errors);
  CHECK_FALSE(result.hung);
  if (result.hung) return;
  CHECK(result.peak_bytes <= most_bytes);
  CHECK(is_harmless(result.errors));
  CHECK(temporaries(folder.path()) == "");
  const bool succeeded = use.may_succeed && result.status == 0;
  if (!succeeded) CHECK(result.status == use.status);
  if (result.status == 1 || result.status == 2)
    check_refused(use.program, result, use.says, use.answers);
  else if (use.status == 0)
    CHECK_MESSAGE(contains(result.errors, use.says), "expected: ", use.says);
  if (result.status != 0 && !use.writes) CHECK(difference(before, snapshot(folder.path())) == "");
  if (result.status == use.status || succeeded)
    if (use.after) use.after(folder.path(), result);
}

/// The rows to run. A row of several programs runs for one of them, another one for each name, if it is
/// `shared` and HEED_HOSTILE is not set, or under a sanitizer, which takes five times as long.
std::vector<HostileUse> selected(std::vector<HostileUse> uses) {
  std::map<std::string, std::vector<HostileUse>> by_name;
  std::map<std::string, int> seen;
  std::vector<std::string> names;
  for (HostileUse& use : uses) {
    // A program may have several rows of one name.
    const std::string name = use.name + std::to_string(++seen[use.program + use.name]);
    if (!by_name.contains(name)) names.push_back(name);
    by_name[name].push_back(std::move(use));
  }
  std::vector<HostileUse> chosen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<HostileUse>& same = by_name[names[i]];
    for (std::size_t k = 0; k < same.size(); ++k)
      if ((!sanitized && (!same[k].shared || std::getenv("HEED_HOSTILE"))) || k == i % same.size())
        chosen.push_back(std::move(same[k]));
  }
  return chosen;
}

void check_uses(std::vector<HostileUse> uses) {
  for (const HostileUse& use : selected(std::move(uses))) try {
      if (is_chosen(use.program + ": " + use.name)) check_use(use);
    } catch (const std::exception& error) {
      FAIL_CHECK(use.program, ": ", use.name, ": ", error.what());
    }
}

}  // namespace

TEST_CASE("hostile: nothing is lost that is not ours") {
  check_uses(uses_that_could_lose_files());
}

TEST_CASE("hostile: nonsensical sizes are refused, with the number") {
  check_uses(uses_with_sizes_without_sense());
}

TEST_CASE("hostile: little memory is reported, and never hangs") {
  check_uses(uses_with_little_memory());
}

TEST_CASE("hostile: files that are not what they should be, or too large") {
  check_uses(uses_with_files_that_are_none());
}

TEST_CASE("hostile: a damaged run gives no results") {
  check_uses(uses_of_damaged_runs());
}

TEST_CASE("hostile: flags and settings that are wrong") {
  check_uses(uses_with_wrong_flags());
}

TEST_CASE("hostile: texts that are not text, or steer terminals") {
  check_uses(uses_with_odd_texts());
}

TEST_CASE("hostile: labels and texts that steer terminals, on a terminal and as JSON") {
  if (!fs::exists("/usr/bin/script")) {
    MESSAGE("skipped: there is no /usr/bin/script, which lends a terminal");
    return;
  }
  const TemporaryFolder folder;
  std::string texts;
  for (int i = 0; i < 40; ++i)
    texts += (i % 2 == 0 ? "ba\u202ed a sad night " : "go\u009b2Jod a fine day ") + std::to_string(i) + "\n";
  write_content(folder / "texts", texts);
  const std::string run = (folder / "run").string();
  const ProgramResult training = run_on_terminal(
      "classify", small_train("classify", folder / "run",
                              {"--data", (folder / "texts").string(), "--format", "lines", "--steps", "40"}));
  CHECK_MESSAGE(training.status == 0, training.output);
  CHECK(contains(training.output, "ba\\u202ed"));
  // The program's own: it begins its progress line anew, and in colour.
  std::string progress = training.output;
  for (const char* own : {"\r\x1b[K", "\x1b[32m", "\x1b[0m"}) replace_all(progress, own, "");
  CHECK(is_harmless(progress));
  const std::string input = "a fine day 3\na sad night 4\n";
  const ProgramResult answers = run_on_terminal("classify", {"predict", "--run", run}, input);
  CHECK(is_harmless(answers.output));
  CHECK((contains(answers.output, "go\\u009b2Jod\n") || contains(answers.output, "ba\\u202ed\n")));
  // In a pipe, answers are what they are.
  const ProgramResult piped = run_program("classify", {"predict", "--run", run}, input);
  std::string shown = piped.output;
  replace_all(shown, "\u009b", "\\u009b");
  replace_all(shown, "\u202e", "\\u202e");
  CHECK(shown == answers.output);
  CHECK(shown != piped.output);
  for (const bool terminal : {false, true})
    for (const Arguments& command :
         {Arguments{"predict", "--run", run, "--json"}, Arguments{"evaluate", "--run", run, "--json"}}) {
      const ProgramResult json =
          terminal ? run_on_terminal("classify", command, input) : run_program("classify", command, input);
      CHECK(json.status == 0);
      CHECK(is_harmless(json.output));
      std::istringstream lines(json.output);
      std::string line;
      std::getline(lines, line);
      CHECK_MESSAGE(contains(nlohmann::json::parse(line).dump(), "go\u009b2Jod"), line);
    }
  const ProgramResult table = run_on_terminal("classify", {"evaluate", "--run", run});
  CHECK(table.status == 0);
  CHECK(is_harmless(table.output));
  CHECK(contains(table.output, "support"));
  CHECK(contains(table.output, "go\\u009b2Jod"));
}

TEST_CASE("hostile: heed verify reads files that are not cases, and names that steer terminals") {
  const TemporaryFolder folder;
  const fs::path cases = folder / "cases";
  fs::create_directory(cases);
  with_fifo("mha__fifo.safetensors")(cases);
  with_folder("mha__folder.safetensors")(cases);
  with_file("mha__long.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10))(cases);
  with_file("mha__\x1b[2J\xe9.safetensors", "x")(cases);
  const ProgramResult result =
      run_program("heed", {"verify", cases.string()}, "", ".", {.seconds = most_seconds});
  CAPTURE(result.output);
  CHECK_FALSE(result.hung);
  CHECK(result.status == 1);
  CHECK(is_harmless(result.output));
  CHECK(is_harmless(result.errors));
  for (const char* part :
       {"FIFO", "folder", "9223372036854775807", "mha__\\x1b[2J\\xe9", "0 passed, 4 failed"})
    CHECK_MESSAGE(contains(result.output, part), part);
}

// --- signals and streams

namespace {

const Arguments endless = {"--steps", "1000000", "--save-every", "0", "--set", "training.evaluate_every=0"};

/// Trains without an end, and without a checkpoint but the one that the end makes; it has metrics already.
class EndlessTraining : public BackgroundProgram {
 public:
  EndlessTraining(const std::string& task, const fs::path& run, const std::string& before = {},
                  const std::string& streams = {})
      : BackgroundProgram("/bin/sh", in_shell(before, task, small_train(task, run, endless), streams)) {
    REQUIRE_MESSAGE(wait_for_file(run / "metrics.jsonl"), errors());
  }
  /// The exit status, or -1 when the program hangs.
  int ended() { return wait(std::chrono::seconds(20)); }
};

int step_of(const fs::path& run) {
  return nlohmann::json::parse(content_of(run / "trainer_state.json")).at("step").get<int>();
}

/// The training that was ended has left a checkpoint, which two more steps can be made from.
void check_can_go_on(const std::string& task, const fs::path& run) {
  REQUIRE(fs::exists(run / "trainer_state.json"));
  const int step = step_of(run);
  const ProgramResult result =
      run_program(task, {"train", "--resume", "--out", run.string(), "--steps", std::to_string(step + 2)});
  CHECK_MESSAGE(result.status == 0, result.errors);
  CHECK(step_of(run) == step + 2);
}

}  // namespace

TEST_CASE("hostile: signals that ask for an end save, and end with their status") {
  struct Row {
    const char* task;
    int signal, status;
  };
  for (const Row& row : {Row{"translate", SIGTERM, 143},
                         {"translate", SIGHUP, 143},
                         {"classify", SIGINT, 130},
                         {"classify", SIGHUP, 143},
                         {"language_model", SIGTERM, 143},
                         {"language_model", SIGINT, 130}}) {
    CAPTURE_ALL(row.task, row.signal);
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    EndlessTraining program(row.task, run);
    program.send(row.signal);
    CHECK(program.ended() == row.status);
    CHECK(contains(program.errors(), "interrupted at step"));
    CHECK(program.output().empty());
    check_can_go_on(row.task, run);
  }
}

TEST_CASE(
    "hostile: a run that is moved, exchanged or removed while it trains does not end as if it were done") {
  const std::string task = "classify";
  for (const char* what : {"moved", "exchanged", "removed"}) {
    CAPTURE(what);
    const TemporaryFolder folder;
    const fs::path run = folder / "run", away = folder / "away";
    EndlessTraining program(task, run);
    if (what != std::string("removed")) fs::rename(run, away);
    std::error_code written_meanwhile;
    while (fs::exists(run)) fs::remove_all(run, written_meanwhile);
    if (what == std::string("exchanged")) fs::create_directory(run);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    program.send(SIGTERM);
    CHECK(program.ended() == 1);
    CHECK(error_lines(task, program.errors()).size() == 1);
    CHECK(contains(program.errors(), what == std::string("removed") ? "was removed" : away.string()));
    CHECK(fs::exists(run) == (what == std::string("exchanged")));
    if (fs::exists(run)) CHECK(fs::is_empty(run));
    if (fs::exists(away)) check_can_go_on(task, away);
  }
}

TEST_CASE("hostile: a run whose files disappear while it trains says so, and goes on when they are back") {
  for (const std::string task : {"classify", "translate"}) {
    CAPTURE(task);
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    EndlessTraining program(task, run);
    const std::vector<const char*> names = {"config.json", "run.json", "tokenizer.json"};
    for (const char* name : names) fs::rename(run / name, folder / name);
    program.send(SIGTERM);
    CHECK(program.ended() == 1);
    CHECK(contains(program.errors(), "run.json\" disappeared during training; put it back"));
    for (const char* name : names) fs::rename(folder / name, run / name);
    check_can_go_on(task, run);
  }
}

TEST_CASE("hostile: what the parent ignores stays ignored") {
  for (const auto& [name, signal] : {std::pair{"INT", SIGINT}, {"HUP", SIGHUP}}) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    EndlessTraining program("classify", run, concat_text("trap '' ", name, "; "));
    program.send(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(program.running());
    program.send(SIGTERM);
    CHECK(program.ended() == 143);
    check_can_go_on("classify", run);
  }
}

TEST_CASE("hostile: a standard error that nobody reads any more ends a training like SIGTERM") {
  for (const char* task : {"classify", "language_model"}) {
    CAPTURE(task);
    const TemporaryFolder folder;
    const fs::path run = folder / "run", errors = folder / "errors";
    with_fifo("errors")(folder.path());
    const int reader = ::open(errors.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EndlessTraining program(task, run, "", " 2>'" + errors.string() + "'");
    ::close(reader);
    CHECK(program.ended() == 143);
    check_can_go_on(task, run);
  }
}

TEST_CASE("hostile: streams that are closed from the start become no file of the run") {
  for (const std::string closed : {"2>&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    CAPTURE(closed);
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    const ProgramResult result =
        run_program("/bin/sh", in_shell("", "translate", small_train("translate", run), " " + closed));
    CHECK(result.status == 0);
    CHECK(tensors_of(run / "model.safetensors") == tensors_of(small_run("translate") / "model.safetensors"));
    for (const fs::directory_entry& entry : fs::directory_iterator(run)) {
      CAPTURE(entry.path());
      const std::string content = content_of(entry.path());
      CHECK_FALSE(contains(content, " parameters\n"));
      CHECK_FALSE(contains(content, "done after"));
    }
  }
}

TEST_CASE("hostile: output that cannot be written is reported") {
  if (!fs::exists("/dev/full")) return;
  for (const std::string task : {"translate", "classify", "language_model"}) {
    CAPTURE(task);
    const TemporaryFolder folder;
    copy_run(small_run(task), folder / "run");
    const ProgramResult full = run_program(
        "/bin/sh", in_shell("", task, use_command(task, (folder / "run").string()), " > /dev/full"),
        small_line(task));
    CHECK(full.status == 1);
    CHECK(contains(full.errors, "error: standard output"));
  }
}

TEST_CASE("hostile: a closed pipe ends programs without a word, also where its signal is ignored") {
  const std::vector<std::string> predict = use_command("classify", small_run("classify").string());
  for (const char* before : {"", "trap '' PIPE; "})
    for (const auto& [program, arguments] :
         {std::pair("heed", std::vector<std::string>{"variants"}), {"classify", predict}}) {
      CAPTURE(program);
      const ProgramResult result =
          run_program("/bin/sh", in_shell(before, program, arguments, " | true"), small_line("classify"));
      CHECK(result.errors == "");
    }
}

TEST_CASE(
    "hostile: a limit on the size of files is an error, not a signal, and training goes on without it") {
  for (const std::string task : {"translate", "classify", "language_model"}) {
    CAPTURE(task);
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    const ProgramResult result = run_program(task, small_run_train(task, run), "", ".",
                                             {.file_size = 8 << 10, .seconds = most_seconds});
    CAPTURE(result.errors);
    CHECK(result.status == 1);
    CHECK(error_lines(task, result.errors).size() == 1);
    CHECK(contains(result.errors, "too large"));
    CHECK(temporaries(run) == "");
    const ProgramResult again = run_program(task, {"train", "--resume", "--out", run.string()});
    CHECK_MESSAGE(again.status == 0, again.errors);
    CHECK(tensors_of(run / "model.safetensors") == tensors_of(small_run(task) / "model.safetensors"));

    const fs::path capture = folder / "capture.html";
    const ProgramResult shown =
        run_program(task, use_command(task, run.string(), {"--capture", capture.string()}), small_line(task),
                    ".", {.file_size = 1 << 10, .seconds = most_seconds});
    CHECK(shown.status == 1);
    CHECK(contains(shown.errors, "too large"));
    CHECK(!fs::exists(capture));
  }
}
