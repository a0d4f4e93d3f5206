#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heed/models/context.h"
#include "heed/models/module.h"

namespace heed {

/// A part of a model that turns a tensor into a tensor, with or without a Context.
template <class Layer>
concept LayerOfTensors = std::derived_from<Layer, Module> &&
    (std::is_invocable_r_v<Tensor, Layer&, const Tensor&, Context&> ||
     std::is_invocable_r_v<Tensor, Layer&, const Tensor&>);

/// Layers and functions one after the other. The parts are called "0", "1", ...: functions count, too, so that a
/// number is the place in the sequence.
///
///   heed::Sequential net;
///   net.emplace<heed::Linear>(2, 32, true, initialiser);
///   net.add(heed::gelu);
///   net.emplace<heed::Linear>(32, 1, true, initialiser);
class Sequential : public Module {
 public:
  /// Builds a layer from these arguments and puts it behind the others.
  template <LayerOfTensors Layer, class... Arguments>
  Layer& emplace(Arguments&&... arguments) {
    auto layer = std::make_unique<Layer>(std::forward<Arguments>(arguments)...);
    Layer& added = *layer;
    add_module(std::to_string(steps_.size()), added);
    steps_.push_back([&added](const Tensor& x, Context& context) {
      if constexpr (std::is_invocable_v<Layer&, const Tensor&, Context&>)
        return added(x, context);
      else
        return added(x);
    });
    layers_.push_back(std::move(layer));
    return added;
  }
  /// Puts a function behind the others. Throws when it is empty.
  void add(std::function<Tensor(const Tensor&)> function);

  std::size_t size() const { return steps_.size(); }
  /// x through all of them; x itself when there are none.
  Tensor operator()(const Tensor& x, Context& context) const;
  /// The same in inference.
  Tensor operator()(const Tensor& x) const;

 private:
  std::vector<std::unique_ptr<Module>> layers_;
  std::vector<std::function<Tensor(const Tensor&, Context&)>> steps_;
};

/// Parts of one kind that a model holds and calls as it likes; they are called "0", "1", ...
template <std::derived_from<Module> Part>
class ModuleList : public Module {
 public:
  /// Builds a part from these arguments and puts it behind the others.
  template <class... Arguments>
  Part& emplace(Arguments&&... arguments) {
    parts_.push_back(std::make_unique<Part>(std::forward<Arguments>(arguments)...));
    add_module(std::to_string(parts_.size() - 1), *parts_.back());
    return *parts_.back();
  }
  std::size_t size() const { return parts_.size(); }
  /// Throws for an index beyond the end.
  Part& operator[](std::size_t index) const {
    check(index < parts_.size(), "module list: there is no part ", index, " among ", parts_.size());
    return *parts_[index];
  }

 private:
  std::vector<std::unique_ptr<Part>> parts_;
};

/// A table of all parameters and buffers with their shapes and numbers of elements, and the sums.
std::string summary(Module& model);

}  // namespace heed
