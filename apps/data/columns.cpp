#include "heed/apps/data/table.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_set>
#include <utility>

#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

// --- cells

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::optional<double> number_in(std::string_view cell) {
  return parsed_number(without_spaces(cell));
}

bool is_number(std::string_view cell) {
  return number_in(cell).has_value();
}

/// Whether a cell is an id, a date or an address: ASCII, and either without letters or one word
/// with a digit or a slash in it.
bool is_code(std::string_view cell) {
  bool letters = false, digits = false;
  for (const char byte : cell) {
    if (static_cast<unsigned char>(byte) > 0x7F) return false;
    letters |= (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    digits |= (byte >= '0' && byte <= '9') || byte == '/';
  }
  return digits && (!letters || cell.find(' ') == std::string_view::npos);
}

constexpr std::size_t most_name_columns = 40, most_name_spaces = 3;  // of a name, on a screen

/// Whether a cell may be a name: short, and neither a number nor a sentence.
bool may_be_name(std::string_view cell) {
  return !without_spaces(cell).empty() && !is_number(cell) && cell.find('\n') == std::string_view::npos &&
         std::ranges::count(cell, ' ') <= static_cast<std::ptrdiff_t>(most_name_spaces) &&
         unicode::columns(cell) <= most_name_columns;
}

std::string small_name(std::string_view cell) {
  return unicode::lower_case(without_spaces(cell), unicode::FinalSigma::medial);
}

using Names = std::set<std::string, std::less<>>;

bool is_usual_label(std::string_view cell) {
  static const Names names = {"answer", "category", "class",     "gold_label", "intent", "label",  "labels",
                              "rating", "score",    "sentiment", "stars",      "tag",    "target", "topic"};
  return names.contains(small_name(cell));
}

bool is_usual_name(std::string_view cell) {
  static const Names names = {
      "article",   "body",     "comment",    "content",   "document", "english",     "first",    "french",
      "german",    "headline", "hypothesis", "input",     "message",  "output",      "passage",  "premise",
      "query",     "question", "question1",  "question2", "review",   "second",      "sentence", "sentence1",
      "sentence2", "source",   "spanish",    "src",       "summary",  "text",        "text1",    "text2",
      "text_a",    "text_b",   "texts",      "tgt",       "title",    "translation", "tweet",    "utterance"};
  const std::string name = small_name(cell);
  return names.contains(name) || is_usual_label(name);
}

// --- the content of columns

enum class Content { nothing, texts, few_values, numbers, codes };

struct Column {
  Content content = Content::nothing;
  std::size_t cells = 0, values = 0;  // that are not empty; different ones of them
  double width = 0, spaces = 0;       // of a cell, in the mean
  bool numbers = false;               // all of them
  bool counts_up = true;              // each is one more than the one before
  bool is_short() const { return width <= most_name_columns && spaces <= most_name_spaces; }
};

/// The number of rows below which a column says little about its content.
constexpr std::size_t few_rows = 3;

Content guess_content(const Column& column, std::size_t codes) {
  constexpr std::size_t few = 50;
  if (column.cells == 0) return Content::nothing;
  if (column.cells >= 10 && column.values * 5 <= column.cells && (column.is_short() || column.values <= few))
    return Content::few_values;
  if (column.numbers) return Content::numbers;
  return column.cells >= few_rows && codes * 20 >= column.cells * 19 ? Content::codes : Content::texts;
}

Column make_column(std::span<const TableRow> rows, std::size_t index) {
  Column column;
  std::unordered_set<std::string_view> values;
  std::size_t numbers = 0, codes = 0;
  std::optional<double> last;
  for (const TableRow& row : rows) {
    const std::string_view cell = without_spaces(row.fields[index]);
    if (cell.empty()) continue;
    ++column.cells;
    values.insert(cell);
    const std::optional<double> number = number_in(cell);
    numbers += number ? 1 : 0;
    column.counts_up = column.counts_up && number && (!last || *number == *last + 1);
    last = number;
    codes += is_code(cell) ? 1 : 0;
    column.width += static_cast<double>(unicode::columns(cell));
    column.spaces += static_cast<double>(std::ranges::count(cell, ' '));
  }
  column.values = values.size();
  column.numbers = column.cells > 0 && numbers == column.cells;
  if (column.cells > 0) column.width /= static_cast<double>(column.cells);
  if (column.cells > 0) column.spaces /= static_cast<double>(column.cells);
  column.content = guess_content(column, codes);
  return column;
}

}  // namespace

// --- whether the first row names the columns

bool names_columns(std::span<const TableRow> rows, std::span<const std::size_t> chosen) {
  const std::vector<std::string>& first = rows.front().fields;
  const std::span<const TableRow> below = rows.subspan(1);
  if (below.empty()) return false;
  // Names differ, occur nowhere below, and may be empty only above the index of a data frame, which comes
  // first, and above nothing, as where lines end in a delimiter.
  Names names;
  bool above_numbers = false, above_labels = false;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const Column column = make_column(below, i);
    const auto is_same = [&](const TableRow& row) { return row.fields[i] == first[i]; };
    if (first[i].empty() && (i == 0 || std::ranges::all_of(below, is_same))) continue;
    if (!may_be_name(first[i]) || !names.insert(small_name(first[i])).second ||
        std::ranges::any_of(below, is_same))
      return false;
    above_numbers |= column.numbers;
    const std::size_t values = column.values + (column.cells < below.size() ? 1 : 0);
    above_labels |= below.size() >= 10 && values * 5 <= below.size();
  }
  if (names.empty()) return false;
  const auto usual = std::ranges::count_if(first, is_usual_name);
  if (above_numbers || above_labels || usual >= 2 ||
      usual + std::ranges::count(first, "") == std::ssize(first))
    return true;
  // Names of texts have no final mark, and are shorter than 49 of 50 cells below.
  const auto is_above_sentences = [&](std::size_t i) {
    const std::string_view name = without_spaces(first[i]);
    const auto shorter = std::ranges::count_if(below, [&](const TableRow& row) {
      return unicode::columns(row.fields[i]) <= unicode::columns(name);
    });
    return !name.empty() && std::string_view(".!?,;:").find(name.back()) == name.npos &&
           static_cast<std::size_t>(shorter) * 50 <= below.size();
  };
  const auto has_usual_name = [&](std::size_t i) { return is_usual_name(first[i]); };
  return !chosen.empty() && (std::ranges::all_of(chosen, has_usual_name) ||
                             (below.size() >= 20 && std::ranges::all_of(chosen, is_above_sentences)));
}

namespace {

// --- the choice of columns

using Places = std::vector<std::size_t>;

class ColumnFinder {
 public:
  ColumnFinder(const TableSample& sample, const ColumnsGiven& given)
      : sample_(sample), given_(given), taken_names_(sample.names.size()) {
    for (std::size_t i = 0; i < sample.names.size(); ++i) columns_.push_back(make_column(sample.rows, i));
  }

  ColumnsFound find() {
    take_given();
    if (!label_) label_ = given_.numbers ? number_label() : repeated_label();
    take_texts();
    take_by_place();
    return {label_, second_, given_.pairs ? Places{*first_} : texts_, weight_, remark()};
  }

 private:
  using Place = std::optional<std::size_t>;

  // --- columns that are given or have typical names

  std::size_t take(std::size_t place, const std::string& name) {
    if (const auto& before = taken_names_[place])
      fail(sample_.origin, ": the columns \"", *before, "\" and \"", name, "\" are one; name each once");
    taken_names_[place] = name;
    return place;
  }
  std::size_t take(std::size_t place) { return take(place, sample_.names[place]); }
  /// Takes the only one of these columns; nothing if there are none or several.
  Place take_only(const Places& places) {
    return places.size() == 1 ? Place(take(places.front())) : std::nullopt;
  }

  /// Takes a column by the name that was given, or else the free one with the usual name.
  Place take_named(const std::string& given, const char* usual, bool required = true) {
    if (!given.empty())
      if (const Place place = sample_.find(given, required)) return take(*place, given);
    if (!usual || !sample_.has_names || std::ranges::count(sample_.names, usual) != 1) return std::nullopt;
    const auto place = std::ranges::find(sample_.names, usual) - sample_.names.begin();
    const auto index = static_cast<std::size_t>(place);
    return taken_names_[index] ? std::nullopt : Place(take(index));
  }

  void take_given() {
    label_ = take_named(given_.label, nullptr, given_.labelled);
    second_ = take_named(given_.second, nullptr);
    weight_ = take_named(given_.weight, nullptr);
    for (const std::string& text : given_.texts) texts_.push_back(take(*sample_.find(text, true), text));
    if (given_.pairs && !texts_.empty()) first_ = texts_.front();
    if (!label_) label_ = take_named("", "label");
    if (given_.pairs && !first_) first_ = take_named("", "first");
    if (given_.pairs && !second_) second_ = take_named("", "second");
  }

  // --- columns found from the data

  Places free_places(const std::function<bool(const Column&)>& wanted = {}) const {
    Places places;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (!taken_names_[i] && (!wanted || wanted(columns_[i]))) places.push_back(i);
    return places;
  }
  Places free_places(Content content) const {
    return free_places([content](const Column& one) { return one.content == content; });
  }

  std::size_t wanted_texts() const {
    if (given_.pairs) return (first_ ? 0 : 1) + (second_ ? 0 : 1);
    return texts_.empty() ? 1 : 0;
  }

  /// Returns the columns that may be texts. If every text column repeats values, long texts that
  /// repeat are accepted, and of single words clearly the longest.
  Places possible_texts() const {
    Places texts = free_places(Content::texts);
    if (texts.size() >= wanted_texts()) return texts;
    texts = free_places([](const Column& one) {
      return one.content == Content::texts || (one.content == Content::few_values && !one.is_short());
    });
    if (texts.size() >= wanted_texts() || wanted_texts() > 1) return texts;
    Places words = free_places(Content::few_values);
    std::ranges::stable_sort(words, std::greater(), [&](std::size_t place) { return columns_[place].width; });
    const bool is_clear = words.size() >= 2 && columns_[words[0]].width > 1.5 * columns_[words[1]].width;
    return is_clear || (label_ && words.size() == 1) ? Places{words.front()} : texts;
  }

  /// Reduces several candidates to the short ones, and then to those with typical names.
  Places likely_labels(Places places) const {
    const Places all = places;
    std::erase_if(places, [&](std::size_t place) { return !columns_[place].is_short(); });
    if (places.empty()) places = all;
    const Places named = named_labels(places);
    return places.size() > 1 && !named.empty() ? named : places;
  }
  Places named_labels(Places places) const {
    std::erase_if(places, [&](std::size_t place) {
      return !sample_.has_names || !is_usual_label(sample_.names[place]);
    });
    return places;
  }

  static bool is_number_label(const Column& column) {
    return column.numbers && !(column.counts_up && column.cells >= few_rows);
  }

  /// Finds the column of a numeric label.
  Place number_label() {
    const Places likely = likely_labels(free_places(is_number_label));
    if (likely.size() > 1 && given_.labelled) fail_on_labels(likely);
    return take_only(likely);
  }

  /// Finds the label column by its values, if text columns remain besides it.
  Place repeated_label() {
    const std::size_t wanted = wanted_texts();
    const Places texts = possible_texts();
    if (texts.size() < wanted) return std::nullopt;
    const auto is_text = [&](std::size_t place) { return std::ranges::binary_search(texts, place); };
    Places labels =
        free_places([](const Column& one) { return one.content == Content::few_values && one.values >= 2; });
    std::erase_if(labels, is_text);
    if (const Places likely = likely_labels(labels); likely.size() == 1) return take(likely.front());
    if (labels.size() > 1 && given_.labelled) fail_on_labels(likely_labels(labels));
    if (labels.size() > 1) return std::nullopt;
    // For few rows or many classes: the one column in which values occur twice.
    labels = likely_labels(
        free_places([](const Column& one) { return one.values >= 2 && one.values * 2 <= one.cells; }));
    if (labels.size() != 1 && !sample_.is_whole)  // sorted by their class: the first one alone was seen
      labels = likely_labels(free_places([](const Column& one) { return one.values == 1; }));
    if (labels.size() != 1) labels = named_labels(free_places());
    const bool is_one_of_texts = labels.size() == 1 && is_text(labels.front());
    return texts.size() - (is_one_of_texts ? 1 : 0) >= wanted ? take_only(labels) : std::nullopt;
  }

  [[noreturn]] void fail_on_labels(const Places& places) const {
    std::vector<std::string> columns;
    for (const std::size_t place : places)
      columns.push_back(concat_text(called(place), " (", columns_[place].values, " values)"));
    fail(sample_.origin, ": ", listed(columns, " and "), " could ", columns.size() == 2 ? "both" : "all",
         " be the label: data.label_column names it");
  }

  void take_texts() {
    const std::size_t wanted = wanted_texts();
    const Places texts = possible_texts();
    const bool needs_label = given_.labelled || (!sample_.has_names && texts.size() > wanted);
    if ((!label_ && needs_label) || wanted == 0 || texts.size() < wanted) return;
    if (given_.pairs && texts.size() > wanted)
      fail(sample_.origin, ": ", called(texts),
           " hold texts, and a pair has two: data.first_column and data.second_column name them");
    for (const std::size_t place : texts) {
      if (given_.pairs)
        (first_ ? second_ : first_) = take(place);
      else
        texts_.push_back(take(place));
    }
  }

  // --- columns by position

  /// Assigns columns by position, for small tables in which nothing repeats, or everything does.
  void take_by_place() {
    const auto next = [&](const char* name) {
      const Places left = free_places();
      if (!sample_.is_json && !left.empty()) return take(left.front());
      return take(
          *sample_.find(sample_.is_json ? name : std::to_string(columns_.size() + 1), true));  // throws
    };
    const auto may_lack_label = [&] {
      return !given_.labelled && (sample_.has_names || free_places().size() <= wanted_texts());
    };
    if (!label_ && !sample_.is_json && !may_lack_label()) label_ = poorest();
    if (given_.pairs && !first_) first_ = next("first");
    if (given_.pairs && !second_) second_ = next("second");
    if (!label_ && !may_lack_label()) label_ = next("label");
    if (given_.pairs || !texts_.empty()) return;
    texts_ = free_places(Content::texts);
    if (texts_.empty()) texts_ = free_places();
    check(!texts_.empty(), sample_.origin, ": the rows have a label, but no text",
          sample_.names.size() == 1 ? ": they have a single field; is data.format right, or data.delimiter?"
                                    : "");
    for (const std::size_t place : texts_) take(place);
  }

  /// Returns the column with the fewest values, if rows can tell, or else the only one of numbers
  /// beside texts, or one with clearly the shortest cells.
  Place poorest() {
    Places places = free_places([](const Column& one) { return one.cells >= few_rows; });
    const auto size = [&](std::size_t place) {
      return std::pair(columns_[place].values, columns_[place].width);
    };
    std::ranges::stable_sort(places, {}, size);
    const bool can_tell = places.size() >= std::max(wanted_texts() + 1, std::size_t{2});
    if (can_tell && size(places[0]).first < size(places[1]).first) return take(places[0]);
    const Places numbers = free_places(
        [](const Column& one) { return one.content == Content::numbers && is_number_label(one); });
    if (numbers.size() == 1 && !possible_texts().empty()) return take(numbers[0]);
    const bool is_clear = can_tell && size(places[0]).second * 1.5 < size(places[1]).second;
    return is_clear ? Place(take(places[0])) : std::nullopt;
  }

  // --- remarks

  std::string called(std::size_t place) const {
    const std::string& name = sample_.names[place];
    return sample_.has_names ? concat_text('"', unicode::shortened(name, 80), '"') : name;
  }

  /// Returns "column 2", "columns 2 and 3" or "\"title\" and \"text\"".
  std::string called(const Places& places) const {
    std::vector<std::string> names;
    for (const std::size_t place : places) names.push_back(called(place));
    const char* const column = places.size() == 1 ? "column " : "columns ";
    return (sample_.has_names ? "" : column) + listed(names, " and ");
  }

  /// Returns what one or several columns hold that are passed over.
  std::string holding(std::size_t place, bool several) const {
    const Column& column = columns_[place];
    const std::string has = several ? "have " : "has ", hold = several ? "hold " : "holds ";
    if (column.content == Content::nothing) return has + "no texts";
    if (column.content == Content::numbers) return hold + "numbers";
    if (column.content == Content::codes) return hold + "ids, dates or addresses";
    return concat_text(has, column.values, column.values == 1 ? " value" : " values",
                       sample_.is_whole ? "" : concat_text(" in the first ", sample_.rows.size(), " rows"));
  }

  std::string remark() const {
    Places texts = given_.pairs ? Places{*first_, *second_} : texts_;
    std::string text = concat_text("reads the text", given_.pairs ? "s" : "", " from ", called(texts));
    if (label_)
      text += (given_.labelled ? ", the label from " : ", leaves out the label, ") + called(Places{*label_});
    if (weight_) text += ", the weight from " + called(Places{*weight_});
    std::vector<std::pair<std::string, Places>> passed_over;  // by what they hold
    for (const std::size_t place : free_places()) {
      const std::string reason = holding(place, true);
      auto same = std::ranges::find(passed_over, reason, &std::pair<std::string, Places>::first);
      if (same == passed_over.end()) same = passed_over.insert(same, {reason, {}});
      same->second.push_back(place);
    }
    std::vector<std::string> parts;
    for (const auto& [reason, places] : passed_over)
      parts.push_back(concat_text(called(places), ", which ", holding(places.front(), places.size() > 1)));
    return parts.empty() ? text : concat_text(text, "; passes over ", listed(parts, ", and "));
  }

  const TableSample& sample_;
  const ColumnsGiven& given_;
  std::vector<Column> columns_;
  Places texts_;
  std::vector<std::optional<std::string>> taken_names_;  // as they were given, of the columns that are taken
  Place label_, first_, second_, weight_;
};

}  // namespace

ColumnsFound find_columns(const TableSample& sample, const ColumnsGiven& given) {
  return ColumnFinder(sample, given).find();
}

}  // namespace heed
