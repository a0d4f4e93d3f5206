#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heed/base/error.h"
#include "heed/tests/cases/reference/reference_case.h"

// Bytes are a reference case that names its variant, or give an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const heed::verify::ReferenceCase found = heed::verify::reference_case_of(
        heed::parse_safetensors({reinterpret_cast<const char*>(data), size}, "input"), "input");
    if (found.family().empty() && !found.config.at("variant").get<std::string>().empty()) __builtin_trap();
  } catch (const heed::Error&) {
  }
  return 0;
}
