#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/error.h"

namespace heed {

/// A setting, a configuration file or a flag is wrong; nothing was read or written yet. Programs end with
/// status 2.
class SettingsError : public Error {
 public:
  using Error::Error;
};

/// What there is to know about one setting.
struct Setting {
  enum class Kind { flag, integer, number, text, column, columns, attention };
  std::string name;  ///< dotted: "training.steps"
  Kind kind = Kind::text;
  std::string initial;                    ///< the default, as JSON
  double low = 0, high = 0;               ///< of integers and numbers, both included
  std::vector<std::string> choices = {};  ///< of a text that is a choice
  std::string help;                       ///< one line
};

/// The settings of a run, each declared once with its default, range and a line of help; as one JSON object
/// in config.json. What is laid over the defaults may only name settings that exist, with a value of the same
/// kind and within the range; else a SettingsError names the setting, the value, what is allowed, and the
/// nearest name.
///
/// Below an attention setting ("model.encoder_attention") any name is taken, because the mechanism checks its
/// own options: "model.encoder_attention.window" adds an option to the attention that was chosen.
class Settings {
 public:
  Settings();
  ~Settings();
  Settings(const Settings& other);
  Settings(Settings&& other) noexcept;
  Settings& operator=(Settings other) noexcept;

  // --- declaring
  void flag(std::string name, bool initial, std::string help);
  void integer(std::string name, std::int64_t initial, std::int64_t low, std::int64_t high, std::string help);
  void number(std::string name, double initial, double low, double high, std::string help);
  void text(std::string name, std::string_view initial, std::string help);
  void choice(std::string name, std::string_view initial, std::vector<std::string> choices, std::string help);
  /// A column of a table: its number or its name, "" at first. It is kept as a text.
  void column(std::string name, std::string help);
  /// A list of these, empty at first.
  void columns(std::string name, std::string help);
  /// A mechanism: its name, an object with its name and options, or a list of these, one for each layer.
  void attention(std::string name, std::string_view initial, std::string help);
  /// Lays JSON over the defaults themselves, for data that wants others.
  void change_defaults(std::string_view json);

  /// All settings, in the order in which they were declared.
  std::span<const Setting> declared() const&;
  std::span<const Setting> declared() const&& = delete;  // they would be gone
  const Setting& setting(std::string_view name) const;

  // --- reading
  /// The value of a setting: bool, std::int64_t, double, std::string or std::vector<std::string>. Asking for
  /// a name that was not declared, or another type, is a mistake of the program: an Error.
  template <class T>
  T get(std::string_view name) const;
  /// The value of a setting, or of all settings below a name, as JSON; "" stands for all of them.
  std::string json(std::string_view name = {}, int indent = -1) const;

  // --- changing; `origin` says in messages where a value came from
  void merge(std::string_view json, const std::string& origin);
  void merge_file(const std::filesystem::path& path);
  /// "training.steps=500": the value is JSON, or else a plain text.
  void assign(const std::string& assignment);
  /// A value as text, read as the kind of the setting asks: "500", "true", "cosine".
  void set(std::string_view name, const std::string& value, const std::string& origin);
  /// A value as JSON.
  void set_json(std::string_view name, std::string_view json, const std::string& origin);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The name in "name=value"; throws a SettingsError when it has no such form.
std::string assigned_name(const std::string& assignment);

/// Throws a SettingsError with the nearest name unless `name` is one of `known`.
void check_name(std::string_view what, const std::string& name, const std::vector<std::string>& known);
/// What a value may be: "0 to 1", "post or pre"; "" where there is no more to say than its kind.
std::string allowed_text(const Setting& setting);
/// A table of all settings: name, type, default, what is allowed, help. A line each.
std::string settings_table(const Settings& settings);

}  // namespace heed
