#include "settings.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "heed/core/error.h"
#include "heed/core/nearest_name.h"
#include "heed/core/nesting_limit.h"
#include "program.h"

namespace heed::programs {
namespace {

template <class... Parts>
[[noreturn]] void usage_error(const Parts&... parts) {
  throw UsageError(concat_text(parts...));
}

std::string kind_of(const Json& value) {
  if (value.is_boolean()) return "true or false";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return "null";
}

/// An integer may stand where a number is expected, never the other way round.
bool same_kind(const Json& expected, const Json& value) {
  if (expected.is_number_float()) return value.is_number();
  return kind_of(expected) == kind_of(value);
}

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> names;
  std::stringstream parts{std::string(path)};
  for (std::string name; std::getline(parts, name, '.');) names.push_back(name);
  return names;
}

[[noreturn]] void unknown_setting(const Json& object, const std::string& path, const std::string& name,
                                  const std::string& origin) {
  std::vector<std::string> known;
  for (const auto& [other, value] : object.items()) known.push_back(joined(path, other));
  const std::string wrong = joined(path, name);
  usage_error(origin, ": unknown setting '", wrong, "'", suggest_name(wrong, known));
}

}  // namespace

const Json& Settings::at(std::string_view path) const {
  const Json* value = &values_;
  for (const std::string& name : parts_of(path)) {
    check(value->is_object() && value->contains(name), "there is no setting \"", path, '"');
    value = &(*value)[name];
  }
  return *value;
}

bool Settings::is_free(const std::string& path) const {
  return std::find(free_.begin(), free_.end(), path) != free_.end();
}

void Settings::merge_at(Json& target, const Json& changes, const std::string& path,
                        const std::string& origin) {
  for (const auto& [name, value] : changes.items()) {
    if (!target.contains(name)) unknown_setting(target, path, name, origin);
    const std::string here = joined(path, name);
    Json& old = target[name];
    if (is_free(here))
      old = value;
    else if (!same_kind(old, value))
      usage_error(origin, ": setting \"", here, "\" must be ", kind_of(old), ", not ", value.dump());
    else if (old.is_object())
      merge_at(old, value, here, origin);
    else
      old = old.is_number_float() ? Json(value.get<double>()) : value;
  }
}

void Settings::merge(const Json& changes, const std::string& origin) {
  if (!changes.is_object()) usage_error(origin, ": expected an object of settings, not ", kind_of(changes));
  merge_at(values_, changes, "", origin);
}

void Settings::merge_file(const std::string& path) {
  merge(read_json(path), path);
}

void Settings::merge_saved(const std::string& path) {
  try {
    merge_file(path);
  } catch (const UsageError& error) {
    fail("the configuration of the run is damaged, or of another version: ", error.what());
  }
}

void Settings::set(const std::string& path, Json value, const std::string& origin) {
  const std::vector<std::string> names = parts_of(path);
  if (names.empty()) usage_error(origin, ": a setting needs a name");
  Json* target = &values_;
  std::string here;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_free(here)) {
      if (target->is_string()) *target = Json{{"name", *target}};
      if (!target->is_object()) usage_error(origin, ": \"", here, "\" cannot be set by part");
      std::string option = names[i];  // may have dots of its own, as those of mixed heads do
      for (std::size_t j = i + 1; j < names.size(); ++j) option += "." + names[j];
      (*target)[option] = std::move(value);
      return;
    }
    if (!target->is_object()) usage_error(origin, ": \"", here, "\" is not an object");
    if (i + 1 == names.size()) return merge_at(*target, Json{{names[i], std::move(value)}}, here, origin);
    if (!target->contains(names[i])) unknown_setting(*target, here, names[i], origin);
    target = &(*target)[names[i]];
    here = joined(here, names[i]);
  }
}

void Settings::assign(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    usage_error("--set ", assignment, ": expected key=value, for example training.steps=500");
  const std::string path = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = text;
  set(path, std::move(value), "--set " + assignment);
}

SettingFlags::SettingFlags(CLI::App& command) : command_(command) {
  command.add_option("--config", config_file_, "Settings from a JSON file, laid over the defaults")
      ->type_name("FILE");
  command
      .add_option("--set", assignments_,
                  "One setting by its dotted name, for example training.steps=500; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

SettingFlags::Flag& SettingFlags::add(const std::string& flag, const std::string& path) {
  return flags_.emplace_back(Flag{flag, path, {}, {}, {}});
}

void SettingFlags::text(const std::string& flag, const std::string& path, const std::string& help,
                        const std::string& value_name) {
  command_.add_option(flag, add(flag, path).text, help)->type_name(value_name);
}

void SettingFlags::integer(const std::string& flag, const std::string& path, const std::string& help) {
  command_.add_option(flag, add(flag, path).integer, help)->type_name("N");
}

void SettingFlags::number(const std::string& flag, const std::string& path, const std::string& help) {
  command_.add_option(flag, add(flag, path).number, help)->type_name("X");
}

void SettingFlags::apply(Settings& settings) const {
  if (config_file_) settings.merge_file(*config_file_);
  for (const std::string& assignment : assignments_) settings.assign(assignment);
  for (const Flag& flag : flags_) {
    if (flag.text) settings.set(flag.path, *flag.text, flag.flag);
    if (flag.integer) settings.set(flag.path, *flag.integer, flag.flag);
    if (flag.number) settings.set(flag.path, *flag.number, flag.flag);
  }
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) usage_error(path, ": the file cannot be read");
  try {
    Json value =
        Json::parse(file, nesting_limit(64, path), /*allow_exceptions=*/false, /*ignore_comments=*/true);
    if (value.is_discarded()) usage_error(path, ": the file is not valid JSON");
    return value;
  } catch (const Error& error) {
    usage_error(error.what());
  }
}

void check_name(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  usage_error("unknown ", what, " \"", name, '"', suggest_name(name, known));
}

}  // namespace heed::programs
