#version 460
//! types f32 f16 bf16
// Attention without the N x M matrix: a workgroup takes some queries through all keys they see and keeps the
// largest score, the sum of the weights and the weighted sum of the values (online softmax: Milakov and
// Gimelshein, arXiv 1805.02867; Rabe and Staats, arXiv 2112.05682; Dao et al., arXiv 2205.14135).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
#include "philox.glsl"
#define SKIPS_OF_RESULTS uint skip_out, skip_log_sum_exp;
#define OTHER_NUMBERS
#include "attention.glsl"

layout(binding = 8) writeonly buffer Out { T result[]; };
layout(binding = 9) writeonly buffer LogSumExp { float log_sum_exp[]; };

HEED_ROWS_TIMES_COLUMNS(query_times_key, load_query, load_key, KEY_WIDTH)
HEED_ADD_TILE_TIMES_ROWS(add_values, load_value)
HEED_STORE(store_result, result, VALUE_WIDTH)

// Combines what the invocations of each row of the tile hold, in a fixed order.
#define HEED_COMBINE(name, operation)                                                              \
  vec4 name(vec4 x) {                                                                              \
    barrier();                                                                                     \
    stage[lane_y() * (LANES + 1u) + lane_x()] = x;                                                 \
    barrier();                                                                                     \
    vec4 all = stage[lane_y() * (LANES + 1u)];                                                     \
    for (uint n = 1u; n < LANES; ++n) all = operation(all, stage[lane_y() * (LANES + 1u) + n]);    \
    return all;                                                                                    \
  }
vec4 add(vec4 a, vec4 b) { return a + b; }
HEED_COMBINE(maximum_over_lanes, max)
HEED_COMBINE(sum_over_lanes, add)

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
  vec4 largest = vec4(-INFINITY), total = vec4(0);

  for (uint at = columns.begin; at < columns.end; at += SIDE) {
    if (all_in_the_future(rows, columns, at)) break;
    barrier();
    name_columns(columns, at);
    vec4 scores[4];
    query_times_key(rows, query_base, query_row, key_base, key_row, scores);
    const uint existing = existing_entries(rows), kept = kept_entries(rows);
    vec4 found = vec4(-INFINITY);
    [[unroll]] for (uint r = 0u; r < 4u; ++r) {
      [[unroll]] for (uint c = 0u; c < 4u; ++c) {
        scores[r][c] = bit_of(existing, r, c) ? logit(rows, r, c, scores[r][c]) : -INFINITY;
        found[r] = max(found[r], scores[r][c]);
      }
    }
    const vec4 now = max(largest, maximum_over_lanes(found));
    vec4 rescale;
    [[unroll]] for (uint r = 0u; r < 4u; ++r) {
      // With nothing allowed so far, exp(-infinity - 0) = 0 is what is wanted.
      const float shift = now[r] == -INFINITY ? 0.0 : now[r];
      rescale[r] = now[r] == largest[r] ? 1.0 : weight(largest[r] - shift);
      float sum = 0.0;
      [[unroll]] for (uint c = 0u; c < 4u; ++c) {
        const float w = weight(scores[r][c] - shift);
        sum += w;
        scores[r][c] = bit_of(kept, r, c) ? w : 0.0;
      }
      total[r] = rescale[r] * total[r] + sum;
      [[unroll]] for (uint q = 0u; q < QUADS; ++q) sums[r][q] *= rescale[r];
    }
    largest = now;
    store_tile(scores);
    add_values(value_base, value_row, slice, sums);
  }

  total = sum_over_lanes(total);
  vec4 factor;
  [[unroll]] for (uint r = 0u; r < 4u; ++r) factor[r] = total[r] == 0.0 ? 0.0 : kept_scale() / total[r];
  store_result(rows, skip_out + result_offset(3u, queries, VALUE_WIDTH), result_row(3u, VALUE_WIDTH), slice, factor,
               sums);
  if (slice != 0u || lane_x() != 0u) return;
  const uint line = (local_batch() * heads + local_head()) * queries;
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    const uint row = rows.begin + 4u * lane_y() + r;
    if (row < rows.end)
      log_sum_exp[skip_log_sum_exp + line + row] = total[r] == 0.0 ? -INFINITY : largest[r] + exact_log(total[r]);
  }
}
