#include "heed/tasks/news_catalogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/json.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

const NewsFacts& NewsCatalogue::of(std::int32_t number) const {
  static const NewsFacts unknown;
  return static_cast<std::size_t>(number) < facts_.size() ? facts_[static_cast<std::size_t>(number)]
                                                          : unknown;
}

NewsFacts& NewsCatalogue::at(std::int32_t number) {
  if (facts_.size() < names.size()) facts_.resize(names.size());
  return facts_[static_cast<std::size_t>(number)];
}

void NewsCatalogue::add(std::span<const News> news, bool with_abstract, bool new_categories) {
  for (const News& one : news) {
    NewsFacts& facts = at(one.number);
    std::string text = one.title;
    if (with_abstract && !one.abstract.empty()) text += (text.empty() ? "" : " ") + one.abstract;
    if (text != facts.text) facts.tokens.clear();
    facts.text = std::move(text);
    const auto place = std::find(categories_.begin(), categories_.end(), one.category);
    if (place == categories_.end() && !new_categories) continue;
    facts.category = static_cast<std::int32_t>(place - categories_.begin());
    if (place == categories_.end()) categories_.push_back(one.category);
  }
}

void NewsCatalogue::learn_from(std::span<const Impression> impressions, std::int64_t min_count) {
  std::vector<std::int64_t> seen(names.size(), 0);
  for (const Impression& one : impressions) {
    for (const auto* list : {&one.history, &one.clicked, &one.passed})
      for (const std::int32_t number : *list) ++seen[static_cast<std::size_t>(number)];
    for (const std::int32_t number : one.clicked) ++at(number).clicks;
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] < min_count) continue;
    identities_.push_back(static_cast<std::int32_t>(i));
    at(identities_.back()).identity = static_cast<std::int32_t>(identities_.size());
  }
}

void NewsCatalogue::tokenize(const std::function<Tokens(const std::string& text)>& tokens_of) {
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
  } catch (const Json::exception& error) {
    fail("news.json is not what a recommend run has: ", error.what());
  }
}

NewsInput news_input(const NewsCatalogue& catalogue, std::span<const std::int32_t> numbers, bool with_titles,
                     bool with_identities, Device device) {
  const Shape shape{static_cast<std::int64_t>(numbers.size())};
  std::vector<Tokens> titles;
  std::vector<std::int32_t> rows, identities, categories;
  for (const std::int32_t number : numbers) {
    const NewsFacts& facts = catalogue.of(number);
    const bool has_title = with_titles && !facts.tokens.empty();
    rows.push_back(has_title ? static_cast<std::int32_t>(titles.size()) : -1);
    if (has_title) titles.push_back(facts.tokens);
    identities.push_back(with_identities ? facts.identity : has_title ? -1 : 0);
    categories.push_back(facts.category);
  }
  NewsInput input;
  if (!titles.empty()) input.titles = pad_tokens(titles, device);
  input.title_rows = Tensor::from(rows, shape, device);
  input.identities = Tensor::from(identities, shape, device);
  input.categories = Tensor::from(categories, shape, device);
  return input;
}

}  // namespace heed
