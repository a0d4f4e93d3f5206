#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/labelled_text.h"

// The IDX format of MNIST (yann.lecun.com/exdb/mnist): a big-endian magic number of four bytes, the
// extents in the same form, and one byte per value.

namespace heed {

/// Images of equal size: the values 0 to 255, row by row.
struct Images {
  std::int64_t rows = 0, columns = 0;
  TextList pixels;  ///< rows * columns bytes per image
};

/// Parses an image file (magic number 2051: count, rows, columns) or a label file (2049: count),
/// possibly gzip. Throws Error for any other magic number, for no images or images without pixels,
/// and for a file that is longer or shorter than its extents say or unpacks to more than max_bytes.
Images parse_idx_images(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes);
std::vector<std::uint8_t> parse_idx_labels(std::string_view bytes, std::string_view origin,
                                           std::uint64_t max_bytes);

/// Returns an image as a line of text: "rows columns" and the values, in decimal and separated by
/// spaces. parse_image_line() is the inverse. Both throw Error, for an index out of range and for a
/// line that is not such an image.
std::string image_line(const Images& images, std::size_t index);
Images parse_image_line(std::string_view line);

/// Whether a name contains "idx3", as the MNIST files do.
bool is_idx_name(const std::filesystem::path& path);
/// Reads an image file and a label file (empty: named like the images, with "labels" for "images"
/// and "idx1" for "idx3"). Each text is an image_line, its label the number. Throws Error as above,
/// with both counts if they differ, and as read_lines does for a path that is not a regular file or
/// is larger than max_bytes.
LabelledText read_labelled_images(const std::filesystem::path& images, std::filesystem::path labels,
                                  const TextOptions& options);

}  // namespace heed
