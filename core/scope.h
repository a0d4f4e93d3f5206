#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace heed {

class GradientWatch;
enum class MatmulPrecision : std::uint8_t;
class NotedLeaves;
class Tensor;

/// The settings of a thread that change for the length of a C++ scope. Tasks of the pool inherit them.
struct Scope {
  bool recording = true;                      ///< ops record their gradient (RecordingScope)
  bool compose_only = false;                  ///< see ComposeOnly
  bool shapes_only = false;                   ///< see ShapesOnly
  MatmulPrecision matmul_precision{};         ///< see WithMatmulPrecision
  const Tensor* expected_gradient = nullptr;  ///< see ExpectedGradient; null: 1
  // Not handed on to tasks:
  bool inside_task = false;                 ///< of the pool
  GradientWatch* gradient_watch = nullptr;  ///< the innermost
  NotedLeaves* noted_leaves = nullptr;      ///< the innermost
  const char* kernel = nullptr;             ///< the name of the innermost ProfileScope

  /// The scope of a task in a loop of this one.
  Scope in_task() const {
    return {recording, compose_only, shapes_only, matmul_precision, expected_gradient, true};
  }
};

/// The calling thread's.
inline constinit thread_local Scope current_scope;

/// Sets a field of the thread's Scope while it lives.
template <auto Field>
class Scoped {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<Scope&>().*Field)>;

  explicit Scoped(Value value) : before_(std::exchange(current_scope.*Field, value)) {}
  ~Scoped() { current_scope.*Field = before_; }
  Scoped& operator=(Scoped&&) = delete;

 protected:
  Value before() const { return before_; }

 private:
  Value before_;
};

}  // namespace heed
