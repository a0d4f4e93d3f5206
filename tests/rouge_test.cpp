#include "heed/training/text_metrics.h"

#include <doctest/doctest.h>

#include <utility>

#include "heed/base/error.h"

using namespace heed;

namespace {

struct Case {
  std::string text, reference;
  RougeScore plain, stemmed;
};

/// The figures are those of rouge-score 0.1.2.
const std::vector<Case> cases = {
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
  for (const Case& one : cases) {
    CAPTURE(one.text);
    check_equal(rouge(one.text, one.reference, false), one.plain);
    check_equal(rouge(one.text, one.reference, true), one.stemmed);
  }
}

TEST_CASE("ROUGE of many pairs is their mean") {
  std::vector<std::string> texts, references;
  RougeScore sum;
  for (const Case& one : cases) {
    texts.push_back(one.text);
    references.push_back(one.reference);
    sum.rouge1 += one.stemmed.rouge1;
    sum.rouge2 += one.stemmed.rouge2;
    sum.rougeL += one.stemmed.rougeL;
  }
  const auto count = static_cast<double>(cases.size());
  check_equal(mean_rouge(texts, references, true),
              {sum.rouge1 / count, sum.rouge2 / count, sum.rougeL / count});
  texts.pop_back();
  CHECK_THROWS_WITH_AS(mean_rouge(texts, references, true), doctest::Contains("as many"), Error);
  CHECK_THROWS_AS(mean_rouge({}, {}, true), Error);
}

TEST_CASE("Porter's stems are those of NLTK's default mode") {
  // Words that pass each step and each departure from the paper.
  const std::vector<std::pair<std::string, std::string>> stems = {
      {"a", "a"},
      {"is", "is"},
      {"caresses", "caress"},
      {"ponies", "poni"},
      {"ties", "tie"},
      {"cats", "cat"},
      {"caress", "caress"},
      {"feed", "feed"},
      {"agreed", "agre"},
      {"plastered", "plaster"},
      {"bled", "bled"},
      {"motoring", "motor"},
      {"sing", "sing"},
      {"conflated", "conflat"},
      {"troubled", "troubl"},
      {"sized", "size"},
      {"hopping", "hop"},
      {"falling", "fall"},
      {"hissing", "hiss"},
      {"fizzed", "fizz"},
      {"failing", "fail"},
      {"filing", "file"},
      {"happy", "happi"},
      {"enjoy", "enjoy"},
      {"spy", "spi"},
      {"fly", "fli"},
      {"try", "tri"},
      {"dying", "die"},
      {"skies", "sky"},
      {"news", "news"},
      {"innings", "inning"},
      {"succeed", "succeed"},
      {"died", "die"},
      {"spied", "spi"},
      {"relational", "relat"},
      {"conditional", "condit"},
      {"rational", "ration"},
      {"valenci", "valenc"},
      {"hesitanci", "hesit"},
      {"digitizer", "digit"},
      {"conformabli", "conform"},
      {"radicalli", "radic"},
      {"differentli", "differ"},
      {"vileli", "vile"},
      {"analogousli", "analog"},
      {"vietnamization", "vietnam"},
      {"predication", "predic"},
      {"operator", "oper"},
      {"feudalism", "feudal"},
      {"decisiveness", "decis"},
      {"hopefulness", "hope"},
      {"callousness", "callous"},
      {"formaliti", "formal"},
      {"sensitiviti", "sensit"},
      {"sensibiliti", "sensibl"},
      {"hopefulli", "hope"},
      {"geologi", "geolog"},
      {"triplicate", "triplic"},
      {"formative", "form"},
      {"formalize", "formal"},
      {"electriciti", "electr"},
      {"electrical", "electr"},
      {"hopeful", "hope"},
      {"goodness", "good"},
      {"revival", "reviv"},
      {"allowance", "allow"},
      {"inference", "infer"},
      {"airliner", "airlin"},
      {"gyroscopic", "gyroscop"},
      {"adjustable", "adjust"},
      {"defensible", "defens"},
      {"irritant", "irrit"},
      {"replacement", "replac"},
      {"adjustment", "adjust"},
      {"dependent", "depend"},
      {"adoption", "adopt"},
      {"homologous", "homolog"},
      {"communism", "commun"},
      {"activate", "activ"},
      {"angulariti", "angular"},
      {"effective", "effect"},
      {"bowdlerize", "bowdler"},
      {"probate", "probat"},
      {"rate", "rate"},
      {"cease", "ceas"},
      {"controll", "control"},
      {"roll", "roll"},
      {"syzygy", "syzygi"},
      {"yyyy", "yyyi"},
      {"2004s", "2004"},
      {"owed", "owe"},
      {"using", "use"},
      {"aged", "age"},
  };
  for (const auto& [word, stem] : stems) {
    CAPTURE(word);
    CHECK(porter_stem(word) == stem);
  }
}
