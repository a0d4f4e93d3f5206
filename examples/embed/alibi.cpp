// An attention mechanism of an application's own, in one file. ALiBi, attention with linear biases: "Train
// Short, Test Long", Press, Smith and Lewis, ICLR 2022, arXiv 2108.12409, section 3. Words have no positions;
// instead each head h of H takes from the logit of a pair of words what their distance costs it:
//
//   A = softmax( q k^T / sqrt(dh) - m_h |i - j| )  over the allowed keys,   m_h = 2^(-slope h / H), h = 1, ..., H
//   O = merge(A v) Wo
//
// The kernel takes the slopes m_h, so that no N x N matrix is held and the gradient follows, on every device.
// Setting: slope (8, as in the paper). (heed has the same for every model: model.positions=alibi.)
//
// Whatever program is linked with this file finds the mechanism by its name, "alibi".

#include <heed/heed.h>

#include <cmath>
#include <memory>
#include <vector>

namespace {

class AlibiAttention : public heed::Attention {
 public:
  explicit AlibiAttention(const heed::AttentionConfig& config)
      : Attention(config), slope_(config.options.take_number("slope", 8, 0, 64)), w_(config, initialiser_) {
    add_projections(w_);  // "query", "key", "value" and "output", as heed's own have them
  }

 protected:
  /// O [B, N, d] of input.x [B, N, d]; the rows of padding are zeroed by the caller.
  heed::Tensor forward(const heed::AttentionInput& input, heed::Context& context) override {
    const heed::Tensor query = heed::split_heads(w_.query(input.x), config().heads);  // [B, H, N, dh]
    const heed::Tensor key = heed::split_heads(w_.key(input.x), config().heads);
    const heed::Tensor value = heed::split_heads(w_.value(input.x), config().heads);
    heed::AttentionOptions options = kernel_options(input.mask, context);  // padding, dropout in training
    options.causal = config().causal;
    options.slopes = slopes(query);
    show_weights(context, query, key, options);
    return w_.output(heed::merge_heads(heed::attention(query, key, value, options)));
  }

 private:
  /// m_h, [H]: f32, or f64 beside queries of f64.
  heed::Tensor slopes(const heed::Tensor& like) const {
    const std::int64_t heads = config().heads;
    std::vector<float> m;
    for (std::int64_t h = 1; h <= heads; ++h)
      m.push_back(
          static_cast<float>(std::exp2(-slope_ * static_cast<double>(h) / static_cast<double>(heads))));
    const heed::Tensor all = heed::Tensor::from(m, {heads}, like.device());
    return like.dtype() == heed::DType::f64 ? all.to(heed::DType::f64) : all;
  }

  double slope_;
  heed::Projections w_;
};

// While the program starts: before anything can ask for it.
const auto* const registered = &heed::register_attention(
    {"alibi",
     {.causal = true, .as_heads = true, .reason = "distances are those within one sequence"},
     [](const heed::AttentionConfig& config) { return std::make_unique<AlibiAttention>(config); }});

}  // namespace
