#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant scale_all
//! variant scale_all_to_f32 TO_f32=1
//! variant scale_all_to_f16 TO_f16=1
//! variant scale_all_to_bf16 TO_bf16=1
// out = x factor, or out + x factor, for lists of tensors: scale_all_to_f16_f32 reads f32 and writes f16;
// scale_all_f32 keeps the type.
#include "common.glsl"
#define LISTS 2
#include "tensor_lists.glsl"

layout(constant_id = 2) const bool has_factor = false;
layout(constant_id = 3) const bool adds = false;

#if defined(TO_f32)
#define TO float
#define TO_FOUR vec4
#define TO_FOUR_READ vec4
#define out_to_float(x) (x)
#define float_to_out(x) (x)
#define four_to_out(x) (x)
#define out_four_to_float(x) (x)
#elif defined(TO_f16)
#define TO float16_t
#define TO_FOUR f16vec4
#define TO_FOUR_READ uvec2
#define out_to_float(x) float(x)
#define float_to_out(x) float16_t(x)
#define four_to_out(x) f16vec4(x)
#define out_four_to_float(x) f16_four(x)
#elif defined(TO_bf16)
#define TO uint16_t
#define TO_FOUR u16vec4
#define TO_FOUR_READ uvec2
#define out_to_float(x) uintBitsToFloat(uint(x) << 16)
#define float_to_out(x) uint16_t(bf16_bits(x))
#define four_to_out(v) u16vec4(uvec4(bf16_bits(v.x), bf16_bits(v.y), bf16_bits(v.z), bf16_bits(v.w)))
#define out_four_to_float(x) bf16_four(x)
#else
#define TO T
#define TO_FOUR FOUR_WRITTEN
#define TO_FOUR_READ FOUR
#define out_to_float(x) to_float(x)
#define float_to_out(x) from_float(x)
#define out_four_to_float(x) four_to_float(x)
#define four_to_out(x) four_from_float(x)
#endif

layout(binding = 1) buffer Out { TO out_[]; };
layout(binding = 1) writeonly buffer OutFours { TO_FOUR out_fours[]; };
layout(binding = 1) readonly buffer OutFoursRead { TO_FOUR_READ out_fours_read[]; };
layout(binding = 2) readonly buffer X { T x_[]; };
layout(binding = 2) readonly buffer XFours { FOUR x_fours[]; };
layout(binding = 3) readonly buffer Factor { float factor[]; };
layout(push_constant) uniform Push {
  uint skip_table, skip_out, skip_x, skip_factor;
  uint entries, groups;
};

void main() {
  if (group_index() >= groups) return;
  const Piece piece = piece_of(group_index(), skip_table, entries);
  const float by = has_factor ? factor[skip_factor] : 1.0;
  EACH_FOUR(piece, i) {
    const uint to = piece.at[0] + i, from = piece.at[1] + i, left = piece.end - i;
    vec4 value = load_four(x_, x_fours, piece.in_fours, from, left);
    if (has_factor) value *= by;
    if (adds) value += load_four_as(out_, out_fours_read, out_to_float, out_four_to_float, piece.in_fours, to, left);
    store_four_as(out_, out_fours, float_to_out, four_to_out, piece.in_fours, to, left, value)
  }
}
