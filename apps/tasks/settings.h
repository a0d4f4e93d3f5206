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

/// A setting, a configuration file or a flag is wrong; nothing was read or written yet. Programs end with
/// status 2.
class SettingsError : public Error {
 public:
  using Error::Error;
};

/// What `work` returns. An Error that it throws is one of the settings, with `what` before its message.
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

/// The settings of a run, as one JSON object in config.json. They are declared by the structs that they are
/// read into (base/setting.h). What is laid over the defaults may only name settings that exist, with a value
/// of the same kind and within the range; else a SettingsError names the setting, the value, what is allowed,
/// and the nearest name.
///
/// The first part of a dotted name is a group. Unless a setting's line says otherwise, those of "data" may be
/// changed when a run is used; those of "prediction", "decoding", "generation" and "evaluation" may also be
/// changed when training goes on; all others never. One that a command does not read may be set all the same.
///
/// Below an attention setting ("model.encoder_attention") any name is taken, because the mechanism checks its
/// own options: "model.encoder_attention.window" adds an option to the attention that was chosen.
class Settings {
 public:
  struct Declared : Setting {
    std::string value;      ///< as JSON
    bool is_given = false;  ///< laid over the default
  };

  // --- declaring
  /// The settings of a struct, each below the name ("decoding"; "": at the top), with the values of
  /// `defaults`. Fields are bool, integers, double, std::string, std::vector<std::string> for a list of
  /// columns, and enums whose values are those of the choices, in their order.
  template <class Group>
  void declare(std::string_view below, Group defaults = {}) {
    for_each_setting(SettingVisitor([&](const auto& value, const Setting& setting) {
                       declare(below, setting, stored(value, setting));
                     }),
                     defaults);
  }
  /// One setting with its default as JSON, and its kind. An attention is its name, an object with its name
  /// and options, or a list of these, one for each layer.
  void declare_json(std::string_view below, Setting setting, std::string_view initial);
  /// Lays JSON over the defaults themselves, for data that wants others.
  void change_defaults(std::string_view json);
  /// Takes the defaults of other settings, declared alike, and their values for all that nothing was laid
  /// over.
  void lay_under(const Settings& defaults);

  /// All settings, in the order in which they were declared.
  std::span<const Declared> declared() const& { return list_; }
  std::span<const Declared> declared() const&& = delete;  // they would be gone
  const Declared& setting(std::string_view name) const;

  // --- reading
  /// The value of a setting: bool, std::int64_t, double, std::string or std::vector<std::string>. Asking for
  /// a name that was not declared, or another type, is a mistake of the program: an Error.
  template <class T>
  T get(std::string_view name) const;
  bool has(std::string_view name) const;
  /// The struct whose settings were declared below the name. Fields that were not declared keep their values.
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
  /// The value of a setting, or of all settings below a name, as JSON; "" stands for all of them.
  std::string json(std::string_view name = {}, int indent = -1) const;

  // --- changing; `origin` says in messages where a value came from
  void merge(std::string_view json, const std::string& origin);
  void merge_file(const std::filesystem::path& path);
  /// "training.steps=500", as set() has it.
  void assign(const std::string& assignment);
  /// The value of a setting, an option of an attention or a group: JSON, or else a plain text; "500", "true",
  /// "cosine".
  void set(std::string_view name, const std::string& value, const std::string& origin);
  /// A value as JSON.
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

/// The name in "name=value"; throws a SettingsError when it has no such form.
std::string assigned_name(const std::string& assignment);

/// Throws a SettingsError with the nearest name unless `name` is one of `known`.
void check_name(std::string_view what, const std::string& name, const std::vector<std::string>& known);
/// A table of all settings: name, type, default, what is allowed, help. A line each.
std::string settings_table(const Settings& settings);

}  // namespace heed
