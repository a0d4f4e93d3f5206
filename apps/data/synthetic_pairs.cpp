#include "heed/apps/data/synthetic_pairs.h"

#include <array>
#include <string_view>
#include <utility>

#include "heed/apps/data/synthetic_texts.h"
#include "heed/base/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

constexpr std::array<const char*, 20> english_small = {
    "zero",     "one",     "two",     "three",     "four",     "five",    "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array<const char*, 10> english_tens = {"",      "",      "twenty",  "thirty", "forty",
                                                      "fifty", "sixty", "seventy", "eighty", "ninety"};
constexpr std::array<const char*, 20> german_small = {
    "null",     "ein",      "zwei",     "drei",     "vier",     "fünf",    "sechs",
    "sieben",   "acht",     "neun",     "zehn",     "elf",      "zwölf",   "dreizehn",
    "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
constexpr std::array<const char*, 10> german_tens = {"",        "",        "zwanzig", "dreißig", "vierzig",
                                                     "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};

std::string english_below_thousand(int n) {
  if (n >= 100) {
    const std::string hundreds = std::string(english_small[static_cast<std::size_t>(n / 100)]) + " hundred";
    return n % 100 == 0 ? hundreds : hundreds + " " + english_below_thousand(n % 100);
  }
  if (n < 20) return english_small[static_cast<std::size_t>(n)];
  const std::string tens = english_tens[static_cast<std::size_t>(n / 10)];
  return n % 10 == 0 ? tens : tens + "-" + english_small[static_cast<std::size_t>(n % 10)];
}

std::string german_below_hundred(int n) {
  if (n < 20) return german_small[static_cast<std::size_t>(n)];
  const std::string tens = german_tens[static_cast<std::size_t>(n / 10)];
  return n % 10 == 0 ? tens : std::string(german_small[static_cast<std::size_t>(n % 10)]) + "und" + tens;
}

/// `begins_word`: nothing precedes, so a single hundred goes without "ein".
std::string german_below_thousand(int n, bool begins_word) {
  std::string words;
  if (n >= 200 || (n >= 100 && !begins_word)) words = german_small[static_cast<std::size_t>(n / 100)];
  if (n >= 100) words += "hundert";
  return n % 100 == 0 ? words : words + german_below_hundred(n % 100);
}

void check_range(std::int32_t number) {
  check(number >= 0 && number < number_words_end, "number words go from 0 to 999999, not to ", number);
}

/// Draws distinct numbers with 3 to 6 digits, one at a time.
class NumberDraw {
 public:
  explicit NumberDraw(std::uint64_t seed) : draws_({seed, 0, 0}), taken_(number_words_end, false) {}

  std::int32_t next() {
    while (true) {
      const std::size_t length = draws_.below(left_.size());
      if (left_[length] == 0) continue;
      std::int32_t number = first_[length] + draws_.below(first_[length] * 9);
      if (draws_.below(8) == 0) {  // by chance alone, numbers such as 100,000 would be very rare
        std::int32_t unit = 10;
        for (std::size_t zeros = draws_.below(length + 2); zeros > 0; --zeros) unit *= 10;
        number -= number % unit;
      }
      if (taken_[static_cast<std::size_t>(number)]) continue;
      taken_[static_cast<std::size_t>(number)] = true;
      --left_[length];
      return number;
    }
  }

 private:
  Draws draws_;
  std::vector<bool> taken_;
  std::array<std::int32_t, 4> first_ = {100, 1000, 10'000, 100'000};  // the smallest number of each length
  std::array<std::int32_t, 4> left_ = {900, 9000, 90'000, 900'000};   // numbers of each length left to draw
};

}  // namespace

std::string english_number(std::int32_t number) {
  check_range(number);
  if (number < 1000) return english_below_thousand(number);
  const std::string thousands = english_below_thousand(number / 1000) + " thousand";
  return number % 1000 == 0 ? thousands : thousands + " " + english_below_thousand(number % 1000);
}

std::string german_number(std::int32_t number) {
  check_range(number);
  if (number == 0) return german_small[0];
  std::string words;
  if (number >= 2000) words = german_below_thousand(number / 1000, true);
  if (number >= 1000) words += "tausend";
  words += german_below_thousand(number % 1000, words.empty());
  return number % 100 == 1 ? words + "s" : words;  // "ein" at the very end is "eins"
}

NumberSets draw_numbers(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count) {
  check(train_count >= 100 && held_out_count >= 0, "the training set needs the 100 smallest numbers, but ",
        train_count, " are asked for");
  check(checked_sum("numbers", train_count, held_out_count) <= number_words_end, train_count, " and ",
        held_out_count, " numbers are more than the ", number_words_end, " there are");
  NumberSets sets;
  NumberDraw draw(seed);
  for (std::int64_t i = 0; i < held_out_count; ++i) sets.held_out.push_back(draw.next());
  for (std::int32_t number = 0; number < 100; ++number) sets.train.push_back(number);
  for (std::int64_t i = 100; i < train_count; ++i) sets.train.push_back(draw.next());
  return sets;
}

ParallelText number_words(std::span<const std::int32_t> numbers) {
  ParallelText text;
  for (const std::int32_t number : numbers) {
    text.source.push_back(english_number(number));
    text.target.push_back(german_number(number));
  }
  return text;
}

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

/// The form in the headline, and the form in the report, which is also the participle.
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

  std::pair<std::string, std::string> write() {
    const std::string_view who = draws_.pick(professions);
    std::string_view whom = who, other = who;
    while (whom == who) whom = draws_.pick(professions);
    while (other == who || other == whom) other = draws_.pick(professions);
    const HeadlineVerb verb = draws_.pick(headline_verbs);
    const int order = draws_.below(3);  // of the event and the asides
    if (order != 0) aside(other);
    event(who, verb.past, whom);
    if (order != 1) aside(other);
    return {report_, concat_text(who, ' ', verb.present, ' ', whom)};
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
  const auto made = made_parts("reports", train_count, held_out_count, 1'000'000,
                               [&](std::uint32_t index) { return Reporter(seed, index).write(); });
  Reports reports;
  for (const auto& [items, text] :
       {std::pair{&made.train, &reports.train}, {&made.held_out, &reports.held_out}})
    for (const auto& [report, headline] : *items) {
      text->source.push_back(report);
      text->target.push_back(headline);
    }
  return reports;
}

namespace {

using EightWords = std::array<std::string_view, 8>;
constexpr EightWords people = {"emma", "oscar", "nora", "felix", "clara", "hugo", "greta", "anton"};
constexpr std::uint32_t answers = 5;

/// A kind of question about a person, and its answers.
struct QuestionKind {
  std::string_view ask, verb;
  std::array<std::string_view, 3> says;  // between the person and the thing
  EightWords things;
};
constexpr std::array<QuestionKind, 3> question_kinds = {
    {{"where is",
      "?",
      {"waits in the", "sleeps in the", "sings in the"},
      {"garden", "kitchen", "attic", "yard", "hall", "barn", "tower", "cellar"}},
     {"what does",
      "eat ?",
      {"eats some", "likes to eat", "has a plate of"},
      {"bread", "soup", "rice", "fish", "cake", "beans", "corn", "plums"}},
     {"how old is",
      "?",
      {"is now", "turned", "will soon be"},
      {"three", "seven", "nine", "twelve", "twenty", "thirty", "forty", "sixty"}}}};

/// Draws one question and its answers.
class AnswerWriter {
 public:
  AnswerWriter(std::uint64_t seed, std::uint32_t index) : draws_({seed, index, 0}) {}

  void write(LabelledText& text) {
    const std::size_t person = draws_.below(people.size()), topic = draws_.below(question_kinds.size()),
                      right = draws_.below(std::size_t{3});
    const std::string question =
        concat_text(question_kinds[topic].ask, ' ', people[person], ' ', question_kinds[topic].verb);
    const std::size_t first_right = draws_.below(answers);
    for (std::size_t i = 0; i < answers; ++i) {
      const bool is_right = (i + answers - first_right) % answers < right;
      const bool other_person = !is_right && draws_.below(2) == 0;
      const std::size_t who = other_person ? other(person, people.size()) : person;
      const std::size_t what = is_right || other_person ? topic : other(topic, question_kinds.size());
      text.add_pair(question, sentence(people[who], question_kinds[what]), is_right ? "1" : "0", "pair ",
                    text.size() + 1);
    }
  }

 private:
  std::size_t other(std::size_t one, std::size_t count) {
    return (one + 1 + draws_.below(count - 1)) % count;
  }
  std::string sentence(std::string_view person, const QuestionKind& topic) {
    const std::string_view says = draws_.pick(topic.says);
    return concat_text(person, ' ', says, ' ', draws_.pick(topic.things), " .");
  }

  Draws draws_;
};

}  // namespace

LabelledText draw_answer_pairs(std::uint64_t seed, std::int64_t questions) {
  check(questions >= 1 && questions <= 1'000'000, "draw_answer_pairs: count must be 1 to a million, not ",
        questions);
  LabelledText text;
  for (std::int64_t i = 0; i < questions; ++i) AnswerWriter(seed, static_cast<std::uint32_t>(i)).write(text);
  return text;
}

}  // namespace heed
