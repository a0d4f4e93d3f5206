#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
// The row of the largest element of each chunk; on ties the lowest row, and NaN counts as the largest. The
// elements may themselves be the results of chunks, given with the rows that they came from (HAS_ROWS).
#include "common.glsl"
#define BINDINGS 4
#define PARAMETERS uint first_row;
#include "fold.glsl"

layout(constant_id = 3) const bool HAS_ROWS = false;     // the rows of the elements are given
layout(constant_id = 4) const bool GIVES_VALUES = false;  // the largest elements are wanted too

layout(binding = 0) writeonly buffer OutRows { int out_rows_[]; };
layout(binding = 1) writeonly buffer OutValues { T out_values_[]; };
layout(binding = 2) readonly buffer X { T x_[]; };
layout(binding = 3) readonly buffer Rows { int rows_[]; };

const uint NONE = 0xffffffffu;

shared V values[gl_WorkGroupSize.x];
shared uint rows[gl_WorkGroupSize.x];

bool beats(V value, uint row, V best, uint best_row) {
  if (is_nan(value) != is_nan(best)) return is_nan(value);
  return is_nan(value) || value == best ? row < best_row : value > best;
}

void main() {
  Place here = place();
  uint start = column_start(here);
  V best = LOWEST;
  uint best_row = NONE;
  for (uint row = here.first + here.row_lane; row < here.last; row += HEIGHT) {
    uint at = start + row * inner;
    V value = to_value(x_[skips[2] + at]);
    uint came_from = HAS_ROWS ? uint(rows_[skips[3] + at]) : first_row + row;
    if (beats(value, came_from, best, best_row)) {
      best = value;
      best_row = came_from;
    }
  }

  uint lane = gl_LocalInvocationIndex;
  for (uint half_height = HEIGHT / 2; half_height > 0; half_height /= 2) {
    values[lane] = best;
    rows[lane] = best_row;
    barrier();
    uint other = lane + half_height * WIDTH;
    if (here.row_lane < half_height && beats(values[other], rows[other], best, best_row)) {
      best = values[other];
      best_row = rows[other];
    }
    barrier();
  }
  if (here.row_lane != 0 || !is_inside(here)) return;
  out_rows_[skips[0] + result_at(here)] = int(best_row);
  if (GIVES_VALUES) out_values_[skips[1] + result_at(here)] = from_value(best);
}
