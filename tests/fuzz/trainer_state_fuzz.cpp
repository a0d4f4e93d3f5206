#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "heed/base/error.h"
#include "heed/training/checkpoint.h"

// Any text gives a state that can be written and read again unchanged, or an Error. What was written has the
// right digest of itself; what comes in is read as with --unverified, or no input would come further than the
// digest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string written = heed::trainer_state_text(heed::parse_trainer_state(text, "input", false));
    if (heed::trainer_state_text(heed::parse_trainer_state(written, "written")) != written) std::abort();
  } catch (const heed::Error&) {
  }
  return 0;
}
