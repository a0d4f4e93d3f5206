#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heed/base/setting.h"

namespace heed {

/// The error for a wrong setting, configuration file or flag, thrown before anything is read or
/// written. Programs exit with status 2. The parts of its message are there for programs, too; each is
/// empty where it is unknown.
class SettingsError : public Error {
 public:
  using Error::Error;
  std::string setting, value;  ///< "training.steps", and what it was set to
  std::string allowed;         ///< "1 to 10"
  std::string hint;            ///< the name that was probably meant
};

/// Returns work(). An Error that it throws becomes a SettingsError, with `what` before its message.
template <class Work>
auto as_settings_error(std::string_view what, const Work& work) {
  try {
    return work();
  } catch (const SettingsError&) {
    throw;
  } catch (const Error& error) {
    throw SettingsError(concat_text(what, error.what()));
  }
}

/// The settings of a run, stored as one JSON object in config.json. Structs declare them
/// (base/setting.h) and are read back from them. A value that overrides a default must name an
/// existing setting, have the same type and be in range. Otherwise a SettingsError names the
/// setting, the value, the allowed values and the nearest name.
///
/// The first part of a dotted name is its group. Unless a setting overrides it, "data" may be
/// changed when a run is used; "prediction", "decoding", "generation" and "evaluation" may also be
/// changed on resume; all others are fixed. Settings that a command does not read may be set too.
///
/// Any name is accepted below an attention setting ("model.encoder_attention"), because the
/// mechanism checks its own options: "model.encoder_attention.window" adds an option to the chosen
/// attention.
class Settings {
 public:
  struct Declared : Setting {
    std::string value;      ///< as JSON
    bool is_given = false;  ///< overrides the default
  };

  // --- declaring
  /// Declares the settings of a struct below a name ("decoding"; "": at the top), with the values
  /// of `defaults`. Fields are bool, integers, double, std::string, std::vector<std::string> for a
  /// list of columns, and enums whose values are in the order of the choices.
  template <class Group>
  void declare(std::string_view below, Group defaults = {}) {
    for_each_setting(SettingVisitor([&](const auto& value, const Setting& setting) {
                       declare(below, setting, stored(value, setting));
                     }),
                     defaults);
  }
  /// Declares one setting of any kind, with its default as JSON. An attention is a name, an object
  /// with name and options, or a list of these, one for each layer.
  void declare_json(std::string_view below, Setting setting, std::string_view initial);
  /// Changes the defaults themselves, for data that needs others; settings that were given keep their values.
  void change_defaults(std::string_view json);
  /// Changes the default of a setting, as JSON; nothing if the setting was given.
  void set_default(std::string_view name, std::string_view json);

  /// All settings, in the order of declaration.
  std::span<const Declared> declared() const& { return list_; }
  std::span<const Declared> declared() const&& = delete;  // they would be gone
  const Declared& setting(std::string_view name) const;

  // --- reading
  /// Returns the value of a setting: bool, std::int64_t, double, std::string or
  /// std::vector<std::string>. Throws an Error for an undeclared name or another type, which is a
  /// programming error.
  template <class T>
  T get(std::string_view name) const;
  bool has(std::string_view name) const;
  /// Returns the struct whose settings were declared below the name. Fields that were not declared
  /// keep their values.
  template <class Group>
  Group read(std::string_view below) const {
    Group group;
    for_each_setting(SettingVisitor([&](auto& value, const Setting& setting) {
                       const std::string name =
                           below.empty() ? setting.name : concat_text(below, '.', setting.name);
                       if (has(name)) load(name, setting, value);
                     }),
                     group);
    return group;
  }
  /// Returns the value of a setting, or of all settings below a name, as JSON; "": of all settings.
  std::string json(std::string_view name = {}, int indent = -1) const;

  // --- changing; `origin` names the source of a value in messages
  void merge(std::string_view json, const std::string& origin);
  void merge_file(const std::filesystem::path& path);
  /// Sets a setting from "training.steps=500", as set() does.
  void assign(const std::string& assignment);
  /// Sets a setting, an option of an attention or a group. The value is JSON or plain text: "500",
  /// "true", "cosine".
  void set(std::string_view name, const std::string& value, const std::string& origin);
  /// Sets a value from JSON.
  void set_json(std::string_view name, std::string_view json, const std::string& origin);

 private:
  using Stored = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;
  void declare(std::string_view below, Setting setting, const Stored& initial);

  template <class T>
  static Stored stored(const T& value, const Setting& setting) {
    if constexpr (std::is_enum_v<T>)
      return setting.choices.at(static_cast<std::size_t>(value));
    else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return static_cast<std::int64_t>(value);
    else
      return value;
  }
  template <class T>
  void load(const std::string& name, const Setting& setting, T& value) const {
    if constexpr (std::is_enum_v<T>)
      value = static_cast<T>(std::ranges::find(setting.choices, get<std::string>(name)) -
                             setting.choices.begin());
    else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      value = static_cast<T>(get<std::int64_t>(name));
    else
      value = get<T>(name);
  }

  std::vector<Declared> list_;
};

/// Returns the name in "name=value". Throws a SettingsError for any other form.
std::string assigned_name(const std::string& assignment);

/// Throws a SettingsError with the nearest name unless `name` is one of `known`.
void check_name(std::string_view what, const std::string& name, const std::vector<std::string>& known);
/// Returns a table of all settings, one per line: name, type, default, allowed values, help.
std::string settings_table(const Settings& settings);

}  // namespace heed
