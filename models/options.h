#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heed {

/// Named settings of one part of a model, as given in a configuration file. A reader takes each
/// setting that it knows, with its valid range, and calls check_all_taken(), so that a misspelt
/// name is an error rather than silently ignored.
class Options {
 public:
  using Value =
      std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

  void set(std::string name, Value value) { values_[std::move(name)] = std::move(value); }
  const std::map<std::string, Value>& values() const { return values_; }

  /// Returns the value of `name`, or `fallback` when it is not set. Throws an Error that names the
  /// setting and its value when the type is wrong (an integer is accepted as a number), or when a
  /// number, or one in a list, is NaN or outside [low, high].
  bool take_bool(std::string_view name, bool fallback) const;
  std::int64_t take_integer(std::string_view name, std::int64_t fallback,
                            std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                            std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  double take_number(std::string_view name, double fallback, double low = -infinity,
                     double high = infinity) const;
  std::string take_text(std::string_view name, std::string fallback) const;
  std::vector<double> take_numbers(std::string_view name, std::vector<double> fallback,
                                   double low = -infinity, double high = infinity) const;
  std::vector<std::string> take_texts(std::string_view name, std::vector<std::string> fallback) const;
  /// Returns one of `choices`; the first is the default. Throws with the choices and the nearest
  /// one.
  std::string take_choice(std::string_view name, const std::vector<std::string>& choices) const;
  /// Returns the settings whose names begin with `prefix` and a dot, without this prefix. They
  /// count as taken.
  Options within(std::string_view prefix) const;
  /// Throws an Error that names the first setting that was never taken, and the nearest known name.
  void check_all_taken(std::string_view owner) const;

  /// The help for a setting that a reader asked for.
  struct Asked {
    std::string name;
    Value fallback;
    double low = -infinity, high = infinity;   ///< range of numbers, both inclusive
    std::vector<std::string> choices = {};     ///< permitted values of a text
    std::string help = {};                     ///< a line; "" where none is known
    std::map<std::string, Value> beside = {};  ///< values of other settings that this one needs

    std::string type() const;           ///< "an integer", "true or false", ...
    std::string fallback_text() const;  ///< the default in JSON
    std::string range() const;          ///< "1 to 65536", "'a' or 'b'"; "" when unrestricted
  };
  /// The settings asked for so far, in order, each name once.
  std::span<const Asked> asked() const { return asked_; }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  const Value* take(Asked asked) const;
  std::map<std::string, Value> values_;
  mutable std::vector<Asked> asked_;
};

/// Parses a setting's value from JSON text: true or false, a number, a text, or a list of numbers
/// or texts. Throws for anything else, naming `key`.
Options::Value option_from_json(std::string_view key, std::string_view text);

/// Throws an Error that names the setting, its value and the range unless it is in [low, high].
void check_setting(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high);
void check_setting(std::string_view name, double value, double low, double high);
/// Throws an Error that names the setting, its value, the choices and the nearest one unless it is
/// one of them.
void check_setting(std::string_view name, const std::string& value, std::span<const std::string> choices);

}  // namespace heed
