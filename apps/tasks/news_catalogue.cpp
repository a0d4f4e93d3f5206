#include "heed/apps/tasks/news_catalogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/json.h"

namespace heed {

using Json = nlohmann::ordered_json;

NewsCatalogue::NewsCatalogue(const Settings& settings)
    : settings_(settings.read<NewsSettings>("news")), user_(settings.read<UserSettings>("user")) {}

RecommenderConfig NewsCatalogue::sizes(std::int64_t identities, std::int64_t categories) const {
  return {reads_titles(), has_identities() ? identities : 0, settings_.category ? categories : 0,
          user_.layers, user_.max_history};
}

bool NewsCatalogue::is_known(std::int32_t number) const {
  const NewsFacts& facts = of(number);
  return (has_identities() && facts.identity > 0) || (reads_titles() && !facts.tokens.empty());
}

const NewsFacts& NewsCatalogue::of(std::int32_t number) const {
  static const NewsFacts unknown;
  return static_cast<std::size_t>(number) < facts_.size() ? facts_[static_cast<std::size_t>(number)]
                                                          : unknown;
}

NewsFacts& NewsCatalogue::at(std::int32_t number) {
  if (facts_.size() < names.size()) facts_.resize(names.size());
  return facts_[static_cast<std::size_t>(number)];
}

void NewsCatalogue::add(std::span<const News> news, bool new_categories) {
  for (const News& one : news) {
    NewsFacts& facts = at(one.number);
    std::string text = one.title;
    if (settings_.abstract && !one.abstract.empty()) text += (text.empty() ? "" : " ") + one.abstract;
    if (text != facts.text) facts.tokens.clear();
    facts.text = std::move(text);
    const auto place = std::find(categories_.begin(), categories_.end(), one.category);
    if (place == categories_.end() && !new_categories) continue;
    facts.category = static_cast<std::int32_t>(place - categories_.begin());
    if (place == categories_.end()) categories_.push_back(one.category);
  }
}

void NewsCatalogue::learn_from(std::span<const Impression> impressions) {
  std::vector<std::int64_t> seen(names.size(), 0);
  for (const Impression& one : impressions) {
    for (const auto* list : {&one.history, &one.clicked, &one.passed})
      for (const std::int32_t number : *list) ++seen[static_cast<std::size_t>(number)];
    for (const std::int32_t number : one.clicked) ++at(number).clicks;
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] < settings_.min_count) continue;
    identities_.push_back(static_cast<std::int32_t>(i));
    at(identities_.back()).identity = static_cast<std::int32_t>(identities_.size());
  }
  has_titles_ = !texts().empty();
}

void NewsCatalogue::tokenize(const std::function<Tokens(const std::string& text)>& tokens_of) {
  if (!reads_titles()) return;
  for (NewsFacts& facts : facts_)
    if (facts.tokens.empty() && !facts.text.empty()) facts.tokens = tokens_of(facts.text);
}

std::vector<std::string> NewsCatalogue::texts() const {
  std::vector<std::string> texts;
  for (const NewsFacts& facts : facts_)
    if (!facts.text.empty()) texts.push_back(facts.text);
  return texts;
}

std::string NewsCatalogue::to_json() const {
  Json clicks = Json::object(), identities = Json::array(), news = Json::array();
  for (const std::int32_t number : identities_) identities.push_back(names.name(number));
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const NewsFacts& facts = facts_[i];
    const std::string& name = names.name(static_cast<std::int32_t>(i));
    if (facts.clicks > 0) clicks[name] = facts.clicks;
    if (!facts.text.empty() || facts.category >= 0) news.push_back({name, facts.category, facts.text});
  }
  return Json{{"identities", identities}, {"categories", categories_}, {"clicks", clicks}, {"news", news}}
             .dump() +
         "\n";
}

void NewsCatalogue::add_json(const std::string& text) {
  const Json file = parse_json<Json>(text, "news.json", 4);
  try {
    categories_ = file.at("categories").get<std::vector<std::string>>();
    for (const auto& id : file.at("identities")) {
      identities_.push_back(names.number_of(id.get_ref<const std::string&>()));
      NewsFacts& facts = at(identities_.back());
      check(facts.identity == 0, "news.json: the news ", id.dump(), " has two vectors");
      facts.identity = static_cast<std::int32_t>(identities_.size());
    }
    for (const auto& [id, count] : file.at("clicks").items())
      at(names.number_of(id)).clicks = count.get<std::int64_t>();
    for (const auto& row : file.at("news")) {
      NewsFacts& facts = at(names.number_of(row.at(0).get_ref<const std::string&>()));
      facts.category = row.at(1).get<std::int32_t>();
      facts.text = row.at(2).get<std::string>();
      check(facts.category >= -1 && facts.category < categories(), "news.json: ", row.at(0).dump(),
            " has the category ", facts.category, " of ", categories());
    }
    has_titles_ = !texts().empty();
  } catch (const Json::exception& error) {
    fail("news.json is not what a recommend run has: ", error.what());
  }
}

std::vector<float> NewsCatalogue::click_counts(std::span<const std::int32_t> numbers) const {
  std::vector<float> clicks;
  for (const std::int32_t number : numbers) clicks.push_back(static_cast<float>(of(number).clicks));
  return clicks;
}

std::span<const std::int32_t> NewsCatalogue::newest(std::span<const std::int32_t> history) const {
  return history.last(std::min(history.size(), static_cast<std::size_t>(user_.max_history)));
}

std::vector<std::string> NewsCatalogue::remarks_on(std::span<const Impression> impressions) const {
  std::int64_t long_histories = 0, empty = 0, without_pair = 0, without_title = 0, unknown = 0;
  for (const Impression& one : impressions) {
    empty += one.history.empty() ? 1 : 0;
    long_histories += newest(one.history).size() < one.history.size() ? 1 : 0;
    without_pair += one.clicked.empty() || one.passed.empty() ? 1 : 0;
  }
  const std::set<std::int32_t> candidates = shown_news(impressions);
  for (const std::int32_t number : candidates) {
    without_title += reads_titles() && of(number).tokens.empty() ? 1 : 0;
    unknown += is_known(number) ? 0 : 1;
  }
  std::vector<std::string> remarks;
  const auto say = [&](std::int64_t count, const auto&... what) {
    if (count > 0) remarks.push_back(concat_text(count, what...));
  };
  say(without_pair, " impressions have no clicks or only clicks: training ignores them");
  say(empty, " histories are empty");
  say(long_histories, " histories are longer than user.max_history = ", user_.max_history,
      ": only their newest items are read");
  say(without_title, " of ", candidates.size(), " news items that were shown have no title in data.news");
  say(unknown, " of ", candidates.size(),
      has_identities() ? " occur less than news.min_count times and have no title: they share a vector"
                       : " share a vector for that");
  return remarks;
}

std::string NewsCatalogue::remark_on_unknown(std::span<const Impression> asked) const {
  std::set<std::int32_t> unknown;
  for (const Impression& one : asked)
    for (const auto* list : {&one.history, &one.passed})
      for (const std::int32_t number : *list)
        if (!is_known(number)) unknown.insert(number);
  if (unknown.empty()) return "";
  return concat_text(unknown.size(), " news items are unknown to the run (such as ",
                     names.name(*unknown.begin()),
                     "): the model cannot tell them apart; give a file with their titles (data.news)");
}

std::string NewsCatalogue::ids(std::span<const std::int32_t> numbers) const {
  std::string text;
  for (const std::int32_t number : numbers) text += (text.empty() ? "" : " ") + names.name(number);
  return text;
}

std::string NewsCatalogue::line_of(const Impression& impression) const {
  constexpr std::size_t most = 8;
  const std::span history = impression.history;
  std::vector<std::int32_t> shown = impression.clicked;
  shown.insert(shown.end(), impression.passed.begin(), impression.passed.end());
  shown.resize(std::min(shown.size(), most));
  return ids(history.last(std::min(history.size(), most))) + "\t" + ids(shown);
}

Impression NewsCatalogue::parse_impression(const std::string& line) {
  const std::size_t tab = line.find('\t');
  Impression one;
  if (tab != std::string::npos) {
    one.history = parse_news_ids(std::string_view(line).substr(0, tab), names);
    one.passed = parse_news_ids(std::string_view(line).substr(tab + 1), names);
  }
  check(!one.passed.empty() && line.find('\t', tab + 1) == std::string::npos,
        "expected the ids of clicked news, a tab, and the ids of candidates, with spaces between");
  return one;
}

NewsInput NewsCatalogue::input(std::span<const std::int32_t> numbers, Device device) const {
  const Shape shape{static_cast<std::int64_t>(numbers.size())};
  std::vector<Tokens> titles;
  std::vector<std::int32_t> rows, identities, categories;
  for (const std::int32_t number : numbers) {
    const NewsFacts& facts = of(number);
    const bool has_title = reads_titles() && !facts.tokens.empty();
    rows.push_back(has_title ? static_cast<std::int32_t>(titles.size()) : -1);
    if (has_title) titles.push_back(facts.tokens);
    identities.push_back(has_identities() ? facts.identity : has_title ? -1 : 0);
    categories.push_back(facts.category);
  }
  NewsInput input;
  if (!titles.empty()) input.titles = pad_tokens(titles, device);
  input.title_rows = Tensor::from(rows, shape, device);
  input.identities = Tensor::from(identities, shape, device);
  input.categories = Tensor::from(categories, shape, device);
  return input;
}

std::set<std::int32_t> shown_news(std::span<const Impression> impressions) {
  std::set<std::int32_t> candidates;
  for (const Impression& one : impressions) {
    candidates.insert(one.clicked.begin(), one.clicked.end());
    candidates.insert(one.passed.begin(), one.passed.end());
  }
  return candidates;
}

std::int32_t BatchNews::row_of(std::int32_t number) {
  const auto [place, is_new] = rows_.try_emplace(number, static_cast<std::int32_t>(numbers_.size()) + 1);
  if (is_new) numbers_.push_back(number);
  return place->second;
}

Tokens BatchNews::rows_of(std::span<const std::int32_t> numbers) {
  Tokens rows;
  for (const std::int32_t number : numbers) rows.push_back(row_of(number));
  return rows;
}

Tokens BatchNews::history_rows(std::span<const std::int32_t> history) {
  Tokens rows = rows_of(history);
  rows.insert(rows.begin(), NewsRecommender::anyone);
  return rows;
}

Tokens BatchNews::candidate_rows(const Impression& impression) {
  Tokens rows = rows_of(impression.clicked);
  const Tokens passed = rows_of(impression.passed);
  rows.insert(rows.end(), passed.begin(), passed.end());
  return rows;
}

}  // namespace heed
