// out = a b + beta out + bias, to which activation.glsl may be applied, with factors of half precision, on
// matrix hardware. A workgroup computes a tile of BM x BN outputs, a subgroup WM x WN of them, in fragments
// of FM x FN that are products of FM x FK and FK x FN, with the device's sizes (8 or 16 each). Products and
// sums are f32.
//
// In shared memory the tiles have the same layout as in memory; the fragments are loaded by rows or by
// columns accordingly.
#include "matmul_elements.glsl"

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

#include "matmul_push.glsl"

layout(binding = 0) readonly buffer A { uint16_t a_elements[]; };
layout(binding = 0) readonly buffer AEights { uvec4 a_eights[]; };
layout(binding = 1) readonly buffer B { uint16_t b_elements[]; };
layout(binding = 1) readonly buffer BEights { uvec4 b_eights[]; };
layout(binding = 2) readonly buffer Bias { OUT bias[]; };
layout(binding = 3) buffer Out { OUT out_elements[]; };
layout(binding = 3) buffer OutFours { OUT_FOUR out_fours[]; };
layout(binding = 4) writeonly buffer RowSums { OUT row_sums[]; };
layout(binding = 5) writeonly buffer KeptSums { OUT kept_sums[]; };
layout(binding = 5) writeonly buffer KeptSumsFours { OUT_FOUR kept_sums_fours[]; };
layout(binding = 6) readonly buffer Saved { OUT saved[]; };
layout(binding = 6) readonly buffer SavedFours { OUT_FOUR saved_fours[]; };

const bool a_along_k = (FLAGS & a_along_k_bit) != 0, b_along_k = (FLAGS & b_along_k_bit) != 0;
const bool a_in_eights = (FLAGS & a_vectors_bit) != 0, b_in_eights = (FLAGS & b_vectors_bit) != 0;

// One eight more than needed, so that the lines that a fragment reads together lie in different banks.
const uint a_lines = a_along_k ? BM : BK, a_pitch = (a_along_k ? BK : BM) / 8 + 1;
const uint b_lines = b_along_k ? BN : BK, b_pitch = (b_along_k ? BK : BN) / 8 + 1;
shared uvec4 a_tile[STAGES * a_lines * a_pitch];
shared uvec4 b_tile[STAGES * b_lines * b_pitch];
const uint subgroups = (BM / WM) * (BN / WN);
const uint FRAGMENT = FM * FN;
shared float staging[subgroups * FRAGMENT];

#include "matmul_fragments.glsl"

uvec4 a_held[BM * BK / 8 / gl_WorkGroupSize.x];
uvec4 b_held[BN * BK / 8 / gl_WorkGroupSize.x];

#define FETCH fetch_a
#define KEEP keep_a
#define ELEMENTS a_elements
#define EIGHTS a_eights
#define HELD a_held
#define TILE a_tile
#define PITCH a_pitch
#define EXTENT BM
#define ALONG_K a_along_k
#define IN_EIGHTS a_in_eights
#include "matmul_halves_operand.glsl"

#define FETCH fetch_b
#define KEEP keep_b
#define ELEMENTS b_elements
#define EIGHTS b_eights
#define HELD b_held
#define TILE b_tile
#define PITCH b_pitch
#define EXTENT BN
#define ALONG_K b_along_k
#define IN_EIGHTS b_in_eights
#include "matmul_halves_operand.glsl"

#include "matmul_finish.glsl"

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
#include "matmul_row_sums.glsl"

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
  // Fragment by fragment through shared memory, since the driver alone knows which element a lane holds.
  UNROLL for (uint i = 0; i < WM / FM; ++i) {
    UNROLL for (uint j = 0; j < WN / FN; ++j) {
      stage_sums(sums[i * (WN / FN) + j], subgroup * FRAGMENT);
      staging_barrier();
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
}
