#include "heed/data/texts_by_rule.h"

#include <doctest/doctest.h>

#include <set>

#include "heed/base/error.h"

using namespace heed;

TEST_CASE("Every sentence that is made follows the rule") {
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
  for (const char* wrong : {"",
                            ".",
                            "the cat sleep.",
                            "these dog run.",
                            "a cats sleeps.",
                            "every cats sleep.",
                            "the cat sleeps",
                            "the cat  sleeps.",
                            " the cat sleeps.",
                            "the cat sleeps. ",
                            "the cat near two dogs sing.",
                            "every cat that these dogs follows sleeps.",
                            "every cat that these dogs follow sleep.",
                            "some cats that sees the tiger wait.",
                            "the cat that sleeps runs.",
                            "the cat sees the dog.",
                            "one cats and one dog are two animals.",
                            "one cat and two dogs are four animals.",
                            "one cat and two dog are three animals.",
                            "ten cats and one dog are eleven animals.",
                            "zero cats and one dog are one animals.",
                            "the small brown cat sleeps.",
                            "the cat near a dog near a goat sleeps.",
                            "The cat sleeps.",
                            "the cat sleepss."}) {
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
