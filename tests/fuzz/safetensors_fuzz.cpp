#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heed/base/error.h"
#include "heed/data/safetensors.h"

// Any bytes give tensors or an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    heed::parse_safetensors({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const heed::Error&) {
  }
  return 0;
}
