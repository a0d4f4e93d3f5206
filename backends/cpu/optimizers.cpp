#include <cmath>
#include <vector>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/optimizers.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

#ifndef HEED_BACKENDS_CPU_OPTIMIZERS_ONCE
#define HEED_BACKENDS_CPU_OPTIMIZERS_ONCE
namespace heed::cpu {

/// A range of elements of one of the tensors that an optimizer updates in one pass.
struct Piece {
  std::size_t tensor;
  std::int64_t begin, count;
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The effective gradient: scaled, and with weight decay added unless it is decoupled (in that case
/// `shrink` multiplies the weights instead).
template <class T>
struct Decay {
  T gradient_scale, added, shrink;

  Decay(const OptimizerStep& step, double gradient_scale)
      : gradient_scale(static_cast<T>(gradient_scale)),
        added(static_cast<T>(step.decoupled_decay ? 0 : step.weight_decay)),
        shrink(static_cast<T>(step.decoupled_decay ? 1 - step.learning_rate * step.weight_decay : 1)) {}

  template <class D, class V>
  HWY_INLINE V gradient(D d, V g, V p) const {
    return hn::MulAdd(hn::Set(d, added), p, hn::Mul(g, hn::Set(d, gradient_scale)));
  }
};

/// Adam (arXiv 1412.6980, algorithm 1), with decoupled decay as in arXiv 1711.05101, algorithm 2.
template <class T>
void adam_piece(const OptimizerStep& step, double gradient_scale, const Piece& piece) {
  const hn::ScalableTag<T> d;
  const Decay<T> decay(step, gradient_scale);
  const auto beta1 = hn::Set(d, static_cast<T>(step.beta1)),
             rest1 = hn::Set(d, static_cast<T>(1 - step.beta1));
  const auto beta2 = hn::Set(d, static_cast<T>(step.beta2)),
             rest2 = hn::Set(d, static_cast<T>(1 - step.beta2));
  const auto steps = static_cast<double>(step.step);
  const double correction1 = 1 - std::pow(step.beta1, steps), correction2 = 1 - std::pow(step.beta2, steps);
  // p -= rate m / (sqrt(v) + epsilon') is the paper's update multiplied out by sqrt(correction2).
  const auto rate = hn::Set(d, static_cast<T>(step.learning_rate * std::sqrt(correction2) / correction1));
  const auto epsilon = hn::Set(d, static_cast<T>(step.epsilon * std::sqrt(correction2)));
  const auto shrink = hn::Set(d, decay.shrink);

  T* p = step.parameters[piece.tensor].data<T>() + piece.begin;
  const T* g = step.gradients[piece.tensor].data<T>() + piece.begin;
  T* m = step.first_moment[piece.tensor].data<T>() + piece.begin;
  T* v = step.second_moment[piece.tensor].data<T>() + piece.begin;
  for_each_vector(d, piece.count, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto weight = part.load(d, p + i);
    const auto gradient = decay.gradient(d, part.load(d, g + i), weight);
    const auto first = hn::MulAdd(beta1, part.load(d, m + i), hn::Mul(rest1, gradient));
    const auto second = hn::MulAdd(beta2, part.load(d, v + i), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    const auto change = hn::Div(hn::Mul(rate, first), hn::Add(hn::Sqrt(second), epsilon));
    part.store(first, d, m + i);
    part.store(second, d, v + i);
    part.store(hn::MulSub(weight, shrink, change), d, p + i);
  });
}

/// Stochastic gradient descent; with momentum, the velocity u = momentum u + g replaces the gradient.
template <class T>
void sgd_piece(const OptimizerStep& step, double gradient_scale, const Piece& piece) {
  const hn::ScalableTag<T> d;
  const Decay<T> decay(step, gradient_scale);
  const auto momentum = hn::Set(d, static_cast<T>(step.beta1));
  const auto rate = hn::Set(d, static_cast<T>(step.learning_rate)), shrink = hn::Set(d, decay.shrink);
  T* p = step.parameters[piece.tensor].data<T>() + piece.begin;
  const T* g = step.gradients[piece.tensor].data<T>() + piece.begin;
  T* u = step.first_moment.empty() ? nullptr : step.first_moment[piece.tensor].data<T>() + piece.begin;
  for_each_vector(d, piece.count, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto weight = part.load(d, p + i);
    auto direction = decay.gradient(d, part.load(d, g + i), weight);
    if (u) {
      direction = hn::MulAdd(momentum, part.load(d, u + i), direction);
      part.store(direction, d, u + i);
    }
    part.store(hn::NegMulAdd(rate, direction, hn::Mul(weight, shrink)), d, p + i);
  });
}

double sum_of_squares(const float* x, std::int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto va = hn::PromoteTo(d, hn::LoadU(narrow, x + i));
    const auto vb = hn::PromoteTo(d, hn::LoadU(narrow, x + i + lanes));
    const auto vc = hn::PromoteTo(d, hn::LoadU(narrow, x + i + 2 * lanes));
    const auto ve = hn::PromoteTo(d, hn::LoadU(narrow, x + i + 3 * lanes));
    a = hn::MulAdd(va, va, a);
    b = hn::MulAdd(vb, vb, b);
    c = hn::MulAdd(vc, vc, c);
    e = hn::MulAdd(ve, ve, e);
  }
  double sum = lane_sum(d, hn::Add(hn::Add(a, b), hn::Add(c, e)));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

double sum_of_squares(const double* x, std::int64_t count) {
  const hn::ScalableTag<double> d;
  auto sum = hn::Zero(d);
  for_each_vector(d, count, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto v = part.load(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  });
  return lane_sum(d, sum);
}

double piece_sum_of_squares(const Tensor& tensor, const Piece& piece) {
  return tensor.dtype() == DType::f64 ? sum_of_squares(tensor.data<double>() + piece.begin, piece.count)
                                      : sum_of_squares(tensor.data<float>() + piece.begin, piece.count);
}

/// Updates a piece of the parameters.
using Update = void (*)(const OptimizerStep& step, double gradient_scale, const Piece& piece);

Update adam_update(DType dtype) {
  return dtype == DType::f64 ? adam_piece<double> : adam_piece<float>;
}

Update sgd_update(DType dtype) {
  return dtype == DType::f64 ? sgd_piece<double> : sgd_piece<float>;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

/// All elements of all tensors, cut into pieces that depend only on the shapes.
std::vector<Piece> cut_into_pieces(std::span<const Tensor> tensors) {
  constexpr std::int64_t piece_size = 32768;
  std::vector<Piece> pieces;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::int64_t count = tensors[t].count();
    for (std::int64_t i = 0; i < count; i += piece_size)
      pieces.push_back({t, i, std::min(piece_size, count - i)});
  }
  return pieces;
}

double total_bytes(std::span<const Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

/// Calls body(index) for every piece on the pool, or on this thread if all pieces together are small.
template <class Body>
void for_each_piece(const std::vector<Piece>& pieces, Body body) {
  std::int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.count;
  const auto count = static_cast<std::int64_t>(pieces.size());
  const std::int64_t grain = total <= 32768 ? std::max<std::int64_t>(1, count) : 1;
  parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(static_cast<std::size_t>(i));
  });
}

/// Runs an update. `optimizer_update` gives the function for parameters of a type; `passes`: how often it
/// goes through their memory.
template <class UpdateOf>
void update_all(const char* name, int passes, const OptimizerStep& step, UpdateOf optimizer_update) {
  if (step.skip.defined() && step.skip.item() != 0) return;
  const ProfileScope profile(name, 0, passes * total_bytes(step.parameters));
  const double scale = step.gradient_scale.defined() ? step.gradient_scale.item() : 1;
  const std::vector<Piece> pieces = cut_into_pieces(step.parameters);
  for_each_piece(pieces, [&](std::size_t i) {
    optimizer_update(step.parameters[pieces[i].tensor].dtype())(step, scale, pieces[i]);
  });
}

}  // namespace

HWY_EXPORT(adam_update);
HWY_EXPORT(sgd_update);
HWY_EXPORT(piece_sum_of_squares);

void adam(const OptimizerStep& step) {
  update_all("adam", 7, step, HWY_DYNAMIC_DISPATCH(adam_update));
}

void sgd(const OptimizerStep& step) {
  update_all("sgd", step.first_moment.empty() ? 3 : 5, step, HWY_DYNAMIC_DISPATCH(sgd_update));
}

void sums_of_squares(std::span<const Tensor> tensors, const Tensor& out) {
  const ProfileScope profile("sums_of_squares", 0, total_bytes(tensors));
  const std::vector<Piece> pieces = cut_into_pieces(tensors);
  std::vector<double> partial(pieces.size());
  for_each_piece(pieces, [&](std::size_t i) {
    partial[i] = HWY_DYNAMIC_DISPATCH(piece_sum_of_squares)(tensors[pieces[i].tensor], pieces[i]);
  });
  double* sums = out.data<double>();
  std::fill_n(sums, tensors.size(), 0.0);
  for (std::size_t i = 0; i < pieces.size(); ++i) sums[pieces[i].tensor] += partial[i];
}

}  // namespace heed::cpu
#endif
