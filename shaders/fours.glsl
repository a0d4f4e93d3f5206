// Four neighbouring elements in one load of 16 bytes (8 for half types): a buffer is declared twice for one
// binding, as elements and as fours. Halves are read as words, and written as halves, which rounds them.
// Needs common.glsl.
vec4 f16_four(uvec2 x) { return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y)); }
vec4 bf16_four(uvec2 x) { return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u)); }

#if defined(TYPE_f32)
#define FOUR vec4
#define FOUR_WRITTEN vec4
#define four_to_float(x) (x)
#define four_from_float(x) (x)
#elif defined(TYPE_f16)
#define FOUR uvec2
#define FOUR_WRITTEN f16vec4
#define four_to_float(x) f16_four(x)
#define four_from_float(x) f16vec4(x)
#elif defined(TYPE_bf16)
#define FOUR uvec2
#define FOUR_WRITTEN u16vec4
#define four_to_float(x) bf16_four(x)
#define four_from_float(v) u16vec4(uvec4(bf16_bits((v).x), bf16_bits((v).y), bf16_bits((v).z), bf16_bits((v).w)))
#endif

// `left` elements follow from `at` on; those beyond read as 0. Unless the four begins at a multiple of four
// (in_fours), its elements are read one by one, with the same result.
#define load_four_as(elements, fours, convert, convert_four, in_fours, at, left)             \
  ((in_fours) && (left) >= 4 ? convert_four(fours[(at) / 4])                                 \
                             : vec4(convert(elements[at]), (left) > 1 ? convert(elements[(at) + 1]) : 0.0, \
                                    (left) > 2 ? convert(elements[(at) + 2]) : 0.0,          \
                                    (left) > 3 ? convert(elements[(at) + 3]) : 0.0))
#define unconverted(x) (x)
#define load_four(elements, fours, in_fours, at, left) \
  load_four_as(elements, fours, to_float, four_to_float, in_fours, at, left)
#define load_floats(elements, fours, in_fours, at, left) \
  load_four_as(elements, fours, unconverted, unconverted, in_fours, at, left)
#define store_four_as(elements, fours, convert, convert_four, in_fours, at, left, value)          \
  if ((in_fours) && (left) >= 4) {                                                               \
    fours[(at) / 4] = convert_four(value);                                                       \
  } else {                                                                                       \
    for (uint each = 0; each < 4 && each < (left); ++each) elements[(at) + each] = convert(value[each]); \
  }
#define store_four(elements, fours, in_fours, at, left, value) \
  store_four_as(elements, fours, from_float, four_from_float, in_fours, at, left, value)
#define store_floats(elements, fours, in_fours, at, left, value) \
  store_four_as(elements, fours, unconverted, unconverted, in_fours, at, left, value)
