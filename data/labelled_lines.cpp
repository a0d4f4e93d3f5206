#include "heed/data/labelled_lines.h"

#include "heed/core/error.h"

namespace heed {

LabelledText read_labelled_lines(const std::filesystem::path& path, Encoding encoding) {
  LabelledText text;
  for (const std::string& line : read_lines(path, encoding)) {
    const std::string place = concat_text(path.string(), ":", text.size() + 1);
    const std::size_t space = std::min(line.find(' '), line.size());
    check(space > 0, place, ": the line ", line.empty() ? "is empty" : "begins with a space",
          "; expected a label, a space and a text");
    text.add(line.substr(std::min(space + 1, line.size())), line.substr(0, space), place);
  }
  return text;
}

}  // namespace heed
