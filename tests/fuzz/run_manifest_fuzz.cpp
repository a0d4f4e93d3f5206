#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "heed/core/error.h"
#include "heed/training/run_manifest.h"

// Any text gives a manifest that can be written and read again unchanged, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string written = heed::run_manifest_text(heed::parse_run_manifest(text, "input"));
    if (heed::run_manifest_text(heed::parse_run_manifest(written, "written")) != written) std::abort();
  } catch (const heed::Error&) {
  }
  return 0;
}
