#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/data/mind.h"
#include "heed/models/news_recommender.h"

namespace heed {

/// What a recommender knows of one news.
struct NewsFacts {
  std::string text;            ///< what is read of it: the title; "": it has none
  Tokens tokens;               ///< of the text
  std::int32_t category = -1;  ///< -1: unknown
  std::int32_t identity = 0;   ///< 1 ...: it has a learned vector of its own; 0: it shares one
  std::int64_t clicks = 0;     ///< in the training part, for the comparison with popularity
};

/// All news that a recommender has heard of, by their number. What was learned about them is a file of the run,
/// news.json: {"identities": [id, ...], "categories": [name, ...], "clicks": {id: count}, "news": [[id, category, text]]}.
class NewsCatalogue {
 public:
  NewsNames names;

  const NewsFacts& of(std::int32_t number) const;
  std::int64_t identities() const { return static_cast<std::int64_t>(identities_.size()); }
  std::int64_t categories() const { return static_cast<std::int64_t>(categories_.size()); }

  /// Takes titles, and categories: all, or those that are known already.
  void add(std::span<const News> news, bool with_abstract, bool new_categories);
  /// Counts the clicks, and gives a vector of its own to what occurs `min_count` times or more.
  void learn_from(std::span<const Impression> impressions, std::int64_t min_count);
  /// Fills in the tokens of texts that have none yet.
  void tokenize(const std::function<Tokens(const std::string& text)>& tokens_of);

  std::string to_json() const;
  /// Adds what the file says. Throws Error for what is no such file.
  void add_json(const std::string& text);
  /// Texts of all news that have one.
  std::vector<std::string> texts() const;

 private:
  NewsFacts& at(std::int32_t number);

  std::vector<NewsFacts> facts_;
  std::vector<std::int32_t> identities_;  // by identity - 1
  std::vector<std::string> categories_;
};

/// Makes the tensors of news: titles where `with_titles`, vectors of their own where `with_identities` (else the shared
/// one where there is no title).
NewsInput news_input(const NewsCatalogue& catalogue, std::span<const std::int32_t> numbers, bool with_titles,
                     bool with_identities, Device device);

}  // namespace heed
