#include "heed/tasks/start.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/digest.h"
#include "heed/data/word_vectors.h"
#include "heed/models/low_rank.h"
#include "heed/tasks/settings.h"
#include "heed/training/model_file.h"
#include "heed/training/run_files.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  const std::size_t shown = std::min<std::size_t>(names.size(), 5);
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

/// Settings of a tokenizer that another run brings along: of models with both stacks "begin" stands before what is
/// written, of others before what is read.
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

/// "model.norm is post here and pre there": settings that weights do not show by their shapes.
std::vector<std::string> differences(const Settings& settings, const RunFiles& files) {
  const Json here = Json::parse(settings.json("model")),
             there = Json::parse(files.config()).value("model", Json::object()),
             defaults = Json::parse(to_json(TransformerConfig()));  // of what came after a run was written
  std::vector<std::string> found;
  for (const char* name :
       {"width", "heads", "feed_forward", "norm", "norm_kind", "activation", "positions", "scale_embeddings",
        "attention_bias", "embedding_norm", "pooling", "tie_embeddings", "output_bias", "output_transform"})
    if (const Json theirs = there.value(name, defaults[name]); here.contains(name) && here[name] != theirs)
      found.push_back(
          concat_text("model.", name, " is ", here[name].dump(), " here and ", theirs.dump(), " there"));
  const Json all = Json::parse(settings.json()), config = Json::parse(files.config());
  if (all.contains("objective") && config.contains("objective") && all["objective"] != config["objective"])
    found.push_back(concat_text("objective is ", all["objective"].dump(), " here and ",
                                config["objective"].dump(), " there"));
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

/// The parts of a model that mean something else in the run: what tells the classes of other data, and vectors of the
/// categories and the single news of another catalogue (news_catalogue.h).
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
  std::vector<std::string> misfits, fresh, left;
  std::set<std::string> met;  // of the run's weights
  const std::map<std::string, Tensor> own = model_state(learner.model());
  for (const auto& [name, tensor] : own) {
    const auto found = saved.tensors.find(names.of(name));
    if (found != saved.tensors.end()) met.insert(found->first);
    const Tensor there = found == saved.tensors.end() ? Tensor() : fitted(name, found->second, tensor);
    if (!there.defined()) {
      fresh.push_back(name);
    } else if (there.shape() != tensor.shape() || there.dtype() != tensor.dtype()) {
      misfits.push_back(concat_text(name, " ", tensor.shape(), " (there ", found->second.shape(), ")"));
    } else {
      fitting.emplace(name, there);
      targets.emplace_back(name, tensor);
    }
  }
  for (const auto& [name, tensor] : saved.tensors)
    if (!met.contains(name)) left.push_back(name);
  const std::vector<std::string> others = differences(learner.settings(), files);
  check(!fitting.empty(), "--from ", from, ": no weight of the run fits the model",
        others.empty() ? "" : ": ", listed(others));
  copy_named_tensors(fitting, targets, "--from " + from);
  learner.model().state_changed();
  start.origin.insert({{"task", files.task()}, {"identity", files.identity()}, {"weights", saved.digest}});
  start.remarks.push_back(concat_text("from the ", files.task(), " run ", from, ": its tokenizer and ",
                                      fitting.size(), " of ", own.size(), " weights"));
  if (!misfits.empty())
    start.remarks.push_back("not from there, for their shapes differ: " + listed(misfits));
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

void take_model_of(Settings& settings, const std::string& run) {
  const Json config = Json::parse(RunFiles::open(run).config());
  const Json there = config.value("model", Json::object()), here = Json::parse(settings.json("model"));
  Json taken = Json::object();
  const auto take = [&](const char* name, const char* from) {
    if (here.contains(name) && there.contains(from) && !taken.contains(name)) taken[name] = there[from];
  };
  for (const char* const name : {"width",
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
                                 "pooling",
                                 "output_transform",
                                 "dropout",
                                 "word_dropout",
                                 "attention_dropout",
                                 "encoder_layers",
                                 "decoder_layers",
                                 "encoder_attention",
                                 "decoder_attention",
                                 "cross_attention"})
    take(name, name);
  if (has_both_stacks(here) == has_both_stacks(there))  // else the names of what is tied mean other tensors
    for (const char* const name : {"tie_embeddings", "output_bias"}) take(name, name);
  take("encoder_layers", "decoder_layers");
  take("decoder_layers", "encoder_layers");
  take("encoder_attention", "decoder_attention");
  if (here.contains("local_width") && !there.contains("local_width")) taken["local_width"] = 0;
  if (here.contains("word_dropout") && !there.contains("word_dropout")) taken["word_dropout"] = 0.0;
  Json all = {{"model", taken}};
  const Json tokenizer = config.value("tokenizer", Json::object());
  const auto declared = settings.declared();
  for (const char* const name : taken_of_tokenizer(here, there))
    if (tokenizer.contains(name) && std::ranges::any_of(declared, [&](const Setting& one) {
          return one.name == concat_text("tokenizer.", name);
        }))
      all["tokenizer"][name] = tokenizer[name];
  settings.merge(all.dump(), concat_text("the run ", run));
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
