#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "heed/base/error.h"
#include "heed/training/run_folder.h"

// Any text gives a manifest that can be written and read again unchanged, or an Error. What comes in is read
// as with --unverified, or no input would come further than the digest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string written = heed::run_manifest_text(heed::parse_run_manifest(text, "input", false));
    if (heed::run_manifest_text(heed::parse_run_manifest(written, "written")) != written) std::abort();
  } catch (const heed::Error&) {
  }
  return 0;
}
