// Shared by the shaders made from core/elementwise.def: V, the type of arithmetic, and the functions that the
// table's expressions call, with the same meaning as on the CPU.
#include "math.glsl"

#if defined(TYPE_i32)
#define V int
#define to_value(x) (x)
#define from_value(x) (x)
#else
#define V float
#define to_value(x) to_float(x)
#define from_value(x) from_float(x)
#endif

// Returns the result of a line. `precise`: no driver may simplify (1 + u) - 1 to u, or fuse products and sums
// in one shader but not in another.
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
