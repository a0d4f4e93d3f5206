// The workgroups that cover [outer, n, inner] in a computation along n: WIDTH invocations along
// inner, HEIGHT along n, and the rest over series. A series is one chunk (a piece of n) of one
// outer index. backends/vulkan/reduce.cpp launches them. The includer defines BINDINGS and
// PARAMETERS (further push constants).
#include "math.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WIDTH = 1;
layout(constant_id = 2) const uint HEIGHT = 1;

layout(push_constant) uniform Push {
  uint skips[BINDINGS];
  uint outer, n, inner;
  uint chunk;   // rows in a chunk; the last may have fewer
  uint chunks;  // per outer index
  PARAMETERS
};

#if defined(TYPE_i32)
#define LOWEST int(0x80000000u)
#define HIGHEST 0x7fffffff
#else
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#endif

// The part of an invocation.
struct Place {
  uint row_lane;     // in [0, HEIGHT)
  uint outer_index;
  uint chunk_index;
  uint column;
  uint first, last;  // the chunk's rows from first to below last; none beyond the tensor
};

Place place() {
  uint tiles = (inner + WIDTH - 1) / WIDTH;
  uint series_of_group = gl_WorkGroupSize.x / (WIDTH * HEIGHT);
  uint group = group_index();
  uint series = group / tiles * series_of_group + gl_LocalInvocationIndex / (WIDTH * HEIGHT);
  Place here;
  here.row_lane = gl_LocalInvocationIndex / WIDTH % HEIGHT;
  here.column = group % tiles * WIDTH + gl_LocalInvocationIndex % WIDTH;
  here.outer_index = series / chunks;
  here.chunk_index = series % chunks;
  here.first = here.chunk_index * chunk;
  here.last = min(here.first + chunk, n);
  if (here.column >= inner || here.outer_index >= outer) here.last = here.first;
  return here;
}

bool is_inside(Place here) { return here.column < inner && here.outer_index < outer; }
// The index of element (0, column) of its [n, inner].
uint column_start(Place here) { return here.outer_index * n * inner + here.column; }
// The index of its result in [outer, chunks, inner].
uint result_at(Place here) { return (here.outer_index * chunks + here.chunk_index) * inner + here.column; }
