#include "heed/apps/cli/attention_cost.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "heed/apps/tasks/settings.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/profile.h"
#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"

namespace heed::programs {
namespace {

constexpr std::string_view composed_name = "dot_product_composed";

/// softmax(Q K^T / sqrt(dh)) V as two matrix products and a softmax.
class ComposedDotProduct : public Attention {
 public:
  explicit ComposedDotProduct(const AttentionConfig& config)
      : Attention(config), initialiser_(config.seed), w_(config, initialiser_) {
    add_projections(w_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context&) override {
    const auto heads_of = [&](const Linear& part) { return split_heads(part(input.x), config().heads); };
    AttentionOptions options;
    options.causal = config().causal;
    const Tensor weights = attention_weights(heads_of(w_.query), heads_of(w_.key), options);  // [B, H, N, N]
    return w_.output(merge_heads(matmul(weights, heads_of(w_.value))));
  }

 private:
  Initialiser initialiser_;
  Projections w_;
};

std::unique_ptr<Attention> make_layer(const AttentionChoice& choice, std::int64_t length,
                                      const CostSettings& settings) {
  AttentionConfig config;
  config.width = settings.width;
  config.heads = settings.heads;
  config.causal = settings.causal;
  config.max_length = length;
  config.options = choice.options;
  if (choice.name == "clusterformer" && !config.options.values().contains("clusters"))
    config.options.set("clusters", std::max<std::int64_t>(1, std::llround(std::sqrt(length))));
  config.seed = 1;
  if (choice.name == composed_name) return std::make_unique<ComposedDotProduct>(config);
  return make_attention(choice.name, config);
}

/// A layer, its input, and the gradient of its output.
class Pass {
 public:
  Pass(const AttentionChoice& choice, std::int64_t length, const CostSettings& settings)
      : layer_(make_layer(choice, length, settings)) {
    layer_->to(DType::f32, settings.device);
    const Shape shape{settings.batch, length, settings.width};
    x_ = parameter(normal(shape, 0, 1, {1, 0, 0}, DType::f32, settings.device));
    weights_ = normal(shape, 0, 1, {1, 0, 1}, DType::f32, settings.device);
  }

  std::int64_t parameter_count() { return layer_->parameter_count(); }

  /// Forward and backward, until the gradients are computed.
  void run() {
    for (const NamedTensor& named : layer_->parameters()) zero_gradient(*named.tensor);
    zero_gradient(x_);
    Context context = Context::train(1, step_++);
    Tensor loss = sum((*layer_)({x_, {}, {}, {}}, context) * weights_);
    if (const Tensor own = context.auxiliary_loss(); own.defined()) loss = loss + own;
    backward(loss);
    // The device may still be computing: reading a value waits for it.
    (void)reshape(slice(gradient(x_), 1, 0, 1), {-1}).to_vector<float>();
  }

 private:
  std::unique_ptr<Attention> layer_;
  Tensor x_, weights_;
  std::uint32_t step_ = 1;
};

double milliseconds(Pass& pass) {
  const auto start = std::chrono::steady_clock::now();
  pass.run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Counts the operations of a pass. Run a first pass before it, which fills caches and memory pools.
void count(Pass& pass, AttentionCost& cost) {
  start_profile();
  pass.run();
  stop_profile();
  for (const ProfileRow& row : profile_rows()) cost.flops += row.flops;
  cost.kernels = profile_table();
}

}  // namespace

std::vector<std::string> measurable_attentions() {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) {
    names.emplace_back(variant.name);
    if (variant.name == "dot_product") names.emplace_back(composed_name);
  }
  return names;
}

void check_attention(const AttentionChoice& choice, std::int64_t length, const CostSettings& settings) {
  try {
    const ShapesOnly shapes;
    make_layer(choice, length, settings);
  } catch (const Error& error) {
    throw SettingsError(error.what());
  }
}

AttentionCost measure_attention(const AttentionChoice& choice, std::int64_t length,
                                const CostSettings& settings) {
  // Short passes are repeated until the clock can measure their sum.
  const double least_total_ms = settings.repetitions > 1 ? 100 : 0;
  Pass pass(choice, length, settings);
  AttentionCost cost;
  cost.parameters = pass.parameter_count();
  pass.run();
  count(pass, cost);
  reset_peak_memory(settings.device);
  cost.ms = std::numeric_limits<double>::infinity();
  double total = 0;
  for (std::int64_t i = 0; i < settings.repetitions || total < least_total_ms; ++i) {
    const double time = milliseconds(pass);
    cost.ms = std::min(cost.ms, time);
    total += time;
  }
  cost.peak_mb = static_cast<double>(memory_stats(settings.device).peak_bytes) / 1e6;
  return cost;
}

std::optional<double> growth_exponent(std::span<const CostAtLength> points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [length, cost] : points) {
    check(length > 0 && cost > 0, "growth_exponent: length ", length, " and cost ", cost,
          " must be positive to have logarithms");
    const double log_length = std::log(length), log_cost = std::log(cost);
    n += 1;
    x += log_length;
    y += log_cost;
    xx += log_length * log_length;
    xy += log_length * log_cost;
  }
  const auto differs = [&](const CostAtLength& point) { return point.length != points.front().length; };
  if (std::none_of(points.begin(), points.end(), differs)) return {};
  return (n * xy - x * y) / (n * xx - x * x);
}

std::optional<double> expected_cost(std::span<const CostAtLength> points, double length) {
  if (points.size() < 2) return {};
  const CostAtLength &first = points[points.size() - 2], &last = points.back();
  check(first.length < last.length, "expected_cost: lengths must ascend, got ", first.length, " and ",
        last.length);
  // cost / length = a + b length is a straight line.
  const double slope = (last.cost / last.length - first.cost / first.length) / (last.length - first.length);
  const double b = std::clamp(slope, 0.0, last.cost / (last.length * last.length));
  const double a = last.cost / last.length - b * last.length;
  return a * length + b * length * length;
}

}  // namespace heed::programs
