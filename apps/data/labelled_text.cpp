#include "heed/apps/data/labelled_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/descriptor.h"
#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/core/random.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  check(type != fs::file_type::none, path.string(), ": cannot be accessed: ", error.message());
  return type;
}

constexpr std::size_t longest_label = 1000;  // bytes

/// Whether a label breaks neither one-line answers nor JSON or tables.
bool is_label(std::string_view label) {
  return label.size() <= longest_label && label.find_first_of("\n\r") == std::string::npos &&
         unicode::find_invalid(label) == std::string::npos;
}

// --- formats that are one file -----------------------------------------------------------------------------

/// The input of a reader of a single file.
struct FileInput {
  const TextInput& text;
  const LabelledOptions& options;
  ReadReport* report;
};

LabelledText read_labelled_lines(const FileInput& input) {
  LabelledText text;
  TextLines lines(input.text, input.options.text, input.report);
  while (const auto line = lines.next()) {
    const std::size_t space = std::min(line->find(' '), line->size());
    if (space == 0)
      fail(lines.place(), ": the line ", line->empty() ? "is empty" : "begins with a space",
           "; expected a label, a space and a text");
    if (!is_label(line->substr(0, space))) check_label(line->substr(0, space), lines.place());
    text.add(line->substr(std::min(space + 1, line->size())), line->substr(0, space), lines.origin(),
             lines.number());
  }
  return text;
}

/// Joins the texts of several columns.
std::string joined(std::span<std::string> cells) {
  std::string text = std::move(cells.front());
  for (const std::string& cell : cells.subspan(1)) text.append(" ").append(cell);
  return text;
}

/// Returns the names of the columns that were read, if each name identifies its column; otherwise
/// none.
std::vector<std::string> names_in_table(const TableCells& row) {
  std::unordered_map<std::string_view, std::size_t> counts;
  for (const std::string& name : row.first) ++counts[name];
  const bool all = row.has_header && std::ranges::all_of(row.names, [&](const std::string& name) {
                     return !name.empty() && is_column_name(name) && counts[name] == 1;
                   });
  return all ? row.names : std::vector<std::string>();
}

/// Returns the options of a table with the columns of the label (if it is `labelled`), the second
/// text of a pair, the texts and the weight. Those that are not given are found from the first rows,
/// stored in `places` and reported.
TableOptions make_table_options(const LabelledOptions& options, bool labelled,
                                std::vector<std::size_t>& places, ReadReport* report) {
  TableOptions table{.format = options.format,
                     .header = options.header,
                     .delimiter = options.delimiter,
                     .distinct = true,
                     .text = options.text};
  if (labelled) table.columns.push_back(options.label_column);
  if (options.pairs) table.columns.push_back(options.second_column);
  if (options.text_columns.empty()) table.columns.emplace_back();
  table.columns.insert(table.columns.end(), options.text_columns.begin(), options.text_columns.end());
  const std::string weight = labelled ? options.weight_column : "";
  if (!weight.empty()) table.columns.push_back(weight);
  if (std::erase(table.columns, "") == 0) return table;
  const ColumnsGiven given{options.label_column,
                           options.text_columns,
                           options.pairs,
                           options.second_column,
                           weight,
                           options.numbers,
                           labelled};
  table.choose = [given, &places, report](const TableSample& sample) {
    const ColumnsFound found = find_columns(sample, given);
    if (report) report->remarks.push_back(concat_text(sample.origin, ": ", found.remark));
    places.clear();
    if (given.labelled) places.push_back(*found.label);
    if (found.second) places.push_back(*found.second);
    places.insert(places.end(), found.texts.begin(), found.texts.end());
    if (found.weight) places.push_back(*found.weight);
    return places;
  };
  return table;
}

/// Whether a label, the second text of a pair, or the whole text after the `before` cells is
/// missing. The first cells may be empty.
bool lacks_something(std::span<const std::string> cells, std::size_t first, std::size_t before) {
  const auto is_empty = [](const std::string& cell) { return cell.empty(); };
  return std::ranges::any_of(cells.subspan(first, before - first), is_empty) ||
         std::ranges::all_of(cells.subspan(before), is_empty);
}

/// Returns the weight of a row.
float weight_in(const std::string& cell, const TableCells& row) {
  const std::optional<float> weight = parsed_number<float>(cell);
  if (!weight || !std::isfinite(*weight) || *weight < 0)
    fail(row.place(), ": the weight in column ", row.names.back(), " is \"", unicode::shortened(cell, 40),
         "\"; expected a number from 0 within the range of f32");
  return *weight;
}

LabelledText read_labelled_table(const FileInput& input) {
  const LabelledOptions& options = input.options;
  std::vector<std::size_t> places;  // of columns that are found by the data
  TableOptions table = make_table_options(options, true, places, input.report);
  table.null_as_empty = options.drop_missing;
  table.list_separator = options.label_separator;
  const bool needs_label = options.label_separator.empty();
  LabelledText text;
  const std::size_t before = options.pairs ? 2 : 1;
  const bool weighted = !options.weight_column.empty();
  const auto take = [&](const TableCells& row) {
    const std::span<std::string> cells = std::span(row.cells).first(row.cells.size() - (weighted ? 1 : 0));
    if (options.format != "jsonl") cells[0].erase(cells[0].find_last_not_of(' ') + 1);  // of the label
    if (options.drop_missing && lacks_something(cells, needs_label ? 0 : 1, before)) {
      if (input.report) ++input.report->missing;
      return;
    }
    if (text.size() == 0) {
      text.first_line = row.first;
      text.columns = names_in_table(row);
      if (text.columns.empty() && options.format != "jsonl")
        for (const std::size_t place : places) text.columns.push_back(std::to_string(place + 1));
      if (weighted && !text.columns.empty()) text.columns.pop_back();
    }
    if (cells[0].empty() && needs_label)
      fail(row.place(), ": the label in column ", row.names[0],
           " is empty; data.missing=drop leaves such rows out");
    if (!is_label(cells[0])) check_label(cells[0], row.place());
    if (weighted) text.weights.push_back(weight_in(row.cells.back(), row));
    const std::string words = joined(cells.subspan(before));
    if (options.pairs)
      text.add_pair(words, cells[1], cells[0], row.origin, row.line);
    else
      text.add(words, cells[0], row.origin, row.line);
  };
  read_table_rows(input.text, table, take, input.report);
  check(text.size() > 0, input.text.origin, ": every row lacks its label or its text");
  return text;
}

void read_unlabelled_table(const FileInput& input, const TakeText& take) {
  const LabelledOptions& options = input.options;
  std::vector<std::size_t> places;
  TableOptions table = make_table_options(options, false, places, input.report);
  if (options.format != "jsonl" && table.header == Header::detected && !options.label_column.empty() &&
      is_column_name(options.label_column))
    table.header = Header::present;
  bool is_first = !table.choose;
  const auto take_row = [&](const TableCells& row) {
    if (std::exchange(is_first, false) && input.report)
      input.report->remarks.push_back(remark_on_columns(row));
    if (!options.pairs) return take(joined(row.cells), row);
    for (std::string& cell : row.cells) std::ranges::replace(cell, '\t', ' ');
    take(concat_text(joined(std::span(row.cells).subspan(1)), '\t', row.cells[0]), row);
  };
  read_table_rows(input.text, table, take_row, input.report);
}

// --- folders of documents ----------------------------------------------------------------------------------

/// Returns the sorted entries of a folder, without hidden ones, which file managers and version
/// control leave behind.
std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (!entry->path().filename().string().starts_with('.')) entries.push_back(entry->path());
  check(!error, folder.string(), ": the folder cannot be read: ", error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string read_document(const fs::path& path, const LabelledOptions& options, ReadReport* report) {
  const fs::file_type type = type_of(path);
  check(type != fs::file_type::directory, path.string(), ": expected a document, but this is a folder");
  check(type == fs::file_type::regular, path.string(),
        ": expected a document, but this is not a regular file");
  std::string text;
  TextLines lines(path, options.text, report);
  while (const auto line = lines.next()) {
    if (!text.empty()) text += '\n';
    text += *line;
  }
  return text;
}

/// Whether a name belongs to a part of the data, or a file of examples, rather than to a class.
bool is_name_of_data(const fs::path& path) {
  constexpr std::string_view parts[] = {"train", "training", "test", "testing", "valid",  "validation",
                                        "val",   "dev",      "data", "readme",  "license"};
  constexpr std::string_view endings[] = {".all",   ".csv", ".tsv", ".json",
                                          ".jsonl", ".md",  ".zip", ".parquet"};
  const fs::path name = path.extension() == ".gz" ? path.stem() : path.filename();
  const std::string small = unicode::lower_case(name.string(), unicode::FinalSigma::medial);
  const std::string_view word = std::string_view(small).substr(0, small.find_first_of("._- 0123456789"));
  return std::ranges::count(parts, word) > 0 ||
         std::ranges::count(endings,
                            std::string_view(small).substr(std::min(small.rfind('.'), small.size()))) > 0;
}

/// Throws for a folder that seems to contain data sets instead of classes.
void check_names_of_classes(const fs::path& path, std::span<const fs::path> classes, bool folders) {
  const auto found = std::ranges::find_if(classes, [&](const fs::path& one) {
    return is_name_of_data(one) && (type_of(one) == fs::file_type::directory) == folders;
  });
  if (found == classes.end()) return;
  std::vector<std::string> names;
  for (const fs::path& one : classes) names.push_back(one.filename().string());
  fail(path.string(), ": expected a folder or file for each class, but \"", found->filename().string(),
       "\" does not look like the name of a class; the folder holds ", quoted_names(names), ". ",
       folders ? "Name one of them with data.file, others with data.valid or data.test"
               : "Name the training file, such as data.file=" + found->string() +
                     " and data.format=lines (a label, a space and a text on each line; or csv, tsv, jsonl)",
       "; if these are the classes, give data.format=folders");
}

LabelledText read_class_folder(const fs::path& path, const LabelledOptions& options, ReadReport* report) {
  const std::vector<fs::path> classes = sorted_entries(path);
  check(!classes.empty(), path.string(), ": the folder is empty; expected a folder or file for each class");
  const bool folders = std::ranges::any_of(
      classes, [](const fs::path& entry) { return type_of(entry) == fs::file_type::directory; });
  if (options.format != "folders") check_names_of_classes(path, classes, folders);
  LabelledText text;
  for (const fs::path& entry : classes) {
    const std::string label = entry.filename().string();
    check(type_of(entry) == (folders ? fs::file_type::directory : fs::file_type::regular), entry.string(),
          folders ? ": expected one folder for each class, but this is a file"
                  : ": a regular file is needed for the texts of a class");
    check_label(label, entry.string());
    if (!folders) {  // a text on each line
      TextLines lines(entry, options.text, report);
      while (const auto line = lines.next()) {
        if (line->empty()) fail(lines.place(), ": the line is empty; expected a text on each line");
        text.add(*line, label, lines.origin(), lines.number());
      }
      continue;
    }
    const std::vector<fs::path> documents = sorted_entries(entry);
    check(!documents.empty(), entry.string(), ": the class has no documents");
    for (const fs::path& document : documents)
      text.add(read_document(document, options, report), label, document.string());
  }
  return text;
}

// --- the formats -------------------------------------------------------------------------------------------

bool has_columns(const std::string& format) {
  return std::ranges::count(table_formats(), format) > 0;
}

void check_format(const std::string& format) {
  const std::vector<std::string> names = labelled_formats();
  check(std::ranges::count(names, format) > 0, "unknown format of labelled texts, \"", format,
        "\": use one of ", quoted_names(names));
}

void check_columns_are_used(const LabelledOptions& options, const std::string& format) {
  const LabelledOptions plain;
  check(has_columns(format) || (options.label_column == plain.label_column && options.text_columns.empty() &&
                                options.weight_column.empty() && options.header == plain.header &&
                                options.delimiter == plain.delimiter && !options.drop_missing),
        "a label column, text columns, a weight column, a header, a delimiter and rows that lack something "
        "(data.missing) are for csv and tsv (columns and rows for jsonl, too), not for ",
        format);
}

// --- parts -------------------------------------------------------------------------------------------------

/// Returns the indices of `count` texts in random order.
std::vector<std::size_t> drawn_order(std::size_t count, std::uint64_t seed) {
  std::vector<std::pair<std::uint32_t, std::size_t>> keyed;
  for (std::size_t i = 0; i < count; ++i) keyed.emplace_back(random_word({seed, 0, 0}, i), i);
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::size_t> order;
  for (const auto& [word, index] : keyed) order.push_back(index);
  return order;
}

using PartMember = LabelledText TextParts::*;

/// Assigns the groups of `order` to parts: first the test texts, then the validation texts.
/// `before`: groups that were assigned earlier. Shares are rounded so that they add up to the share
/// of all groups together; at least `kept` groups are left for training.
void draw_parts(std::vector<std::size_t> order, std::size_t before, std::size_t kept,
                const SplitOptions& options, std::vector<PartMember>& part_of) {
  const std::size_t count = order.size();
  const auto part = [](std::size_t earlier, std::size_t groups, double fraction) {
    const auto rounded = [&](std::size_t all) {
      return static_cast<std::size_t>(std::llround(static_cast<double>(all) * fraction));
    };
    return rounded(earlier + groups) - rounded(earlier);
  };
  std::size_t test = std::min(part(before, count, options.test_fraction), count - kept);
  std::size_t valid = part(before, count, options.valid_fraction);
  if (options.folds > 0) {
    const auto folds = static_cast<std::size_t>(options.folds);
    // Of `groups` that are dealt to the folds in turn, those that fall to the first ones.
    const auto dealt = [&](std::size_t groups, std::size_t first) {
      return groups / folds * first + std::min(groups % folds, first);
    };
    const auto fold = static_cast<std::size_t>(options.fold);
    const std::size_t tested_before = dealt(before, fold) - dealt(before, fold - 1);
    const std::size_t begin = dealt(before + count, fold - 1) - dealt(before, fold - 1);
    test = dealt(before + count, fold) - dealt(before + count, fold - 1) - tested_before;
    valid = part(before - tested_before, count - test, options.valid_fraction);
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(begin), order.end());
  }
  valid = std::min(valid, count - kept - test);
  for (std::size_t rank = 0; rank < test + valid; ++rank)
    part_of[order[rank]] = rank < test ? &TextParts::test : &TextParts::valid;
}

/// Assigns the groups of each class separately. The class of a group is its rarest label, so that
/// no class is held out with a group that counts for another class.
void draw_parts_of_classes(const LabelledText& text, const std::vector<std::size_t>& group_of,
                           const std::vector<std::size_t>& order, const SplitOptions& options,
                           std::vector<PartMember>& part_of) {
  std::unordered_map<std::string_view, std::size_t> texts_per_label;
  for (const std::string_view label : text.labels) ++texts_per_label[label];
  std::vector<std::string_view> label_of(order.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string_view& label = label_of[group_of[i]];
    const std::string_view own = text.labels[i];
    if (label.data() == nullptr || texts_per_label[own] < texts_per_label[label]) label = own;
  }
  std::map<std::string_view, std::vector<std::size_t>> order_of;
  for (const std::size_t group : order) order_of[label_of[group]].push_back(group);
  std::size_t before = 0;
  for (const auto& [label, groups] : order_of) {
    if (groups.size() == 1) continue;  // stays for training
    draw_parts(groups, before, 1, options, part_of);
    before += groups.size();
  }
}

/// Returns the group of each text, which must stay in one part: pairs with the same first text, or
/// any other text by itself; numbered in order of appearance.
std::vector<std::size_t> inseparable(const LabelledText& text) {
  std::vector<std::size_t> groups(text.size());
  if (text.seconds.empty()) std::iota(groups.begin(), groups.end(), 0);
  std::unordered_map<std::string_view, std::size_t> group_of;
  for (std::size_t i = 0; i < text.seconds.size(); ++i)
    groups[i] = group_of.emplace(text.texts[i], group_of.size()).first->second;
  return groups;
}

void check_split(const SplitOptions& options, std::size_t groups) {
  check(options.valid_fraction >= 0 && options.test_fraction >= 0 &&
            options.valid_fraction + options.test_fraction < 1,
        "the validation and test parts must be fractions that leave texts to train on, not ",
        options.valid_fraction, " and ", options.test_fraction);
  if (options.folds == 0) return;
  check(options.folds >= 2 && options.fold >= 1 && options.fold <= options.folds, "there is no fold ",
        options.fold, " of ", options.folds);
  check(static_cast<std::uint64_t>(options.folds) <= groups, groups, " texts cannot be cut into ",
        options.folds, " folds");
}

/// Throws for a class with a single group: the fold that tests it would have no training data for it.
void check_classes_of_folds(const LabelledText& text, const std::vector<std::size_t>& group_of) {
  std::map<std::string_view, std::set<std::size_t>> groups;
  for (std::size_t i = 0; i < text.size(); ++i) groups[text.labels[i]].insert(group_of[i]);
  for (const auto& [label, groups_of_class] : groups)
    check(groups_of_class.size() >= 2, "the class \"", label, "\" has ",
          text.seconds.empty() ? "one text" : "one first text",
          ": the fold that tests it has no training text of it; data.stratified=true keeps it in training");
}

}  // namespace

void LabelledText::add(std::string_view text, std::string_view label, std::string_view origin,
                       std::size_t line) {
  texts.push_back(text);
  labels.push_back(label);
  places.add(origin, line);
}

void LabelledText::add_pair(std::string_view first, std::string_view second, std::string_view label,
                            std::string_view origin, std::size_t line) {
  add(first, label, origin, line);
  seconds.push_back(second);
}

LabelledText LabelledText::picked(std::span<const std::size_t> indices) const {
  LabelledText part{texts.picked(indices), labels.picked(indices),
                    places.size() == 0 ? TextPlaces() : places.picked(indices)};
  if (!seconds.empty()) part.seconds = seconds.picked(indices);
  if (!weights.empty())
    for (const std::size_t index : indices) part.weights.push_back(weights[index]);
  part.first_line = first_line;
  return part;
}

std::vector<std::size_t> group_by_first_text(const LabelledText& text) {
  std::vector<std::size_t> groups;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool goes_on = i > 0 && !text.seconds.empty() && text.texts[i] == text.texts[i - 1];
    groups.push_back(i == 0 ? 0 : groups.back() + (goes_on ? 0 : 1));
  }
  return groups;
}

bool is_integer_text(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  return text == "0" || (!digits.empty() && digits.front() != '0' &&
                         digits.find_first_not_of("0123456789") == std::string_view::npos);
}

std::vector<std::string> class_names(const LabelledText& text, bool by_value) {
  const std::unordered_set<std::string_view> distinct(text.labels.begin(), text.labels.end());
  std::vector<std::string> names(distinct.begin(), distinct.end());
  const auto is_less = [](std::string_view a, std::string_view b) {  // integers of any length
    const bool is_negative = a.starts_with('-');
    if (is_negative != b.starts_with('-')) return is_negative;
    if (is_negative) std::swap(a, b);
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  if (by_value && std::ranges::all_of(names, is_integer_text))
    std::ranges::sort(names, is_less);
  else
    std::ranges::sort(names);
  check(names.size() >= 2, "a classifier needs texts of at least two classes, but the ", text.size(),
        " texts are all of ", names.empty() ? "none" : quoted_names(names));
  return names;
}

std::vector<std::int32_t> classes_of(const LabelledText& text, std::span<const std::string> classes) {
  std::unordered_map<std::string_view, std::int32_t> class_ids;
  for (std::size_t i = 0; i < classes.size(); ++i)
    class_ids.emplace(classes[i], static_cast<std::int32_t>(i));
  std::vector<std::int32_t> result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto found = class_ids.find(text.labels[i]);
    check(found != class_ids.end(), text.places[i], ": the label \"", unicode::shortened(text.labels[i], 80),
          "\" is none of the classes ", quoted_names(classes));
    result.push_back(found->second);
  }
  return result;
}

void check_label(std::string_view label, std::string_view place) {
  check(label.size() <= longest_label, place, ": the label \"", unicode::shortened(label, 80), "\" has ",
        label.size(), " bytes, and at most ", longest_label, " are allowed: is it a text, not a label?");
  check(is_label(label), place, ": the label \"", unicode::printable(label),
        "\" contains line ends or is not UTF-8");
}

std::string labelled_format(const fs::path& path) {
  return type_of(path) == fs::file_type::directory ? "folders" : table_format(path);
}

std::vector<std::string> labelled_formats() {
  return {"lines", "csv", "tsv", "jsonl", "folders"};
}

void read_texts_of_table(const TextInput& input, const LabelledOptions& options, const TakeText& take,
                         ReadReport* report) {
  LabelledOptions named = options;
  named.pairs |= !named.second_column.empty();
  if (named.format.empty()) named.format = table_format(input.origin);
  check(has_columns(named.format), input.origin, ": a table is expected: give data.format=csv, tsv or jsonl");
  read_unlabelled_table({input, named, report}, take);
}

LabelledText read_labelled_text(const TextInput& input, const LabelledOptions& options, ReadReport* report) {
  if (!options.format.empty()) check_format(options.format);  // before any path is looked for
  const fs::file_type type = input.bytes ? fs::file_type::regular : type_of(input.path);
  check(type != fs::file_type::not_found, input.origin, ": there is no such file or folder",
        home_hint(input.origin));
  LabelledOptions named = options;
  named.pairs |= !named.second_column.empty();
  if (named.format.empty())
    named.format = input.bytes ? table_format(input.origin) : labelled_format(input.path);
  check(!named.format.empty(), input.origin,
        ": its name does not say how it is laid out; give data.format=lines or data.format=csv (or tsv, "
        "jsonl): lines are a label, a space and a text each");
  check_columns_are_used(options, named.format);
  const bool is_folder =
      named.format == "folders" || (type == fs::file_type::directory && named.format == "lines");
  check(!is_folder || !input.bytes, input.origin, ": a file is not of the format ", named.format);
  if (is_folder) return read_class_folder(input.path, options, report);
  return has_columns(named.format) ? read_labelled_table({input, named, report})
                                   : read_labelled_lines({input, named, report});
}

TextParts split_text(const LabelledText& text, const SplitOptions& options) {
  const std::vector<std::size_t> group_of = inseparable(text);
  const std::size_t groups = group_of.empty() ? 0 : *std::ranges::max_element(group_of) + 1;
  check_split(options, groups);
  if (options.folds > 0 && options.classes && !options.stratified) check_classes_of_folds(text, group_of);
  const std::vector<std::size_t> order = drawn_order(groups, options.seed);
  std::vector<PartMember> part_of(groups, &TextParts::train);
  if (options.stratified)
    draw_parts_of_classes(text, group_of, order, options, part_of);
  else
    draw_parts(order, 0, 0, options, part_of);
  check(std::ranges::count(part_of, &TextParts::train) > 0, "none of the ", groups,
        " texts would be left to train on");
  const auto part = [&](PartMember wanted) {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < text.size(); ++i)
      if (part_of[group_of[i]] == wanted) indices.push_back(i);
    return text.picked(indices);
  };
  return {part(&TextParts::train), part(&TextParts::valid), part(&TextParts::test)};
}

}  // namespace heed
