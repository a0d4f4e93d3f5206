#include "heed/models/sparse_linear.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"
#include "heed/core/thread_pool.h"

namespace heed {
namespace {

// --- the shares of both parts

using Shares = std::array<double, 2>;
constexpr Shares first_shares = {0.2, 0.75}, deviations = {0.1, 0.2}, first_shares_of_number = {0.5, 0.5};

/// A cross entropy with its first and second derivatives by the shares.
struct ShareFit {
  double value = 0;
  Shares gradient = {};
  double deep_twice = 0, mixed = 0, sparse_twice = 0;
};

/// One sample's share in the fit: with p the softmax of z = s_0 deep + s_1 sparse and y the label,
///   dL/ds_i = E_p[part_i] - part_i[y],    d2L/ds_i ds_j = Cov_p(part_i, part_j).
void add_sample(ShareFit& fit, const Shares& shares, std::span<const float> logits, std::int32_t its_class) {
  const auto label = static_cast<std::size_t>(its_class);
  if (label >= logits.size() / 2) return;  // no class
  const std::size_t classes = logits.size() / 2;
  const std::span<const float> deep = logits.first(classes), sparse = logits.last(classes);
  const auto together = [&](std::size_t c) {
    return shares[0] * static_cast<double>(deep[c]) + shares[1] * static_cast<double>(sparse[c]);
  };
  double largest = together(0), total = 0, a = 0, b = 0, aa = 0, ab = 0, bb = 0;
  for (std::size_t c = 1; c < classes; ++c) largest = std::max(largest, together(c));
  for (std::size_t c = 0; c < classes; ++c) {
    const double p = std::exp(together(c) - largest);
    // relative to the label's, so that large logits cancel before they are squared
    const double x = static_cast<double>(deep[c]) - static_cast<double>(deep[label]);
    const double y = static_cast<double>(sparse[c]) - static_cast<double>(sparse[label]);
    total += p;
    a += p * x;
    b += p * y;
    aa += p * x * x;
    ab += p * x * y;
    bb += p * y * y;
  }
  a /= total;
  b /= total;
  fit.value += std::log(total) + largest - together(label);
  fit.gradient[0] += a;
  fit.gradient[1] += b;
  fit.deep_twice += aa / total - a * a;
  fit.mixed += ab / total - a * b;
  fit.sparse_twice += bb / total - b * b;
}

/// Adds a sample that may have any number of classes: with p_c = 1 / (1 + exp(-z_c)) and y_c 1 or 0
///   dL/ds_i = sum_c (p_c - y_c) part_i[c],    d2L/ds_i ds_j = sum_c p_c (1 - p_c) part_i[c] part_j[c].
void add_sample(ShareFit& fit, const Shares& shares, std::span<const float> logits,
                const std::vector<std::int32_t>& its_classes) {
  const std::size_t classes = logits.size() / 2;
  for (std::size_t c = 0; c < classes; ++c) {
    const auto a = static_cast<double>(logits[c]), b = static_cast<double>(logits[classes + c]);
    const bool has = std::ranges::count(its_classes, static_cast<std::int32_t>(c)) > 0;
    const double z = shares[0] * a + shares[1] * b, sign = has ? -1 : 1;
    const double p = 1 / (1 + std::exp(-z)), slope = p * (1 - p);
    fit.value += std::max(sign * z, 0.) + std::log1p(std::exp(-std::abs(z)));
    fit.gradient[0] += (p - (has ? 1 : 0)) * a;
    fit.gradient[1] += (p - (has ? 1 : 0)) * b;
    fit.deep_twice += slope * a * a;
    fit.mixed += slope * a * b;
    fit.sparse_twice += slope * b * b;
  }
}

template <class Label>
ShareFit fit_at(const Shares& shares, std::span<const std::vector<float>> logits,
                std::span<const Label> labels) {
  ShareFit fit;
  for (std::size_t i = 0; i < logits.size(); ++i) add_sample(fit, shares, logits[i], labels[i]);
  for (const std::size_t i : {0, 1}) {  // the prior
    const double distance = (shares[i] - first_shares[i]) / deviations[i];
    fit.value += distance * distance / 2;
    fit.gradient[i] += distance / deviations[i];
    (i == 0 ? fit.deep_twice : fit.sparse_twice) += 1 / (deviations[i] * deviations[i]);
  }
  return fit;
}

/// Newton's step on the shares; one that is 0 and wants to fall stays there.
Shares newton_step(const ShareFit& fit, const Shares& shares) {
  const bool deep_stays = shares[0] == 0 && fit.gradient[0] > 0;
  const bool sparse_stays = shares[1] == 0 && fit.gradient[1] > 0;
  const double mixed = deep_stays || sparse_stays ? 0 : fit.mixed;
  const double determinant = fit.deep_twice * fit.sparse_twice - mixed * mixed;
  return {deep_stays ? 0 : (mixed * fit.gradient[1] - fit.sparse_twice * fit.gradient[0]) / determinant,
          sparse_stays ? 0 : (mixed * fit.gradient[0] - fit.deep_twice * fit.gradient[1]) / determinant};
}

// --- the solver

using Floats = std::vector<float>;
constexpr std::int64_t rows_of_task = 256, features_of_task = 2048;

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// Returns the sum of body(i) over 0 .. count - 1, in an order that depends on the count alone.
template <class Body>
double sum_over(std::int64_t count, const Body& body) {
  std::vector<double> sums(at(ceil_div(count, rows_of_task)));
  parallel_ranges(count, rows_of_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sums[at(begin / rows_of_task)] += body(i);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

/// What all problems share.
struct Data {
  const SparseSamples& samples;
  Floats weights;  // of the samples
  std::int64_t size, outputs, features, vector;

  const float* targets(std::int64_t sample) const { return &samples.targets[at(sample * outputs)]; }
  /// Calls visit(id, value) for the features of a sample.
  void for_each_feature(std::int64_t sample, const auto& visit) const {
    for (std::int64_t i = begin(sample); i < samples.ends[at(sample)]; ++i)
      visit(at(samples.ids[at(i)]), samples.values[at(i)]);
  }
  std::int64_t begin(std::int64_t sample) const { return sample == 0 ? 0 : samples.ends[at(sample - 1)]; }
};

/// Returns the weights of features, as SparseLinear::fit() defines them, from the samples with a weight
/// above 0. The count ratio of feature f is the largest, over the classes c, of
///
///   |log((1 + n_fc) / (w + N_c) (w + N - N_c) / (1 + n_f - n_fc))|
///
/// where n_fc samples of c have f, N_c is the sum of n_fc, and w the number of features.
Floats weigh_features(const Data& data, const Floats& weights, SparseLinear::Weighting weighting) {
  const bool uses_ratios = weighting.uses_ratios;
  const std::size_t k = at(data.outputs);
  std::vector<double> counts(at(data.features)), totals(k);
  Floats of_class(at(data.features) * k);
  double all = 0, width = 0, total = 0;
  for (std::int64_t sample = 0; sample < data.size; ++sample) {
    if (weights[at(sample)] == 0) continue;
    ++all;
    data.for_each_feature(sample, [&](std::size_t id, float) {
      ++counts[id];
      if (!uses_ratios) return;
      for (std::size_t c = 0; c < k; ++c) of_class[id * k + c] += data.targets(sample)[c];
    });
  }
  for (std::size_t id = 0; id < counts.size(); ++id) {
    width += counts[id] > 0 ? 1 : 0;
    total += counts[id];
    for (std::size_t c = 0; c < k; ++c) totals[c] += static_cast<double>(of_class[id * k + c]);
  }
  const std::int64_t numbers = SparseLinear::group_ends(data.features, data.vector)[1];
  Floats found;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    const bool has_ratio = uses_ratios && static_cast<std::int64_t>(id) < numbers;
    double ratio = has_ratio ? 0 : 1;
    for (std::size_t c = 0; has_ratio && c < k; ++c) {
      const auto count = static_cast<double>(of_class[id * k + c]);
      const double inside = (1 + count) / (width + totals[c]);
      const double outside = (1 + counts[id] - count) / (width + total - totals[c]);
      ratio = std::max(ratio, std::abs(std::log(inside / outside)));
    }
    found.push_back(static_cast<float>(ratio * (1 + std::log((1 + all) / (1 + counts[id])))));
  }
  if (!weighting.uses_vector) std::fill_n(found.begin() + numbers, data.vector, 0.F);
  return found;
}

/// A sparse matrix, row by row.
struct Rows {
  std::vector<std::int64_t> begins = {0};
  std::vector<std::int32_t> columns;
  Floats values;

  /// Returns this matrix times x [columns, wide].
  Floats times(const Floats& x, std::int64_t wide, std::int64_t rows_at_once) const {
    const std::int64_t size = std::ssize(begins) - 1;
    Floats result(at(size * wide));
    parallel_ranges(size, rows_at_once, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t c = 0; c < wide;) {
          const auto add = wide - c >= 8   ? &Rows::add_products<8>
                           : wide - c >= 4 ? &Rows::add_products<4>
                           : wide - c >= 2 ? &Rows::add_products<2>
                                           : &Rows::add_products<1>;
          c += (this->*add)(row, &x[at(c)], wide, &result[at(row * wide + c)]);
        }
    });
    return result;
  }
  /// Computes `count` elements of a row of the product, in registers. Returns `count`.
  template <int count>
  std::int64_t add_products(std::int64_t row, const float* x, std::int64_t wide, float* result) const {
    float sums[count] = {};
    for (std::int64_t i = begins[at(row)]; i < begins[at(row + 1)]; ++i) {
      const float value = values[at(i)];
      const float* const factors = x + columns[at(i)] * wide;
      for (int c = 0; c < count; ++c) sums[c] += value * factors[c];
    }
    std::copy_n(sums, count, result);
    return count;
  }
};

/// The matrix X of eq. 1 by sample, and by feature.
struct Matrix {
  Rows by_sample, by_feature;

  Matrix(const Data& data, const Floats& weights) {
    const auto ends = SparseLinear::group_ends(data.features, data.vector);
    by_feature.begins.resize(at(data.features + 1));
    for (std::int64_t sample = 0; sample < data.size; ++sample) {
      std::array<double, SparseLinear::groups> squares{};
      const auto group = [&](std::size_t id) {
        return at(std::ranges::upper_bound(ends, static_cast<std::int64_t>(id)) - ends.begin());
      };
      data.for_each_feature(sample, [&](std::size_t id, float value) {
        squares[group(id)] += std::pow(static_cast<double>(value) * static_cast<double>(weights[id]), 2);
      });
      data.for_each_feature(sample, [&](std::size_t id, float value) {
        const double weighted = static_cast<double>(value) * static_cast<double>(weights[id]);
        by_sample.columns.push_back(static_cast<std::int32_t>(id));
        by_sample.values.push_back(
            weighted == 0 ? 0 : static_cast<float>(weighted / std::sqrt(2 * squares[group(id)])));
        ++by_feature.begins[id + 1];
      });
      by_sample.begins.push_back(std::ssize(by_sample.columns));
    }
    std::partial_sum(by_feature.begins.begin(), by_feature.begins.end(), by_feature.begins.begin());
    by_feature.columns.resize(by_sample.columns.size());
    by_feature.values.resize(by_sample.columns.size());
    std::vector<std::int64_t> next = by_feature.begins;
    for (std::int64_t sample = 0; sample < data.size; ++sample)
      for (std::int64_t i = by_sample.begins[at(sample)]; i < by_sample.begins[at(sample + 1)]; ++i) {
        const std::size_t place = at(next[at(by_sample.columns[at(i)])]++);
        by_feature.columns[place] = static_cast<std::int32_t>(sample);
        by_feature.values[place] = by_sample.values[at(i)];
      }
  }
};

/// A U = X^T a, as the coefficients a [n, K] of the samples, with X U = X X^T a.
struct Point {
  Floats a, logits;
};

/// Returns scale one + factor other.
Point combined(double scale, const Point& one, double factor, const Point& other) {
  const auto s = static_cast<float>(scale), f = static_cast<float>(factor);
  Point sum = one;
  for (std::size_t i = 0; i < sum.a.size(); ++i) {
    sum.a[i] = s * one.a[i] + f * other.a[i];
    sum.logits[i] = s * one.logits[i] + f * other.logits[i];
  }
  return sum;
}

/// The inner product of two U.
double dot(const Point& one, const Point& other) {
  return sum_over(std::ssize(one.a), [&](std::int64_t i) {
    return static_cast<double>(one.a[at(i)]) * static_cast<double>(other.logits[at(i)]);
  });
}

/// Minimizes eq. 1 for samples with these weights, 0 for one that is left out, by L-BFGS (Nocedal and
/// Wright 2006, algorithm 7.4). All its vectors are Points: a step needs one product with X X^T, that of
/// the gradient, and a line search none.
class Problem {
 public:
  Problem(const Data& data, Floats weights, SparseLinear::Weighting weighting)
      : data_(data),
        weights_(std::move(weights)),
        feature_weights_(weigh_features(data, weights_, weighting)),
        matrix_(data, feature_weights_),
        u_{Floats(at(data.size * data.outputs)), Floats(at(data.size * data.outputs))} {}

  /// Goes on from the present U to the minimum for C, where the gradient is `tolerance` of the first one.
  void solve(double strength, double tolerance) {
    strength_ = strength;
    std::vector<Step> history;
    double value = value_along(u_, 0), first_norm = 0;
    Point gradient = gradient_here();
    for (int step = 0; step < 100; ++step) {
      const double norm = dot(gradient, gradient);
      first_norm = std::max(first_norm, norm);
      if (norm <= tolerance * tolerance * first_norm) return;
      const Point direction = quasi_newton_direction(gradient, history);
      const double slope = dot(gradient, direction), curvature = curvature_along(direction);
      double length = slope > 0 && curvature > 0 ? -slope / curvature : 0,
             next = value_along(direction, length);
      for (int tries = 0; !(next < value) && tries < 20; ++tries) next = value_along(direction, length /= 2);
      if (!(next < value)) return;
      value = next;
      u_ = combined(1, u_, length, direction);
      Point there = gradient_here();
      Step taken{combined(length, direction, 0, direction), combined(1, there, -1, gradient), 0};
      taken.product = dot(taken.step, taken.change);
      gradient = std::move(there);
      if (!(taken.product > 1e-12 * dot(taken.change, taken.change))) continue;
      if (history.size() == 6) history.erase(history.begin());
      history.push_back(std::move(taken));
    }
  }
  /// Returns the logits of a sample, times a factor.
  Floats logits(std::int64_t sample, double factor) const {
    const float* const own = &u_.logits[at(sample * data_.outputs)];
    Floats found(own, own + data_.outputs);
    for (float& z : found) z *= static_cast<float>(factor);
    return found;
  }
  /// The loss of a sample with these logits, as OutputKind says.
  double loss(std::int64_t sample, const Floats& logits) const {
    const float* const y = data_.targets(sample);
    const OutputKind kind = data_.samples.kind;
    double sum = 0, total = 0;
    const double largest = kind == OutputKind::classes ? *std::ranges::max_element(logits) : 0;
    for (std::size_t c = 0; c < logits.size(); ++c) {
      const double z = static_cast<double>(logits[c]) - largest, target = y[c];
      if (kind == OutputKind::numbers)
        sum += (z - target) * (z - target) / 2;
      else if (kind == OutputKind::decisions)
        sum += std::max(z, 0.) + std::log1p(std::exp(-std::abs(z))) - z * target;
      else
        total += std::exp(z), sum -= z * target;
    }
    return kind == OutputKind::classes ? sum + std::log(total) : sum;
  }
  /// Returns U [features, K].
  Floats table() const { return matrix_.by_feature.times(u_.a, data_.outputs, features_of_task); }
  const Floats& feature_weights() const { return feature_weights_; }

 private:
  struct Step {
    Point step, change;  // of U; of the gradient
    double product = 0;
  };

  /// Returns the means of the targets that these logits predict.
  Floats means(Floats logits) const {
    if (data_.samples.kind == OutputKind::decisions)
      for (float& z : logits) z = 1 / (1 + std::exp(-z));
    if (data_.samples.kind != OutputKind::classes) return logits;
    const float largest = *std::ranges::max_element(logits);
    float total = 0;
    for (float& z : logits) total += z = std::exp(z - largest);
    for (float& z : logits) z /= total;
    return logits;
  }
  double weight(std::int64_t sample) const { return strength_ * static_cast<double>(weights_[at(sample)]); }
  /// The value of eq. 1 at U + length direction.
  double value_along(const Point& direction, double length) const {
    const auto t = static_cast<float>(length);
    return sum_over(data_.size, [&](std::int64_t sample) {
      Floats z = logits(sample, 1);
      double square = 0;
      for (std::size_t c = 0; c < z.size(); ++c) {
        const std::size_t i = at(sample) * z.size() + c;
        z[c] += t * direction.logits[i];
        square += static_cast<double>(u_.a[i] + t * direction.a[i]) * static_cast<double>(z[c]);
      }
      return square / 2 + (weight(sample) > 0 ? weight(sample) * loss(sample, z) : 0);
    });
  }
  /// The second derivative by the length, at U: with the variance of the direction's logits under p.
  double curvature_along(const Point& direction) const {
    return dot(direction, direction) + sum_over(data_.size, [&](std::int64_t sample) {
             if (weight(sample) == 0) return 0.;
             const Floats p = means(logits(sample, 1));
             double mean = 0, squares = 0;
             for (std::size_t c = 0; c < p.size(); ++c) {
               const double x = direction.logits[at(sample) * p.size() + c], q = p[c];
               const OutputKind kind = data_.samples.kind;
               mean += kind == OutputKind::classes ? q * x : 0;
               squares += x * x *
                          (kind == OutputKind::numbers   ? 1
                           : kind == OutputKind::classes ? q
                                                         : q - q * q);
             }
             return weight(sample) * (squares - mean * mean);
           });
  }
  Point gradient_here() const {
    Point gradient = u_;
    parallel_ranges(data_.size, rows_of_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) {
        if (weight(sample) == 0) continue;
        const Floats p = means(logits(sample, 1));
        for (std::size_t c = 0; c < p.size(); ++c)
          gradient.a[at(sample) * p.size() + c] +=
              static_cast<float>(weight(sample)) * (p[c] - data_.targets(sample)[c]);
      }
    });
    gradient.logits = matrix_.by_sample.times(
        matrix_.by_feature.times(gradient.a, data_.outputs, features_of_task), data_.outputs, rows_of_task);
    return gradient;
  }
  /// The two loops over the history.
  static Point quasi_newton_direction(const Point& gradient, const std::vector<Step>& history) {
    Point direction = gradient;
    std::vector<double> factors(history.size());
    for (std::size_t i = history.size(); i-- > 0;) {
      factors[i] = dot(history[i].step, direction) / history[i].product;
      direction = combined(1, direction, -factors[i], history[i].change);
    }
    if (history.empty()) return direction;
    const Step& last = history.back();
    direction = combined(last.product / dot(last.change, last.change), direction, 0, direction);
    for (std::size_t i = 0; i < history.size(); ++i)
      direction = combined(1, direction, factors[i] - dot(history[i].change, direction) / history[i].product,
                           history[i].step);
    return direction;
  }

  const Data& data_;
  const Floats weights_, feature_weights_;
  const Matrix matrix_;
  Point u_;
  double strength_ = 1;
};

/// Problems that each leave out the samples of a fold: as many of five as leave out 1,000 samples.
class Folds {
 public:
  Folds(const Data& data, SparseLinear::Weighting weighting) : data_(data) {
    constexpr std::int64_t folds = 5, wanted = 1000;
    const std::int64_t used = std::min(ceil_div(wanted * folds, data.size), folds);
    std::vector<Floats> weights(at(used), data.weights);
    const auto& groups = data.samples.groups;
    for (std::int64_t sample = 0; sample < data.size; ++sample) {
      const auto group = static_cast<std::uint64_t>(groups.empty() ? sample : groups[at(sample)]);
      const auto fold = static_cast<std::int64_t>(below(random_word({}, group), folds));
      if (fold >= used) continue;
      weights[at(fold)][at(sample)] = 0;
      left_out_.push_back({sample, at(fold)});
      total_ += static_cast<double>(data.weights[at(sample)]);
    }
    problems_.reserve(weights.size());  // moving one would copy its matrix
    for (Floats& own : weights) problems_.emplace_back(data, std::move(own), weighting);
  }

  struct Result {
    double loss = 0, factor = 1;
  };
  /// Returns the mean loss of samples left out, with the factor of their logits that makes it least.
  Result evaluate(double strength) {
    for (Problem& problem : problems_) problem.solve(strength, 3e-3);
    const auto loss_at = [&](double log_factor) {
      return sum_over(std::ssize(left_out_), [&](std::int64_t i) {
        const auto& [sample, fold] = left_out_[at(i)];
        const Problem& problem = problems_[fold];
        return static_cast<double>(data_.weights[at(sample)]) *
               problem.loss(sample, problem.logits(sample, std::exp(log_factor)));
      });
    };
    const double best = minimum_between(std::log(0.1), std::log(4.), 0.01, loss_at);
    return {loss_at(best) / std::max(total_, 1e-30), std::exp(best)};
  }

 private:
  struct LeftOut {
    std::int64_t sample;
    std::size_t fold;
  };
  const Data& data_;
  double total_ = 0;
  std::vector<LeftOut> left_out_;
  std::vector<Problem> problems_;
};

}  // namespace

void SparseLinear::overwrite(const Tensor& tensor, std::span<const float> values) {
  if (tensor.dtype() != DType::f64) return tensor.assign(values);
  const std::vector<double> wide(values.begin(), values.end());
  tensor.assign(std::span<const double>(wide));
}

void SparseSamples::add(std::span<const std::int32_t> row_ids, std::span<const float> row_values) {
  check(row_ids.size() == row_values.size(), "a sparse vector has ", row_ids.size(), " ids and ",
        row_values.size(), " values");
  ids.insert(ids.end(), row_ids.begin(), row_ids.end());
  values.insert(values.end(), row_values.begin(), row_values.end());
  ends.push_back(std::ssize(ids));
}

std::array<std::int64_t, SparseLinear::groups> SparseLinear::group_ends(std::int64_t features,
                                                                        std::int64_t vector) {
  const std::int64_t numbers = std::min<std::int64_t>(64, (features - vector + 3) / 4) + vector;
  return {(features - numbers) / 2, features - numbers, features};
}

SparseLinear::SparseLinear(std::int64_t features, std::int64_t classes, std::int64_t vector)
    : vector_(vector) {
  constexpr std::int64_t most_elements = 1 << 25;
  const std::int64_t rows =
      std::min(features, std::max<std::int64_t>(most_elements / classes, 1024)) + vector;
  add_parameter("weight", weight, Initialiser::constant({rows, classes}, 0));
  add_buffer("features", feature_weights, Initialiser::constant({rows, groups}, 0));
  if (!ShapesOnly::active()) set_feature_weights(Floats(at(rows), 1.F));
  const Shares& first = classes == 1 ? first_shares_of_number : first_shares;
  add_buffer("shares", shares, Tensor::from(std::vector<float>{first.begin(), first.end()}, {2}));
}

/// Sets the weights of the features, each in the column of its group.
void SparseLinear::set_feature_weights(const std::vector<float>& weights) {
  const auto ends = group_ends(std::ssize(weights), vector_);
  Floats table(groups * weights.size());
  for (std::size_t row = 0, group = 0; row < weights.size(); ++row) {
    while (static_cast<std::int64_t>(row) >= ends[group]) ++group;
    table[groups * row + group] = weights[row];
  }
  overwrite(feature_weights, table);
}

Tensor SparseLinear::operator()(const SparseBatch& batch) const {
  check(batch.ids.defined(), "the model reads sparse features and tokens, but there are no features");
  const std::int64_t rows = batch.ids.size(0), width = batch.ids.size(1);
  const Tensor values = reshape(cast(batch.values, weight.dtype()), {rows, width, 1});
  const Tensor weighted = values * embedding(feature_weights, batch.ids);  // [B, F, groups]
  const Tensor scaled = sum(weighted * rsqrt(sum(square(weighted), 1, true) * 2 + 1e-30), -1);
  const Tensor logits = matmul(reshape(scaled, {rows, 1, width}), embedding(weight, batch.ids));
  return reshape(logits, {rows, weight.size(1)}) * table_scale;
}

SparseLinear::Fit SparseLinear::fit(const SparseSamples& samples) {
  const std::int64_t features = weight.size(0), n = samples.size(), k = weight.size(1);
  check(n > 0, "a linear part needs samples, got none");
  check(std::ssize(samples.targets) == n * k &&
            (samples.weights.empty() || std::ssize(samples.weights) == n) &&
            (samples.groups.empty() || std::ssize(samples.groups) == n),
        "a linear part with ", k, " outputs needs ", n * k, " targets for ", n,
        " samples, and a weight and a group for each or none; got ", samples.targets.size(), ", ",
        samples.weights.size(), " and ", samples.groups.size());
  for (const std::int32_t id : samples.ids)
    check(id >= 0 && id < features, "sparse feature ", id, " is not one of the ", features, " of the model");
  Data data{samples, samples.weights, n, k, features, vector_};
  if (data.weights.empty()) data.weights.assign(at(n), 1.F);
  constexpr std::int64_t too_few = 20, many_outputs = 64;
  Fit best{n < too_few ? 8. : 0.};
  double factor = 1;
  const auto try_weighting = [&](Weighting weighting) {
    Folds folds(data, weighting);
    double last = std::numeric_limits<double>::infinity();
    for (const double strength : {0.125, 0.5, 2., 8., 32., 128.}) {
      if (k > many_outputs && strength < 2) continue;
      if (strength < best.strength / 4) continue;
      const Folds::Result result = folds.evaluate(strength);
      if (best.strength == 0 || result.loss < best.loss) {
        best = {strength, weighting, result.loss};
        factor = result.factor;
      }
      if (!(result.loss < last)) break;
      last = result.loss;
    }
  };
  if (n >= too_few) {
    try_weighting({});
    if (samples.kind != OutputKind::numbers && k <= many_outputs) try_weighting({.uses_ratios = true});
    if (vector_ > 0) try_weighting({.uses_ratios = best.weighting.uses_ratios, .uses_vector = false});
  }
  Problem whole(data, data.weights, best.weighting);
  whole.solve(best.strength, 5e-5);
  Floats table = whole.table();
  for (float& one : table) one *= static_cast<float>(factor / table_scale);
  overwrite(weight.detach(), table);
  set_feature_weights(whole.feature_weights());
  return best;
}

template <class Label>
void SparseLinear::fit_to(std::span<const std::vector<float>> logits, std::span<const Label> labels) {
  check(logits.size() == labels.size(), "shares: ", logits.size(), " samples have ", labels.size(),
        " labels");
  Shares found = first_shares;
  ShareFit fit = fit_at(found, logits, labels);
  for (int step = 0; step < 100; ++step) {
    const Shares direction = newton_step(fit, found);
    bool improved = false;
    for (double length = 1; length > 1e-6 && !improved; length /= 2) {
      const Shares next = {std::max(0., found[0] + length * direction[0]),
                           std::max(0., found[1] + length * direction[1])};
      const ShareFit its_fit = fit_at(next, logits, labels);
      improved = its_fit.value < fit.value - 1e-9;
      if (improved) std::tie(found, fit) = std::tie(next, its_fit);
    }
    if (!improved) break;
  }
  set_shares(found);
}

void SparseLinear::fit_shares(std::span<const std::vector<float>> logits,
                              std::span<const std::int32_t> labels) {
  fit_to(logits, labels);
}

void SparseLinear::fit_shares(std::span<const std::vector<float>> logits,
                              std::span<const std::vector<std::int32_t>> labels) {
  fit_to(logits, labels);
}

/// Fits by least squares, with the same prior. A negative share becomes 0, and the other is fitted
/// alone.
void SparseLinear::fit_shares(std::span<const std::vector<float>> outputs, std::span<const float> targets) {
  check(outputs.size() == targets.size(), "shares: ", outputs.size(), " samples have ", targets.size(),
        " targets");
  double aa = 0, ab = 0, bb = 0, at = 0, bt = 0;
  const auto add = [&](double a, double b, double target) {
    aa += a * a, ab += a * b, bb += b * b, at += a * target, bt += b * target;
  };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    add(static_cast<double>(outputs[i][0]), static_cast<double>(outputs[i][1]),
        static_cast<double>(targets[i]));
  const auto& [a, b] = first_shares_of_number;
  add(1 / a, 0, 1);
  add(0, 1 / b, 1);
  const double determinant = aa * bb - ab * ab;
  const double deep = (at * bb - bt * ab) / determinant, sparse = (bt * aa - at * ab) / determinant;
  set_shares(deep < 0     ? Shares{0, std::max(0., bt / bb)}
             : sparse < 0 ? Shares{std::max(0., at / aa), 0}
                          : Shares{deep, sparse});
}

void SparseLinear::set_shares(const Shares& found) {
  const Tensor values = Tensor::from(std::vector<double>{found[0], found[1]}, {2});
  shares = values.to(shares.dtype()).to(shares.device());
}

}  // namespace heed
