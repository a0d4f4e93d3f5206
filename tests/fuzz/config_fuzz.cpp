#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/error.h"
#include "heed/training/run_folder.h"

// Any two texts compare equal or give an Error; the halves are the saved and the present configuration.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> free_keys{"threads"};
  try {
    heed::compare_configurations(text.substr(0, size / 2), text.substr(size / 2), free_keys, "input");
  } catch (const heed::Error&) {
  }
  return 0;
}
