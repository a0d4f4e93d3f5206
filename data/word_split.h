#pragma once

#include <string_view>
#include <vector>

namespace heed {

/// Cuts a text into the words that byte-level BPE never merges across. The rule is the pattern of GPT-2
/// (Radford et al., 2019), scanned by hand with Unicode categories:
///   's | 't | 're | 've | 'm | 'll | 'd | ?L+ | ?N+ | ?(other)+ | space+ not before a non-space | space+
/// where " ?" is one optional U+0020. The pieces follow each other without gaps; ill-formed bytes count as
/// "other".
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace heed
