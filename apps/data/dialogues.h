#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_file.h"

namespace heed {

/// The mark that ends every turn of a dialogue, as in DailyDialog (Li et al., IJCNLP 2017).
inline constexpr std::string_view turn_end = "__eou__";

/// The turns of a dialogue between two speakers, who alternate.
using Dialogue = std::vector<std::string>;

/// Returns the turns of a line "Hello . __eou__ Hi , Ann . __eou__", without surrounding white
/// space. The mark after the last turn may be missing. Empty for a blank line; empty turns are left
/// out.
Dialogue split_turns(std::string_view line);

/// Reads dialogues, one per line, in which every turn ends in the mark. Throws Error with file and
/// line as read_lines does, and for a blank line, a turn without a mark after it, and an empty
/// turn.
std::vector<Dialogue> read_dialogues(const TextInput& input, const TextOptions& options = {},
                                     ReadReport* report = nullptr);

/// Returns training pairs for answers: for every turn except the first, the source is up to
/// `context` previous turns, joined by the mark, and the target is the turn itself.
ParallelText answers_in(const std::vector<Dialogue>& dialogues, std::int64_t context);

/// Generated small talk that tests whether a model uses more than the last turn: people say who
/// they are, where they come from and what they look for, and answers refer to exactly that.
struct SmallTalk {
  std::vector<Dialogue> train, held_out;
};
/// Generates small talk. A pure function of its arguments; no held-out dialogue occurs in training.
/// Throws Error for counts below 1, above a million for training, or above a thousand held out.
SmallTalk small_talk(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

}  // namespace heed
