#include "heed/models/options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/names.h"

namespace heed {
namespace {

const char* kind_of(const Options::Value& value) {
  static constexpr const char* kinds[] = {"true or false", "an integer", "a number",
                                          "text",          "numbers",    "texts"};
  return kinds[value.index()];
}

/// The value as a T; throws when it holds another type.
template <class T>
const T& get(std::string_view name, const Options::Value& value, const char* wanted) {
  const T* found = std::get_if<T>(&value);
  if (!found) fail("setting '", name, "' must be ", wanted, ", but is ", kind_of(value));
  return *found;
}

template <class T>
void check_range(std::string_view name, T value, T low, T high) {
  check(value >= low && value <= high, "setting '", name, "' must be ",
        range_text(concat_text(low), static_cast<double>(high), concat_text(high)), ", is ", value);
}

}  // namespace

void check_setting(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  check_range(name, value, low, high);
}

void check_setting(std::string_view name, double value, double low, double high) {
  check_range(name, value, low, high);
}

void check_setting(std::string_view name, const std::string& value, std::span<const std::string> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  const std::string nearest = nearest_name(value, choices);
  fail("setting '", name, "' must be ", either(choices, "'"), ", is '", value, "'",
       nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

std::string Options::Asked::type() const {
  return kind_of(fallback);
}

std::string Options::Asked::fallback_text() const {
  return std::visit([](const auto& value) { return nlohmann::json(value).dump(); }, fallback);
}

std::string Options::Asked::range() const {
  if (!choices.empty()) return either(choices, "'");
  if (low == -infinity && high == infinity) return "";
  // Integer bounds are whole numbers and printed as such.
  const auto text = [](double bound) {
    const auto whole = static_cast<std::int64_t>(std::clamp(bound, -1e15, 1e15));
    return static_cast<double>(whole) == bound ? std::to_string(whole) : concat_text(bound);
  };
  return range_text(text(low), high, text(high));
}

const Options::Value* Options::take(Asked asked) const {
  const auto found = values_.find(asked.name);
  const auto same = [&](const Asked& other) { return other.name == asked.name; };
  if (std::none_of(asked_.begin(), asked_.end(), same)) asked_.push_back(std::move(asked));
  return found == values_.end() ? nullptr : &found->second;
}

bool Options::take_bool(std::string_view name, bool fallback) const {
  const Value* value = take({std::string(name), fallback});
  return value ? get<bool>(name, *value, "true or false") : fallback;
}

std::int64_t Options::take_integer(std::string_view name, std::int64_t fallback, std::int64_t low,
                                   std::int64_t high) const {
  const bool bounded =
      low > std::numeric_limits<std::int64_t>::min() || high < std::numeric_limits<std::int64_t>::max();
  const Value* value = take({std::string(name), fallback, bounded ? static_cast<double>(low) : -infinity,
                             bounded ? static_cast<double>(high) : infinity});
  if (!value) return fallback;
  const auto integer = get<std::int64_t>(name, *value, "an integer");
  check_range(name, integer, low, high);
  return integer;
}

double Options::take_number(std::string_view name, double fallback, double low, double high) const {
  const Value* value = take({std::string(name), fallback, low, high});
  if (!value) return fallback;
  const auto* integer = std::get_if<std::int64_t>(value);
  const double number = integer ? static_cast<double>(*integer) : get<double>(name, *value, "a number");
  check_range(name, number, low, high);
  return number;
}

std::string Options::take_text(std::string_view name, std::string fallback) const {
  const Value* value = take({std::string(name), fallback});
  if (!value) return fallback;
  return get<std::string>(name, *value, "text");
}

std::vector<double> Options::take_numbers(std::string_view name, std::vector<double> fallback, double low,
                                          double high) const {
  const Value* value = take({std::string(name), fallback, low, high});
  if (!value) return fallback;
  const auto& numbers = get<std::vector<double>>(name, *value, "a list of numbers");
  for (const double number : numbers) check_range(name, number, low, high);
  return numbers;
}

std::vector<std::string> Options::take_texts(std::string_view name, std::vector<std::string> fallback) const {
  const Value* value = take({std::string(name), fallback});
  if (!value) return fallback;
  return get<std::vector<std::string>>(name, *value, "a list of texts");
}

std::string Options::take_choice(std::string_view name, const std::vector<std::string>& choices) const {
  const Value* value = take({std::string(name), choices.front(), -infinity, infinity, choices});
  if (!value) return choices.front();
  const auto& text = get<std::string>(name, *value, "text");
  check_setting(name, text, choices);
  return text;
}

Options Options::within(std::string_view prefix) const {
  Options part;
  const std::string beginning = std::string(prefix) + ".";
  for (const auto& [name, value] : values_) {
    if (!name.starts_with(beginning)) continue;
    take({name, value});
    part.set(name.substr(beginning.size()), value);
  }
  return part;
}

void Options::check_all_taken(std::string_view owner) const {
  std::vector<std::string> known;
  for (const Asked& asked : asked_) known.push_back(asked.name);
  for (const auto& [name, value] : values_) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fail(owner, " has no setting '", name, "'", suggest_name(name, known));
  }
}

Options::Value option_from_json(std::string_view key, std::string_view text) {
  using Json = nlohmann::json;
  const Json value = Json::parse(text, written_json<Json>(64, std::string(key)), /*allow_exceptions=*/false);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) {
    // A value that only fits an unsigned integer would turn negative.
    check(
        !value.is_number_unsigned() || value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
        "setting '", key, "' is ", text, ", which is too large");
    return value.get<std::int64_t>();
  }
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
