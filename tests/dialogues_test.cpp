// Dialogues, the small talk and the reports that are made by rule, and how varied answers are.

#include "heed/data/dialogues.h"

#include <doctest/doctest.h>

#include <set>

#include "heed/base/error.h"
#include "heed/data/pairs_by_rule.h"
#include "heed/training/text_metrics.h"

using namespace heed;

namespace {

std::string error_of(const std::string& bytes) {
  try {
    parse_dialogues(bytes, "f");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("dialogues: turns end in __eou__, and errors name file and line") {
  const std::vector<Dialogue> found =
      parse_dialogues("Hello . __eou__ Hi ! __eou__\r\n  one turn__eou__  \n", "f");
  CHECK(found == std::vector<Dialogue>{{"Hello .", "Hi !"}, {"one turn"}});
  CHECK(error_of("a __eou__ b __eou__\na __eou__ b\n") ==
        "f:2: the last turn has no __eou__ behind it; every turn ends in one");
  CHECK(error_of("no mark\n") == "f:1: the line has no __eou__ behind it; every turn ends in one");
  CHECK(error_of("a __eou__\n\nb __eou__\n") ==
        "f:2: the line is blank; expected a dialogue whose turns end in __eou__");
  CHECK(error_of("a __eou__ __eou__ b __eou__\n") == "f:1: turn 2 is empty");
  CHECK(error_of("") != "");
  CHECK(error_of("a \xff __eou__\n") != "");
}

TEST_CASE("dialogues: a line to answer may lack the last mark, and holds no empty turn") {
  CHECK(turns_of("a __eou__ b") == Dialogue{"a", "b"});
  CHECK(turns_of("a __eou__ __eou__b__eou__") == Dialogue{"a", "b"});
  CHECK(turns_of(" ").empty());
  CHECK(turns_of("__eou__").empty());
}

TEST_CASE("dialogues: every turn but the first is an answer to those before it") {
  const ParallelText pairs = answers_in({{"a", "b", "c", "d"}, {"alone"}, {"x", "y"}}, 2);
  CHECK(pairs.source == std::vector<std::string>{"a", "a__eou__b", "b__eou__c", "x"});
  CHECK(pairs.target == std::vector<std::string>{"b", "c", "d", "y"});
}

TEST_CASE("dialogues: small talk is the same every time, and what is held out is not learned") {
  const SmallTalk made = small_talk(1, 500, 50), again = small_talk(1, 500, 50);
  CHECK(made.train == again.train);
  CHECK(made.held_out == again.held_out);
  CHECK(made.train.size() == 500);
  const std::set<Dialogue> held_out(made.held_out.begin(), made.held_out.end());
  CHECK(held_out.size() == 50);
  for (const Dialogue& turns : made.train) {
    CHECK(!held_out.contains(turns));
    CHECK(turns.size() == 7);
  }
  CHECK(small_talk(2, 500, 50).train != made.train);
  CHECK_THROWS_AS(small_talk(1, 0, 1), Error);
  CHECK_THROWS_AS(small_talk(1, 1, 100'000), Error);
}

TEST_CASE("headlines: reports are the same every time, and their headline follows from them") {
  const Reports made = headline_reports(1, 500, 50), again = headline_reports(1, 500, 50);
  CHECK(made.train.source == again.train.source);
  const std::set<std::string> held_out(made.held_out.source.begin(), made.held_out.source.end());
  CHECK(held_out.size() == 50);
  for (std::size_t i = 0; i < made.train.size(); ++i) {
    const std::string report(made.train.source[i]);
    CHECK(!held_out.contains(report));
    const std::string headline(made.train.target[i]);
    const std::string who = headline.substr(0, headline.find(' ')),
                      whom = headline.substr(headline.rfind(' ') + 1);
    CAPTURE(report);
    CAPTURE(headline);
    const bool passive = report.find(" by the ") != std::string::npos;
    CHECK(report.find(who) != std::string::npos);
    CHECK((report.find(" " + who) < report.find(" " + whom)) == !passive);
  }
  CHECK_THROWS_AS(headline_reports(1, 0, 1), Error);
  CHECK_THROWS_AS(headline_reports(1, 1, 2'000'000), Error);
}

TEST_CASE("distinct runs of words over all of them") {
  const std::vector<std::string> texts = {"a b a", "a b."};
  CHECK(distinct_share(texts, 1) == doctest::Approx(3.0 / 6.0));  // a, b and the full stop
  CHECK(distinct_share(texts, 2) == doctest::Approx(3.0 / 4.0));  // a b, b a, b .
  CHECK(distinct_share(texts, 4) == 0);
  CHECK(distinct_share({}, 1) == 0);
}
