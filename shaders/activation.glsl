// The last step of a product before it writes its sums: it applies an activation, or multiplies by
// the derivative of one, as elementwise.comp does to sums that were already written.
//
// Needs matmul_elements.glsl; FLAGS, a specialisation constant; buffers of the output's type, laid out as
// out: `kept_sums`, which may receive the sums, and `saved`, the argument of the derivative. Included last:
// from here on the functions of core/elementwise.def are macros.
#define TABLE_NAMES
#include "math.glsl"

const uint ACTIVATION = FLAGS >> activation_shift;
const bool keeps_sums = (FLAGS & keeps_sums_bit) != 0, takes_derivative = (FLAGS & derivative_bit) != 0;

float activation(float x) {
  uint line = 1;
#define HEED_ACTIVATION(name, y, saved, dydx, low, high) \
  if (ACTIVATION == line++) give(y)
#include "core/elementwise.def"
  return x;
}

// The table's expression uses x or y, whichever was saved; the caller passes it as both.
float activation_derivative(float x, float y) {
  uint line = 1;
#define HEED_ACTIVATION(name, y_of_x, saved, dydx, low, high) \
  if (ACTIVATION == line++) give(dydx)
#include "core/elementwise.def"
  return 0.0;
}

// An output from its sum, which is first rounded as if it had been written (drivers may omit that for f16).
// `at`: the output's index from the beginning of out.
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
