#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant matmul
//! variant matmul_wide WIDE=1 types f16 bf16
// out = a b + beta out + bias, to which activation.glsl may be applied. A workgroup computes a tile of BM x
// BN outputs, an invocation TM x TN of them.
//
// While a tile of the operands in shared memory, BK deep, is multiplied, the next one is loaded into
// registers. With two stages, two tiles in shared memory alternate, which saves one of two barriers per tile.
//
// WIDE: operands of half precision, output in f32, for gradients of f32 weights and for parts of a sum.
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 32;
layout(constant_id = 2) const uint BN = 32;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 4;
layout(constant_id = 5) const uint TN = 4;
layout(constant_id = 6) const uint STAGES = 1;
layout(constant_id = 7) const uint FLAGS = 0;

#define RUN 4
#define RUN_TYPE FOUR
#include "matmul_tiles.glsl"

// One four more than needed, so that the lines of a tile begin in different banks.
const uint a_pitch = BM / 4 + 1, b_pitch = BN / 4 + 1;
shared vec4 a_tile[STAGES * BK * a_pitch];
shared vec4 b_tile[STAGES * BK * b_pitch];

vec4 sums[TM * TN / 4];

#define load_part(x, elements, at, column, columns)                             \
  const uint last = columns - 1 - column;                                       \
  x = four_of(WORD(elements[at]), last >= 1 ? WORD(elements[at + 1]) : WORD(0), \
              last >= 2 ? WORD(elements[at + 2]) : WORD(0), last >= 3 ? WORD(elements[at + 3]) : WORD(0));
// In shared memory a line holds one k.
#define keep_run(tile, pitch, extent, along_k, stage, line, run, x)                             \
  const uint line_of_run = line, four = run;                                                    \
  const vec4 values = unpack_four(x);                                                           \
  if (along_k) {                                                                                \
    [[unroll]] for (uint j = 0; j < 4; ++j)                                                     \
      tile[(stage * BK + four * 4 + j) * pitch + line_of_run / 4][line_of_run % 4] = values[j]; \
  } else {                                                                                      \
    tile[(stage * BK + line_of_run) * pitch + four] = values;                                   \
  }
HEED_OPERAND(fetch_a, keep_a, a_elements, a_runs, a_held, a_tile, a_pitch, BM, a_along_k, a_in_runs)
HEED_OPERAND(fetch_b, keep_b, b_elements, b_runs, b_held, b_tile, b_pitch, BN, b_along_k, b_in_runs)

// An invocation owns TM / 4 times TN / 4 blocks of 4 x 4 outputs, spread evenly over the tile. 32
// neighbouring invocations own a patch of 4 x 8 blocks, so that they read few different fours of shared
// memory at once.
const uint block_rows = BM / TM, block_columns = BN / TN;
uint block_row() {
  const uint group = gl_LocalInvocationIndex / 32, lane = gl_LocalInvocationIndex % 32;
  return group / (block_columns / 8) * 4 + lane / 8;
}
uint block_column() {
  const uint group = gl_LocalInvocationIndex / 32, lane = gl_LocalInvocationIndex % 32;
  return group % (block_columns / 8) * 8 + lane % 8;
}

void multiply(uint stage, uint row, uint column) {
  for (uint four = 0; four < BK; four += 4) {
    [[unroll]] for (uint l = four; l < four + 4; ++l) {
      vec4 x[TM / 4], y[TN / 4];
      [[unroll]] for (uint i = 0; i < TM / 4; ++i) x[i] = a_tile[(stage * BK + l) * a_pitch + row + i * block_rows];
      [[unroll]] for (uint j = 0; j < TN / 4; ++j) y[j] = b_tile[(stage * BK + l) * b_pitch + column + j * block_columns];
      [[unroll]] for (uint i = 0; i < TM; ++i)
        [[unroll]] for (uint j = 0; j < TN / 4; ++j)
          sums[i * (TN / 4) + j] = fma(vec4(x[i / 4][i % 4]), y[j], sums[i * (TN / 4) + j]);
    }
  }
}

float a_value(uint stage, uint row, uint l) { return a_tile[(stage * BK + l) * a_pitch + row / 4][row % 4]; }
#include "matmul_finish.glsl"

void main() {
  const Place place = place_of_group(BM, BN);
  const uint row = block_row(), column = block_column();
  [[unroll]] for (uint i = 0; i < TM * TN / 4; ++i) sums[i] = vec4(0);
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
    multiply(stage, row, column);
    add_row_sums(stage, place);
    if (STAGES == 1) {
      barrier();
    } else {
      stage ^= 1;
    }
  }
  write_row_sums(place);
  // The sums leave one four at a time: unrolled, this is too long for some compilers, which then index the sums
  // at run time and keep them in memory throughout. A chain of choices among constant indices stays in registers.
  [[dont_unroll]] for (uint four = 0; four < TM * TN / 4; ++four) {
    vec4 value = sums[0];
    [[unroll]] for (uint e = 1; e < TM * TN / 4; ++e)
      if (e == four) value = sums[e];
    const uint i = four / (TN / 4), j = four % (TN / 4);
    const uint at_row = place.row + (row + i / 4 * block_rows) * 4 + i % 4;
    const uint at_column = place.column + (column + j * block_columns) * 4;
    if (at_row < m && at_column < n)
      finish(value, place.result + at_row * out_leading + at_column, at_column, place.bias + at_column);
  }
}
