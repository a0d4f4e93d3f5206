#include "heed/tasks/classify.h"

#include <algorithm>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/data/idx.h"
#include "heed/data/listops.h"
#include "heed/models/image_classifier.h"
#include "heed/tasks/data.h"
#include "heed/tasks/labelled.h"
#include "heed/tasks/recipe.h"

namespace heed {
namespace {

constexpr MetricKind kinds[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true}};

// --- settings

void declare_data(Settings& settings) {
  std::vector<std::string> formats = labelled_formats();
  formats.emplace_back("idx");
  declare_labelled_files(settings, formats,
                         "lines: label, space, text; csv; tsv; jsonl; folders: one for each class, a file "
                         "for each text; idx: images");
  settings.text("data.labels", "",
                "Of idx: the labels of data.file; empty: \"labels\" and \"idx1\" in its name for \"images\" "
                "and \"idx3\"");
  settings.integer("data.patch", 4, 1, 4096,
                   "Of idx: rows and columns of the patches that are an image's tokens");
  settings.column("data.label_column",
                  "Of tables: the label's number, from 1, or name; empty: the first, of jsonl \"label\"");
  settings.columns("data.text_columns",
                   "Of tables: the columns of the text, joined by a space; empty: all others");
  declare_parts(settings);
  declare_long_texts(settings);
  settings.integer("data.listops.count", 20000, 1, 100'000'000, "Without data: how many ListOps expressions");
  settings.integer("data.listops.max_depth", 4, 1, 1000, "Of an expression");
  settings.integer("data.listops.max_arguments", 5, 2, 1000, "Of an operator");
  settings.integer("data.listops.longer_than", 3, 0, 1'000'000, "Length of an expression: more than this");
  settings.integer("data.listops.shorter_than", 30, 1, 1'000'000, "Length of an expression: less than this");
}

/// A few thousand texts are soon learned by heart. What helps: whole words, those met once being <unk>; embeddings that
/// begin near 0, so that rare words stay there, and norms with an epsilon that leaves small vectors small; heavy
/// dropout of words; a local layer in place of positions; words and pairs beside the encoder; averaged weights.
/// One evaluation, at the end: the average there is better than what a few hundred held-out texts like best on the way.
constexpr const char* for_texts = R"({
  "data": {"valid_fraction": 0.05},
  "tokenizer": {"kind": "words", "vocabulary": 30000},
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
  declare_runtime(settings);
  declare_data(settings);
  declare_tokenizer(settings, 8000);
  TransformerConfig model;
  model.encoder_layers = 2;
  model.width = 128;
  model.feed_forward = 256;
  declare_model(settings, model, Stacks::encoder);
  declare_training(settings, kinds);
  settings.choice("training.class_weights", "equal", {"equal", "balanced"},
                  "Whether the texts of a rare class count more, so that all classes weigh the same");
  settings.integer("prediction.batch_size", 64, 1, 1'000'000, "Texts that are read at a time");
  settings.change_defaults(own_data ? for_texts : for_listops);
  return settings;
}

// --- data

/// Whether the settings are for images: by the format, or by the name of the data where none is given.
bool reads_images(const Settings& settings) {
  const auto format = settings.get<std::string>("data.format"), file = settings.get<std::string>("data.file");
  return format == "idx" || (format.empty() && is_idx_name(file));
}

LabelledText read_texts(const Settings& settings, const std::string& path, ReadReport& report) {
  if (reads_images(settings)) {
    const bool given = path == settings.get<std::string>("data.file");
    return read_labelled_images(path, given ? settings.get<std::string>("data.labels") : "",
                                text_options(settings));
  }
  LabelledOptions options = labelled_options(
      settings, path,
      "--format lines (a label, a space and a text on each line), --format csv, tsv or jsonl");
  options.label_column = settings.get<std::string>("data.label_column");
  options.text_columns = settings.get<std::vector<std::string>>("data.text_columns");
  return read_labelled_text(path, options, &report);
}

LabelledText draw_expressions(const Settings& settings) {
  const auto integer = [&](const char* name) {
    return settings.get<std::int64_t>(std::string("data.listops.") + name);
  };
  ListOpsRule rule;
  rule.max_depth = integer("max_depth");
  rule.max_arguments = integer("max_arguments");
  rule.longer_than = integer("longer_than");
  rule.shorter_than = integer("shorter_than");
  // The texts do not follow the run's seed: runs with other seeds are compared on the same ones.
  return draw_listops(static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed")),
                      integer("count"), rule);
}

class ClassifyLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_labelled_data(settings_);
    const auto patch = settings_.get<std::int64_t>("data.patch");
    check_any_model(300, 2, {patch, patch, {}});
  }

  void read_data() override {
    ReadReport report;
    parts_ = labelled_parts(
        settings_, [&](const std::string& path) { return read_texts(settings_, path, report); },
        [&] { return draw_expressions(settings_); });
    remark_replaced(report);
  }

  std::map<std::string, std::string> data_digests() const override { return digests_of(parts_); }

  void learn_vocabulary() override {
    if (reads_images(settings_))
      image_ = image_of_line(parts_.train.texts.front());
    else
      tokenizer_.emplace(learn_tokenizer(settings_, parts_.train.texts), settings_);
    classes_ = class_names(parts_.train);
  }

  std::map<std::string, std::string> files() const override {
    if (tokenizer_)
      return {{"tokenizer.json", tokenizer_->tokenizer().to_json()},
              {"classes.json", classes_to_json(classes_)}};
    return {{"image.txt", image_line(image_, 0) + "\n"}, {"classes.json", classes_to_json(classes_)}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    classes_ = classes_from_json(read("classes.json"));
    if (!reads_images(settings_)) {
      tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
      return;
    }
    std::string line = read("image.txt");
    line.resize(std::min(line.size(), line.find('\n')));
    image_ = image_of_line(line);
  }

  void build(Device device) override {
    const auto classes = static_cast<std::int64_t>(classes_.size()),
               batch_tokens = settings_.get<std::int64_t>("training.batch_tokens");
    if (tokenizer_)
      model_ = make_model<EncoderClassifier>(config(tokenizer_->tokenizer().vocabulary_size(), classes),
                                             batch_tokens, device);
    else
      model_ = make_model<ImageClassifier>(image_config(image_, classes), batch_tokens, device);
  }

  void prepare_training() override {
    describe_data();
    labels_ = classes_of(parts_.train, classes_);
    valid_labels_ = classes_of(parts_.valid, classes_);
    if (settings_.get<std::string>("training.class_weights") == "balanced")
      weights_ = balanced_weights(labels_, classes_.size());
    texts_ = tokens_of(parts_.train);
    valid_texts_ = tokens_of(parts_.valid);
    plan_.emplace(lengths(texts_), std::span<const std::int32_t>(), training_batches(settings_));
    if (const std::string left_out = plan_->left_out_message(); !left_out.empty()) remark(left_out);
    const auto steps = settings_.get<std::int64_t>("training.steps");
    if (settings_.get<std::int64_t>("training.epochs") == 0 && steps < batches(0))
      remark(concat_text("training.steps = ", steps, " end before all ", batches(0),
                         " batches were read once: this much data deserves more steps"));
  }

  // --- training

  Module& model() override { return *model_; }
  std::string unit() const override { return "texts"; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    if (!weights_.empty()) return weighted_loss(rows, context);
    return model_->loss(make_classification_batch(pick(texts_, rows), pick(labels_, rows), model_->device()),
                        settings_.get<double>("training.label_smoothing"), context);
  }

  Evaluation evaluate() override {
    if (valid_texts_.empty()) return {};
    return evaluation(values_of(quality_of(scores_of(valid_texts_), valid_labels_, classes_.size())));
  }

  // --- use

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    std::vector<Prediction> predictions(lines.size());
    std::vector<Tokens> texts;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (is_blank(lines[i])) continue;
      try {
        texts.push_back(tokenizer_ ? (*tokenizer_)(lines[i]) : pixels_of(lines[i]));
        places.push_back(i);
      } catch (const Error& error) {
        predictions[i].error = error.what();
      }
    }
    say_what_was_cut();
    const std::vector<ClassScores> scores = scores_of(texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      predictions[places[i]] = prediction_of(scores[i], classes_);
      if (options.capture)
        show_inside(texts[i], options.first_line + static_cast<std::int64_t>(places[i]), *options.capture);
    }
    return predictions;
  }

  Measurement measure(std::string_view part) override {
    const LabelledText& text = part == "valid" ? parts_.valid : part == "test" ? parts_.test : parts_.train;
    check(text.size() > 0, "the ", part, " part of the run's data is empty: give --data");
    return measurement_of(text);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    ReadReport report;
    const LabelledText text = read_texts(settings_, files.front(), report);
    remark_replaced(report);
    return measurement_of(text);
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return short_lines((parts_.valid.size() > 0 ? parts_.valid : parts_.train).texts, count);
  }

 private:
  /// In the order of `kinds`.
  static std::vector<double> values_of(const ClassQuality& quality) {
    return {quality.accuracy, quality.loss, quality.macro_f1};
  }

  TransformerConfig config(std::int64_t vocabulary, std::int64_t classes) const {
    TransformerConfig config = model_config(settings_);
    config.source_vocabulary = vocabulary;
    config.classes = classes;
    return config;
  }

  ImageClassifierConfig image_config(const Images& image, std::int64_t classes) const {
    return {config(0, classes), image.rows, image.columns, settings_.get<std::int64_t>("data.patch")};
  }

  /// Throws a SettingsError when neither a classifier of texts nor one of images can be built.
  void check_any_model(std::int64_t vocabulary, std::int64_t classes, const Images& image) const {
    const auto batch_tokens = settings_.get<std::int64_t>("training.batch_tokens");
    if (reads_images(settings_))
      check_model<ImageClassifier>(image_config(image, classes), batch_tokens);
    else
      check_model<EncoderClassifier>(config(vocabulary, classes), batch_tokens);
  }

  /// The values of an image, which the model turns into patches.
  Tokens pixels_of(const std::string& line) const {
    const Images image = image_of_line(line);
    check(image.rows == image_.rows && image.columns == image_.columns, "an image of ", image.rows, " x ",
          image.columns, "; the model reads those of ", image_.rows, " x ", image_.columns);
    Tokens values;
    for (const char value : image.pixels[0]) values.push_back(static_cast<unsigned char>(value));
    return values;
  }

  /// Lengths as the encoder sees them.
  std::vector<std::int32_t> lengths(const std::vector<Tokens>& texts) const {
    if (tokenizer_) return lengths_of(texts);
    return std::vector<std::int32_t>(texts.size(),
                                     static_cast<std::int32_t>(image_config(image_, 2).patches()));
  }

  std::vector<Tokens> tokens_of(const LabelledText& text) {
    std::vector<Tokens> images;
    if (!tokenizer_) {
      for (const std::string& line : text.texts) images.push_back(pixels_of(line));
      return images;
    }
    std::vector<Tokens> tokens = (*tokenizer_)(text.texts, text.places);
    say_what_was_cut();
    return tokens;
  }

  void say_what_was_cut() {
    if (!tokenizer_) return;
    if (std::string cut = tokenizer_->take_cut_message(); !cut.empty()) remark(std::move(cut));
  }

  void describe_data() {
    remark(concat_text(parts_.train.size(), tokenizer_ ? " texts of " : " images of ", classes_.size(),
                       " classes to learn from, ", parts_.valid.size(), " to measure with, ",
                       parts_.test.size(), " kept for a test; ",
                       tokenizer_ ? concat_text("vocabulary ", tokenizer_->tokenizer().vocabulary_size())
                                  : concat_text("images of ", image_.rows, " x ", image_.columns)));
    for (std::string& text : remarks_on_classes(parts_.train, classes_)) remark(std::move(text));
  }

  /// sum_i w(label_i) cross_entropy_i
  Loss weighted_loss(const Batch& rows, Context& context) {
    const std::vector<std::int32_t> labels = pick(labels_, rows);
    std::vector<float> weights;
    for (const std::int32_t label : labels) weights.push_back(weights_[static_cast<std::size_t>(label)]);
    const auto batch = make_classification_batch(pick(texts_, rows), labels, model_->device());
    const Tensor losses = cross_entropy(model_->logits(batch.input, context), batch.labels,
                                        settings_.get<double>("training.label_smoothing"));
    const auto count = static_cast<std::int64_t>(rows.size());
    return {sum(losses * Tensor::from(weights, {count}, model_->device())), count};
  }

  /// The scores of each text, in their order; texts of like length are read together.
  std::vector<ClassScores> scores_of(const std::vector<Tokens>& texts) {
    const NoGrad no_grad;
    std::vector<ClassScores> scores(texts.size());
    if (texts.empty()) return scores;
    const BatchPlan plan(lengths(texts), {},
                         evaluation_batches(settings_.get<std::int64_t>("prediction.batch_size")));
    for (const Batch& rows : plan.epoch(0)) {
      Context context = Context::inference();
      const Tensor logits = model_->logits(pad_tokens(pick(texts, rows), model_->device()), context);
      const std::vector<float> values = log_softmax(logits, -1).to_vector<float>();  // [B, classes]
      auto first = values.begin();
      for (const std::int32_t row : rows) {
        const auto end = first + logits.size(1);
        scores[static_cast<std::size_t>(row)].assign(first, end);
        first = end;
      }
    }
    return scores;
  }

  Measurement measurement_of(const LabelledText& text) {
    const std::vector<std::int32_t> labels = classes_of(text, classes_);
    const std::vector<ClassScores> scores = scores_of(tokens_of(text));
    const ClassQuality quality = quality_of(scores, labels, classes_.size());
    return class_measurement(metrics(values_of(quality)), quality, scores, labels, text, classes_);
  }

  /// One pass over a text in which the model shows its inside.
  void show_inside(const Tokens& tokens, std::int64_t line, CaptureFile& file) {
    const NoGrad no_grad;
    Capture capture;
    Context context = Context::inference();
    context.capture = &capture;
    const PaddedTokens input = pad_tokens({&tokens, 1}, model_->device());
    model_->logits(input, context);
    const std::string example = "lines." + std::to_string(line);
    if (tokenizer_)
      file.add_tokens(example, "tokens", input.ids, token_texts(tokenizer_->tokenizer(), tokens));
    file.add(example, capture);
  }

  TextParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;  // none: the texts are images
  Images image_;                               // an example of their size
  std::vector<std::string> classes_;
  std::unique_ptr<EncoderClassifier> model_;

  std::vector<Tokens> texts_, valid_texts_;
  std::vector<std::int32_t> labels_, valid_labels_;
  std::vector<float> weights_;  // of the classes; empty: all alike
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

}  // namespace

const TaskKind& classify_task() {
  static const TaskKind kind{"classify",
                             "Learns to tell classes of texts, measures it, and labels texts with it",
                             Stacks::encoder,
                             kinds,
                             classify_settings,
                             names_labelled_data,
                             make_learner<ClassifyLearner>};
  return kind;
}

}  // namespace heed
