#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// News recommendation: from the news that a user has clicked, which of those shown will be clicked next
/// (models/news_recommender.h). Learned from each click beside a few news of the same list that were passed. The data
/// are MIND's own files (data/mind.h); without them it learns from clicks made by rule (data/topic_clicks.h).
///
/// Files of a run beside the weights: tokenizer.json, and news.json, what is known of news (tasks/news_catalogue.h).
/// Parts of the data: train, valid, test.
const TaskKind& recommend_task();

}  // namespace heed
