#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/labelled_text.h"

// Any bytes as labelled texts: an Error, or texts that all have a label, and parts that hold each of them
// once. The first byte chooses options of texts, the second those of the format.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  const unsigned choice = input.bytes.empty() ? 0 : static_cast<unsigned char>(input.bytes[0]);
  heed::LabelledOptions options;
  options.format = heed::labelled_formats()[choice % 3];  // not folders
  options.text = input.text_options();
  if (options.format != "lines") {
    options.label_column = std::to_string(1 + (choice >> 2 & 3));
    if (choice & 16) options.text_columns = {std::to_string(1 + (choice >> 5 & 3))};
    options.header = (choice & 128) != 0;
  }
  try {
    heed::ReadReport report;
    const auto text =
        heed::parse_labelled_text(input.bytes.substr(input.bytes.empty() ? 0 : 1), "input", options, &report);
    require(text.size() > 0 && text.labels.size() == text.size() && text.places.size() == text.size());
    require(report.replaced == 0 || options.text.bad_bytes == heed::BadBytes::replace);
    for (const std::string_view label : text.labels) require(!label.empty());
    const auto parts =
        heed::split_text(text, {.valid_fraction = 0.2, .test_fraction = 0.3, .stratified = choice % 2 == 0});
    require(parts.train.size() + parts.valid.size() + parts.test.size() == text.size());
    const auto classes = heed::class_names(text);
    require(heed::classes_of(text, classes).size() == text.size());
  } catch (const heed::Error&) {
  }
  return 0;
}
