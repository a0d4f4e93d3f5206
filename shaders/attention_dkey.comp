#version 460
//! types f32 f16 bf16
// The gradients of attention with respect to keys and values: dV = (w k)^T g, dK = scale ds^T Q, with w, k
// and ds as in attention_dquery.comp. A workgroup takes some keys and walks over all queries that see them,
// so that each gradient is summed in a fixed order.
//
// S and dP are computed in both passes, because a single pass would have to add up dQ across workgroups.
// Without atomics, whose order is not fixed, that takes an f32 copy of dQ for every tile of keys. Writing and
// reading these costs 8 bytes for the 4 T operations saved in a tile of T keys: no gain in f32, with tiles
// that registers can hold, and a loss in half precision.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#define COLUMNS_ARE_QUERIES
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dkey, skip_dvalue;
#define OTHER_NUMBERS uint grad_row, grad_head;
#include "attention_gradient_products.glsl"

layout(binding = 10) writeonly buffer DKey { T dkey[]; };
layout(binding = 11) writeonly buffer DValue { T dvalue[]; };

HEED_ROWS_TIMES_COLUMNS(key_times_query, load_key, load_query, KEY_WIDTH)
HEED_ROWS_TIMES_COLUMNS(value_times_grad, load_value, load_grad, VALUE_WIDTH)
HEED_ADD_TILE_TIMES_ROWS(add_queries, load_query)
HEED_ADD_TILE_TIMES_ROWS(add_grads, load_grad)
HEED_STORE(store_dkey, dkey, KEY_WIDTH)
HEED_STORE(store_dvalue, dvalue, VALUE_WIDTH)

void main() {
  const uint slices = slices_of(max(KEY_WIDTH, VALUE_WIDTH)), slice = gl_WorkGroupID.x % slices;
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x / slices);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);
  const uint grad_base = skip_grad + head_offset(3u, queries, grad_row, grad_head);

  vec4 key_sums[4][QUADS], value_sums[4][QUADS];
  clear(key_sums);
  clear(value_sums);

  for (uint at = columns.begin; at < columns.end; at += SIDE) {
    if (all_in_the_future(rows, columns, at)) continue;
    barrier();
    name_columns(columns, at);
    vec4 scores[4], slopes[4];
    key_times_query(rows, key_base, key_row, query_base, query_row, scores);
    value_times_grad(rows, value_base, value_row, grad_base, grad_row, slopes);
    weigh_slopes(rows, scores, slopes);
    store_tile(scores);
    add_grads(grad_base, grad_row, slice, value_sums);
    barrier();
    store_tile(slopes);
    add_queries(query_base, query_row, slice, key_sums);
  }
  store_dkey(rows, skip_dkey + result_offset(4u, keys, KEY_WIDTH), result_row(4u, KEY_WIDTH), slice, vec4(scale),
             key_sums);
  store_dvalue(rows, skip_dvalue + result_offset(5u, keys, VALUE_WIDTH), result_row(5u, VALUE_WIDTH), slice, vec4(1),
               value_sums);
}
