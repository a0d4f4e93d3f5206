// The types of a matrix product's operands in memory, one by one and in fours, and of its output: the
// operands' type, or f32 with WIDE.
#include "backends/vulkan/shader_flags.h"

#ifdef TYPE_f32
#define ELEMENT float
#define WORD float
#define FOUR vec4
vec4 four_of(float x, float y, float z, float w) { return vec4(x, y, z, w); }
vec4 unpack_four(vec4 x) { return x; }
#else
// The bits of two elements in each word: nothing is converted before it is needed, so that a load can be in
// flight while the invocation computes.
#define ELEMENT uint16_t
#define WORD uint
#define FOUR uvec2
uvec2 four_of(uint x, uint y, uint z, uint w) { return uvec2(x | y << 16, z | w << 16); }
#ifdef TYPE_f16
vec4 unpack_four(uvec2 x) { return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y)); }
#else
vec4 unpack_four(uvec2 x) {
  return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
}
#endif
#endif
#define NO_FOUR FOUR(0)

#if defined(WIDE) || defined(TYPE_f32)
#define OUT float
#define OUT_FOUR vec4
#define out_to_float(x) (x)
#define float_to_out(x) (x)
#define unpack_out(x) (x)
#define pack_out(x) (x)
#elif defined(TYPE_f16)
#define OUT float16_t
#define OUT_FOUR f16vec4
#define out_to_float(x) float(x)
#define float_to_out(x) float16_t(x)
#define unpack_out(x) vec4(x)
#define pack_out(x) f16vec4(x)
#else
#define OUT uint16_t
#define OUT_FOUR u16vec4
#define out_to_float(x) uintBitsToFloat(uint(x) << 16)
#define float_to_out(x) uint16_t(bf16_bits(x))
#define unpack_out(x) uintBitsToFloat(uvec4(x) << 16)
#define pack_out(v) u16vec4(uvec4(bf16_bits(v.x), bf16_bits(v.y), bf16_bits(v.z), bf16_bits(v.w)))
#endif
