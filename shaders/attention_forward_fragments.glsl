// attention_forward.comp in half precision, on matrix hardware. The queries stay in fragments; keys and
// values of the next tile are loaded into registers while those of the current one are multiplied; and each
// subgroup does the softmax of its rows without waiting for the others, so that a tile needs two barriers of
// the workgroup. Weights are rounded to halves before they multiply the values; sums and statistics are f32.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#define SKIPS_OF_RESULTS uint skip_out, skip_row_sums;
#define OTHER_NUMBERS
// Where the lines of each operand begin in `memory`.
#define QUERIES_AT 0u
#define KEYS_AT (TILE_ROWS * KEY_PITCH)
#define VALUES_AT (KEYS_AT + TILE_COLUMNS * KEY_PITCH)
#define SCORES_AT (VALUES_AT + TILE_COLUMNS * VALUE_PITCH)
#define LINES_END (SCORES_AT + TILE_ROWS * SCORE_PITCH)
#include "attention_fragments.glsl"

shared vec4 partial[THREADS / LANES * (LANES + 1u)];
shared float row_scales[TILE_ROWS];

layout(binding = 8) writeonly buffer OutFours { HALF_FOUR result_fours[]; };
layout(binding = 9) writeonly buffer RowSums { float row_sums[]; };

HEED_KEPT_ROWS(keep_queries, query_eights, KEY_EIGHTS, KEY_WIDTH, QUERIES_AT)
HEED_FETCHED_TILE(fetch_keys, keep_keys, key_eights, key_held, KEY_EIGHTS, KEY_WIDTH, KEYS_AT)
HEED_FETCHED_TILE(fetch_values, keep_values, value_eights, value_held, VALUE_EIGHTS, VALUE_WIDTH, VALUES_AT)
HEED_ADD_HALVES_TIMES_LINES(add_values, VALUE_FRAGMENTS, VALUES_AT, VALUE_PITCH)
HEED_STORE_SUMS(store_result, result_fours, VALUE_FRAGMENTS, VALUE_WIDTH)
#include "attention_softmax.glsl"

void main() {
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);
  const uint query_base = skip_query + head_offset(0u, queries, query_row, query_head);
  const uint key_base = skip_key + head_offset(1u, keys, key_row, key_head);
  const uint value_base = skip_value + head_offset(2u, keys, value_row, value_head);
  const uint own_row = subgroup_number() * FRAGMENT_ROWS, own_scores = SCORES_AT + own_row * SCORE_PITCH;

  fetch_keys(columns, columns.begin, key_base, key_row);
  fetch_values(columns, columns.begin, value_base, value_row);
  keep_queries(rows, query_base, query_row);
  barrier();
  FRAGMENT_LEFT own_queries[KEY_STEPS];
  UNROLL for (uint l = 0u; l < KEY_STEPS; ++l)
    load_left(own_queries[l], QUERIES_AT + own_row * KEY_PITCH + DEPTH / 8u * l, KEY_PITCH);
  FRAGMENT_SUMS sums[VALUE_FRAGMENTS];
  UNROLL for (uint j = 0u; j < VALUE_FRAGMENTS; ++j) clear_sums(sums[j]);
  Softmax softmax = no_softmax();

  for (uint at = columns.begin; at < columns.end; at += TILE_COLUMNS) {
    if (all_in_the_future(rows, columns, at)) break;
    barrier();
    keep_keys();
    keep_values();
    name_columns(columns, at);
    barrier();
    if (at + TILE_COLUMNS < columns.end) {
      fetch_keys(columns, at + TILE_COLUMNS, key_base, key_row);
      fetch_values(columns, at + TILE_COLUMNS, value_base, value_row);
    }
    UNROLL for (uint j = 0u; j < TILE_FRAGMENTS; ++j) {
      FRAGMENT_SUMS products;
      clear_sums(products);
      UNROLL for (uint l = 0u; l < KEY_STEPS; ++l) {
        FRAGMENT_RIGHT y;
        load_right_columns(y, KEYS_AT + COLUMNS * j * KEY_PITCH + DEPTH / 8u * l, KEY_PITCH);
        multiply_add(products, own_queries[l], y);
      }
      store_sums(products, own_scores + COLUMNS / 4u * j);
    }
    row_barrier();
    vec4 scores[4];
    read_floats(SCORES_AT, scores);
    const vec4 rescale = weigh(rows, scores, softmax);  // waits until all lanes have read
    write_halves(SCORES_AT, scores);
    if (lane_x() == 0u)
      [[unroll]] for (uint r = 0u; r < 4u; ++r) row_scales[4u * lane_y() + r] = rescale[r];
    row_barrier();
    FRAGMENT_SUMS scales;
    load_row_scales(scales, own_row);
    UNROLL for (uint j = 0u; j < VALUE_FRAGMENTS; ++j) scale_sums(sums[j], scales);
    add_values(own_scores, sums);
  }

  const vec4 factor = normalize(softmax);
  store_result(rows, skip_out + result_offset(3u, queries, VALUE_WIDTH), result_row(3u, VALUE_WIDTH), factor, sums,
               SCORES_AT);
  store_row_sums(rows, softmax);
}
