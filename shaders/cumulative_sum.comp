#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
// Running sums along n, or from its end (REVERSE). With HAS_TOTALS the running sums over whole chunks are
// given as float or int [outer, chunks, inner], and every chunk starts from that of the chunk before it.
#include "common.glsl"
#define BINDINGS 3
#define PARAMETERS
#include "fold.glsl"

layout(constant_id = 3) const bool REVERSE = false;
layout(constant_id = 4) const bool HAS_TOTALS = false;

layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 1) readonly buffer X { T x_[]; };
layout(binding = 2) readonly buffer Totals { V totals_[]; };

shared V sums[gl_WorkGroupSize.x];

// The sum of everything before the chunk.
V carried(Place here) {
  bool begins = here.chunk_index == (REVERSE ? chunks - 1 : 0);
  if (!HAS_TOTALS || begins || !is_inside(here)) return V(0);
  uint at = skips[2] + result_at(here);
  return totals_[REVERSE ? at + inner : at - inner];
}

void main() {
  Place here = place();
  uint start = column_start(here), lane = gl_LocalInvocationIndex;
  V carry = carried(here);
  // As many rows at a time as there are invocations along n; all take the same number of steps because of the
  // barriers.
  for (uint done = 0; done < chunk; done += HEIGHT) {
    uint position = here.first + done + here.row_lane;
    bool present = position < here.last;
    uint row = REVERSE ? here.last - 1 - (position - here.first) : position;
    V sum = present ? to_value(x_[skips[1] + start + row * inner]) : V(0);
    // After each round a lane holds the sum of twice as many rows up to its own (Hillis and Steele, 1986).
    for (uint reach = 1; reach < HEIGHT; reach *= 2) {
      sums[lane] = sum;
      barrier();
      if (here.row_lane >= reach) sum += sums[lane - reach * WIDTH];
      barrier();
    }
    sum += carry;
    if (present) out_[skips[0] + start + row * inner] = from_value(sum);
    carry = sum;
    if (HEIGHT > 1) {  // the last lane's sum is the carry of all
      sums[lane] = sum;
      barrier();
      carry = sums[lane + (HEIGHT - 1 - here.row_lane) * WIDTH];
      barrier();
    }
  }
}
