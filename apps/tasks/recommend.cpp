// News recommendation: from the news that a user has clicked, which of those shown will be clicked next
// (models/news_recommender.h). Learned from each click beside a few news of the same list that were passed.
// The data are MIND's own files (apps/data/formats.h); without them it learns from clicks made by rule
// (apps/data/synthetic.h).
//
// Files of a run beside the weights: tokenizer.json, and news.json, what is known of news
// (apps/tasks/news_catalogue.h). Parts of the data: train, valid, test.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/news_catalogue.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/fork.h"
#include "heed/base/names.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind click_metrics[] = {
    {"auc", true}, {"mrr", true}, {"ndcg5", true}, {"ndcg10", true}, {"loss", false}};

/// The random stream for drawing negatives; streams of training steps have op numbers from 0.
constexpr std::uint32_t negatives_stream = 1u << 31;

struct RecommendData {
  DataFiles files = {.what = "Impressions", .form = ": MIND's behaviors.tsv, plain or gzip"};
  std::string news = {};
  ImpressionSplit split = {.valid_fraction = 0.1, .test_fraction = 0.1};
  enum class Split { time, random } by = Split::time;
  TextOptions text = {};
  TextLimits limits = {};
  std::int64_t impressions = 4000;
};

void for_each_setting(auto&& visit, RecommendData& data) {
  for_each_setting(visit, data.files);
  visit(data.news, "news", "MIND's news.tsv with the titles and categories of the news; empty: none");
  visit(data.by, "split", {"time", "random"},
        "time: hold out the last impressions, as in practice; random: hold out random ones, drawn with "
        "data.split_seed");
  visit_valid_fraction(visit, data.split.valid_fraction);
  visit_test_fraction(visit, data.split.test_fraction);
  visit_split_seed(visit, data.split.seed);
  for_each_setting(visit, data.text);
  for_each_setting(visit, data.limits);
  visit(data.impressions, "impressions", 1, 1e6, "Without data: number of generated impressions");
}

struct RecommendTraining {
  std::int64_t negatives = 4;
};
void for_each_setting(auto&& visit, RecommendTraining& training) {
  visit(training.negatives, "negatives", 1, 10'000,
        "Number of passed news items from the same list that each click is trained against");
}

struct RecommendPrediction {
  PredictionSettings batches = {.what = "Users"};
  std::string news = {};
};
void for_each_setting(auto&& visit, RecommendPrediction& prediction) {
  for_each_setting(visit, prediction.batches);
  visit(prediction.news, "news", "Another news.tsv, for news that the run does not have");
}

Settings recommend_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", RecommendData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("news", NewsSettings());
  settings.declare("user", UserSettings());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1, .pooling = "attention"},
                Stacks::encoder);
  declare_training(settings, click_metrics);
  settings.declare("training", RecommendTraining());
  settings.declare("prediction", RecommendPrediction());
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
  const auto data = settings.read<RecommendData>("data");
  if (data.files.file.empty() && !data.news.empty())
    throw SettingsError("data.news needs data.file, the training impressions");
  if (!data.files.file.empty() && data.news.empty() &&
      settings.read<NewsSettings>("news").represented_by == NewsSettings::RepresentedBy::title)
    throw SettingsError("news.represented_by=title needs data.news, the file with the titles");
  return names_file(settings);
}

Json json_of(const ClickRanking& ranking) {
  return {{"auc", rounded(ranking.auc)},
          {"mrr", rounded(ranking.mrr)},
          {"ndcg5", rounded(ranking.ndcg5)},
          {"ndcg10", rounded(ranking.ndcg10)}};
}

// --- examples in memory, as lines of MIND's files

std::string cell(std::span<const std::string> row, std::size_t column) {
  std::string text = column < row.size() ? row[column] : "";
  for (char& c : text)
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  return text;
}

std::string impression_line(std::span<const std::string> row, std::size_t number) {
  std::string shown;
  for (const std::size_t column : {1, 2}) {
    std::istringstream ids(cell(row, column));
    for (std::string id; ids >> id;)
      shown += concat_text(shown.empty() ? "" : " ", id, column == 1 ? "-1" : "-0");
  }
  const std::string time = cell(row, 3);
  return concat_text(number, "\t\t", time.empty() ? "1/1/2000 12:00:00 AM" : time, '\t', cell(row, 0), '\t',
                     shown);
}

std::string news_line(std::span<const std::string> row, std::size_t /*number*/) {
  return concat_text(cell(row, 0), '\t', cell(row, 2), "\t\t", cell(row, 1), '\t', cell(row, 3), "\t\t\t");
}

/// The input is an impression, which contains the right answer. A training example is one click of
/// an impression.
class RecommendTask : public Task, public HasOutputs {
 public:
  RecommendTask(const TaskEntry& entry, Settings given)
      : Task(entry, std::move(given)),
        data_(settings_.read<RecommendData>("data")),
        prediction_(settings_.read<RecommendPrediction>("prediction")),
        negatives_(settings_.read<RecommendTraining>("training").negatives),
        seed_(static_cast<std::uint64_t>(settings_.read<RuntimeSettings>("").seed)),
        catalogue_(settings_) {
    unit_ = "clicks";
  }

  void prepare_training() override {
    Lengths lengths;
    const auto candidates = static_cast<std::int32_t>(1 + negatives_);
    for (std::size_t i = 0; i < parts_.train.size(); ++i) {
      const Impression& one = parts_.train[i];
      for (std::size_t click = 0; click < one.clicked.size() && !one.passed.empty(); ++click) {
        clicks_.push_back({i, click});
        lengths[0].push_back(static_cast<std::int32_t>(catalogue_.newest(one.history).size()) + 1);
        lengths[1].push_back(candidates);
      }
    }
    remark(concat_text(parts_.train.size(), " impressions with ", clicks_.size(), " clicks for training, ",
                       parts_.valid.size(), " for validation, ", parts_.test.size(), " for testing; ",
                       catalogue_.names.size(), " news, ", catalogue_.identities(),
                       " with a vector of their own; vocabulary ",
                       tokenizer_->tokenizer().vocabulary_size()));
    remark_all(catalogue_.remarks_on(parts_.train));
    check(!clicks_.empty(),
          "there is nothing to learn from: no training impression has both a clicked and a passed news item");
    BatchOptions options = training_batches(settings_);
    options.max_length = 0;
    plan_batches(lengths, options);
  }

  /// Returns the loss of clicks, each as the first of its candidates, next to passed news items of
  /// the same list.
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const RandomKey key{seed_, static_cast<std::uint32_t>(epoch), negatives_stream};
    BatchNews news;
    std::vector<Tokens> histories;
    std::vector<Tokens> candidates;
    for (const std::int32_t row : batches_.at(epoch, batch)) {
      const Click& example = clicks_[static_cast<std::size_t>(row)];
      const Impression& shown = parts_.train[example.impression];
      histories.push_back(news.history_rows(catalogue_.newest(shown.history)));
      candidates.push_back({news.row_of(shown.clicked[example.click])});
      const Tokens passed =
          news.rows_of(draw_negatives(shown.passed, negatives_, key, static_cast<std::uint64_t>(row)));
      candidates.back().insert(candidates.back().end(), passed.begin(), passed.end());
    }
    auto& model = model_as<NewsRecommender>();
    const Device device = model.device();
    return model.loss(catalogue_.input(news.numbers(), device),
                      {pad_tokens(histories, device), pad_tokens(candidates, device).ids}, label_smoothing_,
                      context);
  }

  Evaluation evaluate() override {
    if (parts_.valid.empty()) return {};
    const Batch rows = spread_over(parts_.valid.size(), sample());
    return evaluation(measured_clicks(pick(parts_.valid, rows)).metrics, rows.size(), parts_.valid.size());
  }

  /// Answers lines "history TAB candidates", ids separated by spaces, with the candidates sorted by
  /// probability.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const UseLock::Alone alone(answering_);
    read_more_news();
    return answer_lines(
        lines, options, [&](const std::string& line) { return catalogue_.parse_impression(line); },
        [&](const std::vector<Impression>& asked) {
          remark(catalogue_.remark_on_unknown(asked));
          const std::vector<Output> scores = click_scores(asked);
          std::vector<Prediction> answers;
          for (std::size_t i = 0; i < asked.size(); ++i)
            answers.push_back(make_prediction(asked[i], scores[i]));
          return answers;
        },
        [&](const Impression& asked, const std::string& name, CaptureFile& file) {
          show_inside(asked, name, file);
        });
  }

  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    const UseLock::Alone alone(answering_);
    const std::vector<Impression> asked =
        inputs_of_lines(lines, [&](const std::string& line) { return catalogue_.parse_impression(line); });
    prepare_outputs(asked);
    return scores(asked, context);
  }

 protected:
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) { return named_parts(report); });
    return digests_of(parts_, [&](const std::vector<Impression>& impressions) {
      return impressions_digest(impressions, catalogue_.names);
    });
  }

  NamedFiles learned_files() override {
    NewsCatalogue learned = catalogue_;
    learned.add(data_.news.empty() ? news_ : read_titles(data_.news, learned.names), true);
    learned.learn_from(parts_.train);
    const TextSource texts = [titles = title_texts(learned)](const auto& take) {
      std::ranges::for_each(titles, take);
    };
    NamedFiles files = learned_tokenizer(texts);
    files["news.json"] = learned.to_json();
    return files;
  }

  void open(const ReadFile& read) override {
    catalogue_.add_json(read("news.json"));
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
    truncation_message_ = [this] { return tokenizer_->take_truncation_message(); };
    tokenize();
  }

  std::unique_ptr<Module> make_model() override {
    if (!tokenizer_)
      return model_of<NewsRecommender>(encoder_config(300), batch_tokens(), catalogue_.sizes(1000, 10));
    return model_of<NewsRecommender>(encoder_config(tokenizer_->tokenizer().vocabulary_size()),
                                     batch_tokens(),
                                     catalogue_.sizes(catalogue_.identities(), catalogue_.categories()));
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings&, ReadReport& report) {
      return read_file(files.front(), report);
    };
    return measured_data(parts_, source, read, [&](const std::vector<Impression>& impressions) {
      read_more_news();
      return measured_clicks(impressions);
    });
  }

  /// Returns example lines of users with some clicks: their last clicks, and some of the candidates
  /// shown.
  std::vector<std::string> example_lines(std::size_t count) const override {
    std::vector<std::string> lines;
    for (const Impression& one : shown_part(parts_))
      if (lines.size() < count && one.history.size() >= 2 && one.clicked.size() + one.passed.size() > 0)
        lines.push_back(catalogue_.line_of(one));
    return lines;
  }

 private:
  /// A click as a training example.
  struct Click {
    std::size_t impression, click;
  };

  // --- input

  ImpressionParts named_parts(ReadReport& report) {
    ImpressionSplit split = data_.split;
    split.by_time = data_.by == RecommendData::Split::time;
    if (!names_data(settings_)) {
      TopicClicks made = topic_clicks(split.seed, data_.impressions, catalogue_.names);
      news_ = std::move(made.news);
      return split_impressions(std::move(made.impressions), split);
    }
    return parts_of_files(
        data_.files, split.valid_fraction, split.test_fraction,
        [&](const std::string& file) { return read_file(file, report); },
        [&](std::vector<Impression> all, double valid, double test) {
          split.valid_fraction = valid, split.test_fraction = test;
          return split_impressions(std::move(all), split);
        });
  }

  std::vector<Impression> read_file(const std::string& file, ReadReport& report) {
    return read_impressions(file, catalogue_.names, data_.text, &report);
  }

  static std::vector<std::string> title_texts(const NewsCatalogue& learned) {
    std::vector<std::string> titles = learned.texts();
    check(!titles.empty() || learned.has_identities(),
          "news.represented_by=title, but there is no title in data.news");
    if (titles.empty()) titles = {"-"};  // all bytes have a token
    return titles;
  }

  std::vector<News> read_titles(const std::string& file, NewsNames& names) {
    return reported([&](ReadReport& report) { return read_news(file, names, data_.text, &report); });
  }

  void tokenize() {
    catalogue_.tokenize([&](const std::string& text) { return (*tokenizer_)(text); });
  }

  void read_more_news() {
    const std::string& file = prediction_.news;
    if (file.empty() || std::exchange(has_more_news_, true)) return;
    if (!catalogue_.reads_titles())
      remark("prediction.news: this run reads no titles and uses only the categories");
    catalogue_.add(read_titles(file, catalogue_.names), false);
    tokenize();
  }

  // --- predictions

  /// Computes the vectors of all news items in the query, batch by batch.
  void prepare_outputs(const std::vector<Impression>& impressions) {
    constexpr std::size_t at_once = 512;
    auto& model = model_as<NewsRecommender>();
    asked_ = BatchNews();
    for (const Impression& one : impressions) {
      asked_.history_rows(catalogue_.newest(one.history));
      asked_.candidate_rows(one);
    }
    const std::span numbers = asked_.numbers();
    std::vector<Tensor> parts;
    for (std::size_t begin = 0; begin < numbers.size(); begin += at_once) {
      Context context = Context::inference();
      const std::span some = numbers.subspan(begin, std::min(at_once, numbers.size() - begin));
      parts.push_back(model.news(catalogue_.input(some, model.device()), context));
    }
    table_ = model.table(concat(parts, 0));
  }

  /// Returns the scores [B, C] of the candidates, clicked ones first.
  Tensor scores(const std::vector<Impression>& impressions, Context& context) {
    auto& model = model_as<NewsRecommender>();
    std::vector<Tokens> histories, candidates;
    for (const Impression& one : impressions) {
      histories.push_back(asked_.history_rows(catalogue_.newest(one.history)));
      candidates.push_back(asked_.candidate_rows(one));
    }
    const Device device = model.device();
    const Tensor users = model.users(table_, pad_tokens(histories, device), context);
    return model.scores(users, table_, pad_tokens(candidates, device).ids);
  }

  std::vector<Output> click_scores(const std::vector<Impression>& impressions) {
    const NoGrad no_grad;
    if (impressions.empty()) return {};
    prepare_outputs(impressions);
    Lengths lengths;
    for (const Impression& one : impressions)
      lengths[0].push_back(static_cast<std::int32_t>(catalogue_.newest(one.history).size()) + 1);
    return outputs_of(
        *this, impressions, lengths, prediction_.batches.batch_size,
        [&](const std::vector<Impression>& batch, Context& context) { return scores(batch, context); });
  }

  TextReader reader(bool /*of_outputs*/) const override { return tokenizer_->reader(); }

  Prediction make_prediction(const Impression& asked, const Output& output) const {
    const std::span scores = std::span(output).first(asked.passed.size());
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

  Measurement measured_clicks(const std::vector<Impression>& impressions) {
    const std::vector<Output> outputs = click_scores(impressions);
    ClickRankingMeter model, by_clicks;
    double loss = 0;
    Measurement measurement;
    measurement.examples = {"auc", "mean", {}};
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Impression& one = impressions[i];
      const std::span all = outputs[i];
      const std::span clicked = all.first(one.clicked.size()),
                      passed = all.subspan(one.clicked.size(), one.passed.size());
      model.add(clicked, passed);
      by_clicks.add(catalogue_.click_counts(one.clicked), catalogue_.click_counts(one.passed));
      if (clicked.empty() || passed.empty()) continue;
      loss += click_loss(clicked, passed);
      measurement.examples.rows.push_back({click_ranking(clicked, passed).auc, 1});
    }
    const ClickRanking mean = model.mean();  // throws when there is nothing to measure
    loss /= static_cast<double>(model.lists());
    const std::set<std::int32_t> candidates = shown_news(impressions);
    measurement.metrics = metrics(std::vector<double>{mean.auc, mean.mrr, mean.ndcg5, mean.ndcg10, loss});
    measurement.count = model.lists();
    Json json = json_of(mean);
    json["loss"] = loss;
    json["impressions"] = model.lists();
    json["left_out"] = model.left_out();  // without a click, or without anything else
    json["news"] = {
        {"shown", candidates.size()},
        {"known", std::ranges::count_if(candidates, [&](auto one) { return catalogue_.is_known(one); })}};
    json["popularity"] = json_of(by_clicks.mean());
    measurement.json = json.dump();
    return measurement;
  }

  /// Captures one pass over each title, and one over the history.
  void show_inside(const Impression& asked, const std::string& name, CaptureFile& file) {
    const NoGrad no_grad;
    auto& model = model_as<NewsRecommender>();
    prepare_outputs({asked});
    for (const std::int32_t number : asked_.numbers()) {
      const Tokens& tokens = catalogue_.of(number).tokens;
      if (tokens.empty() || !shown_.insert(number).second) continue;
      std::string example = catalogue_.names.name(number);
      std::replace(example.begin(), example.end(), '.', '_');
      const NewsInput input = catalogue_.input({&number, 1}, model.device());
      add_pass(file, "news." + example, captured([&](Context& context) { model.news(input, context); }),
               {tokens}, tokenizer_->tokenizer());
    }
    std::vector<std::string> texts = {"anyone"};
    for (const std::int32_t number : catalogue_.newest(asked.history))
      texts.push_back(catalogue_.names.name(number));
    const Tokens history = asked_.history_rows(catalogue_.newest(asked.history));
    const PaddedTokens input = pad_tokens({&history, 1}, model.device());
    file.add_tokens(name, "tokens", input.ids, texts);
    file.add(name, captured([&](Context& context) { model.users(table_, input, context); }));
  }

  const RecommendData data_;
  const RecommendPrediction prediction_;
  const std::int64_t negatives_;
  const std::uint64_t seed_;
  ImpressionParts parts_;
  NewsCatalogue catalogue_;
  std::vector<News> news_;  // of the data made by rule
  std::optional<BoundedTokenizer> tokenizer_;
  bool has_more_news_ = false;
  std::vector<Click> clicks_;
  UseLock answering_;  // what is asked changes the members below, and the catalogue
  BatchNews asked_;    // all news of the impressions that are answered, and their table
  Tensor table_;
  std::set<std::int32_t> shown_;  // titles that a capture holds
};

}  // namespace

const TaskEntry& recommend_task() {
  static const TaskEntry entry = make_task_entry<RecommendTask>(
      {"recommend",
       "Trains, evaluates and uses a model that ranks news by what a user will click",
       Stacks::encoder,
       click_metrics,
       recommend_settings,
       names_data,
       {{"",
         {{"history", "Ids of the news items that the user had clicked before, oldest first", true, " "},
          {"clicked", "Ids of the shown news items that were clicked", true, " "},
          {"passed", "Ids of the shown news items that were not clicked", true, " "},
          {"time",
           "Time when they were shown, such as 11/13/2019 5:53:12 AM; default: in the order of the rows",
           false, "", true}},
         "tsv",
         impression_line},
        {"news",
         {{"id", "The id of a news item", true},
          {"title", "Its title"},
          {"category", "Its category", false, "", true},
          {"abstract", "Its abstract", false, "", true}},
         "tsv",
         news_line}}});
  return entry;
}

}  // namespace heed
