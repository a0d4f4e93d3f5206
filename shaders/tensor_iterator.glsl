// Operands of one shape, walked element by element; binding 0 is the output. The includer defines OPERANDS
// (how many bindings) and PARAMETERS (further push constants); backends/vulkan/elementwise.cpp pushes the
// rest. Axes are numbered from the innermost.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint AXES = 1;
// There is one axis, along which every operand has no gaps and begins at a multiple of four, or repeats one
// element.
layout(constant_id = 4) const bool IN_FOURS = false;
const uint MAX_AXES = 4;
const uint ITEMS = 4;  // elements per invocation, a workgroup apart: neighbours in memory are read together

layout(push_constant) uniform Push {
  uint skips[OPERANDS];
  uint count;                      // elements, below 2^31
  uint extents[MAX_AXES - 1];      // of all axes but the last
  uint multipliers[MAX_AXES - 1];  // n / extent = high word of n * multiplier, shifted right
  uint shifts[MAX_AXES - 1];
  uint strides[OPERANDS * MAX_AXES];
  PARAMETERS
};

#define EACH_ITEM(k) [[unroll]] for (uint k = 0; k < ITEMS; ++k)

// The k-th element of this invocation; those at or beyond `count` must not be written.
uint item(uint k) { return (group_index() * ITEMS + k) * gl_WorkGroupSize.x + gl_LocalInvocationIndex; }

#if !defined(TYPE_i32)
#include "fours.glsl"
// IN_FOURS: an invocation takes the four elements from four_item() on.
uint four_item() { return 4 * (group_index() * gl_WorkGroupSize.x + gl_LocalInvocationIndex); }
#define operand_four(elements, fours, k, i) \
  (strides[(k) * MAX_AXES] == 0 ? vec4(to_float(elements[skips[k]])) : load_four(elements, fours, true, skips[k] + i, count - i))
#define store_result(elements, fours, i, value) store_four(elements, fours, true, skips[0] + i, count - i, value)
#endif

uint divide_by_extent(uint n, uint axis) {
  uint high, low;
  umulExtended(n, multipliers[axis], high, low);
  return high >> shifts[axis];
}

// The index of element i in each operand; that of the last element if i is beyond the end.
uint[OPERANDS] locate(uint i) {
  uint at[OPERANDS] = skips;
  uint rest = min(i, count - 1);
  [[unroll]] for (uint axis = 0; axis + 1 < AXES; ++axis) {
    uint quotient = divide_by_extent(rest, axis);
    uint position = rest - quotient * extents[axis];
    [[unroll]] for (uint k = 0; k < OPERANDS; ++k) at[k] += position * strides[k * MAX_AXES + axis];
    rest = quotient;
  }
  [[unroll]] for (uint k = 0; k < OPERANDS; ++k) at[k] += rest * strides[k * MAX_AXES + AXES - 1];
  return at;
}
