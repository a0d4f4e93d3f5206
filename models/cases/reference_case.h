#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "heed/text/safetensors.h"

namespace heed::verify {

/// One file, a case `<variant>__<what is special>`: inputs, parameters, expected outputs, losses
/// and gradients.
struct ReferenceCase {
  std::string name;
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;  ///< f64, or i32 for masks and indices

  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  const Tensor& at(const std::string& tensor) const;  ///< throws an Error when absent
  /// The first part of the name: "hc_self" for "hc_self__encoder_pad".
  std::string variant() const { return name.substr(0, name.find("__")); }
  /// The name in the configuration, which a family of variants shares: "hardcoded".
  std::string family() const { return config.at("variant").get<std::string>(); }
  /// Returns the names of all tensors that begin with `prefix`, without it.
  std::vector<std::string> names(std::string_view prefix) const;
};

/// Reads a case; throws an Error when the file is damaged or no reference case.
ReferenceCase read_reference_case(const std::filesystem::path& file);
/// Reads a case from the content of such a file; `file` names it in errors.
ReferenceCase parse_reference_case(TensorFile content, const std::filesystem::path& file);

/// Copies to a device; f64 becomes `dtype`, integers stay.
Tensor convert(const Tensor& value, DType dtype, Device device);

}  // namespace heed::verify
