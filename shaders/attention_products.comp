#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant attention_forward FORWARD=1
//! variant attention_dquery
//! variant attention_dkey COLUMNS_ARE_QUERIES=1
//! variant attention_dbias OF_BIAS=1
// The passes of attention in ordinary arithmetic, in square tiles of SIDE rows and SIDE columns.
//
// In shared memory each column has a slot: column 4 x + j is in slot j LANES + x. Neighbouring invocations
// then read neighbouring slots, without bank conflicts.
#include "common.glsl"
uint invocation() { return gl_LocalInvocationIndex; }
#include "attention.glsl"

layout(constant_id = 4) const uint QUADS = 1;  // vec4s of a row of the result that an invocation holds

const uint SIDE = TILE_ROWS;
const uint SLICE = LANES * QUADS;  // vec4s of a row of the result that the workgroup holds
// Staged rows hold 4 vec4s; the fifth keeps the reads of neighbouring invocations on different banks.
const uint STAGE_ROW = 5u;
const uint TILE_ROW = LANES + 1u;
// The number of slots that fit the stage when it holds rows for the second product.
const uint STAGE_SLOTS = 40u / QUADS;

// T4: four elements as stored in memory.
#if defined(TYPE_f32)
#define T4 vec4
vec4 unpack(vec4 x) { return x; }
#elif defined(TYPE_f16)
#define T4 uvec2
vec4 unpack(uvec2 x) { return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y)); }
#elif defined(TYPE_bf16)
#define T4 uvec2
vec4 unpack(uvec2 x) {
  return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
}
#endif

layout(binding = 0) readonly buffer QueryQuads { T4 query_quads[]; };
layout(binding = 1) readonly buffer KeyQuads { T4 key_quads[]; };
layout(binding = 2) readonly buffer ValueQuads { T4 value_quads[]; };

shared vec4 stage[SIDE * 2u * STAGE_ROW];
shared vec4 tile[SIDE * TILE_ROW];  // weights or their gradients: [slot][row / 4], 4 rows in a vec4

uint slot_of(uint column) { return column % 4u * LANES + column / 4u; }
uint column_of(uint slot) { return slot % LANES * 4u + slot / LANES; }

// Elements column .. column + 3 of a row that begins at `at` and has `width` elements; 0 beyond its end.
#define HEED_LOADER(name, scalars, quads, width)                                  \
  vec4 name(uint at, uint column) {                                               \
    if (column >= width) return vec4(0);                                          \
    if (ALIGNED) return unpack(quads[(at + column) / 4u]);                        \
    vec4 x = vec4(0);                                                             \
    x.x = to_float(scalars[at + column]);                                         \
    if (column + 1u < width) x.y = to_float(scalars[at + column + 1u]);           \
    if (column + 2u < width) x.z = to_float(scalars[at + column + 2u]);           \
    if (column + 3u < width) x.w = to_float(scalars[at + column + 3u]);           \
    return x;                                                                     \
  }

HEED_LOADER(load_query, query, query_quads, KEY_WIDTH)
HEED_LOADER(load_key, key, key_quads, KEY_WIDTH)
HEED_LOADER(load_value, value, value_quads, VALUE_WIDTH)

// sum + left . right, one element after the other: the same bits in every shader, whichever factor is on the
// left.
float add_product(float sum, vec4 left, vec4 right) {
  precise float x = fma(left.x, right.x, sum);
  precise float y = fma(left.y, right.y, x);
  precise float z = fma(left.z, right.z, y);
  precise float w = fma(left.w, right.w, z);
  return w;
}

// The products of the rows of one operand with the columns of another: scores[r][c] = row_r . column_c.
// Leaves the stage in use: a barrier must precede the next write to it.
#define HEED_ROWS_TIMES_COLUMNS(name, load_row, load_column, width)                                            \
  void name(Rows rows, uint row_base, uint row_stride, uint column_base, uint column_stride,                   \
            out vec4 scores[4]) {                                                                              \
    scores = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));                                                      \
    for (uint from = 0u; from < width; from += 16u) {                                                          \
      barrier();                                                                                               \
      [[unroll]] for (uint n = gl_LocalInvocationIndex; n < 4u * SIDE; n += THREADS) {                         \
        const uint line = n / 4u, quad = n % 4u, row = rows.begin + line;                                      \
        const int index = column_index[line];                                                                  \
        vec4 left = vec4(0), right = vec4(0);                                                                  \
        if (row < rows.end) left = load_row(row_base + (row - rows.first) * row_stride, from + 4u * quad);     \
        if (index >= 0) right = load_column(column_base + uint(index) * column_stride, from + 4u * quad);      \
        stage[line * STAGE_ROW + quad] = left;                                                                 \
        stage[(SIDE + slot_of(line)) * STAGE_ROW + quad] = right;                                              \
      }                                                                                                        \
      barrier();                                                                                               \
      [[unroll]] for (uint quad = 0u; quad < 4u; ++quad) {                                                     \
        vec4 left[4], right[4];                                                                                \
        [[unroll]] for (uint r = 0u; r < 4u; ++r) {                                                            \
          left[r] = stage[(4u * lane_y() + r) * STAGE_ROW + quad];                                             \
          right[r] = stage[(SIDE + r * LANES + lane_x()) * STAGE_ROW + quad];                                  \
        }                                                                                                      \
        [[unroll]] for (uint r = 0u; r < 4u; ++r)                                                              \
          [[unroll]] for (uint c = 0u; c < 4u; ++c)                                                            \
            scores[r][c] = add_product(scores[r][c], left[r], right[c]);                                       \
      }                                                                                                        \
    }                                                                                                          \
  }

// Writes the 4 x 4 entries of this invocation to the tile.
void store_tile(vec4 entries[4]) {
  [[unroll]] for (uint c = 0u; c < 4u; ++c)
    tile[(c * LANES + lane_x()) * TILE_ROW + lane_y()] =
        vec4(entries[0][c], entries[1][c], entries[2][c], entries[3][c]);
}

// sums[r][q] += tile x the rows of one operand that belong to the columns; `slice` is the part of their
// width.
#define HEED_ADD_TILE_TIMES_ROWS(name, load)                                                                   \
  void name(uint base, uint stride, uint slice, inout vec4 sums[4][QUADS]) {                                   \
    for (uint from = 0u; from < SIDE; from += STAGE_SLOTS) {                                                   \
      const uint slots = min(STAGE_SLOTS, SIDE - from);                                                        \
      barrier();                                                                                               \
      for (uint n = gl_LocalInvocationIndex; n < slots * SLICE; n += THREADS) {                                \
        const int index = column_index[column_of(from + n / SLICE)];                                           \
        stage[n] = index < 0 ? vec4(0)                                                                         \
                             : load(base + uint(index) * stride, 4u * (slice * SLICE + n % SLICE));            \
      }                                                                                                        \
      barrier();                                                                                               \
      for (uint s = 0u; s < slots; ++s) {                                                                      \
        const vec4 entries = tile[(from + s) * TILE_ROW + lane_y()];                                           \
        [[unroll]] for (uint q = 0u; q < QUADS; ++q) {                                                         \
          const vec4 x = stage[s * SLICE + q * LANES + lane_x()];                                              \
          [[unroll]] for (uint r = 0u; r < 4u; ++r) sums[r][q] += entries[r] * x;                              \
        }                                                                                                      \
      }                                                                                                        \
    }                                                                                                          \
  }

// Stores this invocation's part of the result, times `factor` per row.
#define HEED_STORE(name, target, width)                                                                        \
  void name(Rows rows, uint base, uint stride, uint slice, vec4 factor, vec4 sums[4][QUADS]) {                 \
    [[unroll]] for (uint r = 0u; r < 4u; ++r) {                                                                \
      const uint row = rows.begin + 4u * lane_y() + r;                                                         \
      if (row >= rows.end) continue;                                                                           \
      [[unroll]] for (uint q = 0u; q < QUADS; ++q) {                                                           \
        const uint column = 4u * (slice * SLICE + q * LANES + lane_x());                                       \
        [[unroll]] for (uint c = 0u; c < 4u; ++c)                                                              \
          if (column + c < width)                                                                              \
            target[base + (row - rows.first) * stride + column + c] = from_float(factor[r] * sums[r][q][c]);   \
      }                                                                                                        \
    }                                                                                                          \
  }

void clear(out vec4 sums[4][QUADS]) {
  [[unroll]] for (uint r = 0u; r < 4u; ++r)
    [[unroll]] for (uint q = 0u; q < QUADS; ++q) sums[r][q] = vec4(0);
}

// Workgroups are ordered by tile and, within a tile, by slice of the result's width.
uint slices_of(uint width) { return ((width + 3u) / 4u + SLICE - 1u) / SLICE; }

#if defined(FORWARD)

// Attention without the N x M matrix: a workgroup takes some queries, walks over all keys they see and keeps
// the largest score, the sum of the weights and the weighted sum of the values (online softmax: Milakov and
// Gimelshein, arXiv 1805.02867; Rabe and Staats, arXiv 2112.05682; Dao et al., arXiv 2205.14135).

layout(binding = 8) writeonly buffer Out { T result[]; };
layout(binding = 9) writeonly buffer RowSums { float row_sums[]; };

HEED_ROWS_TIMES_COLUMNS(query_times_key, load_query, load_key, KEY_WIDTH)
HEED_ADD_TILE_TIMES_ROWS(add_values, load_value)
HEED_STORE(store_result, result, VALUE_WIDTH)

#define partial stage
#define row_barrier() barrier()
#include "attention_weights.glsl"

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

#else

#include "attention_weights.glsl"

layout(binding = 8) readonly buffer Grad { T grad[]; };
layout(binding = 8) readonly buffer GradQuads { T4 grad_quads[]; };

HEED_LOADER(load_grad, grad, grad_quads, VALUE_WIDTH)

#endif

#if defined(COLUMNS_ARE_QUERIES)

// The gradients of attention with respect to keys and values: dV = (w k)^T g, dK = scale ds^T Q, with w, k
// and ds as for the queries, below. A workgroup takes some keys and walks over all queries that see them,
// so that each gradient is summed in a fixed order.
//
// S and dP are computed in both passes, because a single pass would have to add up dQ across workgroups.
// Without atomics, whose order is not fixed, that takes an f32 copy of dQ for every tile of keys. Writing and
// reading these costs 8 bytes for the 4 T operations saved in a tile of T keys: no gain in f32, with tiles
// that registers can hold, and a loss in half precision.

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

#elif defined(OF_BIAS)

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

#elif !defined(FORWARD)

// The gradient of attention with respect to the queries: dw = g V^T k, ds = w (dw - D), dQ = scale ds K, with
// weights w = exp(score - largest) / sum, dropout factors k, and D = out . g (FlashAttention, arXiv
// 2205.14135, section 3.1 and appendix B.4). A workgroup takes some queries and walks over all keys they see.

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

#endif
