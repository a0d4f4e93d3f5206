#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

namespace {

Tensor rotary_composed(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  const auto of_heads = [&](const Tensor& table) { return cast(unsqueeze(table.detach(), 1), x.dtype()); };
  const Tensor cosine = of_heads(cosines), sine = of_heads(sines);  // [N, 1, dh / 2]
  const std::int64_t width = x.size(3), half = width / 2;
  const Tensor first = slice(x, 3, 0, half), second = slice(x, 3, half, width);
  return concat({first * cosine - second * sine, second * cosine + first * sine}, 3);
}

void check_rotary(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  check_floating("rotary", x);
  check_same("rotary", cosines, sines);
  check(x.rank() == 4 && x.size(3) % 2 == 0, "rotary: x must be [B, N, H, dh] with an even dh, got shape ",
        x.shape());
  const Shape expected{x.size(1), x.size(3) / 2};
  check(cosines.shape() == expected && sines.shape() == expected, "rotary: cosines and sines of shapes ",
        cosines.shape(), " and ", sines.shape(), " must be [N, dh / 2] = ", expected);
  check(cosines.dtype() == statistics_type(x.dtype()) && cosines.device() == x.device(), "rotary: for x of ",
        x.dtype(), " on ", x.device(), " cosines and sines must be ", statistics_type(x.dtype()),
        " on the same device, got ", cosines.dtype(), " on ", cosines.device());
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  check_rotary(x, cosines, sines);
  const Backend& backend = backend_of(x);
  if (!usable(backend.rotary)) return rotary_composed(x, cosines, sines);
  const Tensor cosine = contiguous(cosines.detach()), sine = contiguous(sines.detach()), out = empty_like(x);
  backend.rotary.forward(contiguous(x.detach()), cosine, sine, out);
  return record("rotary", out, {x},
                [cosine, sine](const Tensor& grad) {
                  const Tensor turned = contiguous(grad), dx = empty_like(grad);
                  backend_of(grad).rotary.backward(turned, cosine, sine, dx);
                  return Gradients{dx};
                },
                {&cosine, &sine});
}

}  // namespace heed
