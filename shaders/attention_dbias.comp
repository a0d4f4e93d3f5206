#version 460
//! types f32 f16 bf16
// The gradient of what is added to attention's logits: ds as in attention_dquery.comp, summed over the heads and batch
// entries that share an entry of the bias. A workgroup takes one tile of the N x M matrix through all of them, one after
// another, so that each sum has a fixed order, and adds to what earlier launches left.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#define HEADS_ARE_WALKED
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dbias;
#define OTHER_NUMBERS uint grad_row, grad_head, batches_in_turn, heads_in_turn, column_tiles;
#include "attention_gradient_products.glsl"

layout(binding = 10) buffer DBias { float dbias[]; };

HEED_ROWS_TIMES_COLUMNS(query_times_key, load_query, load_key, KEY_WIDTH)
HEED_ROWS_TIMES_COLUMNS(grad_times_value, load_grad, load_value, VALUE_WIDTH)

// Where the entry of row r and column c lies, or -1: all that stands in this tile, whether it is padding or not.
int place(Rows rows, Columns columns, uint at, uint r, uint c) {
  const uint row = rows.begin + 4u * lane_y() + r, column = at + 4u * lane_x() + c;
  if (row >= rows.end || column >= columns.end) return -1;
  const uint j = index_of(columns, column);
  return j < keys ? int(skip_dbias + bias_at(row, j, rows.first)) : -1;
}

// Adds the part of one head; the columns have their names.
void add_head(Rows rows, inout vec4 sums[4]) {
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);
  const uint grad_base = skip_grad + head_offset(3u, queries, grad_row, grad_head);
  vec4 scores[4], slopes[4];
  query_times_key(rows, query_base, query_row, key_base, key_row, scores);
  grad_times_value(rows, grad_base, grad_row, value_base, value_row, slopes);
  const uint existing = existing_entries(rows), kept = kept_entries(rows);
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    const vec2 of_row = statistics_of(min(rows.begin + 4u * lane_y() + r, rows.end - 1u));
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const float w = weight(logit(rows, r, c, scores[r][c]) - of_row.x);
      const float dw = bit_of(kept, r, c) ? kept_scale() * slopes[r][c] : 0.0;
      if (bit_of(existing, r, c)) sums[r][c] += w * (dw - of_row.y);
    }
  }
}

void main() {
  walked_batch = gl_WorkGroupID.z;
  walked_head = gl_WorkGroupID.y;
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x / column_tiles);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);  // the same for all heads of a launch
  const uint at = gl_WorkGroupID.x % column_tiles * SIDE;
  if (at >= columns.end || all_in_the_future(rows, columns, at)) return;

  vec4 sums[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const int from = place(rows, columns, at, r, c);
      if (from >= 0) sums[r][c] = dbias[from];
    }
  }
  for (uint b = 0u; b < batches_in_turn; ++b) {
    for (uint h = 0u; h < heads_in_turn; ++h) {
      walked_batch = gl_WorkGroupID.z + b;
      walked_head = gl_WorkGroupID.y + h;
      barrier();
      name_columns(columns, at);
      add_head(rows, sums);
    }
  }
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const int to = place(rows, columns, at, r, c);
      if (to >= 0) dbias[to] = sums[r][c];
    }
  }
}
