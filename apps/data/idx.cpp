#include "heed/apps/data/idx.h"

#include <array>
#include <charconv>

#include "heed/apps/data/gzip.h"
#include "heed/base/error.h"
#include "heed/base/names.h"

namespace heed {
namespace {

constexpr std::int64_t images_magic = 2051, labels_magic = 2049;

/// Reads the values of a file, and fills in its extents.
std::string read_values(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes,
                        std::int64_t magic, std::span<std::int64_t> extents) {
  std::string content = is_gzip(bytes) ? gunzip(bytes, origin, max_bytes) : std::string(bytes);
  const std::size_t header = 4 * (extents.size() + 1);
  const auto number = [&](std::size_t place) {
    std::int64_t value = 0;
    for (std::size_t i = 4 * place; i < 4 * place + 4; ++i)
      value = value << 8 | static_cast<unsigned char>(content[i]);
    return value;
  };
  check(content.size() >= 4 && number(0) == magic, origin, ": no IDX file of ",
        magic == images_magic ? "images" : "labels", ": it does not begin with the magic number ", magic,
        content.size() >= 4 ? concat_text(" but with ", number(0)) : "");
  check(content.size() >= header, origin, ": the IDX file ends within its header");
  std::int64_t count = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i] = number(i + 1);
    check(extents[i] > 0, origin, ": extent ", i + 1, " of the IDX file is 0");
    count = checked_product(origin, count, extents[i]);
  }
  check(static_cast<std::uint64_t>(count) == content.size() - header, origin, ": the IDX file says that ",
        count, " values follow, but there are ", content.size() - header);
  content.erase(0, header);
  return content;
}

}  // namespace

Images parse_idx_images(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes) {
  std::array<std::int64_t, 3> extents{};
  const std::string values = read_values(bytes, origin, max_bytes, images_magic, extents);
  Images images{extents[1], extents[2], {}};
  const auto size = static_cast<std::size_t>(images.rows * images.columns);
  for (std::size_t begin = 0; begin < values.size(); begin += size)
    images.pixels.push_back(std::string_view(values).substr(begin, size));
  return images;
}

std::vector<std::uint8_t> parse_idx_labels(std::string_view bytes, std::string_view origin,
                                           std::uint64_t max_bytes) {
  std::array<std::int64_t, 1> extents{};
  const std::string values = read_values(bytes, origin, max_bytes, labels_magic, extents);
  return {values.begin(), values.end()};
}

std::string image_line(const Images& images, std::size_t index) {
  check(index < images.pixels.size(), "image_line: there is no image ", index, " among ",
        images.pixels.size());
  std::string line = concat_text(images.rows, ' ', images.columns);
  for (const char value : images.pixels[index])
    line.append(" ").append(std::to_string(static_cast<unsigned char>(value)));
  return line;
}

Images parse_image_line(std::string_view line) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view word : split_at(line, " ")) {
    if (word.empty()) continue;
    std::int64_t& value = numbers.emplace_back(-1);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    check(error == std::errc() && value >= 0 && end == word.data() + word.size(),
          "an image is a line of numbers (rows, columns, and the values 0 to 255 row by row), but number ",
          numbers.size(), " is none");
  }
  check(numbers.size() > 2, "an image is a line of its rows, columns and values, but there are only ",
        numbers.size(), " numbers");
  Images image{numbers[0], numbers[1], {}};
  const std::int64_t size = checked_product("an image", image.rows, image.columns);
  check(static_cast<std::uint64_t>(size) == numbers.size() - 2, "an image of ", image.rows, " x ",
        image.columns, " has ", size, " values, but ", numbers.size() - 2, " follow");
  std::string pixels;
  for (std::size_t i = 2; i < numbers.size(); ++i) {
    check(numbers[i] <= 255, "the values of an image are 0 to 255, but value ", i - 1, " is ", numbers[i]);
    pixels += static_cast<char>(numbers[i]);
  }
  image.pixels.push_back(pixels);
  return image;
}

bool is_idx_name(const std::filesystem::path& path) {
  return path.filename().string().find("idx3") != std::string::npos;
}

LabelledText read_labelled_images(const std::filesystem::path& path, std::filesystem::path labels_path,
                                  const TextOptions& options) {
  if (labels_path.empty()) {
    std::string name = path.filename().string();
    const std::size_t images = name.find("images");
    check(images != std::string::npos && is_idx_name(path), path.string(),
          ": the name does not tell where the labels are; give data.labels, the file of labels");
    name.replace(images, 6, "labels");
    name.replace(name.find("idx3"), 4, "idx1");
    labels_path = path.parent_path() / name;
  }
  const Images images = parse_idx_images(read_limited_file(path, options), path.string(), options.max_bytes);
  const std::vector<std::uint8_t> labels =
      parse_idx_labels(read_limited_file(labels_path, options), labels_path.string(), options.max_bytes);
  check(images.pixels.size() == labels.size(), path.string(), " has ", images.pixels.size(), " images, but ",
        labels_path.string(), " has ", labels.size(), " labels");
  LabelledText text;
  for (std::size_t i = 0; i < labels.size(); ++i)
    text.add(image_line(images, i), std::to_string(labels[i]), path.string() + ": image ", i + 1);
  return text;
}

}  // namespace heed
