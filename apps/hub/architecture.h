#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/apps/tasks/task.h"
#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/text/safetensors.h"
#include "heed/text/tokenizer.h"

// Published architectures: the names of their weights, the members of their config.json, and the
// plans of import and export. Each architecture has a file in this folder and an entry in
// architectures(). This header is for heed's own sources: it is not installed.

namespace heed::hub {

using Json = nlohmann::ordered_json;
using Tensors = std::map<std::string, Tensor>;

// --- weights

/// The layout of a published weight, relative to heed's.
struct WeightLayout {
  bool transposed = false;  ///< published [in, out], here [out, in] (the Conv1D of GPT-2)
  /// The published weight joins heed's along the outputs: of `parts` equal parts, this one has `span` from
  /// `part` on.
  std::int64_t part = 0, parts = 1, span = 1;
  bool is_row = false;         ///< published [1, n], here [n]
  std::int64_t first_row = 0;  ///< rows before it have no counterpart here; published as 0
  double offset = 0;           ///< heed's weight minus the published one (the norms of Gemma)
};

/// The published name of a weight, and heed's.
struct WeightName {
  std::string published, ours;
  WeightLayout layout = {};
};

/// A linear map or a norm within a layer: its published name, and heed's.
struct MapName {
  std::string published, ours;
  bool has_bias = true;
  WeightLayout layout = {};
};

/// The weight names of an architecture, for import and export.
class WeightNames {
 public:
  void add(std::string published, std::string ours, WeightLayout layout = {});
  /// Adds "published.weight" and, if it has one, "published.bias".
  void add_map(const MapName& map);
  /// Adds the maps of `layers` layers. "{}" in both prefixes stands for the layer's number.
  void add_layers(std::int64_t layers, const std::string& published, const std::string& ours,
                  std::span<const MapName> maps);
  /// Puts a prefix before all published names.
  void add_prefix(std::string_view prefix);
  std::span<const WeightName> all() const { return names_; }

 private:
  std::vector<WeightName> names_;
};

/// Members of a pooling file of sentence-transformers, and heed's model.pooling.
inline constexpr std::pair<const char*, const char*> sentence_poolings[] = {
    {"pooling_mode_mean_tokens", "mean"},
    {"pooling_mode_cls_token", "first"},
    {"pooling_mode_max_tokens", "max"},
    {"pooling_mode_lasttoken", "last"},
    {"pooling_mode_weightedmean_tokens", "weighted"}};
/// Activations of its Dense modules, and heed's model.pooler.
inline constexpr std::pair<const char*, const char*> dense_activations[] = {
    {"torch.nn.modules.activation.Tanh", "tanh"},
    {"torch.nn.modules.activation.ReLU", "relu"},
    {"torch.nn.modules.activation.GELU", "gelu"},
    {"torch.nn.modules.linear.Identity", "identity"}};

/// Returns the prefix of a name in the file ("bert.", "0.auto_model."); "" if there is no such weight.
std::string prefix_of(const Tensors& tensors, std::string_view name);
/// If the "model" settings scale embeddings, scales the table itself, because published layouts do not scale.
/// An output map that was tied to it keeps the unscaled values. Returns whether the two are still tied.
bool fold_embedding_scale(Tensors& weights, const Json& model);
/// Adds a bias of zeros to every linear map without one whose name contains `part`.
void add_missing_biases(Tensors& weights, std::string_view part);

// --- config.json

/// A member of config.json, and the equivalent setting of "model".
struct ConfigMember {
  const char* published;
  const char* ours;
  std::int64_t low = 0, high = 0;  ///< of a required integer
  /// The default of `transformers` for a missing number, flag or activation; null: a required
  /// integer.
  Json fallback = {};
};

/// The members of config.json that do not become a setting by themselves. `transformers` reads no others.
struct MemberTable {
  /// The only supported value of each, in a list that of each element. Another is refused by name.
  Json only;
  std::string_view read = {};            ///< by the import of the architecture, separated by spaces
  std::string_view without_effect = {};  ///< on what the model answers
};
/// Returns the table of the members that all architectures have.
const MemberTable& common_members();

/// The config.json of a published model. Errors name the member.
class Config {
 public:
  /// Throws an Error for a text that is not a JSON object. `file`: its name in errors.
  explicit Config(const std::string& text, std::string file = "config.json");

  const std::string& type() const { return type_; }  ///< "model_type"
  /// The names in "architectures".
  std::vector<std::string> architectures() const;
  /// Whether one of them has this ending.
  bool is_of(std::string_view ending) const;
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  /// Returns a member that is an integer or a list of integers; empty if it is absent.
  std::vector<std::int64_t> integers(const char* name, std::int64_t low, std::int64_t high) const;
  /// Returns a required number.
  double number(const char* name) const;
  /// Returns a number; 0 for null, and `fallback` if the member is absent.
  double number_or_null(const char* name, double fallback) const;
  /// Returns a list of numbers, or of texts; empty if the member is absent.
  std::vector<double> numbers(const char* name) const { return list<double>(name, 0.0); }
  std::vector<std::string> texts(const char* name) const { return list<std::string>(name, ""); }
  /// Returns a member that is an object; an empty object if it is absent.
  Config part(const char* name) const;
  /// Returns a number, flag or text of the same type as `fallback`, which replaces an absent
  /// member.
  Json value(const char* name, const Json& fallback) const;
  bool has(const char* name) const;
  /// Throws unless the member is absent or has this value, in a list each element.
  void expect(const char* name, const Json& value) const;
  void expect(const MemberTable& table) const {
    for (const auto& [name, value] : table.only.items()) expect(name.c_str(), value);
  }
  /// Whether a member is absent or has this value.
  bool is(const char* name, const Json& value) const { return !has(name) || json_[name] == value; }
  /// Throws if both the member and the weight exist and the weight has another number of rows.
  void check_rows(const char* name, const Tensors& tensors, const std::string& weight) const;
  /// Returns heed's settings of "model". Throws if two members contradict each other.
  Json model(std::span<const ConfigMember> members) const;

 private:
  template <class Value>
  std::vector<Value> list(const char* name, const Json& like) const {
    std::vector<Value> all;
    if (!has(name)) return all;
    check(json_[name].is_array(), file_, ": \"", name, "\" must be a list, is ", json_[name].dump());
    for (const Json& one : json_[name])
      all.push_back(Config(Json{{name, one}}, type_, file_).value(name, like).template get<Value>());
    return all;
  }
  Config(Json json, std::string type, std::string file)
      : json_(std::move(json)), type_(std::move(type)), file_(std::move(file)) {}

  Json json_;
  std::string type_, file_;
};

/// Returns the members of config.json that correspond to settings of "model".
Json published_members(const Json& model, std::span<const ConfigMember> members);

/// Throws an Error listing the "model" settings whose value the layout cannot express: other than `fixed`,
/// which an import sets, and for others none of the list in `allowed`. Settings that do not exist are ignored.
/// `advice` ends the message.
void check_fits(std::string_view layout, const Json& model, const Json& fixed, const Json& allowed,
                std::string_view advice = "");
/// The activations of feed-forward layers without a gate, for check_fits().
inline const Json classic_activations = {"relu", "gelu", "gelu_tanh", "silu"};

// --- import and export

/// The plan for converting a published model to a run.
struct ImportPlan {
  std::string_view task;  ///< of the run
  Json settings;          ///< merged into the task's settings
  WeightNames names;
  std::vector<std::string> unused = {};  ///< prefixes and suffixes of published names to ignore
  /// Suffixes of published names whose weights, if present, must equal a weight of heed's.
  std::vector<std::pair<std::string, std::string>> copies = {};
  std::vector<std::string> remarks = {};  ///< what the user should know
  std::int64_t begin = -1;                ///< the token that begins an output; -1: none
  std::int64_t end = -1;                  ///< the token that ends it; -1: the tokenizer's
  std::vector<std::string> zeros = {};    ///< heed's vectors of the model's width that the file lacks, all 0
  /// Of a classifier: its classes in the order of the outputs.
  std::vector<std::string> labels = {};
};

/// Whether the output map is tied to the embedding, both given by their published names. config.json decides,
/// or `by_default`, unless the file has a separate map. The plan receives the comparison to make, or a remark.
bool ties_output(ImportPlan& plan, const Config& config, const Tensors& tensors, const std::string& map,
                 const std::string& embedding, bool by_default = true);

/// Converts an object of rotary positions ("rope_parameters") to heed's settings; `base` replaces a missing
/// "rope_theta" (rotary.cpp).
Json rotary_settings(const Config& config, const Config& rope, double base);
/// Returns "rope_parameters" of the "model" settings.
Json published_rotary(const Json& model);

/// Returns the id of a mark; -1 if the tokenizer does not have it under any name.
std::int64_t find_mark_id(const Tokenizer& tokenizer, std::string_view mark);

/// The settings and weights of a run to be exported.
struct RunContent {
  std::string task;
  Json settings;    ///< all of them
  Tensors weights;  ///< f32, without low-rank parts
  std::int64_t vocabulary = 0;
  std::int64_t begin = 0, end = 0, pad = -1;  ///< special tokens; -1: none
  std::vector<std::int64_t> ends = {};        ///< of a language model: all tokens that end a text
  std::vector<std::string> labels = {};       ///< of a classifier
  Json scale = {};                            ///< of a run of `rate`: "mean" and "deviation"
};

/// Returns "eos_token_id" of a language model: a token, a list, or null.
Json published_ends(const RunContent& run);

/// A run in a published layout.
struct ExportPlan {
  Json config;  ///< config.json
  WeightNames names;
  Tensors weights;                          ///< heed's weights, arranged as the layout needs them
  std::map<std::string, Json> beside = {};  ///< more files, by their paths in the folder
  Tensors dense = {};                       ///< weights of a Dense module of sentence-transformers
};

/// A published kind of model.
struct Architecture {
  std::string_view model_type;  ///< in config.json
  std::string_view name;        ///< for messages
  /// The settings and the other members of config.json.
  std::span<const ConfigMember> settings;
  const MemberTable* members;
  /// Throws an Error for a configuration that heed's model does not support, beyond `members`.
  ImportPlan (*import_plan)(const Config& config, const Tensors& tensors);
  /// Whether a run of this task, with these settings, is exported as this architecture; null: none is.
  bool (*exports)(const RunContent& run);
  /// Throws an Error listing settings that the architecture does not support.
  ExportPlan (*export_plan)(RunContent run);
  /// Endings of the names that "architectures" may hold.
  std::span<const std::string_view> heads;
};

// One function for each file of this folder.
std::vector<Architecture> bert_architectures();
std::vector<Architecture> gpt2_architectures();
std::vector<Architecture> llama_architectures();
std::vector<Architecture> marian_architectures();
std::vector<Architecture> modern_bert_architectures();

/// Returns all architectures. A run is exported as the first that can express it.
std::span<const Architecture> architectures();
/// Returns the architecture that config.json names. Throws an Error for an unknown one and an unsupported
/// head, listing the known ones.
const Architecture& find_architecture(const Config& config, const Tensors& tensors);
/// Returns the architecture that a run is exported as. Throws an Error if there is none.
const Architecture& find_architecture(const RunContent& run);

// --- texts (imported_texts.cpp)

/// The files of a published folder that say how it reads and writes texts.
struct PublishedTexts {
  std::string tokenizer;                   ///< tokenizer.json, that of the sources if there are two
  std::string target_tokenizer = {};       ///< empty: the same
  Json tokenizer_config = Json::object();  ///< empty without such a file
  std::string generation = {};             ///< generation_config.json; empty: there is none
};

/// Returns the tokenizers of a run, and adapts the settings to them. Throws an Error for a tokenizer without
/// the token that ends a text or, for a masked model, the one that is filled in.
NamedFiles imported_files(const PublishedTexts& texts, const Config& config, const ImportPlan& plan,
                          Settings& settings, std::vector<std::string>& remarks);

// --- weights (architecture.cpp)

/// Converts published weights to heed's, in f32. Throws an Error listing missing and unknown names, and for a
/// copy that differs. Unused weights may be unreadable.
Tensors our_weights(const Tensors& published, const UnsupportedTensors& unread, const ImportPlan& plan,
                    std::string_view what);
/// Converts heed's weights, or their gradients, to published ones. Throws an Error for a weight without a
/// published name, and for a missing one.
Tensors published_weights(const ExportPlan& plan, std::string_view what, bool are_gradients = false);

}  // namespace heed::hub
