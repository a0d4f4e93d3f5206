// Shared by the tiled matrix products: push constants, the grid, buffers, and the moves of operands
// from memory to registers and on to shared memory. Elements move in runs: fours in matmul.comp,
// eights in matmul_cooperative.comp.
//
// The includer defines RUN, the elements of a run; RUN_TYPE, its type in memory; and the specialisation
// constants of the tiles and FLAGS.
#include "matmul_elements.glsl"

layout(push_constant) uniform Push {
  uint a_skip, b_skip, bias_skip, out_skip, row_sums_skip, kept_sums_skip, saved_skip;
  uint m, n, k;
  uint depth;                               // of one part of k; a multiple of BK if there are several
  uint a_leading, b_leading, out_leading;   // elements between lines
  uint inner;                               // extent of the inner of two batch axes
  uint a_outer, a_inner, b_outer, b_inner, out_outer, out_inner, out_part;  // from item to item, part to part
  uint finish_bits;
  uint map_b[3], map_bias[3], map_out[3];  // where each map's operands begin, see maps_bit
};

// A workgroup's tile of the output, and where its operands begin.
struct Place {
  uint row, column;    // the tile's first
  uint a, b, bias, result;   // elements
  uint k_begin, k_end;
  uint part;
};

// Tiles are taken in bands of 8 tile rows, column by column: workgroups that run at about the same time then
// read overlapping data, which stays in the cache.
Place place_of_group(uint tile_rows, uint tile_columns) {
  const uint rows = (m + tile_rows - 1) / tile_rows, columns = (n + tile_columns - 1) / tile_columns;
  const uint band = gl_WorkGroupID.x / (8 * columns), within = gl_WorkGroupID.x % (8 * columns);
  const uint height = min(8, rows - band * 8);
  const uint part = gl_WorkGroupID.y, outer = gl_WorkGroupID.z / inner, item = gl_WorkGroupID.z % inner;
  Place place;
  place.row = (band * 8 + within % height) * tile_rows;
  place.column = within / height * tile_columns;
  place.a = a_skip + outer * a_outer + item * a_inner;
  place.b = b_skip + outer * b_outer + item * b_inner;
  place.bias = bias_skip;
  place.result = out_skip + outer * out_outer + item * out_inner + part * out_part;
  if ((FLAGS & maps_bit) != 0) {
    place.a = a_skip;
    place.b = map_b[gl_WorkGroupID.z];
    place.bias = map_bias[gl_WorkGroupID.z];
    place.result = map_out[gl_WorkGroupID.z];
  }
  place.part = part;
  place.k_begin = part * depth;
  place.k_end = min(k, place.k_begin + depth);
  return place;
}

layout(binding = 0) readonly buffer A { ELEMENT a_elements[]; };
layout(binding = 0) readonly buffer ARuns { RUN_TYPE a_runs[]; };
layout(binding = 1) readonly buffer B { ELEMENT b_elements[]; };
layout(binding = 1) readonly buffer BRuns { RUN_TYPE b_runs[]; };
layout(binding = 2) readonly buffer Bias { OUT bias[]; };
layout(binding = 3) buffer Out { OUT out_elements[]; };
layout(binding = 3) buffer OutFours { OUT_FOUR out_fours[]; };
layout(binding = 4) writeonly buffer RowSums { OUT row_sums[]; };
layout(binding = 5) writeonly buffer KeptSums { OUT kept_sums[]; };
layout(binding = 5) writeonly buffer KeptSumsFours { OUT_FOUR kept_sums_fours[]; };
layout(binding = 6) readonly buffer Saved { OUT saved[]; };
layout(binding = 6) readonly buffer SavedFours { OUT_FOUR saved_fours[]; };

const bool a_along_k = (FLAGS & a_along_k_bit) != 0, b_along_k = (FLAGS & b_along_k_bit) != 0;
const bool a_in_runs = (FLAGS & a_vectors_bit) != 0, b_in_runs = (FLAGS & b_vectors_bit) != 0;

// Defines how the tile of one operand moves: fetch() loads it into the registers `held`, keep() stores it
// from there into `tile`, in lines of `pitch`. A tile has `extent` rows (of a) or columns (of b), and BK
// along k.
//   along_k   whether neighbours in memory have neighbouring k (else: neighbouring rows or columns)
//   in_runs   whether every line in memory begins at a multiple of a run
//
// fetch() takes rows or columns from `first` on, of `extent_in_all`, and k from k_begin to below k_end;
// elements outside are 0. load_part(x, elements, at, column, columns) sets a run from element `column` on, of
// which those below `columns` are inside; keep_run(tile, pitch, extent, along_k, stage, line, run, x) stores
// a run of a line. The includer defines both.
#define HEED_OPERAND(fetch, keep, elements, runs, held, tile, pitch, extent, along_k, in_runs)     \
  RUN_TYPE held[extent * BK / RUN / gl_WorkGroupSize.x];                                           \
  void fetch(uint base, uint leading, uint first, uint extent_in_all, uint k_begin, uint k_end) {  \
    const uint lines = along_k ? extent_in_all : k_end, columns = along_k ? k_end : extent_in_all; \
    const uint run = (along_k ? BK : extent) / RUN;                                                \
    [[unroll]] for (uint i = 0; i < extent * BK / RUN / gl_WorkGroupSize.x; ++i) {                 \
      const uint number = gl_LocalInvocationIndex + i * gl_WorkGroupSize.x;                        \
      const uint line = (along_k ? first : k_begin) + number / run;                                \
      const uint column = (along_k ? k_begin : first) + number % run * RUN;                        \
      RUN_TYPE x = RUN_TYPE(0);                                                                    \
      if (line < lines && column < columns) {                                                      \
        const uint at = base + line * leading + column;                                            \
        if (in_runs && column + RUN <= columns) {                                                  \
          x = runs[at / RUN];                                                                      \
        } else {                                                                                   \
          load_part(x, elements, at, column, columns)                                             \
        }                                                                                          \
      }                                                                                            \
      held[i] = x;                                                                                 \
    }                                                                                              \
  }                                                                                                \
  void keep(uint stage) {                                                                          \
    const uint run = (along_k ? BK : extent) / RUN;                                                \
    [[unroll]] for (uint i = 0; i < extent * BK / RUN / gl_WorkGroupSize.x; ++i) {                 \
      const uint number = gl_LocalInvocationIndex + i * gl_WorkGroupSize.x;                        \
      keep_run(tile, pitch, extent, along_k, stage, number / run, number % run, held[i])           \
    }                                                                                              \
  }
