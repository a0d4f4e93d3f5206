#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/table.h"
#include "heed/data/text_file.h"

// Any bytes as a table: an Error, or rows of one width whose fields are UTF-8. Byte 0 chooses options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  for (const bool csv : {true, false}) {
    try {
      std::size_t line = 0, width = 0;
      const auto take = [&](heed::TableRow& row) {
        require(row.line > line && (width == 0 || row.fields.size() == width));
        line = row.line;
        width = row.fields.size();
        for (const std::string& field : row.fields)
          require(heed::unicode::find_invalid(field) == std::string::npos);
      };
      (csv ? heed::parse_csv : heed::parse_tsv)(input.bytes, "input", take, input.text_options(), nullptr);
    } catch (const heed::Error&) {
    }
  }
  return 0;
}
