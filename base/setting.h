#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/names.h"

// A setting is a field of a struct and a line in the table that follows the struct:
//
//   struct SamplingOptions { double temperature = 1; std::int64_t top_k = 0; };
//
//   void for_each_setting(auto&& visit, SamplingOptions& options) {
//     visit(options.temperature, "temperature", 0, 1e6, "Below 1: likelier tokens, above 1: more variety");
//     visit(options.top_k, "top_k", 0, 1 << 30, "Only the k most probable tokens; 0: all");
//   }
//
// The initial value of the field is the default. Declaring, reading, checks and help follow from the table.

namespace heed {

/// When a setting of a run may still be changed.
enum class Changes {
  by_group,    ///< as all settings of its group (apps/tasks/settings.h)
  never,       ///< the model was made with it
  on_resume,   ///< when training is resumed
  in_use,      ///< when the trained run is used
  at_any_time  ///< both
};

/// Optional properties of a setting.
struct SettingTraits {
  enum class Kind { flag, integer, number, text, column, columns, attention };
  Changes changes = Changes::by_group;
  /// Needed where the field's type is not enough: a text may be a column or an attention.
  Kind kind = Kind::text;
};

/// The description of a setting.
struct Setting : SettingTraits {
  Setting(std::string its_name, std::string its_help, SettingTraits traits = {}, double its_low = 0,
          double its_high = 0, std::vector<std::string> its_choices = {})
      : SettingTraits(std::move(traits)),
        name(std::move(its_name)),
        help(std::move(its_help)),
        low(its_low),
        high(its_high),
        choices(std::move(its_choices)) {}

  std::string name;          ///< "beam"; in Settings it is dotted: "decoding.beam"
  std::string help;          ///< one line
  double low = 0, high = 0;  ///< range of a number, both included
  /// The values of a text; for an enum its names, in the order of its values.
  std::vector<std::string> choices = {};
  std::string initial = {};  ///< the default, as JSON; Settings fill it in
};

/// Returns the allowed values, such as "0 to 1" or "post or pre"; "" when every value of its kind
/// is.
std::string allowed_text(const Setting& setting);

/// Wraps a callback so that the lines of a setting table can call it in any of these forms.
template <class Take>
class SettingVisitor {
 public:
  explicit SettingVisitor(Take take) : take_(std::move(take)) {}
  void operator()(auto& value, std::string name, std::string help, SettingTraits traits = {}) {
    take_(value, Setting(std::move(name), std::move(help), std::move(traits)));
  }
  void operator()(auto& value, std::string name, double low, double high, std::string help,
                  SettingTraits traits = {}) {
    take_(value, Setting(std::move(name), std::move(help), std::move(traits), low, high));
  }
  void operator()(auto& value, std::string name, std::vector<std::string> choices, std::string help,
                  SettingTraits traits = {}) {
    take_(value, Setting(std::move(name), std::move(help), std::move(traits), 0, 0, std::move(choices)));
  }
  void operator()(auto& value, const Setting& setting) { take_(value, setting); }

 private:
  Take take_;
};

/// Visits the settings of a nested struct; their names are prefixed with `name` and a dot.
template <class Visit, class Group>
void for_each_setting_below(const std::string& name, Visit& visit, Group& group) {
  for_each_setting(SettingVisitor([&](auto& value, Setting setting) {
                     setting.name = name + "." + setting.name;
                     visit(value, setting);
                   }),
                   group);
}

/// Throws an Error that names the owner, the setting, its value and the range if a number is out of
/// range.
template <class Group>
void check_ranges(std::string_view owner, Group group) {
  for_each_setting(SettingVisitor([&](const auto& value, Setting setting) {
                     using T = std::remove_cvref_t<decltype(value)>;
                     if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
                       setting.kind = std::is_integral_v<T> ? Setting::Kind::integer : Setting::Kind::number;
                       const auto number = static_cast<double>(value);
                       if (!(number >= setting.low && number <= setting.high))
                         fail(owner, ": ", setting.name, " is ", value, "; it must be ",
                              allowed_text(setting));
                     }
                   }),
                   group);
}

}  // namespace heed
