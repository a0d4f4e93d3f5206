#version 460
//! types f32 f16 bf16
// The gradient of attention with respect to the queries: dw = g V^T k, ds = w (dw - D), dQ = scale ds K, with
// weights w = exp(score - largest) / sum, dropout factors k, and D = out . g (FlashAttention, arXiv
// 2205.14135, section 3.1 and appendix B.4). A workgroup takes some queries and walks over all keys they see.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dquery;
#define OTHER_NUMBERS uint grad_row, grad_head;
#include "attention_gradient_products.glsl"

layout(binding = 10) writeonly buffer DQuery { T dquery[]; };

HEED_ROWS_TIMES_COLUMNS(query_times_key, load_query, load_key, KEY_WIDTH)
HEED_ROWS_TIMES_COLUMNS(grad_times_value, load_grad, load_value, VALUE_WIDTH)
HEED_ADD_TILE_TIMES_ROWS(add_keys, load_key)
HEED_STORE(store_dquery, dquery, KEY_WIDTH)

void main() {
  const uint slices = slices_of(KEY_WIDTH), slice = gl_WorkGroupID.x % slices;
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x / slices);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);
  const uint grad_base = skip_grad + head_offset(3u, queries, grad_row, grad_head);

  vec4 sums[4][QUADS];
  clear(sums);

  for (uint at = columns.begin; at < columns.end; at += SIDE) {
    if (all_in_the_future(rows, columns, at)) break;
    barrier();
    name_columns(columns, at);
    vec4 scores[4], slopes[4];
    query_times_key(rows, query_base, query_row, key_base, key_row, scores);
    grad_times_value(rows, grad_base, grad_row, value_base, value_row, slopes);
    weigh_slopes(rows, scores, slopes);
    store_tile(slopes);
    add_keys(key_base, key_row, slice, sums);
  }
  store_dquery(rows, skip_dquery + result_offset(4u, queries, KEY_WIDTH), result_row(4u, KEY_WIDTH), slice,
               vec4(scale), sums);
}
