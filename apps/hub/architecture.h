#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/data/safetensors.h"

// What a published architecture is made of: the names of its weights, the reading of its config.json, and the
// plans of import and export. Each architecture has a file in this folder and a line in architectures().

namespace heed {

/// How the layout of a published weight differs from heed's.
struct WeightLayout {
  bool transposed = false;           ///< published [in, out], here [out, in] (the Conv1D of GPT-2)
  std::int64_t part = 0, parts = 1;  ///< the published weight joins `parts` of heed's along the outputs
  bool is_row = false;               ///< published [1, n], here [n]
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
std::string prefix_of(const std::map<std::string, Tensor>& tensors, std::string_view name);
/// Whether the file has a weight of this name that differs from another: it is said to be tied to that one,
/// but it is not.
bool differs_from(const std::map<std::string, Tensor>& tensors, const std::string& name,
                  const std::string& other);

/// The remark on such a weight where heed keeps both.
std::string not_tied(const std::string& name);

struct ImportPlan;
/// Converts published weights to heed's, in f32. Throws an Error that lists the missing names and the unknown
/// ones, and for a copy that differs. Only what is used must be readable.
std::map<std::string, Tensor> our_weights(const std::map<std::string, Tensor>& published,
                                          const UnreadTensors& unread, const ImportPlan& plan,
                                          std::string_view what);
/// Converts heed's weights (or their gradients) to published ones. Throws an Error for a weight that has no
/// published name, and for one that is missing.
std::map<std::string, Tensor> published_weights(const std::map<std::string, Tensor>& ours,
                                                const WeightNames& names, std::string_view what);

/// Gives every linear map whose name contains `part` and that has no bias a bias of zeros: the layouts have
/// one in any case.
void add_missing_biases(std::map<std::string, Tensor>& weights, std::string_view part);

/// Reads the members of a config.json; errors name the model. Expected values are given as JSON: "true" or
/// "\"post\"".
class ConfigReader {
 public:
  ConfigReader(const std::string& text, std::string model);

  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  double number(const char* name, double fallback) const;
  bool flag(const char* name, bool fallback) const;
  std::string text(const char* name, const std::string& fallback) const;
  bool has(const char* name) const;
  /// Throws unless the member is absent or has this value.
  void expect(const char* name, std::string_view json) const;
  /// heed's name for an activation of `transformers`, whose default for this model is `fallback`.
  std::string activation(const char* name, const std::string& fallback) const;
  /// Throws if both the member and the weight exist and the weight has another number of rows.
  void check_rows(const char* name, const std::map<std::string, Tensor>& tensors,
                  const std::string& weight) const;
  /// Throws if the heads do not divide the width.
  void check_heads(std::int64_t width, std::int64_t heads) const;

  struct Value;  // the parsed JSON

 private:
  std::shared_ptr<const Value> value_;
  std::string model_;
};

/// The name of heed's activation in `transformers`.
std::string published_activation(const std::string& name);

/// Collects the settings of a run that a layout cannot express.
class Misfits {
 public:
  explicit Misfits(const std::string& settings);
  /// The setting, by its dotted name, must have one of the values (as JSON) if it exists.
  void expect(const std::string& name, std::initializer_list<std::string_view> allowed);
  /// Layer normalisation, and feed-forward layers without a gate.
  void expect_classic_layers();
  /// Throws an Error with all of them, if any.
  void check_none(std::string_view layout) const;

 private:
  std::shared_ptr<const ConfigReader::Value> settings_;
  std::vector<std::string> found_;
};

/// How a published model becomes a run.
struct ImportPlan {
  std::string task;      ///< the task of the run
  std::string settings;  ///< JSON, merged into the task's settings
  WeightNames names;
  std::vector<std::string> unused = {};  ///< prefixes and suffixes of published names to ignore
  /// Suffixes of published names that must hold the same as a weight of heed's, if they are there.
  std::vector<std::pair<std::string, std::string>> copies = {};
  std::vector<std::string> remarks = {};  ///< what the user should know
  std::int64_t begin = -1;                ///< the token that begins an output; -1: none
  std::int64_t end = -1;                  ///< the token that ends it; -1: the tokenizer's
};

/// A run in a published layout.
struct ExportPlan {
  std::string config;  ///< config.json
  WeightNames names;
  std::map<std::string, Tensor> weights;  ///< heed's weights, arranged as the layout needs them
};

/// The settings and weights of a run to be exported.
struct RunContent {
  std::string task;
  std::string settings;                   ///< JSON, all of them
  std::map<std::string, Tensor> weights;  ///< f32, without low-rank parts
  std::int64_t vocabulary = 0;
  std::int64_t begin = 0, end = 0, pad = -1;  ///< special tokens; -1: none
};

/// A published kind of model.
struct Architecture {
  std::string_view model_type;  ///< in config.json
  std::string_view name;        ///< for messages
  /// Throws an Error for a configuration that heed's model does not support.
  ImportPlan (*import_plan)(const std::string& config, const std::map<std::string, Tensor>& tensors);
  /// Whether a run of this task, with these settings, is exported as this architecture.
  bool (*exports)(const RunContent& run);
  /// Throws an Error that lists the settings that the architecture does not have.
  ExportPlan (*export_plan)(RunContent run);
};

const Architecture& gpt2_architecture();
const Architecture& bert_architecture();
const Architecture& marian_architecture();
std::span<const Architecture* const> architectures();

/// The architecture that config.json names. For an unknown one it throws an Error that lists the known ones
/// and some names of weights.
const Architecture& architecture_of(const std::string& config, const std::map<std::string, Tensor>& tensors);

}  // namespace heed
