#include "fuzz_support.h"
#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/csv.h"

// Any bytes as a table: an Error, or rows of one width whose fields are UTF-8. Byte 0 chooses options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  for (const bool csv : {true, false}) {
    try {
      const auto rows = csv ? heed::parse_csv(input.bytes, "input", input.text_options())
                            : heed::parse_tsv(input.bytes, "input", input.text_options());
      std::size_t line = 0;
      for (const heed::TableRow& row : rows) {
        require(row.line > line && row.fields.size() == rows.front().fields.size());
        line = row.line;
        for (const std::string& field : row.fields)
          require(heed::unicode::find_invalid(field) == std::string::npos);
      }
    } catch (const heed::Error&) {
    }
  }
  return 0;
}
