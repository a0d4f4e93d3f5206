#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant uniform
//! variant normal NORMAL=1
//! variant dropout DROPOUT=1
// A stream of random numbers laid over a contiguous tensor. Each invocation draws one block of four words.
// The words pass through shared memory, so that neighbouring invocations write neighbouring elements.
#include "common.glsl"
#if defined(DROPOUT)
#define BINDINGS 3
#define PARAMETERS uint first_kept; float scale;
#elif defined(NORMAL)
#define BINDINGS 1
#define PARAMETERS float mean, deviation;
#else
#define BINDINGS 1
#define PARAMETERS float low, width, last;
#endif

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
  uint skips[BINDINGS];
  uint count;
  uint first_block_low, first_block_high;  // the block of element 0
  uint seed_low, seed_high, step, op;
  PARAMETERS
};

shared uvec4 blocks[gl_WorkGroupSize.x];

// Draws the block of this invocation.
uvec4 draw() {
  uint block = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  uint carry;
  uint low = uaddCarry(first_block_low, block, carry);
  return philox(RandomKey(seed_low, seed_high, step, op), low, first_block_high + carry);
}

// Shares the blocks (or four numbers made from each) within the workgroup.
void share(uvec4 block) {
  blocks[gl_LocalInvocationIndex] = block;
  barrier();
}

#define EACH_ITEM(k) [[unroll]] for (uint k = 0; k < 4; ++k)
// The k-th element of this invocation and its shared word.
uint item(uint k) { return (group_index() * 4 + k) * gl_WorkGroupSize.x + gl_LocalInvocationIndex; }
uint word_of_item(uint k) {
  uint within = k * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  return blocks[within / 4][within % 4];
}

layout(binding = 0) writeonly buffer Out { T out_[]; };

#if defined(DROPOUT)

// out = residual + x keep / (1 - p), keep = unit_interval(word) >= p, which is (word >> 8) >= ceil(2^24 p).
layout(constant_id = 1) const bool HAS_RESIDUAL = false;
layout(binding = 1) readonly buffer X { T x_[]; };
layout(binding = 2) readonly buffer Residual { T residual_[]; };

void main() {
  share(draw());
  float y[4];
  EACH_ITEM(k) {
    uint at = min(item(k), count - 1);
    float kept = (word_of_item(k) >> 8) >= first_kept ? to_float(x_[skips[1] + at]) : 0.0;
    y[k] = HAS_RESIDUAL ? fma(kept, scale, to_float(residual_[skips[2] + at])) : kept * scale;
  }
  EACH_ITEM(k) if (item(k) < count) out_[skips[0] + item(k)] = from_float(y[k]);
}

#elif defined(NORMAL)

#include "math.glsl"

// Box and Muller (1958): the pair (u, v) gives r cos(2 pi v) and r sin(2 pi v) with r = sqrt(-2 log(1 - u)).
vec2 box_muller(uint u, uint v) {
  float radius = sqrt(max(-2.0 * exact_log(1.0 - unit_interval(u)), 0.0));
  float quarters = 4.0 * unit_interval(v);
  float nearest = floor(quarters + 0.5);
  float r = (quarters - nearest) * 1.5707963267948966;
  uint quadrant = uint(nearest);
  return radius * vec2(sin_of_reduced(quadrant + 1, r), sin_of_reduced(quadrant, r));
}

void main() {
  uvec4 words = draw();
  share(floatBitsToUint(vec4(box_muller(words.x, words.y), box_muller(words.z, words.w))));
  EACH_ITEM(k) if (item(k) < count) {
    out_[skips[0] + item(k)] = from_float(mean + deviation * uintBitsToFloat(word_of_item(k)));
  }
}

#else

void main() {
  share(draw());
  EACH_ITEM(k) if (item(k) < count) {
    out_[skips[0] + item(k)] = from_float(min(fma(unit_interval(word_of_item(k)), width, low), last));
  }
}

#endif
