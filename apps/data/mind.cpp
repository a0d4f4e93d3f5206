#include "heed/apps/data/mind.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>

#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/core/random.h"

namespace heed {
namespace {

/// Throws for a row with another number of columns.
void check_columns(const TableRow& row, std::string_view origin, std::size_t columns, const char* names) {
  check(row.fields.size() == columns, origin, ":", row.line, ": the row has ", row.fields.size(),
        " columns between tabs; expected ", columns, ": ", names);
}

/// Takes a number and the mark after it from the front of a text; -1 if the text begins otherwise.
int take_number(std::string_view& text, char mark) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || length >= text.size() || text[length] != mark || length > 4) return -1;
  text.remove_prefix(length + 1);
  return number;
}

/// Parses "11/13/2019 5:53:12 AM" into seconds since 1970; -1 if that fails.
std::int64_t seconds_of(std::string_view text) {
  namespace chrono = std::chrono;
  const int month = take_number(text, '/'), day = take_number(text, '/'), year = take_number(text, ' ');
  const int hour = take_number(text, ':'), minute = take_number(text, ':'), second = take_number(text, ' ');
  if (month < 1 || day < 1 || year < 1970 || hour < 1 || hour > 12 || minute < 0 || minute > 59 ||
      second < 0 || second > 59 || (text != "AM" && text != "PM"))
    return -1;
  const chrono::year_month_day date(chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return -1;
  const std::int64_t hours = hour % 12 + (text == "PM" ? 12 : 0);
  return chrono::sys_days(date).time_since_epoch().count() * std::int64_t{86400} + hours * 3600 +
         minute * 60 + second;
}

Impression parse_impression(const TableRow& row, std::string_view origin, NewsNames& names) {
  const auto refuse = [&](const auto&... what) { fail(origin, ":", row.line, ": ", what...); };
  Impression impression;
  impression.time = seconds_of(row.fields[2]);
  if (impression.time < 0)
    refuse("\"", row.fields[2], "\" is not a time; expected one like 11/13/2019 5:53:12 AM");
  impression.history = parse_news_ids(row.fields[3], names);
  for (const std::string_view word : split_at(row.fields[4], " ")) {
    if (word.empty()) continue;
    const bool clicked = word.ends_with("-1");
    if (word.size() < 3 || (!clicked && !word.ends_with("-0")))
      refuse("the candidate \"", word, "\" has no -1 (clicked) or -0 after its id");
    (clicked ? impression.clicked : impression.passed)
        .push_back(names.number_of(word.substr(0, word.size() - 2)));
  }
  if (impression.clicked.empty() && impression.passed.empty()) refuse("the row has no candidates");
  return impression;
}

}  // namespace

std::int32_t NewsNames::number_of(std::string_view id) {
  const auto [place, is_new] = numbers_.try_emplace(std::string(id), static_cast<std::int32_t>(size()));
  if (is_new) names_.emplace_back(id);
  return place->second;
}

std::vector<std::int32_t> parse_news_ids(std::string_view text, NewsNames& names) {
  std::vector<std::int32_t> numbers;
  for (const std::string_view word : split_at(text, " "))
    if (!word.empty()) numbers.push_back(names.number_of(word));
  return numbers;
}

std::vector<News> read_news(const TextInput& input, NewsNames& names, const TextOptions& options,
                            ReadReport* report) {
  std::vector<News> all;
  std::unordered_map<std::int32_t, std::pair<std::size_t, std::size_t>> known;  // id: index in all, line
  const auto take = [&](TableRow& row) {
    check_columns(row, input.origin, 8,
                  "id, category, subcategory, title, abstract, url, entities of title and abstract");
    std::vector<std::string>& fields = row.fields;
    check(!fields[0].empty() && fields[0].find(' ') == std::string::npos, input.origin, ":", row.line, ": \"",
          fields[0], "\" is not the id of a news item; expected one like N55528");
    News news{names.number_of(fields[0]), std::move(fields[1]), std::move(fields[2]), std::move(fields[3]),
              std::move(fields[4])};
    const auto [place, is_new] = known.try_emplace(news.number, all.size(), row.line);
    check(is_new || news == all[place->second.first], input.origin, ":", row.line, ": the news ", fields[0],
          " is already in line ", place->second.second, ", with other content; keep one of the two");
    if (is_new) all.push_back(std::move(news));
  };
  read_tsv(input, take, options, report);
  return all;
}

std::vector<Impression> read_impressions(const TextInput& input, NewsNames& names, const TextOptions& options,
                                         ReadReport* report) {
  std::vector<Impression> all;
  const auto take = [&](TableRow& row) {
    check_columns(row, input.origin, 5, "impression id, user id, time, history, impressions");
    all.push_back(parse_impression(row, input.origin, names));
  };
  read_tsv(input, take, options, report);
  return all;
}

ImpressionParts split_impressions(std::vector<Impression> all, const ImpressionSplit& split) {
  const auto count = static_cast<double>(all.size());
  const auto test = static_cast<std::size_t>(std::llround(count * split.test_fraction)),
             valid = static_cast<std::size_t>(std::llround(count * split.valid_fraction));
  check(test + valid < all.size(), "of ", all.size(), " impressions ", valid, " for validation and ", test,
        " for testing leave none for training");
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return split.by_time ? all[i].time : std::int64_t{random_word({split.seed, 0, 0}, i)};
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  ImpressionParts parts;
  std::vector<std::vector<Impression>*> part_of(all.size(), &parts.train);
  for (std::size_t i = 0; i < test + valid; ++i)
    part_of[order[order.size() - 1 - i]] = i < test ? &parts.test : &parts.valid;
  for (std::size_t i = 0; i < all.size(); ++i) part_of[i]->push_back(std::move(all[i]));
  return parts;
}

std::string impressions_digest(std::span<const Impression> impressions, const NewsNames& names) {
  Digest digest;
  for (const Impression& one : impressions) {
    digest.add(std::to_string(one.time));
    for (const auto* list : {&one.history, &one.clicked, &one.passed}) {
      for (const std::int32_t number : *list) digest.add(names.name(number) + " ");
      digest.add("\t");
    }
    digest.add("\n");
  }
  return digest.hex();
}

}  // namespace heed
