#include "heed/models/local_layer.h"

#include "heed/autograd/ops.h"

namespace heed {

LocalLayer::LocalLayer(const TransformerConfig& config, Initialiser& initialiser)
    : neighbours_(config.local_width),
      activation_(activation_of(config.activation)),
      map_(config.local_width * config.width, config.width, true, initialiser),
      norm_(config) {
  add_module("map", map_);
  add_module("norm", norm_);
}

Tensor LocalLayer::operator()(const Tensor& x, const Tensor& mask, Context& context) const {
  const std::int64_t left = (neighbours_ - 1) / 2, right = neighbours_ - 1 - left, length = x.size(1);
  const auto filtered = [&](const Tensor& input) {
    const Tensor real = mask.defined() ? input * unsqueeze(cast(mask, input.dtype()), 2) : input;
    const Tensor wide = pad(real, 1, left, right);
    std::vector<Tensor> windows;
    for (std::int64_t i = 0; i < neighbours_; ++i) windows.push_back(slice(wide, 1, i, i + length));
    return apply(activation_, map_(concat(windows, -1)));
  };
  return norm_.around(x, context, filtered).sum();
}

}  // namespace heed
