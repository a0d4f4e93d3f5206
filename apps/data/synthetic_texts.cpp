#include "heed/apps/data/synthetic_texts.h"

#include <algorithm>
#include <array>
#include <regex>
#include <string>
#include <unordered_set>
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

}  // namespace heed
