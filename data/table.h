#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/columns.h"
#include "heed/data/text_file.h"

namespace heed {

// --- rows of csv and tsv

/// Receives each row as it is read. It may move the fields away.
using TakeRow = std::function<void(TableRow& row)>;

/// Reads comma-separated values (RFC 4180): a field in quotes may contain commas, line ends, and doubled
/// quotes, which stand for one; its line ends become "\n". Fields may end in another `delimiter`; 0 looks at
/// the first line: a comma if it has one outside quotes, else a semicolon, else a tab, and the report says
/// which of these two it was. A backslash is an ordinary character, even before a quote. Plain or gzip. Empty
/// lines are left out. Throws Error with file and line as read_lines does, and for a quote inside an unquoted
/// field, text after a closing quote, a quote that is never closed, a row with another number of fields than
/// the first or with more than 65,536, and a file without rows.
void read_csv(const TextInput& input, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr, char delimiter = ',');

/// Reads tab-separated values: a row is a line, and everything except tabs is text, quotes too. Empty lines
/// are left out. Throws Error with file and line as read_lines does, and for rows as read_csv does.
void read_tsv(const TextInput& input, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr);

// --- tables

/// Whether the first row of csv and tsv names the columns. Unless it is known it is found out from the first
/// rows, at most 10,000, and the report says what it was taken for. It names them if its cells look like
/// names (short, different, no numbers), no other row has one of them in the same column, and something else
/// speaks for it, too: a column of numbers below; a column of which ten rows or more share few values; of
/// texts that are read, cells that are nearly all longer; or well-known names such as "label" and "text".
enum class Header { detected, present, absent };

/// The layout of a table file, and what to read from it. Formats:
/// - csv, tsv: see read_csv and read_tsv; columns have numbers, and names if the first row holds them;
/// - jsonl: one JSON object per line, whose members are the columns: texts, numbers, true and false; "a.b" is
///   the member b of the object a.
struct TableOptions {
  std::string format = {};  ///< "": from the file name: .csv, .tsv, .jsonl, each also with .gz
  /// Of csv and tsv. Where a column is given by its name the first row names them.
  Header header = Header::detected;
  std::string delimiter = {};  ///< of csv: "comma", "semicolon", "tab"; "": by the first line (read_csv)
  /// The columns, in this order: a number from 1 or a name in the header; for jsonl a name. Empty: all.
  std::vector<std::string> columns = {};
  /// For each of these "", or the name that stands in its place where a header has it.
  std::vector<std::string> usual_names = {};
  bool distinct = false;  ///< these must differ, so that the label column is not also a text
  bool others = false;    ///< adds all other columns after these; for jsonl those of the first line
  /// The first of these columns that is there is none of the others.
  std::vector<std::string> left_out = {};
  std::string list_separator =
      {};  ///< of jsonl: a list of texts is one text, with this between them; "": an error
  bool null_as_empty = false;  ///< of jsonl: null, or a member that a line lacks, is an empty cell
  /// In place of all these: the places of the columns, chosen from the first rows.
  std::function<std::vector<std::size_t>(const TableSample& sample)> choose = {};
  TextOptions text = {};
};

/// The selected columns of one row; all rows before it were valid. Numbers of jsonl are written as in JSON.
struct TableCells {
  const std::vector<std::string>& names;  ///< of the columns; without a header their numbers
  /// Everything on the first line: header names or cells; for jsonl the keys.
  const std::vector<std::string>& first;
  bool has_header;                   ///< csv and tsv: these are names
  std::vector<std::string>& cells;   ///< [columns], may be moved from
  std::span<const std::string> row;  ///< every cell of csv and tsv; for jsonl the line
  char delimiter;                    ///< of csv and tsv: what separates them
  std::string_view origin;
  std::size_t line;           ///< where the row begins
  std::string place() const;  ///< "file:line"
};
using TakeCells = std::function<void(const TableCells& row)>;

/// Whether a column is given by its name, not by its number.
bool is_column_name(const std::string& column);
/// A row of csv or tsv with a field for each cell, as read_csv and read_tsv read it; without a line end.
/// Throws an Error for a cell that has a tab or a line end in tsv.
std::string csv_row(std::span<const std::string> cells, char delimiter = ',');
std::string tsv_row(std::span<const std::string> cells);

/// "csv", "tsv", "jsonl".
std::vector<std::string> table_formats();
/// "comma", "semicolon", "tab".
std::vector<std::string> table_delimiters();
/// The format that a file name implies; "" if none.
std::string table_format(const std::filesystem::path& path);

/// Reads a table row by row. Throws Error with file and line as read_lines, read_csv and read_tsv do; for a
/// name that implies no format; for a column that is missing or occurs twice in the header, listing the
/// available names, which it notices at the first row; for a file with only a header; and for a line that is
/// not a JSON object, lacks a column, or has a list, an object or null there.
void read_table_rows(const TextInput& input, const TableOptions& options, const TakeCells& take,
                     ReadReport* report = nullptr);

/// "file: the text is read from the column "text"": of the columns of a row.
std::string remark_on_columns(const TableCells& row);

/// Names in quotes, for messages; long lists and long names are shortened.
std::string quoted_names(std::span<const std::string> names);

/// Reads word vectors in text form and calls visit(word, its `width` numbers) for each, in order. Each line
/// has a word and its numbers (GloVe); the files of word2vec begin with a line of two whole numbers, the
/// count and the width of the vectors. A word may contain spaces. Plain or gzip; bytes that are not UTF-8
/// become U+FFFD. Throws Error with file and line for a path that is not a file, a damaged file, or vectors
/// of another width.
void read_word_vectors(
    const std::string& path, std::int64_t width,
    const std::function<void(std::string_view word, std::span<const float> values)>& visit);

}  // namespace heed
