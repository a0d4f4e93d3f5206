#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/data/safetensors.h"
#include "heed/data/tokenizer.h"

// What a published architecture is made of: the names of its weights, the members of its config.json, and the
// plans of import and export. Each architecture has a file in this folder and a line in architectures(). This
// header is for heed's own sources: it is not installed.

namespace heed::hub {

using Json = nlohmann::ordered_json;
using Tensors = std::map<std::string, Tensor>;

// --- weights

/// How the layout of a published weight differs from heed's.
struct WeightLayout {
  bool transposed = false;           ///< published [in, out], here [out, in] (the Conv1D of GPT-2)
  std::int64_t part = 0, parts = 1;  ///< the published weight joins `parts` of heed's along the outputs
  bool is_row = false;               ///< published [1, n], here [n]
  std::int64_t first_row = 0;        ///< rows before it have no counterpart here; published as 0
};

/// The published name of a weight, and heed's.
struct WeightName {
  std::string published, ours;
  WeightLayout layout = {};
};

/// The names of an architecture, for import and export alike. "{}" stands for the layer's number.
class WeightNames {
 public:
  void add(std::string published, std::string ours, WeightLayout layout = {});
  /// The same for "published.weight" and "published.bias".
  void add_map(const std::string& published, const std::string& ours, WeightLayout layout = {});
  /// For each of `layers` layers.
  void add_layers(std::int64_t layers, const WeightNames& of_layer);
  /// Puts a prefix before all published names.
  void add_prefix(std::string_view prefix);
  std::span<const WeightName> all() const { return names_; }

 private:
  std::vector<WeightName> names_;
};

/// What stands before a name in the file ("bert.", "0.auto_model."); empty if no weight is called so.
std::string prefix_of(const Tensors& tensors, std::string_view name);
/// Where the settings of "model" scale embeddings, scales the table itself, which layouts do not; an output map
/// that was tied to it gets the table as it was. Returns whether the two are still one.
bool fold_embedding_scale(Tensors& weights, const Json& model);
/// Gives every linear map whose name contains `part` and that has no bias a bias of zeros: the layouts have
/// one in any case.
void add_missing_biases(Tensors& weights, std::string_view part);

// --- config.json

/// A member of config.json, and the setting of "model" that says the same.
struct ConfigMember {
  const char* published;
  const char* ours;
  std::int64_t low = 0, high = 0;  ///< of an integer that must be there
  /// What `transformers` takes where the file leaves out a number, flag or activation; null: an integer.
  Json fallback = {};
};

/// The config.json of a published model; errors name the member.
class Config {
 public:
  /// Throws an Error for a text that is not a JSON object.
  explicit Config(const std::string& text);

  const std::string& type() const { return type_; }  ///< "model_type"
  /// Whether "architectures" has one whose name ends so.
  bool is_of(std::string_view ending) const;
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  /// A member that is an integer or a list of them; empty where it is absent.
  std::vector<std::int64_t> integers(const char* name, std::int64_t low, std::int64_t high) const;
  /// A number that must be there.
  double number(const char* name) const;
  /// A member that is an object, with members of its own; an empty one where it is absent.
  Config part(const char* name) const;
  /// A member of the kind of `fallback`, which stands for one that is absent: a number, a flag or a text.
  Json value(const char* name, const Json& fallback) const;
  bool has(const char* name) const;
  /// Throws unless the member is absent or has this value.
  void expect(const char* name, const Json& value) const;
  /// Throws if both the member and the weight exist and the weight has another number of rows.
  void check_rows(const char* name, const Tensors& tensors, const std::string& weight) const;
  /// heed's settings of "model". Throws where two members say something else of one setting.
  Json model(std::span<const ConfigMember> members) const;

 private:
  Config(Json json, std::string type) : json_(std::move(json)), type_(std::move(type)) {}

  Json json_;
  std::string type_;
};

/// The members of config.json that say the same as the settings of "model".
Json published_members(const Json& model, std::span<const ConfigMember> members);

/// Throws an Error that lists the settings of "model", among those that exist, which have none of the values
/// that a layout can express.
void check_fits(std::string_view layout, const Json& model,
                std::initializer_list<std::pair<const char*, std::vector<Json>>> allowed);
/// The activations of feed-forward layers without a gate, for check_fits().
std::vector<Json> classic_activations();

// --- import and export

/// How a published model becomes a run.
struct ImportPlan {
  std::string_view task;  ///< of the run
  Json settings;          ///< merged into the task's settings
  WeightNames names;
  std::vector<std::string> unused = {};  ///< prefixes and suffixes of published names to ignore
  /// Suffixes of published names that must hold the same as a weight of heed's, if they are there.
  std::vector<std::pair<std::string, std::string>> copies = {};
  std::vector<std::string> remarks = {};  ///< what the user should know
  std::int64_t begin = -1;                ///< the token that begins an output; -1: none
  std::int64_t end = -1;                  ///< the token that ends it; -1: the tokenizer's
  /// Of a language model: the tokens of which each ends a text; empty: the tokenizer's.
  std::vector<std::int64_t> ends_text = {};
  std::vector<std::string> labels = {};  ///< of a classifier: its classes in the order of the outputs
};

/// Whether the output map is the embedding, both by their published names: config.json says so, or
/// `by_default` where it says nothing, and the file does not have another map all the same. The plan is told
/// to compare the two, or what to remark.
bool ties_output(ImportPlan& plan, const Config& config, const Tensors& tensors, const std::string& map,
                 const std::string& embedding, bool by_default = true);

/// -1 for a mark that the tokenizer does not have, under whatever name.
std::int64_t id_of_mark(const Tokenizer& tokenizer, std::string_view mark);

/// The settings and weights of a run to be exported.
struct RunContent {
  std::string task;
  Json settings;    ///< all of them
  Tensors weights;  ///< f32, without low-rank parts
  std::int64_t vocabulary = 0;
  std::int64_t begin = 0, end = 0, pad = -1;  ///< special tokens; -1: none
  std::vector<std::string> labels = {};       ///< of a classifier
};

/// A run in a published layout.
struct ExportPlan {
  Json config;  ///< config.json
  WeightNames names;
  Tensors weights;  ///< heed's weights, arranged as the layout needs them
};

/// A published kind of model.
struct Architecture {
  std::string_view model_type;  ///< in config.json
  std::string_view name;        ///< for messages
  /// Throws an Error for a configuration that heed's model does not support.
  ImportPlan (*import_plan)(const Config& config, const Tensors& tensors);
  /// Whether a run of this task, with these settings, is exported as this architecture.
  bool (*exports)(const RunContent& run);
  /// Throws an Error that lists the settings that the architecture does not have.
  ExportPlan (*export_plan)(RunContent run);
};

const Architecture& gpt2_architecture();
const Architecture& bert_architecture();
const Architecture& roberta_architecture();
const Architecture& xlm_roberta_architecture();
const Architecture& distilbert_architecture();
const Architecture& marian_architecture();
const Architecture& llama_architecture();
const Architecture& qwen2_architecture();
const Architecture& qwen3_architecture();

/// The architecture that config.json names. For an unknown one it throws an Error that lists the known ones
/// and some names of weights.
const Architecture& architecture_of(const Config& config, const Tensors& tensors);
/// The architecture that a run is exported as; throws an Error where there is none.
const Architecture& architecture_of(const RunContent& run);

/// Converts published weights to heed's, in f32. Throws an Error that lists the missing names and the unknown
/// ones, and for a copy that differs. Only what is used must be readable.
Tensors our_weights(const Tensors& published, const UnreadTensors& unread, const ImportPlan& plan,
                    std::string_view what);
/// Converts heed's weights (or their gradients) to published ones. Throws an Error for a weight that has no
/// published name, and for one that is missing.
Tensors published_weights(const ExportPlan& plan, std::string_view what);

}  // namespace heed::hub
