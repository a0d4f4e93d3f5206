#include "program.h"

#include <algorithm>
#include <csignal>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "heed/core/error.h"
#include "heed/core/nearest_name.h"

namespace heed::programs {
namespace {

volatile std::sig_atomic_t signal_received = 0;

extern "C" void on_signal(int signal) {
  signal_received = 1;
  std::signal(signal, SIG_DFL);  // the second one ends the program
}

int report(std::string_view program, std::string message, int status) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << program << ": error: " << message << std::endl;
  return status;
}

/// The command whose arguments were being parsed: the deepest one given.
const CLI::App& deepest_command(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : deepest_command(*given.front());
}

std::string unknown_argument(const CLI::App& app, const std::string& argument) {
  const CLI::App& command = deepest_command(app);
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  if (name.starts_with("-")) {
    for (const CLI::Option* option : command.get_options())
      for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
    return concat_text("unknown option ", name, suggest_name(name, known));
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  if (known.empty()) return concat_text("unexpected argument \"", argument, "\"");
  return concat_text("unknown command \"", argument, '"', suggest_name(argument, known));
}

int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = deepest_command(app);
    std::cout << command.help(&command == &app ? "" : app.get_name());
    return exit_success;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
    return exit_success;
  } catch (const CLI::ParseError& error) {
    // An unknown argument also causes complaints about what is missing: name the cause, not the consequence.
    const std::vector<std::string> extras = deepest_command(app).remaining();
    if (!extras.empty()) throw UsageError(unknown_argument(app, extras.front()));
    const std::vector<std::string> outer = app.remaining();
    if (!outer.empty()) throw UsageError(unknown_argument(app, outer.front()));
    const CLI::App& command = deepest_command(app);
    std::string path = command.get_name();  // of commands within commands
    for (const CLI::App* parent = command.get_parent(); parent; parent = parent->get_parent())
      path = parent->get_name() + " " + path;
    throw UsageError(concat_text(error.what(), " (", path, " --help shows the options)"));
  }
  return body();
}

}  // namespace

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  const std::string& name = app.get_name();
  try {
    const int status = parse_and_run(app, argc, argv, body);
    flush_output();
    return status;
  } catch (const UsageError& error) {
    return report(name, error.what(), exit_usage);
  } catch (const std::bad_alloc&) {
    return report(name, "out of memory: a smaller batch or model needs less", exit_failure);
  } catch (const std::exception& error) {
    return report(name, error.what(), exit_failure);
  }
}

int run_commands(CLI::App& app, int argc, char** argv, const std::vector<std::function<int()>>& bodies) {
  app.require_subcommand(1);
  return run_program(app, argc, argv, [&] {
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    for (std::size_t i = 0; i < bodies.size(); ++i)
      if (commands.at(i)->parsed()) return bodies[i]();
    throw UsageError("no command was given");
  });
}

InterruptGuard::InterruptGuard() {
  signal_received = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::interrupted() {
  return signal_received != 0;
}

void flush_output() {
  std::cout.flush();
  check(std::cout.good(), "standard output could not be written: is the disk full?");
}

}  // namespace heed::programs
