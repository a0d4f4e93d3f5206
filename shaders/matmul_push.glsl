// The push constants and the grid that the tiled matrix products share. Needs FLAGS.
layout(push_constant) uniform Push {
  uint a_skip, b_skip, bias_skip, out_skip, row_sums_skip, kept_sums_skip, saved_skip;
  uint m, n, k;
  uint depth;                               // of one part of k; a multiple of BK if there are several
  uint a_leading, b_leading, out_leading;   // elements between lines
  uint inner;                               // extent of the inner of two batch axes
  uint a_outer, a_inner, b_outer, b_inner, out_outer, out_inner, out_part;  // from item to item, part to part
  uint finish_bits;
  uint map_b[3], map_bias[3], map_out[3];  // where each map's operands begin, see maps_bit
};

// Bits of FLAGS: the operands' layout in memory, whether they are read several elements at a time, and
// whether the rows of a are added up too, which gives a bias' gradient along with a weight's. activation.glsl
// defines more of them. With maps_bit the third dimension of the grid is not a batch but linear maps of the
// same a, each with its own b, bias and out.
const uint a_along_k_bit = 1, b_along_k_bit = 2, a_vectors_bit = 4, b_vectors_bit = 8, row_sums_bit = 16,
           maps_bit = 128;

// A workgroup's tile of the output, and where its operands begin.
struct Place {
  uint row, column;    // the tile's first
  uint a, b, bias, result;   // elements
  uint k_begin, k_end;
  uint part;
};

// Tiles are taken in bands of 8 tile rows, column by column: workgroups that run at about the same time then
// read overlapping data, which stays in the cache.
Place place_of_group(uint tile_rows, uint tile_columns) {
  const uint rows = (m + tile_rows - 1) / tile_rows, columns = (n + tile_columns - 1) / tile_columns;
  const uint band = gl_WorkGroupID.x / (8 * columns), within = gl_WorkGroupID.x % (8 * columns);
  const uint height = min(8, rows - band * 8);
  const uint part = gl_WorkGroupID.y, outer = gl_WorkGroupID.z / inner, item = gl_WorkGroupID.z % inner;
  Place place;
  place.row = (band * 8 + within % height) * tile_rows;
  place.column = within / height * tile_columns;
  place.a = a_skip + outer * a_outer + item * a_inner;
  place.b = b_skip + outer * b_outer + item * b_inner;
  place.bias = bias_skip;
  place.result = out_skip + outer * out_outer + item * out_inner + part * out_part;
  if ((FLAGS & maps_bit) != 0) {
    place.a = a_skip;
    place.b = map_b[gl_WorkGroupID.z];
    place.bias = map_bias[gl_WorkGroupID.z];
    place.result = map_out[gl_WorkGroupID.z];
  }
  place.part = part;
  place.k_begin = part * depth;
  place.k_end = min(k, place.k_begin + depth);
  return place;
}
