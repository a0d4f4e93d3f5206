#include "heed/training/named_state.h"

#include <cstdint>
#include <set>

namespace heed {
namespace {

/// Through the host, because the two may live on different devices.
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
  }
  for (const auto& [name, source] : saved)
    check(expected.contains(name), what, ": unknown tensor \"", name, "\"");

  for (const auto& [name, target] : targets) copy_elements(saved.at(name), target);
}

}  // namespace heed
