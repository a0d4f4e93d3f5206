#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/c/handles.h"

// Numbers and lists that come from C, as the library has them.

namespace heed::c {

inline Shape shape_of(int32_t rank, const int64_t* numbers, const char* argument = "shape") {
  check_argument(rank >= 0 && rank <= HEED_MAX_RANK, "rank is ", rank, "; it must be 0 to ", HEED_MAX_RANK);
  check_argument(numbers != nullptr || rank == 0, argument, " is NULL");
  return rank == 0 ? Shape() : Shape(std::span(numbers, static_cast<std::size_t>(rank)));
}

inline DType dtype_of_number(heed_dtype dtype) {
  check_argument(dtype >= HEED_F32 && dtype <= HEED_BF16, "dtype is ", dtype, ", which is no heed_dtype");
  return static_cast<DType>(dtype);
}
static_assert(HEED_F32 == static_cast<int>(DType::f32) && HEED_BF16 == static_cast<int>(DType::bf16));

inline std::vector<Tensor> tensors_of(const heed_tensor* const* handles, std::size_t count,
                                      const std::string& argument) {
  check_argument(handles != nullptr || count == 0, argument, " is NULL");
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < count; ++i)
    tensors.push_back(tensor_of(handles[i], concat_text(argument, '[', i, ']').c_str()));
  return tensors;
}

}  // namespace heed::c
