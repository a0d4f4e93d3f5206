#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// A parameter or buffer with its dotted name, for example "encoder.layers.0.attention.query.weight".
struct NamedTensor {
  std::string name;
  Tensor* tensor;
};

/// A part of a model that owns named parameters and other parts. Members are registered by address, so a
/// module neither moves nor copies; hold parts by value or unique_ptr and register them in the constructor.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters of this module and its parts, in registration order, each once even when shared.
  std::vector<NamedTensor> parameters();
  /// Tensors that are saved with the model but not trained by gradient.
  std::vector<NamedTensor> buffers();
  /// parameters() followed by buffers(): what a model file holds.
  std::vector<NamedTensor> state();
  /// Replaces every floating parameter and buffer by a copy of another dtype and device; parameters become
  /// fresh leaves. Buffers of integers stay on the CPU: they say how patterns are built, which the host does.
  void to(DType dtype, Device device);
  /// To be called when parameters or buffers were given new values from outside, such as from a file: what
  /// this module and its parts have worked out from the old ones is forgotten.
  void state_changed();
  /// Makes buffers of the parameters of this module and its parts: they are saved with the model and no longer trained.
  void freeze();
  /// round_to_int8() of every matrix among the parameters: for computing with a model token by token, when reading the
  /// weights takes the time. Throws an Error unless they are f32 and on the CPU.
  void round_to_int8();
  /// Calls visit for this module and all parts, those that are shared once for each owner.
  void for_each_part(const std::function<void(Module&)>& visit);
  /// Moves buffers by what a pass has seen (Context::observe). Throws an Error for a module that has none to move.
  virtual void absorb(std::span<const Tensor> values);
  /// The module of a path() below this one, or this one itself; null when there is none.
  Module* find(std::string_view path);
  /// Number of trained elements.
  std::int64_t parameter_count();
  /// The dotted name of this module inside the model it is part of, for error messages; "" for the model
  /// itself. A part that several modules share is named after the first that registered it.
  std::string path() const;

 protected:
  /// Forgets what was worked out from parameters and buffers.
  virtual void forget() {}
  /// Makes `member` a tracked leaf that holds `initial`.
  void add_parameter(std::string name, Tensor& member, const Tensor& initial);
  void add_buffer(std::string name, Tensor& member, const Tensor& initial);
  void add_module(std::string name, Module& part);
  /// The beginning of an error message: path and kind, as in "encoder.layers.0.attention (Linear)".
  std::string described(const char* kind) const;

 private:
  std::vector<NamedTensor> collected(std::vector<NamedTensor> Module::*list);

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, Module*>> parts_;
  const Module* parent_ = nullptr;
  std::string name_;  // in the parent
};

}  // namespace heed
