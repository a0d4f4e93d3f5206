#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::programs {

using Json = nlohmann::ordered_json;

/// The settings of a run as one JSON object with every default filled in. What is laid over it may only name
/// settings that exist, with a value of the same kind; those listed as free take any value, because their
/// reader checks them (an attention is a name, an object with its options, or a list of these). Functions
/// throw UsageError unless they say otherwise.
class Settings {
 public:
  explicit Settings(Json defaults, std::vector<std::string> free = {})
      : values_(std::move(defaults)), free_(std::move(free)) {}

  const Json& values() const { return values_; }
  /// The value at a dotted path such as "training.steps".
  const Json& at(std::string_view path) const;
  template <class T>
  T get(std::string_view path) const {
    return at(path).get<T>();
  }

  /// Lays an object over the settings; `origin` says in messages where it came from.
  void merge(const Json& changes, const std::string& origin);
  /// Reads a JSON file and lays it over the settings.
  void merge_file(const std::string& path);
  /// The same for the configuration that a run was saved with: what is wrong there is no usage error but an
  /// Error.
  void merge_saved(const std::string& path);
  /// "training.steps=500": the value is JSON, or else a plain string.
  void assign(const std::string& assignment);
  /// Sets the value at a dotted path. Within a free setting any name is taken, and text there stands for
  /// {"name": text}: "model.encoder_attention.window" adds an option to the attention that was chosen.
  void set(const std::string& path, Json value, const std::string& origin);

 private:
  void merge_at(Json& target, const Json& changes, const std::string& path, const std::string& origin);
  bool is_free(const std::string& path) const;

  Json values_;
  std::vector<std::string> free_;
};

/// Flags of a command that stand for settings, with --config and --set. Precedence: defaults < file < --set <
/// flags.
class SettingFlags {
 public:
  explicit SettingFlags(CLI::App& command);
  /// A flag for the setting at `path`; text, integer or number.
  void text(const std::string& flag, const std::string& path, const std::string& help,
            const std::string& value_name = "TEXT");
  void integer(const std::string& flag, const std::string& path, const std::string& help);
  void number(const std::string& flag, const std::string& path, const std::string& help);
  /// Lays the file, the assignments and the flags over `settings`, in this order.
  void apply(Settings& settings) const;

 private:
  struct Flag {
    std::string flag, path;
    std::optional<std::string> text;
    std::optional<long long> integer;
    std::optional<double> number;
  };
  Flag& add(const std::string& flag, const std::string& path);

  CLI::App& command_;
  std::optional<std::string> config_file_;
  std::vector<std::string> assignments_;
  std::deque<Flag> flags_;  // the command keeps references to the elements
};

/// The parsed content of a JSON file; throws UsageError when it is missing or not JSON.
Json read_json(const std::string& path);
/// Throws UsageError with the nearest name unless `name` is one of `known`.
void check_name(std::string_view what, std::string_view name, const std::vector<std::string>& known);

}  // namespace heed::programs
