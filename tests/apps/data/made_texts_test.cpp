// Texts made by rule: sentences that agree, numbers in words.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "heed/apps/data/synthetic.h"
#include "heed/base/error.h"

using namespace heed;

TEST_CASE("Every generated sentence follows the rule") {
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::string sentence = agreement_sentence(7, i);
    CAPTURE(sentence);
    CHECK(follows_agreement(sentence));
  }
}

TEST_CASE("The reader tells right from wrong") {
  for (const char* right :
       {"the cat sleeps.", "these small dogs run.", "a cat near two dogs sings.",
        "the dogs near a goat sing.", "every small cat that these dogs follow sleeps.",
        "some cats that see the tiger wait.", "this duck that sees some wild turtles plays.",
        "one cat and one dog are two animals.", "nine tigers and nine ducks are eighteen animals."}) {
    CAPTURE(right);
    CHECK(follows_agreement(right));
  }
  const std::string wrong_ones =
      ".|the cat sleep.|these dog run.|a cats sleeps.|every cats sleep.|the cat sleeps|the cat  sleeps.|"
      " the cat sleeps.|the cat sleeps. |the cat near two dogs sing.|the cat that sleeps runs.|"
      "every cat that these dogs follows sleeps.|every cat that these dogs follow sleep.|"
      "some cats that sees the tiger wait.|the cat sees the dog.|one cats and one dog are two animals.|"
      "one cat and two dogs are four animals.|one cat and two dog are three animals.|"
      "ten cats and one dog are eleven animals.|zero cats and one dog are one animals.|"
      "the small brown cat sleeps.|the cat near a dog near a goat sleeps.|The cat sleeps.|the cat sleepss.";
  std::istringstream all(wrong_ones + "||");
  for (std::string wrong; std::getline(all, wrong, '|');) {
    CAPTURE(wrong);
    CHECK(!follows_agreement(wrong));
  }
}

TEST_CASE("A wrong verb is noticed in every sentence with one") {
  int changed = 0;
  for (std::uint32_t i = 0; i < 300; ++i) {
    std::string sentence = agreement_sentence(1, i);
    if (sentence.ends_with("animals.")) continue;
    ++changed;
    const std::size_t end = sentence.size() - 1;
    if (sentence[end - 1] == 's')
      sentence.erase(end - 1, 1);
    else
      sentence.insert(end, "s");
    CAPTURE(sentence);
    CHECK(!follows_agreement(sentence));
  }
  CHECK(changed > 200);
}

TEST_CASE("A text is a function of its arguments, and what is held out is not learned") {
  const AgreementText text = agreement_text(1, 3000, 200), again = agreement_text(1, 3000, 200);
  CHECK(text.train == again.train);
  CHECK(text.held_out == again.held_out);
  CHECK(agreement_text(2, 3000, 200).train != text.train);
  CHECK(text.train.size() == 3000);
  const std::set<std::string> held_out(text.held_out.begin(), text.held_out.end());
  CHECK(held_out.size() == 200);
  for (const std::string& sentence : text.train) CHECK(!held_out.contains(sentence));
  int sums = 0;
  for (const std::string& sentence : text.train) sums += sentence.ends_with("animals.") ? 1 : 0;
  CHECK(sums > 600);
  CHECK(sums < 900);
  CHECK_THROWS_AS(agreement_text(1, 0, 10), Error);
  CHECK_THROWS_AS(agreement_text(1, 10, -1), Error);
}

TEST_CASE("Number words follow the rules of both languages") {
  struct Row {
    std::int32_t number;
    const char *english, *german;
  };
  const Row rows[] = {
      {0, "zero", "null"},
      {1, "one", "eins"},
      {11, "eleven", "elf"},
      {17, "seventeen", "siebzehn"},
      {21, "twenty-one", "einundzwanzig"},
      {30, "thirty", "dreißig"},
      {100, "one hundred", "hundert"},
      {101, "one hundred one", "hunderteins"},
      {121, "one hundred twenty-one", "hunderteinundzwanzig"},
      {1000, "one thousand", "tausend"},
      {2101, "two thousand one hundred one", "zweitausendeinhunderteins"},
      {100000, "one hundred thousand", "hunderttausend"},
      {101000, "one hundred one thousand", "hunderteintausend"},
      {345678, "three hundred forty-five thousand six hundred seventy-eight",
       "dreihundertfünfundvierzigtausendsechshundertachtundsiebzig"},
      {999999, "nine hundred ninety-nine thousand nine hundred ninety-nine",
       "neunhundertneunundneunzigtausendneunhundertneunundneunzig"},
  };
  for (const Row& row : rows) {
    CHECK(english_number(row.number) == row.english);
    CHECK(german_number(row.number) == row.german);
  }
  CHECK_THROWS_WITH_AS(english_number(-1), "number words go from 0 to 999999, not to -1", Error);
  CHECK_THROWS_AS(german_number(number_words_end), Error);
}

TEST_CASE("Different numbers have different words") {
  std::set<std::string> english, german;
  for (std::int32_t number = 0; number < number_words_end; number += number < 20'000 ? 1 : 97) {
    CHECK(english.insert(english_number(number)).second);
    CHECK(german.insert(german_number(number)).second);
  }
}

TEST_CASE("Drawn numbers are distinct, of all lengths, and the same for the same seed") {
  const NumberSets sets = draw_numbers(5, 12'000, 1000);
  CHECK(sets.train.size() == 12'000);
  CHECK(sets.held_out.size() == 1000);
  std::set<std::int32_t> all(sets.train.begin(), sets.train.end());
  all.insert(sets.held_out.begin(), sets.held_out.end());
  CHECK(all.size() == 13'000);
  CHECK(*all.begin() == 0);
  CHECK(*all.rbegin() < number_words_end);
  for (std::int32_t number = 0; number < 100; ++number)
    CHECK(std::find(sets.train.begin(), sets.train.end(), number) != sets.train.end());
  for (std::int32_t first = 100; first < number_words_end; first *= 10) {
    const auto of_length = std::count_if(sets.held_out.begin(), sets.held_out.end(),
                                         [&](std::int32_t n) { return n >= first && n < 10 * first; });
    CHECK(of_length > 180);
    CHECK(of_length < 320);
  }
  CHECK(draw_numbers(5, 12'000, 1000).train == sets.train);
  CHECK(draw_numbers(6, 12'000, 1000).train != sets.train);
}

TEST_CASE("Sets that cannot be drawn are refused, and all others are drawn") {
  CHECK_THROWS_AS(draw_numbers(1, 99, 10), Error);
  CHECK_THROWS_AS(draw_numbers(1, 999'000, 1001), Error);
  CHECK_THROWS_AS(draw_numbers(1, std::numeric_limits<std::int64_t>::max(), 1), Error);
  CHECK(draw_numbers(1, 100, 0).train.size() == 100);
  CHECK(draw_numbers(1, 100, 0).held_out.empty());
}

TEST_CASE("Number words make parallel text") {
  const ParallelText text = number_words(std::vector<std::int32_t>{21, 100});
  CHECK(text.source == std::vector<std::string>{"twenty-one", "one hundred"});
  CHECK(text.target == std::vector<std::string>{"einundzwanzig", "hundert"});
}
