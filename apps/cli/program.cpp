#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <iostream>
#include <map>
#include <new>
#include <optional>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "heed/apps/cli/program.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/file.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/core/version.h"

namespace heed::programs {
namespace {

constexpr std::array<int, 4> ending_signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
volatile std::sig_atomic_t signal_received = 0;
std::atomic<bool> stop_requested = false;  // by a signal that was not passed on
std::atomic<bool> stop_polled = false;     // a stop request is polled for
volatile pid_t guarded = 0;  // whose InterruptGuard lives: this process, or the one that forked it

extern "C" void on_signal(int signal, siginfo_t* info, void*) {
  if (signal_received == 0) signal_received = signal;
  // A signal passed on by the process that forked this one was often sent to the whole process
  // group, so it may arrive twice.
  const bool passed_on = info->si_pid == guarded && getpid() != guarded;
  if (stop_polled && (passed_on || !stop_requested.exchange(true))) return;
  std::signal(signal, SIG_DFL);  // the second one ends the program; the first, while nobody asks
  raise(signal);
}

/// Words of the library, and the same on the command line.
std::map<std::string, std::string, std::less<>>& flag_words() {
  static std::map<std::string, std::string, std::less<>> words = {
      {"resume=true", "--resume"},        {"with resume=false", "without --resume"},
      {"verify=false", "--unverified"},   {"overwrite=true", "--overwrite"},
      {"weights=last", "--weights last"}, {"random=N", "--random N"},
  };
  return words;
}

/// Whether a character can be part of a word of flag_words(), so that a longer word is left alone.
bool continues_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '"' || c == '/';
}

int report(std::string_view program, std::string_view message, int status) {
  print_message(program, concat_text("error: ", in_flags(message)));
  return status;
}

/// Opens missing standard streams, so that no other file becomes standard output or standard error
/// by chance. Writing to a standard output that was closed fails.
void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0)
      (void)!open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

/// Ends the program before run_commands() can catch exceptions, when there may be no memory for
/// one.
[[noreturn]] void end_at_once(std::string_view error) {
  for (const std::string_view part : {std::string_view(program_invocation_short_name),
                                      std::string_view(": error: "), error, std::string_view("\n")})
    (void)!write(STDERR_FILENO, part.data(), part.size());
  _exit(exit_failure);
}

/// Runs before the constructors of all libraries, because they allocate too.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_all)() = [] {
  std::set_new_handler([] { end_at_once("out of memory before start-up; raise the limit (ulimit -v)"); });
};

/// Runs before all other constructors, because library initialisation already uses the required
/// instructions.
[[gnu::constructor(101)]] void stop_on_old_processor() {
  if (const std::string error = processor_error(needed_features()); !error.empty()) end_at_once(error);
}

/// Escapes control characters in everything written to the stream while it lives, so that it cannot
/// steer the terminal (see unicode::printable_lines). Incomplete lines are passed on when flushed.
class TerminalOutput : private std::streambuf {
 public:
  explicit TerminalOutput(std::ostream& stream) : stream_(stream), terminal_(stream.rdbuf(this)) {}
  ~TerminalOutput() override {
    pass(waiting_.size());
    stream_.rdbuf(terminal_);
  }
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

 private:
  int_type overflow(int_type byte) override {
    if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
    const char one = traits_type::to_char_type(byte);
    return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    waiting_.append(bytes, static_cast<std::size_t>(count));
    return pass(waiting_.rfind('\n') + 1) ? count : 0;  // no line is whole: npos + 1, which is 0
  }
  int sync() override { return pass(waiting_.size()) ? terminal_->pubsync() : -1; }
  bool pass(std::size_t bytes) {
    const std::string text = unicode::printable_lines(std::string_view(waiting_).substr(0, bytes));
    waiting_.erase(0, bytes);
    const auto size = static_cast<std::streamsize>(text.size());
    return terminal_->sputn(text.data(), size) == size;
  }

  std::ostream& stream_;
  std::streambuf* const terminal_;
  std::string waiting_;
};

/// Formats help in lines of at most 100 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(28); }

  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry("  " + make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* sub) const override {
    return entry("  " + sub->get_name(), sub->get_description());
  }

 private:
  /// Formats an entry: the description next to the name, or below a long name.
  std::string entry(std::string text, const std::string& description) const {
    const std::size_t left = get_column_width(), right = 100;
    std::size_t column = text.size();
    const auto indent = [&] {
      if (column >= left) text += '\n', column = 0;
      text.append(left - column, ' ');
      column = left;
    };
    indent();
    std::istringstream words(description);
    for (std::string word; words >> word;) {
      if (column > left && column + 1 + unicode::columns(word) > right) indent();
      if (column > left) text += ' ', ++column;
      text += word;
      column += unicode::columns(word);
    }
    return text + '\n';
  }
};

std::vector<const CLI::App*> list_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

void set_formatter(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    set_formatter(*sub, formatter);
}

/// Returns the command whose arguments were being parsed: the deepest one given.
const CLI::App& deepest_command(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : deepest_command(*given.front());
}

/// Returns the full name of a subcommand: "heed bench attention".
std::string path_of(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return (parent ? path_of(*parent) + " " : "") + command.get_name();
}

std::string unknown_argument(const CLI::App& command, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  if (name.starts_with("-")) {
    for (const CLI::Option* option : command.get_options())
      for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
    return concat_text("unknown option ", name, suggest_name(name, known));
  }
  for (const CLI::App* sub : list_commands(command)) known.push_back(sub->get_name());
  if (known.empty()) return concat_text("unexpected argument \"", argument, "\"");
  return concat_text("unknown command \"", argument, '"', suggest_name(argument, known));
}

/// Parses the command line. Returns false if it only requested help or the version, which is then
/// printed.
bool parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = deepest_command(app);
    std::string help = command.help(command.get_parent() ? path_of(*command.get_parent()) : "");
    replace_all(help, "\n\n\n", "\n\n");  // between groups
    std::cout << help;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
  } catch (const CLI::ParseError& error) {
    // An unknown argument also causes complaints about what is missing: name the cause, not the consequence.
    const CLI::App& command = deepest_command(app);
    for (const CLI::App* one : {&command, static_cast<const CLI::App*>(&app)})
      if (const auto extras = one->remaining(); !extras.empty())
        throw SettingsError(unknown_argument(command, extras.front()));
    throw SettingsError(concat_text(error.what(), " (", path_of(command), " --help shows the options)"));
  }
  return false;
}

}  // namespace

void register_flag(const std::string& setting, const std::string& flag, const std::string& value) {
  if (!value.empty()) {
    flag_words().emplace(setting + "=" + value, flag);
    return;
  }
  flag_words().emplace(setting + "=", flag + " ");
  flag_words().emplace(setting, concat_text(flag, " (", setting, ")"));
}

std::string in_flags(std::string_view message) {
  std::string text;
  for (std::size_t at = 0; at < message.size();) {
    const std::string_view rest = message.substr(at);
    const bool begins =
        at == 0 || (!continues_word(message[at - 1]) && message[at - 1] != '-' && !text.ends_with("--set "));
    const auto fits = [&](const auto& entry) {
      const std::string_view word = entry.first;
      if (!rest.starts_with(word)) return false;
      const std::string_view after = rest.substr(word.size());
      return word.ends_with('=') ? !after.empty()
                                 : after.empty() || !(continues_word(after[0]) || after[0] == '=') ||
                                       (after[0] == '.' && (after.size() == 1 || after[1] == ' '));
    };
    // The longest word that fits, which is the last one in order.
    const auto& words = flag_words();
    const auto found = begins ? std::find_if(words.rbegin(), words.rend(), fits) : words.rend();
    text += found == words.rend() ? rest.substr(0, 1) : std::string_view(found->second);
    at += found == words.rend() ? 1 : found->first.size();
  }
  return text;
}

void print_message(std::string_view program, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::cerr << program << ": " << unicode::message_line(text) << std::endl;
}

int report_exception(std::string_view program) {
  try {
    throw;
  } catch (const SettingsError& error) {
    return report(program, error.what(), exit_usage);
  } catch (const std::bad_alloc&) {
    return report(program,
                  "out of memory: a smaller batch or model needs less, and a limit on addresses (ulimit -v) "
                  "can be raised",
                  exit_failure);
  } catch (const std::exception& error) {
    return report(program, error.what(), exit_failure);
  }
}

CLI::App& subcommand(CLI::App& app, const std::string& name, const std::string& help) {
  return *app.add_subcommand(name, help);
}

int run_commands(CLI::App& app, int argc, char** argv, const std::vector<std::function<int()>>& bodies) {
  open_standard_streams();
  std::optional<TerminalOutput> harmless;
  if (isatty(STDOUT_FILENO)) harmless.emplace(std::cout);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error message
  const std::string& name = app.get_name();
  ::operator delete(::operator new (std::size_t{1} << 20));  // room for exceptions and their messages
  std::set_new_handler(nullptr);
  try {
    constexpr std::string_view commit = HEED_COMMIT;
    app.set_version_flag("--version",
                         concat_text("heed ", version, commit.empty() ? "" : concat_text(" (", commit, ")")));
    set_formatter(app, std::make_shared<HelpFormatter>());
    if (!list_commands(app).empty()) app.require_subcommand(1);
    int status = exit_success;
    if (parse(app, argc, argv)) {
      const auto commands = list_commands(app);  // a program without any has one body
      const auto chosen = std::ranges::find_if(commands, [](const CLI::App* one) { return one->parsed(); });
      status = bodies.at(commands.empty() ? 0 : static_cast<std::size_t>(chosen - commands.begin()))();
    }
    flush_output();
    return status;
  } catch (const std::exception&) {
    return report_exception(name);
  }
}

InterruptGuard::InterruptGuard() : is_first_(guarded == 0) {
  if (!is_first_) return;  // nested guards keep earlier signals
  guarded = getpid();
  signal_received = 0;
  stop_requested = stop_polled = false;
  struct sigaction action = {}, before = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int signal : ending_signals) {
    sigaction(signal, &action, &before);
    if (before.sa_handler == SIG_IGN) sigaction(signal, &before, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);  // standard error that nobody reads: see interrupted()
}

InterruptGuard::~InterruptGuard() {
  if (!is_first_) return;
  guarded = 0;
  std::signal(SIGPIPE, SIG_DFL);
  for (const int signal : ending_signals)
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
}

bool InterruptGuard::interrupted() {
  stop_polled = true;
  return signal_received != 0 || !std::cerr.good();
}

int InterruptGuard::exit_status() {
  return 128 + (signal_received == SIGINT ? SIGINT : SIGTERM);
}

void flush_output() {
  std::cout.flush();
  if (std::cout.good()) return;
  pollfd output{STDOUT_FILENO, 0, 0};
  if (poll(&output, 1, 0) > 0 &&
      (output.revents & POLLERR)) {  // nobody reads on, such as `head`: end as that asks
    std::signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  check(std::cout.good(), "standard output could not be written: is it closed, or is the disk full?");
}

void TextFlag::add(CLI::App& command, const std::string& flag, const std::string& value_name,
                   const std::string& help) {
  name = flag;
  command.add_option(flag, values, help)->type_name(value_name)->allow_extra_args(false);
}

std::string TextFlag::value(const std::string& fallback) const {
  if (values.empty()) return fallback;
  if (values.size() > 1)
    throw SettingsError(concat_text(name, " is given ", values.size(), " times (", values[0], ", ", values[1],
                                    "); give it once"));
  return values.front();
}

int TextFlag::count(int fallback, int largest) const {
  if (!given()) return fallback;
  const std::string text = value();
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 1 || number > largest)
    throw SettingsError(concat_text(name, ": \"", text, "\" is not a number from 1 to ", largest));
  return number;
}

void OutputFlag::add(CLI::App& command, const std::string& flag, const std::string& help) {
  TextFlag::add(command, flag, "FILE", help);
  command.add_flag("--overwrite", overwrite, "Replaces the file of " + flag + " if it exists");
}

void OutputFlag::check() const {
  if (overwrite && !given()) throw SettingsError("--overwrite applies to the file of " + name + ": name one");
  if (given()) check_output(value(), overwrite);
}

}  // namespace heed::programs
