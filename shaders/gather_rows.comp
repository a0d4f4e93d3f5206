#version 460
#extension GL_GOOGLE_include_directive : require
//! types u32 u16
#include "common.glsl"

// out[b, i, :] = x[b, index[b, i], :], zeros where the index is -1. Rows are numbered over all batch entries.
// If x is larger than a binding, each launch sees rows [first_source, last_source) of it and skips those from
// elsewhere.
layout(local_size_x_id = 0) in;

layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) readonly buffer Index { int index[]; };
layout(binding = 2) writeonly buffer Out { T result[]; };
layout(binding = 3) buffer DeviceErrors { uint errors[]; };
layout(push_constant) uniform Push {
  uint skip_x, skip_index, skip_out, error_word;
  uint first_row;  // of out in this launch
  uint count;      // elements of out in this launch
  uint n, m, width;
  uint first_source, last_source;
};

const uint elements = 4;  // of each thread

void main() {
  for (uint k = 0; k < elements; ++k) {
    const uint at = (group_index() * elements + k) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (at >= count) return;
    const uint row = at / width, column = at - row * width;
    const int from = index[skip_index + row];
    if (from == -1) {
      result[skip_out + at] = T(0);
      continue;
    }
    if (from < 0 || uint(from) >= n) {
      if (column == 0) atomicMin(errors[error_word], first_row + row);
      continue;
    }
    const uint source = (first_row + row) / m * n + uint(from);
    if (source < first_source || source >= last_source) continue;
    result[skip_out + at] = x[skip_x + (source - first_source) * width + column];
  }
}
