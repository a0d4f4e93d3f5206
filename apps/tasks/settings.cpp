#include "heed/apps/tasks/settings.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Setting::Kind;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw SettingsError(concat_text(parts...));
}

/// What holds for all settings of a group unless their lines say otherwise.
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

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts;
  std::stringstream stream{std::string(name)};
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

bool is_column(const Json& value) {
  return value.is_number_integer() || value.is_string();
}

/// What the values of a kind are, in words and in JSON.
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
      {"a list of numbers or names of columns",
       [](const Json& value) {
         return is_column(value) || (value.is_array() && std::all_of(value.begin(), value.end(), is_column));
       }},
      {"the name of an attention, an object with its \"name\" and options, or a list of these",
       [](const Json& value) { return value.is_string() || value.is_structured(); }}};
  return kinds[static_cast<std::size_t>(kind)];
}

void refuse_bad_characters(const Setting& setting, const std::string& text, const std::string& origin) {
  if (unicode::find_invalid(text) != std::string::npos)
    refuse(origin, ": setting \"", setting.name, "\" is not UTF-8, so that it cannot stand in config.json: '",
           text, "'; rename the file or link to it");
}

/// A column by its number or name as a text; of a list each of them.
Json column_text(const Setting& setting, const Json& value, const std::string& origin) {
  if (setting.kind == Kind::columns) {
    Json list = Json::array();
    Setting one = setting;
    one.kind = Kind::column;
    for (const Json& each : value.is_array() ? value : Json::array({value}))
      list.push_back(column_text(one, each, origin));
    return list;
  }
  if (!value.is_string()) return value.dump();
  refuse_bad_characters(setting, value.get_ref<const std::string&>(), origin);
  return value;
}

/// Throws unless the value is of the setting's kind and within what it allows; a number is kept as one.
Json checked_value(const Setting& setting, Json value, const std::string& origin) {
  if (value.is_boolean() && std::ranges::count(setting.choices, "true") > 0) value = value.dump();
  if (!kind_of(setting.kind).takes(value)) {
    const std::string allowed = allowed_text(setting);
    refuse(origin, ": setting \"", setting.name, "\" must be ", kind_of(setting.kind).name,
           allowed.empty() ? "" : " (" + allowed + ")", ", not ",
           value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  if (setting.kind == Kind::text) refuse_bad_characters(setting, value.get_ref<const std::string&>(), origin);
  if (setting.kind == Kind::column || setting.kind == Kind::columns)
    value = column_text(setting, value, origin);
  if (setting.kind == Kind::number) value = value.get<double>();
  if (setting.kind == Kind::integer || setting.kind == Kind::number) {
    // As unsigned, what lies beyond 2^63 would turn negative.
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    const double number = value.get<double>();
    if (huge || !(number >= setting.low && number <= setting.high))
      refuse(origin, ": setting \"", setting.name, "\" must be ", allowed_text(setting), ", not ",
             value.dump());
  }
  if (!setting.choices.empty()) {
    const auto text = value.get<std::string>();
    if (std::ranges::count(setting.choices, text) == 0)
      refuse(origin, ": setting \"", setting.name, "\" must be ", allowed_text(setting), ", not '", text, "'",
             suggest_name(text, setting.choices));
  }
  return value;
}

/// JSON text with comments; an error names the line.
Json parsed(std::string_view text, const std::string& origin) {
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    refuse(origin, ": byte ", nul + 1, " is NUL; a configuration is text");
  try {
    JsonBuilder<Json> builder(origin, 64, /*refuses_repeated=*/true);
    Json::sax_parse(text, &builder, Json::input_format_t::json, /*strict=*/true, /*ignore_comments=*/true);
    return builder.take();
  } catch (const nlohmann::json::parse_error& error) {
    const auto before = text.substr(0, std::min<std::size_t>(error.byte, text.size()));
    refuse(origin, ", line ", 1 + std::count(before.begin(), before.end(), '\n'),
           ": not valid JSON: ", error.what());
  } catch (const nlohmann::json::exception& error) {
    refuse(origin, ": not valid JSON: ", error.what());
  } catch (const SettingsError&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());
  }
}

}  // namespace

struct Settings::State {
  std::vector<Setting> list;
  Json values = Json::object();

  const Setting* find(std::string_view name) const {
    const auto found = std::ranges::find(list, name, &Setting::name);
    return found == list.end() ? nullptr : &*found;
  }

  /// The attention setting that `name` lies below, if any.
  const Setting* owner_of_option(std::string_view name) const {
    const auto found = std::ranges::find_if(list, [&](const Setting& one) {
      return one.kind == Kind::attention && name.starts_with(one.name + ".");
    });
    return found == list.end() ? nullptr : &*found;
  }

  const Json* at(std::string_view name) const {
    const Json* value = &values;
    for (const std::string& part : parts_of(name)) {
      if (!value->is_object() || !value->contains(part)) return nullptr;
      value = &(*value)[part];
    }
    return value;
  }

  static Json& place(Json& all, std::string_view name) {
    Json* value = &all;
    for (const std::string& part : parts_of(name)) value = &(*value)[part];
    return *value;
  }

  void declare(std::string_view below, Setting setting, Json initial) {
    setting.name = dotted(below, setting.name);
    check(!find(setting.name), "setting \"", setting.name, "\" is declared twice");
    if (setting.changes == Changes::by_group) setting.changes = changes_of_group(setting.name);
    initial = checked_value(setting, std::move(initial), "defaults");
    setting.initial = initial.dump();
    place(values, setting.name) = std::move(initial);
    list.push_back(std::move(setting));
  }

  [[noreturn]] void unknown(const std::string& name, const std::string& origin) const {
    std::vector<std::string> known;
    for (const Setting& one : list) known.push_back(one.name);
    for (const auto& [group, below] : values.items()) known.push_back(group);
    std::string nearest = nearest_name(name, known);
    // An option of an attention stands one level below it.
    if (nearest.empty()) nearest = nearest_name(name.substr(0, name.rfind('.')), known);
    refuse(origin, ": unknown setting '", name, "'",
           nearest.empty() ? "; --help-settings lists all" : "; did you mean '" + nearest + "'?");
  }

  void set_option(const Setting& owner, const std::string& option, Json value, const std::string& origin) {
    Json& target = place(values, owner.name);
    if (target.is_string()) target = Json{{"name", target}};
    if (!target.is_object()) refuse(origin, ": \"", owner.name, "\" is a list and cannot be set by part");
    target[option] = std::move(value);
  }

  void set(const std::string& name, Json value, const std::string& origin) {
    if (const Setting* setting = find(name)) {
      place(values, name) = checked_value(*setting, std::move(value), origin);
    } else if (const Setting* owner = owner_of_option(name)) {
      set_option(*owner, name.substr(owner->name.size() + 1), std::move(value), origin);
    } else if (const Json* group = at(name); group && group->is_object() && !name.empty()) {
      if (!value.is_object())
        refuse(origin, ": \"", name, "\" is a group of settings, not one; set what is below it");
      merge(value, name, origin);
    } else {
      unknown(name, origin);
    }
  }

  void merge(const Json& changes, const std::string& below, const std::string& origin) {
    if (!changes.is_object()) refuse(origin, ": expected an object of settings, not ", changes.dump());
    for (const auto& [key, value] : changes.items())
      set(below.empty() ? key : below + "." + key, value, origin);
  }
};

Settings::Settings() : state_(std::make_unique<State>()) {}
Settings::~Settings() = default;
Settings::Settings(const Settings& other) : state_(std::make_unique<State>(*other.state_)) {}
Settings::Settings(Settings&& other) noexcept = default;
Settings& Settings::operator=(Settings other) noexcept {
  state_ = std::move(other.state_);
  return *this;
}

bool Settings::has(std::string_view name) const {
  return state_->find(name) != nullptr;
}

void Settings::declare(std::string_view below, Setting setting, const Stored& initial) {
  constexpr Kind kinds[] = {Kind::flag, Kind::integer, Kind::number, Kind::text, Kind::columns};  // as Stored
  if (setting.kind == Kind::text) setting.kind = kinds[initial.index()];
  std::visit([&](const auto& value) { state_->declare(below, std::move(setting), value); }, initial);
}

void Settings::declare_json(std::string_view below, Setting setting, std::string_view initial) {
  Json value = parsed(initial, "defaults");
  if (setting.kind != Kind::attention)
    setting.kind = value.is_boolean()          ? Kind::flag
                   : value.is_number_integer() ? Kind::integer
                   : value.is_number()         ? Kind::number
                                               : Kind::text;
  state_->declare(below, std::move(setting), std::move(value));
}

void Settings::change_defaults(std::string_view json) {
  state_->merge(parsed(json, "defaults"), "", "defaults");
  for (Setting& setting : state_->list) setting.initial = state_->at(setting.name)->dump();
}

std::span<const Setting> Settings::declared() const& {
  return state_->list;
}

const Setting& Settings::setting(std::string_view name) const {
  const Setting* found = state_->find(name);
  check(found, "there is no setting \"", name, '"');
  return *found;
}

template <class T>
T Settings::get(std::string_view name) const {
  const Json* value = state_->find(name) ? state_->at(name) : nullptr;
  check(value, "there is no setting \"", name, '"');
  try {
    return value->get<T>();
  } catch (const nlohmann::json::exception&) {
    fail("setting \"", name, "\" is not of the type that was asked for, but ", value->dump());
  }
}
template bool Settings::get<bool>(std::string_view) const;
template std::int64_t Settings::get<std::int64_t>(std::string_view) const;
template double Settings::get<double>(std::string_view) const;
template std::string Settings::get<std::string>(std::string_view) const;
template std::vector<std::string> Settings::get<std::vector<std::string>>(std::string_view) const;

std::string Settings::json(std::string_view name, int indent) const {
  const Json* value = state_->at(name);
  check(value, "there is no setting \"", name, '"');
  return value->dump(indent);
}

void Settings::merge(std::string_view json, const std::string& origin) {
  state_->merge(parsed(json, origin), "", origin);
}

void Settings::merge_file(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const Error& error) {
    refuse(error.what());
  }
  merge(text, path.string());
}

void check_name(std::string_view what, const std::string& name, const std::vector<std::string>& known) {
  if (std::ranges::count(known, name) == 0)
    refuse("unknown ", what, " \"", name, '"', suggest_name(name, known));
}

std::string assigned_name(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    refuse("--set ", assignment, ": expected key=value, for example training.steps=500");
  return assignment.substr(0, equals);
}

void Settings::assign(const std::string& assignment) {
  const std::string name = assigned_name(assignment);
  assign(name, assignment.substr(name.size() + 1), "--set " + assignment);
}

void Settings::assign(const std::string& name, const std::string& text, const std::string& origin) {
  if (const Setting* setting = state_->find(name); setting && setting->kind != Kind::attention)
    return set(name, text, origin);
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = text;
  state_->set(name, std::move(value), origin);
}

void Settings::set(std::string_view name, const std::string& value, const std::string& origin) {
  const Setting* setting = state_->find(name);
  if (!setting) state_->unknown(std::string(name), origin);
  Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (setting->kind == Kind::integer && !json.is_number_integer())
    refuse(origin, ": setting \"", setting->name, "\" must be an integer written in digits (",
           allowed_text(*setting), "), not ", value);
  // A text may look like a number or like JSON, quotes included where it was written as JSON.
  if (json.is_discarded() || (setting->kind == Kind::text && !json.is_string())) json = value;
  state_->set(std::string(name), std::move(json), origin);
}

void Settings::set_json(std::string_view name, std::string_view json, const std::string& origin) {
  state_->set(std::string(name), parsed(json, origin), origin);
}

std::vector<const Setting*> settings_at(const Settings& settings, std::string_view name) {
  const auto lies_below = [](std::string_view one, std::string_view other) {
    return one == other || (one.starts_with(other) && one[other.size()] == '.');
  };
  std::vector<const Setting*> found;
  for (const Setting& one : settings.declared())
    if (lies_below(one.name, name) || lies_below(name, one.name)) found.push_back(&one);
  return found;
}

std::vector<std::string> free_settings(const Settings& settings) {
  std::vector<std::string> names;
  for (const Setting& one : settings.declared())
    if (one.changes == Changes::on_resume || one.changes == Changes::at_any_time) names.push_back(one.name);
  return names;
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
