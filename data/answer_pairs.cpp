#include "heed/data/answer_pairs.h"

#include <array>
#include <string_view>

#include "heed/core/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

using EightWords = std::array<std::string_view, 8>;
constexpr EightWords people = {"emma", "oscar", "nora", "felix", "clara", "hugo", "greta", "anton"};
constexpr std::uint32_t answers = 5;

/// What one can ask of a person, and how it is answered.
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
