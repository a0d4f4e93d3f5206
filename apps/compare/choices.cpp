#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "heed/apps/compare/comparison.h"
#include "heed/base/digest.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/core/random.h"

// The choices of a comparison: all combinations of the varied settings, or random ones, and the
// rounds of a search.

namespace heed {
namespace {

constexpr std::size_t most_cells = 10'000;

/// Returns a short folder name that depends on the choice alone: letters, digits and a few signs
/// stay, ", " becomes "__". A choice that this does not spell, or that is long, gets its digest.
std::string folder_name(const std::string& choice) {
  constexpr std::size_t longest = 120;
  std::string name = choice, read;
  replace_all(name, ", ", "__");
  read = name;
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
          std::string_view("=.-+_").find(c) != std::string_view::npos))
      c = '_';
  if (name == read && name.size() <= longest && choice.find("__") == std::string::npos) return name;
  return concat_text(name.substr(0, longest), '-', compute_digest(choice).substr(0, 16));
}

void check_distinct(const std::string& what, const std::vector<std::string>& values) {
  std::set<std::string> seen;
  for (const std::string& value : values)
    if (!seen.insert(value).second) throw SettingsError(concat_text(what, ": ", value, " is named twice"));
}

/// A choice: its attention ("": the one in the settings), and the value of each compared setting.
struct Choice {
  std::string attention;
  std::vector<std::string> values;
  auto operator<=>(const Choice&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns all combinations; the last setting varies fastest.
std::vector<Choice> all_choices(const std::vector<std::string>& attentions,
                                const std::vector<ComparedSetting>& settings) {
  std::vector<Choice> choices;
  for (const std::string& attention : attentions) choices.push_back({attention, {}});
  for (const ComparedSetting& setting : settings) {
    if (setting.is_range)
      throw SettingsError(
          concat_text(setting.name, " has a range: give random=N to draw from it, or name its values"));
    std::vector<Choice> longer;
    for (const Choice& one : choices)
      for (const std::string& value : setting.values) {
        longer.push_back(one);
        longer.back().values.push_back(value);
      }
    choices = std::move(longer);
    if (choices.size() > most_cells) return choices;
  }
  return choices;
}

/// Returns a value of a setting for a random number in [0, 1).
std::string value_at(const ComparedSetting& setting, const Setting& declared, double place) {
  if (!setting.is_range)
    return setting.values[static_cast<std::size_t>(place * static_cast<double>(setting.values.size()))];
  const bool is_integer = declared.kind == Setting::Kind::integer;
  double low = parsed_number(setting.values[0]).value_or(std::nan("")),
         high = parsed_number(setting.values[1]).value_or(std::nan(""));
  if (is_integer) {
    low = std::ceil(low);
    high = std::floor(high);
  }
  const double most = is_integer ? 0x1p53 : std::numeric_limits<double>::max();
  if ((!is_integer && declared.kind != Setting::Kind::number) || !(low < high) || low < -most || high > most)
    throw SettingsError(concat_text(setting.name, ": ", setting.values[0], "..", setting.values[1],
                                    " is not a range of numbers from smaller to larger"));
  if (is_integer)
    return concat_text(std::llround(std::min(high, std::floor(low + place * (high - low + 1)))));
  const bool by_logarithm = low > 0 && high >= 10 * low;
  // Three digits of the numbers, or of what distinguishes them; rounding may pass the ends.
  const double size = std::max(std::abs(low), std::abs(high)), width = high / size - low / size;
  const int digits = std::min(17, 3 + static_cast<int>(std::max(0.0, -std::log10(width))));
  const double drawn = by_logarithm ? low * std::pow(high / low, place) : (1 - place) * low + place * high;
  const std::string text = formatted("%.*g", digits, drawn);
  const double value = parsed_number(text).value_or(drawn);
  return value < low ? setting.values[0] : value > high ? setting.values[1] : text;
}

/// Returns different random choices, or all if there are fewer; number i is drawn from its own words
/// of the random stream.
std::vector<Choice> drawn_choices(const ComparisonPlan& plan, const std::vector<std::string>& attentions) {
  std::vector<Choice> choices;
  std::set<Choice> seen;
  const std::size_t wanted = std::min(static_cast<std::size_t>(plan.draws), most_cells + 1);
  std::size_t in_vain = 0;  // tries since the last new choice; so many find none only if all are known
  for (std::uint32_t i = 0; choices.size() < wanted && in_vain < 100 * (choices.size() + 10); ++i) {
    check_stop();
    const RandomKey key{static_cast<std::uint64_t>(plan.seeds.front()), i, 0};
    const auto place = [&](std::size_t which) { return random_word(key, which) * 0x1p-32; };
    Choice one{attentions[static_cast<std::size_t>(place(0) * static_cast<double>(attentions.size()))], {}};
    for (const ComparedSetting& setting : plan.settings)
      one.values.push_back(value_at(setting, plan.base.setting(setting.name), place(one.values.size() + 1)));
    const bool is_new = seen.insert(one).second;
    in_vain = is_new ? 0 : in_vain + 1;
    if (is_new) choices.push_back(std::move(one));
  }
  return choices;
}

}  // namespace

std::vector<ComparisonCell> plan_cells(const ComparisonPlan& plan) {
  check_distinct("attentions", plan.attentions);
  std::vector<std::string> attentions = plan.attentions, names, seeds;
  for (const ComparedSetting& setting : plan.settings) {
    names.push_back(setting.name);
    check_distinct(setting.name, setting.values);
  }
  check_distinct("settings", names);
  if (plan.draws > 0 && plan.settings.empty() && plan.attentions.size() < 2)
    throw SettingsError("random draws from the choices of the grid and the attentions: give some");
  const std::string chosen = attention_settings(plan.entry.stacks).front();
  if (!attentions.empty() && std::ranges::count(names, chosen) > 0)
    throw SettingsError(concat_text(chosen, " and attention set the same setting: give one"));
  if (std::ranges::count(names, "seed") > 0)
    throw SettingsError("seeds cannot be compared: give them as seeds");
  for (const std::int64_t seed : plan.seeds) seeds.push_back(std::to_string(seed));
  check_distinct("seeds", seeds);
  if (std::ranges::count(attentions, "") > 0)
    throw SettingsError("attention: a name is empty; separate names with commas");
  if (attentions.empty()) attentions.emplace_back();

  const std::vector<Choice> choices =
      plan.draws > 0 ? drawn_choices(plan, attentions) : all_choices(attentions, plan.settings);
  if (choices.size() * plan.seeds.size() > most_cells)
    throw SettingsError(concat_text("a comparison has at most ", most_cells, " cells"));

  std::vector<ComparisonCell> cells;
  for (const Choice& one : choices) {
    check_stop();
    Settings settings = plan.base;
    const bool has_steps =
        settings.setting("training.steps").is_given || std::ranges::count(names, "training.steps") > 0;
    settings.set("training.steps", settings.json("training.steps"),
                 "compare");  // the same for all, whatever their data
    // As in the programs, an attention and its options override the other settings.
    const auto assign = [&](bool of_attention) {
      for (std::size_t i = 0; i < one.values.size(); ++i)
        if (belongs_to_attention(plan.entry.stacks, names[i]) == of_attention)
          settings.assign(names[i] + "=" + one.values[i]);
    };
    assign(false);
    if (!has_steps && settings.read<TrainerOptions>("training").epochs > 0)
      settings.set("training.steps", "0", "training.epochs");
    if (!one.attention.empty()) choose_attentions(settings, plan.entry.stacks, {.attention = one.attention});
    assign(true);
    std::string choice = one.attention;
    ChoiceValues varied;
    if (attentions.size() > 1) varied.emplace_back("attention", one.attention);
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      if (plan.settings[i].values.size() < 2) continue;
      choice += concat_text(choice.empty() ? "" : ", ", names[i], "=", one.values[i]);
      varied.emplace_back(names[i], one.values[i]);
    }
    const std::string folder = choice.empty() ? "as_set" : folder_name(choice);
    if (choice.empty()) choice = "as set";
    for (const std::int64_t seed : plan.seeds) {
      settings.set("seed", std::to_string(seed), "seeds");
      cells.push_back({choice, concat_text(folder, "-seed", seed), seed, settings, "", varied});
    }
  }
  return cells;
}

std::vector<ComparisonCell> shortened(std::span<const ComparisonCell> cells, std::int64_t steps) {
  std::vector<ComparisonCell> shorter(cells.begin(), cells.end());
  for (ComparisonCell& cell : shorter) {
    for (const char* const name : {"training.steps", "training.epochs"})
      if (cell.settings.json(name) != cells.front().settings.json(name))
        throw SettingsError(
            concat_text("halving chooses the steps of each training, and ", name, " is compared"));
    const auto training = cell.settings.read<TrainerOptions>("training");
    if (training.epochs > 0) throw SettingsError("halving needs training.steps, not training.epochs");
    const std::int64_t warmup = training.schedule.warmup_steps * steps / training.steps;
    cell.settings.set("training.steps", std::to_string(steps), "halving");
    cell.settings.set("training.schedule.warmup_steps", std::to_string(warmup), "halving");
    cell.name += concat_text("-steps", steps);
    cell.part = "valid";
  }
  return shorter;
}

std::size_t kept_choices(std::size_t choices) {
  constexpr std::size_t least = 3;
  return std::min(choices, std::max(least, (choices + 2) / 3));
}

std::vector<std::int64_t> halving_steps(std::size_t choices, std::int64_t steps) {
  std::vector<std::int64_t> rounds;
  for (; kept_choices(choices) < choices; choices = kept_choices(choices)) {
    for (std::int64_t& earlier : rounds) earlier = std::max<std::int64_t>(earlier / 3, 1);
    rounds.push_back(std::max<std::int64_t>(steps / 3, 1));
  }
  return rounds;
}

}  // namespace heed
