#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/data/table.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/task.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/base/json.h"
#include "heed/models/layers.h"
#include "heed/training/checkpoint.h"
#include "heed/training/optimizer.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// --- the model of another run

/// Returns a run's config.json.
Json read_config(const RunFiles& files) {
  return parse_json<Json>(files.config(), "config.json");
}

bool is_of_model(const std::string& setting) {
  for (const char* const group : {"model.", "tokenizer.", "news.", "user."})
    if (setting.starts_with(group)) return !setting.starts_with("model.lora_") && setting != "tokenizer.file";
  return false;
}

/// Returns the value of a setting in a configuration; null: it has none.
Json value_in(const Json& config, std::string setting) {
  std::ranges::replace(setting, '.', '/');
  return config.value(Json::json_pointer("/" + setting), Json());
}

/// Returns the value of a model setting in a run; null: unknown. A single stack may be an encoder
/// here and a decoder there. A setting that the run's task does not have gets TransformerConfig's
/// default, except sparse_features, which keeps the default of this task.
Json value_there(const Json& config, const std::string& setting) {
  if (Json value = value_in(config, setting); !value.is_null()) return value;
  for (const auto& [one, other] : {std::pair<std::string, std::string>("model.encoder_", "model.decoder_"),
                                   {"model.decoder_", "model.encoder_"}})
    if (setting.starts_with(one))
      if (Json value = value_in(config, other + setting.substr(one.size())); !value.is_null()) return value;
  if (setting == "model.sparse_features") return {};
  const Json defaults = {{"model", Json::parse(to_json(TransformerConfig()))}};
  return value_in(defaults, setting);
}

/// Returns the setting that limits the tokens a model reads, and the positions per token: a joint
/// pair model has two positions per token.
std::pair<std::string, std::int64_t> length_setting(const Json& config) {
  if (!value_in(config, "model.max_length").is_null()) return {"model.max_length", 1};
  return {"data.max_tokens", value_in(config, "model.kind") == "joint" ? 2 : 1};
}

bool has_both_stacks(const Json& config) {
  return !value_in(config, "model.encoder_layers").is_null() &&
         !value_in(config, "model.decoder_layers").is_null();
}

void take_model(Settings& settings, const RunFiles& files);

/// Returns the settings that differ from the run: "model.norm is post here and pre there".
std::vector<std::string> differences(const Settings& settings, const RunFiles& files) {
  Settings there = settings;
  take_model(there, files);
  std::vector<std::string> found;
  for (const Setting& one : settings.declared())
    if (const std::string ours = settings.json(one.name), theirs = there.json(one.name); ours != theirs)
      found.push_back(concat_text(one.name, " is ", ours, " here and ", theirs, " there"));
  return found;
}

// --- its weights

/// Returns the weights of a run, with LoRA merged.
RunFiles::Weights read_weights(const RunFiles& files) {
  RunFiles::Weights saved = files.weights(files.has_best() ? "best" : "last");
  const Json model = read_config(files).value("model", Json::object());
  TransformerConfig config;
  config.lora_rank = model.value("lora_rank", std::int64_t{0});
  config.lora_alpha = model.value("lora_alpha", 1.0);
  if (config.lora_rank > 0) saved.tensors = merge_low_rank(std::move(saved.tensors), config);
  return saved;
}

/// Returns a weight's name in the run: the title encoder of a recommender is below "title", and
/// encoder layers may be decoder layers, whose attention has another name.
std::string name_there(std::string name, const std::map<std::string, Tensor>& saved) {
  const auto rename = [&](std::string_view from, std::string_view to) {
    if (const std::size_t at = name.find(from); at != name.npos && !saved.contains(name))
      name.replace(at, from.size(), to);
  };
  if (name.starts_with("title.")) rename("title.", "");
  if (!name.starts_with("encoder.")) return name;
  rename("encoder", "decoder");
  rename(".attention", ".self_attention");
  return name;
}

/// Returns the first rows of a table of learned positions, which may be longer in the run.
Tensor fitted(const std::string& name, const Tensor& saved, const Tensor& own) {
  const bool is_longer = name.ends_with("positions.weight") && saved.rank() == 2 && own.rank() == 2 &&
                         saved.size(1) == own.size(1) && saved.size(0) > own.size(0);
  if (!is_longer) return saved;
  const NoGrad no_grad;
  return contiguous(slice(saved, 0, 0, own.size(0)));
}

/// Returns the parts of a model that have another meaning in the run, even if the shapes match: the
/// output layer for other classes, and the vectors of categories and news items of another
/// catalogue (news_catalogue.h).
std::vector<std::string> foreign_parts(const Task& task, const RunFiles& files) {
  if (files.task() != task.entry().name) return {"output", "sparse", "category", "identity"};
  std::vector<std::string> foreign;
  const std::map<std::string, std::string>& own = task.files();
  if (own.contains("classes.json") && own.at("classes.json") != files.text("classes.json"))
    foreign = {"output", "sparse"};
  if (!own.contains("news.json")) return foreign;
  const Json here = Json::parse(own.at("news.json")), there = Json::parse(files.text("news.json"));
  for (const auto& [part, list] : {std::pair("category", "categories"), {"identity", "identities"}})
    if (here.value(list, Json()) != there.value(list, Json())) foreign.emplace_back(part);
  return foreign;
}

bool lies_in_any(const std::vector<std::string>& parts, const std::string& name) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return lies_in(name, part); });
}

/// The correspondence of a model's weights and a run's, by the model's names.
struct Match {
  std::map<std::string, Tensor> fitting;
  std::map<std::string, std::string> faults;  ///< why a weight cannot be had
  std::vector<std::string> unused;            ///< weights of the run, by its names
};

Match match_weights(const std::map<std::string, Tensor>& model, const std::map<std::string, Tensor>& saved,
                    const std::vector<std::string>& ignored, const std::vector<std::string>& foreign) {
  Match match;
  std::set<std::string> met;
  for (const auto& [name, own] : model) {
    if (name.ends_with(".lora_a") || name.ends_with(".lora_b")) continue;
    const auto found = saved.find(name_there(name, saved));
    if (lies_in_any(ignored, name)) {
      if (found != saved.end()) met.insert(found->first);
      continue;
    }
    if (found == saved.end()) {
      match.faults[name] = "not there";
      continue;
    }
    met.insert(found->first);
    const Tensor there = fitted(name, found->second, own);
    if (lies_in_any(foreign, name))
      match.faults[name] = "which means something else there";
    else if (there.shape() != own.shape() || there.dtype() != own.dtype())
      match.faults[name] = concat_text(own.shape(), " here and ", there.shape(), " there");
    else
      match.fitting[name] = there;
  }
  for (const auto& [name, tensor] : saved)
    if (!met.contains(name)) match.unused.push_back(name);
  return match;
}

/// Returns the largest parts of the model that contain only weights that do not match.
std::vector<std::string> parts_to_ignore(const Match& match) {
  std::vector<std::string> parts;
  for (const auto& [name, why] : match.faults) {
    std::string part;
    do part = name.substr(0, name.find('.', part.size() + 1));
    while (part != name &&
           std::ranges::any_of(match.fitting, [&](const auto& one) { return lies_in(one.first, part); }));
    if (parts.empty() || parts.back() != part) parts.push_back(part);
  }
  return parts;
}

void take_weights(Task& task, const TrainingSettings& training, Start& start) {
  const std::string from = "training.from " + training.from;
  const std::shared_ptr<const RunFiles> opened = open_run(training.from);
  const RunFiles& files = *opened;
  const RunFiles::Weights saved = read_weights(files);
  const std::vector<std::string> ignored = reinitialized_parts(task.settings());
  for (const std::string& part : split_at_commas(training.ignore))
    check_part(task.model(), part, "to start afresh (training.ignore)");
  const std::map<std::string, Tensor> own = model_state(task.model());
  const Match match = match_weights(own, saved.tensors, ignored, foreign_parts(task, files));
  const std::vector<std::string> others = differences(task.settings(), files);
  const std::string differing = others.empty() ? "" : "the settings differ: " + listed(others, 20);
  std::vector<std::string> faults;
  for (const auto& [name, why] : match.faults) faults.push_back(concat_text(name, " (", why, ')'));
  std::string parts;
  for (const std::string& part : parts_to_ignore(match)) parts += (parts.empty() ? "" : ",") + part;
  if (!faults.empty())
    throw SettingsError(concat_text(from, ": the run lacks weights of this model: ", listed(faults, 20), "; ",
                                    differing, differing.empty() ? "" : "; ",
                                    "to start these parts from new weights, give training.ignore=", parts));
  std::vector<std::pair<std::string, Tensor>> targets;
  for (const auto& [name, tensor] : match.fitting) targets.emplace_back(name, own.at(name));
  copy_named_tensors(match.fitting, targets, from);
  task.model().state_changed();
  start.origin.insert({{"task", files.task()}, {"identity", files.identity()}, {"weights", saved.digest}});
  start.remarks = files.remarks();
  start.remarks.push_back(concat_text("from the ", files.task(), " run ", training.from,
                                      ": its tokenizer and ", targets.size(), " of ", own.size(),
                                      " weights"));
  if (!match.unused.empty())
    start.remarks.push_back("without a place in this model: " + listed(match.unused, 5));
  if (!differing.empty()) start.remarks.push_back(differing);
}

// --- vectors of words

bool is_embedding(const std::string& name) {
  return name == "embedding.weight" || name == "source_embedding.weight" || name == "target_embedding.weight";
}

/// Returns the vectors of a file by the ids of their words; of repeated words, the first counts.
std::map<std::int32_t, std::vector<float>> vectors_by_id(const std::string& path, std::int64_t width,
                                                         const Tokenizer& tokenizer) {
  std::map<std::int32_t, std::vector<float>> found;
  read_word_vectors(path, width, [&](std::string_view word, std::span<const float> values) {
    if (const auto id = tokenizer.find(word)) found.emplace(*id, std::vector(values.begin(), values.end()));
  });
  return found;
}

void take_embeddings(Task& task, const std::string& path, Start& start) {
  const std::map<std::string, std::string> files = task.files();
  const TransformerConfig model = model_config(task.settings());
  const double scale = model.scale_embeddings ? std::sqrt(static_cast<double>(model.width)) : 1;
  bool any = false;
  check(files.contains("tokenizer.json"), "training.embeddings ", path,
        ": vectors of words, but the data are images");
  for (const NamedTensor& named : task.model().parameters()) {
    if (!is_embedding(named.name)) continue;
    const bool own = named.name.starts_with("target_") && files.contains("target_tokenizer.json");
    const std::string file = own ? "target_tokenizer.json" : "tokenizer.json";
    const Tokenizer tokenizer = Tokenizer::from_json(files.at(file), file);
    const auto found = vectors_by_id(path, model.width, tokenizer);
    any = any || !found.empty();
    std::vector<float> rows = named.tensor->detach().to_vector<float>();
    for (const auto& [id, values] : found)
      for (std::size_t i = 0; i < values.size(); ++i)
        rows[static_cast<std::size_t>(id) * values.size() + i] = static_cast<float>(values[i] / scale);
    named.tensor->detach().assign(std::span<const float>(rows));
    start.remarks.push_back(concat_text(path, " has vectors for ", found.size(), " of the ",
                                        tokenizer.vocabulary_size(), " tokens of ", named.name,
                                        "; the others start from random vectors"));
  }
  check(any, path, ": none of its words is in the vocabulary");
  start.origin["embeddings"] = file_digest(path);
  task.model().state_changed();
}

}  // namespace

void check_start(const Settings& settings) {
  const auto training = settings.read<TrainingSettings>("training");
  const auto tokenizer = settings.read<VocabularySettings>("tokenizer");
  if (!training.from.empty() && !tokenizer.file.empty())
    throw SettingsError("training.from includes a tokenizer: leave out tokenizer.file");
  if (!training.embeddings.empty() && training.from.empty() && tokenizer.file.empty() &&
      tokenizer.kind != "words" && tokenizer.kind != "auto")
    throw SettingsError("training.embeddings are vectors of whole words: set tokenizer.kind=words");
}

bool solves_linear_part(const Settings& settings) {
  return settings.read<ModelSizes>("model").sparse_features > 0 &&
         std::ranges::count(split_at_commas(settings.read<TrainingSettings>("training").freeze), "sparse") ==
             0;
}

std::vector<std::string> reinitialized_parts(const Settings& settings) {
  std::vector<std::string> parts = split_at_commas(settings.read<TrainingSettings>("training").ignore);
  if (solves_linear_part(settings) && std::ranges::count(parts, "sparse") == 0) parts.emplace_back("sparse");
  return parts;
}

void apply_model_settings(Settings& settings, const std::string& run) {
  take_model(settings, *open_run(run));
  settings.change_defaults("{}");
}

namespace {

void take_model(Settings& settings, const RunFiles& files) {
  const Json there = read_config(files);
  const std::string run = files.path().string(), origin = concat_text("the run ", run);
  if (has_both_stacks(there) != has_both_stacks(Json::parse(settings.json())))
    throw SettingsError(
        "training.from " + run +
        ": weights cannot be shared between an encoder-decoder and a model with a single stack");
  for (const Setting& one : settings.declared())
    if (is_of_model(one.name) && one.name != "model.max_length")
      if (const Json value = value_there(there, one.name); !value.is_null())
        settings.set_json(one.name, value.dump(), origin);
  const auto [ours, factor] = length_setting(Json::parse(settings.json()));
  const auto [theirs, its_factor] = length_setting(there);
  if (const Json length = value_in(there, theirs); length.is_number_integer())
    settings.set(ours,
                 std::to_string(std::max<std::int64_t>(length.get<std::int64_t>() * its_factor / factor, 1)),
                 origin);
}

}  // namespace

Start initialize_weights(Task& task) {
  Start start;
  const auto training = task.settings().read<TrainingSettings>("training");
  if (!training.from.empty()) take_weights(task, training, start);
  if (!training.embeddings.empty()) take_embeddings(task, training.embeddings, start);
  return start;
}

Start restore_start(Task& task, const RunFiles& files) {
  Start start = initialize_weights(task);
  check(start.origin == files.origin(),
        "the sources of the initial weights (training.from, training.embeddings) have changed: restore them, "
        "or train a new run");
  return start;
}

}  // namespace heed
