#include "heed/apps/data/synthetic.h"

#include <algorithm>
#include <array>
#include <regex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

using WordList = std::vector<std::string_view>;

// No word begins with a vowel, so that "a" is always right; every noun and verb takes a plain "s".
const WordList nouns = {"cat", "dog", "horse", "bird", "goat", "duck", "rabbit", "turtle", "spider", "tiger"};
const WordList verbs = {"sleep", "run", "sing", "jump", "wait", "play"};  // without an object
const WordList seeing_verbs = {"see", "like", "follow", "greet"};         // with an object
const WordList adjectives = {"small", "brown", "quiet", "happy", "wild", "young"};
const WordList singular_determiners = {"a", "the", "every", "this"};
const WordList plural_determiners = {"the", "two", "some", "these"};
const WordList numbers = {"zero",     "one",     "two",     "three",     "four",    "five",   "six",
                          "seven",    "eight",   "nine",    "ten",       "eleven",  "twelve", "thirteen",
                          "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"};
constexpr std::uint32_t largest_count = 9;

/// Writes one sentence, drawing at each choice.
class AgreementWriter {
 public:
  AgreementWriter(std::uint64_t seed, std::uint32_t index) : draws_({seed, index, 0}) {}

  std::string sentence() {
    if (draws_.below(4) == 0) {
      sum();
    } else {
      agreement();
    }
    return text_ + ".";
  }

 private:
  void say(std::string_view word, bool with_s = false) {
    if (!text_.empty()) text_ += ' ';
    text_ += word;
    if (with_s) text_ += 's';
  }

  /// Writes "the small cats".
  void noun_phrase(bool plural) {
    say(draws_.pick(plural ? plural_determiners : singular_determiners));
    if (draws_.below(2) == 0) say(draws_.pick(adjectives));
    say(draws_.pick(nouns), plural);
  }

  void agreement() {
    const bool plural = draws_.below(2) == 1, other_plural = draws_.below(2) == 1;
    noun_phrase(plural);
    switch (draws_.below(4)) {
      case 0:
        say("near");
        noun_phrase(other_plural);
        break;
      case 1:
        say("that");
        say(draws_.pick(seeing_verbs), !plural);
        noun_phrase(other_plural);
        break;
      case 2:
        say("that");
        noun_phrase(other_plural);
        say(draws_.pick(seeing_verbs), !other_plural);
        break;
      default:
        break;
    }
    say(draws_.pick(verbs), !plural);
  }

  void sum() {
    const std::uint32_t first = draws_.below(largest_count) + 1, second = draws_.below(largest_count) + 1;
    counted(first);
    say("and");
    counted(second);
    say("are");
    say(numbers[first + second]);
    say("animals");
  }
  void counted(std::uint32_t count) {
    say(numbers[count]);
    say(draws_.pick(nouns), count > 1);
  }

  Draws draws_;
  std::string text_;
};

/// Returns a pattern of any of these words.
std::string any_of(const WordList& words) {
  std::string pattern;
  for (const std::string_view word : words) pattern.append(pattern.empty() ? "(?:" : "|").append(word);
  return pattern + ")";
}

/// Returns the pattern of a sentence whose noun and verb agree.
std::string agreement_pattern() {
  const auto phrase = [](bool plural) {
    return any_of(plural ? plural_determiners : singular_determiners) + "(?: " + any_of(adjectives) + ")? " +
           any_of(nouns) + (plural ? "s" : "");
  };
  const std::string one = phrase(false), several = phrase(true), any = "(?:" + one + "|" + several + ")",
                    see = any_of(seeing_verbs),
                    seen = " that (?:" + one + " " + see + "s|" + several + " " + see + ")";
  const auto sentence = [&](const std::string& noun, const char* ending) {
    return noun + "(?: near " + any + "| that " + see + ending + " " + any + "|" + seen + ")? " +
           any_of(verbs) + ending + "\\.";
  };
  return sentence(one, "s") + "|" + sentence(several, "");
}

}  // namespace

std::string agreement_sentence(std::uint64_t seed, std::uint32_t index) {
  return AgreementWriter(seed, index).sentence();
}

bool follows_agreement(std::string_view sentence) {
  static const std::regex agreement(agreement_pattern()),
      sum("(\\w+) " + any_of(nouns) + "(s?) and (\\w+) " + any_of(nouns) + "(s?) are (\\w+) animals\\.");
  std::cmatch found;
  const char* const end = sentence.data() + sentence.size();
  if (!std::regex_match(sentence.data(), end, found, sum))
    return std::regex_match(sentence.data(), end, agreement);
  const auto number = [&](std::size_t group) {
    return static_cast<std::size_t>(std::ranges::find(numbers, found[group].str()) - numbers.begin());
  };
  const auto agrees = [&](std::size_t group) {
    const std::size_t count = number(group);
    return count >= 1 && count <= largest_count && (found[group + 1].length() > 0) == (count > 1);
  };
  return agrees(1) && agrees(3) && number(5) == number(1) + number(3);
}

AgreementText agreement_text(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count) {
  return made_parts("sentences", train_count, held_out_count, 1'000'000,
                    [&](std::uint32_t index) { return agreement_sentence(seed, index); });
}

namespace {

constexpr std::array<const char*, 4> operators = {"[MIN", "[MAX", "[MED", "[SM"};

int apply(std::size_t which, std::vector<int> arguments) {
  std::sort(arguments.begin(), arguments.end());
  const std::size_t count = arguments.size();
  switch (which) {
    case 0:
      return arguments.front();
    case 1:
      return arguments.back();
    case 2:
      return (arguments[(count - 1) / 2] + arguments[count / 2]) / 2;
    default:
      break;
  }
  int sum = 0;
  for (const int argument : arguments) sum += argument;
  return sum % 10;
}

/// One expression tree; it stops growing once it is too long to be kept.
class Tree {
 public:
  /// Tree number `index` of a seed has its own stream of random words.
  Tree(std::uint64_t seed, std::uint32_t index, const ListOpsRule& rule)
      : rule_(rule), draws_({seed, index, 0}) {
    value_ = grow(1);
  }
  bool fits() const { return length_ > rule_.longer_than && length_ < rule_.shorter_than; }
  const std::string& text() const { return text_; }
  int value() const { return value_; }
  std::int64_t length() const { return length_; }

 private:
  void write(const std::string& token) {
    if (!text_.empty()) text_ += ' ';
    text_ += token;
    ++length_;
  }

  /// Writes a node and all below it; returns its value.
  int grow(std::int64_t depth) {
    if (length_ >= rule_.shorter_than) return 0;  // the tree will not be kept
    if (depth >= rule_.max_depth || draws_.unit() >= rule_.operator_share) {
      const int digit = draws_.below(10);
      write(std::to_string(digit));
      return digit;
    }
    const std::size_t which = draws_.below(operators.size());
    write(operators[which]);
    std::vector<int> arguments(2 + draws_.below(static_cast<std::uint64_t>(rule_.max_arguments - 1)));
    for (int& argument : arguments) argument = grow(depth + 1);
    write("]");
    return apply(which, std::move(arguments));
  }

  ListOpsRule rule_;
  Draws draws_;
  std::int64_t length_ = 0;
  std::string text_;
  int value_ = 0;
};

}  // namespace

LabelledText draw_listops(std::uint64_t seed, std::int64_t count, const ListOpsRule& rule) {
  checked_range("listops: count", count, 0, 10'000'000);
  checked_range("listops: max_depth", rule.max_depth, 1, 1000);
  checked_range("listops: max_arguments", rule.max_arguments, 2, 1000);
  checked_range("listops: longer_than", rule.longer_than, 0, 1'000'000);
  checked_range("listops: shorter_than", rule.shorter_than, 1, 1'000'000);
  check(rule.operator_share >= 0 && rule.operator_share <= 1, "listops: operator_share is ",
        rule.operator_share, "; it must be 0 to 1");
  LabelledText text;
  std::unordered_set<std::string> drawn;
  constexpr std::int64_t patience = 100'000, patience_tokens = 20'000'000;
  std::int64_t in_vain = 0, tokens_in_vain = 0;
  for (std::uint32_t index = 0; static_cast<std::int64_t>(text.size()) < count; ++index) {
    Tree tree(seed, index, rule);
    if (!tree.fits() || !drawn.insert(tree.text()).second) {
      tokens_in_vain += tree.length();
      check(++in_vain < patience && tokens_in_vain <= patience_tokens,
            "the rule gives hardly any expression longer than ", rule.longer_than, " and shorter than ",
            rule.shorter_than, " beyond the ", text.size(), " that were drawn");
      continue;
    }
    in_vain = tokens_in_vain = 0;
    text.add(tree.text(), std::to_string(tree.value()), "expression ", text.size() + 1);
  }
  return text;
}

namespace {

struct Topic {
  const char* category;
  const char* name;
  std::array<const char*, 8> words;
};

constexpr std::array<Topic, 8> topics{{
    {"sport", "football", {"goal", "striker", "keeper", "penalty", "coach", "league", "derby", "stadium"}},
    {"sport", "tennis", {"serve", "racket", "set", "volley", "court", "champion", "rally", "umpire"}},
    {"money", "markets", {"shares", "bonds", "investors", "stocks", "profit", "bank", "rates", "dividend"}},
    {"money", "housing", {"rent", "mortgage", "tenants", "houses", "landlord", "roof", "garden", "builders"}},
    {"science", "space", {"rocket", "moon", "orbit", "comet", "planet", "crew", "telescope", "launch"}},
    {"science", "health", {"doctors", "vaccine", "sleep", "heart", "diet", "hospital", "nurses", "fever"}},
    {"culture", "music", {"singer", "album", "concert", "guitar", "choir", "band", "opera", "drums"}},
    {"culture", "food", {"recipe", "bread", "kitchen", "soup", "chef", "cheese", "oven", "apples"}},
}};
constexpr std::array<const char*, 12> common_words{"new",  "today",  "after", "city",  "people", "why",
                                                   "best", "report", "first", "about", "week",   "again"};

constexpr std::int64_t topic_count = topics.size(), users = 400, window = 60, shown = 10,
                       impressions_per_news = 4, older = 200;

/// The random stream of one news item, user or impression.
enum class DrawnFor : std::uint32_t { news, user, impression };
Draws draws_for(DrawnFor what, std::uint64_t seed, std::int64_t index) {
  return Draws({seed, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(what)});
}

std::int64_t draw_topic(std::uint64_t seed, std::int64_t news) {
  return draws_for(DrawnFor::news, seed, news).below(topic_count);
}

News made_news(std::uint64_t seed, std::int64_t index, NewsNames& names) {
  Draws draw = draws_for(DrawnFor::news, seed, index);
  const Topic& topic = draw.pick(topics);
  News news{names.number_of(concat_text("N", index + 1)), topic.category, topic.name, "", ""};
  const std::int64_t length = 5 + draw.below(4), of_topic = 2 + draw.below(2), begin = draw.below(length);
  for (std::int64_t i = 0; i < length; ++i) {
    // The words of the topic are spread over the title.
    const bool topical = (i + begin) * of_topic % length < of_topic;
    if (i > 0) news.title += ' ';
    news.title += topical ? draw.pick(topic.words) : draw.pick(common_words);
  }
  return news;
}

/// Whether the topic is one of the two that a user likes.
bool likes(std::uint64_t seed, std::int64_t user, std::int64_t topic) {
  Draws draw = draws_for(DrawnFor::user, seed, user);
  const std::int64_t first = draw.below(topic_count);
  const std::int64_t second = (first + 1 + draw.below(topic_count - 1)) % topic_count;
  return topic == first || topic == second;
}

/// Returns the impression shown when the news up to `newest` are out. News are given by their
/// places in the list of all news.
Impression made_impression(std::uint64_t seed, std::int64_t index, std::int64_t newest) {
  Draws draw = draws_for(DrawnFor::impression, seed, index);
  Impression impression;
  impression.time = index * 60;
  const std::int64_t user = draw.below(users);
  const std::int64_t wanted = draw.below(20) == 0 ? 0 : 3 + draw.below(13);
  while (static_cast<std::int64_t>(impression.history.size()) < wanted) {
    const std::int64_t news = newest - window - draw.below(older);
    if (likes(seed, user, draw_topic(seed, news)) || draw.below(20) == 0)
      impression.history.push_back(static_cast<std::int32_t>(news));
  }
  while (impression.clicked.empty() || impression.passed.empty()) {
    impression.clicked.clear(), impression.passed.clear();
    for (std::int64_t i = 0; i < shown; ++i) {
      const std::int64_t news = newest - (i * window + draw.below(window)) / shown;
      const bool clicks =
          likes(seed, user, draw_topic(seed, news)) ? draw.below(10) < 9 : draw.below(30) == 0;
      (clicks ? impression.clicked : impression.passed).push_back(static_cast<std::int32_t>(news));
    }
  }
  return impression;
}

}  // namespace

TopicClicks topic_clicks(std::uint64_t seed, std::int64_t impressions, NewsNames& names) {
  checked_range("the number of impressions", impressions, 1, 1'000'000);
  TopicClicks made;
  const std::int64_t count = window + older + ceil_div(impressions, impressions_per_news);
  for (std::int64_t i = 0; i < count; ++i) made.news.push_back(made_news(seed, i, names));
  for (std::int64_t i = 0; i < impressions; ++i)
    made.impressions.push_back(made_impression(seed, i, window + older + i / impressions_per_news - 1));
  for (Impression& one : made.impressions)
    for (auto* list : {&one.history, &one.clicked, &one.passed})
      for (std::int32_t& news : *list) news = made.news[static_cast<std::size_t>(news)].number;
  return made;
}

// --- dialogues

namespace {

const WordList first_names = {"ann",   "ben",   "carla", "david", "emma",
                              "frank", "grace", "henry", "ivy",   "jack"};
const WordList towns = {"paris", "rome", "london", "madrid", "vienna", "oslo", "dublin", "athens"};
const WordList things = {"tea",   "bread",   "coffee", "cheese", "fish",  "soup",
                         "fruit", "flowers", "shoes",  "books",  "paper", "music"};

/// Returns one dialogue; a pure function of (seed, index).
Dialogue talk(std::uint64_t seed, std::uint32_t index) {
  Draws draws({seed, index, 0});
  const auto pick = [&](const WordList& words) { return std::string(draws.pick(words)); };
  const std::string name = pick(first_names), town = pick(towns), thing = pick(things);
  const bool found = draws.below(2) == 0;
  Dialogue turns = {"hello , i am " + name + " from " + town + " .",
                    "hello " + name + " , what do you look for ?", "i look for " + thing + " .",
                    "is there no " + thing + " in " + town + " , " + name + " ?"};
  turns.push_back(draws.below(4) == 0 ? "no ."
                  : found             ? "there is , but not like here ."
                                      : "there is , but not today .");
  turns.push_back(turns.back() == "no ." ? "then take some " + thing + " home ."
                                         : "then we have " + thing + " for you .");
  turns.push_back("thank you for the " + thing + " .");
  return turns;
}

}  // namespace

MadeParts<Dialogue> small_talk(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count) {
  return made_parts("dialogues", train_count, held_out_count, 1000,
                    [&](std::uint32_t index) { return talk(seed, index); });
}

// --- pairs of texts

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
