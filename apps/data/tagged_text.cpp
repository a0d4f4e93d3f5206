#include "heed/apps/data/tagged_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/apps/data/table.h"
#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/training/text_metrics.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

bool is_space_at(std::string_view text, std::size_t byte) {
  return unicode::is_space(unicode::decode(text, byte).value);
}

/// Whether a character stands alone in a text: one of a script without spaces between words.
bool is_word_by_itself(char32_t value) {
  const unicode::Script script = unicode::letter_script(value);
  return unicode::is_letter(value) && (script == unicode::Script::han || script == unicode::Script::unspaced);
}

bool is_mark_of_text(char32_t value) {
  return unicode::is_punctuation(value) || unicode::is_symbol(value);
}

/// Splits a text into words, and finds their places.
class WordSplitter {
 public:
  explicit WordSplitter(const std::string& text) { sentence_.text = text; }

  Sentence split() {
    const std::string_view text = sentence_.text;
    for (std::size_t byte = 0; byte < text.size();) {
      const std::size_t length = unicode::cluster_length(text.substr(byte));
      const char32_t value = unicode::decode(text, byte).value;
      if (is_space_at(text, byte) || is_word_by_itself(value)) finish();
      if (is_word_by_itself(value)) add_word(byte, {{value, byte, byte + length}});
      if (!is_space_at(text, byte) && !is_word_by_itself(value)) run_.push_back({value, byte, byte + length});
      byte += length;
    }
    finish();
    return std::move(sentence_);
  }

 private:
  struct Cluster {
    char32_t first;
    std::size_t begin, end;  // in bytes
  };

  /// Ends a run between spaces: marks at its ends are words of their own.
  void finish() {
    std::size_t begin = 0, end = run_.size();
    while (begin < end && is_mark_of_text(run_[begin].first)) ++begin;
    while (end > begin && is_mark_of_text(run_[end - 1].first)) --end;
    const auto add = [&](std::size_t from, std::size_t to) {
      if (from < to) add_word(run_[from].begin, std::span(run_).subspan(from, to - from));
    };
    for (std::size_t i = 0; i < begin; ++i) add(i, i + 1);
    add(begin, end);
    for (std::size_t i = end; i < run_.size(); ++i) add(i, i + 1);
    run_.clear();
  }

  void add_word(std::size_t begin, std::span<const Cluster> clusters) {
    add_word(begin, clusters.back().end);
  }
  void add_word(std::size_t begin, std::initializer_list<Cluster> one) { add_word(begin, one.begin()->end); }
  void add_word(std::size_t begin, std::size_t end) {
    const std::string_view text = sentence_.text;
    characters_ += count(text.substr(counted_, begin - counted_));
    const std::size_t length = count(text.substr(begin, end - begin));
    sentence_.words.emplace_back(text.substr(begin, end - begin));
    sentence_.places.push_back({characters_, characters_ + length});
    characters_ += length;
    counted_ = end;
  }

  static std::size_t count(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char one) { return (one & 0xC0) != 0x80; }));
  }

  Sentence sentence_;
  std::vector<Cluster> run_;
  std::size_t counted_ = 0, characters_ = 0;  // bytes, and the characters in them
};

/// Adds a sentence; one without words is counted.
void add_sentence(LabelledText& text, std::span<const std::string> words, std::span<const std::string> labels,
                  std::string_view origin, std::size_t line, ReadReport* report) {
  if (words.empty() && labels.empty()) {
    if (report) ++report->blank;
    return;
  }
  text.add(joined_words(words), joined_words(labels), origin, line);
}

/// Reads the lines of conll.
class ColumnReader {
 public:
  ColumnReader(const TextInput& input, const TaggedOptions& options, ReadReport* report)
      : lines_(input, options.text, report), options_(options), report_(report) {}

  LabelledText read() {
    while (const auto line = lines_.next()) {
      if (is_blank_line(*line) || line->starts_with("-DOCSTART-")) {
        finish();
      } else if (columns_ == 0 && line->starts_with("#")) {
        waiting_.push_back({std::string(*line), lines_.number()});  // a comment, or a word
      } else {
        begin(*line);
        add(*line, lines_.number());
      }
    }
    if (columns_ == 0)  // nothing else: they are words
      for (const Line& one : waiting_) begin(one.text), add(one.text, one.number);
    finish();
    return std::move(text_);
  }

 private:
  struct Line {
    std::string text;
    std::size_t number;
  };

  static bool is_blank_line(std::string_view line) { return split_at_spaces(line).empty(); }

  std::vector<std::string_view> split_fields(std::string_view line) const {
    return has_tabs_ ? split_at(line, "\t") : split_at_spaces(line);
  }

  /// Learns the number of columns from the first line that is surely none of comments.
  void begin(std::string_view line) {
    if (columns_ > 0) return;
    has_tabs_ = line.find('\t') != line.npos;
    columns_ = split_fields(line).size();
    word_ = column_index(options_.word_column, 1);
    label_ = options_.labelled ? column_index(options_.label_column, columns_) : word_;
    if (options_.labelled)
      check(word_ != label_, lines_.place(), ": the words and their labels are both in column ", word_ + 1,
            " of ", columns_, "; a line has a word and its label, such as \"Paris B-LOC\"");
    for (const Line& one : std::exchange(waiting_, {})) add(one.text, one.number);
  }

  std::size_t column_index(const std::string& column, std::size_t otherwise) const {
    const auto number =
        column.empty() ? std::optional(static_cast<double>(otherwise)) : parsed_number(column);
    check(number && *number >= 1 && *number <= static_cast<double>(columns_), lines_.place(),
          ": there is no column \"", column, "\" among the ", columns_, "; give a number from 1");
    return static_cast<std::size_t>(*number) - 1;
  }

  void add(std::string_view line, std::size_t number) {
    const std::vector<std::string_view> fields = split_fields(line);
    const std::string place = concat_text(lines_.origin(), ":", number);
    if (fields.size() != columns_) {
      if (line.starts_with("#")) return;  // a comment
      fail(place, ": the line has ", fields.size(), fields.size() == 1 ? " column" : " columns",
           ", the first one had ", columns_,
           "; each line is a word with its label, and an empty line ends a sentence");
    }
    if (is_of_no_word(fields.front())) return;
    if (words_.empty()) first_ = number;
    for (const auto& [column, list] : {std::pair(word_, &words_), {label_, &labels_}}) {
      check(!fields[column].empty(), place, ": column ", column + 1, " is empty; expected a ",
            list == &words_ ? "word" : "label");
      list->emplace_back(fields[column]);
    }
    check_label(labels_.back(), place);
  }

  /// Whether the line has no word of its own in CoNLL-U, whose first column is a number: "1-2", "1.1".
  bool is_of_no_word(std::string_view first) const {
    const std::size_t mark = first.find_first_of("-.");
    const auto is_number = [](std::string_view digits) {
      return !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
    };
    return word_ > 0 && mark != first.npos && is_number(first.substr(0, mark)) &&
           is_number(first.substr(mark + 1));
  }

  void finish() {
    if (!words_.empty())
      add_sentence(text_, words_,
                   options_.labelled ? std::span<const std::string>(labels_) : std::span<const std::string>(),
                   lines_.origin(), first_, report_);
    words_.clear();
    labels_.clear();
  }

  TextLines lines_;
  const TaggedOptions& options_;
  ReadReport* report_;
  LabelledText text_;
  std::vector<Line> waiting_;  // lines with # before the first word
  std::vector<std::string> words_, labels_;
  std::size_t columns_ = 0, word_ = 0, label_ = 0, first_ = 0;
  bool has_tabs_ = false;
};

LabelledText read_tagged_objects(const TextInput& input, const TaggedOptions& options, ReadReport* report) {
  TableOptions table{.format = "jsonl", .list_separator = std::string(between_words), .text = options.text};
  table.choose = [&](const TableSample& sample) {
    const auto find = [&](const std::string& given, std::initializer_list<const char*> usual) {
      if (!given.empty()) return *sample.find(given, true);
      for (const char* const name : usual)
        if (const auto found = sample.find(name, false)) return *found;
      return *sample.find(*usual.begin(), true);
    };
    std::vector<std::size_t> columns = {find(options.word_column, {"words", "tokens"})};
    if (options.labelled) columns.push_back(find(options.label_column, {"labels", "tags", "ner_tags"}));
    return columns;
  };
  LabelledText text;
  read_table_rows(
      input, table,
      [&](const TableCells& row) {
        const auto list = [&](std::size_t cell) {
          return row.cells[cell].empty() ? std::vector<std::string>() : split_words(row.cells[cell]);
        };
        const std::vector<std::string> words = list(0), labels = options.labelled ? list(1) : words;
        check(words.size() == labels.size(), row.place(), ": there are ", words.size(), " words (",
              row.names[0], ") and ", labels.size(), " labels (", row.names.back(),
              "); expected two lists with a label for each word");
        for (std::size_t i = 0; i < words.size(); ++i) {
          check(!words[i].empty() && !labels[i].empty(), row.place(), ": the ",
                words[i].empty() ? "word" : "label", " number ", i + 1, " is empty");
          check_label(labels[i], row.place());
        }
        add_sentence(text, words,
                     options.labelled ? std::span<const std::string>(labels) : std::span<const std::string>(),
                     row.origin, row.line, report);
      },
      report);
  return text;
}

}  // namespace

std::string joined_words(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between_words).append(word);
  return text;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view word : split_at(text, std::string(between_words))) words.emplace_back(word);
  return words;
}

Sentence sentence_of_words(std::vector<std::string> words) {
  Sentence sentence{{}, std::move(words)};
  std::size_t characters = 0;
  for (const std::string& word : sentence.words) {
    if (!sentence.text.empty()) sentence.text += ' ', ++characters;
    const auto length =
        static_cast<std::size_t>(std::ranges::count_if(word, [](char one) { return (one & 0xC0) != 0x80; }));
    sentence.text += word;
    sentence.places.push_back({characters, characters + length});
    characters += length;
  }
  return sentence;
}

Sentence parse_sentence(const std::string& line) {
  if (const auto words = split_at_spaces(line); words.empty() || !words.front().starts_with('['))
    return WordSplitter(line).split();
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_array()) return WordSplitter(line).split();  // a text that begins with a bracket
  std::vector<std::string> words;
  for (const Json& one : json) {
    check(one.is_string() && !one.get_ref<const std::string&>().empty() &&
              one.get_ref<const std::string&>().find_first_of("\r\n") == std::string::npos,
          "a list of words holds ", dumped(one), "; expected texts that are not empty and have no line ends");
    words.push_back(one);
  }
  check(!words.empty(), "the list of words is empty");
  return sentence_of_words(std::move(words));
}

std::vector<std::string> tagged_formats() {
  return {"conll", "jsonl"};
}

LabelledText read_tagged_text(const TextInput& input, const TaggedOptions& options, ReadReport* report) {
  const bool is_json =
      options.format.empty() ? table_format(input.origin) == "jsonl" : options.format == "jsonl";
  LabelledText text =
      is_json ? read_tagged_objects(input, options, report) : ColumnReader(input, options, report).read();
  check(text.size() > 0, input.origin, ": there are no words");
  return text;
}

}  // namespace heed
