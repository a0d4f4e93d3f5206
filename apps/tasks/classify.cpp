// Classification of texts or images: an encoder whose output, pooled over the tokens or patches, is mapped to the
// classes (models/classifier.h). Labelled examples come from files (apps/data/labelled_text.h); without them it
// learns the values of short ListOps expressions, made by rule.
//
// Files of a run beside the weights: classes.json, and tokenizer.json or, for images, image.txt. Parts of the data:
// train, valid, test.

#include "heed/apps/data/synthetic_texts.h"
#include "heed/apps/tasks/class_heads.h"
#include "heed/apps/tasks/inputs.h"

namespace heed {
namespace {

constexpr MetricKind class_metrics[] = {
    {"accuracy", true}, {"loss", false}, {"macro_f1", true}, {"micro_f1", true}};

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
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 128, .feed_forward = 256, .encoder_layers = 2}, Stacks::encoder,
                /*has_sparse_features=*/true);
  declare_training(settings, class_metrics);
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

/// The task: an input and a head.
std::unique_ptr<Learner> make_classifier(const TaskKind& kind, Settings settings) {
  const auto data = settings.read<LabelledData>("data");
  if (!ImageInput::reads(data) && data.label_separator.empty())
    return std::make_unique<LabelledLearner<SingleTextInput, ClassHead>>(kind, settings, draw_expressions);
  if (!ImageInput::reads(data))
    return std::make_unique<LabelledLearner<SingleTextInput, ClassSetHead>>(kind, settings, draw_expressions);
  if (data.label_separator.empty())
    return std::make_unique<LabelledLearner<ImageInput, ClassHead>>(kind, settings, draw_expressions);
  throw SettingsError("data.label_separator is for texts, not for images");
}

}  // namespace

const TaskKind& classify_task() {
  static const TaskKind kind = {
      .name = "classify",
      .summary = "Trains, evaluates and uses a classifier of texts",
      .stacks = Stacks::encoder,
      .metrics = class_metrics,
      .settings = classify_settings,
      .names_data = names_labelled_data,
      .make_learner = make_classifier,
      .examples = {{"",
                    {{"text", "A text"}, {"label", "The name of its class", true, "|"}, weight_of_example}}},
      .fine_tuning = for_fine_tuning};
  return kind;
}

}  // namespace heed
