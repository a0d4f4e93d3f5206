#pragma once

#include <filesystem>

#include "heed/data/labelled_text.h"
#include "heed/data/text_file.h"

namespace heed {

/// Reads lines of a label, a space and a text (see read_lines). The text may be empty. Throws Error with file
/// and line where there is no label.
LabelledText read_labelled_lines(const std::filesystem::path& path, Encoding encoding = Encoding::utf8);

}  // namespace heed
