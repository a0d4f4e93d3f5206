// IDX files: images and labels, plain and gzip, and the traps of their sizes.

#include <doctest/doctest.h>

#include <fstream>

#include "heed/base/error.h"
#include "heed/data/idx.h"
#include "heed/tests/temporary_folder.h"

using namespace heed;

namespace {

constexpr std::uint64_t most = 1 << 20;

std::string idx(std::initializer_list<std::uint32_t> header, const std::string& values) {
  std::string bytes;
  for (const std::uint32_t number : header)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 255);
  return bytes + values;
}

}  // namespace

TEST_CASE("IDX: images and labels, and lines of images") {
  const Images images =
      parse_idx_images(idx({2051, 2, 1, 3}, {'\0', '\1', '\xff', 'a', 'b', 'c'}), "file", most);
  CHECK(images.rows == 1);
  CHECK(images.columns == 3);
  REQUIRE(images.pixels.size() == 2);
  CHECK(image_line(images, 0) == "1 3 0 1 255");
  CHECK(image_of_line("1 3 0 1 255").pixels == TextList{images.pixels[0]});
  CHECK(parse_idx_labels(idx({2049, 2}, "\7\3"), "file", most) == std::vector<std::uint8_t>{7, 3});
}

TEST_CASE("IDX: what is wrong is said") {
  const auto images = [](const std::string& bytes) { parse_idx_images(bytes, "file", most); };
  CHECK_THROWS_WITH_AS(images(""), doctest::Contains("magic number 2051"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2049, 1}, "a")), doctest::Contains("2049"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 1}, "")), doctest::Contains("header"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 1, 0, 3}, "")), doctest::Contains("extent 2"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 2, 1, 3}, "abcde")),
                       doctest::Contains("6 values follow, but there are 5"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 1, 1, 3}, "abcd")), doctest::Contains("there are 4"), Error);
  CHECK_THROWS_AS(images(idx({2051, 0xffffffff, 0xffffffff, 0xffffffff}, "a")), Error);
  CHECK_THROWS_WITH_AS(image_of_line("2 2 1 2 3"), doctest::Contains("has 4 values, but 3"), Error);
  CHECK_THROWS_WITH_AS(image_of_line("1 1 256"), doctest::Contains("0 to 255"), Error);
  CHECK_THROWS_WITH_AS(image_of_line("1 1 x"), doctest::Contains("number 3"), Error);
}

TEST_CASE("IDX: labels are found by the name of the images, and both have the same number") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return folder / name;
  };
  const auto path = write("a-images-idx3-ubyte", idx({2051, 2, 1, 1}, "ab"));
  write("a-labels-idx1-ubyte", idx({2049, 2}, std::string("\0\11", 2)));
  const LabelledText text = read_labelled_images(path, {}, {});
  CHECK(text.labels == std::vector<std::string>{"0", "9"});
  CHECK(text.texts == std::vector<std::string>{"1 1 97", "1 1 98"});
  const auto one = write("one", idx({2049, 1}, "\1"));
  CHECK_THROWS_WITH_AS(read_labelled_images(path, one, {}), doctest::Contains("2 images"), Error);
  CHECK_THROWS_WITH_AS(read_labelled_images(one, {}, {}), doctest::Contains("--labels"), Error);
}
