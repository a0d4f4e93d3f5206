#include "heed/apps/tasks/labelled.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/ops.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {

bool names_labelled_data(const Settings& settings) {
  const auto split = settings.read<SplitOptions>("data");
  if (split.folds == 1 || split.fold > split.folds)
    throw SettingsError(concat_text("data.folds must be 0 or at least 2, and data.fold at most as many, not ",
                                    split.folds, " and ", split.fold));
  if (split.folds > 0 && (!settings.read<DataFiles>("data").test.empty() || split.test_fraction > 0))
    throw SettingsError(
        "data.folds makes test parts of data.file: leave out data.test and data.test_fraction ("
        "data.test_fraction)");
  return names_file(settings);
}

bool reads_pairs(const Settings& layout) {
  const auto data = layout.read<LabelledData>("data");
  const bool names_column = !data.first_column.empty() || !data.reading.second_column.empty();
  return layout.has("data.first_column") && (names_column || !layout.has("data.text_columns"));
}

LabelledOptions labelled_options(const Settings& layout, const std::string& path) {
  const auto data = layout.read<LabelledData>("data");
  LabelledOptions options = data.reading;
  options.pairs = reads_pairs(layout);
  if (options.pairs && !options.text_columns.empty())
    throw SettingsError(
        "data.text_columns names the columns of single texts: leave it out, or leave out "
        "data.first_column and data.second_column");
  options.numbers = !layout.has("data.label_type");
  options.drop_missing = data.missing == LabelledData::Missing::drop;
  if (!data.first_column.empty()) options.text_columns = {data.first_column};
  if (path != data.files.file) options.weight_column.clear();
  if (!data.labels.empty())
    throw SettingsError(
        concat_text("data.labels (\"", data.labels,
                    "\") is for images, data.format=idx; texts have their labels in the same file"));
  if (options.format.empty() && std::filesystem::is_regular_file(path) && labelled_format(path).empty())
    throw SettingsError(concat_text(
        path, ": its name does not say how it is laid out; give ",
        options.pairs ? "data.format=tsv, csv or jsonl"
                      : concat_text("data.format=lines (a ", options.numbers ? "number" : "label",
                                    ", a space and a text on each line), data.format=csv, tsv or jsonl")));
  return options;
}

namespace {

/// Stores the column names of the training file in the settings if it has a header, because other
/// files are read with the same columns.
void keep_columns(Settings& settings, const LabelledText& train) {
  if (train.columns.empty()) return;
  const auto keep = [&](const char* setting, const nlohmann::json& columns) {
    settings.set_json(setting, columns.dump(), "the header");
  };
  keep("data.label_column", train.columns[0]);
  if (!reads_pairs(settings)) {
    keep("data.text_columns", std::vector(train.columns.begin() + 1, train.columns.end()));
  } else {
    keep("data.second_column", train.columns[1]);
    keep("data.first_column", train.columns[2]);
  }
}

}  // namespace

TextParts read_labelled_parts(Settings& settings, bool has_classes,
                              const std::function<LabelledText()>& by_rule,
                              const std::function<LabelledText(const std::string& path)>& read) {
  auto split = settings.read<SplitOptions>("data");
  split.classes = has_classes;
  if (!names_labelled_data(settings)) return split_text(by_rule(), split);
  const auto files = settings.read<DataFiles>("data");
  return parts_of_files(
      files, split.valid_fraction, split.test_fraction,
      [&](const std::string& path) {
        LabelledText text = read(path);
        if (path != files.file) return text;
        if (has_classes) check_labels(text, path);
        keep_columns(settings, text);
        return text;
      },
      [&](const LabelledText& all, double valid_fraction, double test_fraction) {
        split.valid_fraction = valid_fraction, split.test_fraction = test_fraction;
        return split_text(all, split);
      });
}

void check_labels(const LabelledText& text, std::string_view origin) {
  constexpr std::size_t many = 200, few_texts = 3;
  std::unordered_set<std::string_view> labels;
  const auto is_bad = [&] { return labels.size() > many && labels.size() * few_texts > text.size(); };
  for (std::size_t i = 0; i < text.size() && !is_bad(); ++i) labels.insert(text.labels[i]);
  if (!is_bad()) return;
  std::vector<std::string> columns;
  for (const std::string& name : text.first_line)
    columns.push_back(concat_text(columns.size() + 1, " (", quoted_label(name), ')'));
  throw SettingsError(
      concat_text(origin, ": its ", text.size(), " texts have more than ", labels.size() - 1,
                  " different labels, fewer than ", few_texts, " texts each; such as ",
                  quoted_label(text.labels[0]), " and ", quoted_label(text.labels[text.size() - 1]), ". ",
                  columns.empty() ? "Many texts must share a label: is data.format right?"
                                  : "Is the label in another column? data.label_column=N names it; the "
                                    "first line has the columns " +
                                        listed(columns, 20)));
}

std::string quoted_label(std::string_view label) {
  return concat_text('"', unicode::shortened(label, 40), '"');
}

std::string text_at(const LabelledText& text, std::size_t index) {
  std::string whole(text.texts[index]);
  if (!text.seconds.empty()) whole.append("\t").append(text.seconds[index]);
  return whole;
}

std::vector<std::string> labelled_lines(const LabelledText& text, std::size_t count) {
  TextList lines;
  for (std::size_t i = 0; i < text.size(); ++i) lines.push_back(text_at(text, i));
  return short_lines(lines, count);
}

std::string fit_batches(Settings& settings, std::span<const std::int32_t> lengths, std::size_t classes) {
  const std::string path = "training.batch_tokens";
  if (settings.setting(path).is_given || lengths.empty()) return "";
  const double mean =
      std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  const std::int64_t tokens = std::min<std::int64_t>(std::llround(mean * static_cast<double>(classes)), 4096);
  if (tokens <= settings.get<std::int64_t>(path)) return "";
  settings.set(path, std::to_string(tokens), "the data");
  return concat_text(path, " = ", tokens, ", for about a text of each class in a batch: the texts have ",
                     std::llround(mean), " tokens on average");
}

std::string steps_remark(const Settings& settings, std::int64_t batches) {
  const auto options = settings.read<TrainerOptions>("training");
  const std::int64_t steps = options.steps;
  if (options.epochs > 0 || steps >= batches) return "";
  return concat_text("training.steps = ", steps, " end before all ", batches,
                     " batches were read once: train for more steps on this much data");
}

std::vector<float> example_weights(const LabelledText& text, std::span<const std::int32_t> classes) {
  if (text.weights.empty() && classes.empty()) return {};
  std::vector<double> weights(text.weights.begin(), text.weights.end());
  if (weights.empty()) weights.resize(classes.size(), 1);
  std::unordered_map<std::int32_t, double> counts;
  for (const std::int32_t label : classes) ++counts[label];
  for (std::size_t i = 0; i < classes.size(); ++i) weights[i] /= counts[classes[i]];
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  check(sum > 0, "all ", weights.size(), " examples have the weight 0 (data.weight_column), so none counts");
  std::vector<float> scaled;
  for (const double weight : weights)
    scaled.push_back(static_cast<float>(weight / sum * static_cast<double>(weights.size())));
  return scaled;
}

std::vector<std::size_t> sampled_rows(const LabelledText& text, std::int64_t most) {
  std::vector<std::size_t> rows(text.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const auto all = static_cast<std::int64_t>(rows.size());
  if (most == 0 || all <= most) return rows;
  const std::vector<std::size_t> groups = group_by_first_text(text);
  const auto count = static_cast<std::int64_t>(groups.back()) + 1;
  const Batch chosen =
      spread_over(static_cast<std::size_t>(count), std::max<std::int64_t>(count * most / all, 1));
  std::erase_if(rows, [&](std::size_t row) {
    return !std::ranges::binary_search(chosen, static_cast<std::int32_t>(groups[row]));
  });
  return rows;
}

void add_parts(Measurement& whole, const Measurement& encoder, const Measurement& linear) {
  using Json = nlohmann::ordered_json;
  const std::string name = whole.metrics.front().name;
  Json json = Json::parse(whole.json);
  json["encoder_" + name] = Json::parse(encoder.json).at(name);
  json["linear_" + name] = Json::parse(linear.json).at(name);
  whole.json = json.dump();
}

Batch rows_for_linear(const LabelledText& text, std::int64_t outputs) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    bytes += text.texts[i].size() + (text.seconds.empty() ? 0 : text.seconds[i].size());
  const auto count = static_cast<double>(text.size());
  const double most = std::min(count * std::min(1., 0x1p24 / static_cast<double>(bytes + 1)),
                               0x1p23 / static_cast<double>(outputs));
  return spread_over(text.size(), std::max<std::int64_t>(1, std::llround(most)));
}

std::string vectors_folder(const Settings& settings) {
  const std::string folder = settings.read<StaticVectorSettings>("training").vectors;
  if (!folder.empty() && settings.read<ModelSizes>("model").sparse_features == 0)
    throw SettingsError("training.vectors are for the linear part, but model.sparse_features is 0");
  return folder;
}

std::string linear_remark(const SparseLinear::Fit& fit, std::int64_t count, std::int64_t all) {
  return concat_text("the linear part learned ",
                     count < all ? concat_text("from ", count, " of ", all, " examples, ") : "",
                     "with C = ", fit.strength, fit.weighting.uses_ratios ? " and count ratios" : "",
                     fit.weighting.uses_vector ? "" : ", without the vectors",
                     fit.loss > 0 ? formatted("; its loss on examples left out is %.3g", fit.loss) : "");
}

std::vector<std::int32_t> groups_to_leave_out(const LabelledText& text, const Batch& rows) {
  std::vector<std::int32_t> fewest(rows.size());
  std::iota(fewest.begin(), fewest.end(), 0);
  std::size_t count = rows.size();
  for (const TextList* const side : {&text.texts, &text.seconds}) {
    if (side->size() == 0) continue;
    std::unordered_map<std::string_view, std::int32_t> group_of;
    std::vector<std::int32_t> groups;
    for (const std::int32_t row : rows) {
      const auto next = static_cast<std::int32_t>(group_of.size());
      groups.push_back(group_of.emplace((*side)[static_cast<std::size_t>(row)], next).first->second);
    }
    if (group_of.size() < 20 || group_of.size() >= count) continue;
    count = group_of.size();
    fewest = std::move(groups);
  }
  return fewest;
}

ClassLogits split_logits(const std::vector<Output>& side_by_side, const SparseLinear& sparse) {
  std::vector<float> all;
  for (const Output& row : side_by_side) all.insert(all.end(), row.begin(), row.end());
  const auto rows = std::ssize(side_by_side), classes = std::ssize(side_by_side.front()) / 2;
  const Tensor parts =
      Tensor::from(all, {rows, 2 * classes}).to(sparse.shares.dtype()).to(sparse.shares.device());
  return {slice(parts, 1, 0, classes), slice(parts, 1, classes, 2 * classes), sparse.shares};
}

SparseBatch sparse_batch(const std::vector<TextFeatures>& features, Device device) {
  std::vector<Tokens> ids;
  for (const TextFeatures& row : features) ids.push_back(row.ids);
  SparseBatch batch = {pad_tokens(ids, device).ids, {}};
  std::vector<float> values;
  const auto width = static_cast<std::size_t>(batch.ids.size(1));
  for (std::size_t row = 0; row < features.size(); ++row) {
    values.insert(values.end(), features[row].values.begin(), features[row].values.end());
    values.resize((row + 1) * width, 0);
  }
  batch.values = Tensor::from(values, batch.ids.shape(), device);
  return batch;
}

}  // namespace heed
