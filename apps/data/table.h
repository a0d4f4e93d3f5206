#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_file.h"

namespace heed {

// --- rows of csv and tsv

/// One row of a table and the line where it begins, from 1.
struct TableRow {
  std::vector<std::string> fields;
  std::size_t line = 0;
  char delimiter = '\t';  ///< between the fields
};

/// Receives each row as it is read. It may move the fields away.
using TakeRow = std::function<void(TableRow& row)>;

/// Reads comma-separated values (RFC 4180). A quoted field may contain commas, line ends and doubled quotes,
/// which encode one quote; a backslash is an ordinary character. Empty lines are left out. `delimiter` may
/// be another character; 0 detects it in the first line: of comma, semicolon and tab the first that is there
/// outside quotes and without a space behind it, otherwise the first that is there; the report names it.
/// Throws Error with file and line as read_lines does, and for a quote inside an unquoted field, text after
/// a closing quote, a quote that is never closed, a row with another number of fields than the first or with
/// more than 65,536, and a file without rows.
void read_csv(const TextInput& input, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr, char delimiter = ',');

/// Reads tab-separated values: a row is a line, and everything except tabs is text, quotes too. Empty lines
/// are left out. Throws Error as read_csv does.
void read_tsv(const TextInput& input, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr);

// --- columns (columns.cpp): whether the first row is a header, which columns are texts, and which one is
// the label. Labels repeat; texts do not.

/// The first rows of a table, from which columns are chosen.
struct TableSample {
  std::vector<std::string> names;  ///< of the columns; without a header their numbers
  bool has_names = false, is_json = false;
  /// The rows without the header. In rows of jsonl, "" replaces values other than texts, numbers
  /// and truth values.
  std::span<const TableRow> rows;
  bool is_whole = false;  ///< the table has no other rows
  std::string_view origin;
  /// Returns the index, from 0, of a column given by number or name. If there is none, throws Error,
  /// or returns nothing for a column that is not `required`.
  std::function<std::optional<std::size_t>(const std::string& column, bool required)> find;
};

/// Whether the first of these rows is a header. `chosen`: the columns
/// to read; empty: not known yet.
bool names_columns(std::span<const TableRow> rows, std::span<const std::size_t> chosen);

/// The columns of labelled texts that the user named; "" and {}: to be found from the data.
struct ColumnsGiven {
  std::string label = {};
  std::vector<std::string> texts = {};
  bool pairs = false;
  std::string second = {};  ///< second text of a pair; the first is in `texts`
  std::string weight = {};  ///< "": there is none
  bool numbers = false;     ///< the label is a number
  bool labelled = true;     ///< false: texts to be answered, with or without a label
};

/// The columns to read, as indices from 0.
struct ColumnsFound {
  std::optional<std::size_t> label = {};  ///< none: there is none, in texts to be answered
  std::optional<std::size_t> second = {};
  std::vector<std::size_t> texts = {};
  std::optional<std::size_t> weight = {};
  /// "reads the text from "review", the label from "stars"; passes over "id", ...".
  std::string remark;
};

/// Finds the columns that are not given, by one rule (docs/reference/data.md states it for users).
/// A column holds numbers, if all its cells do; few values, if they are at most a fifth of ten cells
/// or more; ids, dates or addresses, if 19 of 20 cells do; otherwise texts. Then
///
/// - the label is the column named "label"; a number, if the label is one and this column does not
/// count the rows; the column of few values; in less than ten rows one in which values occur twice;
/// one that is called as labels are ("stars", "class"); of three rows or more the one with the fewest
/// values; the only one of numbers; or, of three rows or more, clearly the shortest. Of several, those
/// as short as names, and of these the ones with typical names. Otherwise it is the first column (the
/// third for pairs);
/// - the texts are all other columns of texts; for pairs there are two, "first" and "second".
///
/// Texts to be answered need no label: in a table with names, none is taken by its place, values or
/// width.
///
/// Throws an Error naming the columns if several could be the label, or more than two the texts of
/// a pair.
ColumnsFound find_columns(const TableSample& sample, const ColumnsGiven& given);

// --- tables

/// Whether csv and tsv files have a header. Detection looks at the first rows, at most 10,000, and
/// the report states the result. The first row is a header if its cells look like names (short,
/// different, not numbers, empty only above the index or an empty column), no other row repeats one
/// of them in the same column, and there is further evidence: a column of numbers below; a column in
/// which ten rows or more share a few values; twenty rows of text columns whose cells are nearly all
/// longer; or two well-known names, such as "label" and "text", or only such names.
enum class Header { detected, present, absent };

/// The layout of a table file, and the columns to read from it. Formats:
/// - csv, tsv: see read_csv and read_tsv; columns have numbers, and names if there is a header;
/// - jsonl: one JSON object per line, or one array of objects, whose members are the columns: texts,
/// numbers, true and false; "a.b" is the member b of the object a.
struct TableOptions {
  std::string format = {};  ///< "": from the file name: .csv, .tsv, .jsonl, .json, each also with .gz
  /// Whether csv and tsv have a header; giving a column by name implies one.
  Header header = Header::detected;
  std::string delimiter = {};  ///< of csv: "comma", "semicolon", "tab"; "": detected (read_csv)
  /// The columns, in this order: a number from 1 or a name in the header; for jsonl a name. Empty:
  /// all.
  std::vector<std::string> columns = {};
  /// For each column, a name that replaces it if the header has that name; or "".
  std::vector<std::string> usual_names = {};
  bool distinct = false;  ///< columns must differ, so that the label column is not also a text
  std::string list_separator =
      {};  ///< of jsonl: a list of texts is one text, with this between them; "": an error
  bool null_as_empty = false;  ///< for jsonl: treats null and missing members as empty cells
  /// Chooses the columns from the first rows, instead of the options above. Returns their indices.
  std::function<std::vector<std::size_t>(const TableSample& sample)> choose = {};
  TextOptions text = {};
};

/// The selected columns of one row. Numbers of jsonl are written as in JSON. Rows arrive in order,
/// so all rows before this one were valid.
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
/// Returns a row of csv or tsv, without a line end, that read_csv and read_tsv read back as these
/// cells. Throws an Error for a cell with a tab or line end in tsv.
std::string csv_row(std::span<const std::string> cells, char delimiter = ',');
std::string tsv_row(std::span<const std::string> cells);

/// Returns "csv", "tsv", "jsonl".
std::vector<std::string> table_formats();
/// Returns "comma", "semicolon", "tab".
std::vector<std::string> table_delimiters();
/// Returns the format implied by a file name; "" if none.
std::string table_format(const std::filesystem::path& path);

/// Reads a table row by row. Throws Error as read_csv does; for a name that implies no format; for a column
/// that is missing or occurs twice in the header, at the first row; for a file with only a header; and for a
/// line that is not a JSON object, lacks a column, or has a list, an object or null there.
void read_table_rows(const TextInput& input, const TableOptions& options, const TakeCells& take,
                     ReadReport* report = nullptr);

/// Returns a remark on the columns of a row: "file: the text is read from the column "text"".
std::string remark_on_columns(const TableCells& row);

/// Returns names in quotes, for messages. Long lists and long names are shortened.
std::string quoted_names(std::span<const std::string> names);

/// Reads word vectors in text form and calls visit(word, its `width` numbers) for each, in order. Each line
/// has a word, which may contain spaces, and its numbers (GloVe); the files of word2vec begin with a line of
/// the count and the width of the vectors. Bytes that are not UTF-8 become U+FFFD. Throws Error with file
/// and line for a path that is not a file, a damaged file, or vectors of another width.
void read_word_vectors(
    const std::string& path, std::int64_t width,
    const std::function<void(std::string_view word, std::span<const float> values)>& visit);

}  // namespace heed
