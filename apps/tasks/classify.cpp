// Classification of texts: an encoder whose output, pooled over the tokens, is mapped to the classes
// (models/classifier.h). Labelled texts come from files (apps/data/labelled_text.h); without them it learns the
// values of short ListOps expressions, made by rule.
//
// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order
// of the model's outputs. Parts of the data: train, valid, test.

#include <algorithm>

#include "heed/apps/data/idx.h"
#include "heed/apps/data/synthetic_texts.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/ops.h"
#include "heed/models/classifier.h"

namespace heed {
namespace {

constexpr MetricKind class_metrics[] = {
    {"accuracy", true}, {"loss", false}, {"macro_f1", true}, {"micro_f1", true}};

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
  std::string label_column = {}, label_separator = {}, weight_column = {};
  LabelType label_type = LabelType::unknown;
  std::vector<std::string> text_columns = {};
  SplitOptions split = {.valid_fraction = 0.1, .stratified = true};
  TextLimits limits = {};
  std::int64_t expressions = 20000;
  ListOpsRule rule = {.max_depth = 4, .max_arguments = 5, .longer_than = 3, .shorter_than = 30};
};

void for_each_setting(auto&& visit, ClassifyData& data) {
  for_each_setting(visit, data.files);
  visit(data.labels, "labels",
        "idx: label file of data.file; empty: its name with \"labels\" for \"images\" and \"idx1\" for "
        "\"idx3\"");
  visit(data.patch, "patch", 1, 4096, "idx: rows and columns of the patches that are an image's tokens");
  visit(data.label_column, "label_column",
        "Tables: column of the label, a number from 1 or a name; empty: \"label\", or detected and reported",
        {.kind = Setting::Kind::column});
  visit(data.label_separator, "label_separator",
        "Separator between the labels of a text that may have several (or none), such as a comma; in jsonl "
        "they may be a list; empty: every text has one label",
        {.changes = Changes::never});
  visit_label_type(visit, data.label_type);
  visit_weight_column(visit, data.weight_column);
  visit_text_columns(visit, data.text_columns);
  for_each_setting(visit, data.split);
  for_each_setting(visit, data.limits);
  visit(data.expressions, "listops.count", 1, 1e8, "Without data: number of generated ListOps expressions");
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
  settings.declare("", RuntimeSettings());
  settings.declare("data", ClassifyData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 128, .feed_forward = 256, .encoder_layers = 2}, Stacks::encoder,
                /*has_sparse_features=*/true);
  declare_training(settings, class_metrics);
  declare_classes(settings);
  if (own_data) settings.change_defaults(for_labelled_texts);
  settings.change_defaults(own_data ? for_texts : for_listops);
  return settings;
}

// --- data

/// Whether the data are images, according to the format or, if none is given, the name of the data.
bool reads_images(const Settings& settings) {
  const auto data = settings.read<LabelledFiles>("data");
  return data.format == "idx" || (data.format.empty() && is_idx_name(data.files.file));
}

class ClassifyLearner : public Learner, public HasOutputs {
 public:
  ClassifyLearner(const TaskKind& kind, Settings given)
      : Learner(kind, std::move(given)),
        data_(settings_.read<ClassifyData>("data")),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size),
        separator_(data_.label_separator),
        reads_images_(reads_images(settings_)),
        image_{data_.patch, data_.patch, {}} {
    unit_ = reads_images_ ? "images" : "texts";
    if (has_sets() && reads_images_) throw SettingsError("data.label_separator is for texts, not for images");
  }

  void prepare_training() override {
    remark_all(labelled_data_remarks(
        parts_, {class_labels(parts_.train), class_labels(parts_.valid), class_labels(parts_.test)}, classes_,
        unit_,
        reads_images_ ? concat_text("images of ", image_.rows, " x ", image_.columns)
                      : concat_text("vocabulary ", tokenizer_->tokenizer().vocabulary_size())));
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    const Lengths its_lengths = lengths(train_.inputs);
    if (!reads_images_ && !is_fine_tuned()) remark(fit_batches(settings_, its_lengths[0], classes_.size()));
    plan_batches(its_lengths, training_batches(settings_));
    limit_epochs(is_fine_tuned() ? fine_tuning_epoch_limit : text_epoch_limit);
    weights_ = has_sets() ? example_weights(parts_.train)
                          : example_weights(settings_, parts_.train, firsts(train_.targets), classes_.size());
    remark(steps_remark(settings_, batches(0)));
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    const ClassLogits found = logits(pick(train_.inputs, rows), context);
    const std::vector<ClassSet> targets = pick(train_.targets, rows);
    const std::vector<float> weights = batch_weights(weights_, rows);
    return has_sets() ? multi_label_loss(found, targets, weights, label_smoothing_)
                      : class_loss(found, firsts(targets), weights, label_smoothing_);
  }

  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const std::vector<std::size_t> rows = sampled_rows(parts_.valid, sample());
    const Examples read = picked(valid_, Batch(rows.begin(), rows.end()));
    SparseLinear* const sparse = model_as<EncoderClassifier>().sparse();
    const auto fitted = [&] {
      const std::vector<Output> logits = outputs(read.inputs, &ClassLogits::side_by_side);
      return has_sets() ? fitted_scores(*sparse, logits, read.targets)
                        : fitted_scores(*sparse, logits, firsts(read.targets));
    };
    const std::vector<ClassScores> scores = sparse ? fitted() : class_scores(read.inputs);
    return evaluation(measured_scores(scores, read, parts_.valid.picked(rows)).metrics, rows.size(),
                      parts_.valid.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return answer_lines(
        lines, options, [&](const std::string& line) { return input_of(line); },
        [&](const Inputs& inputs) {
          const std::vector<ClassScores> scores = class_scores(inputs);
          return has_sets() ? multi_label_predictions(scores, classes_, separator_)
                            : class_predictions(scores, classes_);
        },
        [&](const TokenizedText& input, const std::string& name, CaptureFile& file) {
          const Capture capture = captured([&](Context& context) { logits({input}, context); });
          tokenizer_ ? add_pass(file, name, capture, {input.tokens}, tokenizer_->tokenizer())
                     : file.add(name, capture);
        });
  }

  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    return logits(inputs_of_lines(lines, [&](const std::string& line) { return input_of(line); }), context)
        .together();
  }

  static void check_training(const Settings& settings) {
    const bool has_sets = !settings.read<ClassifyData>("data").label_separator.empty();
    if (!has_sets && settings.read<TrainingSettings>("training").keep_best_by == "micro_f1")
      throw SettingsError(
          "training.keep_best_by=micro_f1 is for texts with several labels (data.label_separator); with one "
          "label each it equals the accuracy");
    if (has_sets && settings.read<ClassSettings>("training").weights != ClassSettings::Weights::equal)
      throw SettingsError(
          "training.class_weights is for texts with one label each, not for data.label_separator");
  }

  static void read_rows(const Settings& settings, const std::string& file, const TakeText& take,
                        ReadReport& report) {
    if (reads_images(settings)) throw SettingsError(file + ": the run reads images, not tables");
    read_texts_of_table(file, text_options(file, settings), take, &report);
  }

 protected:
  /// Generates the texts. They do not depend on the run's seed, so that runs with different seeds
  /// are compared on the same texts.
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) {
      return read_labelled_parts(
          settings_, Labels::classes,
          [&] { return draw_listops(data_.split.seed, data_.expressions, data_.rule); },
          [&](const std::string& path, const Settings& layout) { return read_file(path, layout, report); });
    });
    return digests_of(parts_, [](const LabelledText& text) { return compute_digest(text); });
  }

  NamedFiles learned_files() override {
    NamedFiles files;
    if (reads_images_)
      files["image.txt"] = image_line(parse_image_line(parts_.train.texts.front()), 0) + "\n";
    else
      files = learned_tokenizer(all_texts(parts_.train));
    files["classes.json"] =
        classes_to_json(learned_classes(kind().name, settings_, class_labels(parts_.train)));
    return files;
  }

  void open(const ReadFile& read) override {
    classes_ = classes_from_json(read("classes.json"));
    if (reads_images_) {
      std::string line = read("image.txt");
      line.resize(std::min(line.size(), line.find('\n')));
      image_ = parse_image_line(line);
    } else {
      tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
      truncation_message_ = [this] { return tokenizer_->take_truncation_message(); };
    }
  }

  std::unique_ptr<Module> make_model() override {
    if (reads_images_) return model_of<ImageClassifier>(image_config(), batch_tokens());
    const std::int64_t vocabulary = tokenizer_ ? tokenizer_->tokenizer().vocabulary_size() : 300;
    return model_of<EncoderClassifier>(encoder_config(vocabulary, class_count()), batch_tokens());
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_file(files.front(), layout, report);
    };
    return measured_data(parts_, source, read, [&](const LabelledText& text) {
      remark(other_labels_remark(classes_, class_labels(text), has_sets() ? "labels" : unit_));
      return measured_examples(make_examples(text), text);
    });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return labelled_lines(shown_part(parts_), count);
  }

 private:
  using Inputs = std::vector<TokenizedText>;
  using Examples = TaskExamples<TokenizedText, ClassSet>;

  /// Whether a text may have several labels.
  bool has_sets() const { return !separator_.empty(); }
  /// Returns a row for each label.
  LabelledText class_labels(const LabelledText& text) const {
    return has_sets() ? expand_labels(text, separator_) : text;
  }
  /// Returns the classes of texts with a single label.
  static std::vector<std::int32_t> firsts(const std::vector<ClassSet>& sets) {
    std::vector<std::int32_t> classes;
    for (const ClassSet& one : sets) classes.push_back(one.front());
    return classes;
  }

  // --- input

  static LabelledText read_file(const std::string& path, const Settings& layout, ReadReport& report) {
    const auto data = layout.read<ClassifyData>("data");
    if (!reads_images(layout)) return read_labelled_text(path, text_options(path, layout), &report);
    if (!data.label_column.empty() || !data.text_columns.empty() || !data.weight_column.empty() ||
        data.files.header != Header::detected || !data.files.delimiter.empty())
      throw SettingsError(
          "data.label_column, data.text_columns, data.weight_column, data.header and data.delimiter are for "
          "tables, not for "
          "images");
    return read_labelled_images(path, path == data.files.files.file ? data.labels : "", data.files.text);
  }

  static LabelledOptions text_options(const std::string& path, const Settings& layout) {
    const auto data = layout.read<ClassifyData>("data");
    if (!data.labels.empty())
      throw SettingsError(
          concat_text("data.labels (\"", data.labels,
                      "\") is for images, data.format=idx; texts have their labels in the same file"));
    LabelledOptions options = labelled_options(
        layout, path,
        "data.format=lines (a label, a space and a text on each line), data.format=csv, tsv or jsonl");
    options.label_column = data.label_column;
    options.label_separator = data.label_separator;
    options.text_columns = data.text_columns;
    if (path == data.files.files.file) options.weight_column = data.weight_column;
    return options;
  }

  /// The tokens of a text, or the values of an image, which the model turns into patches. The line must outlive
  /// the input.
  TokenizedText input_of(const std::string& line) {
    return tokenizer_ ? TokenizedText{(*tokenizer_)(line), line} : TokenizedText{parse_pixels(line)};
  }

  Tokens parse_pixels(std::string_view line) const {
    const Images image = parse_image_line(line);
    check(image.rows == image_.rows && image.columns == image_.columns, "an image of ", image.rows, " x ",
          image.columns, "; the model reads those of ", image_.rows, " x ", image_.columns);
    Tokens values;
    for (const char value : image.pixels[0]) values.push_back(static_cast<unsigned char>(value));
    return values;
  }

  Examples make_examples(const LabelledText& text) {
    Examples examples;
    const std::vector<std::string> classes = with_other_labels(classes_, class_labels(text));
    if (has_sets())
      examples.targets = parse_class_sets(text, separator_, classes);
    else
      for (const std::int32_t one : classes_of(text, classes)) examples.targets.push_back({one});
    if (tokenizer_) {
      std::vector<Tokens> tokens = (*tokenizer_)(text.texts, text.places);
      for (std::size_t i = 0; i < tokens.size(); ++i)
        examples.inputs.push_back({std::move(tokens[i]), text.texts[i]});
    } else {
      for (const std::string_view line : text.texts) examples.inputs.push_back({parse_pixels(line)});
    }
    return examples;
  }

  // --- predictions

  std::int64_t class_count() const {
    return classes_.empty() ? 2 : static_cast<std::int64_t>(classes_.size());
  }

  ImageClassifierConfig image_config() const {
    return {encoder_config(0, class_count()), image_.rows, image_.columns,
            trained().read<ClassifyData>("data").patch};
  }

  /// The lengths as the encoder sees them.
  Lengths lengths(const Inputs& inputs) const {
    const auto patches = tokenizer_ ? 0 : static_cast<std::int32_t>(image_config().patches());
    Lengths lengths;
    for (const TokenizedText& input : inputs)
      lengths[0].push_back(tokenizer_ ? static_cast<std::int32_t>(input.tokens.size()) : patches);
    return lengths;
  }

  ClassLogits logits(const Inputs& inputs, Context& context) {
    return logits_of_texts(model_as<EncoderClassifier>(), inputs, context);
  }

  std::vector<Output> outputs(const Inputs& inputs, Tensor (ClassLogits::*of_logits)() const) {
    return outputs_of(
        *this, inputs, lengths(inputs), batch_size_,
        [&](const Inputs& batch, Context& context) { return (logits(batch, context).*of_logits)(); });
  }

  std::vector<ClassScores> class_scores(const Inputs& inputs) {
    return outputs(inputs,
                   has_sets() ? &ClassLogits::multilabel_log_probabilities : &ClassLogits::log_probabilities);
  }

  Measurement measured_examples(const Examples& examples, const LabelledText& text) {
    return measured_scores(class_scores(examples.inputs), examples, text);
  }

  Measurement measured_scores(const std::vector<ClassScores>& scores, const Examples& examples,
                              const LabelledText& text) {
    const std::vector<std::string> classes = with_other_labels(classes_, class_labels(text));
    const ClassQuality quality = has_sets()
                                     ? multi_label_quality(scores, examples.targets, classes.size())
                                     : measure_quality(scores, firsts(examples.targets), classes.size());
    ClassFigures figures{
        metrics(std::vector<double>{quality.accuracy, quality.loss, quality.macro_f1, quality.micro_f1})};
    if (has_sets())
      return class_measurement(std::move(figures), quality, scores, examples.targets, text, classes,
                               separator_);
    figures.metrics.pop_back();  // of one class each the micro F1 is the accuracy
    return class_measurement(std::move(figures), quality, scores, firsts(examples.targets), text, classes);
  }

  const ClassifyData data_;
  const std::int64_t batch_size_;
  const std::string separator_;  // of the labels; empty: each text has one
  const bool reads_images_;
  TextParts parts_;
  Images image_;                               // an example of their size, where the texts are images
  std::optional<BoundedTokenizer> tokenizer_;  // none: they are
  Examples train_, valid_;
  std::vector<float> weights_;  // of the examples to learn from; empty: all alike
};

}  // namespace

const TaskKind& classify_task() {
  static const TaskKind kind = make_task_kind<ClassifyLearner>(
      {"classify",
       "Trains, evaluates and uses a classifier of texts",
       Stacks::encoder,
       class_metrics,
       classify_settings,
       names_labelled_data,
       {{"", {{"text", "A text"}, {"label", "The name of its class", true, "|"}, weight_of_example}}},
       for_fine_tuning});
  return kind;
}

}  // namespace heed
