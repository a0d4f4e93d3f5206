#include "heed/apps/data/dialogues.h"

#include <algorithm>
#include <utility>

#include "heed/apps/data/synthetic_texts.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/core/random.h"

namespace heed {
namespace {

constexpr std::string_view white_space = " \t\r\n\v\f";

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(white_space);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(white_space) + 1 - begin));
}

/// Returns the texts between the marks; the last one is what follows the last mark.
std::vector<std::string> cut_at_marks(std::string_view line) {
  std::vector<std::string> parts;
  for (const std::string_view part : split_at(line, turn_end)) parts.push_back(trimmed(part));
  if (parts.empty()) parts.emplace_back();
  return parts;
}

// --- small talk

using Words = std::vector<std::string_view>;
const Words names = {"ann", "ben", "carla", "david", "emma", "frank", "grace", "henry", "ivy", "jack"};
const Words towns = {"paris", "rome", "london", "madrid", "vienna", "oslo", "dublin", "athens"};
const Words things = {"tea",   "bread",   "coffee", "cheese", "fish",  "soup",
                      "fruit", "flowers", "shoes",  "books",  "paper", "music"};

/// Returns one dialogue; a pure function of (seed, index).
Dialogue talk(std::uint64_t seed, std::uint32_t index) {
  Draws draws({seed, index, 0});
  const auto pick = [&](const Words& words) { return std::string(draws.pick(words)); };
  const std::string name = pick(names), town = pick(towns), thing = pick(things);
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

Dialogue split_turns(std::string_view line) {
  Dialogue turns = cut_at_marks(line);
  std::erase(turns, "");
  return turns;
}

std::vector<Dialogue> read_dialogues(const TextInput& input, const TextOptions& options, ReadReport* report) {
  TextLines lines(input, options, report);
  std::vector<Dialogue> dialogues;
  while (const auto line = lines.next()) {
    std::vector<std::string> turns = cut_at_marks(*line);
    if (turns.size() == 1 && turns.back().empty())
      fail(lines.place(), ": the line is blank; expected a dialogue whose turns end in ", turn_end);
    if (!turns.back().empty())
      fail(lines.place(), ": ", turns.size() > 1 ? "the last turn" : "the line", " has no ", turn_end,
           " behind it; every turn ends in one");
    turns.pop_back();
    for (std::size_t i = 0; i < turns.size(); ++i)
      if (turns[i].empty()) fail(lines.place(), ": turn ", i + 1, " is empty");
    dialogues.push_back(std::move(turns));
  }
  return dialogues;
}

ParallelText answers_in(const std::vector<Dialogue>& dialogues, std::int64_t context) {
  ParallelText pairs;
  for (const Dialogue& turns : dialogues)
    for (std::size_t i = 1; i < turns.size(); ++i) {
      std::string before;
      const std::size_t first = i - std::min(i, static_cast<std::size_t>(context));
      for (std::size_t j = first; j < i; ++j) {
        if (j > first) before += turn_end;
        before += turns[j];
      }
      pairs.source.push_back(before);
      pairs.target.push_back(turns[i]);
    }
  return pairs;
}

SmallTalk small_talk(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count) {
  auto made = made_parts("dialogues", train_count, held_out_count, 1000,
                         [&](std::uint32_t index) { return talk(seed, index); });
  return {std::move(made.train), std::move(made.held_out)};
}

}  // namespace heed
