#version 460
// Packs the mask of attention, one bit per entry: all three passes of attention read it, and reading 1 bit is
// cheaper than 32. Each row of [B, H, N, M] begins at a new word; axes along which the mask is constant have
// extent 1.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint THREADS = 256;

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
