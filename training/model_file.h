#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/data/safetensors.h"
#include "heed/models/module.h"

namespace heed {

/// Copies saved tensors into the targets of the same names. First checks that both have exactly the same
/// names, shapes and dtypes and that all values are finite; otherwise throws an Error naming `what` and the
/// first tensor that is missing, differs, is unknown or has a value that is not finite, and changes nothing.
void copy_named_tensors(const std::map<std::string, Tensor>& saved,
                        std::span<const std::pair<std::string, Tensor>> targets, std::string_view what);

/// The parameters and buffers of a model by their saved names. They share memory with the model.
std::map<std::string, Tensor> model_state(Module& model);
/// Loads the parameters and buffers of a model in place. Throws as copy_named_tensors
/// does, and then changes nothing.
void load_model_state(Module& model, const std::map<std::string, Tensor>& state, std::string_view source);

/// A copy with the same configuration, dtype, device and values that shares nothing with the original.
/// Works for models that can be constructed from their config().
template <class Model>
std::unique_ptr<Model> clone(Model& model) {
  auto copy = std::make_unique<Model>(model.config());
  if (const std::vector<NamedTensor> parameters = model.parameters(); !parameters.empty())
    copy->to(parameters.front().tensor->dtype(), parameters.front().tensor->device());
  load_model_state(*copy, model_state(model), "clone");
  return copy;
}

/// Writes a model in the safetensors format, which other tools read too. Equal weights give equal bytes.
void save_model(Module& model, const std::filesystem::path& path,
                std::map<std::string, std::string> metadata = {});
/// Writes the same to an open file.
void write_model(FileWriter& file, Module& model, std::map<std::string, std::string> metadata = {});
/// Loads a file that save_model wrote and returns its metadata.
std::map<std::string, std::string> load_model(Module& model, const std::filesystem::path& path);

}  // namespace heed
