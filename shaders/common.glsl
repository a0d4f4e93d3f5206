// Shared by all compute shaders: element types, group indices and random words. Included first.
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

// V is the type of arithmetic, where an op takes integers, too.
#if defined(TYPE_i32)
#define V int
#define to_value(x) (x)
#define from_value(x) (x)
#else
#define V float
#define to_value(x) to_float(x)
#define from_value(x) from_float(x)
#endif

#define INFINITY uintBitsToFloat(0x7f800000u)

// The index of a workgroup of Launch::folded_groups.
uint group_index() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), the same bits as
// core/random.h: element i of a stream is word i % 4 of block i / 4.
struct RandomKey {
  uint seed_low, seed_high, step, op;
};

uvec4 philox(RandomKey key, uint block_low, uint block_high) {
  uvec4 counter = uvec4(block_low, block_high, key.op, key.step);
  uint key_low = key.seed_low, key_high = key.seed_high;
  [[unroll]] for (int round = 0; round < 10; ++round) {
    uint high0, low0, high1, low1;
    umulExtended(0xD2511F53u, counter.x, high0, low0);
    umulExtended(0xCD9E8D57u, counter.z, high1, low1);
    counter = uvec4(high1 ^ counter.y ^ key_low, low1, high0 ^ counter.w ^ key_high, low0);
    key_low += 0x9E3779B9u;  // the Weyl constants of the paper
    key_high += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1): the upper 24 bits times 2^-24, exact.
float unit_interval(uint word) { return float(word >> 8) * 5.9604644775390625e-8; }
