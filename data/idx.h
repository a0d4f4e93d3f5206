#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/labelled_text.h"

// The IDX format of MNIST (yann.lecun.com/exdb/mnist): a big-endian magic number of four bytes, the extents
// likewise, and one byte for each value.

namespace heed {

/// Images of one size: the values 0 to 255 row by row.
struct Images {
  std::int64_t rows = 0, columns = 0;
  TextList pixels;  ///< one image: rows * columns bytes
};

/// Reads the bytes of a file of images (magic number 2051: count, rows, columns) or of labels (2049: count),
/// which may be gzip. Throws Error for any other magic number, for no images or images without pixels, and
/// for a file that is longer or shorter than its extents say, or unpacks to more than max_bytes.
Images parse_idx_images(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes);
std::vector<std::uint8_t> parse_idx_labels(std::string_view bytes, std::string_view origin,
                                           std::uint64_t max_bytes);

/// An image as a line of text: "rows columns" and the values, all in decimal, with a space between; throws
/// Error for an index beyond the images. And back: throws Error for a line that is no such image.
std::string image_line(const Images& images, std::size_t index);
Images image_of_line(std::string_view line);

/// True for a name that has "idx3" in it, as the files of MNIST have.
bool is_idx_name(const std::filesystem::path& path);
/// Reads a file of images and one of labels (empty: named like the images, with "labels" for "images" and
/// "idx1" for "idx3"): each text is an image_line, its label the number. Throws Error as above, with both
/// counts when they differ, and as read_lines does of what is no regular file or larger than max_bytes.
LabelledText read_labelled_images(const std::filesystem::path& images, std::filesystem::path labels,
                                  const TextOptions& options);

}  // namespace heed
