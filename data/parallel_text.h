#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/data/text_file.h"

namespace heed {

/// Sentences and their translations: line i of one belongs to line i of the other.
struct ParallelText {
  std::vector<std::string> source, target;
  std::size_t size() const { return source.size(); }
};

/// Reads two files of lines (see read_lines). Throws Error with both counts when they differ.
ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                Encoding encoding = Encoding::utf8);

}  // namespace heed
