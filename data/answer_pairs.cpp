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
  AnswerWriter(std::uint64_t seed, std::uint32_t index) : key_{seed, index, 0} {}

  void write(LabelledText& text) {
    const std::uint32_t person = below(people.size()), topic = below(question_kinds.size()), right = below(3);
    const std::string question =
        concat_text(question_kinds[topic].ask, ' ', people[person], ' ', question_kinds[topic].verb);
    const std::uint32_t first_right = below(answers);
    for (std::uint32_t i = 0; i < answers; ++i) {
      const bool is_right = (i + answers - first_right) % answers < right;
      const bool other_person = !is_right && below(2) == 0;
      const std::uint32_t who = other_person ? other(person, people.size()) : person;
      const std::uint32_t what = is_right || other_person ? topic : other(topic, question_kinds.size());
      text.add_pair(question, sentence(people[who], question_kinds[what]), is_right ? "1" : "0",
                    concat_text("pair ", text.size() + 1));
    }
  }

 private:
  std::uint32_t below(std::size_t bound) {
    return static_cast<std::uint32_t>((std::uint64_t{random_word(key_, drawn_++)} * bound) >> 32);
  }
  std::uint32_t other(std::uint32_t one, std::size_t count) {
    return static_cast<std::uint32_t>((one + 1 + below(count - 1)) % count);
  }
  std::string sentence(std::string_view person, const QuestionKind& topic) {
    const std::string_view says = topic.says[below(topic.says.size())];
    return concat_text(person, ' ', says, ' ', topic.things[below(topic.things.size())], " .");
  }

  RandomKey key_;
  std::uint32_t drawn_ = 0;
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
