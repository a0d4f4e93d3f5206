#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
//! variant matmul_cooperative
//! variant matmul_cooperative_wide WIDE=1
//! variant matmul_emulated EMULATED=1
//! variant matmul_emulated_wide EMULATED=1 WIDE=1
//! needs GL_KHR_cooperative_matrix cooperative
//! needs GL_EXT_bfloat16 cooperative.*bf16
// out = a b + beta out + bias, to which activation.glsl may be applied, with factors of half precision, on
// matrix hardware. A workgroup computes a tile of BM x BN outputs, a subgroup WM x WN of them, in fragments
// of FM x FN that are products of FM x FK and FK x FN, with the device's sizes (8 or 16 each). Products and
// sums are f32.
//
// In shared memory the tiles have the same layout as in memory; the fragments are loaded by rows or by
// columns accordingly.
//
// EMULATED: the same in ordinary arithmetic, which runs on any device and tests this code. WIDE: output in
// f32.
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 32;
layout(constant_id = 5) const uint WN = 32;
layout(constant_id = 6) const uint STAGES = 1;
layout(constant_id = 7) const uint FLAGS = 0;
layout(constant_id = 8) const uint FM = 16;
layout(constant_id = 9) const uint FN = 16;
layout(constant_id = 10) const uint FK = 16;

#define RUN 8
#define RUN_TYPE uvec4
#include "matmul_tiles.glsl"

// One eight more than needed, so that the lines that a fragment reads together lie in different banks.
const uint a_lines = a_along_k ? BM : BK, a_pitch = (a_along_k ? BK : BM) / 8 + 1;
const uint b_lines = b_along_k ? BN : BK, b_pitch = (b_along_k ? BK : BN) / 8 + 1;
shared uvec4 a_tile[STAGES * a_lines * a_pitch];
shared uvec4 b_tile[STAGES * b_lines * b_pitch];
const uint subgroups = (BM / WM) * (BN / WN);
const uint FRAGMENT = FM * FN;
shared float staging[subgroups * FRAGMENT];

// --- fragments
// load_a and load_b load the one that begins at the eight `at`. At staging_barrier() the lanes of a subgroup
// wait for each other.
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
#define multiply_add(sums, a, b)                                             \
  UNROLL for (uint e = 0; e < FM * FN / lanes; ++e) {                        \
    const uint place = lane_number() + e * lanes;                            \
    UNROLL for (uint c = 0; c < FK; ++c)                                     \
      (sums).x[e] += a_element(a, place / FN, c) * b_element(b, c, place % FN); \
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

// --- operands
#define load_part(x, elements, at, column, columns) \
  for (uint j = 0; j < min(8, columns - column); ++j) x[j / 2] |= uint(elements[at + j]) << (j % 2 * 16);
#define keep_run(tile, pitch, extent, along_k, stage, line, run, x) \
  const uint lines = along_k ? extent : BK;                         \
  tile[(stage * lines + line) * pitch + run] = x;
HEED_OPERAND(fetch_a, keep_a, a_elements, a_runs, a_held, a_tile, a_pitch, BM, a_along_k, a_in_runs)
HEED_OPERAND(fetch_b, keep_b, b_elements, b_runs, b_held, b_tile, b_pitch, BN, b_along_k, b_in_runs)

// Where the fragment begins whose first row is `row` and whose first k is `l` of the tile, in eights.
uint a_at(uint stage, uint row, uint l) {
  return (stage * a_lines + (a_along_k ? row : l)) * a_pitch + (a_along_k ? l : row) / 8;
}
uint b_at(uint stage, uint l, uint column) {
  return (stage * b_lines + (b_along_k ? column : l)) * b_pitch + (b_along_k ? l : column) / 8;
}

float a_value(uint stage, uint row, uint l) {
  const uint place = a_along_k ? l : row;
  const uint word = a_tile[(stage * a_lines + (a_along_k ? row : l)) * a_pitch + place / 8][place % 8 / 2];
  return unpack_four(uvec2(word, 0))[place % 2];
}
#include "matmul_finish.glsl"

void main() {
  const Place place = place_of_group(BM, BN);
  const uint subgroup = subgroup_number();
  const uint row = subgroup / (BN / WN) * WM, column = subgroup % (BN / WN) * WN;  // within the tile
  FRAGMENT_SUMS sums[(WM / FM) * (WN / FN)];
  UNROLL for (uint i = 0; i < (WM / FM) * (WN / FN); ++i) clear_sums(sums[i]);

  fetch_a(place.a, a_leading, place.row, m, place.k_begin, place.k_end);
  fetch_b(place.b, b_leading, place.column, n, place.k_begin, place.k_end);
  clear_row_sums();
  uint stage = 0;
  for (uint l = place.k_begin; l < place.k_end; l += BK) {
    keep_a(stage);
    keep_b(stage);
    barrier();
    if (l + BK < place.k_end) {
      fetch_a(place.a, a_leading, place.row, m, l + BK, place.k_end);
      fetch_b(place.b, b_leading, place.column, n, l + BK, place.k_end);
    }
    UNROLL for (uint c = 0; c < BK; c += FK) {
      FRAGMENT_A x[WM / FM];
      UNROLL for (uint i = 0; i < WM / FM; ++i) load_a(x[i], a_at(stage, row + i * FM, c));
      UNROLL for (uint j = 0; j < WN / FN; ++j) {
        FRAGMENT_B y;
        load_b(y, b_at(stage, c, column + j * FN));
        UNROLL for (uint i = 0; i < WM / FM; ++i) multiply_add(sums[i * (WN / FN) + j], x[i], y);
      }
    }
    add_row_sums(stage, place);
    if (STAGES == 1) {
      barrier();
    } else {
      stage ^= 1;
    }
  }

  write_row_sums(place);
  // Fragment by fragment through shared memory, since the driver alone knows which element a lane holds; in a
  // loop that chooses among constant indices, see matmul.comp.
  [[dont_unroll]] for (uint fragment = 0; fragment < (WM / FM) * (WN / FN); ++fragment) {
    UNROLL for (uint one = 0; one < (WM / FM) * (WN / FN); ++one)
      if (one == fragment) {
        stage_sums(sums[one], subgroup * FRAGMENT);
      }
    staging_barrier();
    const uint i = fragment / (WN / FN), j = fragment % (WN / FN);
    for (uint four = lane_number(); four < FRAGMENT / 4; four += lane_count()) {
      const uint at_row = place.row + row + i * FM + four / (FN / 4);
      const uint at_column = place.column + column + j * FN + four % (FN / 4) * 4;
      if (at_row < m && at_column < n) {
        const uint from = subgroup * FRAGMENT + four * 4;
        finish(vec4(staging[from], staging[from + 1], staging[from + 2], staging[from + 3]),
               place.result + at_row * out_leading + at_column, at_column, place.bias + at_column);
      }
    }
    staging_barrier();
  }
}
