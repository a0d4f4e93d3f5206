#include "heed/core/int8_rows.h"

#include <algorithm>
#include <cmath>

#include "heed/core/checked.h"

namespace heed {

void round_to_int8(const Tensor& matrix) {
  check(matrix.defined() && matrix.rank() == 2 && matrix.dtype() == DType::f32 && matrix.is_contiguous() &&
            matrix.device().type == DeviceType::cpu,
        "round_to_int8: needs a contiguous matrix of f32 on the CPU");
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  check(matrix.offset() == 0 &&
            matrix.storage()->bytes() / sizeof(float) >= static_cast<std::size_t>(rows * columns),
        "round_to_int8: needs the whole of a storage, not a view into one");
  auto result = std::make_shared<Int8Rows>();
  result->columns = columns;
  result->memory = Tensor::zeros({ceil_div(rows * columns + Int8Rows::slack, 4)}, DType::i32);
  result->scales.resize(static_cast<std::size_t>(rows));
  float* x = matrix.data<float>();
  std::int8_t* q = result->values();
  for (std::int64_t i = 0; i < rows; ++i, x += columns, q += columns) {
    float largest = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      check(std::isfinite(x[j]), "round_to_int8: element (", i, ", ", j, ") is ", x[j]);
      largest = std::max(largest, std::abs(x[j]));
    }
    const float scale = largest / 127;
    result->scales[static_cast<std::size_t>(i)] = scale;
    if (scale == 0) std::fill_n(x, columns, 0.0F);  // and so are the values
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
