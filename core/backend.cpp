#include "heed/core/backend.h"

#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/core/tensor.h"

namespace heed {

const Backend& backend_of(Device device) {
  if (device.type == DeviceType::vulkan) return vulkan_backend();
  check(device.index == 0, "device cpu:", device.index, " does not exist: there is one CPU device");
  check_cpu_instructions();
  return cpu_backend;
}

MemoryStats memory_stats(Device device) {
  return backend_of(device).memory_stats(device);
}
void reset_peak_memory(Device device) {
  backend_of(device).reset_peak(device);
}

void synchronize(Device device) {
  // Results are computed in order, so reading a new one reports the errors of everything before it.
  static_cast<void>(Tensor::zeros({1}, DType::i32, device).item());
}

}  // namespace heed
