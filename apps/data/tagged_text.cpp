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

/// Adds the word text[begin, end), in bytes, and its place in characters; `counted` is the end of the last one.
void add_word(Sentence& sentence, std::size_t& counted, std::size_t begin, std::size_t end) {
  const auto characters = [&](std::size_t from, std::size_t to) {
    return static_cast<std::size_t>(std::count_if(sentence.text.begin() + static_cast<std::ptrdiff_t>(from),
                                                  sentence.text.begin() + static_cast<std::ptrdiff_t>(to),
                                                  [](char byte) { return (byte & 0xC0) != 0x80; }));
  };
  const std::size_t place =
      (sentence.places.empty() ? 0 : sentence.places.back().end) + characters(counted, begin);
  sentence.words.push_back(sentence.text.substr(begin, end - begin));
  sentence.places.push_back({place, place + characters(begin, end)});
  counted = end;
}

/// Splits a text at white space. Marks at the ends of what is left, and characters of scripts without spaces between
/// words, are words of their own.
Sentence split_text_into_words(const std::string& text) {
  struct Cluster {
    std::size_t begin, end;  // in bytes
    bool is_mark;
  };
  Sentence sentence{text, {}};
  std::vector<Cluster> run;
  std::size_t counted = 0;
  const auto finish = [&] {
    const auto first = std::ranges::find(run, false, &Cluster::is_mark);
    const auto last = std::find_if(run.rbegin(), std::make_reverse_iterator(first), [](const Cluster& one) {
                        return !one.is_mark;
                      }).base();
    for (auto i = run.begin(); i != run.end();) {
      const auto next = i == first ? last : i + 1;
      add_word(sentence, counted, i->begin, (next - 1)->end);
      i = next;
    }
    run.clear();
  };
  for (std::size_t byte = 0; byte < text.size();) {
    const std::size_t end = byte + unicode::cluster_length(std::string_view(text).substr(byte));
    const char32_t value = unicode::decode(text, byte).value;
    const unicode::Script script = unicode::letter_script(value);
    const bool is_space = unicode::is_space(value),
               is_alone = unicode::is_letter(value) &&
                          (script == unicode::Script::han || script == unicode::Script::unspaced);
    if (is_space || is_alone) finish();
    if (!is_space) run.push_back({byte, end, unicode::is_punctuation(value) || unicode::is_symbol(value)});
    if (is_alone) finish();
    byte = end;
  }
  finish();
  return sentence;
}

/// Adds a sentence, without its labels if they are not read; one without words is counted.
void add_sentence(LabelledText& text, std::span<const std::string> words, std::span<const std::string> labels,
                  std::string_view origin, std::size_t line, ReadReport* report) {
  if (!words.empty())
    text.add(joined_words(words), joined_words(labels), origin, line);
  else if (report)
    ++report->blank;
}

/// Whether a line of CoNLL-U, given its number, has no word of its own: "1-2" or "1.1".
bool has_no_word(std::string_view number) {
  const std::size_t mark = number.find_first_of("-.");
  return mark != 0 && mark != number.npos && number.find_first_not_of("0123456789-.") == number.npos;
}

class ColumnReader {
 public:
  ColumnReader(const TextInput& input, const TaggedOptions& options, ReadReport* report)
      : lines_(input, options.text, report), options_(options), report_(report) {}

  LabelledText read() {
    while (const auto line = lines_.next()) {
      if (split_at_spaces(*line).empty() || line->starts_with("-DOCSTART-"))
        finish();
      else
        add(*line);
    }
    finish();
    if (comments_ > 0 && report_)
      report_->remarks.push_back(
          concat_text(lines_.origin(), ": comments, which begin with # and were left out: ", comments_));
    return std::move(text_);
  }

 private:
  std::size_t column_index(const std::string& column, std::size_t otherwise) const {
    const auto number =
        column.empty() ? std::optional(static_cast<double>(otherwise)) : parsed_number(column);
    check(number && *number >= 1 && *number <= static_cast<double>(columns_), lines_.place(),
          ": there is no column \"", column, "\" among the ", columns_, "; give a number from 1");
    return static_cast<std::size_t>(*number) - 1;
  }

  void add(std::string_view line) {
    const bool has_tabs = columns_ == 0 ? line.find('\t') != line.npos : has_tabs_;
    const std::vector<std::string_view> fields = has_tabs ? split_at(line, "\t") : split_at_spaces(line);
    if (line.starts_with("#") && (columns_ == 0 ? !has_tabs : fields.size() != columns_)) {
      ++comments_;
      return;
    }
    if (columns_ == 0) {
      has_tabs_ = has_tabs;
      columns_ = fields.size();
      word_ = column_index(options_.word_column, 1);
      label_ = options_.labelled ? column_index(options_.label_column, columns_) : word_;
      check(word_ != label_ || !options_.labelled, lines_.place(),
            ": the words and their labels are both in column ", word_ + 1, " of ", columns_,
            "; a line has a word and its label, such as \"Paris B-LOC\"");
    }
    check(fields.size() == columns_, lines_.place(), ": the line has ", fields.size(),
          fields.size() == 1 ? " column" : " columns", ", the first one had ", columns_,
          "; each line is a word with its label, and an empty line ends a sentence");
    if (word_ > 0 && has_no_word(fields.front())) return;
    if (words_.empty()) first_ = lines_.number();
    for (const auto& [column, list] : {std::pair(word_, &words_), {label_, &labels_}}) {
      check(!fields[column].empty(), lines_.place(), ": column ", column + 1, " is empty; expected a ",
            list == &words_ ? "word" : "label");
      list->emplace_back(fields[column]);
    }
    check_label(labels_.back(), lines_.place());
  }

  void finish() {
    if (!options_.labelled) labels_.clear();
    if (!words_.empty()) add_sentence(text_, words_, labels_, lines_.origin(), first_, report_);
    words_.clear();
    labels_.clear();
  }

  TextLines lines_;
  const TaggedOptions& options_;
  ReadReport* report_;
  LabelledText text_;
  std::vector<std::string> words_, labels_;
  std::size_t columns_ = 0, word_ = 0, label_ = 0, first_ = 0, comments_ = 0;
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
  const auto add = [&](const TableCells& row) {
    const auto list = [&](std::size_t cell) {
      return row.cells[cell].empty() ? std::vector<std::string>() : split_words(row.cells[cell]);
    };
    const std::vector<std::string> words = list(0),
                                   labels = options.labelled ? list(1) : std::vector<std::string>();
    check(words.size() == labels.size() || !options.labelled, row.place(), ": there are ", words.size(),
          " words (", row.names[0], ") and ", labels.size(), " labels (", row.names.back(),
          "); expected two lists with a label for each word");
    for (const auto& [what, texts] : {std::pair("word", &words), {"label", &labels}}) {
      const auto empty = std::ranges::find(*texts, "");
      check(empty == texts->end(), row.place(), ": the ", what, " number ", empty - texts->begin() + 1,
            " is empty");
    }
    for (const std::string& label : labels) check_label(label, row.place());
    add_sentence(text, words, labels, row.origin, row.line, report);
  };
  read_table_rows(input, table, add, report);
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

Sentence sentence_of_words(const std::vector<std::string>& words) {
  Sentence sentence;
  std::size_t counted = 0;
  for (const std::string& word : words) {
    if (counted > 0) sentence.text += ' ';
    sentence.text += word;
    add_word(sentence, counted, sentence.text.size() - word.size(), sentence.text.size());
  }
  return sentence;
}

Sentence parse_sentence(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_array()) return split_text_into_words(line);
  std::vector<std::string> words;
  for (const Json& one : json) {
    const std::string word = one.is_string() ? one.get<std::string>() : "";
    check(!word.empty() && word.find_first_of("\r\n") == word.npos, "a list of words holds ", dumped(one),
          "; expected texts that are not empty and have no line ends");
    words.push_back(word);
  }
  check(!words.empty(), "the list of words is empty");
  return sentence_of_words(words);
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
