#include "heed/tasks/start.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/data/table.h"
#include "heed/models/layers.h"
#include "heed/tasks/settings.h"
#include "heed/training/checkpoint.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string listed(const std::vector<std::string>& names, std::size_t most = 5) {
  std::string text;
  const std::size_t shown = std::min(names.size(), most);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return shown < names.size() ? concat_text(text, " and ", names.size() - shown, " more") : text;
}

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

bool has_both_stacks(const Json& model) {
  return model.contains("encoder_layers") && model.contains("decoder_layers");
}

/// Settings of a tokenizer that another run brings along: of models with both stacks "begin" stands before
/// what is written, of others before what is read.
std::vector<const char*> taken_of_tokenizer(const Json& here, const Json& there) {
  std::vector<const char*> names = {"kind", "vocabulary", "min_frequency", "lower_case", "separate"};
  if (has_both_stacks(here) == has_both_stacks(there)) names.push_back("begin");
  return names;
}

/// "tokenizer.kind is bpe here and words there": settings that the other run's tokenizer overrules.
std::vector<std::string> overruled(const Settings& settings, const RunFiles& files) {
  const Json config = Json::parse(files.config()), here = Json::parse(settings.json("tokenizer")),
             there = config.value("tokenizer", Json::object());
  std::vector<std::string> found;
  for (const char* const name :
       taken_of_tokenizer(Json::parse(settings.json("model")), config.value("model", Json::object())))
    if (here.contains(name) && there.contains(name) && here[name] != there[name])
      found.push_back(concat_text("tokenizer.", name, " is ", here[name].dump(), " here and ",
                                  there[name].dump(), " there"));
  return found;
}

/// Settings of a model that a run brings along, since they say what its weights are and how they are read.
constexpr std::array of_models = {"width",
                                  "heads",
                                  "feed_forward",
                                  "activation",
                                  "norm",
                                  "norm_kind",
                                  "positions",
                                  "embedding_norm",
                                  "token_types",
                                  "scale_embeddings",
                                  "attention_bias",
                                  "epsilon",
                                  "share_layers",
                                  "local_width",
                                  "word_pairs",
                                  "pooling",
                                  "kind",
                                  "output_transform",
                                  "max_length",
                                  "encoder_layers",
                                  "decoder_layers",
                                  "encoder_attention",
                                  "decoder_attention",
                                  "cross_attention"};
/// Likewise, between models with both stacks, or between others: elsewhere the names of what is tied mean
/// other tensors.
constexpr std::array of_like_stacks = {"tie_embeddings", "output_bias", "pointer"};

/// What a run has for a setting of a model; an encoder has the layers of a decoder, and the other way round.
/// Null: nothing.
Json value_there(const Json& model, const std::string& name) {
  static const std::map<std::string, std::string> other_stacks = {{"encoder_layers", "decoder_layers"},
                                                                  {"decoder_layers", "encoder_layers"},
                                                                  {"encoder_attention", "decoder_attention"},
                                                                  {"decoder_attention", "encoder_attention"}};
  if (model.contains(name)) return model[name];
  const auto other = other_stacks.find(name);
  return other != other_stacks.end() ? model.value(other->second, Json()) : Json();
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
             defaults = Json::parse(to_json(TransformerConfig()));  // of what came after a run was written
  std::vector<std::string> found;
  const auto compare = [&](const std::string& name, const Json& ours, const Json& theirs) {
    if (!ours.is_null() && !theirs.is_null() && ours != theirs)
      found.push_back(concat_text(name, " is ", ours.dump(), " here and ", theirs.dump(), " there"));
  };
  const Json& model = here.at("model");
  const Json their_model = there.value("model", Json::object());
  const auto compare_models = [&](const std::string& name) {
    const Json theirs = value_there(their_model, name);
    const bool is_newer = theirs.is_null() && !name.ends_with("_layers") && !name.ends_with("_attention");
    if (name != "max_length")
      compare("model." + name, model.value(name, Json()), is_newer ? defaults.value(name, Json()) : theirs);
  };
  for (const std::string name : of_models) compare_models(name);
  if (has_both_stacks(model) == has_both_stacks(their_model))
    for (const std::string name : of_like_stacks) compare_models(name);
  for (const char* const group : {"user", "news"}) {
    const Json ours = here.value(group, Json::object());
    for (const auto& [name, value] : ours.items())
      compare(concat_text(group, '.', name), value, there.value(group, Json::object()).value(name, Json()));
  }
  compare("data.patch", here["data"].value("patch", Json()),
          there.value("data", Json::object()).value("patch", Json()));
  const auto [setting, factor] = length_setting(here);
  const std::int64_t ours = positions_of(here), theirs = positions_of(there);
  if (theirs > 0 && (attention_counts_positions(model) || (model["positions"] == "learned" && ours > theirs)))
    compare(setting, ours / factor, std::max<std::int64_t>(theirs / factor, 1));
  compare("objective", here.value("objective", Json()), there.value("objective", Json()));
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
        others.empty() ? "" : "; leave these settings out, and they are the run's", " (", listed(misfits),
        ")");
  check(!fitting.empty(), "--from ", from, ": no weight of the run fits the model",
        others.empty() ? "" : ": ", listed(others));
  copy_named_tensors(fitting, targets, "--from " + from);
  learner.model().state_changed();
  start.origin.insert({{"task", files.task()}, {"identity", files.identity()}, {"weights", saved.digest}});
  start.remarks.push_back(concat_text("from the ", files.task(), " run ", from, ": its tokenizer and ",
                                      fitting.size(), " of ", own.size(), " weights"));
  if (!changed.empty())
    start.remarks.push_back("not from there, since another attention has other shapes: " + listed(changed));
  if (!fresh.empty()) start.remarks.push_back("new in this model: " + listed(fresh));
  if (!left.empty()) start.remarks.push_back("without a place in this model: " + listed(left));
  if (!others.empty()) start.remarks.push_back("the models differ: " + listed(others));
  if (const auto settings = overruled(learner.settings(), files); !settings.empty())
    start.remarks.push_back("the tokenizer is that of the run: " + listed(settings));
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

void declare_start(Settings& settings) {
  settings.text(
      "training.from", "",
      "A run to start from: its tokenizer, and its weights whose names and shapes fit; empty: none");
  settings.text("training.embeddings", "",
                "Vectors of words to start the embedding from, as text of GloVe or word2vec; empty: none");
}

void check_start(const Settings& settings) {
  const auto text = [&](const char* name) { return settings.get<std::string>(name); };
  if (!text("training.from").empty() && !text("tokenizer.file").empty())
    throw SettingsError("--from (training.from) brings its tokenizer along: leave out tokenizer.file");
  if (!text("training.embeddings").empty() && text("training.from").empty() &&
      text("tokenizer.file").empty() && text("tokenizer.kind") != "words")
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
  const Json config = Json::parse(RunFiles::open(run).config()), all = Json::parse(settings.json());
  const Json there = config.value("model", Json::object()), &here = all.at("model");
  Json taken = {{"model", Json::object()}};
  Json& model = taken["model"];
  const auto take = [&](const std::string& name) {
    const Json value = value_there(there, name);
    const bool is_of_encoder =
        name == "decoder_attention" && !there.contains(name);  // may not serve a decoder
    if (here.contains(name) && !value.is_null() && !is_of_encoder) model[name] = value;
  };
  for (const std::string name : of_models) take(name);
  for (const std::string name : {"dropout", "word_dropout", "attention_dropout"}) take(name);
  if (has_both_stacks(here) == has_both_stacks(there))
    for (const std::string name : of_like_stacks) take(name);
  if (here.contains("local_width") && !there.contains("local_width")) model["local_width"] = 0;
  if (here.contains("word_dropout") && !there.contains("word_dropout")) model["word_dropout"] = 0.0;
  const auto take_below = [&](const char* group, const std::string& name) {
    const Json value = config.value(group, Json::object()).value(name, Json());
    if (all.contains(group) && all[group].contains(name) && !value.is_null()) taken[group][name] = value;
  };
  for (const char* const name : taken_of_tokenizer(here, there)) take_below("tokenizer", name);
  for (const char* const group : {"user", "news"}) {
    const Json ours = all.value(group, Json::object());
    for (const auto& [name, value] : ours.items()) take_below(group, name);
  }
  take_below("data", "patch");
  settings.merge(taken.dump(), concat_text("the run ", run));
  take_length(settings, config, run);
}

std::optional<Tokenizer> given_tokenizer(const Settings& settings, const std::string& name) {
  if (const auto from = settings.get<std::string>("training.from"); !from.empty())
    return Tokenizer::from_json(RunFiles::open(from).text(name), concat_text(from, '/', name));
  if (const auto file = settings.get<std::string>("tokenizer.file"); !file.empty())
    return Tokenizer::load(file);
  return std::nullopt;
}

Start start_weights(Learner& learner) {
  Start start;
  if (const auto from = learner.settings().get<std::string>("training.from"); !from.empty())
    take_weights(learner, from, start);
  if (const auto file = learner.settings().get<std::string>("training.embeddings"); !file.empty())
    take_embeddings(learner, file, start);
  return start;
}

}  // namespace heed
