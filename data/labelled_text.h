#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/text_file.h"

namespace heed {

/// Texts, or pairs of texts, with the name of the class of each. A text may be empty, where the data has nothing beside
/// a label; an empty line is no text to predict from. `places` says in messages where a text came from.
struct LabelledText {
  TextList texts, labels;
  TextPlaces places;
  TextList seconds = {};  ///< of pairs the second texts, to `texts` as the first; else empty
  /// Of tables what the first line holds, whose columns these are: names, where it is a header or of jsonl.
  std::vector<std::string> first_line = {};
  std::size_t size() const { return texts.size(); }
  void add(std::string_view text, std::string_view label, std::string_view origin, std::size_t line = 0);
  void add_pair(std::string_view first, std::string_view second, std::string_view label,
                std::string_view origin, std::size_t line = 0);
  /// The texts of these indices, which share their memory with the others.
  LabelledText picked(std::span<const std::size_t> indices) const;
};

/// The group of each text, from 0: pairs that follow each other with the same first text are one, such as the
/// answers to a question; any other text is one by itself.
std::vector<std::size_t> groups_of(const LabelledText& text);

/// The names of all classes, each once, in the order of their bytes: the index of a name is its class. Throws
/// Error when there are fewer than two.
std::vector<std::string> class_names(const LabelledText& text);
/// The class of each text. Throws Error that names the place of the first label which is not among `classes`.
std::vector<std::int32_t> classes_of(const LabelledText& text, std::span<const std::string> classes);

// --- reading -----------------------------------------------------------------------------------------------

/// How labelled texts are laid out in a file or folder. Formats:
/// - lines: a label, a space and a text, which may be empty, on each line;
/// - csv, tsv, jsonl: a column with labels and columns with texts (see TableOptions); labels may be numbers;
/// - folders: a folder for each class, in which every file is one document: class and document in the order of their
///   names. Line ends become "\n", and empty lines in front are left out. In a folder that holds files alone each file is
///   a class by its name, with a text on each line, none of them empty ("lines" reads a folder in the same way).
struct LabelledOptions {
  std::string format = {};  ///< "": by the name: a folder, .csv, .tsv, .jsonl, each also with .gz
  TextOptions text = {};
  // Of csv, tsv and jsonl; columns are numbers from 1 or names.
  std::string label_column = {};               ///< "": the first; of jsonl "label"
  std::vector<std::string> text_columns = {};  ///< joined with a space; empty: all but the label
  std::string second_column = {};              ///< of pairs: the other text; "": there is none
  bool header = false;                         ///< the first row holds names and is left out
};

/// Answers are a line each, and labels stand in JSON, messages and tables. Throws an Error that begins with `place`
/// for a label of more than 1,000 bytes, with line ends, or that is not UTF-8.
void check_label(std::string_view label, std::string_view place);

/// "lines", "csv", "tsv", "jsonl", "folders".
std::vector<std::string> labelled_formats();

/// The format that the name of a file or folder tells; "" when it tells none.
std::string labelled_format(const std::filesystem::path& path);

/// Reads labelled texts. Throws Error, with the place, as read_lines does; for a name that does not tell the
/// format; for a label that is missing or empty, a column that is not there, a file without rows, and options
/// of columns where there are none; for a folder without class folders, a file beside them, a class without
/// documents, an empty document, and what is no regular file among the documents.
LabelledText read_labelled_text(const std::filesystem::path& path, const LabelledOptions& options = {},
                                ReadReport* report = nullptr);
/// The same for the bytes of a file already in memory, in a format that is named; `origin` says in errors
/// where they came from.
LabelledText parse_labelled_text(std::string_view bytes, std::string_view origin,
                                 const LabelledOptions& options, ReadReport* report = nullptr);

// --- parts -------------------------------------------------------------------------------------------------

using TextParts = DataParts<LabelledText>;

struct SplitOptions {
  double valid_fraction = 0;
  double test_fraction = 0;
  std::uint64_t seed = 1;
  bool stratified = false;  ///< each class is split by the same fractions, not only all texts together
  /// Cross-validation: the test part is part `fold` (from 1) of so many, whatever test_fraction; 0: none.
  std::int64_t folds = 0, fold = 0;
};

/// Draws the parts. Pairs with the same first text stay together, as a group, for a text that was trained on would give
/// the answer away; without pairs a group is a text. Group i gets the random word i of the seed, and in the order of
/// these words the first round(n * test_fraction) of n are test texts, the next round(n * valid_fraction)
/// validation texts, the others training texts; each part keeps the order of the data. So the test part does not
/// depend on the size of the validation part. In fold k of K the test texts are those from n (k - 1) / K to
/// n k / K in that order, and of the r others the round(r * valid_fraction) behind them, in a circle, are validation
/// texts. Stratified, all this holds for the groups of each class by themselves, of which the first text tells the
/// class. Throws Error for fractions that leave nothing to train on, of a class where it is stratified, and for
/// more folds than groups, or a class that has but one.
TextParts split_text(const LabelledText& text, const SplitOptions& options);

}  // namespace heed
