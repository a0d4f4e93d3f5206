#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/digest.h"
#include "heed/data/batching.h"
#include "heed/data/labelled_text.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/loss.h"
#include "heed/tasks/settings.h"

// What tasks do with texts between the reader and the model.

namespace heed {

/// True when the settings name data.file.
bool names_file(const Settings& settings);
/// The parts of the files that the settings name: data.valid and data.test, or where there are none the
/// shares of data.file that split(all, valid_fraction, test_fraction) holds out. `read` reads a file.
template <class Read, class Split>
auto parts_of_files(const Settings& settings, const Read& read, const Split& split) {
  const auto valid = settings.get<std::string>("data.valid"), test = settings.get<std::string>("data.test");
  auto parts = split(read(settings.get<std::string>("data.file")),
                     valid.empty() ? settings.get<double>("data.valid_fraction") : 0,
                     test.empty() ? settings.get<double>("data.test_fraction") : 0);
  if (!valid.empty()) parts.valid = read(valid);
  if (!test.empty()) parts.test = read(test);
  return parts;
}

/// "data.max_tokens" and "data.long_texts": what becomes of a text that is longer; and "tokenizer.begin".
void declare_long_texts(Settings& settings);

/// The ids of a text and the end mark.
Tokens tokens_with_end(const Tokenizer& tokenizer, std::string_view text);

/// Turns texts into what an encoder reads: their tokens and the end mark "</s>"; before them the mark that
/// "tokenizer.begin" names, if any.
class BoundedTokenizer {
 public:
  /// data.max_tokens is the most tokens of a text; data.long_texts says what happens to longer ones: "error",
  /// or "cut", which keeps the beginning.
  BoundedTokenizer(Tokenizer tokenizer, const Settings& settings);
  /// Throws an Error for a text that is too long.
  Tokens operator()(std::string_view text);
  /// The mark that begins a text; none where the settings name none.
  const Tokens& begin() const { return begin_; }
  /// The same of tokens that end in the mark.
  Tokens bounded(Tokens tokens);
  /// All texts; errors say where each came from.
  std::vector<Tokens> operator()(const TextList& texts, const TextPlaces& places);
  /// "3 texts are longer than data.max_tokens = 256 and were cut", or "" when none was since the last call.
  std::string take_cut_message();
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  Tokens begin_;
  std::size_t max_tokens_;
  bool cut_;
  std::int64_t cut_texts_ = 0;
};

/// True for a line that says nothing.
bool is_blank(std::string_view line);
/// The tokens as they are read, for people: with the spaces and bytes that they stand for.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

/// Adds a text so that no other division of the same bytes gives the same digest.
void add_text(Digest& digest, std::string_view text);
/// A digest of texts, in their order.
std::string digest_of_texts(std::initializer_list<const TextList*> lists);
/// The texts of lists, which must outlive this, one list behind the other.
TextSource source_of(std::vector<const TextList*> lists);

/// A digest of all texts and labels.
std::string digest_of(const LabelledText& text);
std::string digest_of(const ParallelText& pairs);
/// The first texts, and then the second, of data that must outlive this.
TextSource all_texts(const LabelledText& text);
TextSource all_texts(const ParallelText& pairs);

/// The limits of a training batch: training.batch_tokens, data.max_tokens and the seed.
BatchOptions training_batches(const Settings& settings);
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

/// The settings below "data" that name files of pairs: a table each ("file", "valid", "test", with "format",
/// "header" and the columns), or two files of lines each ("source" and "target", "valid_source", ...).
/// `valid_fraction`: the share that is held out where no file is named to measure with.
void declare_pairs(Settings& settings, double valid_fraction);

/// True when the settings name pairs to learn from; throws a SettingsError when they name half of them, or
/// both a table and files of lines.
bool names_pairs(const Settings& settings);

/// All parts that the settings name.
PairParts read_pair_parts(const Settings& settings, ReadReport& report);
/// A table (one file), or sources and targets (two). Line ends in a cell become spaces. Throws an Error with
/// file and line.
ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report);

/// Draws the share of the pairs that is held out, as split_text() does.
PairParts split_pairs(const ParallelText& pairs, double valid_fraction, std::uint64_t seed);

}  // namespace heed
