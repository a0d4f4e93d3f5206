// `lanes` threads work on a row, a workgroup (constant 0) on as many rows as it has room for; both are powers of two.
// Sums and maxima over the lanes of a row are trees whose order depends on `lanes` alone.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint lanes = 256;

shared float partial[gl_WorkGroupSize.x];

uint lane() { return gl_LocalInvocationID.x & (lanes - 1); }
// The row of this thread, counted over the whole launch.
uint row_index() { return group_index() * (gl_WorkGroupSize.x / lanes) + gl_LocalInvocationID.x / lanes; }

// All threads of a workgroup call these together, those without a row too.
float row_sum(float value) {
  const uint t = gl_LocalInvocationID.x;
  barrier();  // everybody has read the last result
  partial[t] = value;
  barrier();
  for (uint step = lanes / 2; step > 0; step >>= 1) {
    if (lane() < step) partial[t] += partial[t + step];
    barrier();
  }
  return partial[t - lane()];
}

float row_max(float value) {
  const uint t = gl_LocalInvocationID.x;
  barrier();
  partial[t] = value;
  barrier();
  for (uint step = lanes / 2; step > 0; step >>= 1) {
    if (lane() < step) partial[t] = max(partial[t], partial[t + step]);
    barrier();
  }
  return partial[t - lane()];
}

// A maximum and a sum of exponentials relative to it, built up value by value (arXiv 1805.02867).
struct Exponentials {
  float largest;
  float sum;
};

void add_exponential(inout Exponentials e, float x) {
  if (x > e.largest) {
    e.sum = e.sum * exp(e.largest - x) + 1.0;
    e.largest = x;
  } else if (x != -INFINITY) {  // a NaN arrives in the sum
    e.sum += exp(x - e.largest);
  }
}

// Over all lanes of a row.
Exponentials row_exponentials(Exponentials own) {
  const float largest = row_max(own.largest);
  const float factor = own.largest == largest ? 1.0 : exp(own.largest - largest);
  return Exponentials(largest, row_sum(own.sum * factor));
}
