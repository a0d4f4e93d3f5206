#include "heed/core/low_precision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/base/error.h"

namespace heed {

bool Int8Rows::hold_columns(const Tensor& view) const {
  const std::int64_t k = view.size(-2), n = view.size(-1);
  if ((k > 1 && view.stride(-2) != 1) || (n > 1 && view.stride(-1) != columns)) return false;
  if (columns == 0 || view.offset() % columns + k > columns) return false;
  std::int64_t last = view.offset() / columns + n - 1;  // the last row that the view reaches
  for (int axis = 0; axis + 2 < view.rank(); ++axis) {
    if (view.stride(axis) % columns != 0) return false;
    last += (view.size(axis) - 1) * view.stride(axis) / columns;
  }
  return last < std::ssize(scales);
}

void round_to_int8(const Tensor& matrix) {
  check(matrix.defined() && matrix.rank() == 2 && matrix.dtype() == DType::f32 && matrix.is_contiguous() &&
            matrix.device().type == DeviceType::cpu,
        "round_to_int8: needs a contiguous matrix of f32 on the CPU");
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  check(matrix.offset() == 0 &&
            matrix.storage()->bytes() == static_cast<std::size_t>(rows * columns) * sizeof(float),
        "round_to_int8: needs the whole of a storage, not a view into one");
  const float* all = matrix.data<float>();
  for (std::int64_t i = 0; i < rows * columns; ++i)
    check(std::isfinite(all[i]), "round_to_int8: element (", i / columns, ", ", i % columns, ") is ", all[i]);
  auto result = std::make_shared<Int8Rows>();
  result->columns = columns;
  result->memory = Tensor::zeros({ceil_div(rows * columns + Int8Rows::slack, 4)}, DType::i32);
  result->scales.resize(static_cast<std::size_t>(rows));
  float* x = matrix.data<float>();
  std::int8_t* q = result->values();
  for (std::int64_t i = 0; i < rows; ++i, x += columns, q += columns) {
    float largest = 0;
    for (std::int64_t j = 0; j < columns; ++j) largest = std::max(largest, std::abs(x[j]));
    const float scale =
        std::min(largest / 127, std::nextafter(std::numeric_limits<float>::max() / 127, 0.0F));
    result->scales[static_cast<std::size_t>(i)] = scale;
    if (scale == 0) std::fill_n(x, columns, 0.0F);  // the 8-bit values are 0 already
    for (std::int64_t j = 0; j < columns && scale > 0; ++j) {
      const float rounded = std::clamp(std::nearbyint(x[j] / scale), -127.0F, 127.0F);
      q[j] = static_cast<std::int8_t>(rounded);
      x[j] = rounded * scale;
    }
  }
  matrix.storage()->overwritten();
  matrix.storage()->keep_int8_rows(std::move(result));
}

}  // namespace heed
