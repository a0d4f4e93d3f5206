// Functions of a float for which Vulkan's own are too coarse (sin and cos to 2^-11, log near 1, tanh, pow) or
// leave the treatment of NaN open. All are within a few units in the last place. `precise` keeps drivers from
// simplifying x - (x - y) and the like.

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool is_nan(int x) { return false; }

#define NAN uintBitsToFloat(0x7fc00000u)

// A NaN in either operand is kept.
float larger(float a, float b) { return is_nan(b) || a < b ? b : a; }
float smaller(float a, float b) { return is_nan(b) || b < a ? b : a; }
int larger(int a, int b) { return max(a, b); }
int smaller(int a, int b) { return min(a, b); }

// e^x = 2^n e^r with |r| <= log(2) / 2, and e^r = 1 + r + r^2 q(r) with q fitted to a relative error of 3e-9.
// Results below 2e-38 are 0. Doubling the polynomial and halving the power of two makes n = 128 work too.
float exact_exp(float x) {
  if (is_nan(x)) return x;
  if (x < -86.9) return 0.0;
  float bounded = min(x, 89.0);
  float n = floor(bounded * 1.44269504 + 0.5);
  precise float r = fma(n, -0.693359375, bounded);  // log(2) in two parts
  r = fma(n, 2.12194440e-4, r);
  float q = fma(0.00138144215, r, 0.00836878505);
  q = fma(q, r, 0.0416683952);
  q = fma(q, r, 0.166665201);
  q = fma(q, r, 0.499999934);
  q = fma(q, r, 1.0);
  q = fma(q, r, 1.0);
  return 2.0 * q * uintBitsToFloat(uint(int(n) + 126) << 23);
}

// log x = e log(2) + f + rest for positive finite x = 2^e (1 + f), with 1 + f in [sqrt(1/2), sqrt(2)); f is
// exact. log(1 + f) = 2 artanh s with s = f / (2 + f); 2 s = f - s f.
void split_log(float x, out float e, out float f, out float rest) {
  bool subnormal = x < 1.17549435e-38;
  // Subtracting the bits of sqrt(1/2) puts the exponent of the result above bit 23.
  int shifted = floatBitsToInt(subnormal ? x * 16777216.0 : x) - 0x3f3504f3;
  e = float(shifted >> 23) - (subnormal ? 24.0 : 0.0);
  f = intBitsToFloat((shifted & 0x007fffff) + 0x3f3504f3) - 1.0;
  float s = f / (f + 2.0);
  float z = s * s;
  float artanh = fma(fma(fma(2.0 / 9.0, z, 2.0 / 7.0), z, 2.0 / 5.0), z, 2.0 / 3.0);
  rest = s * fma(z, artanh, -f);
}

// -infinity at 0, NaN below.
float exact_log(float x) {
  if (x == 0.0) return -INFINITY;
  if (!(x > 0.0)) return NAN;
  if (x == INFINITY) return x;
  float e, f, rest;
  split_log(x, e, f, rest);
  precise float low = fma(e, -2.12194440e-4, rest);  // log(2) in two parts
  precise float y = fma(e, 0.693359375, f + low);
  return y;
}

// x + x^3 P(x^2) near 0, 1 - 2 / (e^2|x| + 1) beyond.
float exact_tanh(float x) {
  float magnitude = abs(x);
  if (magnitude < 0.62) {
    float z = x * x;
    float p = fma(-0.0057208105, z, 0.0206537973);
    p = fma(p, z, -0.0537444279);
    p = fma(p, z, 0.133315012);
    p = fma(p, z, -0.333332837);
    return fma(x * z, p, x);
  }
  float y = 1.0 - 2.0 / (exact_exp(2.0 * magnitude) + 1.0);
  return x < 0.0 ? -y : y;
}

// x Q(u) with u = x^2 mapped from [0, 3.925^2] to [-1, 1]; beyond, erf is 1 to f32. To 2.2e-7.
float exact_erf(float x) {
  if (abs(x) >= 3.925) return x < 0.0 ? -1.0 : 1.0;
  const float q[] = float[](0.360277921, -0.179884255, 0.133932889, -0.109089121, 0.0905819908, -0.0740833804,
                            0.058477629, -0.0435257778, 0.0299628079, -0.0203252118, 0.0141607178, -0.00746050291,
                            0.00209332956, -0.0016386885, 0.00209073233, -0.000794036605);
  float u = fma(x * x, 0.12982271, -1.0);
  float sum = q[15];
  [[unroll]] for (int i = 14; i >= 0; --i) sum = fma(sum, u, q[i]);
  return x * sum;
}

// r in [-pi/4, pi/4] and the quadrant n mod 4 of x = n pi/2 + r, for |x| >= 2^13: x is an integer times a
// power of two, and only those bits of its product with 2/pi are computed that matter modulo 4 (Payne and
// Hanek, 1983).
float reduce_large_angle(float x, out uint quadrant) {
  // One word more than is read, and a vector below instead of an array: glslang 12 gives an array of the same
  // length as one in the push constants their layout, which newer validation rejects for a variable.
  const uint two_over_pi[] = uint[](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u,
                                    0xfe5163abu, 0xdebbc561u);
  uint bits = floatBitsToUint(x);
  uint mantissa = (bits & 0x7fffffu) | 0x800000u;
  // Bit 0 of the table weighs 2^31; bits of weight 4 and more (after the scaling by 2^e) do not matter.
  uint start = ((bits >> 23) & 255u) - 150u + 30u;
  uint word = start / 32, shift = start % 32;
  uvec3 window;
  [[unroll]] for (uint i = 0; i < 3; ++i) {
    uint next = shift == 0 ? 0u : two_over_pi[word + i + 1] >> (32 - shift);
    window[i] = (two_over_pi[word + i] << shift) | next;
  }
  uint high1, low1, high2, low2, carry;
  umulExtended(mantissa, window[1], high1, low1);
  umulExtended(mantissa, window[2], high2, low2);
  uint middle = uaddCarry(low1, high2, carry);
  uint top = mantissa * window[0] + high1 + carry;
  // top has two bits of quadrant and 30 of fraction, which middle continues; n is the nearest quadrant.
  uint n = (top + 0x20000000u) >> 30;
  float r = float(int((top << 2) | (middle >> 30))) * (2.3283064365386963e-10 * 1.5707963267948966);
  bool negative = (bits >> 31) != 0u;
  quadrant = (negative ? 4u - n : n) & 3u;
  return negative ? -r : r;
}

float reduce_angle(float x, out uint quadrant) {
  if (abs(x) >= 8192.0) return reduce_large_angle(x, quadrant);
  float n = floor(x * 0.6366197723675814 + 0.5);
  quadrant = uint(int(n)) & 3u;
  precise float r = fma(n, -1.5703125, x);  // pi/2 in three parts
  r = fma(n, -4.838267923332751e-4, r);
  r = fma(n, -2.5632829192545614e-12, r);
  return r;
}

// sin of the angle n pi/2 + r, |r| <= pi/4.
float sin_of_reduced(uint quadrant, float r) {
  float z = r * r;
  float y;
  if ((quadrant & 1u) == 0u) {
    float p = fma(fma(-0.00019517233886290342, z, 0.008332177996635437), z, -0.16666655242443085);
    y = fma(r * z, p, r);
  } else {
    float p = fma(fma(2.4438379114144482e-05, z, -0.0013887366512790322), z, 0.04166664555668831);
    y = fma(z * z, p, fma(z, -0.5, 1.0));
  }
  return (quadrant & 2u) == 0u ? y : -y;
}

float exact_sin(float x) {
  if (is_nan(x) || abs(x) == INFINITY) return NAN;
  uint quadrant;
  float r = reduce_angle(x, quadrant);
  return sin_of_reduced(quadrant, r);
}

float exact_cos(float x) {
  if (is_nan(x) || abs(x) == INFINITY) return NAN;
  uint quadrant;
  float r = reduce_angle(x, quadrant);
  return sin_of_reduced(quadrant + 1u, r);
}

// e^(y log x) for x > 0, finite or not. The logarithm and its product with y are kept as sums of two floats,
// since an error in either would be amplified |y log x| times.
float positive_pow(float x, float y) {
  if (x == INFINITY || abs(y) == INFINITY) {
    float direction = x == 1.0 ? 0.0 : x > 1.0 ? y : -y;
    return direction == 0.0 ? 1.0 : direction > 0.0 ? INFINITY : 0.0;
  }
  float e, f, rest;
  split_log(x, e, f, rest);
  precise float high = e * 0.693359375;  // exact: e and the constant are short
  precise float low = fma(e, -2.12194440e-4, rest);
  precise float sum = high + f;
  precise float sum_low = f - (sum - high);  // |f| < |high| unless e = 0, where sum = f
  precise float logarithm = sum + (sum_low + low);
  precise float logarithm_low = (sum_low + low) - (logarithm - sum);
  precise float product = y * logarithm;
  if (abs(product) > 110.0) return product > 0.0 ? INFINITY : 0.0;
  precise float product_low = fma(y, logarithm, -product) + y * logarithm_low;
  float power = exact_exp(product);
  return power == INFINITY ? power : fma(power, product_low, power);
}

// As in C: a negative base has a power only if the exponent is an integer; pow(1, y) = pow(x, 0) = 1 even for
// NaN.
float exact_pow(float x, float y) {
  if (x == 1.0 || y == 0.0) return 1.0;
  if (is_nan(x) || is_nan(y)) return NAN;
  float magnitude = abs(x);
  bool integer = floor(y) == y;
  // Floats from 2^24 on are even.
  bool odd = integer && abs(y) < 16777216.0 && (int(y) & 1) != 0;
  float power = magnitude == 0.0 ? (y > 0.0 ? 0.0 : INFINITY) : magnitude == 1.0 ? 1.0 : positive_pow(magnitude, y);
  bool negative = (floatBitsToUint(x) >> 31) != 0u;
  if (negative && !integer && magnitude != 0.0 && magnitude != INFINITY) return NAN;
  return negative && odd ? -power : power;
}

// For the shaders that are made from core/elementwise.def: the functions that its expressions call, with the
// same meaning as on the CPU. From here on they hide those of GLSL.
#ifdef TABLE_NAMES
// `give` returns the result of a line. `precise`: no driver may simplify (1 + u) - 1 to u, or fuse products
// and sums in one shader but not in another.
#define give(y)         \
  {                     \
    precise V result = y; \
    return result;      \
  }

#define where(condition, a, b) ((condition) ? (a) : (b))
#define exp(x) exact_exp(x)
#define log(x) exact_log(x)
#define sin(x) exact_sin(x)
#define cos(x) exact_cos(x)
#define tanh(x) exact_tanh(x)
#define erf(x) exact_erf(x)
#define pow(x, y) exact_pow(x, y)
#define max(a, b) larger(a, b)
#define min(a, b) smaller(a, b)
#endif
