#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/text_file.h"

// Files of dialogues, of news and of images.

namespace heed {

// --- dialogues

/// The mark that ends every turn of a dialogue, as in DailyDialog (Li et al., IJCNLP 2017).
inline constexpr std::string_view turn_end = "__eou__";

/// The turns of a dialogue between two speakers, who alternate.
using Dialogue = std::vector<std::string>;

/// Returns the turns of a line "Hello . __eou__ Hi , Ann . __eou__", without surrounding white
/// space. The mark after the last turn may be missing. Empty for a blank line; empty turns are left
/// out.
Dialogue split_turns(std::string_view line);

/// Reads dialogues, one per line, in which every turn ends in the mark. Throws Error with file and
/// line as read_lines does, and for a blank line, a turn without a mark after it, and an empty
/// turn.
std::vector<Dialogue> read_dialogues(const TextInput& input, const TextOptions& options = {},
                                     ReadReport* report = nullptr);

/// Returns training pairs for answers: for every turn except the first, the source is up to
/// `context` previous turns, joined by the mark, and the target is the turn itself.
ParallelText answers_in(const std::vector<Dialogue>& dialogues, std::int64_t context);

// --- MIND, the Microsoft news dataset (Wu et al., ACL 2020): news.tsv and behaviors.tsv

/// Numbers the ids of news from 0, in the order in which they appear.
class NewsNames {
 public:
  /// Returns the number of an id; a new id gets the next number.
  std::int32_t number_of(std::string_view id);
  const std::string& name(std::int32_t number) const { return names_[static_cast<std::size_t>(number)]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::vector<std::string> names_;
};

/// A row of news.tsv, without its entities and address.
struct News {
  std::int32_t number = 0;
  std::string category, subcategory, title, abstract;  ///< title and abstract may be empty
  bool operator==(const News&) const = default;
};

/// A list of news that a user was shown.
struct Impression {
  std::int64_t time = 0;  ///< seconds since 1970, by the file's clock
  /// News that the user had clicked before, oldest first; may be empty.
  std::vector<std::int32_t> history;
  std::vector<std::int32_t> clicked, passed;  ///< of those shown; each in the order of the file
};

/// Reads news.tsv: eight columns, id, category, subcategory, title, abstract, url and two lists of
/// entities. An id may occur twice if both rows are equal. Throws Error with file and line as
/// read_lines does, for another number of columns, an id that is empty or contains a space, and a
/// second, different row of an id.
std::vector<News> read_news(const TextInput& input, NewsNames& names, const TextOptions& options = {},
                            ReadReport* report = nullptr);

/// Reads behaviors.tsv: five columns, impression id, user id, time ("11/13/2019 5:53:12 AM"),
/// history and impressions ("N1-1 N2-0": clicked or not), both separated by spaces. Throws Error
/// with file and line as read_lines does, for another number of columns, a time in another form, a
/// candidate without -0 or -1, and a row without candidates.
std::vector<Impression> read_impressions(const TextInput& input, NewsNames& names,
                                         const TextOptions& options = {}, ReadReport* report = nullptr);

/// Returns the numbers of ids that are separated by spaces.
std::vector<std::int32_t> parse_news_ids(std::string_view text, NewsNames& names);

using ImpressionParts = DataParts<std::vector<Impression>>;

/// The choice of held-out impressions. In order of time, or of the random words of `seed`, the last
/// round(n * test_fraction) form the test part and the round(n * valid_fraction) before them the
/// validation part. Each part keeps the order of the data. split_impressions() throws Error for
/// fractions that leave no training data.
struct ImpressionSplit {
  double valid_fraction = 0, test_fraction = 0;
  bool by_time = true;
  std::uint64_t seed = 1;
};
ImpressionParts split_impressions(std::vector<Impression> all, const ImpressionSplit& split);

/// Returns a digest of impressions, in their order.
std::string impressions_digest(std::span<const Impression> impressions, const NewsNames& names);

// --- the IDX format of MNIST (yann.lecun.com/exdb/mnist): a big-endian magic number of four bytes, the extents in
// the same form, and one byte per value

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
