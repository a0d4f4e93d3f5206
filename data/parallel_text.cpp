#include "heed/data/parallel_text.h"

#include "heed/core/error.h"

namespace heed {

ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                Encoding encoding) {
  ParallelText text{read_lines(source, encoding), read_lines(target, encoding)};
  check(text.source.size() == text.target.size(), "the two files do not belong together: ", source.string(),
        " has ", text.source.size(), " lines, ", target.string(), " has ", text.target.size());
  return text;
}

}  // namespace heed
