#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// Gradients of an op's inputs, in their order; an undefined tensor where an input needs none.
using Gradients = std::vector<Tensor>;
/// Computes the gradients of the inputs from the gradient of the output. Runs with recording off and captures
/// detached tensors only: a closure that held its own output would never be freed.
using BackwardFunction = std::function<Gradients(const Tensor& grad)>;

/// The same for an op with several outputs: one gradient for each, undefined where none has come.
using JointBackward = std::function<Gradients(std::span<const Tensor> grads)>;

/// The record of how a tensor was made. Ids grow with creation, so that falling ids are
/// a reverse topological order.
struct Node {
  std::uint64_t id = 0;
  const char* op = "leaf";
  Shape shape;
  DType dtype = DType::f32;
  std::vector<std::shared_ptr<Node>> inputs;  ///< null where an input is not tracked
  BackwardFunction backward;                  ///< empty for a leaf, and once it has run
  /// What `backward` reads, with the version that its memory had: overwritten since, it is an error.
  struct Read {
    std::weak_ptr<const Storage> memory;
    std::uint64_t version;
  };
  std::vector<Read> reads;
  Tensor gradient;  ///< a leaf keeps it until zero_gradient
  ~Node();          // unlinks long chains without recursion
};

/// Attaches a node to `out` when recording is on and any input is tracked; otherwise returns `out` as it is.
/// `reads`: the tensors that `backward` captures and somebody else could overwrite before it runs (Tensor::assign, an
/// optimizer's step); backward() throws then instead of giving a wrong gradient. Undefined ones are left out.
Tensor record(const char* op, const Tensor& out, std::initializer_list<Tensor> inputs,
              BackwardFunction backward, std::initializer_list<const Tensor*> reads = {});
Tensor record(const char* op, const Tensor& out, std::span<const Tensor> inputs, BackwardFunction backward,
              std::span<const Tensor* const> reads = {});

/// record() for an op with several outputs, whose gradients `backward` gets at once: every output has a node that leaves
/// its gradient with the op's, which is older and therefore walked when all that come have come.
std::vector<Tensor> record_joint(const char* op, std::span<const Tensor> outs, std::span<const Tensor> inputs,
                                 JointBackward backward, std::span<const Tensor* const> reads = {});

/// True when ops on these inputs would be recorded.
bool recording();

}  // namespace heed
