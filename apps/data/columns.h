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
  /// Returns the index, from 0, of a column given by number or name. If there is none, throws Error,
  /// or returns nothing for a column that is not `required`.
  std::function<std::optional<std::size_t>(const std::string& column, bool required)> find;
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

}  // namespace heed
