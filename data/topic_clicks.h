#pragma once

#include "heed/data/mind.h"

namespace heed {

/// News and clicks made by rule, to see whether a recommender has learned what users like and not only which news are
/// popular: each news has one of eight topics, of which its title has two or three words among common ones, and each
/// user likes two topics. A user clicks nine in ten of the news shown of a liked topic and one in thirty of all others.
/// What is shown is new: news come and go with time, so that the last impressions show news that no earlier one did.
/// Categories are four, of two topics each.
struct TopicClicks {
  std::vector<News> news;
  std::vector<Impression> impressions;  ///< in the order of their time, a minute after each other
};

/// A pure function of its arguments. In every impression there is a click and a news that was passed; one history in
/// twenty is empty. Throws Error unless there are 1 to a million impressions.
TopicClicks topic_clicks(std::uint64_t seed, std::int64_t impressions, NewsNames& names);

}  // namespace heed
