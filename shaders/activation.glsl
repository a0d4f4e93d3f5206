// What becomes of a product's sums before they are written: an activation of them, or the sums times its
// derivative, as unary.comp and unary_backward.comp compute it of what was written.
//
// Needs matmul_elements.glsl; FLAGS, a specialisation constant; buffers of outputs, lying as out does:
// `kept_sums`, which may get the sums, and `saved`, what the derivative is of. Included last: the functions
// of core/elementwise.def are macros from here on.
#include "elementwise.glsl"

// Of FLAGS: whether the sums are kept, whether the derivative is wanted, and which line HEED_ACTIVATION of
// the table is meant, from 1 (0: none).
const uint keeps_sums_bit = 32, derivative_bit = 64, activation_shift = 8;
const uint ACTIVATION = FLAGS >> activation_shift;
const bool keeps_sums = (FLAGS & keeps_sums_bit) != 0, takes_derivative = (FLAGS & derivative_bit) != 0;

float activation(float x) {
  uint line = 1;
#define HEED_ACTIVATION(name, y, saved, dydx, low, high) \
  if (ACTIVATION == line++) give(y)
#include "core/elementwise.def"
  return x;
}

// The expression names the one that was saved.
float activation_derivative(float x, float y) {
  uint line = 1;
#define HEED_ACTIVATION(name, y_of_x, saved, dydx, low, high) \
  if (ACTIVATION == line++) give(dydx)
#include "core/elementwise.def"
  return 0.0;
}

// An output from its sum, rounded first as if it had been written (of f16 drivers may leave that out); `at`:
// its place from the beginning of out.
float activated(float sum, uint at) {
  if (ACTIVATION == 0) return sum;
  const float rounded = out_to_float(float_to_out(sum));
  if (takes_derivative) {
    const float x_or_y = out_to_float(saved[saved_skip + at]);
    return rounded * activation_derivative(x_or_y, x_or_y);
  }
  if (keeps_sums) kept_sums[kept_sums_skip + at] = float_to_out(sum);
  return activation(rounded);
}
