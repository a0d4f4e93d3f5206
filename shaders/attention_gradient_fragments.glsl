// attention_dquery.comp or, with COLUMNS_ARE_QUERIES, attention_dkey.comp or, with OF_BIAS,
// attention_dbias.comp in half precision, on matrix hardware. The tile's rows stay in shared memory, the
// columns of the next tile are loaded into registers while those of the current one are multiplied, and no
// subgroup reads another's scores. ds and weights are rounded to halves before they multiply; sums are f32.
//
// The rows of the queries go with those of the result's gradient, the rows of the keys with those of the
// values.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#ifdef COLUMNS_ARE_QUERIES
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dkey, skip_dvalue;
#elif defined(OF_BIAS)
#define HEADS_ARE_WALKED
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dbias;
#else
#define SKIPS_OF_RESULTS uint skip_grad, skip_statistics, skip_dquery;
#endif
#ifdef OF_BIAS
#define OTHER_NUMBERS uint grad_row, grad_head, batches_in_turn, heads_in_turn, column_tiles;
#else
#define OTHER_NUMBERS uint grad_row, grad_head;
#endif
// Where the lines of each operand begin in `memory`.
#define ROWS_AT 0u
#define ROWS_OF_VALUES_AT (TILE_ROWS * KEY_PITCH)
#define COLUMNS_AT (ROWS_OF_VALUES_AT + TILE_ROWS * VALUE_PITCH)
#define COLUMNS_OF_VALUES_AT (COLUMNS_AT + TILE_COLUMNS * KEY_PITCH)
#define SCORES_AT (COLUMNS_OF_VALUES_AT + TILE_COLUMNS * VALUE_PITCH)
#define LINES_END (SCORES_AT + TILE_ROWS * SCORE_PITCH)
#include "attention_fragments.glsl"
#include "attention_gradients.glsl"

layout(binding = 8) readonly buffer GradEights { uvec4 grad_eights[]; };

#ifdef COLUMNS_ARE_QUERIES
#define ROW_EIGHTS key_eights
#define ROW_VALUE_EIGHTS value_eights
#define COLUMN_EIGHTS query_eights
#define COLUMN_VALUE_EIGHTS grad_eights
layout(binding = 10) writeonly buffer DKey { HALF_FOUR dkey_fours[]; };
layout(binding = 11) writeonly buffer DValue { HALF_FOUR dvalue_fours[]; };
HEED_STORE_SUMS(store_dkey, dkey_fours, KEY_FRAGMENTS, KEY_WIDTH)
HEED_STORE_SUMS(store_dvalue, dvalue_fours, VALUE_FRAGMENTS, VALUE_WIDTH)
#else
#define ROW_EIGHTS query_eights
#define ROW_VALUE_EIGHTS grad_eights
#define COLUMN_EIGHTS key_eights
#define COLUMN_VALUE_EIGHTS value_eights
#ifndef OF_BIAS
layout(binding = 10) writeonly buffer DQuery { HALF_FOUR dquery_fours[]; };
HEED_STORE_SUMS(store_dquery, dquery_fours, KEY_FRAGMENTS, KEY_WIDTH)
#endif
#endif
HEED_KEPT_ROWS(keep_rows, ROW_EIGHTS, KEY_EIGHTS, KEY_WIDTH, ROWS_AT)
HEED_KEPT_ROWS(keep_rows_of_values, ROW_VALUE_EIGHTS, VALUE_EIGHTS, VALUE_WIDTH, ROWS_OF_VALUES_AT)
HEED_FETCHED_TILE(fetch_columns, keep_columns, COLUMN_EIGHTS, held, KEY_EIGHTS, KEY_WIDTH, COLUMNS_AT)
HEED_FETCHED_TILE(fetch_values, keep_values, COLUMN_VALUE_EIGHTS, held_values, VALUE_EIGHTS, VALUE_WIDTH,
                  COLUMNS_OF_VALUES_AT)
HEED_FRAGMENT_SCORES(store_scores, KEY_STEPS, ROWS_AT, COLUMNS_AT, KEY_PITCH)
HEED_FRAGMENT_SCORES(store_slopes, VALUE_STEPS, ROWS_OF_VALUES_AT, COLUMNS_OF_VALUES_AT, VALUE_PITCH)

// The products of a subgroup's rows with the tile's columns; all operands are in `memory`.
void multiply_tile(out vec4 scores[4], out vec4 slopes[4]) {
  const uint own_row = subgroup_number() * FRAGMENT_ROWS, own_scores = SCORES_AT + own_row * SCORE_PITCH;
  store_scores(own_row, own_scores);
  row_barrier();
  read_floats(SCORES_AT, scores);
  row_barrier();
  store_slopes(own_row, own_scores);
  row_barrier();
  read_floats(SCORES_AT, slopes);
}

#ifdef OF_BIAS

void add_head(Rows rows, Columns columns, uint at, inout vec4 sums[4]) {
  keep_rows(rows, skip_query + head_offset(0u, queries, query_row, query_head), query_row);
  keep_rows_of_values(rows, skip_grad + head_offset(3u, queries, grad_row, grad_head), grad_row);
  fetch_columns(columns, at, skip_key + head_offset(1u, keys, key_row, key_head), key_row);
  fetch_values(columns, at, skip_value + head_offset(2u, keys, value_row, value_head), value_row);
  keep_columns();
  keep_values();
  barrier();
  vec4 scores[4], slopes[4];
  multiply_tile(scores, slopes);
  weigh_slopes(rows, scores, slopes);
  [[unroll]] for (uint r = 0u; r < 4u; ++r) sums[r] += slopes[r];
}

#include "attention_dbias.glsl"

#else

HEED_ADD_HALVES_TIMES_LINES(add_columns, KEY_FRAGMENTS, COLUMNS_AT, KEY_PITCH)
HEED_ADD_HALVES_TIMES_LINES(add_values, VALUE_FRAGMENTS, COLUMNS_OF_VALUES_AT, VALUE_PITCH)

// The first tile of columns from `at` on that is not entirely in the future.
uint next_tile(Rows rows, Columns columns, uint at) {
  while (at < columns.end && all_in_the_future(rows, columns, at)) at += TILE_COLUMNS;
  return at;
}

void main() {
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);
  const uint grad_base = skip_grad + head_offset(3u, queries, grad_row, grad_head);
  const uint own_scores = SCORES_AT + subgroup_number() * FRAGMENT_ROWS * SCORE_PITCH;
#ifdef COLUMNS_ARE_QUERIES
  keep_rows(rows, key_base, key_row);
  keep_rows_of_values(rows, value_base, value_row);
#define FETCH(at)                                      \
  fetch_columns(columns, at, query_base, query_row); \
  fetch_values(columns, at, grad_base, grad_row)
  FRAGMENT_SUMS value_sums[VALUE_FRAGMENTS];
  UNROLL for (uint j = 0u; j < VALUE_FRAGMENTS; ++j) clear_sums(value_sums[j]);
#else
  keep_rows(rows, query_base, query_row);
  keep_rows_of_values(rows, grad_base, grad_row);
#define FETCH(at)                                  \
  fetch_columns(columns, at, key_base, key_row); \
  fetch_values(columns, at, value_base, value_row)
#endif
  FRAGMENT_SUMS sums[KEY_FRAGMENTS];
  UNROLL for (uint j = 0u; j < KEY_FRAGMENTS; ++j) clear_sums(sums[j]);

  uint at = next_tile(rows, columns, columns.begin);
  if (at < columns.end) {
    FETCH(at);
  }
  while (at < columns.end) {
    barrier();
    keep_columns();
    keep_values();
    name_columns(columns, at);
    barrier();
    at = next_tile(rows, columns, at + TILE_COLUMNS);
    if (at < columns.end) {
      FETCH(at);
    }
    vec4 scores[4], slopes[4];
    multiply_tile(scores, slopes);
    weigh_slopes(rows, scores, slopes);
    row_barrier();
#ifdef COLUMNS_ARE_QUERIES
    write_halves(SCORES_AT, scores);
    row_barrier();
    add_values(own_scores, value_sums);
    row_barrier();
#endif
    write_halves(SCORES_AT, slopes);
    row_barrier();
    add_columns(own_scores, sums);
  }
#ifdef COLUMNS_ARE_QUERIES
  store_dkey(rows, skip_dkey + result_offset(4u, keys, KEY_WIDTH), result_row(4u, KEY_WIDTH), vec4(scale), sums,
             SCORES_AT);
  store_dvalue(rows, skip_dvalue + result_offset(5u, keys, VALUE_WIDTH), result_row(5u, VALUE_WIDTH), vec4(1),
               value_sums, SCORES_AT);
#else
  store_dquery(rows, skip_dquery + result_offset(4u, queries, KEY_WIDTH), result_row(4u, KEY_WIDTH), vec4(scale), sums,
               SCORES_AT);
#endif
}

#endif
