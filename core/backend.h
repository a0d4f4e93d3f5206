#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "heed/core/device.h"
#include "heed/core/elementwise.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"

// How the op layer (autograd/) reaches a backend (backends/): a struct of function pointers, the kernels of
// core/kernels.def, and the structs that these take.

namespace heed {

enum class ReduceOp : std::uint8_t { sum, max, min };

struct AttentionArgs;  // core/attention.h
struct Recurrence;     // core/recurrence.h

/// A forward and a backward kernel that are usable only together, so that a fast path can
/// never lose a gradient.
template <class Forward, class Backward>
struct Fused {
  Forward* forward = nullptr;
  Backward* backward = nullptr;
};

/// One pass of an optimizer over all parameters. All spans have the same length.
struct OptimizerStep {
  std::span<const Tensor> parameters;     ///< contiguous, updated in place
  std::span<const Tensor> gradients;      ///< contiguous
  std::span<const Tensor> first_moment;   ///< Adam's m; SGD's momentum buffer (empty when momentum is 0)
  std::span<const Tensor> second_moment;  ///< Adam's v; empty for SGD
  Tensor gradient_scale;  ///< one element, multiplied into every gradient (clipping); undefined = 1
  Tensor skip;            ///< i32, one element: the step changes nothing unless it is 0; undefined = 0
  double learning_rate = 0;
  double beta1 = 0.9;  ///< for SGD: the momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = false;  ///< true: AdamW (arXiv 1711.05101); false: decay is added to the gradient
  std::int64_t step = 1;         ///< counts from 1, for Adam's bias correction
};

/// How linear_cross_entropy splits the logits [rows, classes] into chunks of rows.
struct LogitChunks {
  std::int64_t rows = 1;   ///< rows per chunk, at least 1
  std::int64_t pitch = 0;  ///< elements from one row to the next, at least the number of classes
};

/// The kernels of core/kernels.def. Those of the other backend alone are null: the op runs its composed body.
struct Backend {
  std::string_view name;
#define HEED_KERNEL(kernel, ...) std::add_pointer_t<__VA_ARGS__> kernel = nullptr;
#define HEED_FUSED(kernel, ...) Fused<__VA_ARGS__> kernel;
#include "heed/core/kernels.def"
};

/// The backend of a device. Throws an Error when the library was built without it or the device is absent.
const Backend& backend_of(Device device);
inline const Backend& backend_of(const Tensor& tensor) {
  return backend_of(tensor.device());
}

/// Defined by backends/cpu.
extern const Backend cpu_backend;
/// Throws an Error if this processor lacks what the CPU's kernels were compiled for, or what the environment
/// variable HEED_SIMD names, such as AVX2, to which it limits them.
void check_cpu_instructions();
/// Defined by backends/vulkan, or in a build without it by backends/no_vulkan.cpp, which throws.
const Backend& vulkan_backend();

/// While it lives on this thread, ops with a fused kernel run their composed body instead: the reference
/// that tests compare fused kernels with.
class ComposeOnly {
 public:
  ComposeOnly();
  ~ComposeOnly();
  ComposeOnly(const ComposeOnly&) = delete;
  ComposeOnly& operator=(const ComposeOnly&) = delete;
  static bool active();
};

/// True when both halves of a fused pair exist and no ComposeOnly scope is active.
template <class Forward, class Backward>
bool usable(const Fused<Forward, Backward>& fused) {
  return fused.forward && fused.backward && !ComposeOnly::active();
}

}  // namespace heed
