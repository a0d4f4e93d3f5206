// Lists of contiguous tensors, walked together by one dispatch; entry i is the i-th tensor of every list. A
// workgroup takes a piece of one entry. All tensors of a list lie in one binding; a table says where.
// backends/vulkan/optimizers.cpp makes the table and the bindings. The includer defines LISTS, how many there
// are.
#include "fours.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PIECE = 4096;  // elements, a multiple of four

// For each entry: its first workgroup; its elements; the number of its first piece among those of all
// entries; where it begins in each list.
layout(binding = 0) readonly buffer Table { uint table[]; };
const uint table_words = 3 + LISTS;

struct Piece {
  uint at[LISTS];   // where the entry begins
  uint begin, end;  // elements of the entry
  uint number;      // among the pieces of all entries
  bool in_fours;    // every list may be read four elements at once
};

Piece piece_of(uint group, uint skip_table, uint entries) {
  uint entry = 0;
  for (uint beyond = entries; beyond - entry > 1;) {
    const uint middle = (entry + beyond) / 2;
    if (table[skip_table + middle * table_words] <= group) {
      entry = middle;
    } else {
      beyond = middle;
    }
  }
  const uint words = skip_table + entry * table_words;
  const uint within = group - table[words];
  Piece piece;
  piece.begin = within * PIECE;
  piece.end = min(piece.begin + PIECE, table[words + 1]);
  piece.number = table[words + 2] + within;
  piece.in_fours = true;
  [[unroll]] for (uint list = 0; list < LISTS; ++list) {
    piece.at[list] = table[words + 3 + list];
    if (piece.at[list] % 4 != 0) piece.in_fours = false;
  }
  return piece;
}

// Visits the fours of a piece: the four neighbouring elements from i on, of which the last may lie beyond the
// piece.
#define EACH_FOUR(piece, i) \
  for (uint i = piece.begin + 4 * gl_LocalInvocationIndex; i < piece.end; i += 4 * gl_WorkGroupSize.x)
