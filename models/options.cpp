#include "heed/models/options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/core/error.h"
#include "heed/core/nearest_name.h"
#include "heed/core/nesting_limit.h"

namespace heed {
namespace {

const char* kind_of(const Options::Value& value) {
  static constexpr const char* kinds[] = {"true or false", "an integer", "a number",
                                          "text",          "numbers",    "texts"};
  return kinds[value.index()];
}

/// The alternative T of the value; throws when it holds another.
template <class T>
const T& get(std::string_view name, const Options::Value& value, const char* wanted) {
  const T* found = std::get_if<T>(&value);
  if (!found) fail("setting '", name, "' must be ", wanted, ", but is ", kind_of(value));
  return *found;
}

}  // namespace

const Options::Value* Options::take(std::string_view name) const {
  if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) asked_.emplace_back(name);
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? nullptr : &found->second;
}

bool Options::take_bool(std::string_view name, bool fallback) const {
  const Value* value = take(name);
  return value ? get<bool>(name, *value, "true or false") : fallback;
}

std::int64_t Options::take_integer(std::string_view name, std::int64_t fallback) const {
  const Value* value = take(name);
  return value ? get<std::int64_t>(name, *value, "an integer") : fallback;
}

double Options::take_number(std::string_view name, double fallback) const {
  const Value* value = take(name);
  if (!value) return fallback;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
  return get<double>(name, *value, "a number");
}

std::string Options::take_text(std::string_view name, std::string fallback) const {
  const Value* value = take(name);
  if (!value) return fallback;
  return get<std::string>(name, *value, "text");
}

std::vector<double> Options::take_numbers(std::string_view name, std::vector<double> fallback) const {
  const Value* value = take(name);
  if (!value) return fallback;
  return get<std::vector<double>>(name, *value, "a list of numbers");
}

std::vector<std::string> Options::take_texts(std::string_view name, std::vector<std::string> fallback) const {
  const Value* value = take(name);
  if (!value) return fallback;
  return get<std::vector<std::string>>(name, *value, "a list of texts");
}

Options Options::within(std::string_view prefix) const {
  Options part;
  const std::string beginning = std::string(prefix) + ".";
  for (const auto& [name, value] : values_) {
    if (!name.starts_with(beginning)) continue;
    take(name);
    part.set(name.substr(beginning.size()), value);
  }
  return part;
}

void Options::check_all_taken(std::string_view owner) const {
  for (const auto& [name, value] : values_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    fail(owner, " has no setting '", name, "'", suggest_name(name, asked_));
  }
}

Options::Value option_from_json(std::string_view key, std::string_view text) {
  using Json = nlohmann::json;
  const Json value = Json::parse(text, nesting_limit(64, std::string(key)), /*allow_exceptions=*/false);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  const auto all = [&](bool (*is)(const Json&)) {
    return value.is_array() && std::all_of(value.begin(), value.end(), is);
  };
  if (all([](const Json& v) { return v.is_number(); })) return value.get<std::vector<double>>();
  if (all([](const Json& v) { return v.is_string(); })) return value.get<std::vector<std::string>>();
  fail("setting '", key, "' must be true or false, a number, text, or a list of numbers or of texts, but is ",
       text);
}

}  // namespace heed
