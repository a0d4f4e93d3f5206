#include "heed/models/attention/cluster_count.h"

#include <algorithm>
#include <cmath>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/attention/shared/sorting.h"
#include "heed/models/module.h"

namespace heed {

constexpr double passes_to_measure = 10;
constexpr double most_relative_cost = 1.4;
constexpr std::int64_t words_of_a_block = 256;

/// f(K): multiplications per word.
static double cost(double clusters, double length, double width) {
  return 2 * width * (clusters + 2 * length / clusters) + 5 * width * width;
}

/// The default K.
static std::int64_t silent(const AttentionConfig& config) {
  if (config.causal || config.max_length <= 0) return default_clusters(config);
  return std::max<std::int64_t>(2, ceil_div(config.max_length, words_of_a_block));
}

/// K0, where f is least.
static std::int64_t cheapest(double length) {
  return std::max<std::int64_t>(1, std::llround(std::sqrt(2 * length)));
}

ClusterCount::ClusterCount(const AttentionConfig& config) : width_(config.width) {
  const auto& values = config.options.values();
  const auto given = values.find("clusters");
  if (given == values.end() || !std::holds_alternative<std::string>(given->second)) {
    most_ = config.options.take_integer("clusters", silent(config), 1, most_units);
    return;
  }
  const std::string text = config.options.take_text("clusters", "auto");
  check(text == "auto", "setting 'clusters' must be a number or \"auto\", is '", text, "'");
  automatic_ = true;
  constexpr double any_length = 2048;  // without a max_length: 64 clusters
  most_ = cheapest(config.max_length > 0 ? static_cast<double>(config.max_length) : any_length);
  add_buffer("chosen", chosen_, Initialiser::constant({1}, 0, DType::i32));
  add_buffer("measured", measured_, Initialiser::constant({3}, 0));
}

std::int64_t ClusterCount::choose(double length, double effective, std::int64_t width) {
  const std::int64_t highest = cheapest(length);
  const double d = static_cast<double>(width);
  const double limit = most_relative_cost * cost(static_cast<double>(highest), length, d);
  std::int64_t lowest = highest;
  while (lowest > 1 && cost(static_cast<double>(lowest - 1), length, d) <= limit) --lowest;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(effective / 2), lowest, highest);
}

std::int64_t ClusterCount::of(std::int64_t length, bool training) {
  if (!automatic_) return most_;
  if (known_ == 0) known_ = chosen_.to_vector<std::int32_t>().front();
  if (known_ == 0 && training) {
    const std::vector<double> measured = measured_.to_doubles();
    if (measured[0] >= passes_to_measure) {
      known_ = std::min(most_, choose(measured[1] / measured[0], measured[2] / measured[0], width_));
      chosen_ = Tensor::full({1}, static_cast<double>(known_.load()), DType::i32, chosen_.device());
    }
  }
  return known_ > 0 ? known_.load() : std::min(most_, cheapest(static_cast<double>(length)));
}

void ClusterCount::observe(const Tensor& x, const Tensor& centroids, const Tensor& assignment,
                           const Tensor& mask, Context& context) {
  if (!automatic_ || known_ > 0) return;
  const NoGrad no_grad;
  const std::int64_t clusters = centroids.size(1);
  const Tensor one = Tensor::ones({}, x.dtype(), x.device()), zero = Tensor::zeros({}, x.dtype(), x.device());
  const Tensor real = unsqueeze(mask_as_numbers(mask, x), 2);  // [B, N, 1]
  const Tensor words = maximum(sum(real), one);
  const Tensor members =
      slice(scatter_add_rows(real, assignment, clusters + 1), 1, 0, clusters);  // [B, K, 1]
  const Tensor share = sum(members, 0) / words;                                 // [K, 1]

  const Tensor middle = sum(x.detach() * real, 1, true) / maximum(sum(real, 1, true), one);  // [B, 1, d]
  const Tensor unit = unit_vectors(centroids.detach() - middle);                             // [B, K, d]
  const Tensor cosines = mean(relu(matmul(unit, transpose(unit, 1, 2))), 0);                 // [K, K]
  // A cluster resembles itself even if its centroid equals the mean and has no direction.
  const Tensor at = Tensor::arange(clusters, DType::i32, x.device());
  const Tensor alike = where(equal(unsqueeze(at, 0), unsqueeze(at, 1)), one, cosines);
  const Tensor groups = where(greater(share, zero), matmul(alike, share), zero);  // [K, 1]
  const Tensor largest = max(groups, 0);
  const Tensor effective = reshape(one / maximum(largest, one / static_cast<double>(clusters)), {1});
  const Tensor counts = Tensor::from(std::vector<float>{1, static_cast<float>(x.size(1))}, {2}, x.device());
  const DType dtype = measured_.dtype();
  context.observe(*this, {concat({cast(counts, dtype), cast(effective, dtype)}, 0)});
}

void ClusterCount::absorb(std::span<const Tensor> values) {
  check(automatic_ && values.size() == 1 && values[0].shape() == measured_.shape(), described("ClusterCount"),
        ": this is not what a pass measured");
  const NoGrad no_grad;
  measured_ = measured_ + values[0];
}

}  // namespace heed
