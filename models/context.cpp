#include "heed/models/context.h"

#include <limits>

#include "heed/autograd/ops.h"
#include "heed/models/module.h"

namespace heed {

Tensor Capture::find(std::string_view name) const {
  Tensor found;
  for (const Entry& entry : entries) {
    if (entry.name == name) found = entry.value;
  }
  return found;
}

void Context::observe(Module& layer, std::vector<Tensor> values) {
  if (observations)
    observations->push_back({&layer, std::move(values)});
  else
    layer.absorb(values);
}

Tensor Context::auxiliary_loss() const {
  Tensor total;
  for (const AuxiliaryLoss& loss : losses) {
    check(loss.value.count() == 1, "auxiliary loss '", loss.name, "' must have one element, has shape ",
          loss.value.shape());
    const Tensor term = reshape(loss.value, {}) * loss.weight;
    total = total.defined() ? total + term : term;
  }
  return total;
}

Context Rng::next_step() {
  check(step_ < std::numeric_limits<std::uint32_t>::max(), "Rng: no step comes after number ", step_);
  return Context::train(seed_, ++step_);
}

}  // namespace heed
