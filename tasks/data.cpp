#include "heed/tasks/data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/base/digest.h"
#include "heed/data/labelled_text.h"
#include "heed/data/table.h"
#include "heed/tasks/recipe.h"

namespace heed {

bool names_file(const Settings& settings) {
  return !settings.get<std::string>("data.file").empty();
}

void declare_long_texts(Settings& settings) {
  settings.integer("data.max_tokens", 256, 1, 1 << 24, "The most tokens of a text, its end mark included");
  settings.choice("data.long_texts", "error", {"error", "cut"},
                  "What becomes of a longer one: an error, or its beginning alone is read, and said");
  settings.text("tokenizer.begin", "", "A mark before every text, such as [CLS]; empty: none");
}

BoundedTokenizer::BoundedTokenizer(Tokenizer tokenizer, const Settings& settings)
    : tokenizer_(std::move(tokenizer)),
      max_tokens_(static_cast<std::size_t>(settings.get<std::int64_t>("data.max_tokens"))),
      cut_(settings.get<std::string>("data.long_texts") == "cut") {
  if (const auto mark = settings.get<std::string>("tokenizer.begin"); !mark.empty())
    begin_ = {tokenizer_.id_of(mark)};
}

Tokens BoundedTokenizer::operator()(std::string_view text) {
  Tokens tokens = tokens_with_end(tokenizer_, text);
  tokens.insert(tokens.begin(), begin_.begin(), begin_.end());
  return bounded(std::move(tokens));
}

Tokens BoundedTokenizer::bounded(Tokens tokens) {
  if (tokens.size() <= max_tokens_) return tokens;
  check(cut_, "the text has ", tokens.size(), " tokens, more than data.max_tokens = ", max_tokens_,
        "; raise that, or set data.long_texts=cut to read the beginning of such texts");
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

std::string BoundedTokenizer::take_cut_message() {
  if (cut_texts_ == 0) return "";
  const std::string text = concat_text(cut_texts_, cut_texts_ == 1 ? " text is" : " texts are",
                                       " longer than data.max_tokens = ", max_tokens_, " and ",
                                       cut_texts_ == 1 ? "was" : "were", " cut");
  cut_texts_ = 0;
  return text;
}

Tokens tokens_with_end(const Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens = tokenizer.encode(text);
  tokens.push_back(tokenizer.id_of("</s>"));
  return tokens;
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

void add_text(Digest& digest, std::string_view text) {
  digest.add(std::to_string(text.size()) + ":");
  digest.add(text);
}

std::string digest_of_texts(std::initializer_list<const TextList*> lists) {
  Digest digest;
  for (const TextList* list : lists) {
    for (const std::string_view text : *list) add_text(digest, text);
    digest.add(";");
  }
  return digest.hex();
}

TextSource source_of(std::vector<const TextList*> lists) {
  return [lists = std::move(lists)](const std::function<void(std::string_view)>& take) {
    for (const TextList* list : lists)
      for (const std::string_view text : *list) take(text);
  };
}

std::string digest_of(const LabelledText& text) {
  return text.seconds.empty() ? digest_of_texts({&text.texts, &text.labels})
                              : digest_of_texts({&text.texts, &text.seconds, &text.labels});
}

std::string digest_of(const ParallelText& pairs) {
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
  options.max_tokens = settings.get<std::int64_t>("training.batch_tokens");
  options.max_length = settings.get<std::int64_t>("data.max_tokens");
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("seed"));
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

std::string setting_of(const std::string& part, const std::string& name) {
  return "data." + (part == "train" ? "" : part + "_") + name;
}

/// "data.valid_source" is "--valid-source".
std::string flag_of(std::string setting) {
  setting = "--" + setting.substr(setting.find('.') + 1);
  std::replace(setting.begin(), setting.end(), '_', '-');
  return setting == "--file" ? "--data" : setting;
}

/// The files of a part ("train", "valid", "test"): a table, a source and a target, or none.
std::vector<std::string> files_of(const Settings& settings, const std::string& part) {
  const std::string table = "data." + (part == "train" ? "file" : part);
  const std::string source = setting_of(part, "source"), target = setting_of(part, "target");
  const auto value = [&](const std::string& name) { return settings.get<std::string>(name); };
  if (value(source).empty() != value(target).empty())
    throw SettingsError(flag_of(source) + " and " + flag_of(target) + " go together, but only one is given");
  if (!value(table).empty() && !value(source).empty())
    throw SettingsError("give " + flag_of(table) + ", a table of pairs, or " + flag_of(source) + " and " +
                        flag_of(target) + ", not both");
  if (!value(table).empty()) return {value(table)};
  if (!value(source).empty()) return {value(source), value(target)};
  return {};
}

/// The text of a cell as one line.
std::string_view as_line(std::string& cell) {
  std::ranges::replace(cell, '\n', ' ');
  return cell;
}

ParallelText read_pair_table(const Settings& settings, const std::string& path, ReadReport& report) {
  TableOptions options;
  options.format = settings.get<std::string>("data.format");
  if (options.format.empty()) options.format = table_format(path);
  if (options.format.empty())
    throw SettingsError(path + ": its name does not say how it is laid out; give --format csv, tsv or jsonl");
  const bool named = options.format == "jsonl";
  const auto column = [&](const char* setting, const char* number, const char* name) {
    const auto given = settings.get<std::string>(setting);
    return given.empty() ? std::string(named ? name : number) : given;
  };
  options.columns = {column("data.source_column", "1", "source"),
                     column("data.target_column", "2", "target")};
  options.header = !named && settings.get<bool>("data.header");
  options.text = text_options(settings);
  ParallelText pairs;
  read_table_rows(
      path, options,
      [&](const TableCells& row) {
        pairs.source.push_back(as_line(row.cells[0]));
        pairs.target.push_back(as_line(row.cells[1]));
      },
      &report);
  return pairs;
}

}  // namespace

void declare_pairs(Settings& settings, double valid_fraction) {
  settings.text("data.source", "", "Texts to learn from, one a line; plain or gzip");
  settings.text("data.target", "", "What is to be written for them, line by line");
  settings.text("data.valid_source", "", "Texts to measure progress on");
  settings.text("data.valid_target", "", "What is to be written for them");
  settings.text("data.test_source", "", "Texts to measure with at the end");
  settings.text("data.test_target", "", "What is to be written for them");
  settings.text("data.file", "", "In place of data.source and data.target: a table with both, plain or gzip");
  settings.text("data.valid", "", "A table to measure progress on");
  settings.text("data.test", "", "A table to measure with at the end");
  settings.number("data.valid_fraction", valid_fraction, 0, 0.999,
                  "Share of the pairs to measure progress on, where no file is named for that");
  settings.integer("data.split_seed", 1, 0, std::numeric_limits<std::int64_t>::max(),
                   "Seed of which pairs these are");
  std::vector<std::string> formats = table_formats();
  formats.insert(formats.begin(), "");
  settings.choice("data.format", "", formats, "How tables are laid out; empty: by the name of the file");
  settings.flag("data.header", false, "Whether the first row of a table holds the names of its columns");
  settings.text(
      "data.source_column", "",
      "Column of the sources: a number from 1, or a name; empty: 1, or \"source\" in lines of JSON");
  settings.text(
      "data.target_column", "",
      "Column of the targets: a number from 1, or a name; empty: 2, or \"target\" in lines of JSON");
  declare_text(settings);
}

bool names_pairs(const Settings& settings) {
  const bool train = !files_of(settings, "train").empty();
  for (const std::string part : {"valid", "test"})
    if (!files_of(settings, part).empty() && !train)
      throw SettingsError(
          (part == "valid" ? "validation" : part) +
          std::string(" files need pairs to learn from: --source and --target too, or --data"));
  return train;
}

PairParts read_pair_parts(const Settings& settings, ReadReport& report) {
  const auto read = [&](const std::string& part) {
    const std::vector<std::string> files = files_of(settings, part);
    return files.empty() ? ParallelText() : read_pairs(settings, files, report);
  };
  PairParts parts{read("train"), read("valid"), read("test")};
  const auto fraction = settings.get<double>("data.valid_fraction");
  if (parts.valid.size() > 0 || fraction == 0) return parts;
  PairParts drawn = split_pairs(parts.train, fraction,
                                static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed")));
  drawn.test = std::move(parts.test);
  return drawn;
}

ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report) {
  if (files.size() == 1) return read_pair_table(settings, files[0], report);
  if (files.size() != 2) throw SettingsError("--source and --target go together, but only one is given");
  return read_parallel_text(files[0], files[1], text_options(settings), &report);
}

PairParts split_pairs(const ParallelText& pairs, double valid_fraction, std::uint64_t seed) {
  SplitOptions options;
  options.valid_fraction = valid_fraction;
  options.seed = seed;
  TextParts parts = split_text({pairs.source, pairs.target, {}}, options);
  const auto as_pairs = [](LabelledText& text) {
    return ParallelText{std::move(text.texts), std::move(text.labels)};
  };
  return {as_pairs(parts.train), as_pairs(parts.valid), {}};
}

}  // namespace heed
