#include "heed/apps/tasks/language_model.h"

#include <algorithm>
#include <tuple>

#include "heed/apps/tasks/recipe.h"
#include "heed/base/digest.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/data/table.h"
#include "heed/data/texts_by_rule.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

/// The text of a file, or of all files in a folder and those below it, by name.
void read_documents(const fs::path& path, LargeText& text, const TextData& data, ReadReport& report) {
  const auto read = [&](const fs::path& file) {
    if (data.format == TextData::Format::text) return read_large_text(file, text, data.text, &report);
    const TableOptions options{.format = "jsonl", .columns = {"text"}, .text = data.text};
    read_table_rows(
        file, options, [&](const TableCells& row) { text.add(row.cells[0], true); }, &report);
  };
  if (!fs::is_directory(path)) return read(path);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    std::error_code unreadable;
    const bool is_folder = fs::is_directory(entry.symlink_status());
    check(is_folder || fs::is_regular_file(entry.path(), unreadable), entry.path().string(),
          ": expected a text or a folder of texts, and this is neither (a link to a folder is not followed)");
    if (!is_folder) files.push_back(entry.path());
  }
  check(!files.empty(), path.string(), ": the folder holds no files");
  std::sort(files.begin(), files.end());
  std::ranges::for_each(files, read);
}

std::string joined_lines(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

/// A text in which every character of the texts stands, each once: all that a tokenizer of characters learns
/// from.
std::string characters_of(std::initializer_list<const LargeText*> texts) {
  std::string characters;
  std::vector<bool> seen(0x110000);
  for (const LargeText* text : texts) {
    for (std::size_t i = 0; i < text->size(); ++i) {
      const std::string piece = (*text)[i].text;
      for (std::size_t at = 0; at < piece.size();) {
        const unicode::CodePoint c = unicode::decode(piece, at);
        if (!seen[c.value]) characters.append(piece, at, static_cast<std::size_t>(c.length));
        seen[c.value] = true;
        at += static_cast<std::size_t>(c.length);
      }
    }
  }
  return characters;
}

constexpr const char* for_all = R"({
  "training": {"label_smoothing": 0.0,
    "optimizer": {"name": "adamw", "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1},
    "schedule": {"name": "cosine", "learning_rate": 0.002}}})";

constexpr const char* for_text = R"({
  "model": {"width": 192, "heads": 6, "feed_forward": 768, "decoder_layers": 4},
  "training": {"steps": 3000, "evaluate_every": 500, "save_every": 500, "schedule": {"warmup_steps": 200}}})";

/// Many small batches: the rules come late, and a short text gives few large ones.
constexpr const char* for_agreement = R"({
  "model": {"width": 96, "heads": 4, "feed_forward": 256, "decoder_layers": 2, "max_length": 128, "dropout": 0.0},
  "training": {"steps": 4000, "batch_tokens": 1024, "evaluate_every": 800, "save_every": 1000,
    "schedule": {"warmup_steps": 100, "learning_rate": 0.003}}})";

}  // namespace

Settings text_settings(bool own_data, std::span<const MetricKind> metrics) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("", TextObjective());
  settings.declare("data", TextData());
  settings.declare("tokenizer", VocabularySettings{.kind = "characters", .vocabulary = 2000});
  settings.declare("tokenizer", TextTokenizer());
  TransformerConfig model;
  model.norm = "pre";
  model.positions = "learned";
  model.activation = "gelu";
  model.tie_embeddings = "decoder";
  declare_model(settings, model, Stacks::decoder);
  declare_training(settings, metrics);
  settings.declare("training", MaskedTraining());
  settings.declare("prediction", MaskedPrediction());
  settings.declare("evaluation", TextEvaluation());
  settings.declare("generation", Generation());
  settings.change_defaults(for_all);
  settings.change_defaults(own_data ? for_text : for_agreement);
  return settings;
}

bool is_masked(const Settings& settings) {
  return settings.read<TextObjective>("").objective == TextObjective::Objective::masked;
}

WindowOptions training_windows(const Settings& settings) {
  WindowOptions options;
  options.length = settings.get<std::int64_t>("model.max_length");
  const auto tokens = settings.get<std::int64_t>("training.batch_tokens");
  if (tokens < options.length)
    throw SettingsError(concat_text("training.batch_tokens is ", tokens,
                                    ", but a single window (model.max_length) takes ", options.length));
  options.rows = tokens / options.length;
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("seed"));
  return options;
}

void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what) {
  std::vector<std::string> unknown = tokenizer.unknown_characters(text);
  for (std::string& character : unknown) character = "'" + character + "'";
  check(unknown.empty(), what, " has characters that the tokenizer does not know: ", listed(unknown),
        "; a model of characters reads those of its own text alone, one of BPE any");
}

TextStream::TextStream(const Settings& settings)
    : data_(settings.read<TextData>("data")), is_masked_(is_masked(settings)) {}

DataParts<LargeText> TextStream::read_parts(const Settings& settings, ReadReport& report) const {
  DataParts<LargeText> read_now;
  if (!names_file(settings)) {
    // The text does not follow the seed: runs with other seeds are compared on the same sentences.
    const AgreementText text = agreement_text(1, data_.sentences, data_.held_out_sentences);
    read_now.train.add(joined_lines(text.train), true);
    read_now.valid.add(joined_lines(text.held_out), true);
    return read_now;
  }
  read_now.train = read(data_.file, settings, report);
  if (!data_.valid.empty()) {
    read_now.valid = read(data_.valid, settings, report);
    return read_now;
  }
  const double share = 1 - data_.valid_fraction;
  const auto characters = static_cast<std::int64_t>(static_cast<double>(read_now.train.characters()) * share);
  std::tie(read_now.train, read_now.valid) = split_large_text(read_now.train, characters, data_.memory_bytes);
  return read_now;
}

LargeText TextStream::read(const std::string& file, const Settings& layout, ReadReport& report) const {
  LargeText text(data_.memory_bytes);
  read_documents(file, text, layout.read<TextData>("data"), report);
  return text;
}

/// Documents that are one piece each have the digest of their texts.
std::map<std::string, std::string> TextStream::digests() const {
  return digests_of(parts, [](const LargeText& text) {
    Digest digest;
    for (std::size_t i = 0; i < text.size(); ++i) add_text(digest, text[i].text);
    digest.add(";");
    return digest.hex();
  });
}

Tokenizer TextStream::learned_tokenizer(Settings& settings, Remarks& remarks) const {
  std::vector<std::string> marks = {text_mark};
  if (is_masked_) marks.push_back(mask_token);
  std::size_t pieces = 0;
  for (std::int64_t left = settings.read<TextTokenizer>("tokenizer").training_bytes;
       pieces < parts.train.size() && left > 0; ++pieces)
    left -= parts.train.bytes(pieces);
  const TextSource texts = [&](const std::function<void(std::string_view)>& take) {
    for (std::size_t i = 0; i < pieces; ++i) take(parts.train[i].text);
  };
  remarks.push_back(choose_token_kind(settings, texts));
  if (settings.read<VocabularySettings>("tokenizer").kind == "characters") {
    const std::string characters = characters_of({&parts.train, &parts.valid});
    return learn_tokenizer(settings, {&characters, 1}, marks);
  }
  if (pieces < parts.train.size())
    remarks.push_back(concat_text("the tokenizer is learned from the first ", pieces, " of ",
                                  parts.train.size(), " pieces of the text (tokenizer.training_bytes)"));
  return learn_tokenizer(settings, texts, marks, {.keep_line_breaks = true});
}

void TextStream::prepare(const Settings& settings, Remarks& remarks) {
  remarks.push_back(concat_text(parts.train.characters(), " characters to learn from, ",
                                parts.valid.characters(), " to measure with; vocabulary ",
                                vocabulary_size()));
  LargeText first;
  const std::int64_t most = settings.read<TextEvaluation>("evaluation").characters;
  const bool all = most == 0 || parts.valid.characters() <= most;
  if (!all) {
    first = std::move(split_large_text(parts.valid, most, data_.memory_bytes).first);
    remarks.push_back(concat_text("progress is measured on the first ", most,
                                  " of these characters (evaluation.characters)"));
  }
  const LargeText& measured = all ? parts.valid : first;
  valid_characters = measured.characters();
  train = stream_of(parts.train, "the text to learn from", remarks);
  valid = stream_of(measured, "the text to measure with", remarks);
  batches.plan({train.size(), training_windows(settings)});
}

TokenStream TextStream::stream_of(const LargeText& documents, std::string_view what, Remarks& remarks) const {
  TokenStream stream(tokenizer->vocabulary_size(), data_.memory_bytes);
  const auto unknown_token = tokenizer->find("<unk>");
  std::int64_t unknown = 0, all = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const TextPiece piece = documents[i];
    check_known(*tokenizer, piece.text, what);
    if (piece.begins) stream.add(Tokens{tokenizer->id_of(text_mark)});
    const Tokens tokens = tokenizer->encode(piece.text);
    if (unknown_token) unknown += std::ranges::count(tokens, *unknown_token);
    all += static_cast<std::int64_t>(tokens.size());
    stream.add(tokens);
  }
  if (unknown > 0)
    remarks.push_back(
        concat_text(what, ": ", unknown, " of ", all,
                    " tokens are <unk>; losses, those per character too, count no word behind them"));
  return stream;
}

std::vector<std::string> TextStream::lines(std::size_t count, std::size_t most) const {
  const LargeText& text = shown_part(parts);
  TextList all;
  for (std::size_t piece = 0; piece < text.size() && all.size() < 500; ++piece) {
    const std::string document = text[piece].text;
    for (std::size_t begin = 0; begin < document.size() && all.size() < 500;) {
      const std::size_t end = std::min(document.find('\n', begin), document.size());
      all.push_back(document.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::vector<std::string> lines = short_lines(all, count);
  for (std::string& line : lines) {
    Tokens tokens = tokenizer->encode(line);
    if (tokens.size() <= most) continue;
    tokens.resize(most);
    line = tokenizer->decode(tokens);
  }
  return lines;
}

}  // namespace heed
