#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heed {

/// Named settings of one part of a model, as they stand in a configuration file. A reader takes each setting
/// that it knows and calls check_all_taken(), so that a misspelt name is an error and not an option that does
/// nothing.
class Options {
 public:
  using Value =
      std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

  void set(std::string name, Value value) { values_[std::move(name)] = std::move(value); }
  const std::map<std::string, Value>& values() const { return values_; }

  /// The value of `name`, or `fallback` when it is not set; throws when the type differs (an integer serves
  /// as a double).
  bool take_bool(std::string_view name, bool fallback) const;
  std::int64_t take_integer(std::string_view name, std::int64_t fallback) const;
  double take_number(std::string_view name, double fallback) const;
  std::string take_text(std::string_view name, std::string fallback) const;
  std::vector<double> take_numbers(std::string_view name, std::vector<double> fallback) const;
  std::vector<std::string> take_texts(std::string_view name, std::vector<std::string> fallback) const;
  /// The settings whose names begin with `prefix` and a dot, without these; they count as taken.
  Options within(std::string_view prefix) const;
  /// Throws an Error that names the first setting nobody took, and the nearest name that somebody asked for.
  void check_all_taken(std::string_view owner) const;

 private:
  const Value* take(std::string_view name) const;
  std::map<std::string, Value> values_;
  mutable std::vector<std::string> asked_;
};

/// The value of a setting from JSON text: true or false, a number, text, or a list of numbers or of texts.
/// Throws for anything else, naming `key`.
Options::Value option_from_json(std::string_view key, std::string_view text);

}  // namespace heed
