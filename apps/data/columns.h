#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Column detection from the first rows of a table: whether the first row is a header, which columns
// are texts, and which one is the label. Labels repeat; texts do not.

namespace heed {

/// One row of a table and the line where it begins, from 1.
struct TableRow {
  std::vector<std::string> fields;
  std::size_t line = 0;
  char delimiter = '\t';  ///< between the fields
};

/// The first rows of a table, from which columns are chosen.
struct TableSample {
  std::vector<std::string> names;  ///< of the columns; without a header their numbers
  bool has_names = false, is_json = false;
  /// The rows without the header. In rows of jsonl, "" replaces values other than texts, numbers
  /// and truth values.
  std::span<const TableRow> rows;
  bool is_whole = false;  ///< the table has no other rows
  std::string_view origin;
  /// Returns the index, from 0, of a column given by number or name. Throws Error if there is none.
  std::function<std::size_t(const std::string& column)> find;
};

/// Whether the first of these rows is a header (see Header in apps/data/table.h). `chosen`: the columns
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
};

/// The columns to read, as indices from 0.
struct ColumnsFound {
  std::size_t label = 0;
  std::optional<std::size_t> second = {};
  std::vector<std::size_t> texts = {};
  std::optional<std::size_t> weight = {};
  /// "reads the text from "review", the label from "stars"; passes over "id", ...".
  std::string remark;
};

/// Finds the columns that are not given. A header that names a column "label", or for pairs "first"
/// and "second", decides. Otherwise:
///
/// - Texts are columns that are not empty, are not numbers, ids, dates or addresses, and do not
/// repeat a few values. A pair needs two of them.
/// - The label repeats a few values. If two columns do, it is the one as short as a name, then the
/// one with a typical name ("class", "sentiment").
/// - A numeric label is the only column of numbers that does not count the rows; if there are
/// several, the one with a typical name.
/// - In small tables where nothing repeats, or everything does, the label is the first column (the
/// third for pairs), and texts are the others.
///
/// Throws an Error naming the columns if several could be the label, or more than two the texts of
/// a pair.
ColumnsFound find_columns(const TableSample& sample, const ColumnsGiven& given);

}  // namespace heed
