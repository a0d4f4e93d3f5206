#include "heed/data/headline_text.h"

#include <array>
#include <string_view>
#include <unordered_set>

#include "heed/core/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

using WordList = std::vector<std::string_view>;

const WordList professions = {"baker",   "miller", "tailor", "painter", "farmer", "doctor",
                              "teacher", "sailor", "hunter", "singer",  "dancer", "driver",
                              "mayor",   "judge",  "pilot",  "nurse"};
const WordList traits = {"young", "tired", "famous", "quiet", "tall", "clever"};
const WordList days = {"monday", "tuesday", "wednesday", "thursday", "friday"};
const WordList places = {"near the river", "in the old town", "behind the market", "at the harbour",
                         "on the bridge"};
const WordList weather = {"it rained", "the sun was out", "a cold wind blew", "nobody expected much"};
const WordList idle = {"slept", "waited", "was away", "had lunch"};

/// In the headline; in the report, where it is the participle, too.
struct HeadlineVerb {
  std::string_view present, past;
};
constexpr std::array<HeadlineVerb, 8> headline_verbs = {{{"helps", "helped"},
                                                         {"visits", "visited"},
                                                         {"thanks", "thanked"},
                                                         {"follows", "followed"},
                                                         {"calls", "called"},
                                                         {"pays", "paid"},
                                                         {"warns", "warned"},
                                                         {"invites", "invited"}}};

/// Writes one report and its headline, drawing at each choice.
class Reporter {
 public:
  Reporter(std::uint64_t seed, std::uint32_t index) : draws_({seed, index, 0}) {}

  void write(ParallelText& pairs) {
    const std::string_view who = draws_.pick(professions);
    std::string_view whom = who, other = who;
    while (whom == who) whom = draws_.pick(professions);
    while (other == who || other == whom) other = draws_.pick(professions);
    const HeadlineVerb verb = draws_.pick(headline_verbs);
    const int order = draws_.below(3);  // of the event and what does not matter
    if (order != 0) aside(other);
    event(who, verb.past, whom);
    if (order != 1) aside(other);
    pairs.source.push_back(report_);
    pairs.target.push_back(concat_text(who, ' ', verb.present, ' ', whom));
  }

 private:
  void say(std::string_view word) {
    if (!report_.empty()) report_ += ' ';
    report_ += word;
  }
  /// "the baker", "the famous baker"
  void someone(std::string_view person) {
    say("the");
    if (draws_.below(2) == 0) say(draws_.pick(traits));
    say(person);
  }

  void event(std::string_view who, std::string_view past, std::string_view whom) {
    if (draws_.below(2) == 0) {
      say(draws_.pick(places));
    } else {
      say("on");
      say(draws_.pick(days));
    }
    const bool passive = draws_.below(3) == 0;
    someone(passive ? whom : who);
    if (passive) say("was");
    say(past);
    if (passive) say("by");
    someone(passive ? who : whom);
    report_ += '.';
  }

  void aside(std::string_view other) {
    if (draws_.below(3) == 0) {
      say(draws_.pick(weather));
    } else {
      someone(other);
      say(draws_.pick(idle));
      if (draws_.below(2) == 0) say(draws_.pick(places));
    }
    report_ += '.';
  }

  Draws draws_;
  std::string report_;
};

}  // namespace

Reports headline_reports(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count) {
  constexpr std::int64_t most = 1'000'000;
  check(train_count >= 1 && held_out_count >= 1 && train_count <= most && held_out_count <= most,
        "between 1 and ", most, " reports can be made, not ", train_count, " to learn from and ",
        held_out_count, " to measure with");
  Reports reports;
  std::unordered_set<std::string> held_out;
  std::uint32_t index = 0;
  const auto add = [&](ParallelText& pairs, std::int64_t count, bool to_learn) {
    while (static_cast<std::int64_t>(pairs.size()) < count) {
      Reporter(seed, index++).write(pairs);
      const bool known = to_learn ? held_out.contains(std::string(pairs.source.back()))
                                  : !held_out.emplace(pairs.source.back()).second;
      if (!known) continue;
      pairs.source.pop_back();
      pairs.target.pop_back();
    }
  };
  add(reports.held_out, held_out_count, false);
  add(reports.train, train_count, true);
  return reports;
}

}  // namespace heed
