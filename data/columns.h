#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What the first rows of a table show of its columns: whether the first row names them, and which are texts
// and which the label. Labels repeat, texts do not.

namespace heed {

/// One row of a table and the line where it begins, from 1.
struct TableRow {
  std::vector<std::string> fields;
  std::size_t line = 0;
  char delimiter = '\t';  ///< what separates them
};

/// The first rows of a table, from which columns are chosen.
struct TableSample {
  std::vector<std::string> names;  ///< of the columns; without a header their numbers
  bool has_names = false, is_json = false;
  /// Without the header. In those of jsonl "" stands for what is no text, number or truth value.
  std::span<const TableRow> rows;
  bool is_whole = false;  ///< the table has no other rows
  std::string_view origin;
  /// The place, from 0, of a column that is given by number or name. Throws Error where it is not there.
  std::function<std::size_t(const std::string& column)> find;
};

/// Whether the first of these rows names the columns (see Header of data/table.h). `chosen`: those that are
/// read; empty: it is not known yet.
bool names_columns(std::span<const TableRow> rows, std::span<const std::size_t> chosen);

/// The columns of labelled texts as far as somebody has named them; "" and {}: found by the data.
struct ColumnsGiven {
  std::string label = {};
  std::vector<std::string> texts = {};
  bool pairs = false;
  std::string second = {};  ///< of pairs, whose first text is the one of `texts`
  std::string weight = {};  ///< "": there is none
  bool numbers = false;     ///< the label is a number
};

/// The columns that are read, from 0.
struct ColumnsFound {
  std::size_t label = 0;
  std::optional<std::size_t> second = {};
  std::vector<std::size_t> texts = {};
  std::optional<std::size_t> weight = {};
  std::string remark;  ///< "reads the text from "review", the label from "stars"; passes over "id", ..."
};

/// Takes the columns that are given, and those that a header calls "label", for pairs also "first" and
/// "second"; finds the others in this way. Texts are the columns that are not empty, no numbers, no ids,
/// dates or addresses, and do not repeat few values; a pair needs two of them. The label repeats few values.
/// Where two columns do, it is the one that is as short as a name, and then the one that is called so
/// ("class", "sentiment"). A label that is a number stands in the one column of numbers that do not count the
/// rows, and of several in the one that is called so. Small tables in which nothing repeats, or everything,
/// have the label in the first column (pairs in the third), and texts in the others. Throws an Error that
/// names the columns where more than one could be the label, or more than two the texts of a pair.
ColumnsFound find_columns(const TableSample& sample, const ColumnsGiven& given);

}  // namespace heed
