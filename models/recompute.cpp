#include "heed/models/recompute.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/node.h"
#include "heed/core/error.h"

namespace heed {

Tensor recomputed_layer(const LayerFunction& layer, const Tensor& x, const Tensor& memory, Context& context) {
  const auto segment = [layer, &context, training = context.training](std::span<const Tensor> inputs,
                                                                      Random& random) {
    // The first pass, which nothing records, is the one that counts; the second, in backward, may outlive the context.
    const bool first = !recording();
    std::vector<Observation> again;
    Context own;
    own.training = training;
    own.random = random;
    own.observations = first ? context.observations : &again;
    const Tensor out = layer(inputs[0], inputs.size() > 1 ? inputs[1] : Tensor(), own);
    check(own.losses.empty() && own.handed_on.empty(),
          "recompute_layers does not serve layers with auxiliary losses or with something to hand on to "
          "later ones; set it to false");
    random = own.random;
    return out;
  };
  std::vector<Tensor> inputs{x};
  if (memory.defined()) inputs.push_back(memory);
  return recompute_in_backward(segment, std::move(inputs), context.random);
}

}  // namespace heed
