// Classification of texts or images: an encoder whose output, pooled over the tokens or patches, is mapped
// to the classes (models/classifier.h). Labelled examples come from files (apps/data/labelled_text.h);
// without them it learns the values of short ListOps expressions, made by rule.
//
// Files of a run beside the weights: classes.json, and tokenizer.json or, for images, image.txt. Parts of
// the data: train, valid, test.

#include "heed/apps/data/formats.h"
#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/class_heads.h"

namespace heed {
namespace {

constexpr MetricKind class_metrics[] = {
    {"accuracy", true}, {"loss", false}, {"macro_f1", true}, {"micro_f1", true}};

// --- settings

struct Expressions {
  std::int64_t count = 20000;
  ListOpsRule rule = {.max_depth = 4, .max_arguments = 5, .longer_than = 3, .shorter_than = 30};
};

void for_each_setting(auto&& visit, Expressions& data) {
  visit(data.count, "listops.count", 1, 1e8, "Without data: number of generated ListOps expressions");
  visit(data.rule.max_depth, "listops.max_depth", 1, 1000, "Largest depth of an expression");
  visit(data.rule.max_arguments, "listops.max_arguments", 2, 1000, "Most arguments of an operator");
  visit(data.rule.longer_than, "listops.longer_than", 0, 1e6, "Expressions are longer than this");
  visit(data.rule.shorter_than, "listops.shorter_than", 1, 1e6, "Expressions are shorter than this");
}

constexpr const char* for_texts = R"({
  "data": {"valid_fraction": 0.05}, "training": {"label_smoothing": 0.0}})";

constexpr const char* for_listops = R"({
  "tokenizer": {"vocabulary": 290}, "model": {"width": 64, "feed_forward": 128, "dropout": 0.0, "norm": "pre"},
  "training": {"steps": 1500, "batch_tokens": 2048, "evaluate_every": 300, "save_every": 300, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}}})";

Settings classify_settings(bool own_data) {
  Settings settings;
  std::vector<std::string> formats = labelled_formats();
  formats.emplace_back("idx");
  settings.declare("", RuntimeSettings());
  settings.declare(
      "data", LabelledData{.has_pairs = false,
                           .formats = formats,
                           .formats_help = "lines: label, space, text; csv; tsv; jsonl; folders: for each "
                                           "class a folder of documents, or a file with a text on each "
                                           "line; idx: images",
                           .label_help = "Tables: column of the label, a number from 1 or a name; empty: "
                                         "\"label\", or detected and reported"});
  settings.declare("data", Expressions());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", PairMarks());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 128, .feed_forward = 256, .encoder_layers = 2}, Stacks::encoder,
                /*has_sparse_features=*/true);
  declare_training(settings, class_metrics);
  settings.declare("training", ExportableTraining());
  settings.declare("training", StaticVectorSettings());
  settings.declare("training", ClassSettings());
  settings.declare("prediction", PredictionSettings{.what = "Examples"});
  if (own_data) settings.change_defaults(for_labelled_texts);
  settings.change_defaults(own_data ? for_texts : for_listops);
  return settings;
}

LabelledText draw_expressions(const Settings& settings) {
  const auto expressions = settings.read<Expressions>("data");
  return draw_listops(settings.read<SplitOptions>("data").seed, expressions.count, expressions.rule);
}

// --- the task

/// An image: a line of numbers (image_line() in apps/data/formats.h) or an entry of an idx file. The size that a
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
    return data.reading.format == "idx" || (data.reading.format.empty() && is_idx_name(data.files.file));
  }

  explicit ImageInput(const Settings& settings) {
    size_.rows = size_.columns = settings.read<LabelledData>("data").patch;
  }
  static TextReader reader() { return {}; }
  /// A table, such as examples in memory, has images as lines.
  LabelledText read(const std::string& path, const Settings& layout, ReadReport& report) const {
    const auto data = layout.read<LabelledData>("data");
    if (!reads(data)) return read_labelled_text(path, labelled_options(layout, path), &report);
    const LabelledOptions& reading = data.reading;
    if (!reading.label_column.empty() || !reading.text_columns.empty() || !reading.weight_column.empty() ||
        reading.header != Header::detected || !reading.delimiter.empty())
      throw SettingsError(
          "data.label_column, data.text_columns, data.weight_column, data.header and data.delimiter are for "
          "tables, not for images");
    return read_labelled_images(path, path == data.files.file ? data.labels : "", reading.text);
  }
  static void read_rows(const Settings& /*settings*/, const std::string& file, const TakeText& /*take*/,
                        ReadReport& /*report*/) {
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
  Tensor deep_logits(Model& model, const std::vector<Item>& items, Context& context) const {
    return model.deep_logits(pad_tokens(items, model.device()), context);
  }
  void show(CaptureFile& file, const std::string& name, const Capture& capture, const Item& /*item*/) const {
    file.add(name, capture);
  }

 private:
  Images size_;  // an example of it
};

template <class Input, class Head>
using Classifier = LabelledTask<Input, Head, draw_expressions>;

std::unique_ptr<Task> make_classifier(const TaskEntry& entry, Settings settings) {
  const auto data = settings.read<LabelledData>("data");
  const bool images = ImageInput::reads(data), several = !data.reading.label_separator.empty();
  if (images && !vectors_folder(settings).empty())
    throw SettingsError("training.vectors are for texts, not for images");
  if (images && several) throw SettingsError("data.label_separator is for texts, not for images");
  if (images) return std::make_unique<Classifier<ImageInput, ClassHead>>(entry, std::move(settings));
  if (several) return std::make_unique<Classifier<SingleTextInput, ClassSetHead>>(entry, std::move(settings));
  return std::make_unique<Classifier<SingleTextInput, ClassHead>>(entry, std::move(settings));
}

}  // namespace

const TaskEntry& classify_task() {
  static const TaskEntry entry = {
      "classify",
      "Trains, evaluates and uses a classifier of texts",
      Stacks::encoder,
      class_metrics,
      classify_settings,
      names_labelled_data,
      {{"", {{"text", "A text"}, {"label", "The name of its class", true, "|"}, weight_of_example}}},
      for_fine_tuning,
      make_classifier,
      [](const Settings& settings) {
        const auto data = settings.read<LabelledData>("data");
        (data.reading.label_separator.empty() ? ClassHead::check_training
                                              : ClassSetHead::check_training)(settings);
      },
      [](const Settings& settings, const std::string& file, const TakeText& take, ReadReport& report) {
        const bool images = ImageInput::reads(settings.read<LabelledData>("data"));
        (images ? ImageInput::read_rows : SingleTextInput::read_rows)(settings, file, take, report);
      }};
  return entry;
}

}  // namespace heed
