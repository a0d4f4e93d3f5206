#include "heed/apps/tasks/start.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/data/table.h"
#include "heed/models/layers.h"
#include "heed/training/checkpoint.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// --- weights of another run

/// Parts of models that do the same for one stack or another.
constexpr std::array<std::array<std::string_view, 3>, 3> kinds_of_parts = {
    {{"embedding", "source_embedding", "target_embedding"},
     {"input", "source", "target"},
     {"encoder", "decoder", ""}}};

std::string_view part_of(std::string_view name) {
  return name.substr(0, name.find('.'));
}

/// The names of another run's weights that serve for those of a model.
class Names {
 public:
  /// `foreign`: parts that mean something else there.
  Names(const std::map<std::string, Tensor>& saved, std::set<std::string_view> foreign)
      : foreign_(std::move(foreign)) {
    for (const auto& [name, tensor] : saved) {
      parts_.emplace(part_of(name));
      has_cross_attention_ = has_cross_attention_ || name.find(".cross_attention.") != name.npos;
    }
  }

  /// "" when there is none. What reads the titles of a recommender has the parts of an encoder below "title".
  std::string of(const std::string& name) const {
    constexpr std::string_view title = "title.";
    if (name.starts_with(title) && !parts_.contains("title")) return of(name.substr(title.size()));
    const std::string_view part = part_of(name);
    if (foreign_.contains(part)) return "";
    const std::string other(other_part(part));
    std::string result = other + name.substr(part.size());
    // The layers of an encoder have one attention, those of a decoder may have two.
    if (part == "encoder" && other == "decoder") rename(result, ".attention", ".self_attention");
    if (part == "decoder" && other == "encoder") rename(result, ".self_attention", ".attention");
    return other.empty() ? "" : result;
  }

 private:
  std::string_view other_part(std::string_view part) const {
    if (parts_.contains(part)) return part;
    for (const auto& kind : kinds_of_parts)
      if (std::find(kind.begin(), kind.end(), part) != kind.end())
        for (const std::string_view other : kind)
          if (parts_.contains(other) && !(other == "decoder" && has_cross_attention_)) return other;
    return "";
  }

  static void rename(std::string& name, std::string_view from, std::string_view to) {
    if (const std::size_t at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
  }

  std::set<std::string_view> foreign_;
  bool has_cross_attention_ = false;
  std::set<std::string, std::less<>> parts_;
};

bool has_like_stacks(const Json& here, const Json& there) {
  const auto has_both = [](const Json& config) {
    const Json model = config.value("model", Json::object());
    return model.contains("encoder_layers") && model.contains("decoder_layers");
  };
  return has_both(here) == has_both(there);
}

/// Whether a model that starts from another takes the other's value of the setting.
bool is_taken(const Setting& setting, bool like_stacks) {
  return setting.from == From::taken || setting.from == From::shape ||
         (setting.from == From::like && like_stacks);
}

bool is_of(std::string_view group, const Setting& setting) {
  return setting.name.starts_with(group) && setting.name[group.size()] == '.';
}

/// The value that a configuration has for a setting; null: none. An encoder has the layers of a decoder, and
/// the other way round.
Json value_there(const Json& config, const std::string& setting) {
  const auto at = [&](std::string name) {
    std::ranges::replace(name, '.', '/');
    return config.value(Json::json_pointer("/" + name), Json());
  };
  const Json value = at(setting);
  constexpr std::string_view encoder = "model.encoder_", decoder = "model.decoder_";
  if (!value.is_null() || !(setting.starts_with(encoder) || setting.starts_with(decoder))) return value;
  const std::string_view other = setting.starts_with(encoder) ? decoder : encoder;
  return at(std::string(other) + setting.substr(other.size()));
}

/// Adds "tokenizer.kind is bpe here and words there", unless the two are alike or not both there.
void add_difference(std::vector<std::string>& found, const std::string& name, const Json& ours,
                    const Json& theirs) {
  if (!ours.is_null() && !theirs.is_null() && ours != theirs)
    found.push_back(concat_text(name, " is ", ours.dump(), " here and ", theirs.dump(), " there"));
}

/// Settings that the other run's tokenizer overrules. "begin" stands before what is written by models with
/// both stacks, and before what is read by others.
std::vector<std::string> overruled(const Settings& settings, const RunFiles& files) {
  const Json here = Json::parse(settings.json()), there = Json::parse(files.config());
  std::vector<std::string> found;
  for (const Setting& one : settings.declared())
    if (is_of("tokenizer", one) && is_taken(one, has_like_stacks(here, there)))
      add_difference(found, one.name, value_there(here, one.name), value_there(there, one.name));
  return found;
}

/// The setting that says how many tokens a model reads, and how many positions the model has for each: one
/// that reads two texts at once has two.
std::pair<std::string, std::int64_t> length_setting(const Json& config) {
  const Json model = config.value("model", Json::object());
  if (model.contains("max_length")) return {"model.max_length", 1};
  return {"data.max_tokens", model.value("kind", "") == "joint" ? 2 : 1};
}

/// The positions of a model; 0: its settings do not say.
std::int64_t positions_of(const Json& config) {
  const auto [setting, factor] = length_setting(config);
  return factor * (setting == "model.max_length"
                       ? config["model"]["max_length"].get<std::int64_t>()
                       : config.value("data", Json::object()).value("max_tokens", std::int64_t{0}));
}

/// Whether a mechanism may have weights, clusters or strides that follow from the positions.
bool attention_counts_positions(const Json& model) {
  for (const char* const name : {"encoder_attention", "decoder_attention", "cross_attention"}) {
    if (!model.contains(name)) continue;
    for (const Json& one : model[name].is_array() ? model[name] : Json::array({model[name]}))
      if (const Json kind = one.is_object() ? one.value("name", Json("dot_product")) : one;
          kind != "dot_product" && kind != "none")
        return true;
  }
  return false;
}

/// "model.norm is post here and pre there": settings by which the models differ.
std::vector<std::string> differences(const Settings& settings, const RunFiles& files) {
  const Json here = Json::parse(settings.json()), there = Json::parse(files.config()),
             defaults = {{"model", Json::parse(to_json(TransformerConfig()))}};
  std::vector<std::string> found;
  for (const Setting& one : settings.declared()) {
    const bool shapes = one.from == From::compared ||
                        (one.from != From::taken && is_taken(one, has_like_stacks(here, there)));
    if (!shapes || is_of("tokenizer", one) || one.name == "model.max_length") continue;
    Json theirs = value_there(there, one.name);
    // What the other model does not read has its default there.
    if (theirs.is_null() && !one.name.ends_with("_layers") && one.kind != Setting::Kind::attention)
      theirs = value_there(defaults, one.name);
    add_difference(found, one.name, value_there(here, one.name), theirs);
  }
  const auto [setting, factor] = length_setting(here);
  const std::int64_t ours = positions_of(here), theirs = positions_of(there);
  const Json& model = here.at("model");
  if (theirs > 0 && (attention_counts_positions(model) || (model["positions"] == "learned" && ours > theirs)))
    add_difference(found, setting, ours / factor, std::max<std::int64_t>(theirs / factor, 1));
  return found;
}

/// The weights of a run, its low-rank parts merged.
RunFiles::Weights weights_of(const RunFiles& files) {
  RunFiles::Weights saved = files.weights(files.has_best() ? "best" : "last");
  const Json model = Json::parse(files.config()).value("model", Json::object());
  TransformerConfig config;
  config.lora_rank = model.value("lora_rank", std::int64_t{0});
  config.lora_alpha = model.value("lora_alpha", 1.0);
  if (config.lora_rank > 0) saved.tensors = merged_low_rank(std::move(saved.tensors), config);
  return saved;
}

/// A table of learned positions may be longer there: the first rows serve.
Tensor fitted(const std::string& name, const Tensor& saved, const Tensor& own) {
  const bool is_longer = name.ends_with("positions.weight") && saved.rank() == 2 && own.rank() == 2 &&
                         saved.size(1) == own.size(1) && saved.size(0) > own.size(0);
  if (!is_longer) return saved;
  const NoGrad no_grad;
  return contiguous(slice(saved, 0, 0, own.size(0)));
}

/// Whether what a model answers means the same in the run: its task, and its classes in their order.
bool answers_alike(const Learner& learner, const RunFiles& files) {
  if (files.task() != learner.kind().name) return false;
  const std::map<std::string, std::string> own = learner.files();
  const auto classes = own.find("classes.json");
  return classes == own.end() || classes->second == files.text("classes.json");
}

/// The parts of a model that mean something else in the run: what tells the classes of other data, and
/// vectors of the categories and the single news of another catalogue (news_catalogue.h).
std::set<std::string_view> foreign_parts(const Learner& learner, const RunFiles& files) {
  if (!answers_alike(learner, files)) return {"output", "pairs", "category", "identity"};
  const std::map<std::string, std::string> own = learner.files();
  const auto news = own.find("news.json");
  if (news == own.end()) return {};
  const Json here = Json::parse(news->second), there = Json::parse(files.text("news.json"));
  std::set<std::string_view> foreign;
  const auto differs = [&](const char* list) {
    return here.value(list, Json()) != there.value(list, Json());
  };
  if (differs("categories")) foreign.insert("category");
  if (differs("identities")) foreign.insert("identity");
  return foreign;
}

void take_weights(Learner& learner, const std::string& from, Start& start) {
  const RunFiles files = RunFiles::open(from);
  const RunFiles::Weights saved = weights_of(files);
  const Names names(saved.tensors, foreign_parts(learner, files));
  std::map<std::string, Tensor> fitting;
  std::vector<std::pair<std::string, Tensor>> targets;
  std::vector<std::string> misfits, changed, fresh, left;
  std::set<std::string> met;  // of the run's weights
  const std::map<std::string, Tensor> own = model_state(learner.model());
  const std::vector<std::string> others = differences(learner.settings(), files);
  const bool other_attention = std::ranges::any_of(
      others, [](const std::string& one) { return one.find("_attention is ") != one.npos; });
  for (const auto& [name, tensor] : own) {
    const auto found = saved.tensors.find(names.of(name));
    if (found != saved.tensors.end()) met.insert(found->first);
    const Tensor there = found == saved.tensors.end() ? Tensor() : fitted(name, found->second, tensor);
    if (!there.defined()) {
      fresh.push_back(name);
    } else if (there.shape() != tensor.shape() || there.dtype() != tensor.dtype()) {
      const bool is_of_attention = name.find("attention.") != name.npos;
      (other_attention && is_of_attention ? changed : misfits)
          .push_back(concat_text(name, " ", tensor.shape(), " (there ", found->second.shape(), ")"));
    } else {
      fitting.emplace(name, there);
      targets.emplace_back(name, tensor);
    }
  }
  for (const auto& [name, tensor] : saved.tensors)
    if (!met.contains(name)) left.push_back(name);
  check(misfits.empty(), "--from ", from, ": weights of the run have another shape in this model: ",
        others.empty() ? "the data is of another size" : listed(others, 20),
        others.empty() ? "" : "; leave these settings out, and they are the run's", " (", listed(misfits, 5),
        ")");
  check(!fitting.empty(), "--from ", from, ": no weight of the run fits the model",
        others.empty() ? "" : ": ", listed(others, 5));
  copy_named_tensors(fitting, targets, "--from " + from);
  learner.model().state_changed();
  start.origin.insert({{"task", files.task()}, {"identity", files.identity()}, {"weights", saved.digest}});
  start.remarks.push_back(concat_text("from the ", files.task(), " run ", from, ": its tokenizer and ",
                                      fitting.size(), " of ", own.size(), " weights"));
  if (!changed.empty())
    start.remarks.push_back("not from there, since another attention has other shapes: " +
                            listed(changed, 5));
  if (!fresh.empty()) start.remarks.push_back("new in this model: " + listed(fresh, 5));
  if (!left.empty()) start.remarks.push_back("without a place in this model: " + listed(left, 5));
  if (!others.empty()) start.remarks.push_back("the models differ: " + listed(others, 5));
  if (const auto settings = overruled(learner.settings(), files); !settings.empty())
    start.remarks.push_back("the tokenizer is that of the run: " + listed(settings, 5));
}

// --- vectors of words

bool is_embedding(const std::string& name) {
  return name == "embedding.weight" || name == "source_embedding.weight" || name == "target_embedding.weight";
}

/// The vectors of a file by the ids of their words; of a word that comes twice the first.
std::map<std::int32_t, std::vector<float>> vectors_by_id(const std::string& path, std::int64_t width,
                                                         const Tokenizer& tokenizer) {
  std::map<std::int32_t, std::vector<float>> found;
  read_word_vectors(path, width, [&](std::string_view word, std::span<const float> values) {
    if (const auto id = tokenizer.find(word)) found.emplace(*id, std::vector(values.begin(), values.end()));
  });
  return found;
}

void take_embeddings(Learner& learner, const std::string& path, Start& start) {
  const std::map<std::string, std::string> files = learner.files();
  const auto width = learner.settings().get<std::int64_t>("model.width");
  const double scale =
      learner.settings().get<bool>("model.scale_embeddings") ? std::sqrt(static_cast<double>(width)) : 1;
  bool any = false;
  check(files.contains("tokenizer.json"), "--embeddings ", path,
        ": vectors of words, but the data are images");
  for (const NamedTensor& named : learner.model().parameters()) {
    if (!is_embedding(named.name)) continue;
    const bool own = named.name.starts_with("target_") && files.contains("target_tokenizer.json");
    const std::string file = own ? "target_tokenizer.json" : "tokenizer.json";
    const Tokenizer tokenizer = Tokenizer::from_json(files.at(file), file);
    const auto found = vectors_by_id(path, width, tokenizer);
    any = any || !found.empty();
    std::vector<float> rows = named.tensor->detach().to_vector<float>();
    for (const auto& [id, values] : found)
      for (std::size_t i = 0; i < values.size(); ++i)
        rows[static_cast<std::size_t>(id) * values.size() + i] = static_cast<float>(values[i] / scale);
    named.tensor->detach().assign(std::span<const float>(rows));
    start.remarks.push_back(concat_text(path, " has vectors for ", found.size(), " of the ",
                                        tokenizer.vocabulary_size(), " tokens of ", named.name,
                                        "; the others start by chance"));
  }
  check(any, path, ": none of its words is in the vocabulary");
  start.origin["embeddings"] = digest_of_file(path);
  learner.model().state_changed();
}

}  // namespace

void check_start(const Settings& settings) {
  const auto training = settings.read<TrainingSettings>("training");
  const auto tokenizer = settings.read<VocabularySettings>("tokenizer");
  if (!training.from.empty() && !tokenizer.file.empty())
    throw SettingsError("--from (training.from) brings its tokenizer along: leave out tokenizer.file");
  if (!training.embeddings.empty() && training.from.empty() && tokenizer.file.empty() &&
      tokenizer.kind != "words" && tokenizer.kind != "auto")
    throw SettingsError("--embeddings (training.embeddings) are of whole words: set tokenizer.kind=words");
}

namespace {

/// A task whose texts have a limit of their own keeps it, unless the run has fewer positions or other weights
/// for it.
void take_length(Settings& settings, const Json& config, const std::string& run) {
  const Json here = Json::parse(settings.json());
  const auto [setting, factor] = length_setting(here);
  const std::int64_t theirs = positions_of(config) / factor;
  const bool is_taken = setting == "model.max_length" && length_setting(config).first == setting;
  if (is_taken || theirs == 0) return;
  const Json& model = here.at("model");
  if (attention_counts_positions(model) ||
      (model.at("positions") == "learned" && theirs < settings.get<std::int64_t>(setting)))
    settings.set(setting, std::to_string(theirs), concat_text("the run ", run));
}

}  // namespace

void take_model_of(Settings& settings, const std::string& run) {
  const Json there = Json::parse(RunFiles::open(run).config()), here = Json::parse(settings.json());
  const Json model = there.value("model", Json::object());
  const std::string origin = concat_text("the run ", run);
  for (const Setting& one : settings.declared()) {
    Json value = value_there(there, one.name);
    // The attention of an encoder may not serve a decoder.
    if (one.name == "model.decoder_attention" && !model.contains("decoder_attention")) value = nullptr;
    // A model without these settings reads its input in another way.
    if (value.is_null() && one.name == "model.local_width") value = 0;
    if (value.is_null() && one.name == "model.word_dropout") value = 0.0;
    if (!value.is_null() && is_taken(one, has_like_stacks(here, there)))
      settings.set_json(one.name, value.dump(), origin);
  }
  take_length(settings, there, run);
}

Settings settings_to_train(const TaskKind& kind, const std::function<void(Settings&)>& lay_over, bool is_new,
                           bool own_data) {
  Settings settings = kind.settings(own_data);
  lay_over(settings);  // which says whose data and which model
  own_data = own_data || kind.names_data(settings);
  const auto from = is_new ? settings.get<std::string>("training.from") : "";
  if (!own_data && from.empty()) return settings;
  settings = kind.settings(own_data);
  if (!from.empty()) take_model_of(settings, from);
  lay_over(settings);
  return settings;
}

Start start_weights(Learner& learner) {
  Start start;
  const auto training = learner.settings().read<TrainingSettings>("training");
  if (!training.from.empty()) take_weights(learner, training.from, start);
  if (!training.embeddings.empty()) take_embeddings(learner, training.embeddings, start);
  return start;
}

}  // namespace heed
