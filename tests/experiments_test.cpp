// docs/experiments.md: compare accepts every command of the page, and every configuration of an experiment is
// in one.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "heed/base/file.h"
#include "heed/tests/program_runner.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

/// The words of a line as a shell sees them, where quotes are single ones.
Arguments words_of(const std::string& line) {
  Arguments words;
  bool quoted = false, open = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    if (c != '\'') words.back() += c;
  }
  REQUIRE_MESSAGE(!quoted, "a quote is open in ", line);
  return words;
}

/// The commands of a page that begin with `program`; a backslash joins lines.
std::vector<Arguments> commands_in(const std::string& page, const std::string& program) {
  std::vector<Arguments> commands;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(program + " ")) continue;
    for (std::string more; line.ends_with('\\') && std::getline(lines, more);)
      line.replace(line.size() - 1, 1, more);
    commands.push_back(words_of(line));
  }
  return commands;
}

std::string value_of(const Arguments& command, const std::string& flag) {
  const auto found = std::ranges::find(command, flag);
  return found == command.end() || found + 1 == command.end() ? "" : *(found + 1);
}

}  // namespace

TEST_CASE("experiments: the commands of the page have the words that a shell gives them") {
  const std::vector<Arguments> commands =
      commands_in("text\nrun --set 'a=\"b c\",[1, 2]' \\\n    --steps 3\nrunner x\nrun  y\n", "run");
  REQUIRE(commands.size() == 2);
  CHECK(commands[0] == Arguments{"run", "--set", "a=\"b c\",[1, 2]", "--steps", "3"});
  CHECK(commands[1] == Arguments{"run", "y"});
}

TEST_CASE("experiments: compare accepts every command of the page, and every configuration is in one") {
  const fs::path source = HEED_SOURCE_DIR;
  std::set<std::string> named, there;
  for (const auto& entry : fs::directory_iterator(source / "examples/configs/experiments"))
    there.insert("examples/configs/experiments/" + entry.path().filename().string());
  const TemporaryFolder folder;
  for (Arguments command : commands_in(read_file(source / "docs/experiments.md"), "build/bin/compare")) {
    const std::string out = value_of(command, "--out");
    CAPTURE(out);
    REQUIRE(out.starts_with("runs/"));
    named.insert(value_of(command, "--config"));
    // Without data no cell gets further than its settings, which are checked before any data is looked for.
    bool has_data = false;
    for (std::string& word : command)
      if (word.starts_with("../shared/data/")) {
        word = "no/such/data";
        has_data = true;
      }
    if (!has_data) command.insert(command.end(), {"--data", "no/such/data.tsv"});
    *std::ranges::find(command, out) = (folder / out.substr(5)).string();
    *(std::ranges::find(command, std::string("--seeds")) + 1) = "1";
    command.insert(command.end(), {"--jobs", "8", "--threads", "1"});
    command.erase(command.begin());
    const ProgramResult result = run_program("compare", command, {}, source);
    CHECK_MESSAGE(result.status == 1, result.errors);  // 2: a setting was refused
    CHECK_MESSAGE(result.errors.find("no/such/data") != std::string::npos, result.errors);
    CHECK_MESSAGE(result.errors.find("done") == std::string::npos, result.errors);
  }
  CHECK_FALSE(there.empty());
  for (const std::string& config : there) CHECK_MESSAGE(named.contains(config), config, " is in no command");
}
