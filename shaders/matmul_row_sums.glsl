// The sums of the rows of a over one part of k. The workgroups of the first column of tiles add them up,
// since their tiles hold those rows anyway. Needs row_sums, [parts, m], and a_value(stage, row, l), an
// element of the tile.
const bool with_row_sums = (FLAGS & row_sums_bit) != 0;
const uint rows_each = (BM + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
float own_row_sums[rows_each];

void clear_row_sums() {
  if (with_row_sums) {
    for (uint i = 0; i < rows_each; ++i) own_row_sums[i] = 0;
  }
}

void add_row_sums(uint stage, Place place) {
  if (!with_row_sums || place.column != 0) return;
  for (uint i = 0; i < rows_each; ++i) {
    const uint row = i * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (row < BM)
      for (uint l = 0; l < BK; ++l) own_row_sums[i] += a_value(stage, row, l);
  }
}

void write_row_sums(Place place) {
  if (!with_row_sums || place.column != 0) return;
  for (uint i = 0; i < rows_each; ++i) {
    const uint row = i * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (row < BM && place.row + row < m)
      row_sums[row_sums_skip + place.part * m + place.row + row] = float_to_out(own_row_sums[i]);
  }
}
