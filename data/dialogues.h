#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/text_file.h"

namespace heed {

/// Stands behind every turn of a dialogue, as in DailyDialog (Li et al., IJCNLP 2017).
inline constexpr std::string_view turn_end = "__eou__";

/// What was said in turn, two speakers by turns.
using Dialogue = std::vector<std::string>;

/// The turns of a line "Hello . __eou__ Hi , Ann . __eou__", without white space around each. The mark behind
/// the last turn may be missing. Empty for a blank line; a turn that is empty is left out.
Dialogue turns_of(std::string_view line);

/// Reads dialogues, one a line, whose turns all end in the mark. Throws Error with file and line as
/// read_lines does, and for a blank line, a turn without a mark behind it, and an empty turn.
std::vector<Dialogue> read_dialogues(const std::filesystem::path& path, const TextOptions& options = {},
                                     ReadReport* report = nullptr);
/// The same for bytes already in memory; `origin` says in errors where they came from.
std::vector<Dialogue> parse_dialogues(std::string_view bytes, std::string_view origin,
                                      const TextOptions& options = {}, ReadReport* report = nullptr);

/// Pairs to learn answers from: of every turn but the first, the `context` turns before it (as many as there
/// are), joined by the mark alone, and the turn itself.
ParallelText answers_in(const std::vector<Dialogue>& dialogues, std::int64_t context);

/// Small talk made by rule, to see whether a model looks back further than one turn: people say who they are,
/// where they come from and what they look for, and are answered with just that.
struct SmallTalk {
  std::vector<Dialogue> train, held_out;
};
/// A pure function of its arguments; no held-out dialogue is among the others. Throws Error for counts below
/// 1, or above a million to learn from and a thousand to measure with.
SmallTalk small_talk(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

}  // namespace heed
