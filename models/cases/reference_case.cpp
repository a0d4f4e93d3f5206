#include "heed/models/cases/reference_case.h"

#include "heed/base/json.h"

namespace heed::verify {

const Tensor& ReferenceCase::at(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  check(found != tensors.end(), "the case has no tensor ", tensor);
  return found->second;
}

std::vector<std::string> ReferenceCase::names(std::string_view prefix) const {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) result.push_back(name.substr(prefix.size()));
  return result;
}

ReferenceCase read_reference_case(const std::filesystem::path& file) {
  return parse_reference_case(load_safetensors(file), file);
}

ReferenceCase parse_reference_case(TensorFile content, const std::filesystem::path& file) {
  const auto text = content.metadata.find("config");
  check(text != content.metadata.end(), file.string(),
        ": this is no reference case: its metadata has no \"config\"");
  const auto name = content.metadata.find("case");
  ReferenceCase result{name != content.metadata.end() ? name->second : file.stem().string(),
                       parse_json<nlohmann::json>(text->second, file.string() + ": the case's configuration"),
                       std::move(content.tensors)};
  check(
      result.config.is_object() && result.config.contains("variant") && result.config["variant"].is_string(),
      file.string(), ": the case's configuration names no variant");
  return result;
}

Tensor convert(const Tensor& value, DType dtype, Device device) {
  if (value.dtype() == DType::i32)
    return Tensor::from(value.to_vector<std::int32_t>(), value.shape(), device);
  const std::vector<double> values = value.to_doubles();
  if (dtype == DType::f64) return Tensor::from(values, value.shape(), device);
  return Tensor::from(std::vector<float>(values.begin(), values.end()), value.shape(), device);
}

}  // namespace heed::verify
