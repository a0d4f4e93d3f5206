#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/apps/report/capture.h"
#include "heed/apps/tasks/settings.h"
#include "heed/base/digest.h"
#include "heed/models/loss.h"
#include "heed/models/pairs.h"
#include "heed/text/batching.h"
#include "heed/text/tokenizer.h"

// Text handling between the file readers and the model, shared by all tasks.

namespace heed {

// --- shared settings of the group "data"

void for_each_setting(auto&& visit, TextOptions& text) {
  visit(text.encoding, "encoding", {"utf-8", "latin-1", "cp1252"},
        "Character encoding of text files; never guessed");
  visit(text.bad_bytes, "on_bad_bytes", {"error", "replace"},
        "What happens to bytes that are invalid in the encoding: an error, or replacement by U+FFFD with a "
        "count");
  visit(text.max_bytes, "max_bytes", 1, 0x1p63, "Largest size of a text file, unpacked, in bytes");
}

/// The files of a task with separate training, validation and test data. `what` and `form` describe
/// their content in help texts.
struct DataFiles {
  std::string file = {}, valid = {}, test = {};
  std::string what = "Texts", form = {}, without_test = "a part of data.file, see data.test_fraction";
};

void for_each_setting(auto&& visit, DataFiles& files) {
  visit(files.file, "file", files.what + " for training" + files.form);
  visit(files.valid, "valid", files.what + " for validation; empty: a part of data.file is held out");
  visit(files.test, "test", files.what + " for testing; empty: " + files.without_test);
}

// Settings for splitting data.file when no other files are named.
void visit_valid_fraction(auto&& visit, double& fraction) {
  visit(fraction, "valid_fraction", 0, below_one,
        "Share of the data to hold out for validation, unless validation files are named");
}
void visit_test_fraction(auto&& visit, double& fraction) {
  visit(fraction, "test_fraction", 0, below_one,
        "Share of the data to hold out for testing, unless test files are named");
}
void visit_split_seed(auto&& visit, std::uint64_t& seed) {
  visit(seed, "split_seed", 0, 0x1p63, "Seed for choosing held-out data, and for generated data");
}

/// The length limit of texts, and what happens to longer ones.
struct TextLimits {
  std::int64_t max_tokens = 256;
  enum class LongTexts { error, cut } long_texts = LongTexts::cut;
};

void for_each_setting(auto&& visit, TextLimits& limits) {
  visit(limits.max_tokens, "max_tokens", 1, 1 << 24, "Most tokens of a text, including the end mark");
  visit(limits.long_texts, "long_texts", {"error", "cut"},
        "What happens to longer texts: an error, or only the beginning is read and a message reports how "
        "many were cut");
}

/// The text before every text that an encoder reads.
struct TextPrompt {
  std::string prompt = {};
};
void for_each_setting(auto&& visit, TextPrompt& text) {
  visit(text.prompt, "prompt", "Text before every text, such as \"query: \"", {.changes = Changes::in_use});
}

/// The marks between two texts that are read as one.
struct PairMarks {
  std::string between = {};
};
void for_each_setting(auto&& visit, PairMarks& marks) {
  visit(
      marks.between, "between",
      "Marks, with spaces between them, that join two texts with a tab between them (with model.token_types "
      "the second has type 1); empty: a tab is text");
}

// --- examples in memory

/// A column of examples passed in memory.
struct ExampleColumn {
  std::string_view name, help;
  /// A label or an identity: a single line, for which a caller may also pass an integer.
  bool is_name = false;
  std::string_view separator = {};  ///< between the elements of a cell that is a list
  bool optional = false;            ///< it and the columns after it may be left out
  bool is_number = false;           ///< a caller may also pass a number
};

/// The layout of a table of examples, and how its rows are written to a file that the task reads.
struct ExampleTable {
  /// "": a part of the data (data.file, data.valid or data.test). Otherwise the setting below
  /// "data" that names the file: "news" for data.news.
  std::string_view name;
  std::vector<ExampleColumn> columns;
  std::string_view ending = "jsonl";  ///< of the file's name
  /// Returns a line of the file, without its line end. Null: a JSON object keyed by the column
  /// names.
  std::string (*line)(std::span<const std::string> row, std::size_t number) = nullptr;
};

/// Examples in memory: a table of texts, stored by column, in the order of the task's ExampleTable.
struct Examples {
  /// "train", "valid", "test", or the name of another table of the task.
  std::string part = "train";
  std::vector<std::vector<std::string>> columns;
};

/// Returns the tables of examples that tasks trained on pairs accept from memory.
std::vector<ExampleTable> pair_examples();

/// The input of a command. Each uses other settings below "data".
enum class Reads {
  made,      ///< data generated by rule
  parts,     ///< the files of the data
  pairs,     ///< the files of the data, all of them lines of sources and targets
  table,     ///< one other file of data
  rows,      ///< a table of inputs
  parallel,  ///< other lines of sources and targets
  lines      ///< texts, one per line
};
/// Throws a SettingsError for a setting of how files are read, if the input does not use it.
void check_used(const Setting& setting, Reads reads);

/// Whether a setting describes the layout of data files. heed chooses the layout of examples in
/// memory itself.
bool is_layout(const Setting& setting);
/// Sets the file layout of a table, and the names of its first `columns` columns.
void apply_table_layout(const ExampleTable& table, std::size_t columns, Settings& settings);

// --- files

/// Whether the settings name data.file. Throws a SettingsError if they name only other data files.
bool names_file(const Settings& settings);
/// The training, validation and test parts. Without files.valid or files.test, split(all,
/// valid_fraction, test_fraction) holds out a share of files.file. `read` reads a file.
template <class Read, class Split>
auto parts_of_files(const DataFiles& files, double valid_fraction, double test_fraction, const Read& read,
                    const Split& split) {
  auto parts = split(read(files.file), files.valid.empty() ? valid_fraction : 0,
                     files.test.empty() ? test_fraction : 0);
  if (!files.valid.empty()) parts.valid = read(files.valid);
  if (!files.test.empty()) parts.test = read(files.test);
  return parts;
}

/// Returns the token ids of a text, followed by the end mark.
Tokens tokens_with_end(const Tokenizer& tokenizer, std::string_view text);

/// How a task reads texts; null: it reads none. Thread-safe; the task must outlive it. encode() returns all
/// tokens of a text, uncut; with `marks` also those that the model reads around it.
struct TextReader {
  const Tokenizer* tokenizer = nullptr;
  std::function<Tokens(const std::string& text, bool marks)> encode = {};
};

/// Tokenizes texts for an encoder: the mark named by "tokenizer.begin", if any, the tokens of
/// "tokenizer.prompt" and the text, and the end mark "</s>".
class BoundedTokenizer {
 public:
  /// Reads its TextLimits from the settings below "data".
  BoundedTokenizer(Tokenizer tokenizer, const Settings& settings);
  /// Tokenizes a text, or two with a tab between them (PairMarks). A text that is too long is cut, or throws an
  /// Error, depending on data.long_texts. `second` gets the place of the second text; 0: there is one text.
  Tokens operator()(std::string_view text, std::size_t* second = nullptr) {
    return bounded(marked(text, second));
  }
  Tokens marked(std::string_view text, std::size_t* second = nullptr) const;
  TextReader reader() const {
    return {&tokenizer_, [this](const std::string& text, bool marks) {
              return marks ? marked(text) : tokenizer_.encode(text);
            }};
  }
  /// The mark that begins a text; empty if the settings name none.
  const Tokens& begin() const { return begin_; }
  /// Applies the length limit to tokens that already end in the end mark.
  Tokens bounded(Tokens tokens);
  /// Tokenizes all texts; errors name the place of a text.
  std::vector<Tokens> operator()(const TextList& texts, const TextPlaces& places);
  /// Returns "3 of 90 texts are longer than data.max_tokens = 256 and were cut" for the texts since
  /// the last call, or "" if none was cut.
  std::string take_truncation_message();
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  Tokens begin_, between_;
  std::string prompt_;
  std::size_t max_tokens_ = 0;
  bool cut_ = false;
  std::atomic<std::int64_t> texts_ = 0, cut_texts_ = 0;
};

/// How a model reads pairs of texts.
struct PairModel {
  enum class Kind { joint, towers } kind = Kind::joint;
  bool is_joint() const { return kind == Kind::joint; }
};
void for_each_setting(auto&& visit, PairModel& model) {
  visit(model.kind, "kind", {"joint", "towers"},
        "joint: the encoder reads both texts at once; towers: one encoder reads each text by itself");
}

/// Tokenizes pairs of texts for a PairMatcher: the tokens of each text with the end mark, and for
/// each token whether its word also occurs in the other text, ignoring case. Words are matched
/// whole, so that names missing from the vocabulary are found.
///
/// The match kind encodes how rare a word is. The vocabulary is sorted from frequent to rare, so a
/// word's rank gives the kind: 1 for about the first 30 words, 2 for 250, 3 for 2000, 4 for all
/// others and for words of several tokens. If a word of several tokens has no match, as is common
/// in scripts without spaces, its tokens are compared in runs: 5 for a token that occurs in the
/// other text, 6 and 7 for a token within a matching run of two or three tokens.
class PairTokenizer {
 public:
  PairTokenizer(Tokenizer tokenizer, const Settings& settings)
      : bounded_(std::move(tokenizer), settings), is_joint_(settings.read<PairModel>("model").is_joint()) {}

  /// Returns the text for training the tokenizer: each word and punctuation mark with a space
  /// before it.
  static std::string spaced(std::string_view text);

  /// Tokenizes a pair. Texts that are too long are treated as by BoundedTokenizer.
  TokenPair operator()(std::string_view first, std::string_view second);
  TextReader reader() const;  ///< of a text, or two with a tab between them, as a joint model reads them
  const Tokenizer& tokenizer() const { return bounded_.tokenizer(); }
  std::string take_truncation_message() { return bounded_.take_truncation_message(); }

 private:
  /// A word and its lower-case form, which is used for comparison.
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

/// Receives each new piece of a text as it is generated. Return false to stop generation.
using OnText = std::function<bool(std::string_view piece)>;

/// Passes on a growing text in pieces, as it is generated.
class TextPieces {
 public:
  /// Thrown by grow() when OnText returned false.
  struct Ended {};

  explicit TextPieces(const OnText& on_text) : on_text_(on_text) {}
  /// Passes on what is new in `text`, the whole text so far. An incomplete character at the end
  /// waits for its remaining bytes.
  void grow(std::string_view text);
  /// Passes on the rest of the complete text.
  void finish(std::string_view text);
  const std::string& shown() const { return shown_; }

 private:
  bool show(std::string_view piece);

  const OnText& on_text_;
  std::string shown_;
};

/// Whether a line holds only white space.
bool is_blank(std::string_view line);
/// Returns the tokens in readable form, with the spaces and bytes that they encode.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

/// Runs `pass` with an inference context, without gradients, and returns what its layers captured.
Capture captured(const std::function<void(Context&)>& pass);
/// Adds the capture of one pass over `rows`, with their tokens. Two rows become separate examples,
/// "<example>-first" and "<example>-second".
void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer);

/// Adds a text with its length, so that other ways to divide the same bytes give another digest.
void add_text(Digest& digest, std::string_view text);
/// Returns the texts of several lists, one list after another. The lists must outlive the source.
TextSource source_of(std::vector<const TextList*> lists);

/// Returns a digest of all texts and labels.
std::string compute_digest(const LabelledText& text);
std::string compute_digest(const ParallelText& pairs);
/// Returns all first texts, then all second texts. The data must outlive the source.
TextSource all_texts(const LabelledText& text);
TextSource all_texts(const ParallelText& pairs);

/// Returns a part of the data by its name: "valid", "test" or "train".
template <class Data>
const Data& part_of(const DataParts<Data>& parts, std::string_view name) {
  return name == "valid" ? parts.valid : name == "test" ? parts.test : parts.train;
}

/// Lengths of examples in tokens, for batching: of the first side and, if there is one, of the
/// second.
using Lengths = std::array<std::vector<std::int32_t>, 2>;

/// Returns the limits of a training batch: training.batch_tokens, data.max_tokens and the seed.
BatchOptions training_batches(const Settings& settings);
/// Returns options for evaluation batches: no example is left out, and similar lengths are batched
/// together.
BatchOptions evaluation_batches(std::int64_t batch_size);
/// Returns the lengths of sequences as the model sees them; each gains `more` marks.
std::vector<std::int32_t> lengths_of(const std::vector<Tokens>& sequences, std::int32_t more = 0);

/// Returns the elements at the indices of a batch.
template <class Element>
std::vector<Element> pick(const std::vector<Element>& all, const Batch& rows) {
  std::vector<Element> picked;
  picked.reserve(rows.size());
  for (const std::int32_t row : rows) picked.push_back(all[static_cast<std::size_t>(row)]);
  return picked;
}

/// The batches of a plan. Caches the last epoch that was asked for, so that a step does not plan it
/// again.
template <class Plan>
class EpochBatches {
 public:
  void plan(Plan plan) {
    plan_.emplace(std::move(plan));
    epoch_ = -1;
  }
  const auto& epoch(std::int64_t epoch) {
    if (epoch != epoch_) batches_ = plan_->epoch(static_cast<std::uint32_t>(epoch));
    epoch_ = epoch;
    return batches_;
  }
  std::int64_t count(std::int64_t number) { return static_cast<std::int64_t>(epoch(number).size()); }
  decltype(auto) at(std::int64_t number, std::int64_t batch) {
    return epoch(number)[static_cast<std::size_t>(batch)];
  }

 private:
  std::optional<Plan> plan_;
  std::int64_t epoch_ = -1;
  decltype(std::declval<const Plan&>().epoch(0)) batches_;
};

/// Rounds to four decimals, the meaningful precision of a score.
double rounded(double value);

/// Returns short lines for a reader: of the first 500 `texts`, the ones whose length is nearest to
/// 60 bytes, in their order; at most `count`, none blank.
std::vector<std::string> short_lines(const TextList& texts, std::size_t count);

// Pairs of texts, a source and its target, from tables or from two files of lines.

using PairParts = DataParts<ParallelText>;

void visit_header(auto&& visit, Header& header) {
  visit(header, "header", {"", "true", "false"},
        "csv and tsv: whether the first row is a header; giving a column by name implies true; empty: "
        "detected and reported");
}
void visit_delimiter(auto&& visit, std::string& delimiter) {
  std::vector<std::string> names = table_delimiters();
  names.insert(names.begin(), "");
  visit(delimiter, "delimiter", names, "Field separator of csv; empty: detected in the first line");
}
void visit_bad_rows(auto&& visit, BadRows& bad_rows) {
  visit(bad_rows, "on_bad_rows", {"error", "drop"},
        "Tables: whether a row that cannot be read is an error, or is dropped and reported");
}

/// The settings below "data" that name files of pairs: a table for each part, or two files of
/// lines.
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
  visit(files.train.source, "source", "Training sources, one per line; plain or gzip");
  visit(files.train.target, "target", "Training targets, line by line");
  visit(files.valid.source, "valid_source", "Validation sources");
  visit(files.valid.target, "valid_target", "What is to be written for them");
  visit(files.test.source, "test_source", "Test sources");
  visit(files.test.target, "test_target", "What is to be written for them");
  visit(files.train.table, "file",
        "A table with sources and targets, plain or gzip, instead of data.source and data.target");
  visit(files.valid.table, "valid", "Validation table");
  visit(files.test.table, "test", "Test table");
  visit_valid_fraction(visit, files.valid_fraction);
  visit_split_seed(visit, files.split_seed);
  std::vector<std::string> formats = table_formats();
  formats.insert(formats.begin(), "");
  visit(files.format, "format", formats, "Format of tables; empty: from the file name");
  visit_header(visit, files.header);
  visit_delimiter(visit, files.delimiter);
  visit_bad_rows(visit, files.text.bad_rows);
  visit(
      files.source_column, "source_column",
      "Column of the sources: a number from 1, or a name; empty: \"source\", or 1 if there is no such name");
  visit(
      files.target_column, "target_column",
      "Column of the targets: a number from 1, or a name; empty: \"target\", or 2 if there is no such name");
  for_each_setting(visit, files.text);
}

/// Whether the settings name training pairs. Throws a SettingsError if they name only one side, or
/// both a table and files of lines.
bool names_pairs(const Settings& settings);

/// Reads all parts that the settings name.
PairParts read_pair_parts(const Settings& settings, ReadReport& report);
/// Reads pairs from a table (one file), or from sources and targets (two files). Line ends in a
/// cell become spaces. Throws an Error with file and line.
ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report);

/// Reads the sources of a table row by row; the table may lack targets. Line ends in a cell become
/// spaces.
void read_sources(const Settings& settings, const std::string& file, const TakeText& take,
                  ReadReport& report);

/// Settings for generated pairs of number words in two languages.
struct NumberSettings {
  std::int64_t count = 20000, held_out = 500;
  /// Generates the pairs. They do not depend on the seed of a run, so that runs with different
  /// seeds are compared on the same numbers.
  PairParts made_by_rule() const;
};
void for_each_setting(auto&& visit, NumberSettings& numbers) {
  visit(numbers.count, "numbers", 1, 999'999,
        "Without data: number of generated training pairs of number words");
  visit(numbers.held_out, "held_out_numbers", 1, 999'999,
        "Without data: number of generated held-out examples");
}

}  // namespace heed
