#include "heed/apps/tasks/data.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/text/tokenizer_parts.h"

namespace heed {

bool names_file(const Settings& settings) {
  const auto files = settings.read<DataFiles>("data");
  if (files.file.empty() && !(files.valid.empty() && files.test.empty()))
    throw SettingsError(
        concat_text(files.valid.empty() ? "data.test" : "data.valid", " needs data.file, the training data"));
  return !files.file.empty();
}

std::vector<ExampleTable> pair_examples() {
  return {{"", {{"source", "A text"}, {"target", "What belongs to it"}}}};
}

void check_used(const Setting& setting, Reads reads) {
  using enum Reads;
  using Names = std::vector<std::string_view>;
  static const std::vector<std::pair<Names, std::vector<Reads>>> uses = {
      {{"encoding", "on_bad_bytes", "max_bytes"}, {parts, pairs, table, rows, parallel, lines}},
      {{"format", "header", "delimiter", "on_bad_rows", "labels", "label_column", "text_columns",
        "first_column", "second_column", "source_column"},
       {parts, table, rows}},
      {{"missing", "target_column"}, {parts, table}},
      {{"weight_column"}, {parts}}};
  constexpr const char* what[] = {"the data is generated",
                                  "the data comes from files",
                                  "the data is lines of sources and targets",
                                  "one other file is read",
                                  "a table of inputs is read",
                                  "lines of sources and targets are read",
                                  "each line of the input is one text"};
  if (!setting.name.starts_with("data.")) return;
  const std::string_view name = std::string_view(setting.name).substr(5);
  const auto found =
      std::ranges::find_if(uses, [&](const auto& one) { return std::ranges::count(one.first, name) > 0; });
  if (found == uses.end() || std::ranges::count(found->second, reads) > 0) return;
  throw SettingsError(concat_text(setting.name, " changes nothing here, because ",
                                  what[static_cast<std::size_t>(reads)], ": leave it out",
                                  reads == made    ? ", or set data.file"
                                  : reads == lines ? ", or read a table of inputs"
                                                   : ""));
}

bool is_layout(const Setting& setting) {
  for (const char* const name : {"format", "header", "delimiter", "encoding", "labels"})
    if (setting.name == concat_text("data.", name)) return true;
  return setting.name.ends_with("_column") || setting.name.ends_with("_columns");
}

void apply_table_layout(const ExampleTable& table, std::size_t columns, Settings& settings) {
  const Settings before = settings;
  for (const Setting& one : before.declared())
    if (is_layout(one)) settings.set_json(one.name, one.initial, "defaults");
  if (settings.has("data.format")) settings.set("data.format", std::string(table.ending), "examples");
  for (const ExampleColumn& column : std::span(table.columns).first(columns)) {
    const std::string name = "data." + std::string(column.name), quoted = concat_text('"', column.name, '"');
    if (settings.has(name + "_column")) settings.set_json(name + "_column", quoted, "examples");
    if (settings.has(name + "_columns")) settings.set_json(name + "_columns", '[' + quoted + ']', "examples");
  }
}

BoundedTokenizer::BoundedTokenizer(Tokenizer tokenizer, const Settings& settings)
    : tokenizer_(std::move(tokenizer)) {
  const auto limits = settings.read<TextLimits>("data");
  max_tokens_ = static_cast<std::size_t>(limits.max_tokens);
  cut_ = limits.long_texts == TextLimits::LongTexts::cut;
  if (const std::string mark = settings.read<BeginMark>("tokenizer").begin; !mark.empty())
    begin_ = {tokenizer_.id_of(mark)};
  if (const std::string marks = settings.read<PairMarks>("tokenizer").between; !marks.empty())
    for (const std::string_view mark : split_at(marks, " ")) between_.push_back(tokenizer_.id_of(mark));
  prompt_ = settings.read<TextPrompt>("tokenizer").prompt;
}

Tokens BoundedTokenizer::marked(std::string_view text, std::size_t* second) const {
  const std::size_t tab = between_.empty() ? text.npos : text.find('\t');
  check(tab == text.npos || text.find('\t', tab + 1) == text.npos,
        "the text has several tabs; with tokenizer.between, one separates two texts");
  Tokens tokens = tokens_with_end(tokenizer_, concat_text(prompt_, text.substr(0, tab)));
  tokens.insert(tokens.begin(), begin_.begin(), begin_.end());
  if (second) *second = 0;
  if (tab != text.npos) {
    tokens.pop_back();
    tokens.insert(tokens.end(), between_.begin(), between_.end());
    if (second) *second = tokens.size();
    const Tokens rest = tokens_with_end(tokenizer_, text.substr(tab + 1));
    tokens.insert(tokens.end(), rest.begin(), rest.end());
  }
  return tokens;
}

Tokens BoundedTokenizer::bounded(Tokens tokens) {
  ++texts_;
  if (tokens.size() <= max_tokens_) return tokens;
  check(cut_, "the text has ", tokens.size(), " tokens, more than data.max_tokens = ", max_tokens_,
        "; set data.long_texts=cut to read the beginning of long texts, or raise this limit if the model "
        "can read more");
  ++cut_texts_;
  const std::int32_t end = tokens.back();
  tokens.resize(max_tokens_);
  tokens.back() = end;
  return tokens;
}

std::vector<Tokens> BoundedTokenizer::operator()(const TextList& texts, const TextPlaces& places) {
  std::vector<Tokens> all;
  all.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      all.push_back((*this)(texts[i]));
    } catch (Error& error) {
      error.add_context(places[i] + ": ");
      throw;
    }
  }
  return all;
}

std::string BoundedTokenizer::take_truncation_message() {
  const std::int64_t texts = texts_.exchange(0), cut = cut_texts_.exchange(0);
  if (cut == 0) return "";
  return concat_text(cut, " of ", texts, texts == 1 ? " text " : " texts ", cut == 1 ? "is" : "are",
                     " longer than data.max_tokens = ", max_tokens_, " and ", cut == 1 ? "was" : "were",
                     " cut");
}

Tokens tokens_with_end(const Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens = tokenizer.encode(text);
  tokens.push_back(tokenizer.id_of("</s>"));
  return tokens;
}

std::string PairTokenizer::spaced(std::string_view text) {
  std::string words;
  for (const std::string_view word : split_at_punctuation(text)) words += concat_text(' ', word);
  return words;
}

TokenPair PairTokenizer::operator()(std::string_view first, std::string_view second) {
  const std::vector<Word> of_first = words_of(first), of_second = words_of(second);
  return {matched(of_first, of_second, true), matched(of_second, of_first, !is_joint_)};
}

TextReader PairTokenizer::reader() const {
  return {&tokenizer(), [this](const std::string& texts, bool marks) {
            Tokens tokens = marks ? bounded_.begin() : Tokens();
            for (std::size_t begin = 0, end = 0; begin <= texts.size(); begin = end + 1) {
              end = std::min(texts.find('\t', begin), texts.size());
              for (const Word& word : words_of(texts.substr(begin, end - begin)))
                tokens.insert(tokens.end(), word.tokens.begin(), word.tokens.end());
              if (marks) tokens.push_back(tokenizer().id_of("</s>"));
            }
            return tokens;
          }};
}

std::vector<PairTokenizer::Word> PairTokenizer::words_of(std::string_view text) const {
  std::vector<Word> words;
  for (const std::string_view word : split_at_punctuation(text))
    words.push_back(
        {unicode::lower_case(word, unicode::FinalSigma::medial), tokenizer().encode(concat_text(' ', word))});
  return words;
}

namespace {

constexpr std::size_t longest_run = 3;

/// Calls visit(hash, begin, end) for each run of one to three tokens.
template <class Visit>
void for_each_run(const Tokens& tokens, const Visit& visit) {
  for (std::size_t begin = 0; begin < tokens.size(); ++begin) {
    std::uint64_t hash = 0;
    for (std::size_t end = begin; end < std::min(begin + longest_run, tokens.size()); ++end) {
      hash = (hash + static_cast<std::uint64_t>(tokens[end]) + 1) * 0x9e3779b97f4a7c15U;
      visit(hash, begin, end + 1);
    }
  }
}

Tokens matches_of_runs(const Tokens& word, const std::unordered_set<std::uint64_t>& there) {
  constexpr std::int32_t none_of_words = 4;
  Tokens matches(word.size(), 0);
  for_each_run(word, [&](std::uint64_t hash, std::size_t begin, std::size_t end) {
    const auto kind = none_of_words + static_cast<std::int32_t>(end - begin);
    if (there.contains(hash))
      for (std::size_t at = begin; at < end; ++at) matches[at] = std::max(matches[at], kind);
  });
  return matches;
}

}  // namespace

MatchedTokens PairTokenizer::matched(const std::vector<Word>& words, const std::vector<Word>& others,
                                     bool begins) {
  std::unordered_set<std::string_view> there;
  for (const Word& other : others) there.insert(other.lower);
  const auto asks_for_runs = [&](const Word& word) {
    return word.tokens.size() > 1 && !there.contains(word.lower);
  };
  std::unordered_set<std::uint64_t> runs;
  if (std::ranges::any_of(words, asks_for_runs))
    for (const Word& other : others)
      for_each_run(other.tokens, [&](std::uint64_t hash, std::size_t, std::size_t) { runs.insert(hash); });
  MatchedTokens text;
  if (begins) text.tokens = bounded_.begin();
  text.matches.resize(text.tokens.size(), 0);
  for (const Word& word : words) {
    text.tokens.insert(text.tokens.end(), word.tokens.begin(), word.tokens.end());
    const Tokens of_word = asks_for_runs(word) ? matches_of_runs(word.tokens, runs)
                                               : Tokens(word.tokens.size(),
                                                        there.contains(word.lower) ? kind_of_match(word) : 0);
    text.matches.insert(text.matches.end(), of_word.begin(), of_word.end());
  }
  text.tokens.push_back(tokenizer().id_of("</s>"));
  text.tokens = bounded_.bounded(std::move(text.tokens));
  text.matches.resize(text.tokens.size(), 0);
  text.matches.back() = 0;  // the end mark
  return text;
}

std::int32_t PairTokenizer::kind_of_match(const Word& word) const {
  constexpr std::int32_t others = 4 + 256;  // ids that marks and bytes may take before the first word
  if (word.tokens.size() != 1 || word.tokens[0] == tokenizer().find("<unk>")) return 4;
  const std::int32_t rank = word.tokens[0] - others;
  return rank < 32 ? 1 : rank < 256 ? 2 : rank < 2048 ? 3 : 4;
}

bool TextPieces::show(std::string_view piece) {
  shown_ += piece;
  return on_text_(piece);
}

void TextPieces::grow(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";
  while (text.ends_with(replacement)) text.remove_suffix(replacement.size());
  if (text.size() > shown_.size() && text.starts_with(shown_) && !show(text.substr(shown_.size())))
    throw Ended();
}

void TextPieces::finish(std::string_view text) {
  check(text.starts_with(shown_), "the tokenizer changes words when others follow them: the answer is \"",
        text, "\", but it was shown as \"", shown_, "\"");
  if (text.size() > shown_.size()) show(text.substr(shown_.size()));
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::vector<std::string> texts;
  for (const std::int32_t token : tokens)
    texts.push_back(tokenizer.decode({&token, 1}, /*keep_special=*/true));
  return texts;
}

Capture captured(const std::function<void(Context&)>& pass) {
  const NoGrad no_grad;
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  pass(context);
  return capture;
}

namespace {

/// Returns the axis of the samples: the second in Reformer's buckets and orders [rounds, B, H, N].
int batch_axis(const Capture::Entry& entry) {
  return entry.name == "buckets" || (entry.name == "order" && entry.value.rank() == 4) ? 1 : 0;
}

/// Returns one sample of a capture of `count` samples. Tensors with a single sample apply to all.
Capture take_sample(const Capture& capture, std::int64_t sample, std::int64_t count) {
  Capture one;
  for (const Capture::Entry& entry : capture.entries) {
    const int axis = batch_axis(entry);
    const std::int64_t samples = entry.value.rank() > axis ? entry.value.size(axis) : 0;
    if (samples == count)
      one.entries.push_back({entry.layer, entry.name, slice(entry.value, axis, sample, sample + 1)});
    else if (samples == 1)
      one.entries.push_back(entry);
  }
  return one;
}

}  // namespace

void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer) {
  const Tensor ids = pad_tokens(rows).ids;
  const auto count = static_cast<std::int64_t>(rows.size());
  for (std::int64_t row = 0; row < count; ++row) {
    const std::string name = count == 1 ? example : example + (row == 0 ? "-first" : "-second");
    std::vector<std::string> texts = token_texts(tokenizer, rows[static_cast<std::size_t>(row)]);
    texts.resize(static_cast<std::size_t>(ids.size(1)), "<pad>");
    file.add_tokens(name, "tokens", slice(ids, 0, row, row + 1), texts);
    file.add(name, count == 1 ? capture : take_sample(capture, row, count));
  }
}

void add_text(Digest& digest, std::string_view text) {
  digest.add(std::to_string(text.size()) + ":");
  digest.add(text);
}

TextSource source_of(std::vector<const TextList*> lists) {
  return [lists = std::move(lists)](const std::function<void(std::string_view)>& take) {
    for (const TextList* list : lists)
      for (const std::string_view text : *list) take(text);
  };
}

namespace {

/// Returns a digest of texts, in their order.
std::string digest_of_texts(const std::vector<const TextList*>& lists) {
  Digest digest;
  for (const TextList* list : lists) {
    for (const std::string_view text : *list) add_text(digest, text);
    digest.add(";");
  }
  return digest.hex();
}

}  // namespace

std::string compute_digest(const LabelledText& text) {
  TextList weights;
  for (const float weight : text.weights) weights.push_back(number_text(weight));
  std::vector<const TextList*> lists = {&text.texts};
  if (!text.seconds.empty()) lists.push_back(&text.seconds);
  lists.push_back(&text.labels);
  if (!weights.empty()) lists.push_back(&weights);
  return digest_of_texts(lists);
}

std::string compute_digest(const ParallelText& pairs) {
  return digest_of_texts({&pairs.source, &pairs.target});
}

TextSource all_texts(const LabelledText& text) {
  return source_of({&text.texts, &text.seconds});
}

TextSource all_texts(const ParallelText& pairs) {
  return source_of({&pairs.source, &pairs.target});
}

BatchOptions training_batches(const Settings& settings) {
  BatchOptions options;
  options.max_tokens = settings.read<TrainingSettings>("training").batch_tokens;
  options.max_length = settings.read<TextLimits>("data").max_tokens;
  options.seed = static_cast<std::uint64_t>(settings.read<RuntimeSettings>("").seed);
  return options;
}

BatchOptions evaluation_batches(std::int64_t batch_size) {
  BatchOptions options;
  options.shuffle = false;
  options.max_tokens = 0;
  options.batch_size = batch_size;
  return options;
}

std::vector<std::int32_t> lengths_of(const std::vector<Tokens>& sequences, std::int32_t more) {
  std::vector<std::int32_t> lengths;
  lengths.reserve(sequences.size());
  for (const Tokens& tokens : sequences) lengths.push_back(static_cast<std::int32_t>(tokens.size()) + more);
  return lengths;
}

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

std::vector<std::string> short_lines(const TextList& texts, std::size_t count) {
  constexpr std::size_t looked_at = 500, best_bytes = 60;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < std::min(texts.size(), looked_at); ++i)
    if (!is_blank(texts[i])) order.push_back(i);
  const auto distance = [&](std::size_t i) {
    return texts[i].size() > best_bytes ? texts[i].size() - best_bytes : best_bytes - texts[i].size();
  };
  std::ranges::stable_sort(order, {}, distance);
  order.resize(std::min(order.size(), count));
  std::ranges::sort(order);
  std::vector<std::string> lines;
  for (const std::size_t i : order) lines.emplace_back(texts[i]);
  return lines;
}

namespace {

/// Returns the files of a part: a table, a source and a target, or none. `prefix` of its settings:
/// "data.valid"; "": the training part.
std::vector<std::string> files_of(const PairFiles::Part& part, const std::string& prefix) {
  const std::string source = (prefix.empty() ? "data." : prefix + "_") + "source",
                    target = (prefix.empty() ? "data." : prefix + "_") + "target";
  if (part.source.empty() != part.target.empty())
    throw SettingsError(source + " and " + target + " go together, but only one is given");
  if (!part.table.empty() && !part.source.empty())
    throw SettingsError("give " + (prefix.empty() ? "data.file" : prefix) + ", a table of pairs, or " +
                        source + " and " + target + ", not both");
  if (!part.table.empty()) return {part.table};
  if (!part.source.empty()) return {part.source, part.target};
  return {};
}

/// Returns the text of a cell as one line.
std::string_view as_line(std::string& cell) {
  std::ranges::replace(cell, '\n', ' ');
  return cell;
}

/// Returns both columns of a table of pairs, in order.
TableOptions table_of_pairs(const PairFiles& files, const std::string& path) {
  TableOptions options;
  options.format = files.format.empty() ? table_format(path) : files.format;
  if (options.format.empty())
    throw SettingsError(path +
                        ": its name does not say how it is laid out; give data.format=csv, tsv or jsonl");
  const bool named = options.format == "jsonl";
  const auto column = [&](const std::string& given, const char* number, const char* name) {
    options.usual_names.emplace_back(given.empty() ? name : "");
    return given.empty() ? std::string(named ? name : number) : given;
  };
  options.columns = {column(files.source_column, "1", "source"), column(files.target_column, "2", "target")};
  options.header = named ? Header::detected : files.header;
  options.delimiter = files.delimiter;
  options.text = files.text;
  return options;
}

ParallelText read_pair_table(const PairFiles& files, const std::string& path, ReadReport& report) {
  ParallelText pairs;
  read_table_rows(
      path, table_of_pairs(files, path),
      [&](const TableCells& row) {
        pairs.source.push_back(as_line(row.cells[0]));
        pairs.target.push_back(as_line(row.cells[1]));
      },
      &report);
  return pairs;
}

/// Draws the held-out share of the pairs as split_text() does.
PairParts split_pairs(const ParallelText& pairs, double valid_fraction, std::uint64_t seed) {
  TextParts parts =
      split_text({pairs.source, pairs.target, {}}, {.valid_fraction = valid_fraction, .seed = seed});
  const auto as_pairs = [](LabelledText& text) {
    return ParallelText{std::move(text.texts), std::move(text.labels)};
  };
  return {as_pairs(parts.train), as_pairs(parts.valid), {}};
}

}  // namespace

bool names_pairs(const Settings& settings) {
  const auto files = settings.read<PairFiles>("data");
  const bool train = !files_of(files.train, "").empty();
  const auto check_part = [&](const PairFiles::Part& part, const char* prefix, const char* what) {
    if (!files_of(part, prefix).empty() && !train)
      throw SettingsError(concat_text(
          what, " files need training pairs too: give data.source and data.target, or data.file"));
  };
  check_part(files.valid, "data.valid", "validation");
  check_part(files.test, "data.test", "test");
  return train;
}

PairParts read_pair_parts(const Settings& settings, ReadReport& report) {
  const auto files = settings.read<PairFiles>("data");
  const auto read = [&](const PairFiles::Part& part, const char* prefix) {
    const std::vector<std::string> paths = files_of(part, prefix);
    return paths.empty() ? ParallelText() : read_pairs(settings, paths, report);
  };
  PairParts parts{read(files.train, ""), read(files.valid, "data.valid"), read(files.test, "data.test")};
  if (parts.valid.size() > 0 || files.valid_fraction == 0) return parts;
  PairParts drawn = split_pairs(parts.train, files.valid_fraction, files.split_seed);
  drawn.test = std::move(parts.test);
  return drawn;
}

ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report) {
  const auto options = settings.read<PairFiles>("data");
  if (files.size() == 1) return read_pair_table(options, files[0], report);
  if (files.size() != 2)
    throw SettingsError("data.source and data.target go together, but only one is given");
  return read_parallel_text(files[0], files[1], options.text, &report);
}

void read_sources(const Settings& settings, const std::string& file, const TakeText& take,
                  ReadReport& report) {
  TableOptions options = table_of_pairs(settings.read<PairFiles>("data"), file);
  options.columns.pop_back();
  options.usual_names.pop_back();
  bool is_first = true;
  const auto take_row = [&](const TableCells& row) {
    if (std::exchange(is_first, false)) report.remarks.push_back(remark_on_columns(row));
    take(std::string(as_line(row.cells[0])), row);
  };
  read_table_rows(file, options, take_row, &report);
}

PairParts NumberSettings::made_by_rule() const {
  const NumberSets sets = draw_numbers(1, count, held_out);
  return {number_words(sets.train), number_words(sets.held_out), {}};
}

}  // namespace heed
