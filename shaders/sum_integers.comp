#version 460
#extension GL_GOOGLE_include_directive : require
//! types i32
// The sum of each chunk in 64 bits: a low word, and a high one (GIVES_HIGH) where it is to be added up further.
// The elements may themselves be such sums (HAS_HIGH). A last sum that does not fit 32 bits is an error.
#include "common.glsl"
#define BINDINGS 5
#define PARAMETERS uint first_result;
#include "fold.glsl"

layout(constant_id = 3) const bool HAS_HIGH = false;
layout(constant_id = 4) const bool GIVES_HIGH = false;

layout(binding = 0) writeonly buffer Out { int out_[]; };
layout(binding = 1) writeonly buffer OutHigh { int out_high_[]; };
layout(binding = 2) readonly buffer X { int x_[]; };
layout(binding = 3) readonly buffer High { int high_[]; };
layout(binding = 4) buffer DeviceErrors { uint errors[]; };

struct Sum {
  uint low;
  int high;
};

shared Sum sums[gl_WorkGroupSize.x];

Sum plus(Sum a, Sum b) {
  uint carry;
  uint low = uaddCarry(a.low, b.low, carry);
  return Sum(low, a.high + b.high + int(carry));
}

void main() {
  Place here = place();
  uint start = column_start(here);
  Sum sum = Sum(0, 0);
  for (uint row = here.first + here.row_lane; row < here.last; row += HEIGHT) {
    uint at = start + row * inner;
    int low = x_[skips[2] + at];
    sum = plus(sum, Sum(uint(low), HAS_HIGH ? high_[skips[3] + at] : low >> 31));
  }

  uint lane = gl_LocalInvocationIndex;
  for (uint half_height = HEIGHT / 2; half_height > 0; half_height /= 2) {
    sums[lane] = sum;
    barrier();
    if (here.row_lane < half_height) sum = plus(sum, sums[lane + half_height * WIDTH]);
    barrier();
  }
  if (here.row_lane != 0 || !is_inside(here)) return;
  uint at = result_at(here);
  out_[skips[0] + at] = int(sum.low);
  if (GIVES_HIGH) {
    out_high_[skips[1] + at] = sum.high;
  } else if (sum.high != int(sum.low) >> 31) {
    atomicMin(errors[skips[4]], first_result + at);
  }
}
