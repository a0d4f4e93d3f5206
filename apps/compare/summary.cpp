#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "heed/apps/compare/comparison.h"
#include "heed/apps/data/text_file.h"
#include "heed/apps/report/report.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/core/random.h"
#include "heed/training/text_metrics.h"

namespace heed {
namespace {

using Json = page::Json;
constexpr std::uint32_t resamples = 2000;
constexpr std::size_t fewest_seeds = 3;  // that can tell how much a seed matters

using Figure = std::function<double(const CellResult&)>;

/// Returns the mean and the deviation of a figure over the seeds of a row.
Spread spread_over(const ComparisonRow& row, const Figure& figure) {
  std::vector<double> values;
  for (const CellResult& result : row.results) values.push_back(figure(result));
  return mean_and_deviation(values);
}

/// A cost of a choice, and its format in the table and in JSON.
struct Cost {
  const char *column, *key, *format;
  double scale;  ///< of the table
  Figure figure;
};
const Cost costs[] = {
    {"GFLOP/step", "step_gflops", "%.3g", 1, [](const CellResult& one) { return one.step_gflops; }},
    {"training s", "training_seconds", "%.1f", 1, [](const CellResult& one) { return one.training_seconds; }},
    {"peak MB", "peak_bytes", "%.1f", 1e-6,
     [](const CellResult& one) { return static_cast<double>(one.peak_bytes); }},
    {"ms/example", "seconds_per_example", "%.3g", 1e3,
     [](const CellResult& one) { return one.seconds_per_example; }}};

/// Returns the spread of a metric, of `metrics` of each result.
Spread metric_spread(const ComparisonRow& row, const std::string& name,
                     std::vector<Metric> CellResult::*metrics = &CellResult::metrics) {
  return spread_over(row, [&](const CellResult& result) {
    const auto found = std::ranges::find(result.*metrics, name, &Metric::name);
    return found == (result.*metrics).end() ? std::nan("") : found->value;
  });
}

/// Returns a result of the first row that was measured; null if there is none.
const CellResult* any_result(std::span<const ComparisonRow> rows) {
  const auto found = std::ranges::find_if(rows, [](const auto& row) { return !row.results.empty(); });
  return found == rows.end() ? nullptr : &found->results.front();
}

std::string difference_text(const Difference& difference) {
  return formatted("%+.4g", difference.value) + (difference.is_significant() ? "*" : "") +
         (difference.p > 0 ? formatted(" (p %.2g)", difference.p) : " (p < 0.001)");
}

/// Returns the mean of each metric on the validation part, or without one on the measured part, over results;
/// as losses: smaller is better.
std::vector<double> mean_losses(std::span<const CellResult> results) {
  std::vector<double> losses;
  for (const CellResult& result : results) {
    const std::vector<Metric>& metrics = result.validation.empty() ? result.metrics : result.validation;
    losses.resize(std::max(losses.size(), metrics.size()));
    for (std::size_t i = 0; i < metrics.size(); ++i)
      losses[i] += (metrics[i].larger_is_better ? -metrics[i].value : metrics[i].value) /
                   static_cast<double>(results.size());
  }
  return losses;
}

/// Returns the measured choices, best first.
std::vector<const ComparisonRow*> ranked_rows(std::span<const ComparisonRow> rows) {
  std::vector<const ComparisonRow*> ranked;
  for (const ComparisonRow& row : rows)
    if (const auto losses = mean_losses(row.results); !losses.empty() && std::isfinite(losses.front()))
      ranked.push_back(&row);
  std::ranges::stable_sort(ranked, {}, [](const ComparisonRow* row) { return mean_losses(row->results); });
  return ranked;
}

/// Returns all choices, best first, then those that cannot be ranked.
std::vector<const ComparisonRow*> sorted_rows(std::span<const ComparisonRow> rows) {
  std::vector<const ComparisonRow*> sorted = ranked_rows(rows);
  for (const ComparisonRow& row : rows)
    if (std::ranges::count(sorted, &row) == 0) sorted.push_back(&row);
  return sorted;
}

/// Returns whether a choice was measured on the validation part.
bool has_validation(const ComparisonRow& row) {
  return !row.results.empty() && !row.results.front().validation.empty();
}

std::string spread_text(const ComparisonRow& row, const Spread& spread) {
  return formatted("%.4g", spread.mean) +
         (row.results.size() > 1 ? formatted(" +- %.2g", spread.deviation) : "");
}

Json spread_json(const Spread& spread) {
  return {{"mean", spread.mean}, {"deviation", spread.deviation}};
}

/// Returns the value by which choices are ranked, and its spread over the seeds.
Spread ranking_spread(const ComparisonRow& row) {
  const auto metrics = has_validation(row) ? &CellResult::validation : &CellResult::metrics;
  return metric_spread(row, (row.results.front().*metrics).front().name, metrics);
}

std::string ranking_name(const ComparisonRow& row) {
  return concat_text(has_validation(row) && row.results.front().part != "valid" ? "valid " : "",
                     row.results.front().metrics.front().name);
}

/// Returns the last parts of a setting's name that tell it from the others.
std::string short_name(const std::string& name, const ChoiceValues& all) {
  for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    const auto ends_alike = [&](const auto& other) { return other.first.ends_with(name.substr(dot)); };
    if (std::ranges::count_if(all, ends_alike) == 1) return name.substr(dot + 1);
  }
  return name;
}

using TableLines = std::vector<std::vector<std::string>>;

/// Returns the names of the choices in legends, best first: what varies, or numbers if it is more than one
/// thing.
std::vector<std::string> short_choices(std::span<const ComparisonRow* const> sorted) {
  std::vector<std::string> names;
  for (const ComparisonRow* row : sorted)
    names.push_back(row->values.size() > 1 ? std::to_string(names.size() + 1)
                                           : unicode::message_line(row->choice));
  return names;
}

/// Returns the cells of the table, header first. A choice without results has one cell for all its metrics,
/// with the reason.
TableLines comparison_table(std::span<const ComparisonRow> rows) {
  std::vector<std::string> metrics;
  if (const CellResult* const result = any_result(rows))
    for (const Metric& metric : result->metrics) metrics.push_back(metric.name);
  const bool has_both = std::ranges::any_of(rows, [](const ComparisonRow& row) {
    return has_validation(row) && row.results.front().part != "valid";
  });
  const auto sorted = sorted_rows(rows);
  const std::vector<std::string> names = short_choices(sorted);
  const ChoiceValues no_values, &varied = rows.empty() ? no_values : rows.front().values;
  std::vector<std::string> head = {"choice"};
  if (varied.size() > 1)
    for (const auto& [name, value] : varied) head.push_back(short_name(name, varied));
  if (has_both) head.push_back("valid " + metrics.front());
  head.insert(head.end(), metrics.begin(), metrics.end());
  head.insert(head.end(), {"from the first", "seeds", "parameters"});
  for (const Cost& cost : costs) head.emplace_back(cost.column);
  TableLines lines = {head};
  const std::size_t ranked = ranked_rows(rows).size();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const ComparisonRow& row = *sorted[i];
    std::vector<std::string> line = {names[i] + (i == 0 && ranked > 1 ? " (best)" : "")};
    if (varied.size() > 1)
      for (const auto& [name, value] : row.values) line.push_back(unicode::message_line(value));
    if (row.results.empty()) {
      line.push_back(row.failures.empty()
                         ? "not trained yet"
                         : concat_text("failed: ", unicode::message_line(row.failures.front())));
      lines.push_back(std::move(line));
      continue;
    }
    if (has_both)
      line.push_back(spread_text(row, metric_spread(row, metrics.front(), &CellResult::validation)));
    for (const std::string& metric : metrics) line.push_back(spread_text(row, metric_spread(row, metric)));
    line.push_back(row.difference ? difference_text(*row.difference) : &row == rows.data() ? "first" : "");
    line.push_back(std::to_string(row.results.size()) +
                   (row.failures.empty() ? "" : concat_text(", ", row.failures.size(), " failed")) +
                   (row.missing == 0 ? "" : concat_text(", ", row.missing, " missing")));
    line.push_back(std::to_string(row.results.front().parameters));
    for (const Cost& cost : costs)
      line.push_back(formatted(cost.format, cost.scale * spread_over(row, cost.figure).mean));
    lines.push_back(std::move(line));
  }
  return lines;
}

/// A group of choices with alike values of something that varies.
struct ValueGroup {
  std::string values;
  double sum = 0;
  std::int64_t count = 0;
};

/// Returns the groups of choices by one of their values: three groups of near numbers if there are more than
/// four numbers, otherwise one for each value.
std::vector<ValueGroup> groups_by_value(std::span<const ComparisonRow* const> ranked, std::size_t which) {
  std::vector<std::pair<double, const ComparisonRow*>> order;
  std::map<std::string, double> values;
  for (const ComparisonRow* row : ranked) {
    const std::string& value = row->values[which].second;
    order.emplace_back(parsed_number(value).value_or(std::nan("")), row);
    values.emplace(value, order.back().first);
  }
  const bool are_numbers =
                 std::ranges::none_of(values, [](const auto&one) { return std::isnan(one.second); }),
             are_near = are_numbers && values.size() > 4;
  if (are_numbers) std::ranges::stable_sort(order, {}, [](const auto& one) { return one.first; });
  std::vector<ValueGroup> groups;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::string& value = order[i].second->values[which].second;
    auto group = std::ranges::find(groups, value, &ValueGroup::values);
    if (are_near) {
      if (i * 3 / order.size() == groups.size()) groups.push_back({value});
      group = std::prev(groups.end());
      const bool ends = i + 1 == order.size() || (i + 1) * 3 / order.size() == groups.size();
      if (ends && value != group->values) group->values += " to " + value;
    } else if (group == groups.end()) {
      group = groups.insert(groups.end(), {value});
    }
    group->sum += ranking_spread(*order[i].second).mean;
    ++group->count;
  }
  return groups;
}

/// Returns a table of how much everything that varies matters, header first: the share of the variance between
/// the choices that lies between the means of its values, and the share to expect if it does not matter. Empty if fewer than two things vary, or the choices
/// are fewer than four or all alike.
TableLines effects_table(std::span<const ComparisonRow> rows) {
  const auto ranked = ranked_rows(rows);
  if (ranked.size() < 4 || ranked.front()->values.size() < 2) return {};
  double mean = 0, all = 0;
  for (const ComparisonRow* row : ranked)
    mean += ranking_spread(*row).mean / static_cast<double>(ranked.size());
  for (const ComparisonRow* row : ranked) all += std::pow(ranking_spread(*row).mean - mean, 2);
  if (!(all > 0)) return {};
  std::vector<std::pair<double, std::vector<std::string>>> lines;
  const ChoiceValues& varied = ranked.front()->values;
  for (std::size_t which = 0; which < varied.size(); ++which) {
    double between = 0;
    std::string means;
    const std::vector<ValueGroup> groups = groups_by_value(ranked, which);
    for (const ValueGroup& group : groups) {
      const auto count = static_cast<double>(group.count);
      between += count * std::pow(group.sum / count - mean, 2);
      means += concat_text(means.empty() ? "" : ", ", unicode::message_line(group.values), ": ",
                           formatted("%.4g", group.sum / count));
    }
    const double by_chance = static_cast<double>(groups.size() - 1) / static_cast<double>(ranked.size() - 1);
    lines.push_back({between,
                     {short_name(varied[which].first, varied), formatted("%.0f %%", 100 * between / all),
                      formatted("%.0f %%", 100 * by_chance), means}});
  }
  std::ranges::stable_sort(lines, std::greater(), [](const auto& line) { return line.first; });
  TableLines table = {{"what matters", "share of the variance", "by chance",
                       concat_text("mean ", ranking_name(*ranked.front()), " by value")}};
  for (auto& [between, line] : lines) table.push_back(std::move(line));
  return table;
}

/// Returns the notes below the table.
std::string comparison_notes(std::span<const ComparisonRow> rows) {
  std::string text;
  for (const ComparisonRow& row : rows)
    for (const std::string& failure : row.failures)
      text.append(unicode::message_line(concat_text(row.choice, ", ", failure))).append("\n");
  for (const ComparisonRow& row : rows)
    if (row.measured_elsewhere)
      text.append(unicode::message_line(row.choice))
          .append(" was measured on other examples than the first, so there is no difference to report\n");
  for (const ComparisonRow& row : rows)
    if (row.difference) {
      text += concat_text("from the first: the difference in ", row.results.front().examples.metric,
                          " from the row marked \"first\", on the same examples; *: significant at 5 %, over "
                          "examples and seeds (paired bootstrap)\n",
                          row.difference->over_seeds ? "" : "no star with fewer than three seeds\n");
      break;
    }
  const std::vector<std::string> best = best_choices(rows);
  if (best.empty()) return text;
  const ComparisonRow& row = *std::ranges::find(rows, best.front(), &ComparisonRow::choice);
  const std::string part = row.results.front().part, chosen = has_validation(row) ? "valid" : part;
  const std::string ranked =
      best.size() < 2 ? ""
                      : concat_text("best by ", row.results.front().metrics.front().name, " on the ", chosen,
                                    " part: ", unicode::message_line(best.front()), "\n",
                                    chosen == "valid" ? ""
                                                      : "without a validation part, this chooses by the test "
                                                        "part: expect less on new data\n");
  return concat_text("measured on the ", part, " part\n", ranked, text);
}

}  // namespace

double combined_metric(const std::string& combine, std::span<const double> sums) {
  if (combine == "mean") {
    check(sums.size() == 2, "a mean needs a sum and a count, but there are ", sums.size(), " figures");
    return sums[0] / sums[1];
  }
  check(combine == "bleu", "unknown way to combine the statistics of examples, \"", combine,
        "\": mean or bleu");
  return bleu_from_statistics(sums).score;
}

Difference paired_bootstrap(std::span<const ExampleStatistics> first,
                            std::span<const ExampleStatistics> second) {
  check(!first.empty() && !second.empty(), "nothing to compare");
  const std::size_t examples = first.front().rows.size();
  check(examples > 0, "there are no examples to compare on");
  for (const auto& side : {first, second})
    for (const ExampleStatistics& seed : side)
      check(seed.rows.size() == examples && seed.metric == first.front().metric,
            "two choices were not measured on the same examples: ", examples, " of ", first.front().metric,
            " and ", seed.rows.size(), " of ", seed.metric);
  using Times = std::vector<std::uint32_t>;  // how often each example, or seed, was drawn
  const auto draw = [](std::uint32_t resample, std::uint32_t stream, std::size_t count) {
    Times times(count, 0);
    for (std::size_t i = 0; i < count; ++i)
      ++times[heed::below(random_word({1, resample, stream}, i), count)];
    return times;
  };
  const auto metric = [&](std::span<const ExampleStatistics> side, const Times& seeds, const Times& times) {
    double sum = 0;
    for (std::size_t s = 0; s < side.size(); ++s) {
      if (seeds[s] == 0) continue;
      std::vector<double> sums(side[s].rows.front().size(), 0);
      for (std::size_t i = 0; i < examples; ++i)
        for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += times[i] * side[s].rows[i][k];
      sum += seeds[s] * combined_metric(side[s].combine, sums);
    }
    return sum / static_cast<double>(side.size());
  };
  Difference result;
  const Times once(examples, 1);
  result.value = metric(second, Times(second.size(), 1), once) - metric(first, Times(first.size(), 1), once);
  result.over_seeds = std::min(first.size(), second.size()) >= fewest_seeds;
  std::vector<double> drawn;
  std::int64_t below = 0, above = 0;
  for (std::uint32_t r = 0; r < resamples; ++r) {
    const Times times = draw(r, 0, examples);
    drawn.push_back(metric(second, draw(r, 2, second.size()), times) -
                    metric(first, draw(r, 1, first.size()), times));
    below += drawn.back() <= 0 ? 1 : 0;
    above += drawn.back() >= 0 ? 1 : 0;
  }
  std::sort(drawn.begin(), drawn.end());
  result.low = drawn[resamples * 25 / 1000];
  result.high = drawn[resamples * 975 / 1000 - 1];
  result.p = std::min(1.0, 2.0 * static_cast<double>(std::min(below, above)) / resamples);
  return result;
}

std::vector<ComparisonRow> comparison_rows(std::span<const ComparisonCell> cells,
                                           std::span<const std::optional<CellResult>> results) {
  std::vector<ComparisonRow> rows;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (rows.empty() || rows.back().choice != cells[i].choice)
      rows.push_back({cells[i].choice, {}, {}, 0, {}, false, cells[i].values});
    ComparisonRow& row = rows.back();
    if (!results[i])
      ++row.missing;
    else if (results[i]->failure.empty())
      row.results.push_back(*results[i]);
    else
      row.failures.push_back(concat_text("seed ", cells[i].seed, ": ", results[i]->failure));
  }
  // Resampling is meaningless if a training diverged.
  const auto statistics = [](const ComparisonRow& row) {
    std::vector<ExampleStatistics> all;
    for (const CellResult& result : row.results) {
      for (const std::vector<double>& example : result.examples.rows)
        if (!std::ranges::all_of(example, [](double x) { return std::isfinite(x); }))
          return std::vector<ExampleStatistics>();
      if (!result.examples.rows.empty()) all.push_back(result.examples);
    }
    return all;
  };
  if (rows.empty()) return rows;
  const std::vector<ExampleStatistics> first = statistics(rows.front());
  for (std::size_t i = 1; i < rows.size() && !first.empty(); ++i) {
    const auto others = statistics(rows[i]);
    if (others.empty()) continue;
    rows[i].measured_elsewhere = rows[i].results.front().data != rows.front().results.front().data ||
                                 others.front().rows.size() != first.front().rows.size();
    if (!rows[i].measured_elsewhere) rows[i].difference = paired_bootstrap(first, others);
  }
  return rows;
}

namespace {

std::string text_table(const TableLines& lines) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c)
      if (line.size() == widths.size() || c + 1 < line.size())
        widths[c] = std::max(widths[c], line[c].size());
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (std::size_t c = 0; c < line.size(); ++c)
      row.append(c == 0 ? "" : "  ")
          .append(line[c])
          .append(widths[c] - std::min(widths[c], line[c].size()), ' ');
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "\n";
}

std::string markdown_table(TableLines lines) {
  const std::size_t columns = lines.front().size();
  std::string text;
  for (auto& line : lines) {
    line.resize(columns);
    text += "|";
    for (std::string& cell : line) {
      replace_all(cell, "|", "\\|");
      text.append(" ").append(cell).append(" |");
    }
    text += "\n";
    if (&line != &lines.front()) continue;
    text += "|---|";
    for (std::size_t c = 1; c < columns; ++c) text += "---:|";
    text += "\n";
  }
  return text + "\n";
}

/// Returns the tables, each by format(table), with the notes.
template <class Format>
std::string formatted_comparison(std::span<const ComparisonRow> rows, const Format& format) {
  const TableLines effects = effects_table(rows);
  return format(comparison_table(rows)) + (effects.empty() ? "" : format(effects)) + comparison_notes(rows);
}

}  // namespace

std::string comparison_text(std::span<const ComparisonRow> rows) {
  return formatted_comparison(rows, text_table);
}

std::string comparison_markdown(std::span<const ComparisonRow> rows) {
  return formatted_comparison(rows, markdown_table);
}

std::string comparison_json_lines(std::span<const ComparisonRow> rows) {
  std::string text;
  for (const ComparisonRow& row : rows) {
    Json line = {{"choice", row.choice},
                 {"values", Json::object()},
                 {"seeds", row.results.size()},
                 {"failures", row.failures},
                 {"missing", row.missing}};
    for (const auto& [name, value] : row.values) line["values"][name] = value;
    if (!row.results.empty()) {
      line["part"] = row.results.front().part;
      for (const Metric& metric : row.results.front().metrics)
        line["metrics"][metric.name] = spread_json(metric_spread(row, metric.name));
      for (const Metric& metric : row.results.front().validation)
        line["validation"][metric.name] =
            spread_json(metric_spread(row, metric.name, &CellResult::validation));
      if (row.difference)
        line["difference"] = {{"metric", row.results.front().examples.metric},
                              {"value", row.difference->value},
                              {"low", row.difference->low},
                              {"high", row.difference->high},
                              {"p", row.difference->p}};
      line["parameters"] = row.results.front().parameters;
      line["steps"] = row.results.front().steps;
      for (const Cost& cost : costs) line[cost.key] = spread_json(spread_over(row, cost.figure));
    }
    text += dumped(line) + "\n";
  }
  return text;
}

std::vector<std::string> best_choices(std::span<const ComparisonRow> rows) {
  std::vector<std::string> best;
  for (const ComparisonRow* row : ranked_rows(rows)) best.push_back(row->choice);
  return best;
}

std::vector<std::size_t> best_cells(std::span<const ComparisonCell> cells,
                                    std::span<const ComparisonRow> rows,
                                    std::span<const std::optional<CellResult>> results) {
  const std::vector<std::string> best = best_choices(rows);
  const auto key = [&](std::size_t i) {
    const bool is_measured = results[i] && results[i]->failure.empty();
    return std::tuple(!is_measured, std::ranges::find(best, cells[i].choice) - best.begin(),
                      is_measured ? mean_losses({&*results[i], 1}) : std::vector<double>());
  };
  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, key);
  return order;
}

namespace {

/// Returns a point of a chart: a choice's mean quality at x, between the ends of its deviation over the seeds.
Json chart_point(const ComparisonRow& row, double x, const Spread& quality) {
  const double deviation = row.results.size() > 1 ? quality.deviation : 0;
  if (!std::isfinite(x) || !std::isfinite(quality.mean)) return Json::array();
  return {{x, quality.mean, quality.mean - deviation, quality.mean + deviation}};
}

Json marks_chart(const std::string& metric, const std::string& x, Json series) {
  return {{"kind", "marks"},
          {"title", concat_text(metric, " against ", x)},
          {"x", x},
          {"y", metric},
          {"series", std::move(series)}};
}

/// Returns a chart for each number that varies.
Json setting_charts(std::span<const ComparisonRow> rows) {
  Json charts = Json::array();
  const auto ranked = ranked_rows(rows);
  const std::size_t count = ranked.empty() ? 0 : ranked.front()->values.size();
  for (std::size_t which = 0; which < count; ++which) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    Json points = Json::array();
    for (const ComparisonRow* row : ranked) {
      const double x = parsed_number(row->values[which].second).value_or(std::nan(""));
      for (const Json& point : chart_point(*row, x, ranking_spread(*row))) points.push_back(point);
      low = std::min(low, x);
      high = std::max(high, x);
    }
    if (points.size() < ranked.size()) continue;  // names
    const ChoiceValues& varied = ranked.front()->values;
    charts.push_back(marks_chart(ranking_name(*ranked.front()), short_name(varied[which].first, varied),
                                 {{{"name", ""}, {"points", std::move(points)}}}));
    charts.back()["log"] = low > 0 && high >= 10 * low;
  }
  return charts;
}

}  // namespace

std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress) {
  auto table = comparison_table(rows);
  for (std::vector<std::string>& line : table)
    for (std::string& cell : line) replace_all(cell, " +- ", " ± ");
  Json sections = {{{"compact", table}, {"notes", comparison_notes(rows)}}};
  const CellResult* const measured = any_result(rows);
  if (!measured || measured->metrics.empty()) return page::html({{"title", title}, {"sections", sections}});

  const std::string metric = measured->metrics.front().name;
  if (const TableLines effects = effects_table(rows); !effects.empty())
    sections.push_back({{"title", "What matters"}, {"compact", effects}});
  const auto sorted = sorted_rows(rows);
  if (Json charts = setting_charts(rows); !charts.empty())
    sections.push_back({{"title", "Quality against settings"}, {"charts", std::move(charts)}});
  const std::vector<std::string> names = short_choices(sorted);
  Json charts = Json::array();
  for (const auto& [name, cost] :
       {std::pair("training time in seconds", costs[1]), {"peak memory in MB", costs[2]}}) {
    Json series = Json::array();  // for each row, in order, so that colours are the same in all charts
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const double x = cost.scale * spread_over(*sorted[i], cost.figure).mean;
      series.push_back(
          {{"name", names[i]}, {"points", chart_point(*sorted[i], x, metric_spread(*sorted[i], metric))}});
    }
    charts.push_back(marks_chart(metric, name, std::move(series)));
  }
  std::vector<page::RunRecords> runs;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    runs.push_back({names[i], progress[static_cast<std::size_t>(sorted[i] - rows.data())]});
  sections.push_back({{"title", "Quality against cost"}, {"charts", std::move(charts)}});
  sections.push_back({{"title", "Curves, one seed each"}, {"curves", page::curves(runs)}});
  return page::html({{"title", title}, {"sections", std::move(sections)}});
}

}  // namespace heed
