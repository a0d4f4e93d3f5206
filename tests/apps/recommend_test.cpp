// News recommendation: MIND's files, the metrics of rankings, the model, and the program.

#include "heed/apps/tasks/task.h"

#include <nlohmann/json.hpp>

#include "heed/apps/data/synthetic.h"
#include "heed/models/news_recommender.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/model_support.h"
#include "heed/text/safetensors.h"
#include "heed/training/ranking.h"

namespace {

using Json = nlohmann::json;

const std::string impression =
    "1\tU1\t11/13/2019 5:53:12 AM\tN1 N2\tN3-1 N4-0 N5-0\n"
    "2\tU2\t11/13/2019 12:00:00 PM\t\tN3-0 N6-1\n";
const std::string news =
    "N1\tsports\tgolf\tOne \"title\"\t\thttps://a\t[]\t[]\n"
    "N2\tnews\tworld\tAnother\tAn abstract\thttps://b\t[]\t[]\n";

std::string refusal_of_impressions(const std::string& text) {
  NewsNames names;
  return error_of([&] { read_impressions({text, "file"}, names); });
}

std::string refusal_of_news(const std::string& text) {
  NewsNames names;
  return error_of([&] { read_news({text, "file"}, names); });
}

std::string without(std::string text, const std::string& part, const std::string& instead = "") {
  return text.replace(text.find(part), part.size(), instead);
}

}  // namespace

TEST_CASE("mind: impressions are read as they are") {
  NewsNames names;
  const std::vector<Impression> all = read_impressions({impression, "file"}, names);
  REQUIRE(all.size() == 2);
  CHECK(all[0].history == Ints{0, 1});
  CHECK(all[0].clicked == Ints{2});
  CHECK(all[0].passed == Ints{3, 4});
  CHECK(all[1].history.empty());
  CHECK(names.name(all[1].clicked.front()) == "N6");
  CHECK(all[1].time - all[0].time == 6 * 3600 + 6 * 60 + 48);
  CHECK(all[0].time == 1573624392);
  CHECK(read_impressions({without(impression, "5:53:12 AM", "12:00:00 AM"), "file"}, names)[0].time ==
        1573603200);
}

TEST_CASE("mind: news are read as they are, and an id may be repeated where it says the same") {
  NewsNames names;
  const std::vector<News> all = read_news({news + news, "file"}, names);
  REQUIRE(all.size() == 2);
  CHECK(all[0].title == "One \"title\"");
  CHECK(all[0].abstract.empty());
  CHECK(all[1].category == "news");
  CHECK(all[1].subcategory == "world");
  const std::string twice = refusal_of_news(news + without(news, "Another", "Other"));
  CHECK(contains(twice, "file:4"));
  CHECK(contains(twice, "line 2"));
}

TEST_CASE("mind: what is wrong is named with its line") {
  const std::pair<std::string, const char*> rows[] = {
      {"1\tU1\tN1\n", "file:1: the row has 3 columns"},
      {impression + "3\tU1\n", "file:3"},
      {without(impression, "12:00:00 PM", "13:00:00 PM"), "file:2"},
      {without(impression, "11/13/2019", "2/30/2019"), "file:1"},
      {without(impression, "N4-0", "N4"), "\"N4\" has no -1"},
      {without(impression, "N4-0", "-0"), "\"-0\""},
      {without(impression, "N3-1 N4-0 N5-0"), "file:1: the row has no candidates"},
      {"", "empty"}};
  for (const auto& [text, says] : rows) CHECK(contains(refusal_of_impressions(text), says));
  CHECK(contains(refusal_of_news("N1\tnews\tworld\ttitle\t\thttps://a\t[]\n"),
                 "file:1: the row has 7 columns"));
  CHECK(
      contains(refusal_of_news(news + without(news, "N1", "")), "file:3: \"\" is not the id of a news item"));
}

TEST_CASE("mind: impressions are split by time, or by a seed") {
  std::vector<Impression> all(100);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].time = static_cast<std::int64_t>(i * 37 % 100);
    all[i].clicked = {static_cast<std::int32_t>(i)};
  }
  const ImpressionParts parts = split_impressions(all, {.valid_fraction = 0.1, .test_fraction = 0.2});
  REQUIRE(parts.test.size() == 20);
  REQUIRE(parts.valid.size() == 10);
  for (const Impression& one : parts.test) CHECK(one.time >= 80);
  for (const Impression& one : parts.valid) CHECK((one.time >= 70 && one.time < 80));
  CHECK(std::ranges::is_sorted(parts.train, {}, [](const Impression& one) { return one.clicked.front(); }));
  const ImpressionSplit drawn{.test_fraction = 0.2, .by_time = false, .seed = 4};
  const ImpressionParts random = split_impressions(all, drawn);
  CHECK(random.test.size() == 20);
  CHECK(std::ranges::any_of(random.test, [](const Impression& one) { return one.time < 50; }));
  NewsNames names;
  for (int i = 0; i < 100; ++i) names.number_of("N" + std::to_string(i));
  CHECK(impressions_digest(random.test, names) ==
        impressions_digest(split_impressions(all, drawn).test, names));
  CHECK_THROWS_AS(split_impressions(all, {.valid_fraction = 0.5, .test_fraction = 0.5}), Error);
}

TEST_CASE("clicks by rule: a function of the seed; every list has a click and a news that was passed") {
  NewsNames names, again, other;
  const TopicClicks made = topic_clicks(1, 300, names);
  const std::string digest = impressions_digest(made.impressions, names);
  CHECK(digest == impressions_digest(topic_clicks(1, 300, again).impressions, again));
  CHECK(digest != impressions_digest(topic_clicks(2, 300, other).impressions, other));
  std::set<std::int32_t> early;
  for (std::size_t i = 0; i < 40; ++i)
    for (const auto* list : {&made.impressions[i].clicked, &made.impressions[i].passed})
      early.insert(list->begin(), list->end());
  for (const Impression& one : made.impressions) {
    CHECK((!one.clicked.empty() && !one.passed.empty()));
    CHECK(std::set(one.clicked.begin(), one.clicked.end()).size() == one.clicked.size());
  }
  for (const News& one : made.news) CHECK(std::ranges::count(one.title, ' ') >= 4);
  // What is shown at the end was not there at the beginning.
  CHECK(std::ranges::none_of(made.impressions.back().clicked,
                             [&](std::int32_t number) { return early.contains(number); }));
}

TEST_CASE("rankings: as MIND's own evaluation has them") {
  const Floats passed = {0.8f, 0.3f, 0.2f, 0.05f, 0.7f, -1.0f, 0.6f, 0.0f, 0.65f, 0.5f};
  const ClickRanking found = click_ranking(Floats{0.9f, 0.1f, 0.45f}, passed);
  CHECK(found.auc == doctest::Approx(0.6));
  CHECK(found.mrr == doctest::Approx(0.4142857142857143));
  CHECK(found.ndcg5 == doctest::Approx(0.46927872602275644));
  CHECK(found.ndcg10 == doctest::Approx(0.7613569414627896));
}

TEST_CASE("rankings: candidates of the same score get the mean over their orders") {
  const ClickRanking found = click_ranking(Floats{1, 0, 2}, Floats{0, 0, 1, 2, 2, 0, 0});
  CHECK(found.auc == doctest::Approx(0.5952380952380951));
  CHECK(found.ndcg5 == doctest::Approx(0.5251579028522834));
  CHECK(found.ndcg10 == doctest::Approx(0.6748672226020829));
  CHECK(found.mrr == doctest::Approx(0.3217).epsilon(0.001));
  CHECK(click_ranking(Floats{1}, Floats{1, 1}).auc == doctest::Approx(0.5));
}

TEST_CASE("rankings: lists without two sides are counted and left out; no number is an error") {
  ClickRankingMeter meter;
  meter.add(Floats{1}, Floats{0});
  meter.add(Floats{1}, {});
  meter.add({}, Floats{1});
  CHECK(meter.lists() == 1);
  CHECK(meter.left_out() == 2);
  CHECK(meter.mean().auc == 1);
  CHECK_THROWS_AS(ClickRankingMeter().mean(), Error);
  CHECK_THROWS_AS(click_ranking(Floats{NAN}, Floats{0}), Error);
}

TEST_CASE("negatives: without repeats while there are enough, then all of them again") {
  const Ints passed = {10, 11, 12, 13, 14, 15};
  std::set<Ints> seen;
  for (std::uint64_t example = 0; example < 50; ++example) {
    const Ints drawn = draw_negatives(passed, 4, {1, 2, 3}, example);
    CHECK(drawn == draw_negatives(passed, 4, {1, 2, 3}, example));
    CHECK(std::set(drawn.begin(), drawn.end()).size() == 4);
    for (const std::int32_t one : drawn) CHECK((one >= 10 && one <= 15));
    seen.insert(drawn);
  }
  CHECK(seen.size() > 30);
  const Ints few = draw_negatives(Ints{7, 8}, 5, {1, 2, 3}, 0);
  CHECK(few.size() == 5);
  CHECK(std::ranges::count(few, 7) >= 2);
  CHECK(std::ranges::count(few, 8) >= 2);
}

TEST_CASE("recommender: gradients of all parameters; padding changes nothing") {
  const TransformerConfig config = test::tiny_config();
  RecommenderConfig sizes;
  sizes.identities = 3;
  sizes.categories = 2;
  sizes.max_history = 4;
  NewsRecommender model(config, sizes);
  model.to(DType::f64, {});
  NewsInput input;
  input.titles = pad_tokens(std::vector<Tokens>{{4, 5, 6}, {7, 8}});
  input.title_rows = Tensor::from(Ints{0, -1, 1, -1}, {4});
  input.identities = Tensor::from(Ints{1, 3, 0, 0}, {4});
  input.categories = Tensor::from(Ints{1, -1, 0, 0}, {4});
  const Tensor candidates = Tensor::from(Ints{1, 2, 3, 4, 3, 1}, {2, 3});
  const ClickInput clicks{
      pad_tokens(std::vector<Tokens>{{NewsRecommender::anyone, 2, 4}, {NewsRecommender::anyone}}),
      candidates};
  const auto result = test::gradcheck_parameters(model, [&] {
    Context context = Context::inference();
    return model.loss(input, clicks, 0, context).sum;
  });
  CHECK_MESSAGE(result.passed, result.worst_error);

  Context context = Context::inference();
  const Tensor table = model.table(model.news(input, context));
  const auto scores = [&](const std::vector<Tokens>& histories, const Tensor& shown) {
    return model.scores(model.users(table, pad_tokens(histories), context), table, shown).to_doubles();
  };
  const auto together = scores({{0, 2, 4}, {0}}, candidates);
  const auto alone = scores({{0}}, Tensor::from(Ints{4, 3, 1, -1}, {1, 4}));
  for (std::size_t i = 0; i < 3; ++i) CHECK(alone[i] == doctest::Approx(together[3 + i]));
  CHECK(alone[3] == 0);
}

TEST_CASE("recommender: users are pooled as the configuration says") {
  std::set<Doubles> scores;
  for (const char* pooling : {"mean", "max", "attention"}) {
    TransformerConfig config = test::tiny_config();
    config.pooling = pooling;
    RecommenderConfig sizes;
    sizes.titles = false;
    sizes.identities = 3;
    NewsRecommender model(config, sizes);
    Context context = Context::inference();
    NewsInput input;
    input.identities = Tensor::from(Ints{1, 2, 3}, {3});
    const Tensor table = model.table(model.news(input, context)),
                 users = model.users(table, pad_tokens(std::vector<Tokens>{{NewsRecommender::anyone, 1, 3}}),
                                     context);
    scores.insert(model.scores(users, table, Tensor::from(Ints{1, 2, 3}, {1, 3})).to_doubles());
  }
  CHECK(scores.size() == 3);
}

TEST_CASE("recommend: learns what users like, which popularity does not know") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  const ProgramResult trained =
      run_program("recommend", {"train", "--out", run, "--steps", "150", "--set", "threads=1", "--set",
                                "data.impressions=1500", "--set", "model.width=16", "--set",
                                "training.evaluate_every=75"});
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  const ProgramResult measured = run_program("recommend", {"evaluate", "--run", run, "--part", "test"});
  REQUIRE_MESSAGE(measured.status == 0, measured.errors);
  const Json json = Json::parse(measured.output);
  CHECK(json["auc"].get<double>() > 0.65);
  CHECK(json["popularity"]["auc"].get<double>() < 0.6);
  CHECK(json["impressions"] == 150);
}

TEST_CASE("recommend: MIND's files, with all that is odd in them") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder / name).string(); };
  std::string rows, titles;
  for (int i = 0; i < 60; ++i) {
    rows += concat_text(i, "\tU\t11/", 1 + i % 20, "/2019 5:53:12 AM\t", i % 5 == 0 ? "" : "N1 N2 N3 N9",
                        "\tN", 4 + i % 4, "-1 N", 8 + i % 4, "-0\n");
  }
  rows += "60\tU\t11/1/2019 5:53:12 AM\tN1\tN2-1\n61\tU\t11/1/2019 5:53:12 AM\tN1\tN2-0\n";
  for (int i = 1; i < 7; ++i)
    titles += concat_text("N", i, "\tnews\tworld\ttitle of ", i, "\t\thttps://a\t[]\t[]\n");
  write_content(file("behaviors.tsv"), rows);
  write_content(file("news.tsv"), titles);
  write_content(file("more.tsv"), "N77\tnews\tworld\ttitle of 4\t\thttps://a\t[]\t[]\n");
  const Arguments train =
      small_train("recommend", file("run"), {"--data", file("behaviors.tsv"), "--set", "user.max_history=3"});
  const ProgramResult trained = run_program("recommend", joined(train, {"--news", file("news.tsv")}));
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  CHECK(contains(trained.errors, "2 impressions have no clicks or only clicks"));
  CHECK(contains(trained.errors, "histories are empty"));
  CHECK(contains(trained.errors, "longer than user.max_history = 3"));
  CHECK(contains(trained.errors, "have no title in data.news"));

  const Arguments predict = {"predict", "--run", file("run"), "--json"};
  const ProgramResult answers =
      run_program("recommend", predict, "N1 N2\tN5 N77 N4\n\n\tN4\nN1\nN1\t\n\tN4\tN5\n");
  CHECK(answers.status == 1);
  std::istringstream lines(answers.output);
  std::vector<Json> answer;
  for (std::string line; std::getline(lines, line);) answer.push_back(Json::parse(line));
  REQUIRE(answer.size() == 6);
  REQUIRE(answer[0]["alternatives"].size() == 3);
  CHECK(answer[0]["alternatives"][0]["score"] >= answer[0]["alternatives"][2]["score"]);
  CHECK(answer[0]["news"].get<std::string>().starts_with(
      answer[0]["alternatives"][0]["news"].get<std::string>()));
  CHECK(contains(answer[1]["error"], "blank"));
  CHECK(answer[2]["news"] == "N4");
  for (const std::size_t wrong : {3u, 4u, 5u}) CHECK(contains(answer[wrong]["error"], "a tab"));
  CHECK(contains(answers.errors, "1 news items are unknown to the run (such as N77)"));
  const ProgramResult informed =
      run_program("recommend", joined(predict, {"--news", file("more.tsv")}), "N1 N2\tN5 N77\n");
  CHECK(informed.status == 0);
  CHECK(!contains(informed.errors, "unknown"));

  const ProgramResult inside = run_program(
      "recommend", {"predict", "--run", file("run"), "--capture", file("inside.safetensors")}, "N1 N9\tN5\n");
  REQUIRE_MESSAGE(inside.status == 0, inside.errors);
  const TensorFile shown = load_safetensors(file("inside.safetensors"));
  CHECK(shown.tensors.contains("lines.0.user_encoder.layers.0.attention.weights"));
  CHECK(shown.tensors.contains("news.N5.title.encoder.layers.0.attention.weights"));

  const auto refused = [&](const Arguments& more, int status, const std::string& says) {
    const ProgramResult result =
        run_program("recommend", joined(small_train("recommend", file("other")), more));
    CAPTURE(result.errors);
    CHECK(result.status == status);
    CHECK(contains(result.errors, says));
    CHECK(!std::filesystem::exists(file("other")));
  };
  refused({"--news", file("news.tsv")}, 2, "--data");
  refused({"--data", file("behaviors.tsv"), "--set", "news.represented_by=title"}, 2, "--news");
  refused({"--data", file("news.tsv")}, 1, "8 columns");
  const ProgramResult bare = run_program(
      "recommend", small_train("recommend", file("bare"), {"--data", file("behaviors.tsv"), "--steps", "3"}));
  CHECK_MESSAGE(bare.status == 0, bare.errors);
  CHECK(run_program("recommend", {"evaluate", "--run", file("bare"), "--news", file("news.tsv")}).status ==
        0);
  refused({"--data", file("behaviors.tsv"), "--news", file("behaviors.tsv")}, 1, "5 columns");
  write_content(file("clicks"), "1\tU\t11/1/2019 5:53:12 AM\tN1\tN2-1\n");
  refused({"--data", file("clicks"), "--valid-fraction", "0", "--test-fraction", "0"}, 1, "nothing to learn");
}

TEST_CASE("recommend: every way to represent news trains and answers") {
  for (const char* by : {"title", "id", "both"}) {
    CAPTURE(by);
    const TemporaryFolder folder;
    const std::string run = (folder / "run").string();
    const ProgramResult trained = run_program(
        "recommend", small_train("recommend", run,
                                 {"--steps", "4", "--set", std::string("news.represented_by=") + by, "--set",
                                  "news.category=false", "--set", "user.layers=2"}));
    REQUIRE_MESSAGE(trained.status == 0, trained.errors);
    const ProgramResult answers =
        run_program("recommend", {"predict", "--run", run}, small_line("recommend") + "\t\n");
    CHECK(contains(answers.output, "N255"));
    const ProgramResult fixed =
        run_program("recommend", {"evaluate", "--run", run, "--set", "user.max_history=3"});
    CHECK(fixed.status == 2);
  }
}
