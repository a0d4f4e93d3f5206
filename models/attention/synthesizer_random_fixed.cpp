// Fixed Random Synthesizer: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri,
// Metzler, Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3.2. As the Random Synthesizer
// (synthesizer_random.cpp), but the logits stay as they were drawn:
//
//   S_h = R_h[0:N, 0:N],  R fixed                         [1, H, N, N]   (eq. 4)
//   Y_h = softmax( S_h ) v_h,   O = merge(Y) Wo           (eq. 2, in synthesizer_logits.cpp)
//
// R is saved with the model and has no gradient. Time N^2 d + N d^2, memory H L^2; parameters 2 d^2 trained,
// and H L^2 numbers that are not, L = max_length.
//
// Setting: deviation (of normal logits; default 0: Xavier uniform on [L, L]). A large one makes each row
// attend to few random positions.

#include "heed/models/attention/synthesizer_logits.h"

namespace heed {

AttentionVariant synthesizer_random_fixed_variant() {
  return {"synthesizer_random_fixed", synthesizer_capabilities(), [](const AttentionConfig& config) {
            return make_synthesizer("synthesizer_random_fixed", config, make_random_fixed_logits);
          }};
}

}  // namespace heed
