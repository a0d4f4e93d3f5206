#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heed/apps/data/text_file.h"

// The files of MIND, the Microsoft news dataset (Wu et al., ACL 2020): news.tsv and behaviors.tsv.

namespace heed {

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

}  // namespace heed
