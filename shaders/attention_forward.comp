#version 460
//! types f32 f16 bf16
// Attention without the N x M matrix: a workgroup takes some queries, walks over all keys they see and keeps
// the largest score, the sum of the weights and the weighted sum of the values (online softmax: Milakov and
// Gimelshein, arXiv 1805.02867; Rabe and Staats, arXiv 2112.05682; Dao et al., arXiv 2205.14135).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#define SKIPS_OF_RESULTS uint skip_out, skip_row_sums;
#define OTHER_NUMBERS
#include "attention_products.glsl"

layout(binding = 8) writeonly buffer Out { T result[]; };
layout(binding = 9) writeonly buffer RowSums { float row_sums[]; };

HEED_ROWS_TIMES_COLUMNS(query_times_key, load_query, load_key, KEY_WIDTH)
HEED_ADD_TILE_TIMES_ROWS(add_values, load_value)
HEED_STORE(store_result, result, VALUE_WIDTH)

#define partial stage
#define row_barrier() barrier()
#include "attention_softmax.glsl"

void main() {
  const uint slices = slices_of(VALUE_WIDTH);
  const uint slice = gl_WorkGroupID.x % slices;
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x / slices);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);

  vec4 sums[4][QUADS];
  clear(sums);
  Softmax softmax = no_softmax();

  for (uint at = columns.begin; at < columns.end; at += SIDE) {
    if (all_in_the_future(rows, columns, at)) break;
    barrier();
    name_columns(columns, at);
    vec4 scores[4];
    query_times_key(rows, query_base, query_row, key_base, key_row, scores);
    const vec4 rescale = weigh(rows, scores, softmax);
    [[unroll]] for (uint r = 0u; r < 4u; ++r)
      [[unroll]] for (uint q = 0u; q < QUADS; ++q) sums[r][q] *= rescale[r];
    store_tile(scores);
    add_values(value_base, value_row, slice, sums);
  }

  const vec4 factor = normalize(softmax);
  store_result(rows, skip_out + result_offset(3u, queries, VALUE_WIDTH), result_row(3u, VALUE_WIDTH), slice, factor,
               sums);
  if (slice == 0u) store_row_sums(rows, softmax);
}
