// Fragments that a subgroup multiplies, FM x FK and FK x FN: cooperative matrices or, with EMULATED, the same
// in ordinary arithmetic on shared memory, which runs anywhere and tests the code built on the fragments.
//
// Needs a_tile and b_tile, shared arrays of uvec4, each eight elements, in lines of a_pitch and b_pitch;
// a_along_k and b_along_k, whether a line holds one row of a or one column of b; and `staging`, a shared
// array of floats in which each subgroup has its own part. At staging_barrier() the lanes of a subgroup wait
// for each other.
#ifdef EMULATED

// Unrolled, the emulation takes drivers minutes to compile.
#define UNROLL [[dont_unroll]]

const uint lanes = gl_WorkGroupSize.x / ((BM / WM) * (BN / WN));
uint subgroup_number() { return gl_LocalInvocationIndex / lanes; }
uint lane_number() { return gl_LocalInvocationIndex % lanes; }
uint lane_count() { return lanes; }

#define FRAGMENT_A uint
#define FRAGMENT_B uint
struct Sums { float x[FM * FN / lanes]; };
#define FRAGMENT_SUMS Sums

#ifdef TYPE_f16
float half_of(uint word, uint place) { return unpackHalf2x16(word)[place]; }
#else
float half_of(uint word, uint place) { return uintBitsToFloat(place == 0 ? word << 16 : word & 0xffff0000u); }
#endif
// The element at `place` in `line` of the fragment that begins at the eight `at`.
#define tile_element(tile, at, pitch, line, place) \
  half_of(tile[(at) + (line) * (pitch) + (place) / 8][(place) % 8 / 2], (place) % 2)
float a_element(uint at, uint i, uint l) {
  return a_along_k ? tile_element(a_tile, at, a_pitch, i, l) : tile_element(a_tile, at, a_pitch, l, i);
}
float b_element(uint at, uint l, uint j) {
  return b_along_k ? tile_element(b_tile, at, b_pitch, j, l) : tile_element(b_tile, at, b_pitch, l, j);
}

#define clear_sums(sums) UNROLL for (uint e = 0; e < FM * FN / lanes; ++e) (sums).x[e] = 0
#define load_a(fragment, at) fragment = (at)
#define load_b(fragment, at) fragment = (at)
#define multiply_add(sums, a, b)                                                             \
  UNROLL for (uint e = 0; e < FM * FN / lanes; ++e) {                                                   \
    const uint place = lane_number() + e * lanes;                                            \
    UNROLL for (uint c = 0; c < FK; ++c) (sums).x[e] += a_element(a, place / FN, c) * b_element(b, c, place % FN); \
  }
#define staging_barrier() barrier()
#define stage_sums(sums, at) \
  UNROLL for (uint e = 0; e < FM * FN / lanes; ++e) staging[(at) + lane_number() + e * lanes] = (sums).x[e]

#else

#define UNROLL [[unroll]]
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
uint subgroup_number() { return gl_SubgroupID; }
uint lane_number() { return gl_SubgroupInvocationID; }
uint lane_count() { return gl_SubgroupSize; }

#ifdef TYPE_f16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define FACTOR float16_t
#else
#extension GL_EXT_bfloat16 : require
#define FACTOR bfloat16_t
#endif
#define FRAGMENT_A coopmat<FACTOR, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define FRAGMENT_B coopmat<FACTOR, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>
#define FRAGMENT_SUMS coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>

#define clear_sums(sums) sums = FRAGMENT_SUMS(0.0)
#define load_a(fragment, at)                                                            \
  if (a_along_k)                                                                        \
    coopMatLoad(fragment, a_tile, at, a_pitch, gl_CooperativeMatrixLayoutRowMajor);     \
  else                                                                                  \
    coopMatLoad(fragment, a_tile, at, a_pitch, gl_CooperativeMatrixLayoutColumnMajor)
#define load_b(fragment, at)                                                            \
  if (b_along_k)                                                                        \
    coopMatLoad(fragment, b_tile, at, b_pitch, gl_CooperativeMatrixLayoutColumnMajor);  \
  else                                                                                  \
    coopMatLoad(fragment, b_tile, at, b_pitch, gl_CooperativeMatrixLayoutRowMajor)
#define multiply_add(sums, a, b) sums = coopMatMulAdd(a, b, sums)
#define staging_barrier() subgroupBarrier()
#define stage_sums(sums, at) coopMatStore(sums, staging, at, FN, gl_CooperativeMatrixLayoutRowMajor)

#endif
