#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
//! variant attention_forward_cooperative FORWARD=1
//! variant attention_dquery_cooperative
//! variant attention_dkey_cooperative COLUMNS_ARE_QUERIES=1
//! variant attention_dbias_cooperative OF_BIAS=1
//! variant attention_forward_emulated EMULATED=1 FORWARD=1
//! variant attention_dquery_emulated EMULATED=1
//! variant attention_dkey_emulated EMULATED=1 COLUMNS_ARE_QUERIES=1
//! variant attention_dbias_emulated EMULATED=1 OF_BIAS=1
//! needs GL_KHR_cooperative_matrix cooperative
//! needs GL_EXT_bfloat16 cooperative.*bf16
// The passes of attention_products.comp in half precision, on matrix hardware: cooperative matrices or, with
// EMULATED, the same in ordinary arithmetic on shared memory, which runs anywhere and tests the code built on
// them.
//
// A subgroup owns FRAGMENT_ROWS rows of its workgroup's tile. A fragment of the left factor is FRAGMENT_ROWS
// x DEPTH, one of the right factor DEPTH x COLUMNS, with the device's sizes (8 or 16 each). Only the driver
// knows which element a lane holds, so scores pass through shared memory to where invocation (lane_x, lane_y)
// expects them. Everything shared is in `memory`, in lines of eights: eight halves or four floats. Widths
// are multiples of eight, and the lines of operands begin at multiples of eight.
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint SUBGROUP = 64;  // lanes of a subgroup
layout(constant_id = 8) const uint COLUMNS = 16;
layout(constant_id = 9) const uint DEPTH = 16;
#ifdef EMULATED
uint subgroup_number() { return gl_LocalInvocationIndex / SUBGROUP; }
uint lane_number() { return gl_LocalInvocationIndex % SUBGROUP; }
#else
#extension GL_KHR_shader_subgroup_basic : require
uint subgroup_number() { return gl_SubgroupID; }
uint lane_number() { return gl_SubgroupInvocationID; }
#endif
uint invocation() { return subgroup_number() * SUBGROUP + lane_number(); }
#include "attention.glsl"

layout(binding = 0) readonly buffer QueryEights { uvec4 query_eights[]; };
layout(binding = 1) readonly buffer KeyEights { uvec4 key_eights[]; };
layout(binding = 2) readonly buffer ValueEights { uvec4 value_eights[]; };

const uint FRAGMENT_ROWS = 4u * SUBGROUP / LANES;
const uint SUBGROUPS = THREADS / SUBGROUP;
// The widths of keys and values, rounded up to multiples of 16: in eights, in fragments of a right factor,
// and in steps along a left one.
const uint KEY_EIGHTS = (KEY_WIDTH + 15u) / 16u * 2u, VALUE_EIGHTS = (VALUE_WIDTH + 15u) / 16u * 2u;
const uint KEY_FRAGMENTS = KEY_EIGHTS * 8u / COLUMNS, VALUE_FRAGMENTS = VALUE_EIGHTS * 8u / COLUMNS;
const uint KEY_STEPS = KEY_EIGHTS * 8u / DEPTH, VALUE_STEPS = VALUE_EIGHTS * 8u / DEPTH;
const uint TILE_FRAGMENTS = TILE_COLUMNS / COLUMNS, TILE_STEPS = TILE_COLUMNS / DEPTH;
// One eight more than needed, so that the lines that a fragment reads together lie in different banks.
const uint KEY_PITCH = KEY_EIGHTS + 1u, VALUE_PITCH = VALUE_EIGHTS + 1u, SCORE_PITCH = LANES + 1u;

// Where the lines of each operand begin in `memory`.
#ifdef FORWARD
#define QUERIES_AT 0u
#define KEYS_AT (TILE_ROWS * KEY_PITCH)
#define VALUES_AT (KEYS_AT + TILE_COLUMNS * KEY_PITCH)
#define SCORES_AT (VALUES_AT + TILE_COLUMNS * VALUE_PITCH)
#define LINES_END (SCORES_AT + TILE_ROWS * SCORE_PITCH)
#else
#define ROWS_AT 0u
#define ROWS_OF_VALUES_AT (TILE_ROWS * KEY_PITCH)
#define COLUMNS_AT (ROWS_OF_VALUES_AT + TILE_ROWS * VALUE_PITCH)
#define COLUMNS_OF_VALUES_AT (COLUMNS_AT + TILE_COLUMNS * KEY_PITCH)
#define SCORES_AT (COLUMNS_OF_VALUES_AT + TILE_COLUMNS * VALUE_PITCH)
#define LINES_END (SCORES_AT + TILE_ROWS * SCORE_PITCH)
#endif
shared uvec4 memory[LINES_END];

#ifdef TYPE_f16
#define HALF_FOUR f16vec4
#define pack_four(x) f16vec4(x)
uvec2 words_of(vec4 x) { return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw)); }
#else
#define HALF_FOUR u16vec4
#define pack_four(v) u16vec4(uvec4(bf16_bits(v.x), bf16_bits(v.y), bf16_bits(v.z), bf16_bits(v.w)))
uvec2 words_of(vec4 x) {
  return uvec2(bf16_bits(x.x) | bf16_bits(x.y) << 16, bf16_bits(x.z) | bf16_bits(x.w) << 16);
}
#endif

// --- fragments: load_left, load_right and load_right_columns of the lines that begin at the eight `at`
#ifdef EMULATED

#define UNROLL [[dont_unroll]]  // unrolled, the emulation takes drivers minutes to compile
#define row_barrier() barrier()

struct Place {
  uint at, pitch;
  bool by_columns;
};
// A lane holds sums of four neighbouring columns.
const uint OWN = FRAGMENT_ROWS * (COLUMNS / 4u) / SUBGROUP;
struct Sums {
  vec4 x[OWN];
};
#define FRAGMENT_LEFT Place
#define FRAGMENT_RIGHT Place
#define FRAGMENT_SUMS Sums

#ifdef TYPE_f16
float half_of(uint word, uint place) { return unpackHalf2x16(word)[place]; }
#else
float half_of(uint word, uint place) { return uintBitsToFloat(place == 0u ? word << 16 : word & 0xffff0000u); }
#endif
float element(Place fragment, uint line, uint place) {
  if (fragment.by_columns) {
    const uint swapped = line;
    line = place;
    place = swapped;
  }
  return half_of(memory[fragment.at + line * fragment.pitch + place / 8u][place % 8u / 2u], place % 2u);
}
vec4 four_elements(Place fragment, uint line, uint place) {
  return vec4(element(fragment, line, place), element(fragment, line, place + 1u), element(fragment, line, place + 2u),
              element(fragment, line, place + 3u));
}
#define load_left(fragment, from, lines_pitch) fragment = Place(from, lines_pitch, false)
#define load_right(fragment, from, lines_pitch) fragment = Place(from, lines_pitch, false)
#define load_right_columns(fragment, from, lines_pitch) fragment = Place(from, lines_pitch, true)
#define HEED_OWN(e) UNROLL for (uint e = 0u; e < OWN; ++e)
#define row_of(e) ((lane_number() + (e) * SUBGROUP) / (COLUMNS / 4u))
#define four_of(e) ((lane_number() + (e) * SUBGROUP) % (COLUMNS / 4u))
#define clear_sums(sums) HEED_OWN(e) (sums).x[e] = vec4(0)
#define multiply_add(sums, left, right)                         \
  HEED_OWN(e) UNROLL for (uint term = 0u; term < DEPTH; ++term) \
    (sums).x[e] += element(left, row_of(e), term) * four_elements(right, term, 4u * four_of(e))
#define store_sums(sums, from) \
  HEED_OWN(e) memory[(from) + row_of(e) * SCORE_PITCH + four_of(e)] = floatBitsToUint((sums).x[e])
#define load_row_scales(scales, from) HEED_OWN(e) (scales).x[e] = vec4(row_scales[(from) + row_of(e)])
#define scale_sums(sums, scales) HEED_OWN(e) (sums).x[e] *= (scales).x[e]

#else

#define UNROLL [[unroll]]
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#define row_barrier() subgroupBarrier()

#ifdef TYPE_f16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define FACTOR float16_t
#else
#extension GL_EXT_bfloat16 : require
#define FACTOR bfloat16_t
#endif
#define FRAGMENT_LEFT coopmat<FACTOR, gl_ScopeSubgroup, FRAGMENT_ROWS, DEPTH, gl_MatrixUseA>
#define FRAGMENT_RIGHT coopmat<FACTOR, gl_ScopeSubgroup, DEPTH, COLUMNS, gl_MatrixUseB>
#define FRAGMENT_SUMS coopmat<float, gl_ScopeSubgroup, FRAGMENT_ROWS, COLUMNS, gl_MatrixUseAccumulator>

#define load_left(fragment, from, pitch) coopMatLoad(fragment, memory, from, pitch, gl_CooperativeMatrixLayoutRowMajor)
#define load_right(fragment, from, pitch) coopMatLoad(fragment, memory, from, pitch, gl_CooperativeMatrixLayoutRowMajor)
#define load_right_columns(fragment, from, pitch) \
  coopMatLoad(fragment, memory, from, pitch, gl_CooperativeMatrixLayoutColumnMajor)
#define clear_sums(sums) sums = FRAGMENT_SUMS(0.0)
#define multiply_add(sums, left, right) sums = coopMatMulAdd(left, right, sums)
#define store_sums(sums, from) coopMatStore(sums, memory, from, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor)
// A column stride of 0: each element is the scale of its row.
#define load_row_scales(scales, from) coopMatLoad(scales, row_scales, from, 0, gl_CooperativeMatrixLayoutColumnMajor)
#define scale_sums(sums, scales) sums = sums * scales

#endif

// --- between registers and shared memory
// fetch() loads a tile of columns into registers while another tile is multiplied; keep() stores it into the
// lines that begin at `lines`.
#define HEED_FETCHED_TILE(fetch, keep, eights, held, of_line, width, lines)                                \
  uvec4 held[(TILE_COLUMNS * of_line + THREADS - 1u) / THREADS];                                           \
  void fetch(Columns columns, uint at, uint base, uint stride) {                                           \
    [[unroll]] for (uint n = 0u; n < (TILE_COLUMNS * of_line + THREADS - 1u) / THREADS; ++n) {             \
      const uint line = (n * THREADS + invocation()) / of_line;                                            \
      const uint eight = (n * THREADS + invocation()) % of_line;                                           \
      const int index = line < TILE_COLUMNS && 8u * eight < width ? named_column(columns, at + line) : -1; \
      held[n] = index < 0 ? uvec4(0) : eights[(base + uint(index) * stride) / 8u + eight];                 \
    }                                                                                                      \
  }                                                                                                        \
  void keep() {                                                                                            \
    [[unroll]] for (uint n = 0u; n < (TILE_COLUMNS * of_line + THREADS - 1u) / THREADS; ++n) {             \
      const uint line = (n * THREADS + invocation()) / of_line;                                            \
      const uint eight = (n * THREADS + invocation()) % of_line;                                           \
      if (line < TILE_COLUMNS) memory[lines + line * (of_line + 1u) + eight] = held[n];                    \
    }                                                                                                      \
  }

// Stores the tile's rows into the lines that begin at `lines`.
#define HEED_KEPT_ROWS(keep, eights, of_line, width, lines)                             \
  void keep(Rows rows, uint base, uint stride) {                                        \
    for (uint n = invocation(); n < TILE_ROWS * of_line; n += THREADS) {                \
      const uint line = n / of_line, eight = n % of_line, row = rows.begin + line;      \
      const bool there = row < rows.end && 8u * eight < width;                          \
      memory[lines + line * (of_line + 1u) + eight] =                                   \
          there ? eights[(base + (row - rows.first) * stride) / 8u + eight] : uvec4(0); \
    }                                                                                   \
  }

// The tile's scores lie in lines of SCORE_PITCH, those of a subgroup together: first as floats, four columns
// to an eight, later as halves at the beginning of the same lines.
uint line_of_row(uint r) { return (4u * lane_y() + r) * SCORE_PITCH; }
void read_floats(uint begin, out vec4 entries[4]) {
  [[unroll]] for (uint r = 0u; r < 4u; ++r) entries[r] = uintBitsToFloat(memory[begin + line_of_row(r) + lane_x()]);
}
void write_halves(uint begin, vec4 entries[4]) {
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    const uvec2 words = words_of(entries[r]);
    const uint at = begin + line_of_row(r) + lane_x() / 2u;
    // Component by component, with constant indices: otherwise compilers may write the whole eight.
    if (lane_x() % 2u == 0u) {
      memory[at].x = words.x;
      memory[at].y = words.y;
    } else {
      memory[at].z = words.x;
      memory[at].w = words.y;
    }
  }
}

// Stores the products of the tile's rows, whose lines begin at `left_lines`, with its columns.
#define HEED_FRAGMENT_SCORES(name, steps, left_lines, right_lines, pitch)                                     \
  void name(uint own_row, uint own_scores) {                                                                  \
    FRAGMENT_SUMS products[TILE_FRAGMENTS];                                                                   \
    UNROLL for (uint j = 0u; j < TILE_FRAGMENTS; ++j) clear_sums(products[j]);                                \
    UNROLL for (uint l = 0u; l < steps; ++l) {                                                                \
      FRAGMENT_LEFT x;                                                                                        \
      load_left(x, left_lines + own_row * pitch + DEPTH / 8u * l, pitch);                                     \
      UNROLL for (uint j = 0u; j < TILE_FRAGMENTS; ++j) {                                                     \
        FRAGMENT_RIGHT y;                                                                                     \
        load_right_columns(y, right_lines + COLUMNS * j * pitch + DEPTH / 8u * l, pitch);                     \
        multiply_add(products[j], x, y);                                                                      \
      }                                                                                                       \
    }                                                                                                         \
    UNROLL for (uint j = 0u; j < TILE_FRAGMENTS; ++j) store_sums(products[j], own_scores + COLUMNS / 4u * j); \
  }

// sums += the halves that replaced the scores, times the lines of the tile's columns.
#define HEED_ADD_HALVES_TIMES_LINES(name, fragments, right_lines, pitch)          \
  void name(uint own_scores, inout FRAGMENT_SUMS sums[fragments]) {               \
    UNROLL for (uint l = 0u; l < TILE_STEPS; ++l) {                               \
      FRAGMENT_LEFT x;                                                            \
      load_left(x, own_scores + DEPTH / 8u * l, SCORE_PITCH);                     \
      UNROLL for (uint j = 0u; j < fragments; ++j) {                              \
        FRAGMENT_RIGHT y;                                                         \
        load_right(y, right_lines + DEPTH * l * pitch + COLUMNS / 8u * j, pitch); \
        multiply_add(sums[j], x, y);                                              \
      }                                                                           \
    }                                                                             \
  }

// Stores the sums of fragments that lie side by side, times `factor` per row. Overwrites the scores.
#define HEED_STORE_SUMS(name, target, fragments, width)                                                            \
  void name(Rows rows, uint base, uint stride, vec4 factor, FRAGMENT_SUMS sums[fragments], uint scores) {          \
    UNROLL for (uint step = 0u; step < fragments; step += TILE_FRAGMENTS) {                                        \
      row_barrier();                                                                                               \
      UNROLL for (uint n = 0u; n < TILE_FRAGMENTS; ++n)                                                            \
        if (step + n < fragments)                                                                                  \
          store_sums(sums[step + n], scores + subgroup_number() * FRAGMENT_ROWS * SCORE_PITCH + COLUMNS / 4u * n); \
      row_barrier();                                                                                               \
      vec4 entries[4];                                                                                             \
      read_floats(scores, entries);                                                                                \
      const uint column = COLUMNS * step + 4u * lane_x();                                                          \
      [[unroll]] for (uint r = 0u; r < 4u; ++r) {                                                                  \
        const uint row = rows.begin + 4u * lane_y() + r;                                                           \
        if (row < rows.end && column < width)                                                                      \
          target[(base + (row - rows.first) * stride + column) / 4u] = pack_four((factor[r] * entries[r]));        \
      }                                                                                                            \
    }                                                                                                              \
  }

#ifdef FORWARD

// --- forward. The queries stay in fragments; keys and
// values of the next tile are loaded into registers while those of the current one are multiplied; and each
// subgroup does the softmax of its rows without waiting for the others, so that a tile needs two barriers of
// the workgroup. Weights are rounded to halves before they multiply the values; sums and statistics are f32.

shared vec4 partial[THREADS / LANES * (LANES + 1u)];
shared float row_scales[TILE_ROWS];

layout(binding = 8) writeonly buffer OutFours { HALF_FOUR result_fours[]; };
layout(binding = 9) writeonly buffer RowSums { float row_sums[]; };

HEED_KEPT_ROWS(keep_queries, query_eights, KEY_EIGHTS, KEY_WIDTH, QUERIES_AT)
HEED_FETCHED_TILE(fetch_keys, keep_keys, key_eights, key_held, KEY_EIGHTS, KEY_WIDTH, KEYS_AT)
HEED_FETCHED_TILE(fetch_values, keep_values, value_eights, value_held, VALUE_EIGHTS, VALUE_WIDTH, VALUES_AT)
HEED_ADD_HALVES_TIMES_LINES(add_values, VALUE_FRAGMENTS, VALUES_AT, VALUE_PITCH)
HEED_STORE_SUMS(store_result, result_fours, VALUE_FRAGMENTS, VALUE_WIDTH)
#include "attention_weights.glsl"

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

#else

// --- backward. The tile's rows stay in shared memory, the
// columns of the next tile are loaded into registers while those of the current one are multiplied, and no
// subgroup reads another's scores. ds and weights are rounded to halves before they multiply; sums are f32.
//
// The rows of the queries go with those of the result's gradient, the rows of the keys with those of the
// values.
#include "attention_weights.glsl"

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

#endif
