#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "heed/base/error.h"
#include "heed/training/progress.h"
#include "heed/training/report.h"

// Any line gives a record that can be written and read again unchanged, and drawn; or an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const heed::Progress record =
        heed::parse_metrics_line(std::string_view(reinterpret_cast<const char*>(data), size));
    const std::string written = heed::metrics_line(record);
    if (heed::metrics_line(heed::parse_metrics_line(written)) != written) std::abort();
    heed::report_html(std::vector<heed::Progress>{record, record}, "{}");
  } catch (const heed::Error&) {
  }
  return 0;
}
