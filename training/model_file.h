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

/// Copies saved tensors into the targets of the same names. Before anything is changed, checks that both have
/// exactly the same names, shapes and dtypes, and that all numbers are finite; the Error names `what` and the
/// first tensor that is missing, differs, is unknown or holds what is no number.
void copy_named_tensors(const std::map<std::string, Tensor>& saved,
                        std::span<const std::pair<std::string, Tensor>> targets, std::string_view what);

/// The parameters and buffers of a model by name, as they are saved; shares memory with the model.
std::map<std::string, Tensor> model_state(Module& model);
/// Fills the parameters and buffers of a model in place. Throws as copy_named_tensors
/// does; then nothing has changed.
void load_model_state(Module& model, const std::map<std::string, Tensor>& state, std::string_view source);

/// A second model with the same configuration, dtype, device and values, which shares nothing with the first;
/// of models that are made from what their config() gives.
template <class Model>
std::unique_ptr<Model> clone(Model& model) {
  auto copy = std::make_unique<Model>(model.config());
  if (const std::vector<NamedTensor> parameters = model.parameters(); !parameters.empty())
    copy->to(parameters.front().tensor->dtype(), parameters.front().tensor->device());
  load_model_state(*copy, model_state(model), "clone");
  return copy;
}

/// Writes a model as safetensors that other tools read too. Equal weights give equal bytes.
void save_model(Module& model, const std::filesystem::path& path,
                std::map<std::string, std::string> metadata = {});
/// The same into a file that is being written.
void write_model(FileWriter& file, Module& model, std::map<std::string, std::string> metadata = {});
/// Reads what save_model wrote and returns the file's metadata.
std::map<std::string, std::string> load_model(Module& model, const std::filesystem::path& path);

}  // namespace heed
