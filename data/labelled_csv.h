#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "heed/data/labelled_text.h"
#include "heed/data/text_file.h"

namespace heed {

/// Which columns of a CSV file mean what; columns are counted from 1.
struct CsvColumns {
  std::int64_t label = 1;
  std::vector<std::int64_t> texts;  ///< joined with a space; empty: all but the label
  bool header = false;              ///< the first row holds names and is left out
};

/// Reads labelled texts from a CSV file (see read_csv). Throws Error for a column that is not there, an empty
/// label, and a file without rows.
LabelledText read_labelled_csv(const std::filesystem::path& path, const CsvColumns& columns = {},
                               Encoding encoding = Encoding::utf8);

}  // namespace heed
