#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/text_file.h"

namespace heed {

/// One row of a table and the line where it begins, from 1.
struct TableRow {
  std::vector<std::string> fields;
  std::size_t line = 0;
};

/// Gets each row as it is read. It may take the fields away.
using TakeRow = std::function<void(TableRow& row)>;

/// Reads comma-separated values as RFC 4180 has them: a field in quotes may hold commas, line ends and
/// doubled quotes, which stand for one, and its line ends become "\n"; a backslash is an ordinary character,
/// before a quote as well. Plain or gzip. A line without a character is no row. Throws Error with file and line as
/// read_lines does, on a quote inside an unquoted field, text behind a closing quote, a quote that is never closed, a
/// row with another number of fields than the first, or with more than 65,536, and where there is no row.
void read_csv(const std::filesystem::path& path, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr);
/// The same for bytes already in memory; `origin` says in errors where they came from.
void parse_csv(std::string_view bytes, std::string_view origin, const TakeRow& take,
               const TextOptions& options = {}, ReadReport* report = nullptr);

/// Reads tab-separated values: a row is a line, and all but tabs is text, quotes too. A line without a character is no
/// row. Throws Error with file and line as read_lines does, and on rows as read_csv does.
void read_tsv(const std::filesystem::path& path, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr);
/// The same for bytes already in memory.
void parse_tsv(std::string_view bytes, std::string_view origin, const TakeRow& take,
               const TextOptions& options = {}, ReadReport* report = nullptr);

}  // namespace heed
