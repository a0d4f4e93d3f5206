#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "heed/data/safetensors.h"
#include "heed/models/module.h"

namespace heed {

/// The parameters and buffers of a model by name, as they are saved; shares memory with the model.
std::map<std::string, Tensor> model_state(Module& model);
/// Fills the parameters and buffers of a model in place. Throws, naming the tensor, unless names, shapes and
/// dtypes are exactly those of the model; then nothing has changed.
void load_model_state(Module& model, const std::map<std::string, Tensor>& state, std::string_view source);

/// Writes a model as safetensors that other tools read too. Equal weights give equal bytes.
void save_model(Module& model, const std::filesystem::path& path,
                std::map<std::string, std::string> metadata = {});
/// Reads what save_model wrote and returns the file's metadata.
std::map<std::string, std::string> load_model(Module& model, const std::filesystem::path& path);

}  // namespace heed
