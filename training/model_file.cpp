#include "heed/training/model_file.h"

#include "heed/training/named_state.h"

namespace heed {

std::map<std::string, Tensor> model_state(Module& model) {
  std::map<std::string, Tensor> state;
  for (const NamedTensor& entry : model.state()) {
    check(state.emplace(entry.name, entry.tensor->detach()).second, "the model has two tensors named \"",
          entry.name, "\"");
  }
  return state;
}

void load_model_state(Module& model, const std::map<std::string, Tensor>& state, std::string_view source) {
  const std::map<std::string, Tensor> own = model_state(model);
  const std::vector<std::pair<std::string, Tensor>> targets(own.begin(), own.end());
  copy_named_tensors(state, targets, concat_text(source, " does not fit the model"));
  model.state_changed();
}

void save_model(Module& model, const std::filesystem::path& path,
                std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");  // Hugging Face's loaders insist on this entry
  save_safetensors(path, {model_state(model), std::move(metadata)});
}

std::map<std::string, std::string> load_model(Module& model, const std::filesystem::path& path) {
  TensorFile file = load_safetensors(path);
  load_model_state(model, file.tensors, path.string());
  return std::move(file.metadata);
}

}  // namespace heed
