#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "heed/apps/data/formats.h"
#include "heed/apps/tasks/settings.h"
#include "heed/models/news_recommender.h"

namespace heed {

/// Settings of what a recommender reads: of news below "news", and of users below "user".
struct NewsSettings {
  enum class RepresentedBy { title, id, both } represented_by = RepresentedBy::both;
  bool category = true, abstract = false;
  std::int64_t min_count = 5;
};
void for_each_setting(auto&& visit, NewsSettings& news) {
  visit(news.represented_by, "represented_by", {"title", "id", "both"},
        "title: the words of the title (news without a title share one vector); id: a learned vector for "
        "each news item; both: their sum");
  visit(news.category, "category", "Add a learned vector of the category to each news item");
  visit(news.abstract, "abstract", "Read the abstract after the title");
  visit(news.min_count, "min_count", 1, 1e9,
        "News items that occur less often in training share one learned vector");
}

struct UserSettings {
  std::int64_t layers = 1, max_history = 50;
};
void for_each_setting(auto&& visit, UserSettings& user) {
  visit(user.layers, "layers", 1, 1024,
        "Layers of the encoder over the clicked news; it uses the model's attention");
  visit(user.max_history, "max_history", 0, 1e6,
        "Most clicked news items to read per user; the newest are kept");
}

/// The data that a recommender holds about one news item.
struct NewsFacts {
  std::string text;            ///< the title; "": it has none
  Tokens tokens;               ///< of the text
  std::int32_t category = -1;  ///< -1: unknown
  std::int32_t identity = 0;   ///< from 1: its own learned vector; 0: the shared one
  std::int64_t clicks = 0;     ///< in the training part, for the comparison with popularity
};

/// All news items known to a recommender, by number, with their data. What training learned about
/// them is stored in the run as news.json: {"identities": [id, ...], "categories": [name, ...],
/// "clicks": {id: count}, "news": [[id, category, text]]}.
class NewsCatalogue {
 public:
  explicit NewsCatalogue(const Settings& settings);

  NewsNames names;

  const NewsFacts& of(std::int32_t number) const;
  std::int64_t identities() const { return static_cast<std::int64_t>(identities_.size()); }
  std::int64_t categories() const { return static_cast<std::int64_t>(categories_.size()); }
  /// Returns the sizes of a model with this many learned news vectors and categories.
  RecommenderConfig sizes(std::int64_t identities, std::int64_t categories) const;
  /// Whether titles are read; also false if the training data has no titles.
  bool reads_titles() const { return wants_titles() && has_titles_; }
  bool has_identities() const { return settings_.represented_by != NewsSettings::RepresentedBy::title; }
  /// Whether the model can distinguish this news item, by its title or a vector of its own.
  bool is_known(std::int32_t number) const;
  /// Returns the texts of all news items that have one.
  std::vector<std::string> texts() const;

  /// Adds titles and categories: all categories, or only known ones.
  void add(std::span<const News> news, bool new_categories);
  /// Counts the clicks of the training part and assigns a vector to each news item that occurs at
  /// least news.min_count times. Call it after all titles are added.
  void learn_from(std::span<const Impression> impressions);
  /// Tokenizes the texts that have no tokens yet.
  void tokenize(const std::function<Tokens(const std::string& text)>& tokens_of);

  std::string to_json() const;
  /// Adds the content of a news.json file. Throws Error for any other text.
  void add_json(const std::string& text);

  /// Returns how often each news item was clicked in the training part.
  std::vector<float> click_counts(std::span<const std::int32_t> numbers) const;
  /// Returns the newest news items of a history, at most user.max_history.
  std::span<const std::int32_t> newest(std::span<const std::int32_t> history) const;
  /// Returns remarks about training impressions: missing data, and data that is not read.
  std::vector<std::string> remarks_on(std::span<const Impression> impressions) const;
  /// Returns a remark if news items in the query are unknown; otherwise "".
  std::string remark_on_unknown(std::span<const Impression> asked) const;
  /// Returns "N1 N2 TAB N3 N4": the last clicks of a user, and some of the candidates shown.
  std::string line_of(const Impression& impression) const;
  /// Parses "history TAB candidates"; the candidates become `passed`. Throws Error for any other
  /// line.
  Impression parse_impression(const std::string& line);

  /// Returns the input tensors of news items: their titles if titles are read, and the learned
  /// vectors if there are any (otherwise the shared vector for items without a title).
  NewsInput input(std::span<const std::int32_t> numbers, Device device) const;

 private:
  NewsFacts& at(std::int32_t number);
  std::string ids(std::span<const std::int32_t> numbers) const;

  bool wants_titles() const { return settings_.represented_by != NewsSettings::RepresentedBy::id; }

  NewsSettings settings_;
  UserSettings user_;
  bool has_titles_ = true;
  std::vector<NewsFacts> facts_;
  std::vector<std::int32_t> identities_;  // by identity - 1
  std::vector<std::string> categories_;
};

/// Returns the news items that were shown, each once.
std::set<std::int32_t> shown_news(std::span<const Impression> impressions);

/// The distinct news items of a batch, and their rows in the model's table.
class BatchNews {
 public:
  std::int32_t row_of(std::int32_t number);
  Tokens rows_of(std::span<const std::int32_t> numbers);
  /// Returns the rows of a history, the input of the user encoder.
  Tokens history_rows(std::span<const std::int32_t> history);
  /// Returns the rows of the clicked news items of an impression, then of the passed ones.
  Tokens candidate_rows(const Impression& impression);
  std::span<const std::int32_t> numbers() const { return numbers_; }

 private:
  std::unordered_map<std::int32_t, std::int32_t> rows_;
  std::vector<std::int32_t> numbers_;
};

}  // namespace heed
