// Attention's products in ordinary arithmetic, in square tiles of SIDE rows and SIDE columns.
//
// In shared memory each column has a slot: column 4 x + j is in slot j LANES + x. Neighbouring invocations
// then read neighbouring slots, without bank conflicts.
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
