// Classification of texts: an encoder whose output, pooled over the tokens, is mapped to the classes
// (models/classifier.h). Labelled texts come from files (data/labelled_text.h); without them it learns the
// values of short ListOps expressions, made by rule.
//
// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order
// of the model's outputs. Parts of the data: train, valid, test.

#include <algorithm>

#include "heed/apps/tasks/labelled.h"
#include "heed/data/idx.h"
#include "heed/data/texts_by_rule.h"
#include "heed/models/classifier.h"

namespace heed {
namespace {

constexpr MetricKind class_metrics[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true}};

// --- settings

std::vector<std::string> text_formats() {
  std::vector<std::string> formats = labelled_formats();
  formats.emplace_back("idx");
  return formats;
}

struct ClassifyData {
  LabelledFiles files = {
      .formats = text_formats(),
      .formats_help =
          "lines: label, space, text; csv; tsv; jsonl; folders: for each class a folder of "
          "documents, or a file with a text on each line; idx: images"};
  std::string labels = {};
  std::int64_t patch = 4;
  std::string label_column = {};
  std::vector<std::string> text_columns = {};
  SplitOptions split = {.valid_fraction = 0.1};
  TextLimits limits = {};
  std::int64_t expressions = 20000;
  ListOpsRule rule = {.max_depth = 4, .max_arguments = 5, .longer_than = 3, .shorter_than = 30};
};

void for_each_setting(auto&& visit, ClassifyData& data) {
  for_each_setting(visit, data.files);
  visit(data.labels, "labels",
        "Of idx: the labels of data.file; empty: \"labels\" and \"idx1\" in its name for "
        "\"images\" and \"idx3\"");
  visit(data.patch, "patch", 1, 4096, "Of idx: rows and columns of the patches that are an image's tokens");
  visit(data.label_column, "label_column",
        "Of tables: the label's number, from 1, or name; empty: \"label\", or the first where nothing is "
        "called so",
        {.kind = Setting::Kind::column});
  visit(data.text_columns, "text_columns",
        "Of tables: the columns of the text, joined by a space; empty: all others");
  for_each_setting(visit, data.split);
  for_each_setting(visit, data.limits);
  visit(data.expressions, "listops.count", 1, 1e8, "Without data: how many ListOps expressions");
  visit(data.rule.max_depth, "listops.max_depth", 1, 1000, "Of an expression");
  visit(data.rule.max_arguments, "listops.max_arguments", 2, 1000, "Of an operator");
  visit(data.rule.longer_than, "listops.longer_than", 0, 1e6, "Length of an expression: more than this");
  visit(data.rule.shorter_than, "listops.shorter_than", 1, 1e6, "Length of an expression: less than this");
}

/// A few thousand texts are soon learned by heart. What helps: whole words, those met once being <unk>;
/// embeddings that begin near 0, so that rare words stay there, and norms with an epsilon that leaves small
/// vectors small; heavy dropout of words; a local layer in place of positions; words and pairs beside the
/// encoder; averaged weights. One evaluation, at the end: the average there is better than what a few hundred
/// held-out texts like best on the way.
constexpr const char* for_texts = R"({
  "data": {"valid_fraction": 0.05},
  "tokenizer": {"kind": "auto", "vocabulary": 30000},
  "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1, "dropout": 0.5, "word_dropout": 0.4,
    "positions": "none", "local_width": 3, "word_pairs": 131072, "epsilon": 0.1, "embedding_deviation": 0.01},
  "training": {"steps": 1000, "batch_tokens": 1024, "evaluate_every": 1000, "save_every": 500, "ema_decay": 0.99,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.002}}})";

constexpr const char* for_listops = R"({
  "tokenizer": {"vocabulary": 290}, "model": {"width": 64, "feed_forward": 128, "dropout": 0.0, "norm": "pre"},
  "training": {"steps": 1500, "batch_tokens": 2048, "evaluate_every": 300, "save_every": 300, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}}})";

Settings classify_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", ClassifyData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 128, .feed_forward = 256, .encoder_layers = 2}, Stacks::encoder);
  declare_training(settings, class_metrics);
  declare_classes(settings);
  settings.change_defaults(own_data ? for_texts : for_listops);
  return settings;
}

// --- data

/// Whether the settings are for images: by the format, or by the name of the data where none is given.
bool reads_images(const Settings& settings) {
  const auto data = settings.read<LabelledFiles>("data");
  return data.format == "idx" || (data.format.empty() && is_idx_name(data.files.file));
}

/// An input is the tokens of a text, or the values of an image, which the model turns into patches.
class ClassifyLearner : public LabelledLearner<Tokens> {
 public:
  using LabelledLearner::LabelledLearner;

  void check_settings() const override {
    names_labelled_data(settings_);
    const std::int64_t patch = settings_.read<ClassifyData>("data").patch;
    if (reads_images(settings_))
      check_model<ImageClassifier>(image_config({patch, patch, {}}, 2), batch_tokens());
    else
      check_model<EncoderClassifier>(config(300, 2), batch_tokens());
  }

  void learn_vocabulary() override {
    if (reads_images(settings_)) {
      image_ = image_of_line(parts_.train.texts.front());
      classes_ = class_names(parts_.train);
    } else {
      LabelledLearner::learn_vocabulary();
    }
  }

  std::map<std::string, std::string> files() const override {
    if (tokenizer_) return LabelledLearner::files();
    return {{"image.txt", image_line(image_, 0) + "\n"}, {"classes.json", classes_to_json(classes_)}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    if (!reads_images(settings_)) return LabelledLearner::open_files(read);
    classes_ = classes_from_json(read("classes.json"));
    std::string line = read("image.txt");
    line.resize(std::min(line.size(), line.find('\n')));
    image_ = image_of_line(line);
  }

  void build(Device device) override {
    const auto classes = static_cast<std::int64_t>(classes_.size());
    if (tokenizer_)
      model_ = make_model<EncoderClassifier>(config(vocabulary_size(), classes), batch_tokens(), device);
    else
      model_ = make_model<ImageClassifier>(image_config(image_, classes), batch_tokens(), device);
  }

  Module& model() override { return *model_; }
  std::string unit() const override { return reads_images(settings_) ? "images" : "texts"; }

 protected:
  LabelledText read_file(const std::string& path, ReadReport& report) const override {
    const auto data = settings_.read<ClassifyData>("data");
    if (reads_images(settings_)) {
      if (!data.label_column.empty() || !data.text_columns.empty() || data.files.header != Header::detected ||
          !data.files.delimiter.empty())
        throw SettingsError(
            "data.label_column, data.text_columns, data.header and data.delimiter are for tables, not for "
            "images");
      return read_labelled_images(path, path == data.files.files.file ? data.labels : "", data.files.text);
    }
    return read_labelled_text(path, text_options(path), &report);
  }

  void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const override {
    if (reads_images(settings_)) throw SettingsError(file + ": the run reads images, not tables");
    read_texts_of_table(file, text_options(file), take, &report);
  }

  /// The texts do not follow the run's seed: runs with other seeds are compared on the same ones.
  LabelledText made_by_rule() const override {
    const auto data = settings_.read<ClassifyData>("data");
    return draw_listops(data.split.seed, data.expressions, data.rule);
  }

  Tokens input_of_line(const std::string& line) override {
    return tokenizer_ ? (*tokenizer_)(line) : pixels_of(line);
  }

  std::vector<Tokens> inputs_of(const LabelledText& text) override {
    if (tokenizer_) return (*tokenizer_)(text.texts, text.places);
    std::vector<Tokens> images;
    for (const std::string_view line : text.texts) images.push_back(pixels_of(line));
    return images;
  }

  /// As the encoder sees them.
  Lengths lengths(const std::vector<Tokens>& inputs) const override {
    if (tokenizer_) return {lengths_of(inputs), {}};
    const auto patches = static_cast<std::int32_t>(image_config(image_, 2).patches());
    return {std::vector<std::int32_t>(inputs.size(), patches), {}};
  }

  std::string description() const override {
    return tokenizer_ ? LabelledLearner::description()
                      : concat_text("images of ", image_.rows, " x ", image_.columns);
  }

  Tensor logits(const std::vector<Tokens>& inputs, Context& context) override {
    return model_->logits(pad_tokens(inputs, model_->device()), context);
  }

  ClassFigures figures(const ClassQuality& quality, const std::vector<ClassScores>&,
                       const LabelledText&) const override {
    return {metrics(std::vector<double>{quality.accuracy, quality.loss, quality.macro_f1})};
  }

  std::vector<Tokens> rows_of(const Tokens& input) const override {
    return tokenizer_ ? std::vector<Tokens>{input} : std::vector<Tokens>();
  }

 private:
  LabelledOptions text_options(const std::string& path) const {
    const auto data = settings_.read<ClassifyData>("data");
    if (!data.labels.empty())
      throw SettingsError(
          concat_text("data.labels (\"", data.labels,
                      "\") is for images, --format idx; the labels of texts stand beside them"));
    LabelledOptions options = labelled_options(
        settings_, path,
        "--format lines (a label, a space and a text on each line), --format csv, tsv or jsonl");
    options.label_column = data.label_column;
    options.text_columns = data.text_columns;
    return options;
  }

  ImageClassifierConfig image_config(const Images& image, std::int64_t classes) const {
    return {config(0, classes), image.rows, image.columns, trained().read<ClassifyData>("data").patch};
  }

  Tokens pixels_of(std::string_view line) const {
    const Images image = image_of_line(line);
    check(image.rows == image_.rows && image.columns == image_.columns, "an image of ", image.rows, " x ",
          image.columns, "; the model reads those of ", image_.rows, " x ", image_.columns);
    Tokens values;
    for (const char value : image.pixels[0]) values.push_back(static_cast<unsigned char>(value));
    return values;
  }

  Images image_;  // an example of their size, where the texts are images
  std::unique_ptr<EncoderClassifier> model_;
};

}  // namespace

const TaskKind& classify_task() {
  static const TaskKind kind = task_of<ClassifyLearner>(
      "classify", "Learns to tell classes of texts, measures it, and labels texts with it", Stacks::encoder,
      class_metrics, classify_settings, names_labelled_data,
      {{"", {{"text", "A text"}, {"label", "The name of its class", true}}}});
  return kind;
}

}  // namespace heed
