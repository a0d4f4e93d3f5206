#include "heed/data/topic_clicks.h"

#include <array>

#include "heed/core/checked.h"
#include "heed/core/random.h"

namespace heed {
namespace {

struct Topic {
  const char* category;
  const char* name;
  std::array<const char*, 8> words;
};

constexpr std::array<Topic, 8> topics{{
    {"sport", "football", {"goal", "striker", "keeper", "penalty", "coach", "league", "derby", "stadium"}},
    {"sport", "tennis", {"serve", "racket", "set", "volley", "court", "champion", "rally", "umpire"}},
    {"money", "markets", {"shares", "bonds", "investors", "stocks", "profit", "bank", "rates", "dividend"}},
    {"money", "housing", {"rent", "mortgage", "tenants", "houses", "landlord", "roof", "garden", "builders"}},
    {"science", "space", {"rocket", "moon", "orbit", "comet", "planet", "crew", "telescope", "launch"}},
    {"science", "health", {"doctors", "vaccine", "sleep", "heart", "diet", "hospital", "nurses", "fever"}},
    {"culture", "music", {"singer", "album", "concert", "guitar", "choir", "band", "opera", "drums"}},
    {"culture", "food", {"recipe", "bread", "kitchen", "soup", "chef", "cheese", "oven", "apples"}},
}};
constexpr std::array<const char*, 12> common_words{"new",  "today",  "after", "city",  "people", "why",
                                                   "best", "report", "first", "about", "week",   "again"};

constexpr std::int64_t topic_count = topics.size(), users = 400, window = 60, shown = 10,
                       impressions_per_news = 4, older = 200;

/// Draws of one thing: a news, a user or an impression.
enum class DrawnFor : std::uint32_t { news, user, impression };
Draws draws_for(DrawnFor what, std::uint64_t seed, std::int64_t index) {
  return Draws({seed, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(what)});
}

std::int64_t topic_of(std::uint64_t seed, std::int64_t news) {
  return draws_for(DrawnFor::news, seed, news).below(topic_count);
}

News made_news(std::uint64_t seed, std::int64_t index, NewsNames& names) {
  Draws draw = draws_for(DrawnFor::news, seed, index);
  const Topic& topic = draw.pick(topics);
  News news{names.number_of(concat_text("N", index + 1)), topic.category, topic.name, "", ""};
  const std::int64_t length = 5 + draw.below(4), of_topic = 2 + draw.below(2), begin = draw.below(length);
  for (std::int64_t i = 0; i < length; ++i) {
    // The words of the topic stand anywhere, spread over the title.
    const bool topical = (i + begin) * of_topic % length < of_topic;
    if (i > 0) news.title += ' ';
    news.title += topical ? draw.pick(topic.words) : draw.pick(common_words);
  }
  return news;
}

/// The two topics that a user likes.
bool likes(std::uint64_t seed, std::int64_t user, std::int64_t topic) {
  Draws draw = draws_for(DrawnFor::user, seed, user);
  const std::int64_t first = draw.below(topic_count);
  const std::int64_t second = (first + 1 + draw.below(topic_count - 1)) % topic_count;
  return topic == first || topic == second;
}

/// What a user is shown when the news up to `newest` are out; by their places in the list of all news.
Impression made_impression(std::uint64_t seed, std::int64_t index, std::int64_t newest) {
  Draws draw = draws_for(DrawnFor::impression, seed, index);
  Impression impression;
  impression.time = index * 60;
  const std::int64_t user = draw.below(users);
  const std::int64_t wanted = draw.below(20) == 0 ? 0 : 3 + draw.below(13);
  while (static_cast<std::int64_t>(impression.history.size()) < wanted) {
    const std::int64_t news = newest - window - draw.below(older);
    if (likes(seed, user, topic_of(seed, news)) || draw.below(20) == 0)
      impression.history.push_back(static_cast<std::int32_t>(news));
  }
  while (impression.clicked.empty() || impression.passed.empty()) {
    impression.clicked.clear(), impression.passed.clear();
    for (std::int64_t i = 0; i < shown; ++i) {
      const std::int64_t news = newest - (i * window + draw.below(window)) / shown;
      const bool clicks = likes(seed, user, topic_of(seed, news)) ? draw.below(10) < 9 : draw.below(30) == 0;
      (clicks ? impression.clicked : impression.passed).push_back(static_cast<std::int32_t>(news));
    }
  }
  return impression;
}

}  // namespace

TopicClicks topic_clicks(std::uint64_t seed, std::int64_t impressions, NewsNames& names) {
  checked_range("the number of impressions", impressions, 1, 1'000'000);
  TopicClicks made;
  const std::int64_t count = window + older + ceil_div(impressions, impressions_per_news);
  for (std::int64_t i = 0; i < count; ++i) made.news.push_back(made_news(seed, i, names));
  for (std::int64_t i = 0; i < impressions; ++i)
    made.impressions.push_back(made_impression(seed, i, window + older + i / impressions_per_news - 1));
  for (Impression& one : made.impressions)
    for (auto* list : {&one.history, &one.clicked, &one.passed})
      for (std::int32_t& news : *list) news = made.news[static_cast<std::size_t>(news)].number;
  return made;
}

}  // namespace heed
