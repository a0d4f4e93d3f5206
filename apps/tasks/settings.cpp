#include "heed/apps/tasks/settings.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Setting::Kind;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw SettingsError(concat_text(parts...));
}

/// Refuses the value of a setting. `must_be`: the words for what is allowed; `shown`: for the value.
[[noreturn]] void refuse_value(const Setting& setting, const std::string& value, const std::string& origin,
                               const std::string& must_be, const std::string& shown,
                               const std::string& hint = {}) {
  SettingsError error(
      concat_text(origin, ": setting \"", setting.name, "\" must be ", must_be, ", not ", shown));
  error.setting = setting.name, error.value = value, error.hint = hint;
  error.allowed = allowed_text(setting);
  throw error;
}

/// Refuses a name that does not exist; `hint`: the one that was probably meant.
[[noreturn]] void refuse_name(const std::string& name, const std::string& hint, const std::string& message) {
  SettingsError error(message);
  error.setting = name, error.hint = hint;
  throw error;
}

/// Returns when the settings of a group may change, unless a setting overrides it.
Changes changes_of_group(std::string_view setting) {
  const std::string_view group = setting.substr(0, setting.find('.'));
  if (group == "data") return Changes::in_use;
  for (const char* const free : {"prediction", "decoding", "generation", "evaluation"})
    if (group == free) return Changes::at_any_time;
  return Changes::never;
}

std::string dotted(std::string_view below, const std::string& name) {
  return below.empty() ? name : concat_text(below, '.', name);
}

bool is_column(const Json& value) {
  return value.is_number_integer() || value.is_string();
}

/// The description of a kind of value, in words and as a JSON type.
struct KindOfValue {
  const char* name;
  bool (*takes)(const Json& value);
};
const KindOfValue& kind_of(Kind kind) {
  static constexpr KindOfValue kinds[] = {
      // in the order of the enum
      {"true or false", [](const Json& value) { return value.is_boolean(); }},
      {"an integer", [](const Json& value) { return value.is_number_integer(); }},
      {"a number", [](const Json& value) { return value.is_number(); }},
      {"text", [](const Json& value) { return value.is_string(); }},
      {"the number or the name of a column", is_column},
      {"a list of texts or numbers",
       [](const Json& value) {
         return is_column(value) || (value.is_array() && std::all_of(value.begin(), value.end(), is_column));
       }},
      {"the name of an attention, an object with its \"name\" and options, or a list of these",
       [](const Json& value) { return value.is_string() || value.is_structured(); }}};
  return kinds[static_cast<std::size_t>(kind)];
}

/// Returns a column as text; it may be given by number or by name.
Json column_text(const Json& value) {
  return value.is_string() ? value : Json(value.dump());
}

/// Returns the value as JSON text. Throws unless it has the setting's kind and is allowed; numbers
/// keep their kind.
std::string checked_value(const Setting& setting, Json value, const std::string& origin) {
  if (value.is_boolean() && std::ranges::count(setting.choices, "true") > 0) value = value.dump();
  if (!kind_of(setting.kind).takes(value)) {
    const std::string allowed = allowed_text(setting);
    refuse_value(setting, dumped(value), origin,
                 kind_of(setting.kind).name + (allowed.empty() ? "" : " (" + allowed + ")"), dumped(value));
  }
  if (setting.kind == Kind::column) value = column_text(value);
  if (setting.kind == Kind::columns) {
    Json list = Json::array();
    for (const Json& each : value.is_array() ? value : Json::array({value}))
      list.push_back(column_text(each));
    value = std::move(list);
  }
  if (setting.kind == Kind::number) value = value.get<double>();
  if (setting.kind == Kind::integer || setting.kind == Kind::number) {
    // As unsigned, what lies beyond 2^63 would turn negative.
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    const double number = value.get<double>();
    if (huge || !(number >= setting.low && number <= setting.high))
      refuse_value(setting, value.dump(), origin, allowed_text(setting), value.dump());
  }
  if (!setting.choices.empty()) {
    const auto text = value.get<std::string>();
    if (std::ranges::count(setting.choices, text) == 0)
      refuse_value(setting, text, origin, allowed_text(setting),
                   concat_text('\'', text, '\'', suggest_name(text, setting.choices)),
                   nearest_name(text, setting.choices));
  }
  try {
    return value.dump();
  } catch (const Json::exception&) {
    refuse(origin, ": setting \"", setting.name, "\" is not UTF-8, so config.json cannot store it: '",
           value.is_string() ? value.get<std::string>() : dumped(value), "'; rename the file or link to it");
  }
}

/// Parses JSON text with comments; an error names the line.
Json parsed(std::string_view text, const std::string& origin) {
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    refuse(origin, ": byte ", nul + 1, " is NUL; a configuration must be text");
  return as_settings_error("", [&] {
    JsonBuilder<Json> builder(origin, 64, /*refuses_repeated=*/true);
    try {
      Json::sax_parse(text, &builder, Json::input_format_t::json, /*strict=*/true, /*ignore_comments=*/true);
    } catch (const nlohmann::json::parse_error& error) {
      const auto before = text.substr(0, std::min<std::size_t>(error.byte, text.size()));
      refuse(origin, ", line ", 1 + std::count(before.begin(), before.end(), '\n'),
             ": not valid JSON: ", error.what());
    } catch (const nlohmann::json::exception& error) {
      refuse(origin, ": not valid JSON: ", error.what());
    }
    return builder.take();
  });
}

using Declarations = std::vector<Settings::Declared>;

auto* setting_in(auto& list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &Setting::name);
  return found == list.end() ? nullptr : &*found;
}

void declare_as(Declarations& list, std::string_view below, Setting setting, Json initial) {
  setting.name = dotted(below, setting.name);
  check(!setting_in(list, setting.name), "setting \"", setting.name, "\" is declared twice");
  if (setting.changes == Changes::by_group) setting.changes = changes_of_group(setting.name);
  setting.initial = checked_value(setting, std::move(initial), "defaults");
  const std::string value = setting.initial;
  list.push_back({std::move(setting), value});
}

[[noreturn]] void refuse_unknown(const Declarations& list, const std::string& name,
                                 const std::string& origin) {
  std::vector<std::string> known;
  for (const Setting& one : list) known.push_back(one.name);
  for (const Setting& one : list) known.push_back(one.name.substr(0, one.name.find('.')));
  std::string nearest = nearest_name(name, known);
  // An option of an attention stands one level below it.
  if (nearest.empty()) nearest = nearest_name(name.substr(0, name.rfind('.')), known);
  refuse_name(name, nearest,
              concat_text(origin, ": unknown setting '", name, "'",
                          nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
}

void set_option(Settings::Declared& owner, const std::string& option, Json value, const std::string& origin) {
  Json target = Json::parse(owner.value);
  if (target.is_string()) target = Json{{"name", target}};
  if (!target.is_object()) refuse(origin, ": \"", owner.name, "\" is a list and cannot be set by part");
  target[option] = std::move(value);
  owner.value = checked_value(owner, std::move(target), origin);
}

void merge_object(Declarations& list, const Json& changes, const std::string& below,
                  const std::string& origin);

void override_values(Declarations& list, const std::string& name, Json value, const std::string& origin) {
  const auto owner = std::ranges::find_if(list, [&](const Setting& one) {
    return one.kind == Kind::attention && name.starts_with(one.name + ".");
  });
  if (Settings::Declared* one = setting_in(list, name)) {
    one->value = checked_value(*one, std::move(value), origin);
    one->is_given = true;
  } else if (owner != list.end()) {
    set_option(*owner, name.substr(owner->name.size() + 1), std::move(value), origin);
  } else if (std::ranges::any_of(list,
                                 [&](const Setting& other) { return other.name.starts_with(name + "."); })) {
    if (!value.is_object())
      refuse(origin, ": \"", name, "\" is a group of settings, not one; set what is below it");
    merge_object(list, value, name, origin);
  } else {
    refuse_unknown(list, name, origin);
  }
}

void merge_object(Declarations& list, const Json& changes, const std::string& below,
                  const std::string& origin) {
  if (!changes.is_object()) refuse(origin, ": expected an object of settings, not ", changes.dump());
  for (const auto& [key, value] : changes.items()) override_values(list, dotted(below, key), value, origin);
}

}  // namespace

bool Settings::has(std::string_view name) const {
  return setting_in(list_, name) != nullptr;
}

void Settings::declare(std::string_view below, Setting setting, const Stored& initial) {
  constexpr Kind kinds[] = {Kind::flag, Kind::integer, Kind::number, Kind::text, Kind::columns};  // as Stored
  if (setting.kind == Kind::text) setting.kind = kinds[initial.index()];
  std::visit([&](const auto& value) { declare_as(list_, below, std::move(setting), value); }, initial);
}

void Settings::declare_json(std::string_view below, Setting setting, std::string_view initial) {
  Json value = parsed(initial, "defaults");
  if (setting.kind != Kind::attention)
    setting.kind = value.is_boolean()          ? Kind::flag
                   : value.is_number_integer() ? Kind::integer
                   : value.is_number()         ? Kind::number
                                               : Kind::text;
  declare_as(list_, below, std::move(setting), std::move(value));
}

void Settings::change_defaults(std::string_view json) {
  const std::vector<Declared> before = list_;
  merge(json, "defaults");
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (i < before.size() && before[i].is_given) {
      list_[i] = before[i];
    } else {
      list_[i].initial = list_[i].value;
      list_[i].is_given = false;
    }
  }
}

void Settings::set_default(std::string_view name, std::string_view json) {
  Declared* const one = setting_in(list_, name);
  check(one, "there is no setting \"", name, '"');
  if (!one->is_given) one->value = one->initial = checked_value(*one, parsed(json, "defaults"), "defaults");
}

const Settings::Declared& Settings::setting(std::string_view name) const {
  const Declared* found = setting_in(list_, name);
  check(found, "there is no setting \"", name, '"');
  return *found;
}

template <class T>
T Settings::get(std::string_view name) const {
  const std::string& value = setting(name).value;
  try {
    return Json::parse(value).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail("setting \"", name, "\" does not have the requested type, but ", value);
  }
}
template bool Settings::get<bool>(std::string_view) const;
template std::int64_t Settings::get<std::int64_t>(std::string_view) const;
template double Settings::get<double>(std::string_view) const;
template std::string Settings::get<std::string>(std::string_view) const;
template std::vector<std::string> Settings::get<std::vector<std::string>>(std::string_view) const;

std::string Settings::json(std::string_view name, int indent) const {
  if (const Declared* one = setting_in(list_, name)) return Json::parse(one->value).dump(indent);
  Json all = Json::object();
  for (const Declared& one : list_) {
    if (!name.empty() && !one.name.starts_with(concat_text(name, '.'))) continue;
    std::string path = "/" + one.name.substr(name.empty() ? 0 : name.size() + 1);
    std::ranges::replace(path, '.', '/');
    all[Json::json_pointer(path)] = Json::parse(one.value);
  }
  check(name.empty() || !all.empty(), "there is no setting \"", name, '"');
  return all.dump(indent);
}

void Settings::merge(std::string_view json, const std::string& origin) {
  merge_object(list_, parsed(json, origin), "", origin);
}

void Settings::merge_file(const std::filesystem::path& path) {
  merge(as_settings_error("", [&] { return read_file(path); }), path.string());
}

void check_name(std::string_view what, const std::string& name, const std::vector<std::string>& known) {
  if (std::ranges::count(known, name) == 0)
    refuse_name(name, nearest_name(name, known),
                concat_text("unknown ", what, " \"", name, '"', suggest_name(name, known)));
}

std::string assigned_name(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    refuse(assignment, ": expected key=value, for example training.steps=500");
  return assignment.substr(0, equals);
}

void Settings::assign(const std::string& assignment) {
  const std::string name = assigned_name(assignment);
  set(name, assignment.substr(name.size() + 1), assignment);
}

void Settings::set(std::string_view name, const std::string& text, const std::string& origin) {
  const Declared* setting = setting_in(list_, name);
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (setting && setting->kind == Kind::integer && !value.is_number_integer())
    refuse_value(*setting, text, origin,
                 concat_text("an integer written in digits (", allowed_text(*setting), ')'), text);
  // A text may look like a number or like JSON, quotes included where it was written as JSON.
  if (value.is_discarded() && setting && setting->kind == Kind::columns)
    value = split_at(text, ",");
  else if (value.is_discarded() || (setting && setting->kind == Kind::text && !value.is_string()))
    value = text;
  override_values(list_, std::string(name), std::move(value), origin);
}

void Settings::set_json(std::string_view name, std::string_view json, const std::string& origin) {
  override_values(list_, std::string(name), parsed(json, origin), origin);
}

std::string settings_table(const Settings& settings) {
  PlainStream table;
  for (const Setting& setting : settings.declared()) {
    const std::string allowed = allowed_text(setting);
    const char* kind = setting.kind == Kind::attention ? "an attention" : kind_of(setting.kind).name;
    table << setting.name << " = " << setting.initial << "\n    " << (setting.choices.empty() ? kind : "")
          << (allowed.empty() ? "" : (setting.choices.empty() ? ", " : "") + allowed) << ". " << setting.help
          << '\n';
  }
  return table.str();
}

}  // namespace heed
