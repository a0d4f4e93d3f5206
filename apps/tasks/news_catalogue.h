#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "heed/apps/tasks/settings.h"
#include "heed/data/mind.h"
#include "heed/models/news_recommender.h"

namespace heed {

/// What a recommender reads of news, below "news", and of users, below "user".
struct NewsSettings {
  enum class RepresentedBy { title, id, both } represented_by = RepresentedBy::both;
  bool category = true, abstract = false;
  std::int64_t min_count = 5;
};
void for_each_setting(auto&& visit, NewsSettings& news) {
  visit(news.represented_by, "represented_by", {"title", "id", "both"},
        "title: its words (news without any share one vector); id: a learned vector "
        "for each news; both: their "
        "sum");
  visit(news.category, "category", "Whether a learned vector of its category is added to a news");
  visit(news.abstract, "abstract", "Whether the abstract is read behind the title");
  visit(news.min_count, "min_count", 1, 1e9,
        "News that occur less often in training share one learned vector");
}

struct UserSettings {
  std::int64_t layers = 1, max_history = 50;
};
void for_each_setting(auto&& visit, UserSettings& user) {
  visit(user.layers, "layers", 1, 1024,
        "Layers of the encoder over the clicked news; its attention is the model's");
  visit(user.max_history, "max_history", 0, 1e6, "The most clicked news of a user that are read: the newest");
}

/// What a recommender knows of one news.
struct NewsFacts {
  std::string text;            ///< what is read of it: the title; "": it has none
  Tokens tokens;               ///< of the text
  std::int32_t category = -1;  ///< -1: unknown
  std::int32_t identity = 0;   ///< 1 ...: it has a learned vector of its own; 0: it shares one
  std::int64_t clicks = 0;     ///< in the training part, for the comparison with popularity
};

/// All news that a recommender has heard of, by their number, and what it reads of them. What was learned
/// about them is a file of the run, news.json: {"identities": [id, ...], "categories": [name, ...], "clicks":
/// {id: count}, "news": [[id, category, text]]}.
class NewsCatalogue {
 public:
  explicit NewsCatalogue(const Settings& settings);

  NewsNames names;

  const NewsFacts& of(std::int32_t number) const;
  std::int64_t identities() const { return static_cast<std::int64_t>(identities_.size()); }
  std::int64_t categories() const { return static_cast<std::int64_t>(categories_.size()); }
  /// What a model has for so many news with a vector of their own, and categories.
  RecommenderConfig sizes(std::int64_t identities, std::int64_t categories) const;
  /// False where there was no title to learn from, too.
  bool reads_titles() const { return wants_titles() && has_titles_; }
  bool has_identities() const { return settings_.represented_by != NewsSettings::RepresentedBy::title; }
  /// Whether a model tells the news from others by its title or a vector of its own.
  bool is_known(std::int32_t number) const;
  /// Texts of all news that have one.
  std::vector<std::string> texts() const;

  /// Takes titles, and categories: all, or those that are known already.
  void add(std::span<const News> news, bool new_categories);
  /// Of what was learned from, when all titles are added: counts the clicks, and gives a vector of its own to
  /// what occurs news.min_count times or more.
  void learn_from(std::span<const Impression> impressions);
  /// Fills in the tokens of texts that have none yet.
  void tokenize(const std::function<Tokens(const std::string& text)>& tokens_of);

  std::string to_json() const;
  /// Adds what the file says. Throws Error for what is no such file.
  void add_json(const std::string& text);

  /// How often each was clicked in the training part.
  std::vector<float> clicks_of(std::span<const std::int32_t> numbers) const;
  /// The user.max_history newest news of a history, as many as are read.
  std::span<const std::int32_t> newest(std::span<const std::int32_t> history) const;
  /// What is worth knowing of the impressions to learn from: what they lack, what of them is not read.
  std::vector<std::string> remarks_on(std::span<const Impression> impressions) const;
  /// Says that some news of what is asked are unknown; "": all are known.
  std::string remark_on_unknown(std::span<const Impression> asked) const;
  /// "N1 N2 TAB N3 N4": what a user clicked last, and some of what was shown.
  std::string line_of(const Impression& impression) const;
  /// Back from "history TAB candidates", these as passed. Throws Error for what is no such line.
  Impression impression_of(const std::string& line);

  /// The tensors of news: titles where they are read, vectors of their own where there are any (else the
  /// shared one where there is no title).
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

/// The news that were shown, each once.
std::set<std::int32_t> candidates_of(std::span<const Impression> impressions);

/// The news of a batch, each once, and the rows that they get in the model's table.
class BatchNews {
 public:
  std::int32_t row_of(std::int32_t number);
  Tokens rows_of(std::span<const std::int32_t> numbers);
  /// What the user encoder reads of clicked news.
  Tokens history_rows(std::span<const std::int32_t> history);
  /// The clicked news of an impression, and those passed.
  Tokens candidate_rows(const Impression& impression);
  std::span<const std::int32_t> numbers() const { return numbers_; }

 private:
  std::unordered_map<std::int32_t, std::int32_t> rows_;
  std::vector<std::int32_t> numbers_;
};

}  // namespace heed
