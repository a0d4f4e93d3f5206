#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/hub/weight_names.h"

namespace heed {

/// What a published model comes to here.
struct ImportPlan {
  std::string task;      ///< whose run it becomes
  std::string settings;  ///< JSON, laid over the task's settings
  WeightNames names;
  std::vector<std::string> unused = {};   ///< beginnings and ends of published names that mean nothing here
  std::vector<std::string> remarks = {};  ///< what is worth telling
  std::int64_t begin = -1;                ///< the token that begins what is written; -1: it begins with none
  std::int64_t end = -1;                  ///< the token that ends it; -1: that of the tokenizer
};

/// What a run comes to in a published layout.
struct ExportPlan {
  std::string config;  ///< config.json
  WeightNames names;
  std::map<std::string, Tensor> weights;  ///< of the run, as the layout has them
};

/// The settings and weights of a run that is to be exported.
struct RunContent {
  std::string task;
  std::string settings;                   ///< JSON, all of them
  std::map<std::string, Tensor> weights;  ///< f32, without low-rank parts
  std::int64_t vocabulary = 0;
  std::int64_t begin = 0, end = 0, pad = -1;  ///< marks of the tokenizer; -1: it has none
};

/// A published kind of model. One file of this room for each, and its line in architectures().
struct Architecture {
  std::string_view model_type;  ///< of config.json
  std::string_view name;        ///< for people
  /// Throws an Error for a configuration that heed's model cannot follow.
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

/// The architecture that config.json names. Throws an Error for one that heed does not know, with what it
/// knows and some of the names of its weights.
const Architecture& architecture_of(const std::string& config, const std::map<std::string, Tensor>& tensors);

}  // namespace heed
