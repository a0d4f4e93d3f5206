// Attention's products on matrix hardware: cooperative matrices or, with EMULATED, the same in ordinary
// arithmetic on shared memory, which runs anywhere and tests the code built on them.
//
// A subgroup owns FRAGMENT_ROWS rows of its workgroup's tile. A fragment of the left factor is FRAGMENT_ROWS
// x DEPTH, one of the right factor DEPTH x COLUMNS, with the device's sizes (8 or 16 each). Only the driver
// knows which element a lane holds, so scores pass through shared memory to where invocation (lane_x, lane_y)
// expects them. Everything shared lies in `memory`, in lines of eights: eight halves or four floats. Widths
// are multiples of eight, and the lines of operands begin at multiples of eight.
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
