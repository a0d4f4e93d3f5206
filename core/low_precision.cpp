#include "heed/core/low_precision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/base/error.h"

namespace heed {

bool NarrowRows::has_columns_of(const Tensor& view) const {
  const std::int64_t k = view.size(-2), n = view.size(-1);
  if ((k > 1 && view.stride(-2) != 1) || (n > 1 && view.stride(-1) != columns)) return false;
  if (columns == 0 || view.offset() % columns + k > columns) return false;
  std::int64_t last = view.offset() / columns + n - 1;  // the last row that the view reaches
  for (int axis = 0; axis + 2 < view.rank(); ++axis) {
    if (view.stride(axis) % columns != 0) return false;
    last += (view.size(axis) - 1) * view.stride(axis) / columns;
  }
  return last < rows;
}

/// Makes room for the rows of a matrix, after checking that it can be rounded.
static NarrowRows room_for(const char* op, const Tensor& matrix, NarrowRows::Format format,
                           std::size_t bytes) {
  check(matrix.defined() && matrix.rank() == 2 && matrix.dtype() == DType::f32 && matrix.is_contiguous() &&
            matrix.device().type == DeviceType::cpu,
        op, ": needs a contiguous matrix of f32 on the CPU");
  NarrowRows out{format, matrix.size(0), matrix.size(1), {}, {}};
  const std::int64_t count = out.rows * out.columns;
  check(matrix.offset() == 0 && matrix.storage()->bytes() == static_cast<std::size_t>(count) * sizeof(float),
        op, ": needs the whole of a storage, not a view into one");
  const float* all = matrix.data<float>();
  for (std::int64_t i = 0; i < count; ++i)
    check(std::isfinite(all[i]), op, ": element (", i / out.columns, ", ", i % out.columns, ") is ", all[i]);
  out.memory = Tensor::zeros({ceil_div((count + NarrowRows::slack) * static_cast<std::int64_t>(bytes),
                                       std::int64_t{sizeof(std::int32_t)})},
                             DType::i32);
  return out;
}

static void keep(const Tensor& matrix, NarrowRows rows) {
  matrix.storage()->overwritten();
  matrix.storage()->keep_derived(std::make_shared<NarrowRows>(std::move(rows)));
}

void round_to_int8(const Tensor& matrix) {
  NarrowRows result = room_for("round_to_int8", matrix, NarrowRows::Format::int8, sizeof(std::int8_t));
  result.scales.resize(static_cast<std::size_t>(result.rows));
  float* x = matrix.data<float>();
  auto* q = result.values<std::int8_t>();
  for (float& scale : result.scales) {
    float largest = 0;
    for (std::int64_t j = 0; j < result.columns; ++j) largest = std::max(largest, std::abs(x[j]));
    scale = std::min(largest / 127, std::nextafter(std::numeric_limits<float>::max() / 127, 0.0F));
    if (scale == 0) std::fill_n(x, result.columns, 0.0F);  // the 8-bit values are 0 already
    for (std::int64_t j = 0; j < result.columns && scale > 0; ++j) {
      const float rounded = std::clamp(std::nearbyint(x[j] / scale), -127.0F, 127.0F);
      q[j] = static_cast<std::int8_t>(rounded);
      x[j] = rounded * scale;
    }
    x += result.columns, q += result.columns;
  }
  keep(matrix, std::move(result));
}

void round_to_bf16(const Tensor& matrix) {
  NarrowRows result = room_for("round_to_bf16", matrix, NarrowRows::Format::bf16, sizeof(std::uint16_t));
  constexpr std::uint16_t magnitude = 0x7FFF, largest = 0x7F7F;
  float* x = matrix.data<float>();
  auto* q = result.values<std::uint16_t>();
  for (std::int64_t i = 0; i < result.rows * result.columns; ++i) {
    q[i] = float_to_bf16(x[i]);
    if ((q[i] & magnitude) > largest) --q[i];  // the finite number before infinity
    x[i] = bf16_to_float(q[i]);
  }
  keep(matrix, std::move(result));
}

}  // namespace heed
