#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
//! variant reduce
//! variant reduce_partial RESULT_IS_WIDE=1
//! variant reduce_final INPUT_IS_WIDE=1
// out[outer, chunks, inner]: the sum, maximum or minimum over each chunk. Partial results are stored as float
// or int, whatever the element type: reduce_partial writes them, reduce_final reads them.
#include "common.glsl"
#define BINDINGS 2
#define PARAMETERS
#include "fold.glsl"

layout(constant_id = 3) const uint OP = 0;  // as in enum ReduceOp
const uint SUM = 0, MAX = 1;

#if defined(INPUT_IS_WIDE)
layout(binding = 1) readonly buffer X { V x_[]; };
#define load(i) x_[i]
#else
layout(binding = 1) readonly buffer X { T x_[]; };
#define load(i) to_value(x_[i])
#endif
#if defined(RESULT_IS_WIDE)
layout(binding = 0) writeonly buffer Out { V out_[]; };
#define store(i, value) out_[i] = value
#else
layout(binding = 0) writeonly buffer Out { T out_[]; };
#define store(i, value) out_[i] = from_value(value)
#endif

shared V values[gl_WorkGroupSize.x];

V nothing() { return OP == SUM ? V(0) : OP == MAX ? LOWEST : HIGHEST; }
V combine(V a, V b) { return OP == SUM ? a + b : OP == MAX ? larger(a, b) : smaller(a, b); }

void main() {
  Place here = place();
  uint start = skips[1] + column_start(here);
  // Four results at a time: the loads do not wait for each other, and the chain of roundings is shorter.
  V part[4] = V[](nothing(), nothing(), nothing(), nothing());
  for (uint row = here.first + here.row_lane; row < here.last; row += 4 * HEIGHT) {
    [[unroll]] for (uint k = 0; k < 4; ++k) {
      uint at = row + k * HEIGHT;
      if (at < here.last) part[k] = combine(part[k], load(start + at * inner));
    }
  }
  V result = combine(combine(part[0], part[1]), combine(part[2], part[3]));

  uint lane = gl_LocalInvocationIndex;
  for (uint half_height = HEIGHT / 2; half_height > 0; half_height /= 2) {
    values[lane] = result;
    barrier();
    if (here.row_lane < half_height) result = combine(result, values[lane + half_height * WIDTH]);
    barrier();
  }
  if (here.row_lane == 0 && is_inside(here)) store(skips[0] + result_at(here), result);
}
