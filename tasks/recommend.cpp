// News recommendation: from the news that a user has clicked, which of those shown will be clicked next
// (models/news_recommender.h). Learned from each click beside a few news of the same list that were passed. The data
// are MIND's own files (data/mind.h); without them it learns from clicks made by rule (data/texts_by_rule.h).
//
// Files of a run beside the weights: tokenizer.json, and news.json, what is known of news (tasks/news_catalogue.h).
// Parts of the data: train, valid, test.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/names.h"
#include "heed/data/texts_by_rule.h"
#include "heed/tasks/data.h"
#include "heed/tasks/learner.h"
#include "heed/tasks/news_catalogue.h"
#include "heed/tasks/recipe.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind click_metrics[] = {
    {"auc", true}, {"mrr", true}, {"ndcg5", true}, {"ndcg10", true}, {"loss", false}};

/// The random stream of the negatives; those of training steps have op numbers from 0.
constexpr std::uint32_t negatives_stream = 1u << 31;

// --- settings

void declare_clicks(Settings& settings) {
  settings.text("data.file", "", "Impressions to learn from: MIND's behaviors.tsv, plain or gzip");
  settings.text("data.news", "", "What is known of the news: MIND's news.tsv; empty: nothing");
  settings.text("data.valid", "",
                "Impressions to measure progress on; empty: a part of data.file is held out");
  settings.text("data.test", "",
                "Impressions kept for a test; empty: a part of data.file, see data.test_fraction");
  settings.choice(
      "data.split", "time", {"time", "random"},
      "What is held out: the last impressions by their time, as in use, or any, drawn by data.split_seed");
  settings.number("data.valid_fraction", 0.1, 0, below_one,
                  "Share of data.file that is held out to measure with");
  settings.number("data.test_fraction", 0.1, 0, below_one, "Share of data.file that is held out for a test");
  settings.integer("data.split_seed", 1, 0, INT64_MAX,
                   "Seed of a random split, and of the clicks made by rule");
  declare_text(settings);
  declare_long_texts(settings);
  settings.integer("data.impressions", 4000, 1, 1'000'000, "Without data: how many impressions to make");
}

Settings recommend_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  declare_clicks(settings);
  settings.choice("news.represented_by", "both", {"title", "id", "both"},
                  "title: its words (news without any share one vector); id: a learned vector for each news; "
                  "both: their sum");
  settings.flag("news.category", true, "Whether a learned vector of its category is added to a news");
  settings.flag("news.abstract", false, "Whether the abstract is read behind the title");
  settings.integer("news.min_count", 5, 1, 1'000'000'000,
                   "News that occur less often in training share one learned vector");
  settings.integer("user.layers", 1, 1, 1024,
                   "Layers of the encoder over the clicked news; its attention is the model's");
  settings.integer("user.max_history", 50, 0, 1'000'000,
                   "The most clicked news of a user that are read: the newest");
  declare_tokenizer(settings, 8000);
  TransformerConfig model;
  model.encoder_layers = 1;
  model.width = 64;
  model.feed_forward = 128;
  model.pooling = "attention";
  declare_model(settings, model, Stacks::encoder, {"word_pairs"});  // which tell classes
  declare_training(settings, click_metrics);
  settings.integer("training.negatives", 4, 1, 10'000,
                   "Passed news of the same list that each click is learned beside");
  settings.integer("prediction.batch_size", 64, 1, 1'000'000, "Users that are read at a time");
  settings.text("prediction.news", "", "Another news.tsv: what is known of news beside those of the run");
  settings.change_defaults(R"({
    "data": {"max_tokens": 32, "long_texts": "cut"}, "model": {"dropout": 0.2},
    "training": {"steps": 1000, "evaluate_every": 100, "save_every": 500, "label_smoothing": 0, "ema_decay": 0.99,
      "optimizer": {"name": "adamw", "weight_decay": 0.01},
      "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.001}}})");
  if (!own_data)
    settings.change_defaults(R"({"tokenizer": {"vocabulary": 400}, "model": {"width": 32, "feed_forward": 64},
      "training": {"steps": 600, "batch_tokens": 1024, "schedule": {"learning_rate": 0.003}}})");
  return settings;
}

bool names_data(const Settings& settings) {
  const auto given = [&](const char* name) { return !settings.get<std::string>(name).empty(); };
  if (!given("data.file") && (given("data.valid") || given("data.test") || given("data.news")))
    throw SettingsError(
        "--valid, --test and --news (data.valid, ...) need --data (data.file), the impressions to learn "
        "from");
  if (given("data.file") && !given("data.news") &&
      settings.get<std::string>("news.represented_by") == "title")
    throw SettingsError("news.represented_by=title needs --news (data.news), where the titles stand");
  return given("data.file");
}

// --- data

/// The news of a batch, each once, and the rows that they get in the model's table.
class BatchNews {
 public:
  std::int32_t row_of(std::int32_t number) {
    const auto [place, is_new] = rows_.try_emplace(number, static_cast<std::int32_t>(numbers_.size()) + 1);
    if (is_new) numbers_.push_back(number);
    return place->second;
  }
  Tokens rows_of(std::span<const std::int32_t> numbers) {
    Tokens rows;
    for (const std::int32_t number : numbers) rows.push_back(row_of(number));
    return rows;
  }
  std::span<const std::int32_t> numbers() const { return numbers_; }

 private:
  std::unordered_map<std::int32_t, std::int32_t> rows_;
  std::vector<std::int32_t> numbers_;
};

/// A click to be learned.
struct ClickExample {
  std::size_t impression, click;
};

/// Scores of an impression's candidates.
struct Scores {
  std::vector<float> clicked, passed;
};

/// Mean over the clicks of -log(e^s / (e^s + sum over the passed ones of e^s_j)).
double loss_of(const Scores& scores) {
  double sum = 0;
  for (const float click : scores.clicked) {
    double others = 0;
    for (const float passed : scores.passed) others += std::exp(static_cast<double>(passed - click));
    sum += std::log1p(others);
  }
  return sum / static_cast<double>(scores.clicked.size());
}

Json json_of(const ClickRanking& ranking) {
  return {{"auc", rounded(ranking.auc)},
          {"mrr", rounded(ranking.mrr)},
          {"ndcg5", rounded(ranking.ndcg5)},
          {"ndcg10", rounded(ranking.ndcg10)}};
}

class RecommendLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_data(settings_);
    check_model<NewsRecommender>(config(300), settings_.get<std::int64_t>("training.batch_tokens"),
                                 sizes(1000, 10));
  }

  void read_data() override {
    ImpressionSplit split{settings_.get<double>("data.valid_fraction"),
                          settings_.get<double>("data.test_fraction"),
                          settings_.get<std::string>("data.split") == "time",
                          static_cast<std::uint64_t>(settings_.get<std::int64_t>("data.split_seed"))};
    if (!names_data(settings_)) {
      TopicClicks made =
          topic_clicks(split.seed, settings_.get<std::int64_t>("data.impressions"), catalogue_.names);
      news_ = std::move(made.news);
      parts_ = split_impressions(std::move(made.impressions), split);
      return;
    }
    const auto valid = settings_.get<std::string>("data.valid"),
               test = settings_.get<std::string>("data.test");
    if (!valid.empty()) split.valid_fraction = 0;
    if (!test.empty()) split.test_fraction = 0;
    parts_ = split_impressions(read(settings_.get<std::string>("data.file")), split);
    if (!valid.empty()) parts_.valid = read(valid);
    if (!test.empty()) parts_.test = read(test);
  }

  std::map<std::string, std::string> data_digests() const override {
    std::map<std::string, std::string> digests;
    const auto add = [&](const char* part, const std::vector<Impression>& impressions) {
      if (!impressions.empty()) digests[part] = digest_of_impressions(impressions, catalogue_.names);
    };
    add("train", parts_.train);
    add("valid", parts_.valid);
    add("test", parts_.test);
    return digests;
  }

  void learn_vocabulary() override {
    if (const auto file = settings_.get<std::string>("data.news"); !file.empty()) news_ = read_titles(file);
    catalogue_.add(news_, settings_.get<bool>("news.abstract"), true);
    catalogue_.learn_from(parts_.train, settings_.get<std::int64_t>("news.min_count"));
    std::vector<std::string> titles = catalogue_.texts();
    if (titles.empty()) {
      check(has_identities(), "news.represented_by=title, but there is no title in data.news");
      titles = {"-"};  // all bytes have a token
    }
    set_tokenizer(learn_tokenizer(settings_, titles));
  }

  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->tokenizer().to_json()}, {"news.json", catalogue_.to_json()}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    catalogue_.add_json(read("news.json"));
    set_tokenizer(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"));
  }

  void build(Device device) override {
    model_ = make_model<NewsRecommender>(config(tokenizer_->tokenizer().vocabulary_size()),
                                         settings_.get<std::int64_t>("training.batch_tokens"), device,
                                         sizes(catalogue_.identities(), catalogue_.categories()));
  }

  void prepare_training() override {
    std::vector<std::int32_t> histories;
    for (std::size_t i = 0; i < parts_.train.size(); ++i) {
      const Impression& one = parts_.train[i];
      for (std::size_t click = 0; click < one.clicked.size() && !one.passed.empty(); ++click) {
        examples_.push_back({i, click});
        histories.push_back(static_cast<std::int32_t>(newest(one.history).size()) + 1);
      }
    }
    describe_data();
    check(!examples_.empty(),
          "there is nothing to learn from: no impression of the training part has both a "
          "click and a news that was passed");
    BatchOptions options = training_batches(settings_);
    options.max_length = 0;
    const auto candidates = static_cast<std::int32_t>(1 + settings_.get<std::int64_t>("training.negatives"));
    plan_.emplace(histories, std::vector<std::int32_t>(histories.size(), candidates), options);
  }

  // --- training

  Module& model() override { return *model_; }
  std::string unit() const override { return "clicks"; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  /// Each click, the first of its candidates, beside passed news of the same list.
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const auto negatives = settings_.get<std::int64_t>("training.negatives");
    const RandomKey key{static_cast<std::uint64_t>(settings_.get<std::int64_t>("seed")),
                        static_cast<std::uint32_t>(epoch), negatives_stream};
    BatchNews news;
    std::vector<Tokens> histories;
    std::vector<Tokens> candidates;
    for (const std::int32_t row : batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)]) {
      const ClickExample& example = examples_[static_cast<std::size_t>(row)];
      const Impression& shown = parts_.train[example.impression];
      histories.push_back(history_rows(shown.history, news));
      candidates.push_back({news.row_of(shown.clicked[example.click])});
      const Tokens passed =
          news.rows_of(draw_negatives(shown.passed, negatives, key, static_cast<std::uint64_t>(row)));
      candidates.back().insert(candidates.back().end(), passed.begin(), passed.end());
    }
    const Device device = model_->device();
    return model_->loss(input_of(news.numbers()),
                        {pad_tokens(histories, device), pad_tokens(candidates, device).ids},
                        settings_.get<double>("training.label_smoothing"), context);
  }

  Evaluation evaluate() override {
    if (parts_.valid.empty()) return {};
    return evaluation(quality_of(parts_.valid, scores_of(parts_.valid)).values());
  }

  // --- use

  /// Lines "history TAB candidates", ids with spaces between: the candidates, the likeliest first.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    read_more_news();
    const auto read = [&](const std::string& line) {
      const std::size_t tab = line.find('\t');
      Impression one;
      if (tab != std::string::npos) {
        one.history = parse_news_ids(std::string_view(line).substr(0, tab), catalogue_.names);
        one.passed = parse_news_ids(std::string_view(line).substr(tab + 1), catalogue_.names);
      }
      check(!one.passed.empty() && line.find('\t', tab + 1) == std::string::npos,
            "expected the ids of clicked news, a tab, and the ids of candidates, with spaces between");
      return one;
    };
    const auto answer = [&](const std::vector<Impression>& asked) {
      say_what_is_unknown(asked);
      const std::vector<Scores> scores = scores_of(asked);
      std::vector<Prediction> answers;
      for (std::size_t i = 0; i < asked.size(); ++i)
        answers.push_back(prediction_of(asked[i], scores[i].passed));
      return answers;
    };
    const auto show = [&](const Impression& example, std::int64_t line, CaptureFile& file) {
      show_inside(example, line, file);
    };
    return answer_lines(lines, options, read, answer, show);
  }

  /// Of users with some clicks: what they clicked last, and some of what they were shown.
  std::vector<std::string> example_lines(std::size_t count) const override {
    constexpr std::size_t most = 8;
    const auto ids = [&](std::vector<std::int32_t> news, bool last) {
      if (news.size() > most)
        news.erase(last ? news.begin() : news.begin() + most, last ? news.end() - most : news.end());
      std::string text;
      for (const std::int32_t number : news)
        text += (text.empty() ? "" : " ") + catalogue_.names.name(number);
      return text;
    };
    std::vector<std::string> lines;
    for (const Impression& one : parts_.valid.empty() ? parts_.train : parts_.valid) {
      if (lines.size() == count) break;
      std::vector<std::int32_t> shown = one.clicked;
      shown.insert(shown.end(), one.passed.begin(), one.passed.end());
      if (one.history.size() >= 2 && !shown.empty())
        lines.push_back(ids(one.history, true) + "\t" + ids(shown, false));
    }
    return lines;
  }

  Measurement measure(std::string_view part) override {
    const auto& impressions = part == "valid" ? parts_.valid : part == "test" ? parts_.test : parts_.train;
    check(!impressions.empty(), "the ", part, " part of the run's data is empty: give --data");
    return measurement_of(impressions);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    return measurement_of(read(files.front()));
  }

 private:
  struct Quality {
    ClickRanking ranking, popularity;
    double loss = 0;
    std::int64_t lists = 0, left_out = 0;
    std::vector<double> values() const {  // in the order of `click_metrics`
      return {ranking.auc, ranking.mrr, ranking.ndcg5, ranking.ndcg10, loss};
    }
  };

  TransformerConfig config(std::int64_t vocabulary) const {
    TransformerConfig config = model_config(trained());
    config.source_vocabulary = vocabulary;
    return config;
  }

  /// Without a title to learn from there is nothing that could read one.
  bool reads_titles() const {
    return settings_.get<std::string>("news.represented_by") != "id" && has_titles_;
  }
  bool has_identities() const { return settings_.get<std::string>("news.represented_by") != "title"; }

  RecommenderConfig sizes(std::int64_t identities, std::int64_t categories) const {
    return {reads_titles(), has_identities() ? identities : 0,
            settings_.get<bool>("news.category") ? categories : 0, settings_.get<std::int64_t>("user.layers"),
            settings_.get<std::int64_t>("user.max_history")};
  }

  std::vector<Impression> read(const std::string& file) {
    ReadReport report;
    std::vector<Impression> impressions =
        read_impressions(file, catalogue_.names, text_options(settings_), &report);
    remark_on_reading(report);
    return impressions;
  }

  std::vector<News> read_titles(const std::string& file) {
    ReadReport report;
    std::vector<News> news = read_news(file, catalogue_.names, text_options(settings_), &report);
    remark_on_reading(report);
    return news;
  }

  void set_tokenizer(Tokenizer tokenizer) {
    tokenizer_.emplace(std::move(tokenizer), settings_);
    has_titles_ = !catalogue_.texts().empty();
    tokenize();
  }

  void tokenize() {
    if (!reads_titles()) return;
    catalogue_.tokenize([&](const std::string& text) { return (*tokenizer_)(text); });
    if (std::string cut = tokenizer_->take_cut_message(); !cut.empty()) remark(std::move(cut));
  }

  void read_more_news() {
    const auto file = settings_.get<std::string>("prediction.news");
    if (file.empty() || std::exchange(has_more_news_, true)) return;
    if (!reads_titles())
      remark("prediction.news: this run reads no titles, and takes categories alone from it");
    catalogue_.add(read_titles(file), settings_.get<bool>("news.abstract"), false);
    tokenize();
  }

  bool is_known(std::int32_t number) const {
    const NewsFacts& facts = catalogue_.of(number);
    return (has_identities() && facts.identity > 0) || (reads_titles() && !facts.tokens.empty());
  }

  void describe_data() {
    std::int64_t long_histories = 0, empty = 0, without_pair = 0;
    std::set<std::int32_t> candidates;
    std::int64_t without_title = 0, unknown = 0;
    for (const Impression& one : parts_.train) {
      empty += one.history.empty() ? 1 : 0;
      long_histories += newest(one.history).size() < one.history.size() ? 1 : 0;
      without_pair += one.clicked.empty() || one.passed.empty() ? 1 : 0;
      candidates.insert(one.clicked.begin(), one.clicked.end());
      candidates.insert(one.passed.begin(), one.passed.end());
    }
    for (const std::int32_t number : candidates) {
      without_title += catalogue_.of(number).tokens.empty() ? 1 : 0;
      unknown += is_known(number) ? 0 : 1;
    }
    remark(concat_text(parts_.train.size(), " impressions with ", examples_.size(), " clicks to learn from, ",
                       parts_.valid.size(), " to measure with, ", parts_.test.size(), " kept for a test; ",
                       catalogue_.names.size(), " news, ", catalogue_.identities(),
                       " with a vector of their own; vocabulary ",
                       tokenizer_->tokenizer().vocabulary_size()));
    const auto say = [&](std::int64_t count, const auto&... what) {
      if (count > 0) remark(concat_text(count, what...));
    };
    say(without_pair, " impressions have no click, or nothing but clicks: nothing is learned from them");
    say(empty, " histories are empty");
    say(long_histories,
        " histories are longer than user.max_history = ", settings_.get<std::int64_t>("user.max_history"),
        ": the newest of each are read");
    if (reads_titles())
      say(without_title, " of ", candidates.size(), " news that were shown have no title in data.news");
    say(unknown, " of ", candidates.size(),
        has_identities()
            ? " occur less than news.min_count times and have no title, either: they share a vector"
            : " share a vector for that");
  }

  std::span<const std::int32_t> newest(std::span<const std::int32_t> history) const {
    const auto most = static_cast<std::size_t>(settings_.get<std::int64_t>("user.max_history"));
    return history.last(std::min(history.size(), most));
  }

  /// What the user encoder reads, as rows of the table.
  Tokens history_rows(std::span<const std::int32_t> history, BatchNews& news) const {
    Tokens rows = news.rows_of(newest(history));
    rows.insert(rows.begin(), NewsRecommender::anyone);
    return rows;
  }

  NewsInput input_of(std::span<const std::int32_t> numbers) const {
    return news_input(catalogue_, numbers, reads_titles(), has_identities(), model_->device());
  }

  /// The table of all these news, some read at a time.
  Tensor table_of(std::span<const std::int32_t> numbers) {
    constexpr std::size_t at_once = 512;
    std::vector<Tensor> parts;
    for (std::size_t begin = 0; begin < numbers.size(); begin += at_once) {
      Context context = Context::inference();
      parts.push_back(
          model_->news(input_of(numbers.subspan(begin, std::min(at_once, numbers.size() - begin))), context));
    }
    return model_->table(concat(parts, 0));
  }

  std::vector<Scores> scores_of(std::span<const Impression> impressions) {
    const NoGrad no_grad;
    std::vector<Scores> scores(impressions.size());
    if (impressions.empty()) return scores;
    BatchNews news;
    std::vector<Tokens> histories, candidates;
    for (const Impression& one : impressions) {
      histories.push_back(history_rows(one.history, news));
      candidates.push_back(news.rows_of(one.clicked));
      const Tokens passed = news.rows_of(one.passed);
      candidates.back().insert(candidates.back().end(), passed.begin(), passed.end());
    }
    const Tensor table = table_of(news.numbers());
    const BatchPlan plan(lengths_of(histories), {},
                         evaluation_batches(settings_.get<std::int64_t>("prediction.batch_size")));
    const std::vector<Batch> batches = plan.epoch(0);
    const auto found = deal_out_numbers<float>(ranks(), batches.size(), [&](std::size_t batch) {
      Context context = Context::inference();
      const Device device = model_->device();
      const Batch& rows = batches[batch];
      const Tensor users = model_->users(table, pad_tokens(pick(histories, rows), device), context);
      return model_
          ->scores(users, table, pad_tokens(pick(candidates, rows), device).ids)  // [B, C]
          .to_vector<float>();
    });
    for (std::size_t batch = 0; batch < batches.size(); ++batch) {
      const Batch& rows = batches[batch];
      const std::vector<float>& values = found[batch];
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = static_cast<std::size_t>(rows[i]);
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(i * (values.size() / rows.size())),
                   middle = first + static_cast<std::ptrdiff_t>(impressions[row].clicked.size());
        scores[row] = {{first, middle},
                       {middle, middle + static_cast<std::ptrdiff_t>(impressions[row].passed.size())}};
      }
    }
    return scores;
  }

  Quality quality_of(std::span<const Impression> impressions, const std::vector<Scores>& scores) const {
    const auto clicks_of = [&](std::span<const std::int32_t> numbers) {
      std::vector<float> clicks;
      for (const std::int32_t number : numbers)
        clicks.push_back(static_cast<float>(catalogue_.of(number).clicks));
      return clicks;
    };
    ClickRankingMeter model, popularity;
    double loss = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      model.add(scores[i].clicked, scores[i].passed);
      popularity.add(clicks_of(impressions[i].clicked), clicks_of(impressions[i].passed));
      if (!scores[i].clicked.empty() && !scores[i].passed.empty()) loss += loss_of(scores[i]);
    }
    const ClickRanking mean = model.mean();  // throws when there is nothing to measure
    return {mean, popularity.mean(), loss / static_cast<double>(model.lists()), model.lists(),
            model.left_out()};
  }

  Measurement measurement_of(std::span<const Impression> impressions) {
    read_more_news();
    const std::vector<Scores> scores = scores_of(impressions);
    const Quality quality = quality_of(impressions, scores);
    std::set<std::int32_t> candidates;
    for (const Impression& one : impressions) {
      candidates.insert(one.clicked.begin(), one.clicked.end());
      candidates.insert(one.passed.begin(), one.passed.end());
    }
    const auto known = std::count_if(candidates.begin(), candidates.end(),
                                     [&](std::int32_t number) { return is_known(number); });
    Measurement measurement;
    measurement.metrics = metrics(quality.values());
    measurement.count = quality.lists;
    measurement.examples = {"auc", "mean", {}};
    for (const Scores& one : scores)
      if (!one.clicked.empty() && !one.passed.empty())
        measurement.examples.rows.push_back({click_ranking(one.clicked, one.passed).auc, 1});
    Json json = json_of(quality.ranking);
    json["loss"] = quality.loss;
    json["impressions"] = quality.lists;
    json["left_out"] = quality.left_out;  // without a click, or without anything else
    json["news"] = {{"shown", candidates.size()}, {"known", known}};
    json["popularity"] = json_of(quality.popularity);
    measurement.json = json.dump();
    return measurement;
  }

  Prediction prediction_of(const Impression& asked, std::span<const float> scores) const {
    Prediction prediction;
    double sum = 0;
    const float largest = *std::max_element(scores.begin(), scores.end());
    for (const float score : scores) sum += std::exp(static_cast<double>(score - largest));
    for (std::size_t i = 0; i < scores.size(); ++i)
      prediction.alternatives.push_back({catalogue_.names.name(asked.passed[i]),
                                         std::exp(static_cast<double>(scores[i] - largest)) / sum,
                                         static_cast<double>(scores[i])});
    std::stable_sort(prediction.alternatives.begin(), prediction.alternatives.end(),
                     [](const auto& a, const auto& b) { return a.probability > b.probability; });
    prediction.probability = prediction.alternatives.front().probability;
    for (const Prediction::Alternative& one : prediction.alternatives)
      prediction.text += (prediction.text.empty() ? "" : " ") + one.text;
    return prediction;
  }

  void say_what_is_unknown(const std::vector<Impression>& asked) {
    std::set<std::int32_t> unknown;
    for (const Impression& one : asked)
      for (const auto* list : {&one.history, &one.passed})
        for (const std::int32_t number : *list)
          if (!is_known(number)) unknown.insert(number);
    if (!unknown.empty())
      remark(concat_text(unknown.size(), " news are unknown to the run (such as ",
                         catalogue_.names.name(*unknown.begin()),
                         "): all of them look the same to it; --news names a file with their titles"));
  }

  /// One pass over each title, and one over the history, in which the model shows its inside.
  void show_inside(const Impression& asked, std::int64_t line, CaptureFile& file) {
    const NoGrad no_grad;
    BatchNews news;
    const Tokens history = history_rows(asked.history, news);
    news.rows_of(asked.passed);
    const auto show = [&](const std::string& example, const Tensor& ids,
                          const std::vector<std::string>& texts, const auto& pass) {
      file.add_tokens(example, "tokens", ids, texts);
      file.add(example, captured(pass));
    };
    for (const std::int32_t number : news.numbers()) {
      const Tokens& tokens = catalogue_.of(number).tokens;
      if (tokens.empty() || !shown_.insert(number).second) continue;
      std::string example = catalogue_.names.name(number);
      std::replace(example.begin(), example.end(), '.', '_');
      const NewsInput input = input_of({&number, 1});
      show("news." + example, input.titles.ids, token_texts(tokenizer_->tokenizer(), tokens),
           [&](Context& context) { model_->news(input, context); });
    }
    std::vector<std::string> texts = {"anyone"};
    for (const std::int32_t number : newest(asked.history)) texts.push_back(catalogue_.names.name(number));
    const Tensor table = table_of(news.numbers());
    const PaddedTokens input = pad_tokens({&history, 1}, model_->device());
    show("lines." + std::to_string(line), input.ids, texts,
         [&](Context& context) { model_->users(table, input, context); });
  }

  NewsCatalogue catalogue_;
  std::vector<News> news_;
  ImpressionParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  std::unique_ptr<NewsRecommender> model_;
  bool has_titles_ = true, has_more_news_ = false;
  std::set<std::int32_t> shown_;  // titles that a capture holds

  std::vector<ClickExample> examples_;
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

}  // namespace

const TaskKind& recommend_task() {
  static const TaskKind kind{"recommend",
                             "Learns which news a user will click, measures it, and ranks news with it",
                             Stacks::encoder,
                             click_metrics,
                             recommend_settings,
                             names_data,
                             make_learner<RecommendLearner>};
  return kind;
}

}  // namespace heed
