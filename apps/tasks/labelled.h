#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/text_features.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/core/thread_pool.h"
#include "heed/models/classifier.h"

// Tasks that learn labels of texts, of pairs of texts or of images. Such a task names an input, which reads
// examples for a model: texts (here), pairs (match.cpp) or images (classify.cpp); and a head, which says what
// the outputs mean: classes (class_heads.h) or a number (rate.cpp). LabelledTask is the rest.

namespace heed {

// --- settings

/// Settings for splitting the data when validation or test files are not named.
void for_each_setting(auto&& visit, SplitOptions& split) {
  visit_valid_fraction(visit, split.valid_fraction);
  visit_test_fraction(visit, split.test_fraction);
  visit_split_seed(visit, split.seed);
  if (split.classes)
    visit(split.stratified, "stratified",
          "Hold out the same share of every class, and keep at least one example of each for training");
  visit(split.folds, "folds", 0, 1000,
        "Number of cross-validation runs, each tested on another part of data.file; 0: none");
  visit(split.fold, "fold", 0, 1000,
        "The cross-validation run to train, from 1; 0: all, each in a folder of its own");
}

/// The files of a task with labels, and how they are read. A task declares what its examples have.
struct LabelledData {
  bool has_texts = true, has_pairs = true;
  std::vector<std::string> formats = {};  ///< the choices
  std::string formats_help = {}, label_help = {};

  DataFiles files = {.what = "Labelled texts", .form = ": a file (plain or gzip) or a folder"};
  LabelledOptions reading = {};
  enum class Missing { error, drop } missing = Missing::error;
  std::string labels = {}, first_column = {}, positive_label = {};
  std::int64_t patch = 4;
  std::string label_type = {};  ///< of labels in Python; elsewhere they are text
  SplitOptions split = {.valid_fraction = 0.1, .stratified = true};
  TextLimits limits = {};
};

void for_each_setting(auto&& visit, LabelledData& data) {
  const SettingTraits column = {.kind = Setting::Kind::column}, fixed = {.changes = Changes::never};
  const bool has_classes = data.split.classes, has_images = data.has_texts && has_classes;
  for_each_setting(visit, data.files);
  std::vector<std::string> formats = data.formats;
  formats.insert(formats.begin(), "");
  visit(data.reading.format, "format", formats,
        data.formats_help + "; empty: from the name, if it implies one");
  for_each_setting(visit, data.reading.text);
  visit_header(visit, data.reading.header);
  visit_delimiter(visit, data.reading.delimiter);
  visit_bad_rows(visit, data.reading.text.bad_rows);
  visit(data.missing, "missing", {"error", "drop"},
        "Tables: whether a row without a label or text (empty; in jsonl, null) is an error, or is dropped "
        "and reported");
  if (has_images) {
    visit(data.labels, "labels",
          "idx: label file of data.file; empty: its name with \"labels\" for \"images\" and \"idx1\" for "
          "\"idx3\"");
    visit(data.patch, "patch", 1, 4096, "idx: rows and columns of the patches that are an image's tokens");
  }
  if (data.has_pairs) {
    const std::string empty =
        data.has_texts ? "; this or the other makes pairs of the texts" : "; empty: detected and reported";
    visit(data.first_column, "first_column", "Column of the first text: number or name" + empty, column);
    visit(data.reading.second_column, "second_column", "Column of the second text: number or name" + empty,
          column);
  }
  visit(data.reading.label_column, "label_column", data.label_help, column);
  if (has_images)
    visit(data.reading.label_separator, "label_separator",
          "Separator between the labels of a text that may have several (or none), such as a comma; in jsonl "
          "they may be a list; empty: every text has one label",
          fixed);
  if (has_classes)
    visit(data.label_type, "label_type", {"", "text", "integer", "number", "boolean"},
          "What labels are in Python, which sets it from the examples; classes of text are in byte order, "
          "others in numeric order; empty: text, integers in numeric order",
          fixed);
  visit(data.reading.weight_column, "weight_column",
        "Tables: column with the weight of each example in training, a number from 0 up; column number or "
        "name; empty: equal weights",
        column);
  if (data.has_pairs && has_classes)
    visit(data.positive_label, "positive_label",
          "With two classes: the one that f1, map and mrr measure; empty: the last, such as 1 of 0 and 1");
  if (data.has_texts)
    visit(data.reading.text_columns, "text_columns",
          "Tables: columns of the text, joined by a space, such as title,body; empty: detected and reported");
  for_each_setting(visit, data.split);
  for_each_setting(visit, data.limits);
}

/// The setting "training.vectors" of tasks whose inputs are single texts.
struct StaticVectorSettings {
  std::string vectors = {};
};
void for_each_setting(auto&& visit, StaticVectorSettings& training) {
  visit(training.vectors, "vectors",
        "Folder of static word vectors (model2vec, or StaticEmbedding of sentence-transformers) that the "
        "linear "
        "model reads, too; the run keeps a copy; empty: none",
        {.changes = Changes::never});
}

/// The optional last column of labelled examples in memory.
inline constexpr ExampleColumn weight_of_example = {
    .name = "weight", .help = "How much it counts in training", .optional = true, .is_number = true};

/// Defaults for a few thousand labelled texts, which a model soon memorises. They use whole words,
/// with words seen once as `<unk>`; embeddings that start near 0, so that rare words stay there;
/// norms with an epsilon that keeps small vectors small; heavy word dropout; a local layer instead
/// of positions; a linear model of words and parts of words beside the encoder; and averaged
/// weights. There is one evaluation, at the end: the final average is better than the
/// weights that a few hundred held-out texts would select earlier.
inline constexpr const char* for_labelled_texts = R"({
  "tokenizer": {"kind": "auto", "vocabulary": 30000},
  "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1, "dropout": 0.5, "word_dropout": 0.4,
    "positions": "none", "local_width": 3, "epsilon": 0.1, "embedding_deviation": 0.01, "sparse_features": 131072},
  "training": {"steps": 1000, "batch_tokens": 1024, "evaluate_every": 1000, "save_every": 500, "ema_decay": 0.99,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.002}}})";

/// Defaults for fine-tuning: the optimizer and few epochs that suit BERT (Devlin et al. 2019, appendix A), at
/// most a thousand steps. Sparse features stay enabled.
inline constexpr const char* for_fine_tuning = R"({
  "training": {"steps": 1000, "evaluate_every": 1000, "save_every": 200, "ema_decay": 0.98,
    "optimizer": {"name": "adamw", "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 100}}})";

// --- data

/// Whether the settings name training data. Throws a SettingsError if they name only validation or
/// test data, or invalid folds.
bool names_labelled_data(const Settings& settings);
/// Whether examples are pairs of texts; in a task that can have single texts too, whether a column of
/// pairs is named.
bool reads_pairs(const Settings& layout);
/// Returns how texts or pairs in a file are read. Throws a SettingsError if neither the settings nor the
/// name of `path` determine the format.
LabelledOptions labelled_options(const Settings& layout, const std::string& path);
/// Reads the parts of the data with read(path), or generates them with by_rule() if the settings name no
/// files. Throws a SettingsError for labels that cannot be classes. All files are read with the columns
/// found in the training file; if it has a header, their names are stored in the settings.
TextParts read_labelled_parts(Settings& settings, bool has_classes,
                              const std::function<LabelledText()>& by_rule,
                              const std::function<LabelledText(const std::string& path)>& read);
/// Throws a SettingsError if the label column cannot hold classes: more than 200 different labels
/// with fewer than three texts each on average. The message lists the columns.
void check_labels(const LabelledText& text, std::string_view origin);
/// Returns example lines for a report.
std::vector<std::string> labelled_lines(const LabelledText& text, std::size_t count);
/// Returns a text as a line of input; a pair has a tab between its texts.
std::string text_at(const LabelledText& text, std::size_t index);
/// Returns training.vectors, "" in tasks without this setting. Throws a SettingsError if there is no linear part to
/// read them.
std::string vectors_folder(const Settings& settings);
/// Returns a label for a message.
std::string quoted_label(std::string_view label);

// --- training

/// Sets training.batch_tokens, unless it is given, so that a batch has about a text of each class:
/// the mean of the lengths times the classes, from the default to 4,096. Returns a remark, or "".
std::string fit_batches(Settings& settings, std::span<const std::int32_t> lengths, std::size_t classes);
/// Returns a remark if there are fewer steps than batches in an epoch, otherwise "".
std::string steps_remark(const Settings& settings, std::int64_t batches);
/// Returns the weights of the examples in the data, scaled to mean 1; empty if all are equal. If the class of
/// each is given, their weights are balanced: each is divided by the number of texts of its class. Throws an
/// Error if all are 0.
std::vector<float> example_weights(const LabelledText& text, std::span<const std::int32_t> classes = {});
/// Returns the rows for an evaluation of at most `most` rows (0: all): evenly spread, whole groups
/// (group_by_first_text()), and at least one group.
std::vector<std::size_t> sampled_rows(const LabelledText& text, std::int64_t most);
/// Adds the first metric of each part of the model alone to the JSON of a measurement: "encoder_accuracy" and
/// "linear_accuracy".
void add_parts(Measurement& whole, const Measurement& encoder, const Measurement& linear);
/// Returns the logits of both parts of a model, given those of each example (ClassLogits::side_by_side).
ClassLogits split_logits(const std::vector<Output>& side_by_side, const SparseLinear& sparse);
/// Returns the rows from which a linear part learns, evenly spread: at most 16 MiB of text and 2^23 outputs.
Batch rows_for_linear(const LabelledText& text, std::int64_t outputs);
/// Describes what a linear part learned from `count` of `all` texts.
std::string linear_remark(const SparseLinear::Fit& fit, std::int64_t count, std::int64_t all);
/// Returns a group for each of these texts or pairs: the same for the same text, of pairs on the side that has fewer
/// different ones, but at least 20.
std::vector<std::int32_t> groups_to_leave_out(const LabelledText& text, const Batch& rows);
/// Returns the sparse vectors of a batch in the form that a model reads.
SparseBatch sparse_batch(const std::vector<TextFeatures>& features, Device device);

// --- inputs. Each reads files, makes items and batches of them, and makes the model that reads these. An
// item's texts must outlive it.

template <class Item>
auto item_tokens(const std::vector<Item>& items) {
  std::vector<decltype(Item::tokens)> tokens;
  for (const Item& item : items) tokens.push_back(item.tokens);
  return tokens;
}

/// The common base of inputs that are texts.
template <class ItemTokenizer>
class TokenizedInput {
 public:
  explicit TokenizedInput(const Settings& settings) : settings_(settings) {}

  LabelledText read(const std::string& path, const Settings& layout, ReadReport& report) const {
    return read_labelled_text(path, labelled_options(layout, path), &report);
  }
  static void read_rows(const Settings& settings, const std::string& file, const TakeText& take,
                        ReadReport& report) {
    read_texts_of_table(file, labelled_options(settings, file), take, &report);
  }
  void open(const ReadFile& read) {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
  }
  TextReader reader() const { return tokenizer_->reader(); }
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
    std::size_t second = 0;  ///< the place of a second text (PairMarks)
  };
  using Model = EncoderClassifier;
  static constexpr const char* unit = "texts";
  /// A few short texts overfit within a thousand steps, which are too few to read many texts even once.
  static constexpr EpochLimit epoch_limit = {40, 300, 10'000};
  static constexpr bool fits_batches = true;  ///< to the number of classes

  using TokenizedInput::TokenizedInput;
  NamedFiles learned_files(const LabelledText& train, const auto& learn_tokenizer) const {
    NamedFiles files = learn_tokenizer(all_texts(train));
    if (const std::string folder = vectors_folder(settings_); !folder.empty()) {
      const StaticVectors vectors = StaticVectors::load(folder);
      files.merge(
          NamedFiles{{"vectors.json", vectors.tokenizer_json()}, {"vectors.safetensors", vectors.tensors()}});
    }
    return files;
  }
  void open(const ReadFile& read) {
    TokenizedInput::open(read);
    if (!vectors_folder(settings_).empty())
      vectors_.emplace(read("vectors.json"), read("vectors.safetensors"), "vectors of the run");
  }
  Item item(std::string_view line) {
    Item item{{}, line};
    item.tokens = (*tokenizer_)(line, &item.second);
    return item;
  }
  Item item(const LabelledText& text, std::size_t index) { return item(text.texts[index]); }

  std::unique_ptr<Module> make_model(TransformerConfig config, const Settings& /*trained*/,
                                     std::int64_t batch_tokens) const {
    config.vector_features = vectors_ ? vectors_->width() : 0;
    return model_of<Model>(config, batch_tokens);
  }
  Lengths lengths(const std::vector<Item>& items, const Model& /*model*/) const {
    Lengths lengths;
    for (const Item& item : items) lengths[0].push_back(static_cast<std::int32_t>(item.tokens.size()));
    return lengths;
  }
  Tensor deep_logits(Model& model, const std::vector<Item>& items, Context& context) const {
    PaddedTokens tokens = pad_tokens(item_tokens(items), model.device());
    const bool has_pairs = std::ranges::any_of(items, [](const Item& one) { return one.second > 0; });
    if (has_pairs && model.config().token_types > 1)
      tokens.types = pad_tokens(item_types(items), model.device()).ids;
    return model.deep_logits(tokens, context);
  }
  TextFeatures features(const Item& item, std::int64_t count) const {
    return text_features(item.text, count, vectors_ ? (*vectors_)(item.text) : std::vector<float>());
  }
  /// Returns for each token 0, or 1 from the second text on.
  static std::vector<Tokens> item_types(const std::vector<Item>& items) {
    std::vector<Tokens> types;
    for (const Item& item : items) {
      const std::size_t size = item.tokens.size(),
                        second = item.second > 0 ? std::min(item.second, size) : size;
      types.emplace_back(second, 0).resize(size, 1);
    }
    return types;
  }
  void show(CaptureFile& file, const std::string& name, const Capture& capture, const Item& item) const {
    add_pass(file, name, capture, {item.tokens}, tokenizer_->tokenizer());
  }

 private:
  std::optional<StaticVectors> vectors_;
};

// --- the task

/// A task with labels: what its Input reads, and what its Head makes of the outputs. Without data it learns
/// from by_rule(settings), which does not depend on the run's seed, so that runs with different seeds are
/// compared on the same examples.
template <class Input, class Head, LabelledText by_rule(const Settings& settings)>
class LabelledTask final : public Task, public HasOutputs {
 public:
  LabelledTask(const TaskEntry& entry, Settings given)
      : Task(entry, std::move(given)),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size),
        input_(settings_),
        head_(entry, settings_) {
    unit_ = Input::unit;
  }

  void prepare_training() override {
    remark_all(head_.review(parts_, unit_, input_.description()));
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    const Lengths lengths = input_.lengths(train_.inputs, model_as<Model>());
    if (Input::fits_batches && !is_fine_tuned()) remark(fit_batches(settings_, lengths[0], classes_.size()));
    plan_batches(lengths, training_batches(settings_));
    limit_epochs(is_fine_tuned() ? fine_tuning_epoch_limit : Input::epoch_limit);
    weights_ = example_weights(parts_.train, head_.balanced_classes(train_.targets));
    remark(steps_remark(settings_, batches(0)));
  }

  void solve() override {
    SparseLinear* const sparse = model_as<Model>().sparse();
    if (!sparse || !solves_linear_part(settings_)) return;
    const Batch rows = rows_for_linear(parts_.train, sparse->weight.size(1));
    SparseSamples samples{.kind = Head::output_kind};
    constexpr std::size_t at_once = 1024;
    for (std::size_t begin = 0; begin < rows.size(); begin += at_once) {
      const auto piece = std::span(rows).subspan(begin, std::min(at_once, rows.size() - begin));
      for (const TextFeatures& one : make_features(pick(train_.inputs, {piece.begin(), piece.end()})))
        samples.add(one.ids, one.values);
    }
    samples.targets = head_.sparse_targets(pick(train_.targets, rows));
    if (!weights_.empty()) samples.weights = pick(weights_, rows);
    samples.groups = groups_to_leave_out(parts_.train, rows);
    remark(linear_remark(sparse->fit(samples), samples.size(), std::ssize(train_.inputs)));
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    const Tensor deep = input_.deep_logits(model_as<Model>(), pick(train_.inputs, rows), context);
    const Tensor weights =
        weights_.empty() ? Tensor() : Tensor::from(pick(weights_, rows), {std::ssize(rows)}, deep.device());
    return head_.loss({deep}, pick(train_.targets, rows), weights, label_smoothing_);
  }

  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const std::vector<std::size_t> rows = sampled_rows(parts_.valid, sample());
    const Examples read = picked(valid_, Batch(rows.begin(), rows.end()));
    return evaluation(head_.measurement(fitted_scores(read), read.targets, parts_.valid.picked(rows)).metrics,
                      rows.size(), parts_.valid.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return answer_lines(
        lines, options, [&](const std::string& line) { return input_.item(line); },
        [&](const Items& items) { return head_.predictions(scores(items)); },
        [&](const Item& item, const std::string& name, CaptureFile& file) {
          input_.show(file, name, captured([&](Context& context) { logits({item}, context); }), item);
        });
  }

  TextReader reader(bool /*of_outputs*/) const override { return input_.reader(); }

  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    return head_.outputs(
        logits(inputs_of_lines(lines, [&](const std::string& line) { return input_.item(line); }), context));
  }

  static void check_training(const Settings& settings) { Head::check_training(settings); }

  static void read_rows(const Settings& settings, const std::string& file, const TakeText& take,
                        ReadReport& report) {
    Input::read_rows(settings, file, take, report);
  }

 protected:
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) {
      return read_labelled_parts(
          settings_, Head::has_classes, [&] { return by_rule(settings_); },
          [&](const std::string& path) { return input_.read(path, settings_, report); });
    });
    return digests_of(parts_, [](const LabelledText& text) { return compute_digest(text); });
  }

  NamedFiles learned_files() override {
    NamedFiles files =
        input_.learned_files(parts_.train, [&](const TextSource& texts) { return learned_tokenizer(texts); });
    files.merge(head_.learned_files(parts_.train));
    return files;
  }

  void open(const ReadFile& read) override {
    classes_ = head_.open(read);
    input_.open(read);
    truncation_message_ = [this] { return input_.take_truncation_message(); };
  }

  std::unique_ptr<Module> make_model() override {
    std::unique_ptr<Module> model =
        input_.make_model(encoder_config(input_.vocabulary(), head_.size()), trained(), batch_tokens());
    if (SparseLinear* const sparse = static_cast<Model&>(*model).sparse()) sparse->freeze();  // solve()
    return model;
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return input_.read(files.front(), layout, report);
    };
    return measured_data(parts_, source, read, [&](const LabelledText& text) {
      remark(head_.remark_on(text, unit_));
      const Examples examples = make_examples(text);
      if (!model_as<Model>().sparse())
        return head_.measurement(scores(examples.inputs), examples.targets, text);
      const std::vector<Output> parts = side_by_side(examples.inputs);
      const auto measured_by = [&](const auto& pick) {
        return head_.measurement(scores_of_parts(parts, pick), examples.targets, text);
      };
      Measurement found = measured_by([](const ClassLogits& both) { return both; });
      add_parts(found, measured_by([](const ClassLogits& both) { return ClassLogits{both.deep}; }),
                measured_by([](const ClassLogits& both) { return ClassLogits{both.sparse}; }));
      return found;
    });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return labelled_lines(shown_part(parts_), count);
  }

 private:
  using Model = typename Input::Model;
  using Item = typename Input::Item;
  using Items = std::vector<Item>;
  using Examples = TaskExamples<Item, typename Head::Target>;

  Examples make_examples(const LabelledText& text) {
    Examples examples{{}, head_.targets(text)};
    for (std::size_t i = 0; i < text.size(); ++i) {
      try {
        examples.inputs.push_back(input_.item(text, i));
      } catch (Error& error) {
        error.add_context(text.places[i] + ": ");
        throw;
      }
    }
    remark(input_.remark_on(text));
    return examples;
  }

  ClassLogits logits(const Items& items, Context& context) {
    Model& model = model_as<Model>();
    const Tensor deep = input_.deep_logits(model, items, context);
    if (!model.sparse()) return {deep};
    return class_logits(deep, model.sparse(), sparse_batch(make_features(items), model.device()));
  }

  /// Returns the sparse vectors of items; empty for images.
  std::vector<TextFeatures> make_features(const Items& items) {
    std::vector<TextFeatures> features(items.size());
    if constexpr (requires { &Input::features; }) {
      const std::int64_t count = model_as<Model>().sparse()->weight.size(0);
      parallel_for(std::ssize(items), [&](std::int64_t i) {
        const auto place = static_cast<std::size_t>(i);
        features[place] = input_.features(items[place], count);
      });
    }
    return features;
  }

  /// Returns make(logits) for each item.
  template <class Make>
  std::vector<Output> outputs(const Items& items, const Make& make) {
    return outputs_of(*this, items, input_.lengths(items, model_as<Model>()), batch_size_,
                      [&](const Items& batch, Context& context) { return make(logits(batch, context)); });
  }

  std::vector<Output> scores(const Items& items) {
    return outputs(items, [&](const ClassLogits& logits) { return head_.scores(logits); });
  }

  /// Returns the scores of held-out examples. If the model has two parts, fits their shares to them first.
  std::vector<Output> fitted_scores(const Examples& examples) {
    SparseLinear* const sparse = model_as<Model>().sparse();
    if (!sparse) return scores(examples.inputs);
    const std::vector<Output> parts = side_by_side(examples.inputs);
    head_.fit_shares(*sparse, parts, examples.targets);
    return scores_of_parts(parts, [](const ClassLogits& both) { return both; });
  }

  std::vector<Output> side_by_side(const Items& items) {
    return outputs(items, [](const ClassLogits& logits) { return logits.side_by_side(); });
  }

  /// Returns the scores of pick(logits), given the logits of both parts.
  template <class Pick>
  std::vector<Output> scores_of_parts(const std::vector<Output>& parts, const Pick& pick) {
    return outputs_of(*this, parts, {std::vector(parts.size(), 1), {}}, batch_size_,
                      [&](const std::vector<Output>& batch, Context& /*context*/) {
                        return head_.scores(pick(split_logits(batch, *model_as<Model>().sparse())));
                      });
  }

  const std::int64_t batch_size_;
  Input input_;
  Head head_;
  TextParts parts_;
  Examples train_, valid_;
  std::vector<float> weights_;  // of the examples to learn from; empty: all alike
};

}  // namespace heed
