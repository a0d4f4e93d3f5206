// `lanes` threads work on a row, and a workgroup (its size is constant 0) on as many rows as it has room for;
// both sizes are powers of two. Sums and maxima over the lanes of a row are trees whose order depends on
// `lanes` alone: the modules that exchange values within subgroups (SUBGROUPS) use the same order and give
// the same bits.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint lanes = 256;

shared float partial[gl_WorkGroupSize.x];

#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
layout(constant_id = 12) const uint subgroup = 32;  // its threads, a power of two; workgroups hold whole ones
uint thread() { return gl_SubgroupID * subgroup + gl_SubgroupInvocationID; }
#else
uint thread() { return gl_LocalInvocationID.x; }
#endif

uint lane() { return thread() & (lanes - 1); }
// The row of this thread, counted over the whole launch.
uint row_index() { return group_index() * (gl_WorkGroupSize.x / lanes) + thread() / lanes; }

// The tree: its steps combine values that are 1, 2, 4, ... lanes apart.
#ifdef SUBGROUPS
#define HEED_OVER_LANES(name, combine)                                                       \
  float name(float value) {                                                                  \
    [[unroll]] for (uint step = 1; step < min(lanes, subgroup); step <<= 1)                  \
      value = combine(value, subgroupShuffleXor(value, step));                               \
    if (lanes > subgroup) {                                                                  \
      const uint of_row = lanes / subgroup; /* subgroups of a row, at most `subgroup`  */    \
      barrier();                            /* all have read the last results */             \
      if (gl_SubgroupInvocationID == 0) partial[gl_SubgroupID] = value;                      \
      barrier();                                                                             \
      value = partial[gl_SubgroupID / of_row * of_row + gl_SubgroupInvocationID % of_row];   \
      [[unroll]] for (uint step = 1; step < of_row; step <<= 1)                              \
        value = combine(value, subgroupShuffleXor(value, step));                             \
    }                                                                                        \
    return value;                                                                            \
  }
#else
#define HEED_OVER_LANES(name, combine)                                                                     \
  float name(float value) {                                                                                \
    const uint t = thread();                                                                               \
    barrier(); /* all have read the last result */                                                         \
    partial[t] = value;                                                                                    \
    barrier();                                                                                             \
    for (uint step = 1; step < lanes; step <<= 1) {                                                        \
      if ((lane() & (2 * step - 1)) == 0) partial[t] = combine(partial[t], partial[t + step]);             \
      barrier();                                                                                           \
    }                                                                                                      \
    return partial[t - lane()];                                                                            \
  }
#endif
float plus(float a, float b) { return a + b; }
// All threads of a workgroup call these together, including those without a row.
HEED_OVER_LANES(row_sum, plus)
HEED_OVER_LANES(row_max, max)

// A maximum and a sum of exponentials relative to it, built up value by value (arXiv 1805.02867).
struct Exponentials {
  float largest;
  float sum;
};

void add_exponential(inout Exponentials e, float x) {
  if (x > e.largest) {
    e.sum = e.sum * exp(e.largest - x) + (x == INFINITY ? uintBitsToFloat(0x7fc00000u) : 1.0);  // inf - inf
    e.largest = x;
  } else if (x != -INFINITY) {  // a NaN propagates into the sum
    e.sum += exp(x - e.largest);
  }
}

// Over all lanes of a row.
Exponentials row_exponentials(Exponentials own) {
  const float largest = row_max(own.largest);
  const float factor = own.largest == largest ? 1.0 : exp(own.largest - largest);
  return Exponentials(largest, row_sum(own.sum * factor));
}
