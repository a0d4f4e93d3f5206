// The bits by which the host tells a shader what its operands are like and what to do with them. Included by
// C++ and by GLSL, so that both sides use the same names. A shader sees only the bits of its kernel
// (OF_ATTENTION or not), since constants that it does not use would stay in its module.
#ifdef __cplusplus
#pragma once
#include <cstdint>
#define HEED_BITS constexpr std::uint32_t
namespace heed::vulkan {
#else
#define HEED_BITS const uint
#endif

#if defined(__cplusplus) || !defined(OF_ATTENTION)
// --- matrix products: the specialisation constant FLAGS
// How the operands are laid out: whether elements with neighbouring k are neighbours in memory, and whether
// every line begins where several elements can be read at a time.
HEED_BITS a_along_k_bit = 1u, b_along_k_bit = 2u, a_vectors_bit = 4u, b_vectors_bit = 8u;
// The rows of a are added up, too: a bias' gradient along with a weight's.
HEED_BITS row_sums_bit = 16u;
// The sums are stored before an activation is applied; or they are multiplied by its derivative.
HEED_BITS keeps_sums_bit = 32u, derivative_bit = 64u;
// The third dimension of the grid is not a batch but linear maps of the same a, each with its own b, bias and
// out.
HEED_BITS maps_bit = 128u;
// From here on: which HEED_ACTIVATION line of core/elementwise.def applies, counted from 1; 0: none.
HEED_BITS activation_shift = 8u;

// --- matrix products: the push constant finish_bits
// What is added to a sum, and whether four outputs are written at once.
HEED_BITS bias_bit = 1u, accumulate_bit = 2u, out_fours_bit = 4u;
#endif

#if defined(__cplusplus) || defined(OF_ATTENTION)
// --- attention: the specialisation constant FLAGS
HEED_BITS attention_key_mask_bit = 1u, attention_mask_bit = 2u, attention_causal_bit = 4u;
HEED_BITS attention_pattern_bit = 8u, attention_pattern_per_head_bit = 16u;
HEED_BITS attention_aligned_bit = 32u;  // four neighbouring elements can be read at once
// Along which axes the mask changes.
HEED_BITS attention_mask_has_batch_bit = 64u, attention_mask_has_heads_bit = 128u;
HEED_BITS attention_mask_has_queries_bit = 256u, attention_mask_has_keys_bit = 512u;
HEED_BITS attention_slopes_bit = 1024u, attention_bias_bit = 2048u;
HEED_BITS attention_bias_has_batch_bit = 4096u, attention_bias_has_heads_bit = 8192u;
// From here on, one bit per operand: it is [B, H, L, d] in memory, else [B, L, H, d].
HEED_BITS attention_operands_shift = 14u;
#endif

#ifdef __cplusplus
inline std::uint32_t bit_if(bool set, std::uint32_t bit) {
  return set ? bit : 0;
}
}  // namespace heed::vulkan
#endif
#undef HEED_BITS
