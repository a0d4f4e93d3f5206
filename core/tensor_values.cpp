// The functions of tensor.h that need a backend: memory, values and views.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/backend.h"
#include "heed/core/tensor.h"

namespace heed {

double last_below(double low, double high, DType dtype) {
  // For each type: significant bits, and the exponent of its smallest positive number.
  const auto [digits, least] = dtype == DType::f64   ? std::pair(53, -1074)
                               : dtype == DType::f32 ? std::pair(24, -149)
                               : dtype == DType::f16 ? std::pair(11, -24)
                                                     : std::pair(8, -133);
  int exponent = 0;
  std::frexp(std::nextafter(high, -HUGE_VAL), &exponent);  // of the numbers just below `high`
  const double step = std::ldexp(1.0, std::max(exponent - digits, least));
  return std::max(low, (std::ceil(high / step) - 1) * step);
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    std::int64_t& extent = result[longer.rank() - i];
    std::int64_t other = shorter[shorter.rank() - i];
    check(extent == other || extent == 1 || other == 1, op, ": shapes ", a, " and ", b, " do not broadcast");
    if (extent == 1) extent = other;
  }
  return result;
}

/// Throws when the product overflows, before the wrapped size is used.
static std::size_t bytes_for(const char* op, const Shape& shape, DType dtype) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  bool nothing = false;
  for (const std::int64_t extent : shape) {
    check(extent >= 0, op, ": shape ", shape, " has a negative extent");
    nothing = nothing || extent == 0;  // the strides of an empty tensor must fit too
    check(!__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes), op, ": shape ", shape,
          " has more elements than memory can hold");
  }
  return nothing ? 0 : static_cast<std::size_t>(bytes);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  check_stop();
  const std::size_t bytes = bytes_for("empty", shape, dtype);
  const bool on_cpu = device.type == DeviceType::cpu;
  check(on_cpu || dtype != DType::f64, "empty: f64 exists on the CPU only, not on ", device);
  check(!on_cpu || !is_half(dtype), "empty: ", dtype,
        " exists on Vulkan devices only; the CPU computes in f32");
  return {backend_of(device).allocate(device, bytes), 0, shape, contiguous_strides(shape), dtype};
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  check(dtype != DType::i32 ||
            (value == std::floor(value) && value >= std::numeric_limits<std::int32_t>::min() &&
             value <= std::numeric_limits<std::int32_t>::max()),
        "full: ", value, " cannot be represented as i32");
  Tensor result = empty(shape, dtype, device);
  backend_of(device).fill(value, result);
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0, dtype, device);
}
Tensor Tensor::ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

namespace {
template <class T>
Tensor make_arange(std::int64_t count, Device device) {
  const Tensor result = Tensor::empty({count}, dtype_of<T>, device);  // first: reports a lack of memory
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = static_cast<T>(i);
  result.assign(std::span<const T>(values));
  return result;
}

template <class T>
std::vector<double> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}
}  // namespace

Tensor Tensor::arange(std::int64_t count, DType dtype, Device device) {
  check(count >= 0, "arange: count ", count, " is negative");
  switch (dtype) {
    case DType::f32:
      return make_arange<float>(count, device);
    case DType::f64:
      return make_arange<double>(count, device);
    case DType::i32:
      return make_arange<std::int32_t>(count, device);
    case DType::f16:
    case DType::bf16:
      break;
  }
  fail("arange: ", dtype, " cannot represent all integers; cast from i32");
}

template <TensorElement T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, Device device) {
  check(static_cast<std::int64_t>(values.size()) == shape.count(), "from: ", values.size(),
        " values do not fill shape ", shape);
  Tensor result = empty(shape, dtype_of<T>, device);
  result.assign(values);
  return result;
}

template <TensorElement T>
void Tensor::assign(std::span<const T> values) const {
  check(defined(), "assign: the tensor is undefined");
  check(dtype_of<T> == dtype_, "assign: values of type ", dtype_of<T>, " given to a tensor of type ", dtype_);
  check(static_cast<std::int64_t>(values.size()) == count(), "assign: ", values.size(),
        " values given to shape ", shape_);
  if (values.empty()) return;
  if (is_contiguous()) {
    backend_of(*this).upload(values.data(), *this);
  } else {
    for (int i = 0; i < rank(); ++i)
      check(strides_[i] != 0 || shape_[i] == 1, "assign: the elements along axis ", i, " of the shape ",
            shape_, " are one and the same; assign to the tensor that was expanded");
    backend_of(*this).copy(from(values, shape_, device()), *this);
  }
  storage_->overwritten();
}

void Tensor::throw_undefined(const char* call) {
  fail(call, ": the tensor is undefined: it was never given a value");
}

bool Tensor::is_contiguous() const {
  check(defined(), "is_contiguous: the tensor is undefined");
  std::int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return count() == 0;
    step *= shape_[i];
  }
  return true;
}

template <TensorElement T>
T* Tensor::data() const {
  check(defined(), "data: the tensor is undefined");
  check(dtype_of<T> == dtype_, "data: asked for ", dtype_of<T>, ", the tensor has type ", dtype_);
  check(storage_->host_data() || storage_->bytes() == 0, "data: memory of device ", device(),
        " is not visible to the host; use to_vector()");
  return static_cast<T*>(storage_->host_data()) + offset_;
}

template <TensorElement T>
std::vector<T> Tensor::to_vector() const {
  check(defined(), "to_vector: the tensor is undefined");
  check(dtype_of<T> == dtype_, "to_vector: asked for ", dtype_of<T>, ", the tensor has type ", dtype_);
  Tensor source = *this;
  if (!is_contiguous()) {
    source = empty(shape_, dtype_, device());
    backend_of(*this).copy(detach(), source);
  }
  std::vector<T> values(static_cast<std::size_t>(count()));
  if (!values.empty()) backend_of(*this).download(source, values.data());
  return values;
}

std::vector<double> Tensor::to_doubles() const {
  check(defined(), "to_doubles: the tensor is undefined");
  switch (dtype_) {
    case DType::f16:
    case DType::bf16: {
      const Tensor full = empty(shape_, DType::f32, device());
      if (count() > 0) backend_of(*this).copy(detach(), full);
      return widened(full.to_vector<float>());
    }
    case DType::f32:
      return widened(to_vector<float>());
    case DType::f64:
      return to_vector<double>();
    case DType::i32:
      break;
  }
  return widened(to_vector<std::int32_t>());
}

double Tensor::item() const {
  check(defined(), "item: the tensor is undefined");
  check(count() == 1, "item: a tensor of shape ", shape_, " does not have exactly one element");
  return to_doubles()[0];
}

Tensor Tensor::view(const Shape& shape) const {
  check(defined(), "view: the tensor is undefined");
  check(is_contiguous(), "view: the tensor of shape ", shape_, " with strides ", strides_,
        " is not contiguous");
  bytes_for("view", shape, dtype_);  // throws for negative or overflowing extents
  check(shape.count() == count(), "view: shape ", shape_, " cannot be seen as ", shape);
  return {storage_, offset_, shape, contiguous_strides(shape), dtype_};
}

Tensor Tensor::view(const Shape& shape, const Shape& strides, std::int64_t offset) const {
  check(defined(), "view: the tensor is undefined");
  return {storage_, offset, shape, strides, dtype_};
}

#define HEED_INSTANTIATE(T)                                               \
  template Tensor Tensor::from(std::span<const T>, const Shape&, Device); \
  template void Tensor::assign(std::span<const T>) const;                 \
  template T* Tensor::data() const;                                       \
  template std::vector<T> Tensor::to_vector() const;
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(std::int32_t)
#undef HEED_INSTANTIATE

}  // namespace heed
