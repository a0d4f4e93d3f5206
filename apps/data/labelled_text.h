#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"

namespace heed {

/// Texts, or pairs of texts, each with its class name, and the origin of each for messages. A text may be
/// empty if the data has only a label.
struct LabelledText {
  TextList texts, labels;
  TextPlaces places;
  /// For pairs: the second texts (`texts` are the first); otherwise empty.
  TextList seconds = {};
  std::vector<float> weights = {};  ///< weight of each in training; empty: all equal
  /// For tables: the selected columns of the first line; their names if it is a header, or for
  /// jsonl.
  std::vector<std::string> first_line = {};
  /// The columns that were read: label, second text, texts. They are names if the table has names,
  /// or numbers if they were found from the data.
  std::vector<std::string> columns = {};
  std::size_t size() const { return texts.size(); }
  void add(std::string_view text, std::string_view label, std::string_view origin, std::size_t line = 0);
  void add_pair(std::string_view first, std::string_view second, std::string_view label,
                std::string_view origin, std::size_t line = 0);
  /// Returns the texts at these indices; they are shared, not copied.
  LabelledText picked(std::span<const std::size_t> indices) const;
};

/// Returns the group of each text, from 0: consecutive pairs with the same first text, such as the answers
/// to a question; any other text is a group by itself.
std::vector<std::size_t> group_by_first_text(const LabelledText& text);

/// Whether a text is an integer as programs write it: "-12"; not "+5", "007" or "-0".
bool is_integer_text(std::string_view text);
/// Returns the names of all classes, by their index: in byte order or, if all are integers and `by_value` is
/// set, in numeric order. Throws Error if there are fewer than two.
std::vector<std::string> class_names(const LabelledText& text, bool by_value = true);
/// Returns the class of each text. Throws Error with the place of the first unknown label.
std::vector<std::int32_t> classes_of(const LabelledText& text, std::span<const std::string> classes);

// --- reading

/// The layout of labelled texts in a file or folder. Formats:
/// - lines: on each line a label, a space and a text, which may be empty;
/// - csv, tsv, jsonl: a column with labels and columns with texts (see TableOptions);
/// - folders: a folder for each class, sorted by name, in which every file is one document. Line ends become
/// "\n", and leading empty lines are left out. If the folder contains only files, each file is a class with
/// that name and has a text on each line, none of them empty ("lines" reads such a folder in the same way).
/// Names such as "train.all" or "test" are taken for classes only if the format is given as "folders".
struct LabelledOptions {
  std::string format = {};  ///< "": from the name: a folder, .csv, .tsv, .jsonl, each also with .gz
  TextOptions text = {};
  // For csv, tsv and jsonl. Columns are numbers from 1 or names; those not given are found from the
  // data (see find_columns).
  std::string label_column = {};
  std::vector<std::string> text_columns = {};  ///< joined with a space; for pairs, the first text
  bool pairs = false;
  std::string second_column = {};  ///< of pairs; giving it implies `pairs`
  std::string weight_column = {};  ///< of finite numbers, 0 or more; "": there is none
  /// The separator between the labels of a text that may have several, or none; "": each text has
  /// one. In jsonl the labels may be a list of texts.
  std::string label_separator = {};
  /// The labels are numbers: a column of numbers may be the label.
  bool numbers = false;
  Header header = Header::detected;  ///< of csv and tsv
  std::string delimiter = {};        ///< of csv (TableOptions)
  /// Leaves out and counts rows without a label or a text (an empty cell; in jsonl, null).
  /// Otherwise the first row without a label is an Error.
  bool drop_missing = false;
};

/// Throws an Error that begins with `place` for a label that is longer than 1,000 bytes, contains line ends
/// or is not UTF-8: labels appear in one-line answers, JSON and tables.
void check_label(std::string_view label, std::string_view place);

/// Returns "lines", "csv", "tsv", "jsonl", "folders".
std::vector<std::string> labelled_formats();
/// Returns the format implied by the name of a file or folder; "" if none.
std::string labelled_format(const std::filesystem::path& path);

/// Reads labelled texts. Throws Error, with the place, as read_lines does; for a name that implies no format;
/// for a label that is missing or empty (unless such rows are dropped), a column that does not exist, a file
/// without rows, and column options if the format has no columns; for a folder without class folders, a file
/// next to class folders, a class without documents, and a document that is empty or no regular file.
LabelledText read_labelled_text(const TextInput& input, const LabelledOptions& options = {},
                                ReadReport* report = nullptr);

/// Receives the content of a row: a text, or two separated by a tab.
using TakeText = std::function<void(std::string text, const TableCells& row)>;
/// Reads the texts of a table row by row, with or without a column of labels. In pairs, tabs become spaces.
/// The report names the columns. Throws as read_labelled_text does, and for a file that is not a table.
void read_texts_of_table(const TextInput& input, const LabelledOptions& options, const TakeText& take,
                         ReadReport* report = nullptr);

// --- parts

using TextParts = DataParts<LabelledText>;

struct SplitOptions {
  double valid_fraction = 0;
  double test_fraction = 0;
  std::uint64_t seed = 1;
  bool stratified = false;  ///< the same share of each class, with at least one text for training
  bool classes = true;      ///< false: the labels are numbers, and need not be known in every part
  /// Cross-validation: the test part is part `fold` (from 1) of `folds`, whatever test_fraction; 0:
  /// none.
  std::int64_t folds = 0, fold = 0;
};

/// Splits texts at random into training, validation and test parts, each in the order of the data.
///
/// Pairs with the same first text stay together as a group, since a text seen in training would give the
/// answer away; without pairs, each text is a group. Group i gets random word i of the seed. In the order of
/// these words, the first round(n * test_fraction) of n groups form the test part, so that it does not depend
/// on the validation part, the next round(n * valid_fraction) the validation part, and the rest the training
/// part. With K folds, groups are dealt to the folds in turn, and fold k is the test part; of the r other
/// groups, the round(r * valid_fraction) after the fold, cyclically, form the validation part.
///
/// Stratified, each class is split in this way. The class of a group is its rarest label. The shares of the
/// classes are rounded, in the order of their names, so that they add up to the share of the whole, and the
/// last group of a class stays in training.
///
/// Throws Error for fractions that leave no training data, more folds than groups, and, for classes that are
/// not stratified, a class with a single group in folds.
TextParts split_text(const LabelledText& text, const SplitOptions& options);

}  // namespace heed
