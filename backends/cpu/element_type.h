#pragma once

#include <cstdint>

#include "heed/core/dtype.h"
#include "heed/core/error.h"

namespace heed::cpu {

/// Calls body(T()) with the C++ type of the elements.
template <class Body>
void with_element_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float());
    case DType::f64:
      return body(double());
    case DType::i32:
      return body(std::int32_t());
    case DType::f16:  // not on the CPU: Tensor::empty refuses
    case DType::bf16:
      break;
  }
}

/// The same for a kernel that has no i32 form.
template <class Body>
void with_floating_type(const char* op, DType dtype, Body&& body) {
  check(is_floating(dtype), op, ": needs a floating dtype, got ", dtype);
  return dtype == DType::f32 ? body(float()) : body(double());
}

}  // namespace heed::cpu
