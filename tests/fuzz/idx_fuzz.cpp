#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/idx.h"

// Any bytes as an IDX file of images or labels, or as the line of an image: an Error, or images that come
// back the same from their lines.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  constexpr std::uint64_t most = 1 << 16;
  try {
    if (input.choice % 3 == 0) require(!heed::parse_idx_labels(input.bytes, "input", most).empty());
    if (input.choice % 3 == 1) {
      const heed::Images images = heed::parse_idx_images(input.bytes, "input", most);
      require(!images.pixels.empty());
      const heed::Images again = heed::image_of_line(heed::image_line(images, 0));
      require(again.rows == images.rows && again.columns == images.columns &&
              again.pixels[0] == images.pixels[0]);
    }
    if (input.choice % 3 == 2) {
      const heed::Images image = heed::image_of_line(input.bytes);
      require(image.pixels[0].size() == static_cast<std::size_t>(image.rows * image.columns));
    }
  } catch (const heed::Error&) {
  }
  return 0;
}
