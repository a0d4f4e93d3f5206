#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/idx.h"
#include "heed/apps/data/text_features.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/recipe.h"

// The inputs of tasks with labels. Each reads files, makes items and batches of them, and makes the model that
// reads these. An item's texts must outlive it.

namespace heed {

/// Returns the sparse vectors make_features(item, count) of all items; empty for a model without sparse features.
template <class Item, class MakeFeatures>
SparseBatch sparse_features(const std::vector<Item>& items, const SequenceEncoder& model,
                            const MakeFeatures& make_features) {
  const std::int64_t count = model.config().sparse_features;
  if (count == 0) return {};
  std::vector<TextFeatures> features;
  for (const Item& item : items) features.push_back(make_features(item, count));
  return sparse_batch(features, model.device());
}

/// What inputs of texts share.
template <class ItemTokenizer>
class TokenizedInput {
 public:
  explicit TokenizedInput(const Settings& settings) : settings_(settings) {}

  LabelledText read(const std::string& path, const Settings& layout, ReadReport& report) const {
    return read_labelled_text(path, labelled_options(layout, path), &report);
  }
  void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const {
    read_texts_of_table(file, labelled_options(settings_, file), take, &report);
  }
  void open(const ReadFile& read) {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
  }
  /// The size of the vocabulary; a small one before there is any.
  std::int64_t vocabulary() const { return tokenizer_ ? tokenizer_->tokenizer().vocabulary_size() : 300; }
  /// Describes what a model reads.
  std::string description() const { return concat_text("vocabulary ", vocabulary()); }
  std::string remark_on(const LabelledText& /*text*/) const { return ""; }
  std::string take_truncation_message() { return tokenizer_ ? tokenizer_->take_truncation_message() : ""; }

 protected:
  const Settings& settings_;
  std::optional<ItemTokenizer> tokenizer_;
};

/// A text.
class SingleTextInput : public TokenizedInput<BoundedTokenizer> {
 public:
  struct Item {
    Tokens tokens;
    std::string_view text;
  };
  using Model = EncoderClassifier;
  static constexpr const char* unit = "texts";
  /// A few short texts overfit within a thousand steps, which are too few to read many texts even once.
  static constexpr EpochLimit epoch_limit = {40, 300, 10'000};
  static constexpr bool fits_batches = true;  ///< to the number of classes

  using TokenizedInput::TokenizedInput;
  NamedFiles learned_files(const LabelledText& train, const auto& learn_tokenizer) const {
    return learn_tokenizer(all_texts(train));
  }
  Item item(std::string_view line) { return {(*tokenizer_)(line), line}; }
  Item item(const LabelledText& text, std::size_t index) { return item(text.texts[index]); }

  std::unique_ptr<Module> make_model(const TransformerConfig& config, const Settings& /*trained*/,
                                     std::int64_t batch_tokens) const {
    return model_of<Model>(config, batch_tokens);
  }
  Lengths lengths(const std::vector<Item>& items, const Model& /*model*/) const {
    Lengths lengths;
    for (const Item& item : items) lengths[0].push_back(static_cast<std::int32_t>(item.tokens.size()));
    return lengths;
  }
  ClassLogits logits(Model& model, const std::vector<Item>& items, Context& context) const {
    const auto features = [](const Item& item, std::int64_t count) {
      return text_features(item.text, count);
    };
    return model.part_logits(pad_tokens(tokens(items), model.device()), context,
                             sparse_features(items, model, features));
  }
  void show(CaptureFile& file, const std::string& name, const Capture& capture, const Item& item) const {
    add_pass(file, name, capture, {item.tokens}, tokenizer_->tokenizer());
  }

 private:
  static std::vector<Tokens> tokens(const std::vector<Item>& items) {
    std::vector<Tokens> tokens;
    for (const Item& item : items) tokens.push_back(item.tokens);
    return tokens;
  }
};

struct PairModel {
  enum class Kind { joint, towers } kind = Kind::joint;
};
void for_each_setting(auto&& visit, PairModel& model) {
  visit(model.kind, "kind", {"joint", "towers"},
        "joint: the encoder reads both texts at once; towers: one encoder reads each text by itself");
}

/// A pair of texts, read jointly or in two towers.
class TextPairInput : public TokenizedInput<PairTokenizer> {
 public:
  struct Item {
    TokenPair tokens;
    std::string_view first, second;
  };
  using Model = PairMatcher;
  static constexpr const char* unit = "pairs";
  /// Many pairs take more than the default steps.
  static constexpr EpochLimit epoch_limit = {1000, 1000, 10'000};
  static constexpr bool fits_batches = false;

  explicit TextPairInput(const Settings& settings)
      : TokenizedInput(settings),
        is_joint_(settings.read<PairModel>("model").kind == PairModel::Kind::joint) {}
  NamedFiles learned_files(const LabelledText& train, const auto& learn_tokenizer) const {
    return learn_tokenizer([all = all_texts(train)](const auto& take) {
      all([&](std::string_view text) { take(PairTokenizer::spaced(text)); });
    });
  }
  Item item(std::string_view line) {
    const std::size_t tab = line.find('\t');
    check(tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos,
          "expected two texts with one tab between them");
    return item(line.substr(0, tab), line.substr(tab + 1));
  }
  Item item(const LabelledText& text, std::size_t index) {
    return item(text.texts[index], text.seconds[index]);
  }
  std::string remark_on(const LabelledText& text) const {
    std::int64_t blank = 0;
    for (std::size_t i = 0; i < text.size(); ++i)
      blank += is_blank(text.texts[i]) || is_blank(text.seconds[i]) ? 1 : 0;
    return blank > 0 ? concat_text(blank, " pairs have a blank text") : "";
  }

  std::unique_ptr<Module> make_model(TransformerConfig config, const Settings& /*trained*/,
                                     std::int64_t batch_tokens) const {
    if (is_joint_) config.max_length *= 2;
    return model_of<Model>(config, batch_tokens, is_joint_);
  }
  Lengths lengths(const std::vector<Item>& items, const Model& /*model*/) const {
    Lengths lengths;
    for (const Item& item : items) {
      lengths[0].push_back(static_cast<std::int32_t>(item.tokens.first.tokens.size()));
      lengths[1].push_back(static_cast<std::int32_t>(item.tokens.second.tokens.size()));
    }
    return lengths;
  }
  ClassLogits logits(Model& model, const std::vector<Item>& items, Context& context) const {
    const auto features = [](const Item& pair, std::int64_t count) {
      return pair_features(pair.first, pair.second, count);
    };
    return model.part_logits(model.batch(tokens(items)), context, sparse_features(items, model, features));
  }
  void show(CaptureFile& file, const std::string& name, const Capture& capture, const Item& item) const {
    std::vector<Tokens> rows = {item.tokens.first.tokens, item.tokens.second.tokens};
    if (is_joint_) {
      rows[0].insert(rows[0].end(), rows[1].begin(), rows[1].end());
      rows.pop_back();
    }
    add_pass(file, name, capture, rows, tokenizer_->tokenizer());
  }

 private:
  Item item(std::string_view first, std::string_view second) {
    return {(*tokenizer_)(first, second), first, second};
  }
  static std::vector<TokenPair> tokens(const std::vector<Item>& items) {
    std::vector<TokenPair> tokens;
    for (const Item& item : items) tokens.push_back(item.tokens);
    return tokens;
  }

  const bool is_joint_;
};

/// An image: a line of numbers (image_line() in apps/data/idx.h) or an entry of an idx file. The size that a
/// model reads is in "image.txt", as an example.
class ImageInput {
 public:
  using Item = Tokens;  ///< the values, which the model turns into patches
  using Model = EncoderClassifier;
  static constexpr const char* unit = "images";
  static constexpr EpochLimit epoch_limit = SingleTextInput::epoch_limit;
  static constexpr bool fits_batches = false;

  /// Whether data are images, according to the format or, if none is given, the name of the data.
  static bool reads(const LabelledData& data) {
    return data.format == "idx" || (data.format.empty() && is_idx_name(data.files.file));
  }

  explicit ImageInput(const Settings& settings) {
    size_.rows = size_.columns = settings.read<LabelledData>("data").patch;
  }
  LabelledText read(const std::string& path, const Settings& layout, ReadReport& /*report*/) const {
    const auto data = layout.read<LabelledData>("data");
    if (!data.label_column.empty() || !data.text_columns.empty() || !data.weight_column.empty() ||
        data.header != Header::detected || !data.delimiter.empty())
      throw SettingsError(
          "data.label_column, data.text_columns, data.weight_column, data.header and data.delimiter are for "
          "tables, not for images");
    return read_labelled_images(path, path == data.files.file ? data.labels : "", data.text);
  }
  void read_rows(const std::string& file, const TakeText& /*take*/, ReadReport& /*report*/) const {
    throw SettingsError(file + ": the run reads images, not tables");
  }
  NamedFiles learned_files(const LabelledText& train, const auto& /*learn_tokenizer*/) const {
    return {{"image.txt", image_line(parse_image_line(train.texts.front()), 0) + "\n"}};
  }
  void open(const ReadFile& read) {
    const std::string line = read("image.txt");
    size_ = parse_image_line(line.substr(0, line.find('\n')));
  }
  std::int64_t vocabulary() const { return 0; }
  std::string description() const { return concat_text("images of ", size_.rows, " x ", size_.columns); }
  std::string remark_on(const LabelledText& /*text*/) const { return ""; }
  std::string take_truncation_message() const { return ""; }
  Item item(std::string_view line) const {
    const Images image = parse_image_line(line);
    check(image.rows == size_.rows && image.columns == size_.columns, "an image of ", image.rows, " x ",
          image.columns, "; the model reads those of ", size_.rows, " x ", size_.columns);
    Tokens values;
    for (const char value : image.pixels[0]) values.push_back(static_cast<unsigned char>(value));
    return values;
  }
  Item item(const LabelledText& text, std::size_t index) const { return item(text.texts[index]); }

  std::unique_ptr<Module> make_model(const TransformerConfig& config, const Settings& trained,
                                     std::int64_t batch_tokens) const {
    const std::int64_t patch = trained.read<LabelledData>("data").patch;
    return model_of<ImageClassifier>(ImageClassifierConfig{config, size_.rows, size_.columns, patch},
                                     batch_tokens);
  }
  /// The encoder sees the patches of an image.
  Lengths lengths(const std::vector<Item>& items, const Model& model) const {
    return {std::vector(items.size(), static_cast<std::int32_t>(model.config().max_length)), {}};
  }
  ClassLogits logits(Model& model, const std::vector<Item>& items, Context& context) const {
    return model.part_logits(pad_tokens(items, model.device()), context);
  }
  void show(CaptureFile& file, const std::string& name, const Capture& capture, const Item& /*item*/) const {
    file.add(name, capture);
  }

 private:
  Images size_;  // an example of it
};

}  // namespace heed
