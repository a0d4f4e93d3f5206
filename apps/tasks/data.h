#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/report/capture.h"
#include "heed/apps/tasks/settings.h"
#include "heed/base/digest.h"
#include "heed/data/batching.h"
#include "heed/data/labelled_text.h"
#include "heed/data/table.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/loss.h"
#include "heed/models/pairs.h"

// What tasks do with texts between the reader and the model.

namespace heed {

// --- settings of the group "data" that tasks have in common

void for_each_setting(auto&& visit, TextOptions& text) {
  visit(text.encoding, "encoding", {"utf-8", "latin-1", "cp1252"},
        "How bytes stand for characters; it is never guessed");
  visit(text.bad_bytes, "on_bad_bytes", {"error", "replace"},
        "Bytes that the encoding does not have are an error, or replaced by U+FFFD and counted");
  visit(text.max_bytes, "max_bytes", 1, 0x1p63, "The most bytes of one file of text, unpacked");
}

/// The files of a task whose data come in parts. `what` they hold, and in which `form`, is for their help.
struct DataFiles {
  std::string file = {}, valid = {}, test = {};
  std::string what = "Texts", form = {}, without_test = "a part of data.file, see data.test_fraction";
};

void for_each_setting(auto&& visit, DataFiles& files) {
  visit(files.file, "file", files.what + " to learn from" + files.form);
  visit(files.valid, "valid", files.what + " to measure progress on; empty: a part of data.file is held out");
  visit(files.test, "test", files.what + " kept for a test; empty: " + files.without_test);
}

// How these are split where no file is named.
void visit_valid_fraction(auto&& visit, double& fraction) {
  visit(fraction, "valid_fraction", 0, below_one,
        "Share of the data that is held out to measure progress on, unless files are named for that");
}
void visit_test_fraction(auto&& visit, double& fraction) {
  visit(fraction, "test_fraction", 0, below_one, "Share of the data that is held out for a test, likewise");
}
void visit_split_seed(auto&& visit, std::uint64_t& seed) {
  visit(seed, "split_seed", 0, 0x1p63, "Seed of what is held out, and of data made by rule");
}

/// How long texts may be, and what happens to longer ones.
struct TextLimits {
  std::int64_t max_tokens = 256;
  enum class LongTexts { error, cut } long_texts = LongTexts::cut;
};

void for_each_setting(auto&& visit, TextLimits& limits) {
  visit(limits.max_tokens, "max_tokens", 1, 1 << 24, "The most tokens of a text, its end mark included");
  visit(limits.long_texts, "long_texts", {"error", "cut"},
        "A longer text is an error, or cut: its beginning alone is read, and a message says how many were");
}

// --- examples in memory

/// A column of the examples that a task takes from memory.
struct ExampleColumn {
  std::string_view name, help;
  /// A label or an identity: one line, for which a caller may also have a whole number.
  bool is_name = false;
  std::string_view separator = {};  ///< of a cell that is a list: what stands between its elements
  bool optional = false;            ///< it and the columns after it may be left out
  bool is_number = false;           ///< a caller may have a number, too
};

/// A table of examples, and how its rows become a file that the task reads.
struct ExampleTable {
  /// "": a part of the data (data.file, data.valid or data.test); else the only one of its kind: "news" for
  /// data.news.
  std::string_view name;
  std::vector<ExampleColumn> columns;
  std::string_view ending = "jsonl";  ///< of the file's name
  /// A line of the file, without its end; null: a JSON object with the names of the columns.
  std::string (*line)(std::span<const std::string> row, std::size_t number) = nullptr;
};

/// Examples in memory: a table of texts, column by column, in the order of the task's ExampleTable.
struct Examples {
  std::string part = "train";  ///< "train", "valid", "test", or the name of another table of the task
  std::vector<std::vector<std::string>> columns;
};

/// What tasks that learn from pairs take from memory.
std::vector<ExampleTable> pair_examples();

/// Whether a setting says how files of data are laid out: those of examples in memory heed itself writes.
bool is_layout(const Setting& setting);
/// Sets how the file of a table is laid out, and what its first `columns` are called.
void use_layout_of(const ExampleTable& table, std::size_t columns, Settings& settings);

// --- files

/// True when the settings name data.file. Throws a SettingsError when they name other files but not that one.
bool names_file(const Settings& settings);
/// The parts of the files: files.valid and files.test, or where there are none the shares of files.file that
/// split(all, valid_fraction, test_fraction) holds out. `read` reads a file.
template <class Read, class Split>
auto parts_of_files(const DataFiles& files, double valid_fraction, double test_fraction, const Read& read,
                    const Split& split) {
  auto parts = split(read(files.file), files.valid.empty() ? valid_fraction : 0,
                     files.test.empty() ? test_fraction : 0);
  if (!files.valid.empty()) parts.valid = read(files.valid);
  if (!files.test.empty()) parts.test = read(files.test);
  return parts;
}

/// The ids of a text and the end mark.
Tokens tokens_with_end(const Tokenizer& tokenizer, std::string_view text);

/// Turns texts into what an encoder reads: their tokens and the end mark "</s>"; before them the mark that
/// "tokenizer.begin" names, if any.
class BoundedTokenizer {
 public:
  /// With the TextLimits below "data".
  BoundedTokenizer(Tokenizer tokenizer, const Settings& settings);
  /// Throws an Error for a text that is too long.
  Tokens operator()(std::string_view text);
  /// The mark that begins a text; none where the settings name none.
  const Tokens& begin() const { return begin_; }
  /// The same of tokens that end in the mark.
  Tokens bounded(Tokens tokens);
  /// All texts; errors say where each came from.
  std::vector<Tokens> operator()(const TextList& texts, const TextPlaces& places);
  /// "3 of 90 texts are longer than data.max_tokens = 256 and were cut; ..." of the texts since the last
  /// call, or "" when none was cut.
  std::string take_cut_message();
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  Tokens begin_;
  std::size_t max_tokens_ = 0;
  bool cut_ = false;
  std::atomic<std::int64_t> texts_ = 0, cut_texts_ = 0;
};

/// Turns pairs of texts into what a PairMatcher reads: each text's tokens with the end mark, and for each
/// token whether the word it belongs to stands in the other text, too, in small or capital letters. A word is
/// matched whole, so that names which the vocabulary lacks are found. The kinds of match tell how rare the
/// word is by its place in the vocabulary, which is learned from the frequent to the rare: 1 for about 30
/// words, 2 for 250, 3 for 2000, 4 for others and for words of several tokens. Where a word of several tokens
/// has no match, as most have in scripts without spaces, its tokens are compared in runs: 5 for a token that
/// the other text has, 6 and 7 for one within a run of two or three tokens that it has.
class PairTokenizer {
 public:
  PairTokenizer(Tokenizer tokenizer, const Settings& settings)
      : bounded_(std::move(tokenizer), settings),
        is_joint_(settings.get<std::string>("model.kind") == "joint") {}

  /// A text as the tokenizer is to learn it: words and marks of punctuation with a space before each.
  static std::string spaced(std::string_view text);

  /// Throws an Error when one of the texts is too long (see BoundedTokenizer).
  TokenPair operator()(std::string_view first, std::string_view second);
  const Tokenizer& tokenizer() const { return bounded_.tokenizer(); }
  std::string take_cut_message() { return bounded_.take_cut_message(); }

 private:
  /// A word with the form by which it is compared.
  struct Word {
    std::string lower;
    Tokens tokens;
  };
  std::vector<Word> words_of(std::string_view text) const;
  MatchedTokens matched(const std::vector<Word>& words, const std::vector<Word>& others, bool begins);
  std::int32_t kind_of_match(const Word& word) const;

  BoundedTokenizer bounded_;
  bool is_joint_;  // a row is the pair, and begins once
};

/// Gets each new piece of a text that is being written; false ends the writing.
using OnText = std::function<bool(std::string_view piece)>;

/// Hands over a text in pieces while it grows at its end.
class TextPieces {
 public:
  /// Thrown by grow() where no more is wanted.
  struct Ended {};

  explicit TextPieces(const OnText& on_text) : on_text_(on_text) {}
  /// `text`: all of it so far. Its last bytes may be a part of a character, and then wait for the rest.
  void grow(std::string_view text);
  /// The same of the whole text.
  void finish(std::string_view text);
  const std::string& shown() const { return shown_; }

 private:
  bool show(std::string_view piece);

  const OnText& on_text_;
  std::string shown_;
};

/// True for a line that says nothing.
bool is_blank(std::string_view line);
/// The tokens as they are read, for people: with the spaces and bytes that they stand for.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

/// What layers show in a pass that is given a context for inference; without gradients.
Capture captured(const std::function<void(Context&)>& pass);
/// Adds what one pass over `rows` left, with their tokens. Of two rows each is an example of its own:
/// "<example>-first" and "<example>-second".
void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer);

/// Adds a text so that no other division of the same bytes gives the same digest.
void add_text(Digest& digest, std::string_view text);
/// The texts of lists, which must outlive this, one list behind the other.
TextSource source_of(std::vector<const TextList*> lists);

/// A digest of all texts and labels.
std::string digest_of(const LabelledText& text);
std::string digest_of(const ParallelText& pairs);
/// The first texts, and then the second, of data that must outlive this.
TextSource all_texts(const LabelledText& text);
TextSource all_texts(const ParallelText& pairs);

/// A part of the data by its name.
template <class Data>
const Data& part_of(const DataParts<Data>& parts, std::string_view name) {
  return name == "valid" ? parts.valid : name == "test" ? parts.test : parts.train;
}

/// Lengths of examples, by which batches are put together: of the first side and, where there is one, of the
/// second.
using Lengths = std::array<std::vector<std::int32_t>, 2>;

/// The limits of a training batch: training.batch_tokens, data.max_tokens and the seed.
BatchOptions training_batches(const Settings& settings);
/// The shortest text that reads as the number.
std::string number_text(float number);

/// The batches of an evaluation: no example is left out, and like lengths stand together.
BatchOptions evaluation_batches(std::int64_t batch_size);
/// Lengths as the model sees them; each sequence gains `more` marks.
std::vector<std::int32_t> lengths_of(const std::vector<Tokens>& sequences, std::int32_t more = 0);

/// The elements that a batch names.
template <class Element>
std::vector<Element> pick(const std::vector<Element>& all, const Batch& rows) {
  std::vector<Element> picked;
  picked.reserve(rows.size());
  for (const std::int32_t row : rows) picked.push_back(all[static_cast<std::size_t>(row)]);
  return picked;
}

/// The batches of a plan. Those of the last epoch asked for are kept, so that a step need not plan the epoch
/// again.
template <class Plan>
class EpochBatches {
 public:
  void plan(Plan plan) {
    plan_.emplace(std::move(plan));
    epoch_ = -1;
  }
  std::int64_t count(std::int64_t epoch) { return static_cast<std::int64_t>(of(epoch).size()); }
  decltype(auto) at(std::int64_t epoch, std::int64_t batch) {
    return of(epoch)[static_cast<std::size_t>(batch)];
  }

 private:
  using Batches = decltype(std::declval<const Plan&>().epoch(0));
  const Batches& of(std::int64_t epoch) {
    if (epoch != epoch_) batches_ = plan_->epoch(static_cast<std::uint32_t>(epoch));
    epoch_ = epoch;
    return batches_;
  }

  std::optional<Plan> plan_;
  std::int64_t epoch_ = -1;
  Batches batches_;
};

/// To four decimals: more say nothing about a score.
double rounded(double value);

/// Lines that are soon read: of the first 500 of `texts` those whose length is nearest to 60 bytes, in their
/// order; at most `count`, and no blank ones.
std::vector<std::string> short_lines(const TextList& texts, std::size_t count);

// Pairs of texts, a source and what is to be written for it, from tables or from two files of lines.

using PairParts = DataParts<ParallelText>;

void visit_header(auto&& visit, Header& header) {
  visit(header, "header", {"", "true", "false"},
        "csv and tsv: whether the first row names the columns, as it does where a column is given by its "
        "name; empty: found out, and said");
}
void visit_delimiter(auto&& visit, std::string& delimiter) {
  std::vector<std::string> names = table_delimiters();
  names.insert(names.begin(), "");
  visit(delimiter, "delimiter", names, "What separates the fields of csv; empty: what the first line shows");
}

/// The settings below "data" that name files of pairs: a table for each part, or two files of lines.
struct PairFiles {
  struct Part {
    std::string source = {}, target = {}, table = {};
  };
  Part train = {}, valid = {}, test = {};
  double valid_fraction = 0;
  std::uint64_t split_seed = 1;
  std::string format = {};
  Header header = Header::detected;
  std::string delimiter = {};
  std::string source_column = {}, target_column = {};
  TextOptions text = {};
};

void for_each_setting(auto&& visit, PairFiles& files) {
  visit(files.train.source, "source", "Texts to learn from, one a line; plain or gzip");
  visit(files.train.target, "target", "What is to be written for them, line by line");
  visit(files.valid.source, "valid_source", "Texts to measure progress on");
  visit(files.valid.target, "valid_target", "What is to be written for them");
  visit(files.test.source, "test_source", "Texts to measure with at the end");
  visit(files.test.target, "test_target", "What is to be written for them");
  visit(files.train.table, "file",
        "In place of data.source and data.target: a table with both, plain or gzip");
  visit(files.valid.table, "valid", "A table to measure progress on");
  visit(files.test.table, "test", "A table to measure with at the end");
  visit_valid_fraction(visit, files.valid_fraction);
  visit_split_seed(visit, files.split_seed);
  std::vector<std::string> formats = table_formats();
  formats.insert(formats.begin(), "");
  visit(files.format, "format", formats, "How tables are laid out; empty: by the name of the file");
  visit_header(visit, files.header);
  visit_delimiter(visit, files.delimiter);
  visit(files.source_column, "source_column",
        "Column of the sources: a number from 1, or a name; empty: \"source\", or 1 where nothing is called "
        "so");
  visit(files.target_column, "target_column",
        "Column of the targets: a number from 1, or a name; empty: \"target\", or 2 where nothing is called "
        "so");
  for_each_setting(visit, files.text);
}

/// True when the settings name pairs to learn from; throws a SettingsError when they name half of them, or
/// both a table and files of lines.
bool names_pairs(const Settings& settings);

/// All parts that the settings name.
PairParts read_pair_parts(const Settings& settings, ReadReport& report);
/// A table (one file), or sources and targets (two). Line ends in a cell become spaces. Throws an Error with
/// file and line.
ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report);

/// The sources of a table, which may be without targets, row by row. Line ends in a cell become spaces.
void read_sources(const Settings& settings, const std::string& file, const TakeText& take,
                  ReadReport& report);

/// Pairs of number words in two languages, made by rule.
struct NumberSettings {
  std::int64_t count = 20000, held_out = 500;
  /// They do not follow the seed of a run: runs with other seeds are compared on the same numbers.
  PairParts made_by_rule() const;
};
void for_each_setting(auto&& visit, NumberSettings& numbers) {
  visit(numbers.count, "numbers", 1, 999'999, "Without data: how many number words to learn from");
  visit(numbers.held_out, "held_out_numbers", 1, 999'999, "Without data: how many to measure with");
}

}  // namespace heed
