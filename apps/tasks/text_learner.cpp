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

TokenStream TextLearner::stream_of(const LargeText& documents, std::string_view what) {
  TokenStream stream(tokenizer_->vocabulary_size(), memory_bytes());
  const auto unknown_token = tokenizer_->find("<unk>");
  std::int64_t unknown = 0, all = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const TextPiece piece = documents[i];
    check_known(*tokenizer_, piece.text, what);
    if (piece.begins) stream.add(Tokens{tokenizer_->id_of(text_mark)});
    const Tokens tokens = tokenizer_->encode(piece.text);
    if (unknown_token) unknown += std::ranges::count(tokens, *unknown_token);
    all += static_cast<std::int64_t>(tokens.size());
    stream.add(tokens);
  }
  if (unknown > 0)
    remark(concat_text(what, ": ", unknown, " of ", all,
                       " tokens are <unk>; losses, those per character too, count no word behind them"));
  return stream;
}

/// The share of the characters at the end becomes what is measured with.
DataParts<LargeText> TextLearner::read_parts(ReadReport& report) {
  DataParts<LargeText> parts;
  const auto data = settings_.read<TextData>("data");
  if (!names_file(settings_)) {
    // The text does not follow the seed: runs with other seeds are compared on the same sentences.
    const AgreementText text = agreement_text(1, data.sentences, data.held_out_sentences);
    parts.train.add(joined_lines(text.train), true);
    parts.valid.add(joined_lines(text.held_out), true);
    return parts;
  }
  parts.train = read({&data.file, 1}, report);
  if (!data.valid.empty()) {
    parts.valid = read({&data.valid, 1}, report);
    return parts;
  }
  const double share = 1 - data.valid_fraction;
  const auto characters = static_cast<std::int64_t>(static_cast<double>(parts.train.characters()) * share);
  std::tie(parts.train, parts.valid) = split_large_text(parts.train, characters, memory_bytes());
  return parts;
}

LargeText TextLearner::read(std::span<const std::string> files, ReadReport& report) {
  LargeText text(memory_bytes());
  read_documents(files.front(), text, settings_.read<TextData>("data"), report);
  return text;
}

/// Documents that are one piece each have the digest of their texts.
std::string TextLearner::digest(const LargeText& text) const {
  Digest digest;
  for (std::size_t i = 0; i < text.size(); ++i) add_text(digest, text[i].text);
  digest.add(";");
  return digest.hex();
}

void TextLearner::learn_vocabulary() {
  std::vector<std::string> marks = {text_mark};
  if (is_masked(settings_)) marks.push_back(mask_token);
  std::size_t pieces = 0;
  for (std::int64_t left = settings_.read<TextTokenizer>("tokenizer").training_bytes;
       pieces < parts_.train.size() && left > 0; ++pieces)
    left -= parts_.train.bytes(pieces);
  const TextSource texts = [&](const std::function<void(std::string_view)>& take) {
    for (std::size_t i = 0; i < pieces; ++i) take(parts_.train[i].text);
  };
  choose_token_kind(texts);
  if (settings_.read<VocabularySettings>("tokenizer").kind == "characters") {
    const std::string characters = characters_of({&parts_.train, &parts_.valid});
    tokenizer_ = learn_tokenizer(settings_, {&characters, 1}, marks);
    return;
  }
  if (pieces < parts_.train.size())
    remark(concat_text("the tokenizer is learned from the first ", pieces, " of ", parts_.train.size(),
                       " pieces of the text (tokenizer.training_bytes)"));
  tokenizer_ = learn_tokenizer(settings_, texts, marks, {.keep_line_breaks = true});
}

std::map<std::string, std::string> TextLearner::files() const {
  return {{"tokenizer.json", tokenizer_->to_json()}};
}

void TextLearner::open_files(const std::function<std::string(std::string_view)>& read) {
  tokenizer_ = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
}

void TextLearner::prepare_training() {
  remark(concat_text(parts_.train.characters(), " characters to learn from, ", parts_.valid.characters(),
                     " to measure with; vocabulary ", tokenizer_->vocabulary_size()));
  LargeText first;
  const std::int64_t most = settings_.read<TextEvaluation>("evaluation").characters;
  const bool all = most == 0 || parts_.valid.characters() <= most;
  if (!all) {
    first = std::move(split_large_text(parts_.valid, most, memory_bytes()).first);
    remark(concat_text("progress is measured on the first ", most,
                       " of these characters (evaluation.characters)"));
  }
  const LargeText& measured = all ? parts_.valid : first;
  valid_characters_ = measured.characters();
  train_ = stream_of(parts_.train, "the text to learn from");
  valid_ = stream_of(measured, "the text to measure with");
  batches_.plan({train_.size(), training_windows(settings_)});
}

std::vector<Prediction> TextLearner::predict(std::span<const std::string> lines,
                                             const PredictOptions& options) {
  std::vector<Prediction> predictions(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    try {
      PredictOptions its_options = options;
      its_options.first_line += static_cast<std::int64_t>(i);
      predictions[i] = answer(lines[i], its_options);
    } catch (const DeviceLost&) {
      throw;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      predictions[i].error = error.what();
    }
  }
  return predictions;
}

std::vector<std::string> TextLearner::example_lines(std::size_t count) const {
  const LargeText& text = shown_data();
  std::vector<std::string> lines;
  for (std::size_t piece = 0; piece < text.size() && lines.size() < 500; ++piece) {
    const std::string document = text[piece].text;
    for (std::size_t begin = 0; begin < document.size() && lines.size() < 500;) {
      const std::size_t end = std::min(document.find('\n', begin), document.size());
      lines.push_back(document.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  lines = short_lines(lines, count);
  const auto most = static_cast<std::size_t>(settings_.get<std::int64_t>("model.max_length")) - 1;
  for (std::string& line : lines) {
    Tokens tokens = tokenizer_->encode(line);
    if (tokens.size() > most) {  // a model reads no more
      tokens.resize(most);
      line = tokenizer_->decode(tokens);
    }
    if (!is_masked(settings_)) continue;
    const std::size_t space = line.find(' ', line.size() / 2), word = space == line.npos ? 0 : space + 1;
    line.replace(word, std::min(line.find(' ', word), line.size()) - word, mask_token);
  }
  return lines;
}

}  // namespace heed
