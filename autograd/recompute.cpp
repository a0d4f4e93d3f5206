#include "heed/autograd/autograd.h"
#include "heed/autograd/recording.h"

namespace heed {

Tensor recompute_in_backward(std::function<Tensor(std::span<const Tensor>, Random&)> segment,
                             std::vector<Tensor> inputs, Random& random) {
  check(segment != nullptr, "recompute_in_backward: there is no segment");
  if (!recording()) return segment(inputs, random);
  const Random at_start = random;
  Tensor out;
  std::vector<Tensor> captured;  // parameters that the segment reads
  {
    const NoGrad forget;
    NotedLeaves read;
    out = segment(inputs, random).detach();
    captured = std::move(read.leaves);
  }
  std::vector<Tensor> saved;
  std::vector<bool> wanted;
  for (const Tensor& input : inputs) {
    saved.push_back(input.detach());
    wanted.push_back(input.tracked());
  }
  std::vector<const Tensor*> reads;
  for (const std::vector<Tensor>* all : {&saved, &captured})
    for (const Tensor& read : *all) reads.push_back(&read);
  return record_always(
      "recompute_in_backward", out, inputs,
      [segment = std::move(segment), saved, wanted, at_start](const Tensor& grad) {
        std::vector<Tensor> again = saved;
        for (std::size_t i = 0; i < again.size(); ++i) {
          if (wanted[i]) again[i] = parameter(saved[i]);
        }
        Random same_numbers = at_start;
        Tensor output;
        {
          const RecordingScope remember(true);
          output = segment(again, same_numbers);
        }
        if (output.tracked()) backward(output, grad);
        Gradients gradients(again.size());
        for (std::size_t i = 0; i < again.size(); ++i) {
          if (wanted[i]) gradients[i] = gradient(again[i]);
        }
        return gradients;
      },
      reads);
}

}  // namespace heed
