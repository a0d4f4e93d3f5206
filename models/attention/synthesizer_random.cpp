// Random Synthesizer: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri, Metzler,
// Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3.2. The logits are parameters: which position
// reads which is learned for the task and the same for every sample, whatever it says:
//
//   S_h = R_h[0:N, 0:N]                                   [1, H, N, N]   (eq. 4)
//   Y_h = softmax( S_h ) v_h,   O = merge(Y) Wo           (eq. 2, in synthesizer_logits.cpp)
//
// The fused attention kernel adds S to scores of 0. Where no sample is padded and nothing is dropped, one weight
// matrix per head serves the whole batch, and the values of all samples are one product per head. Time N^2 d + N d^2,
// memory H L^2 of the parameters and their gradient. Parameters 2 d^2 + H L^2, L = max_length.
//
// Setting: deviation (of normal initial logits; default 0: Xavier uniform on [L, L], since the paper says
// only "random"). Longer inputs than L are an error, shorter ones use the leading square of R.

#include "heed/autograd/ops.h"
#include "heed/models/attention/synthesizer_logits.h"

namespace heed {
namespace {

class RandomLogits : public SynthesizerLogits {
 public:
  RandomLogits(const AttentionConfig& config, Initialiser& initialiser, bool trained) {
    const std::int64_t heads = config.heads, length = config.max_length;
    const double deviation = config.options.take_number("deviation", 0, 0, 1e6);
    const Tensor initial = deviation > 0 ? initialiser.normal({heads, length, length}, deviation)
                                         : xavier_per_head(heads, length, length, initialiser);
    if (trained)
      add_parameter("R", r_, initial);
    else
      add_buffer("R", r_, initial);
  }

  std::size_t matrix_parts() const override { return 1; }
  std::vector<Tensor> matrix_rows(const Tensor& x, std::int64_t first) const override {
    // Fixed logits are a buffer, which keeps its type where words are f16 or bf16.
    return {cast(unsqueeze(slice(r_, 1, first, x.size(1)), 0), x.dtype())};
  }
  Tensor matrix(std::span<const Tensor> rows, std::int64_t keys) const override {
    return slice(rows[0], 3, 0, keys);
  }

 private:
  Tensor r_;  // [H, L, L]
};

}  // namespace

LogitsPtr make_random_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<RandomLogits>(config, initialiser, true);
}

LogitsPtr make_random_fixed_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<RandomLogits>(config, initialiser, false);
}

AttentionVariant synthesizer_random_variant() {
  return {"synthesizer_random", synthesizer_capabilities(), [](const AttentionConfig& config) {
            return make_synthesizer("synthesizer_random", config, make_random_logits);
          }};
}

}  // namespace heed
