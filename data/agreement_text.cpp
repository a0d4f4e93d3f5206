#include "heed/data/agreement_text.h"

#include <algorithm>
#include <unordered_set>

#include "heed/core/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

using WordList = std::vector<std::string_view>;

// No word begins with a vowel, so that "a" is always right; every noun and verb takes a plain "s".
const WordList nouns = {"cat", "dog", "horse", "bird", "goat", "duck", "rabbit", "turtle", "spider", "tiger"};
const WordList verbs = {"sleep", "run", "sing", "jump", "wait", "play"};  // need no object
const WordList seeing_verbs = {"see", "like", "follow", "greet"};         // have one
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

  /// "the small cats"
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

bool holds(const WordList& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Reads one sentence; each function takes what it names from the front, or returns false.
class Reader {
 public:
  explicit Reader(std::string_view text) {
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      words_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }

  bool sum() {
    std::size_t first = 0, second = 0;
    if (!counted(first) || !take("and") || !counted(second) || !take("are")) return false;
    return take(numbers[first + second]) && take("animals") && at_end();
  }

  bool agreement() {
    const std::size_t start = at_;
    for (const bool plural : {false, true}) {
      at_ = start;
      if (noun_phrase(plural) && modifier(plural) && word_of(verbs, !plural) && at_end()) return true;
    }
    return false;
  }

 private:
  bool at_end() const { return at_ == words_.size(); }
  bool take(std::string_view word) {
    if (at_end() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  bool word_of(const WordList& list, bool with_s = false) {
    if (at_end()) return false;
    std::string_view word = words_[at_];
    if (with_s) {
      if (!word.ends_with('s')) return false;
      word.remove_suffix(1);
    }
    if (!holds(list, word)) return false;
    ++at_;
    return true;
  }
  bool noun_phrase(bool plural) {
    if (!word_of(plural ? plural_determiners : singular_determiners)) return false;
    word_of(adjectives);
    return word_of(nouns, plural);
  }
  bool any_noun_phrase(bool& plural) {
    const std::size_t start = at_;
    for (const bool each : {false, true}) {
      plural = each;
      if (noun_phrase(each)) return true;
      at_ = start;
    }
    return false;
  }
  /// What may stand between a noun and its verb; nothing, too.
  bool modifier(bool plural) {
    bool other_plural = false;
    if (take("near")) return any_noun_phrase(other_plural);
    if (!take("that")) return true;
    if (word_of(seeing_verbs, !plural)) return any_noun_phrase(other_plural);
    return any_noun_phrase(other_plural) && word_of(seeing_verbs, !other_plural);
  }
  bool counted(std::size_t& count) {
    for (count = 1; count <= largest_count; ++count) {
      if (take(numbers[count])) return word_of(nouns, count > 1);
    }
    return false;
  }

  WordList words_;
  std::size_t at_ = 0;
};

}  // namespace

std::string agreement_sentence(std::uint64_t seed, std::uint32_t index) {
  return AgreementWriter(seed, index).sentence();
}

bool follows_agreement(std::string_view sentence) {
  if (!sentence.ends_with('.')) return false;
  sentence.remove_suffix(1);
  return Reader(sentence).sum() || Reader(sentence).agreement();
}

AgreementText agreement_text(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count) {
  constexpr std::int64_t most = 1'000'000;
  check(train_count >= 1 && held_out_count >= 1 && train_count <= most && held_out_count <= most,
        "between 1 and ", most, " sentences can be made, not ", train_count, " to learn from and ",
        held_out_count, " to measure with");
  AgreementText text;
  std::unordered_set<std::string> held_out;
  std::uint32_t index = 0;
  while (static_cast<std::int64_t>(text.held_out.size()) < held_out_count) {
    const std::string sentence = agreement_sentence(seed, index++);
    if (held_out.insert(sentence).second) text.held_out.push_back(sentence);
  }
  while (static_cast<std::int64_t>(text.train.size()) < train_count) {
    std::string sentence = agreement_sentence(seed, index++);
    if (!held_out.contains(sentence)) text.train.push_back(std::move(sentence));
  }
  return text;
}

}  // namespace heed
