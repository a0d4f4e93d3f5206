// Shared by all compute shaders. Included first.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : enable

// The upper half of a float, rounded to nearest, ties to even; a NaN stays a NaN.
uint bf16_bits(float x) {
  uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// T is the type of an element in memory; arithmetic is in float. The conversions of 16-bit types are macros,
// since a function may have such a parameter only if the device can compute in that type, not just store it.
#if defined(TYPE_f32)
#define T float
float to_float(float x) { return x; }
float from_float(float x) { return x; }
#elif defined(TYPE_f16)
#define T float16_t
#define to_float(x) float(x)
#define from_float(x) float16_t(x)
#elif defined(TYPE_bf16)
#define T uint16_t
#define to_float(x) uintBitsToFloat(uint(x) << 16)
#define from_float(x) uint16_t(bf16_bits(x))
#elif defined(TYPE_i32)
#define T int
#elif defined(TYPE_u32)
#define T uint
#elif defined(TYPE_u16)
#define T uint16_t
#endif

#define INFINITY uintBitsToFloat(0x7f800000u)

// The index of a workgroup of Launch::folded_groups.
uint group_index() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
