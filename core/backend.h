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
#include "heed/core/scope.h"
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
  std::span<const Tensor> parameters;  ///< contiguous, updated in place
  std::span<const Tensor> gradients;   ///< contiguous
  /// Adam's m; SGD's momentum buffer (empty without momentum).
  std::span<const Tensor> first_moment;
  std::span<const Tensor> second_moment;  ///< Adam's v; empty for SGD
  Tensor gradient_scale;  ///< one element, multiplied into every gradient (clipping); undefined = 1
  Tensor skip;            ///< i32, one element: not 0 makes the step change nothing; undefined = 0
  double learning_rate = 0;
  double beta1 = 0.9;  ///< for SGD: the momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  /// True: AdamW (arXiv 1711.05101); false: decay is part of the gradient.
  bool decoupled_decay = false;
  std::int64_t step = 1;  ///< counts from 1, for Adam's bias correction
};

/// The size of the chunks into which linear_cross_entropy splits the logits [rows, classes].
struct LogitChunks {
  std::int64_t rows = 1;   ///< rows per chunk, at least 1
  std::int64_t pitch = 0;  ///< elements from one row to the next, at least the number of classes
};

/// The kernels of core/kernels.def. Kernels that only the other backend has are null; their ops
/// then run the composed body.
struct Backend {
  std::string_view name;
#define HEED_KERNEL(kernel, ...) std::add_pointer_t<__VA_ARGS__> kernel = nullptr;
#define HEED_FUSED(kernel, ...) Fused<__VA_ARGS__> kernel;
#include "heed/core/kernels.def"
};

/// The backend of a device. Throws an Error when the library was built without it or the device is
/// absent.
const Backend& backend_of(Device device);
inline const Backend& backend_of(const Tensor& tensor) {
  return backend_of(tensor.device());
}

/// The CPU backend, defined by backends/cpu.
extern const Backend cpu_backend;
/// Throws an Error if this processor lacks instructions that the CPU kernels need. The environment
/// variable HEED_SIMD, such as AVX2, limits the kernels to one instruction set, which must be
/// present too.
void check_cpu_instructions();
/// The Vulkan backend, defined by backends/vulkan. A build without Vulkan has
/// backends/no_vulkan.cpp, which throws.
const Backend& vulkan_backend();

/// Makes ops with a fused kernel run their composed body on this thread while it lives. Tests
/// compare fused kernels with this reference.
class ComposeOnly : Scoped<&Scope::compose_only> {
 public:
  ComposeOnly() : Scoped(true) {}
  static bool active() { return current_scope.compose_only; }
};

/// True when both halves of a fused pair exist and no ComposeOnly scope is active.
template <class Forward, class Backward>
bool usable(const Fused<Forward, Backward>& fused) {
  return fused.forward && fused.backward && !ComposeOnly::active();
}

}  // namespace heed
