#version 460
#extension GL_GOOGLE_include_directive : require
//! variant attention_mask MASK=1
//! variant attention_rows types f32 f16 bf16
// Computes the inputs of attention's passes: the mask's bits, and the numbers of each query for
// backward.
#include "common.glsl"

layout(local_size_x_id = 0) in;  // for attention_rows a multiple of 16: 16 invocations share a row
layout(constant_id = 1) const uint THREADS = 256;

#ifdef MASK

// Packs the mask of attention, one bit per entry: all three passes of attention read it, and reading 1 bit is
// cheaper than 32. Each row of [B, H, N, M] begins at a new word; axes along which the mask is constant have
// extent 1.
layout(binding = 0) readonly buffer Mask { int mask[]; };
layout(binding = 1) writeonly buffer Bits { uint bits[]; };

layout(push_constant) uniform Push {
  uint skip_mask, skip_bits;
  uint count;  // words in all
  uint heads, queries, keys;
  uint batch_stride, head_stride, query_stride, key_stride;
  uint bits_batch_stride, bits_head_stride, bits_query_stride;
};

void main() {
  const uint at = group_index() * THREADS + gl_LocalInvocationIndex;
  if (at >= count) return;
  const uint words = (keys + 31u) / 32u;
  const uint word = at % words, i = at / words % queries, h = at / words / queries % heads,
             b = at / words / queries / heads;
  const uint from = skip_mask + b * batch_stride + h * head_stride + i * query_stride;
  const uint begin = 32u * word, end = min(begin + 32u, keys);
  uint found = 0u;
  for (uint j = begin; j < end; ++j)
    if (mask[from + j * key_stride] != 0) found |= 1u << (j - begin);
  bits[skip_bits + b * bits_batch_stride + h * bits_head_stride + i * bits_query_stride + word] = found;
}

#else

// The numbers that the backward pass of attention needs for each query: its largest score, 1 / sum
// of exp(score - largest), and D = out . grad, side by side in `rows` [B, H, N, 3]. A gradient l of
// largest + log(sum) adds w l to ds, so l is subtracted from D. A query that sees no key gets
// +infinity and 0, which make its weights 0.
layout(constant_id = 2) const bool HAS_LOG_GRAD = false;

layout(binding = 0) readonly buffer Out { T result[]; };
layout(binding = 1) readonly buffer Grad { T grad[]; };
layout(binding = 2) readonly buffer RowSums { float row_sums[]; };
layout(binding = 3) readonly buffer LogGrad { float log_grad[]; };
layout(binding = 4) writeonly buffer Rows { float rows[]; };

layout(push_constant) uniform Push {
  uint skip_out, skip_grad, skip_row_sums, skip_log_grad, skip_rows;
  uint count;  // rows in all
  uint queries, heads, width;
  uint out_batch, out_head, out_row;
  uint grad_batch, grad_head, grad_row;
  uint log_grad_batch, log_grad_head, log_grad_row;
};

shared float partial[THREADS];

void main() {
  const uint per_group = THREADS / 16u, lane = gl_LocalInvocationIndex % 16u;
  const uint row = group_index() * per_group + gl_LocalInvocationIndex / 16u;
  const uint i = row % queries, h = row / queries % heads, b = row / queries / heads;
  float sum = 0.0;
  if (row < count) {
    const uint from = skip_out + b * out_batch + h * out_head + i * out_row;
    const uint with = skip_grad + b * grad_batch + h * grad_head + i * grad_row;
    for (uint c = lane; c < width; c += 16u) sum += to_float(result[from + c]) * to_float(grad[with + c]);
  }
  partial[gl_LocalInvocationIndex] = sum;
  for (uint half_of = 8u; half_of > 0u; half_of /= 2u) {
    barrier();
    if (lane < half_of) partial[gl_LocalInvocationIndex] += partial[gl_LocalInvocationIndex + half_of];
  }
  if (lane != 0u || row >= count) return;
  const float largest = row_sums[skip_row_sums + 2u * row], total = row_sums[skip_row_sums + 2u * row + 1u];
  float mean = partial[gl_LocalInvocationIndex];
  if (HAS_LOG_GRAD) mean -= log_grad[skip_log_grad + b * log_grad_batch + h * log_grad_head + i * log_grad_row];
  const bool blind = total == 0.0;
  rows[skip_rows + 3u * row] = blind ? INFINITY : largest;
  rows[skip_rows + 3u * row + 1u] = blind ? 0.0 : 1.0 / total;
  rows[skip_rows + 3u * row + 2u] = blind ? 0.0 : mean;
}

#endif
