// Shared by the passes of attention: the forward pass (FORWARD), the gradient of the queries, those
// of keys and values (COLUMNS_ARE_QUERIES) and that of the bias (OF_BIAS). Scores are computed in
// tiles of TILE_ROWS x TILE_COLUMNS: the rows are queries and the columns keys, or, for the
// gradients of keys and values (COLUMNS_ARE_QUERIES), the other way round. A workgroup owns the
// rows of one tile and walks over the columns. Invocation (lane_x, lane_y) holds the scores of rows
// 4 lane_y .. + 3 and columns 4 lane_x .. + 3.
//
// attention_products.comp multiplies in ordinary arithmetic, attention_fragments.comp on matrix hardware;
// each includes this file and defines invocation(), the number of an invocation within its workgroup.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 16;        // invocations side by side
layout(constant_id = 2) const uint KEY_WIDTH = 64;    // dk
layout(constant_id = 3) const uint VALUE_WIDTH = 64;  // dv
layout(constant_id = 5) const uint FLAGS = 0;
layout(constant_id = 6) const uint DROPPED = 0;  // a weight is dropped if its random word >> 8 is below this
layout(constant_id = 7) const uint BLOCK = 1;    // side of the pattern's blocks

#define OF_ATTENTION
#include "backends/vulkan/shader_flags.h"
const bool HAS_KEY_MASK = (FLAGS & attention_key_mask_bit) != 0u;
const bool HAS_MASK = (FLAGS & attention_mask_bit) != 0u;
const bool CAUSAL = (FLAGS & attention_causal_bit) != 0u;
const bool HAS_PATTERN = (FLAGS & attention_pattern_bit) != 0u;
const bool PATTERN_PER_HEAD = (FLAGS & attention_pattern_per_head_bit) != 0u;
const bool ALIGNED = (FLAGS & attention_aligned_bit) != 0u;
const bool MASK_HAS_BATCH = (FLAGS & attention_mask_has_batch_bit) != 0u;
const bool MASK_HAS_HEADS = (FLAGS & attention_mask_has_heads_bit) != 0u;
const bool MASK_HAS_QUERIES = (FLAGS & attention_mask_has_queries_bit) != 0u;
const bool MASK_HAS_KEYS = (FLAGS & attention_mask_has_keys_bit) != 0u;
const bool HAS_SLOPES = (FLAGS & attention_slopes_bit) != 0u;
const bool HAS_BIAS = (FLAGS & attention_bias_bit) != 0u;
const bool BIAS_HAS_BATCH = (FLAGS & attention_bias_has_batch_bit) != 0u;
const bool BIAS_HAS_HEADS = (FLAGS & attention_bias_has_heads_bit) != 0u;
const uint HEADS_OUTSIDE = FLAGS >> attention_operands_shift;  // bit t: of operand t

const uint THREADS = gl_WorkGroupSize.x;
const uint TILE_ROWS = 4u * (THREADS / LANES), TILE_COLUMNS = 4u * LANES;
// Kept weights are divided by 1 - p, with p = DROPPED / 2^24.
float kept_scale() { return DROPPED >= 16777216u ? 0.0 : 1.0 / (1.0 - float(DROPPED) / 16777216.0); }

layout(binding = 0) readonly buffer Query { T query[]; };
layout(binding = 1) readonly buffer Key { T key[]; };
layout(binding = 2) readonly buffer Value { T value[]; };
layout(binding = 3) readonly buffer KeyMask { int key_mask[]; };
layout(binding = 4) readonly buffer MaskBits { uint mask_bits[]; };
layout(binding = 5) readonly buffer Pattern { uint pattern[]; };
layout(binding = 6) readonly buffer Slopes { float slopes_of_heads[]; };  // [H]
layout(binding = 7) readonly buffer Bias { T bias[]; };                   // [1 or B, 1 or H, N, M]

layout(push_constant) uniform Push {
  uint skip_query, skip_key, skip_value, skip_key_mask, skip_mask, skip_pattern, skip_slopes, skip_bias;
#if defined(FORWARD)
  uint skip_out, skip_row_sums;
#elif defined(COLUMNS_ARE_QUERIES)
  uint skip_grad, skip_statistics, skip_dkey, skip_dvalue;
#elif defined(OF_BIAS)
  uint skip_grad, skip_statistics, skip_dbias;
#else
  uint skip_grad, skip_statistics, skip_dquery;
#endif
  uint queries, keys, heads;
  uint first_head;  // b heads + h of the first workgroup; not 0 if the launch is a part of the call
  uint first_tile;
  float scale;
  uint seed_low, seed_high, step, op;  // of dropout
  uint query_row, query_head, key_row, key_head, value_row, value_head;
#ifndef FORWARD
  uint grad_row, grad_head;
#endif
#ifdef OF_BIAS
  uint batches_in_turn, heads_in_turn, column_tiles;
#endif
};

shared int column_index[TILE_COLUMNS];  // the query or key of a column; -1: none
shared int column_mask[TILE_COLUMNS];   // the number of the pattern's mask for the column; -1: none

uint lane_x() { return invocation() % LANES; }
uint lane_y() { return invocation() / LANES; }

// --- where things are
// Batch entry and head: local ones count within the launch, the others within the whole call.
#ifdef OF_BIAS  // a workgroup takes several heads, one after another
uint walked_batch, walked_head;
uint local_batch() { return walked_batch; }
uint local_head() { return walked_head; }
#else
uint local_batch() { return gl_WorkGroupID.z; }
uint local_head() { return gl_WorkGroupID.y; }
#endif
uint batch() { return first_head / heads + local_batch(); }
uint head() { return first_head % heads + local_head(); }

// The first element of this head in operand `operand` with `rows` rows.
uint head_offset(uint operand, uint rows, uint row_stride, uint head_stride) {
  const bool outside = ((HEADS_OUTSIDE >> operand) & 1u) != 0u;
  return local_batch() * (outside ? heads * head_stride : rows * row_stride) + local_head() * head_stride;
}

// The first element of this head in a result, which has no gaps, and the stride of its rows.
uint result_offset(uint operand, uint rows, uint width) {
  const bool outside = ((HEADS_OUTSIDE >> operand) & 1u) != 0u;
  return local_batch() * heads * rows * width + local_head() * (outside ? rows : 1u) * width;
}
uint result_row(uint operand, uint width) {
  return ((HEADS_OUTSIDE >> operand) & 1u) != 0u ? width : heads * width;
}

#ifdef COLUMNS_ARE_QUERIES
#define ROW_COUNT keys
#define COLUMN_COUNT queries
const uint LISTS = 3u;  // from this word on the pattern's header says where its transposed lists begin
#else
#define ROW_COUNT queries
#define COLUMN_COUNT keys
const uint LISTS = 0u;
#endif

struct Rows {
  uint begin, end;
  uint first;  // the launch's first row, where the operands begin
  uint band;   // the pattern's row of blocks
};

uint first_row_of(uint tile_index) {
  if (!HAS_PATTERN) return tile_index * TILE_ROWS;
  const uint tiles = (BLOCK + TILE_ROWS - 1u) / TILE_ROWS;
  return tile_index / tiles * BLOCK + tile_index % tiles * TILE_ROWS;
}

Rows rows_of_tile(uint tile_index) {
  Rows rows;
  rows.begin = min(first_row_of(tile_index), ROW_COUNT);
  rows.end = min(rows.begin + TILE_ROWS, ROW_COUNT);
  rows.first = first_row_of(first_tile);
  rows.band = 0u;
  if (HAS_PATTERN) {
    rows.band = tile_index / ((BLOCK + TILE_ROWS - 1u) / TILE_ROWS);
    rows.end = min(rows.end, (rows.band + 1u) * BLOCK);
  }
  return rows;
}

// The columns that the rows see, numbered consecutively: with a pattern, through the blocks of the band, one
// after another.
struct Columns {
  uint begin, end;
  uint entry;  // the pattern's first block
};

uint list(uint which, uint at) { return pattern[skip_pattern + pattern[skip_pattern + LISTS + which] + at]; }

Columns columns_of(Rows rows) {
  Columns columns;
  columns.begin = 0u;
  columns.end = COLUMN_COUNT;
  columns.entry = 0u;
  if (HAS_PATTERN) {
    const uint bands = (ROW_COUNT + BLOCK - 1u) / BLOCK;
    const uint band = (PATTERN_PER_HEAD ? head() * bands : 0u) + rows.band;
    columns.entry = list(0u, band);
    columns.end = (list(0u, band + 1u) - columns.entry) * BLOCK;
  } else if (CAUSAL) {
#ifdef COLUMNS_ARE_QUERIES
    // Query i sees key j when i >= j - (M - N).
    columns.begin = uint(max(int(rows.begin) - int(keys) + int(queries), 0)) / TILE_COLUMNS * TILE_COLUMNS;
#else
    columns.end = uint(clamp(int(rows.end) + int(keys) - int(queries), 0, int(keys)));
#endif
  }
  return columns;
}

// The query or key with number `at` among the columns; it may lie beyond the last one.
uint index_of(Columns columns, uint at) {
  if (!HAS_PATTERN) return at;
  return list(1u, columns.entry + at / BLOCK) * BLOCK + at % BLOCK;
}

// Whether the causal mask removes the whole tile of columns that begins at `at`.
bool all_in_the_future(Rows rows, Columns columns, uint at) {
  if (!CAUSAL || !HAS_PATTERN) return false;
#ifdef COLUMNS_ARE_QUERIES
  const uint last = index_of(columns, min(at + TILE_COLUMNS, columns.end) - 1u);
  return int(last) < int(rows.begin) - int(keys) + int(queries);
#else
  return int(index_of(columns, at)) >= int(rows.end) + int(keys) - int(queries);
#endif
}

bool key_is_real(uint j) {
  return !HAS_KEY_MASK || key_mask[skip_key_mask + local_batch() * keys + j] != 0;
}

// The query or key of a column, numbered as in Columns; -1 if there is none or if the key is padding.
int named_column(Columns columns, uint at) {
  if (at >= columns.end) return -1;
  const uint found = index_of(columns, at);
  if (found >= COLUMN_COUNT) return -1;
#ifndef COLUMNS_ARE_QUERIES
  if (!key_is_real(found)) return -1;
#endif
  return int(found);
}

// Fills column_index and column_mask for the tile of columns that begins at `at`.
void name_columns(Columns columns, uint at) {
  for (uint c = invocation(); c < TILE_COLUMNS; c += THREADS) {
    column_index[c] = named_column(columns, at + c);
    column_mask[c] = HAS_PATTERN && at + c < columns.end ? int(list(2u, columns.entry + (at + c) / BLOCK)) : -1;
  }
}

// --- which entries exist
bool mask_allows(uint i, uint j) {
  uint at = MASK_HAS_BATCH ? batch() : 0u;
  if (MASK_HAS_HEADS) at = at * heads + head();
  if (MASK_HAS_QUERIES) at = at * queries + i;
  const uint k = MASK_HAS_KEYS ? j : 0u;
  at = at * (MASK_HAS_KEYS ? (keys + 31u) / 32u : 1u) + k / 32u;
  return ((mask_bits[skip_mask + at] >> (k % 32u)) & 1u) != 0u;
}

bool block_allows(int mask, uint i, uint j) {
  if (mask < 0) return true;
  const uint bit = (uint(mask) * BLOCK + i % BLOCK) * BLOCK + j % BLOCK;
  return ((pattern[skip_pattern + pattern[skip_pattern + 6u] + bit / 32u] >> (bit % 32u)) & 1u) != 0u;
}

// The entries of `bits` that the pattern and the mask allow.
uint unmasked_entries(uint bits, uint first_row) {
  [[dont_unroll]] for (uint n = 0u; n < 16u; ++n) {
    if (((bits >> n) & 1u) == 0u) continue;
    const uint row = first_row + n / 4u, column = 4u * lane_x() + n % 4u;
    const uint index = uint(column_index[column]);
#ifdef COLUMNS_ARE_QUERIES
    const uint i = index, j = row;
#else
    const uint i = row, j = index;
#endif
    bool exists = true;
    if (HAS_PATTERN) exists = block_allows(column_mask[column], i, j);
    if (HAS_MASK) exists = exists && mask_allows(i, j);
    if (!exists) bits &= ~(1u << n);
  }
  return bits;
}

// Bit 4 r + c: whether the entry in row r and column c of this invocation exists.
uint existing_entries(Rows rows) {
  uint bits = 0u;
  const uint first_row = rows.begin + 4u * lane_y();
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    const uint row = first_row + r;
    if (row >= rows.end) continue;
#ifdef COLUMNS_ARE_QUERIES
    if (!key_is_real(row)) continue;
#endif
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const int index = column_index[4u * lane_x() + c];
#ifdef COLUMNS_ARE_QUERIES
      const int i = index, j = int(row);
#else
      const int i = int(row), j = index;
#endif
      if (index >= 0 && (!CAUSAL || j <= i + int(keys) - int(queries))) bits |= 1u << (4u * r + c);
    }
  }
  return HAS_PATTERN || HAS_MASK ? unmasked_entries(bits, first_row) : bits;
}

// --- terms added to the scores
// The index of the entry of query i and key j in a bias, or its gradient, that begins at query `first`.
uint bias_at(uint i, uint j, uint first) {
  uint matrix = BIAS_HAS_BATCH ? local_batch() : 0u;
  if (BIAS_HAS_HEADS) matrix = matrix * heads + local_head();
  return (matrix * queries + i - first) * keys + j;
}

// The logit of row r and column c of this invocation, from the product of query and key. `precise`, as the
// products are: every pass must see the same bits, or large logits would give backward different weights from
// forward.
float logit(Rows rows, uint r, uint c, float product) {
  precise float x = scale * product;
  if (!HAS_SLOPES && !HAS_BIAS) return x;
  const uint row = rows.begin + 4u * lane_y() + r;
  const int index = column_index[4u * lane_x() + c];
  if (row >= rows.end || index < 0) return x;
#ifdef COLUMNS_ARE_QUERIES
  const uint i = uint(index), j = row, first = 0u;
#else
  const uint i = row, j = uint(index), first = rows.first;
#endif
  if (HAS_SLOPES)
    x -= slopes_of_heads[skip_slopes + head()] * float(abs(int(i) + int(keys) - int(queries) - int(j)));
  if (HAS_BIAS) x += to_float(bias[skip_bias + bias_at(i, j, first)]);
  return x;
}

// 64-bit numbers as (low word, high word).
uvec2 multiply_wide(uint a, uint b) {
  uvec2 x;
  umulExtended(a, b, x.y, x.x);
  return x;
}
uvec2 add_wide(uvec2 a, uint b) {
  uint carry;
  const uint low = uaddCarry(a.x, b, carry);
  return uvec2(low, a.y + carry);
}

// Bit 4 r + c: whether dropout keeps the weight of row r and column c. The random stream is indexed by the
// element ((b H + h) N + i) M + j; four elements share a Philox block, so neighbouring keys are drawn
// together.
uint kept_entries(Rows rows) {
  if (DROPPED == 0u) return 0xffffu;
  uint bits = 0u;
  uvec2 drawn = uvec2(0xffffffffu);  // the block that `words` holds, which no element reaches
  uvec4 words = uvec4(0u);
  const uint row_of_heads = batch() * heads + head();
  [[dont_unroll]] for (uint n = 0u; n < 16u; ++n) {
#ifdef COLUMNS_ARE_QUERIES
    const uint r = n % 4u, c = n / 4u;
    const int i = column_index[4u * lane_x() + c], j = int(rows.begin + 4u * lane_y() + r);
#else
    const uint r = n / 4u, c = n % 4u;
    const int i = int(rows.begin + 4u * lane_y() + r), j = column_index[4u * lane_x() + c];
#endif
    if (i < 0 || j < 0) continue;
    const uvec2 line = add_wide(multiply_wide(row_of_heads, queries), uint(i));
    uvec2 element = multiply_wide(line.x, keys);
    element.y += line.y * keys;
    element = add_wide(element, uint(j));
    const uvec2 block = uvec2((element.x >> 2) | (element.y << 30), element.y >> 2);
    if (block != drawn) {
      words = philox(RandomKey(seed_low, seed_high, step, op), block.x, block.y);
      drawn = block;
    }
    if ((words[element.x & 3u] >> 8) >= DROPPED) bits |= 1u << (4u * r + c);
  }
  return bits;
}

bool bit_of(uint bits, uint r, uint c) { return ((bits >> (4u * r + c)) & 1u) != 0u; }

// exp(x), and exactly 0 at -infinity.
float weight(float x) { return x == -INFINITY ? 0.0 : exp(x); }
