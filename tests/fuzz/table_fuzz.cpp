#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/table.h"

// Any bytes as a table: an Error, or columns of one length whose texts are UTF-8. The first byte chooses
// options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  heed::TableOptions options;
  options.text = input.text_options();
  options.header = (input.choice & 8) != 0;
  options.others = (input.choice & 16) != 0;
  if (input.choice & 32) options.columns = {"2", "a"};
  if (input.choice & 64) options.columns = {"1"};
  for (const std::string& format : heed::table_formats()) {
    options.format = format;
    try {
      const heed::Table table = heed::parse_table(input.bytes, "input", options);
      require(table.size() > 0 && table.names.size() == table.columns.size());
      for (const auto& column : table.columns) {
        require(column.size() == table.size());
        for (const std::string_view text : column)
          require(heed::unicode::find_invalid(text) == std::string::npos);
      }
    } catch (const heed::Error&) {
    }
  }
  return 0;
}
