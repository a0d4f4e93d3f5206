#include "heed/training/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/low_precision.h"

namespace heed {
namespace {

// Jordan 2024, kellerjordan.github.io/posts/muon: chosen for a steep rise at 0.
constexpr double of_first = 3.4445, of_third = -4.775, of_fifth = 2.0315;
constexpr double least_norm = 1e-7;

/// The most elements of matrices of one shape that are computed together, so that they fit in a
/// processor's cache.
constexpr std::int64_t most_together = std::int64_t{1} << 20;

/// Returns x / max(|x|, least_norm) for each matrix of x. It scales x first, because the squares of
/// large and small elements would be infinite or 0.
Tensor normalised(const Tensor& x) {
  const Axes both = {-2, -1};
  const Tensor largest =
      clamp(max(abs(x), both, true), least_in_f32, std::numeric_limits<double>::infinity());
  const Tensor y = x / largest;
  return y / maximum(sqrt(sum(square(y), both, true)), least_norm / largest);
}

/// Computes the iterations y = (a + b A + c A^2) y with A = y y', or with A = y' y from the right
/// if that is smaller.
///
/// The factors commute with A, so a long matrix need not be multiplied by each of them: with Q = a
/// + b A + c A^2 the next A is Q A Q, and only the product of all Q is applied to y. This is less
/// work for matrices at least 1.5 times as long as wide. It is not done in half types, where the
/// small eigenvalues of A are lost next to the large ones.
class NewtonSchulz {
 public:
  explicit NewtonSchulz(const Tensor& y)
      : is_tall_(y.size(-2) > y.size(-1)),
        diagonal_(eye(std::min(y.size(-2), y.size(-1)), y.dtype(), y.device()) * of_first) {}

  Tensor operator()(Tensor y, std::int64_t iterations) const {
    const auto [narrow, wide] = std::minmax({y.size(-2), y.size(-1)});
    if (!is_half(y.dtype()) && !WithMatmulPrecision::is_lower() && 2 * wide > 3 * narrow)
      return times(product_of_factors(gram_matrix(y), iterations), y);
    for (std::int64_t i = 0; i < iterations; ++i) y = times(newton_factor(gram_matrix(y)), y);
    return y;
  }

 private:
  Tensor gram_matrix(const Tensor& y) const {
    const Tensor other = transpose(y, -2, -1);
    return is_tall_ ? matmul(other, y) : matmul(y, other);
  }
  Tensor newton_factor(const Tensor& gram) const {
    return gram * of_third + matmul(gram, gram) * of_fifth + diagonal_;
  }
  Tensor product_of_factors(Tensor gram, std::int64_t iterations) const {
    Tensor factor = newton_factor(gram), product = factor;
    for (std::int64_t i = 1; i < iterations; ++i) {
      gram = matmul(matmul(factor, gram), factor);
      factor = newton_factor(gram);
      product = matmul(factor, product);
    }
    return product;
  }
  Tensor times(const Tensor& factor, const Tensor& y) const {
    return is_tall_ ? matmul(y, factor) : matmul(factor, y);
  }

  bool is_tall_;
  Tensor diagonal_;
};

Tensor orthogonalised_in(const Tensor& x, std::int64_t iterations, DType dtype) {
  const Tensor y = cast(normalised(x), dtype);
  return contiguous(cast(NewtonSchulz(y)(y, iterations), x.dtype()));
}

double adjustment(RateAdjustment kind, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  return kind == RateAdjustment::original ? std::sqrt(std::max(1.0, rows / columns))
                                          : 0.2 * std::sqrt(std::max(rows, columns));
}

/// Some of the matrices of a step, all of one shape.
struct Alike {
  std::vector<Tensor> weights, gradients, moments;
};

/// Returns the matrices of x [count, rows, columns], which share its memory.
std::vector<Tensor> as_matrices(const Tensor& x) {
  std::vector<Tensor> all;
  for (std::int64_t i = 0; i < x.size(0); ++i)
    all.push_back(x.view({x.size(1), x.size(2)}, {x.size(2), 1}, x.offset() + i * x.size(1) * x.size(2)));
  return all;
}

/// Updates the moments, and returns the matrices to orthogonalise [count, rows, columns]; zeros if
/// the step is skipped. It uses the kernel of gradient descent, starting from zeros with a negative
/// rate.
Tensor orthogonal_directions(const Alike& alike, const OptimizerStep& step, const MuonOptions& options) {
  const Tensor& like = alike.weights[0];
  const Tensor all =
      Tensor::zeros({static_cast<std::int64_t>(alike.weights.size()), like.size(0), like.size(1)},
                    like.dtype(), like.device());
  const std::vector<Tensor> each = as_matrices(all);
  const double share = 1 - options.momentum;
  OptimizerStep descent;
  descent.parameters = each;
  descent.gradients = alike.gradients;
  descent.gradient_scale = step.gradient_scale.defined()
                               ? step.gradient_scale * share
                               : Tensor::full({1}, share, like.dtype(), like.device());
  descent.skip = step.skip;
  descent.first_moment = alike.moments;
  descent.beta1 = options.momentum;
  descent.learning_rate = options.nesterov ? -options.momentum : -1;
  const auto sgd = backend_of(like).sgd;
  sgd(descent);
  if (options.nesterov) {
    descent.first_moment = {};
    descent.learning_rate = -1;
    sgd(descent);
  }
  return all;
}

void step_alike(const Alike& alike, const OptimizerStep& step, const MuonOptions& options, DType dtype) {
  const Tensor directions = orthogonal_directions(alike, step, options);
  const std::vector<Tensor> each = as_matrices(orthogonalised_in(directions, options.iterations, dtype));
  const double factor = adjustment(options.adjustment, alike.weights[0].shape());
  OptimizerStep descent;
  descent.parameters = alike.weights;
  descent.gradients = each;
  descent.skip = step.skip;
  descent.learning_rate = step.learning_rate * factor;
  descent.weight_decay = step.weight_decay / factor;  // the rate of the decay is not adjusted
  descent.decoupled_decay = true;
  backend_of(alike.weights[0]).sgd(descent);
}

}  // namespace

Tensor orthogonalised(const Tensor& x, std::int64_t iterations) {
  check(x.defined() && is_floating(x.dtype()) && x.rank() >= 2, "orthogonalised: needs matrices of ",
        "floating-point numbers [..., rows, columns]",
        x.defined() ? concat_text(", got ", x.dtype(), " ", x.shape()) : std::string());
  check(iterations >= 1, "orthogonalised: iterations are ", iterations, "; at least 1");
  const NoGrad no_grad;
  return x.count() == 0 ? x.detach() : orthogonalised_in(x.detach(), iterations, x.dtype());
}

void muon(const OptimizerStep& step, const MuonOptions& options, const MuonProducts& products) {
  const NoGrad no_grad;
  const Tensor& first = step.parameters[0];
  const bool on_cpu = first.device().type == DeviceType::cpu;
  if (on_cpu && step.skip.defined() && step.skip.item() != 0) return;
  const DType dtype = first.dtype() == DType::f32 && !on_cpu ? products.on_gpu : first.dtype();
  const WithMatmulPrecision precision(on_cpu ? products.on_cpu : MatmulPrecision::highest);

  std::map<std::pair<std::int64_t, std::int64_t>, Alike> open;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const Tensor& weight = step.parameters[i];
    Alike& alike = open[{weight.size(0), weight.size(1)}];
    alike.weights.push_back(weight);
    alike.gradients.push_back(step.gradients[i]);
    alike.moments.push_back(step.first_moment[i]);
    if (static_cast<std::int64_t>(alike.weights.size() + 1) * weight.count() <= most_together) continue;
    step_alike(alike, step, options, dtype);
    alike = {};
  }
  for (const auto& [shape, alike] : open)
    if (!alike.weights.empty()) step_alike(alike, step, options, dtype);
}

}  // namespace heed
