#include "heed/data/number_words.h"

#include <array>

#include "heed/core/checked.h"
#include "heed/core/error.h"
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

/// `begins_word`: nothing stands before, so a single hundred goes without "ein".
std::string german_below_thousand(int n, bool begins_word) {
  std::string words;
  if (n >= 200 || (n >= 100 && !begins_word)) words = german_small[static_cast<std::size_t>(n / 100)];
  if (n >= 100) words += "hundert";
  return n % 100 == 0 ? words : words + german_below_hundred(n % 100);
}

void check_range(std::int32_t number) {
  check(number >= 0 && number < number_words_end, "number words go from 0 to 999999, not to ", number);
}

/// Draws distinct numbers with 3 to 6 digits, one after the other.
class NumberDraw {
 public:
  explicit NumberDraw(std::uint64_t seed) : draws_({seed, 0, 0}), taken_(number_words_end, false) {}

  std::int32_t next() {
    while (true) {
      const std::size_t length = draws_.below(left_.size());
      if (left_[length] == 0) continue;
      std::int32_t number = first_[length] + draws_.below(first_[length] * 9);
      if (draws_.below(8) == 0) {  // by chance alone, numbers such as 100,000 would hardly ever come
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
  std::array<std::int32_t, 4> left_ = {900, 9000, 90'000, 900'000};   // numbers of each length not drawn yet
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

}  // namespace heed
