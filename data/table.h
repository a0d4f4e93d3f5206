#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/text_file.h"

namespace heed {

/// How a table is laid out in a file, and what is read of it. Formats:
/// - csv, tsv: see read_csv and read_tsv; columns have numbers, and names where the first row holds them;
/// - jsonl: a JSON object on each line, whose members are the columns: texts, numbers, true and false.
struct TableOptions {
  std::string format = {};  ///< "": by the name: .csv, .tsv, .jsonl, each also with .gz
  bool header = false;      ///< of csv and tsv: the first row holds names and is left out
  /// The columns, in this order: a number from 1 or a name of the header; of jsonl a name. Empty: all.
  std::vector<std::string> columns = {};
  bool distinct = false;  ///< none of these may be one with another: no label stands among its texts
  bool others = false;    ///< behind these all others; of jsonl those of the first line
  TextOptions text = {};
};

/// Columns of texts of the same length; numbers of jsonl stand as JSON writes them.
struct Table {
  std::vector<std::string> names;  ///< as they were asked for, or as the file has them
  std::vector<TextList> columns;   ///< [columns][rows]
  TextPlaces places;               ///< [rows]; where the row begins
  std::size_t size() const { return places.size(); }
  const TextList& column(std::string_view name) const;  ///< throws Error when there is none
};

/// A row, of the columns that were asked for, and all rows before it were as good as this one.
struct TableCells {
  const std::vector<std::string>& names;  ///< of the columns
  const std::vector<std::string>&
      first;  ///< all that the first line holds: names of a header, else cells; of jsonl keys
  std::vector<std::string>& cells;  ///< [columns], which may be taken away
  std::string_view origin;
  std::size_t line;           ///< where the row begins
  std::string place() const;  ///< "file:line"
};
using TakeCells = std::function<void(const TableCells& row)>;

/// "csv", "tsv", "jsonl".
std::vector<std::string> table_formats();
/// The format that the name of a file tells; "" when it tells none.
std::string table_format(const std::filesystem::path& path);

/// Reads a table, plain or gzip. Throws Error with file and line as read_lines, read_csv and read_tsv do; for
/// a name that does not tell the format; for a column that is not there or stands twice in the header, with
/// the names that are; for a file with nothing but a header; for a line that is no JSON object, lacks a
/// column, or has a list, an object or null there.
Table read_table(const std::filesystem::path& path, const TableOptions& options = {},
                 ReadReport* report = nullptr);
/// The same for bytes already in memory, in a format that is named; `origin` says in errors where they came
/// from.
Table parse_table(std::string_view bytes, std::string_view origin, const TableOptions& options,
                  ReadReport* report = nullptr);
/// The same row by row, as they are read: none is kept. What is wrong with the columns is said at the first.
void read_table_rows(const std::filesystem::path& path, const TableOptions& options, const TakeCells& take,
                     ReadReport* report = nullptr);
void parse_table_rows(std::string_view bytes, std::string_view origin, const TableOptions& options,
                      const TakeCells& take, ReadReport* report = nullptr);

/// Names in quotes, for messages; of very many the first, of long ones the beginning.
std::string quoted_names(std::span<const std::string> names);

}  // namespace heed
