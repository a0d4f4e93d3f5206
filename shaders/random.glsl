// A stream of random numbers laid over a contiguous tensor. Each invocation draws one block of four words.
// The words pass through shared memory, so that neighbouring invocations write neighbouring elements. The
// includer defines BINDINGS and PARAMETERS (further push constants); backends/vulkan/random.cpp pushes the
// rest.
#include "philox.glsl"

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
