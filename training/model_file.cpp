#include "heed/training/model_file.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "heed/base/file.h"

namespace heed {
namespace {

/// Copies through the host, because the two may be on different devices.
void copy_elements(const Tensor& from, const Tensor& to) {
  switch (to.dtype()) {
    case DType::f32:
      return to.assign(std::span<const float>(from.to_vector<float>()));
    case DType::f64:
      return to.assign(std::span<const double>(from.to_vector<double>()));
    case DType::i32:
      return to.assign(std::span<const std::int32_t>(from.to_vector<std::int32_t>()));
    case DType::f16:
    case DType::bf16:
      break;
  }
  fail("copying tensors by name: ", to.dtype(), " is for computing, not for weights; cast to f32");
}

template <class T>
void check_finite(const Tensor& tensor, const std::string& name, std::string_view what) {
  const std::vector<T> values = tensor.to_vector<T>();
  for (std::size_t i = 0; i < values.size(); ++i)
    check(std::isfinite(values[i]), what, ": the tensor \"", name, "\" holds ", values[i], " at element ", i,
          ", but all numbers must be finite: a training that diverged saved it so, or the file was changed");
}

void check_finite(const Tensor& tensor, const std::string& name, std::string_view what) {
  if (tensor.dtype() == DType::f32) check_finite<float>(tensor, name, what);
  if (tensor.dtype() == DType::f64) check_finite<double>(tensor, name, what);
}

}  // namespace

void copy_named_tensors(const std::map<std::string, Tensor>& saved,
                        std::span<const std::pair<std::string, Tensor>> targets, std::string_view what) {
  std::set<std::string> expected;
  for (const auto& [name, target] : targets) {
    expected.insert(name);
    const auto found = saved.find(name);
    check(found != saved.end(), what, ": the tensor \"", name, "\" ", target.shape(), " is missing");
    const Tensor& source = found->second;
    check(source.shape() == target.shape() && source.dtype() == target.dtype(), what, ": the tensor \"", name,
          "\" is ", source.dtype(), " ", source.shape(), ", but ", target.dtype(), " ", target.shape(),
          " was expected");
    check_finite(source, name, what);
  }
  for (const auto& [name, source] : saved)
    check(expected.contains(name), what, ": unknown tensor \"", name, "\"");

  for (const auto& [name, target] : targets) copy_elements(saved.at(name), target);
}

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
  write_file_atomically(path, [&](FileWriter& file) { write_model(file, model, std::move(metadata)); });
}

void write_model(FileWriter& file, Module& model, std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");  // Hugging Face's loaders insist on this entry
  write_safetensors(file, {model_state(model), std::move(metadata)});
}

std::map<std::string, std::string> load_model(Module& model, const std::filesystem::path& path) {
  TensorFile file = load_safetensors(path);
  load_model_state(model, file.tensors, path.string());
  return std::move(file.metadata);
}

}  // namespace heed
