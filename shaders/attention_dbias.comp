#version 460
//! types f32 f16 bf16
// shaders/attention_dbias.glsl in ordinary arithmetic.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#define HEADS_ARE_WALKED
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dbias;
#define OTHER_NUMBERS uint grad_row, grad_head, batches_in_turn, heads_in_turn, column_tiles;
#include "attention_gradient_products.glsl"

HEED_ROWS_TIMES_COLUMNS(query_times_key, load_query, load_key, KEY_WIDTH)
HEED_ROWS_TIMES_COLUMNS(grad_times_value, load_grad, load_value, VALUE_WIDTH)

void add_head(Rows rows, Columns columns, uint at, inout vec4 sums[4]) {
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);
  const uint grad_base = skip_grad + head_offset(3u, queries, grad_row, grad_head);
  vec4 scores[4], slopes[4];
  query_times_key(rows, query_base, query_row, key_base, key_row, scores);
  grad_times_value(rows, grad_base, grad_row, value_base, value_row, slopes);
  weigh_slopes(rows, scores, slopes);
  [[unroll]] for (uint r = 0u; r < 4u; ++r) sums[r] += slopes[r];
}

#include "attention_dbias.glsl"
