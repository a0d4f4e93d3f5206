#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/table.h"
#include "heed/data/text_file.h"

namespace heed {

/// Texts, or pairs of texts, with the name of the class of each. A text may be empty if the data has only a
/// label; but an empty line cannot be predicted from. `places` tells where a text came from, for messages.
struct LabelledText {
  TextList texts, labels;
  TextPlaces places;
  TextList seconds = {};            ///< for pairs: the second texts (`texts` are the first); otherwise empty
  std::vector<float> weights = {};  ///< how much each counts in training; empty: all alike
  /// For tables: the first line of the selected columns; their names if it is a header, or for jsonl.
  std::vector<std::string> first_line = {};
  /// The columns that were read, of the label, of a second text, of the texts: by names that the table gives,
  /// or by numbers where they were found by the data.
  std::vector<std::string> columns = {};
  std::size_t size() const { return texts.size(); }
  void add(std::string_view text, std::string_view label, std::string_view origin, std::size_t line = 0);
  void add_pair(std::string_view first, std::string_view second, std::string_view label,
                std::string_view origin, std::size_t line = 0);
  /// The texts at these indices; they are shared, not copied.
  LabelledText picked(std::span<const std::size_t> indices) const;
};

/// The group of each text, from 0: consecutive pairs with the same first text, such as the answers to a
/// question, form a group; any other text is a group by itself.
std::vector<std::size_t> groups_of(const LabelledText& text);

/// The names of all classes, each once, in byte order: the index of a name is its class. Throws Error if
/// there are fewer than two.
std::vector<std::string> class_names(const LabelledText& text);
/// The class of each text. Throws Error with the place of the first label that is not among `classes`.
std::vector<std::int32_t> classes_of(const LabelledText& text, std::span<const std::string> classes);

// --- reading -----------------------------------------------------------------------------------------------

/// The layout of labelled texts in a file or folder. Formats:
/// - lines: on each line a label, a space and a text, which may be empty;
/// - csv, tsv, jsonl: a column with labels and columns with texts (see TableOptions); labels may be numbers;
/// - folders: a folder for each class, in which every file is one document; classes and documents are in
///   order of their names. Line ends become "\n", and leading empty lines are left out. In a folder that
///   contains only files, each file is a class with that name and has a text on each line, none of them empty
///   ("lines" reads a folder in the same way). Names such as "train.all" or "test" are taken for classes only
///   where the format is given as "folders".
struct LabelledOptions {
  std::string format = {};  ///< "": from the name: a folder, .csv, .tsv, .jsonl, each also with .gz
  TextOptions text = {};
  // For csv, tsv and jsonl; columns are numbers from 1 or names, and where none are given found by the data
  // (see find_columns of data/columns.h).
  std::string label_column = {};
  std::vector<std::string> text_columns = {};  ///< joined with a space; of pairs the first text
  bool pairs = false;
  std::string second_column = {};  ///< of pairs; where it is given they are pairs
  std::string weight_column = {};  ///< of finite numbers, 0 or more; "": there is none
  /// What stands between the labels of a text that may have several, or none; "": each has one. Of jsonl they
  /// may be a list of texts.
  std::string label_separator = {};
  bool numbers = false;              ///< the labels are numbers: a column of numbers may be the label
  Header header = Header::detected;  ///< of csv and tsv
  std::string delimiter = {};        ///< of csv (TableOptions)
  /// Whether a row without a label or a text (an empty cell; of jsonl null) is left out and counted; else the
  /// first one without a label is an Error.
  bool drop_missing = false;
};

/// Throws an Error that begins with `place` for a label that is longer than 1,000 bytes, contains line ends
/// or is not UTF-8: labels appear in answers of one line, in JSON, messages and tables.
void check_label(std::string_view label, std::string_view place);

/// "lines", "csv", "tsv", "jsonl", "folders".
std::vector<std::string> labelled_formats();

/// The format that the name of a file or folder implies; "" if none.
std::string labelled_format(const std::filesystem::path& path);

/// Reads labelled texts. Throws Error, with the place, as read_lines does; for a name that implies no format;
/// for a label that is missing or empty (unless such rows are dropped), a column that does not exist, a file
/// without rows, and options for columns if the format has none; for a folder without class folders, a file
/// beside them, a class without documents, an empty document, and a document that is not a regular file.
LabelledText read_labelled_text(const TextInput& input, const LabelledOptions& options = {},
                                ReadReport* report = nullptr);

/// Receives what stands in a row: a text, or two with a tab between.
using TakeText = std::function<void(std::string text, const TableCells& row)>;
/// Reads the texts of a table row by row, with or without a column of labels. Of pairs, tabs become spaces.
/// The report says which columns were read. Throws as read_labelled_text does, and for what is no table.
void read_texts_of_table(const TextInput& input, const LabelledOptions& options, const TakeText& take,
                         ReadReport* report = nullptr);

// --- parts -------------------------------------------------------------------------------------------------

using TextParts = DataParts<LabelledText>;

struct SplitOptions {
  double valid_fraction = 0;
  double test_fraction = 0;
  std::uint64_t seed = 1;
  bool stratified = false;  ///< of each class the same share, and at least one text for training
  bool classes = true;      ///< false: the labels are numbers, and need not be known in every part
  /// Cross-validation: the test part is part `fold` (from 1) of `folds`, whatever test_fraction; 0: none.
  std::int64_t folds = 0, fold = 0;
};

/// Draws the parts. Pairs with the same first text stay together as a group, since a text seen in training
/// would give the answer away; without pairs each text is a group. Group i gets random word i of the seed. In
/// the order of these words the first round(n * test_fraction) of n groups are for the test, the next round(n
/// * valid_fraction) for validation, and the others for training; each part keeps the order of the data. So
/// the test part does not depend on the size of the validation part. In fold k of K the test groups are those
/// that fall to k where they are dealt to the folds in turn, and of the r others the round(r *
/// valid_fraction) after them, cyclically, are for validation. Stratified, the same is done within each
/// class, which is the rarest label of a group: the shares are rounded so that those of the classes, in the
/// order of their names, add up to that of the whole, and the last group of a class stays for training,
/// whatever the fractions or the fold. Throws Error for fractions that leave nothing to train on and for more
/// folds than groups; of classes that are not stratified, for one with a single group in folds, too.
TextParts split_text(const LabelledText& text, const SplitOptions& options);

}  // namespace heed
