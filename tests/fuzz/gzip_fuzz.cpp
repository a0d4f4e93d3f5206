#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/gzip.h"

// Any bytes as a gzip file: an Error or content within the limit, the same whether the bytes come together or
// in pieces.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  constexpr std::uint64_t most = 1 << 16;
  std::string whole, pieces;
  bool whole_is_good = false, pieces_are_good = false;
  try {
    whole = heed::gunzip(input.bytes, "input", most);
    whole_is_good = true;
    require(whole.size() <= most);
  } catch (const heed::Error&) {
  }
  try {
    const std::size_t step = input.choice + 1;
    heed::GzipReader reader(
        [rest = input.bytes, step]() mutable {
          const std::string_view piece = rest.substr(0, step);
          rest.remove_prefix(piece.size());
          return piece;
        },
        "input");
    for (std::string_view piece; pieces.size() <= most && !(piece = reader.next()).empty();) pieces += piece;
    pieces_are_good = pieces.size() <= most;
  } catch (const heed::Error&) {
  }
  require(whole_is_good == pieces_are_good);
  require(!whole_is_good || whole == pieces);
  return 0;
}
