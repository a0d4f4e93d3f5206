// The gradient of attention's bias: ds as in that of the queries, summed over the heads and batch entries
// that share an entry of the bias. A workgroup takes one tile of the N x M matrix through all of them, one
// after another, so that each sum has a fixed order, and adds to what earlier launches left.
//
// add_head(rows, columns, at, sums) adds ds of the walked head to the sums, after name_columns().

layout(binding = 10) buffer DBias { float dbias[]; };

// The index in dbias of row r and column c, or -1 beyond the tile or the keys; entries of padding have one
// too.
int place(Rows rows, Columns columns, uint at, uint r, uint c) {
  const uint row = rows.begin + 4u * lane_y() + r, column = at + 4u * lane_x() + c;
  if (row >= rows.end || column >= columns.end) return -1;
  const uint j = index_of(columns, column);
  return j < keys ? int(skip_dbias + bias_at(row, j, rows.first)) : -1;
}

void main() {
  walked_batch = gl_WorkGroupID.z;
  walked_head = gl_WorkGroupID.y;
  const Rows rows = rows_of_tile(first_tile + gl_WorkGroupID.x / column_tiles);
  if (rows.begin >= rows.end) return;
  const Columns columns = columns_of(rows);  // the same for all heads of a launch
  const uint at = gl_WorkGroupID.x % column_tiles * TILE_COLUMNS;
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
      add_head(rows, columns, at, sums);
    }
  }
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const int to = place(rows, columns, at, r, c);
      if (to >= 0) dbias[to] = sums[r][c];
    }
  }
}
