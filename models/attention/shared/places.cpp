#include "heed/models/attention/shared/places.h"

#include "heed/autograd/ops.h"

namespace heed {

RealPlaces real_places(const Tensor& mask, const Tensor& x) {
  const DType precise = statistics_type(x.dtype());
  const std::int64_t length = x.size(1);
  if (!mask.defined())
    return {unsqueeze(Tensor::arange(length, DType::i32, x.device()), 0),
            Tensor::full({1, 1}, static_cast<double>(length), precise, x.device())};
  const Tensor real = cast(mask, precise);
  return {cast(cumulative_sum(real, 1), DType::i32) - 1, maximum(sum(real, 1, true), 1)};
}

}  // namespace heed
