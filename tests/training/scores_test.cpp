// Scores of answers: BLEU, ROUGE, ranks of answers.

#include <nlohmann/json.hpp>

#include "heed/tests/support.h"
#include "heed/training/ranking.h"
#include "heed/training/text_metrics.h"

namespace {

BleuOptions options_of(const nlohmann::json& one) {
  BleuOptions options;
  options.lower_case = one["lower_case"].get<bool>();
  for (const BleuTokens tokens :
       {BleuTokens::none, BleuTokens::zh, BleuTokens::character, BleuTokens::international})
    if (one["tokens"] == name_of(tokens)) options.tokens = tokens;
  if (one["smoothing"] == "none") options.smoothing = BleuSmoothing::none;
  return options;
}

}  // namespace

TEST_CASE("BLEU equals sacreBLEU's score and counts") {
  const auto path = std::filesystem::path(HEED_SOURCE_DIR) / "tests/data/bleu/cases.json";
  const auto cases = nlohmann::json::parse(read_file(path));
  REQUIRE(cases.size() > 50);
  for (const auto& one : cases) {
    CAPTURE(one.dump());
    const auto bleu = corpus_bleu(one["hypotheses"].get<std::vector<std::string>>(),
                                  one["references"].get<std::vector<std::string>>(), options_of(one));
    CHECK(bleu.score == doctest::Approx(one["score"].get<double>()).epsilon(1e-10));
    CHECK(bleu.matches == one["matches"].get<std::array<std::int64_t, 4>>());
    CHECK(bleu.totals == one["totals"].get<std::array<std::int64_t, 4>>());
    CHECK(bleu.hypothesis_length == one["lengths"][0]);
    CHECK(bleu.reference_length == one["lengths"][1]);
    CHECK(bleu.brevity_penalty == doctest::Approx(one["penalty"].get<double>()).epsilon(1e-10));
    CHECK(bleu.signature.starts_with(one["signature"].get<std::string>() + "|version:heed-"));
  }
}

TEST_CASE("BLEU's tokens are those of mteval-v13a") {
  CHECK(bleu_tokenize("Hello, world.") == "Hello , world .");
  CHECK(bleu_tokenize("3.50 and 1,000, or 5-6") == "3.50 and 1,000 , or 5 - 6");
  CHECK(bleu_tokenize("&quot;a&quot; &amp;lt; b") == "\" a \" < b");
  CHECK(bleu_tokenize("don't (stop) <skipped>now") == "don't ( stop ) now");
  CHECK(bleu_tokenize("wait...what") == "wait . . . what");
  CHECK(bleu_tokenize(" a \u00a0 b. ", BleuTokens::none) == "a b.");
  CHECK(bleu_tokenize("") == "");
}

TEST_CASE("BLEU's tokens suit the script of the references") {
  const auto name = [](const char* text) {
    const std::string reference = text;
    return name_of(bleu_tokens_for({&reference, 1}));
  };
  CHECK(name("") == "13a");
  CHECK(name("Der Hafen läge fünf Meilen östlich, 10 €") == "13a");
  CHECK(name("猫在 garden 花园里睡觉，很好") == "zh");
  CHECK(name("古い港は二つの丘の間にあります。") == "char");
  CHECK(name("แมวนอนในสวน") == "char");
  CHECK(name("Кошка спала в саду") == "intl");
  CHECK(name("القطة تنام في الحديقة") == "intl");
  CHECK(name("고양이가 정원에서") == "intl");
}

TEST_CASE("BLEU takes bytes that are not UTF-8 as parts of words") {
  const std::vector<std::string> lines = {"a \xff\xfe b c d"};
  CHECK(corpus_bleu(lines, lines).score == doctest::Approx(100));
}

TEST_CASE("BLEU refuses unequal and empty lists") {
  const std::vector<std::string> one = {"a"}, two = {"a", "b"};
  CHECK_THROWS_WITH_AS(corpus_bleu(one, two),
                       "BLEU compares line by line, but there are 1 hypotheses and 2 references", Error);
  CHECK_THROWS_AS(corpus_bleu({}, {}), Error);
}

namespace {

struct RougeCase {
  std::string text, reference;
  RougeScore plain, stemmed;
};

/// The figures are those of rouge-score 0.1.2.
const std::vector<RougeCase> rouge_cases = {
    {"The cats were running in the garden",
     "A cat runs in a garden",
     {0.307692, 0.000000, 0.307692},
     {0.615385, 0.181818, 0.615385}},
    {"police kill the gunman",
     "police killed the gunman",
     {0.750000, 0.333333, 0.750000},
     {1.000000, 1.000000, 1.000000}},
    {"the gunman kill police",
     "police killed the gunman",
     {0.750000, 0.333333, 0.500000},
     {1.000000, 0.333333, 0.500000}},
    {"gunman gunman gunman", "the gunman", {0.400000, 0.000000, 0.400000}, {0.400000, 0.000000, 0.400000}},
    {"Oil prices rise, again!",
     "Oil prices' rising: AGAIN",
     {0.750000, 0.333333, 0.750000},
     {1.000000, 1.000000, 1.000000}},
    {"", "nothing here", {0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}},
    {"...", "!!!", {0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}},
    {"one", "one", {1.000000, 0.000000, 1.000000}, {1.000000, 0.000000, 1.000000}},
    {"U.S. stocks fell 3.5% on Friday",
     "Stocks in the U.S. fall 3.5 percent",
     {0.588235, 0.266667, 0.470588},
     {0.588235, 0.266667, 0.470588}},
    {"Skies are dying; news of happiness",
     "the sky died, new happy news",
     {0.166667, 0.000000, 0.166667},
     {0.666667, 0.000000, 0.500000}},
    {"caf\u00e9 na\u00efve", "cafe naive", {0.000000, 0.000000, 0.000000}, {0.000000, 0.000000, 0.000000}},
    {"relational conditioning of the operators",
     "relate condition operator",
     {0.000000, 0.000000, 0.000000},
     {0.750000, 0.333333, 0.750000}},
    {"\u212aelvin of \u0130stanbul",
     "kelvin of istanbul",
     {0.571429, 0.400000, 0.571429},
     {0.571429, 0.400000, 0.571429}},
    {"a b c d e f g", "a c e g b d f", {1.000000, 0.000000, 0.571429}, {1.000000, 0.000000, 0.571429}},
};

void check_equal(const RougeScore& found, const RougeScore& expected) {
  CHECK(found.rouge1 == doctest::Approx(expected.rouge1).epsilon(1e-5));
  CHECK(found.rouge2 == doctest::Approx(expected.rouge2).epsilon(1e-5));
  CHECK(found.rougeL == doctest::Approx(expected.rougeL).epsilon(1e-5));
}

}  // namespace

TEST_CASE("ROUGE equals rouge-score 0.1.2, with and without stemming") {
  for (const RougeCase& one : rouge_cases) {
    CAPTURE(one.text);
    check_equal(rouge(one.text, one.reference, false), one.plain);
    check_equal(rouge(one.text, one.reference, true), one.stemmed);
  }
}

TEST_CASE("ROUGE reads the letters of every script") {
  const std::vector<std::pair<std::string, std::string>> same = {
      {"Кошка спала в саду", "кошка спала в саду."},
      {"η γάτα κοιμάται", "Η ΓΆΤΑ ΚΟΙΜΆΤΑΙ"},
      {"القطة تنام في الحديقة", "القطة تنام، في الحديقة"},
      {"बिल्ली बगीचे में", "बिल्ली बगीचे में।"},
      {"고양이가 정원에서", "고양이가, 정원에서"},
      {"猫在花园里睡觉", "猫在花园里睡觉。"},
      {"แมวนอนในสวน", "แมวนอนในสวน"},
      {"Été à la plage", "été, à la plage!"}};
  for (const auto& [text, reference] : same) {
    CAPTURE(text);
    check_equal(rouge(text, reference, true), {1, 1, 1});
  }
  // Words apart by one; where no spaces stand between words, characters apart by one.
  check_equal(rouge("кошка спала в доме", "кошка спала в саду", true), {0.75, 2.0 / 3, 0.75});
  check_equal(rouge("猫在家", "猫在园", false), {2.0 / 3, 0.5, 2.0 / 3});
  CHECK(rouge("мир", "война", true).rouge1 == 0);
  // A word keeps its marks, and those of other scripts beside it.
  CHECK(rouge("naïve", "nave", true).rouge1 == 0);
  CHECK(mean_rouge(std::vector<std::string>{"cafe au lait", "мир"},
                   std::vector<std::string>{"café au lait", "мир"}, true)
            .rouge1 == doctest::Approx((2.0 / 3 + 1) / 2));
}

TEST_CASE("ROUGE of many pairs is their mean") {
  std::vector<std::string> texts, references;
  RougeScore sum;
  for (const RougeCase& one : rouge_cases) {
    texts.push_back(one.text);
    references.push_back(one.reference);
    sum.rouge1 += one.stemmed.rouge1;
    sum.rouge2 += one.stemmed.rouge2;
    sum.rougeL += one.stemmed.rougeL;
  }
  const auto count = static_cast<double>(rouge_cases.size());
  check_equal(mean_rouge(texts, references, true),
              {sum.rouge1 / count, sum.rouge2 / count, sum.rougeL / count});
  texts.pop_back();
  CHECK_ERROR(mean_rouge(texts, references, true), "as many");
  CHECK_THROWS_AS(mean_rouge({}, {}, true), Error);
}

TEST_CASE("Porter's stems are those of NLTK's default mode") {
  // Words that pass each step and each departure from the paper, each with its stem.
  std::istringstream pairs(
      "a a is is caresses caress ponies poni ties tie cats cat caress caress feed feed "
      "agreed agre plastered plaster bled bled motoring motor sing sing conflated conflat "
      "troubled troubl sized size hopping hop falling fall hissing hiss fizzed fizz failing "
      "fail filing file happy happi enjoy enjoy spy spi fly fli try tri dying die skies "
      "sky news news innings inning succeed succeed died die spied spi relational relat "
      "conditional condit rational ration valenci valenc hesitanci hesit digitizer digit "
      "conformabli conform radicalli radic differentli differ vileli vile analogousli analog "
      "vietnamization vietnam predication predic operator oper feudalism feudal decisiveness "
      "decis hopefulness hope callousness callous formaliti formal sensitiviti sensit "
      "sensibiliti sensibl hopefulli hope geologi geolog triplicate triplic formative form "
      "formalize formal electriciti electr electrical electr hopeful hope goodness good "
      "revival reviv allowance allow inference infer airliner airlin gyroscopic gyroscop "
      "adjustable adjust defensible defens irritant irrit replacement replac adjustment adjust "
      "dependent depend adoption adopt homologous homolog communism commun activate activ "
      "angulariti angular effective effect bowdlerize bowdler probate probat rate rate cease "
      "ceas controll control roll roll syzygy syzygi yyyy yyyi 2004s 2004 owed owe using "
      "use aged age");
  for (std::string word, stem; pairs >> word >> stem;) {
    CAPTURE(word);
    CHECK(porter_stem(word) == stem);
  }
}

// --- MAP and MRR, against cases worked out by hand.

TEST_CASE("Answers are ranked by score within their group") {
  // Ranks of the right answers: group 0: 1 and 3 of 4; group 1: 2 of 2; group 2: none; group 3: only right
  // ones.
  const std::vector<std::size_t> groups = {0, 0, 0, 0, 1, 1, 2, 2, 3, 3};
  const Floats scores = {0.9F, 0.5F, 0.1F, 0.7F, -1, -2, 5, 6, 0.3F, 0.2F};
  const std::vector<bool> right = {true, true, false, false, false, true, false, false, true, true};
  const AnswerRanking ranking = rank_answers(groups, scores, right);
  CHECK(ranking.map == doctest::Approx(((1.0 + 2.0 / 3) / 2 + 0.5 + 1.0) / 3));
  CHECK(ranking.mrr == doctest::Approx((1.0 + 0.5 + 1.0) / 3));
  CHECK(ranking.groups == 3);
  CHECK(ranking.only_right == 1);
  CHECK(ranking.without_right == 1);
}

TEST_CASE("Among equal scores the wrong answer ranks first, whatever the order of the data") {
  const std::vector<std::size_t> groups = {0, 0, 0};
  const Floats scores = {1, 1, 1};
  CHECK(rank_answers(groups, scores, {true, false, false}).mrr == doctest::Approx(1.0 / 3));
  CHECK(rank_answers(groups, scores, {false, false, true}).map == doctest::Approx(1.0 / 3));
  CHECK(rank_answers(groups, scores, {true, false, true}).map == doctest::Approx((1.0 / 2 + 2.0 / 3) / 2));
}

TEST_CASE("A rank is the mean over all orders of equal scores, and NaN is last") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto check_rank = [](const Floats& scores, std::size_t own, double reciprocal, double first) {
    const ExpectedRank rank = expected_rank(scores, own);
    CHECK(rank.reciprocal == doctest::Approx(reciprocal));
    CHECK(rank.first == doctest::Approx(first));
  };
  check_rank({3, 1, 2}, 0, 1, 1);
  check_rank({3, 1, 2}, 1, 1.0 / 3, 0);
  check_rank({1, 1, 1, 1}, 2, (1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4) / 4, 0.25);
  check_rank({2, 1, 1}, 1, (1.0 / 2 + 1.0 / 3) / 2, 0);
  check_rank({nan, 1, -1}, 0, 1.0 / 3, 0);
  check_rank({nan, nan}, 1, 0.75, 0.5);
  check_rank({nan, 1, nan}, 1, 1, 1);
  CHECK_THROWS_AS(expected_rank({}, 0), Error);
}

TEST_CASE("Empty lists, lists of different lengths and scores that are not numbers cannot be ranked") {
  const AnswerRanking none = rank_answers({}, {}, {});
  CHECK(none.groups == 0);
  CHECK(none.map == 0);
  const std::vector<std::size_t> groups = {0, 0};
  const Floats scores = {1, std::numeric_limits<float>::quiet_NaN()};
  CHECK_THROWS_AS(rank_answers(groups, scores, {true, false}), Error);
  CHECK_THROWS_AS(rank_answers(groups, scores, {true}), Error);
}
