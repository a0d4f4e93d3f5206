// The C API: tensors and their gradients.

#include <algorithm>
#include <cstring>
#include <optional>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/c/handles.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"

namespace heed::c {
namespace {

Device device_of(const char* name) {
  return find_device(name ? name : "");
}

std::size_t bytes_of(const Tensor& x) {
  return static_cast<std::size_t>(x.count()) * size_of(x.dtype());
}

/// Copies the elements from the host, in place.
void assign(const Tensor& to, const void* source) {
  const auto copy = [&]<class T>(const T* values) {
    to.assign(std::span<const T>(values, static_cast<std::size_t>(to.count())));
  };
  if (to.dtype() == DType::f32) return copy(static_cast<const float*>(source));
  if (to.dtype() == DType::f64) return copy(static_cast<const double*>(source));
  if (to.dtype() == DType::i32) return copy(static_cast<const std::int32_t*>(source));
  fail(to.dtype(), " does not exist on the host: cast from and to f32");
}

/// Copies the elements to the host in row-major order, halves as f32.
void read(const Tensor& x, void* destination) {
  const NoGrad no_grad;
  const Tensor source = contiguous(is_half(x.dtype()) ? cast(x.detach(), DType::f32) : x.detach());
  if (source.count() > 0) backend_of(source).download(source, destination);
}

/// Storage in the caller's memory.
class LentStorage : public Storage {
 public:
  LentStorage(void* data, std::size_t bytes) : Storage(Device{}, bytes, data, true) {}
  Release release;
};

}  // namespace
}  // namespace heed::c

using namespace heed;
using namespace heed::c;

heed_status heed_tensor_create(heed_dtype dtype, int32_t rank, const int64_t* shape, const void* data,
                               const char* device, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const Shape extents = shape_of(rank, shape);
    const DType type = dtype_of_number(dtype);
    if (!data) return Tensor::zeros(extents, type, device_of(device));
    Tensor created = Tensor::empty(extents, type, device_of(device));
    assign(created, data);
    return created;
  });
}

heed_status heed_tensor_borrow(heed_dtype dtype, int32_t rank, const int64_t* shape, void* data,
                               void (*release)(void* context), void* context, heed_tensor** out) {
  std::shared_ptr<LentStorage> storage;
  const heed_status status = guarded_tensor(__func__, out, [&] {
    const Shape extents = shape_of(rank, shape);
    const DType type = dtype_of_number(dtype);
    check_argument(!is_half(type), type, " does not exist on the host");
    auto bytes = static_cast<std::int64_t>(size_of(type)), strides = bytes;
    for (const std::int64_t extent : extents) {
      bytes = checked_product("the size of the tensor", bytes, extent);
      strides = checked_product("the size of the tensor", strides, std::max<std::int64_t>(extent, 1));
    }
    check_argument(data != nullptr || bytes == 0, "data is NULL");
    check_argument(reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0, "data is not aligned to ",
                   size_of(type), " bytes");
    storage = std::make_shared<LentStorage>(data, static_cast<std::size_t>(bytes));
    return Tensor(storage, 0, extents, contiguous_strides(extents), type);
  });
  if (status == HEED_OK) storage->release.set(release, context);
  return status;
}

heed_status heed_tensor_random(const char* distribution, double a, double b, uint64_t seed, uint32_t step,
                               uint32_t stream, heed_dtype dtype, int32_t rank, const int64_t* shape,
                               const char* device, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const std::string name = text_of(distribution, "distribution");
    const bool is_normal = name == "normal";
    check(is_normal || name == "uniform", "unknown distribution '", name, "': uniform or normal");
    return (is_normal ? normal : uniform)(shape_of(rank, shape), a, b, {seed, step, stream},
                                          dtype_of_number(dtype), device_of(device));
  });
}

void heed_tensor_free(heed_tensor* tensor) {
  free_handle(__func__, tensor);
}

heed_status heed_tensor_shape(const heed_tensor* tensor, int32_t* rank, int64_t* shape, int64_t* strides) {
  return guarded(__func__, rank, [&] {
    const Tensor x = tensor_of(tensor, "tensor");
    if (shape) std::copy(x.shape().begin(), x.shape().end(), shape);
    if (strides) std::copy(x.strides().begin(), x.strides().end(), strides);
    return x.rank();
  });
}

heed_status heed_tensor_dtype(const heed_tensor* tensor, heed_dtype* out) {
  return guarded(__func__, out, [&] { return static_cast<heed_dtype>(tensor_of(tensor, "tensor").dtype()); });
}

heed_status heed_tensor_device(const heed_tensor* tensor, char** out) {
  return guarded(__func__, out, [&] { return new_text(name_of(tensor_of(tensor, "tensor").device())); });
}

heed_status heed_tensor_data(const heed_tensor* tensor, void** out) {
  return guarded(__func__, out, [&]() -> void* {
    const Tensor x = tensor_of(tensor, "tensor");
    check(x.device() == Device{}, "the memory of ", x.device(),
          " is not on the host: copy it with heed_tensor_read");
    auto* const bytes = static_cast<std::byte*>(x.storage()->host_data());
    return bytes ? bytes + static_cast<std::size_t>(x.offset()) * size_of(x.dtype()) : nullptr;
  });
}

heed_status heed_tensor_read(const heed_tensor* tensor, void* destination, size_t bytes) {
  return guarded(__func__, [&] {
    const Tensor x = tensor_of(tensor, "tensor");
    const std::size_t needed =
        static_cast<std::size_t>(x.count()) * (is_half(x.dtype()) ? sizeof(float) : size_of(x.dtype()));
    check_argument(bytes == needed, "destination has ", bytes, " bytes, but the elements have ", needed);
    check_argument(destination != nullptr || needed == 0, "destination is NULL");
    read(x, destination);
  });
}

heed_status heed_tensor_assign(heed_tensor* tensor, const void* source, size_t bytes) {
  return guarded(__func__, [&] {
    const Tensor x = tensor_of(tensor, "tensor");
    check_argument(bytes == bytes_of(x), "source has ", bytes, " bytes, but the elements have ", bytes_of(x));
    check_argument(source != nullptr || bytes == 0, "source is NULL");
    assign(x, source);
  });
}

heed_status heed_tensor_item(const heed_tensor* tensor, double* out) {
  return guarded(__func__, out, [&] { return tensor_of(tensor, "tensor").item(); });
}

heed_status heed_tensor_to_device(const heed_tensor* tensor, const char* device, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return tensor_of(tensor, "tensor").to(device_of(device)); });
}

heed_status heed_tensor_set_hidden_map(const heed_tensor* leaf, int32_t is_map) {
  return guarded(__func__, [&] { set_hidden_map(tensor_of(leaf, "leaf"), is_map != 0); });
}

heed_status heed_tensor_parameter(const heed_tensor* tensor, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return parameter(tensor_of(tensor, "tensor")); });
}

heed_status heed_tensor_detach(const heed_tensor* tensor, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return tensor_of(tensor, "tensor").detach(); });
}

heed_status heed_tensor_is_tracked(const heed_tensor* tensor, int32_t* out) {
  return guarded(__func__, out, [&] { return tensor_of(tensor, "tensor").tracked() ? 1 : 0; });
}

heed_status heed_backward(const heed_tensor* output, const heed_tensor* start) {
  return guarded(__func__,
                 [&] { backward(tensor_of(output, "output"), optional_tensor(start, "gradient")); });
}

heed_status heed_tensor_gradient(const heed_tensor* leaf, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return gradient(tensor_of(leaf, "leaf")); });
}

heed_status heed_tensor_zero_gradient(const heed_tensor* leaf) {
  return guarded(__func__, [&] { zero_gradient(tensor_of(leaf, "leaf")); });
}

heed_status heed_set_recording(int32_t enabled, int32_t* before) {
  return guarded(__func__, [&] {
    thread_local std::optional<RecordingScope> scope;
    if (before) *before = recording() ? 1 : 0;
    scope.reset();  // one scope after the other, not one within the other
    scope.emplace(enabled != 0);
  });
}
