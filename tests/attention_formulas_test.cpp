// Mechanisms that sum up tokens, transform them or stand landmarks for them, against the formulas of their
// papers: plain loops over doubles, which share no code with the library.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/model_support.h"

using namespace heed;
using namespace heed::test;

namespace {

constexpr std::int64_t width = 8, heads = 2, head_width = width / heads;

// --- plain arithmetic

struct Matrix {
  Matrix(std::size_t row_count, std::size_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count, 0.0) {}
  double& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
  double operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }

  std::size_t rows, columns;
  std::vector<double> values;
};

Matrix product(const Matrix& a, const Matrix& b, bool transpose_b = false) {
  Matrix c(a.rows, transpose_b ? b.rows : b.columns);
  for (std::size_t i = 0; i < c.rows; ++i)
    for (std::size_t j = 0; j < c.columns; ++j)
      for (std::size_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * (transpose_b ? b(j, k) : b(k, j));
  return c;
}

/// Row by row, e^scores / sum.
void normalise_rows(Matrix& scores, bool exponentiate) {
  for (std::size_t i = 0; i < scores.rows; ++i) {
    double total = 0;
    for (std::size_t j = 0; j < scores.columns; ++j) {
      if (exponentiate) scores(i, j) = std::exp(scores(i, j));
      total += scores(i, j);
    }
    for (std::size_t j = 0; j < scores.columns; ++j) scores(i, j) /= total;
  }
}

/// The columns of one head, for the tokens of this sample.
Matrix head_of(const Matrix& x, std::size_t head) {
  const std::size_t columns = x.columns / heads;
  Matrix part(x.rows, columns);
  for (std::size_t i = 0; i < x.rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) part(i, j) = x(i, head * columns + j);
  return part;
}

void put_head(const Matrix& part, std::size_t head, Matrix& all) {
  for (std::size_t i = 0; i < part.rows; ++i)
    for (std::size_t j = 0; j < part.columns; ++j) all(i, head * part.columns + j) = part(i, j);
}

// --- one sample: its real tokens, and a layer's numbers

struct Sample {
  Matrix x;                         // of the real tokens
  std::vector<std::size_t> places;  // theirs in the padded sequence
};

std::vector<Sample> samples_of(const Tensor& x, const Tensor& mask) {
  const std::vector<double> values = x.to_doubles();
  const auto batch = static_cast<std::size_t>(x.size(0)), length = static_cast<std::size_t>(x.size(1));
  const auto real =
      mask.defined() ? mask.to_vector<std::int32_t>() : std::vector<std::int32_t>(batch * length, 1);
  std::vector<Sample> samples;
  for (std::size_t b = 0; b < batch; ++b) {
    std::vector<std::size_t> places;
    for (std::size_t n = 0; n < length; ++n)
      if (real[b * length + n]) places.push_back(n);
    Matrix rows(places.size(), width);
    for (std::size_t i = 0; i < places.size(); ++i)
      for (std::size_t j = 0; j < width; ++j) rows(i, j) = values[(b * length + places[i]) * width + j];
    samples.push_back({rows, places});
  }
  return samples;
}

class Numbers {
 public:
  explicit Numbers(Attention& layer) {
    for (const NamedTensor& entry : layer.state())
      values_.emplace(entry.name, std::make_pair(entry.tensor->shape(), entry.tensor->to_doubles()));
  }
  Matrix matrix(const std::string& name) const {
    const auto& [shape, numbers] = values_.at(name);
    Matrix m(static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1]));
    m.values = numbers;
    return m;
  }
  /// x W^T + b
  Matrix map(const std::string& name, const Matrix& x) const {
    Matrix y = product(x, matrix(name + ".weight"), true);
    const std::vector<double>& bias = values_.at(name + ".bias").second;
    for (std::size_t i = 0; i < y.rows; ++i)
      for (std::size_t j = 0; j < y.columns; ++j) y(i, j) += bias[j];
    return y;
  }

 private:
  std::map<std::string, std::pair<Shape, std::vector<double>>> values_;
};

/// O of the real tokens of a sample x, with a memory y (x itself in self-attention).
using Formula = std::function<Matrix(const Numbers& layer, const Sample& x, const Sample& y, bool causal)>;

/// Weights(i, j) over all pairs of a head become O, with rows that sum to 1.
Formula of_weights(
    std::function<double(const Numbers&, const std::vector<double>& q, const std::vector<double>& k)>
        weight) {
  return [weight](const Numbers& layer, const Sample& x, const Sample& y, bool causal) {
    const Matrix q = layer.map("query", x.x), k = layer.map("key", y.x), v = layer.map("value", y.x);
    Matrix merged(x.x.rows, width);
    for (std::size_t h = 0; h < heads; ++h) {
      const Matrix qh = head_of(q, h), kh = head_of(k, h);
      Matrix weights(qh.rows, kh.rows);
      for (std::size_t i = 0; i < qh.rows; ++i)
        for (std::size_t j = 0; j < kh.rows; ++j) {
          if (causal && j > i) continue;
          std::vector<double> a, b;
          for (std::size_t c = 0; c < head_width; ++c) a.push_back(qh(i, c)), b.push_back(kh(j, c));
          weights(i, j) = weight(layer, a, b);
        }
      normalise_rows(weights, false);
      put_head(product(weights, head_of(v, h)), h, merged);
    }
    return layer.map("output", merged);
  };
}

Formula linear_transformer() {
  return of_weights([](const Numbers&, const std::vector<double>& q, const std::vector<double>& k) {
    const auto phi = [](double x) { return (x > 0 ? x : std::exp(x) - 1) + 1; };
    double sum = 0;
    for (std::size_t c = 0; c < q.size(); ++c) sum += phi(q[c]) * phi(k[c]);
    return sum;
  });
}

Formula performer() {
  return of_weights([](const Numbers& layer, const std::vector<double>& q, const std::vector<double>& k) {
    const Matrix w = layer.matrix("features");
    const auto phi = [&](const std::vector<double>& x, std::size_t r) {
      double along = 0, square = 0;
      for (std::size_t c = 0; c < x.size(); ++c) {
        const double scaled = x[c] / std::pow(head_width, 0.25);
        along += w(r, c) * scaled;
        square += scaled * scaled;
      }
      return std::exp(along - square / 2) / std::sqrt(static_cast<double>(w.rows));
    };
    double sum = 0;
    for (std::size_t r = 0; r < w.rows; ++r) sum += phi(q, r) * phi(k, r);
    return sum;
  });
}

/// silu(gate) times the sums of each head, normalised by themselves, times Wo. weight(h, i, j) is between the
/// tokens i and j of the sample.
Matrix gated_sums(const Numbers& layer, const Sample& x, bool causal,
                  const std::function<double(std::size_t h, std::size_t i, std::size_t j)>& weight) {
  const Matrix v = layer.map("value", x.x), gate = layer.map("gate", x.x);
  Matrix merged(x.x.rows, v.columns);
  for (std::size_t h = 0; h < heads; ++h) {
    Matrix weights(x.x.rows, x.x.rows);
    for (std::size_t i = 0; i < weights.rows; ++i)
      for (std::size_t j = 0; j < (causal ? i + 1 : weights.rows); ++j) weights(i, j) = weight(h, i, j);
    Matrix sums = product(weights, head_of(v, h));
    for (std::size_t i = 0; i < sums.rows; ++i) {
      double mean = 0, square = 0;
      const auto count = static_cast<double>(sums.columns);
      for (std::size_t c = 0; c < sums.columns; ++c) mean += sums(i, c) / count;
      for (std::size_t c = 0; c < sums.columns; ++c)
        square += (sums(i, c) - mean) * (sums(i, c) - mean) / count;
      for (std::size_t c = 0; c < sums.columns; ++c)
        sums(i, c) = (sums(i, c) - mean) / std::sqrt(square + 1e-5);
    }
    put_head(sums, h, merged);
  }
  for (std::size_t i = 0; i < merged.values.size(); ++i)
    merged.values[i] *= gate.values[i] / (1 + std::exp(-gate.values[i]));
  return layer.map("output", merged);
}

Matrix retnet(const Numbers& layer, const Sample& x, const Sample&, bool causal) {
  const auto rotated = [&](Matrix t) {
    for (std::size_t i = 0; i < t.rows; ++i)
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t c = 0; c < head_width / 2; ++c) {
          const double angle =
              static_cast<double>(x.places[i]) * std::pow(10000, -2.0 * static_cast<double>(c) / head_width);
          double &a = t(i, h * head_width + c), &b = t(i, h * head_width + c + head_width / 2);
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = a * std::sin(angle) + b * std::cos(angle);
          a = turned;
        }
    return t;
  };
  const Matrix q = rotated(layer.map("query", x.x)), k = rotated(layer.map("key", x.x));
  return gated_sums(layer, x, causal, [&](std::size_t h, std::size_t i, std::size_t j) {
    const double distance = static_cast<double>(x.places[i]) - static_cast<double>(x.places[j]);
    double weight = 0;
    for (std::size_t c = h * head_width; c < (h + 1) * head_width; ++c) weight += q(i, c) * k(j, c);
    return weight / std::sqrt(static_cast<double>(head_width)) *
           std::pow(1 - std::pow(2, -5.0 - static_cast<double>(h)), std::abs(distance));
  });
}

Matrix gated_linear(const Numbers& layer, const Sample& x, const Sample&, bool causal) {
  const Matrix q = layer.map("query", x.x), k = layer.map("key", x.x);
  const Matrix fading = layer.map("fade_out", product(x.x, layer.matrix("fade_in.weight"), true));
  const auto alpha = [&](std::size_t t, std::size_t c) {
    return std::pow(1 / (1 + std::exp(-fading(t, c))), 1.0 / 16);
  };
  const std::size_t key_width = head_width / 2;
  return gated_sums(layer, x, causal, [&](std::size_t h, std::size_t i, std::size_t j) {
    double weight = 0;
    for (std::size_t c = h * key_width; c < (h + 1) * key_width; ++c) {
      double kept = 1;  // from j to i, or back
      for (std::size_t t = j + 1; t <= i; ++t) kept *= alpha(t, c);
      for (std::size_t t = i; t < j; ++t) kept *= alpha(t, c);
      weight += q(i, c) * k(j, c) * kept;
    }
    return weight / std::sqrt(static_cast<double>(key_width));
  });
}

/// window 0: the simple form; a window as long as the sequence: the full one.
Formula attention_free(std::size_t window) {
  return [window](const Numbers& layer, const Sample& x, const Sample&, bool causal) {
    const Matrix q = layer.map("query", x.x), k = layer.map("key", x.x), v = layer.map("value", x.x);
    Matrix out(x.x.rows, width);
    for (std::size_t i = 0; i < x.x.rows; ++i)
      for (std::size_t c = 0; c < width; ++c) {
        double upper = 0, lower = 0;
        for (std::size_t j = 0; j < (causal ? i + 1 : x.x.rows); ++j) {
          double bias = 0;
          const std::size_t a = x.places[i], b = x.places[j];
          if (std::max(a, b) - std::min(a, b) < window) {
            const Matrix of_queries = layer.matrix("of_queries"), of_keys = layer.matrix("of_keys");
            for (std::size_t r = 0; r < of_keys.columns; ++r) bias += of_queries(a, r) * of_keys(b, r);
          }
          upper += std::exp(k(j, c) + bias) * v(j, c);
          lower += std::exp(k(j, c) + bias);
        }
        out(i, c) = upper / lower / (1 + std::exp(-q(i, c)));
      }
    return layer.map("output", out);
  };
}

Matrix local(const Numbers& layer, const Sample& x, const Sample&, bool causal) {
  constexpr std::size_t reach = 3;
  const Matrix q = layer.map("query", x.x), k = layer.map("key", x.x), v = layer.map("value", x.x);
  Matrix merged(x.x.rows, width);
  for (std::size_t h = 0; h < heads; ++h) {
    Matrix weights = product(head_of(q, h), head_of(k, h), true);
    for (std::size_t i = 0; i < weights.rows; ++i)
      for (std::size_t j = 0; j < weights.columns; ++j) {
        const std::size_t a = x.places[i], b = x.places[j];
        const bool seen = std::max(a, b) - std::min(a, b) <= reach && (!causal || j <= i);
        weights(i, j) = seen ? std::exp(weights(i, j) / std::sqrt(static_cast<double>(head_width))) : 0;
      }
    normalise_rows(weights, false);
    put_head(product(weights, head_of(v, h)), h, merged);
  }
  return layer.map("output", merged);
}

/// Blocks of 4, without noise.
Matrix sinkhorn(const Numbers& layer, const Sample& x, const Sample&, bool causal) {
  constexpr std::size_t block = 4;
  const std::size_t tokens = x.x.rows, count = x.places.back() / block + 1;
  const auto block_of = [&](std::size_t token) { return x.places[token] / block; };
  std::vector<double> exists(count, 0), members(count, 0);
  Matrix means(count, width);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t t = 0; t < tokens; ++t) {
      if (block_of(t) == i) exists[i] = 1;
      const bool counts = causal ? block_of(t) < i || x.places[t] == i * block : block_of(t) == i;
      if (!counts) continue;
      members[i] += 1;
      for (std::size_t c = 0; c < width; ++c) means(i, c) += x.x(t, c);
    }
    for (std::size_t c = 0; c < width; ++c) means(i, c) /= std::max(members[i], 1.0);
  }
  Matrix hidden = layer.map("hidden", means);
  for (double& value : hidden.values) value = std::max(value, 0.0);
  const Matrix logits = layer.map("order", hidden);
  const Matrix q = layer.map("query", x.x), k = layer.map("key", x.x), v = layer.map("value", x.x);
  Matrix merged(tokens, width);
  for (std::size_t h = 0; h < heads; ++h) {
    Matrix p(count, count);
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < (causal ? i : count); ++j)
        p(i, j) = exists[i] * exists[j] * std::exp(logits(i, h * logits.columns / heads + j) / 0.75);
    for (int iteration = 0; iteration < 7; ++iteration) {
      for (std::size_t i = 0; i < count; ++i) {
        double total = 0;
        for (std::size_t j = 0; j < count; ++j) total += p(i, j);
        for (std::size_t j = 0; j < count && total > 0; ++j) p(i, j) /= total;
      }
      const Matrix before = p;
      for (std::size_t j = 0; j < count; ++j)
        for (std::size_t i = 0; i < count; ++i) {
          double total = 0;
          for (std::size_t row = 0; row < (causal ? i + 1 : count); ++row) total += before(row, j);
          if (total > 0) p(i, j) /= total;
        }
    }
    const Matrix qh = head_of(q, h), kh = head_of(k, h), vh = head_of(v, h);
    Matrix out(tokens, head_width);
    for (std::size_t a = 0; a < tokens; ++a) {
      const std::size_t i = block_of(a);
      std::vector<std::vector<double>> keys, values;
      for (std::size_t place = 0; place < block; ++place) {  // sorted
        std::vector<double> key(head_width, 0), value(head_width, 0);
        bool any = false;
        for (std::size_t b = 0; b < tokens; ++b) {
          if (x.places[b] % block != place || (causal && block_of(b) >= i)) continue;
          any = true;
          for (std::size_t c = 0; c < head_width; ++c) {
            key[c] += p(i, block_of(b)) * kh(b, c);
            value[c] += p(i, block_of(b)) * vh(b, c);
          }
        }
        if (any) keys.push_back(key), values.push_back(value);
      }
      for (std::size_t b = 0; b < tokens; ++b) {  // its own
        if (block_of(b) != i || (causal && b > a)) continue;
        std::vector<double> key, value;
        for (std::size_t c = 0; c < head_width; ++c) key.push_back(kh(b, c)), value.push_back(vh(b, c));
        keys.push_back(key), values.push_back(value);
      }
      double total = 0;
      for (std::size_t n = 0; n < keys.size(); ++n) {
        double score = 0;
        for (std::size_t c = 0; c < head_width; ++c) score += qh(a, c) * keys[n][c];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(head_width)));
        total += weight;
        for (std::size_t c = 0; c < head_width; ++c) out(a, c) += weight * values[n][c];
      }
      for (std::size_t c = 0; c < head_width; ++c) out(a, c) /= total;
    }
    put_head(out, h, merged);
  }
  return layer.map("output", merged);
}

Formula fnet(bool unitary) {
  return [unitary](const Numbers&, const Sample& x, const Sample&, bool) {
    const std::size_t length = x.x.rows;
    Matrix out(length, width);
    for (std::size_t i = 0; i < length; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        std::complex<double> sum = 0;
        for (std::size_t n = 0; n < length; ++n)
          for (std::size_t c = 0; c < width; ++c) {
            const double turns = static_cast<double>(i * n % length) / static_cast<double>(length) +
                                 static_cast<double>(j * c % width) / static_cast<double>(width);
            sum += x.x(n, c) * std::polar(1.0, -2 * std::numbers::pi * turns);
          }
        out(i, j) = sum.real() / (unitary ? std::sqrt(static_cast<double>(length * width)) : 1);
      }
    return out;
  };
}

/// kernel_width 0: without convolution.
Formula nystromformer(std::size_t most_landmarks, int iterations, std::size_t kernel_width = 0) {
  return [=](const Numbers& layer, const Sample& x, const Sample& y, bool) {
    const std::size_t length = x.x.rows, rows = std::min(most_landmarks, length),
                      columns = std::min(most_landmarks, y.x.rows);
    const auto landmarks = [&](const Matrix& t) {
      const std::size_t length = t.rows, count = std::min(most_landmarks, length);
      Matrix sums(count, t.columns);
      std::vector<double> members(count, 0);
      for (std::size_t p = 0; p < length; ++p) {
        members[p * count / length] += 1;
        for (std::size_t c = 0; c < t.columns; ++c) sums(p * count / length, c) += t(p, c);
      }
      for (std::size_t s = 0; s < count; ++s)
        for (std::size_t c = 0; c < t.columns; ++c) sums(s, c) /= members[s];
      return sums;
    };
    const auto softmax_of = [](const Matrix& a, const Matrix& b) {
      Matrix scores = product(a, b, true);
      for (double& score : scores.values) score /= std::sqrt(static_cast<double>(head_width));
      normalise_rows(scores, true);
      return scores;
    };
    const Matrix q = layer.map("query", x.x), k = layer.map("key", y.x), v = layer.map("value", y.x);
    Matrix merged(length, width);
    for (std::size_t h = 0; h < heads; ++h) {
      const Matrix qh = head_of(q, h), kh = head_of(k, h), ql = landmarks(qh), kl = landmarks(kh);
      const Matrix a = softmax_of(ql, kl);
      Matrix z(columns, rows);
      double largest = 0;
      for (std::size_t j = 0; j < columns; ++j) {
        double column = 0;
        for (std::size_t i = 0; i < rows; ++i) column += a(i, j);
        largest = std::max(largest, column);
      }
      for (std::size_t i = 0; i < columns; ++i)
        for (std::size_t j = 0; j < rows; ++j) z(i, j) = a(j, i) / largest;
      const auto less = [](double scale, Matrix m) {  // scale I - m
        for (double& value : m.values) value = -value;
        for (std::size_t i = 0; i < m.rows; ++i) m(i, i) += scale;
        return m;
      };
      for (int step = 0; step < iterations; ++step) {
        const Matrix az = product(a, z);
        z = product(z, less(13, product(az, less(15, product(az, less(7, az))))));
        for (double& value : z.values) value /= 4;
      }
      const Matrix vh = head_of(v, h);
      Matrix out = product(softmax_of(qh, kl), product(z, product(softmax_of(ql, kh), vh)));
      for (std::size_t i = 0; kernel_width > 0 && i < length; ++i)
        for (std::size_t j = 0; j < length; ++j) {
          const std::size_t t =
              x.places[j] + kernel_width / 2 - x.places[i];  // wraps where j is far before i
          for (std::size_t c = 0; t < kernel_width && c < head_width; ++c)
            out(i, c) += layer.matrix("convolution")(h, t) * vh(j, c);
        }
      put_head(out, h, merged);
    }
    return layer.map("output", merged);
  };
}

// --- the comparison

/// The second sample has padding at both ends and within.
Tensor mask_for(std::int64_t length) {
  std::vector<std::int32_t> real(static_cast<std::size_t>(2 * length), 1);
  for (const std::int64_t n : {std::int64_t{0}, length / 2, length - 2, length - 1})
    real[static_cast<std::size_t>(length + n)] = 0;
  return Tensor::from(real, {2, length});
}

std::unique_ptr<Attention> layer_of(const std::string& name, bool causal = false, bool cross = false,
                                    const Options& options = {}) {
  AttentionConfig config;
  config.width = width;
  config.heads = heads;
  config.bias = true;
  config.causal = causal;
  config.cross = cross;
  config.max_length = 256;
  config.seed = 7;
  config.options = options;
  auto layer = make_attention(name, config);
  layer->to(DType::f64, {});
  for (const NamedTensor& entry : layer->parameters())
    *entry.tensor = parameter(*entry.tensor + normal_numbers(23, entry.tensor->shape(), 9) * 0.1);
  return layer;
}

void compare(const std::string& name, const Formula& formula, bool causal, bool cross, std::int64_t length,
             const Options& options = {}) {
  CAPTURE(name);
  CAPTURE(causal);
  CAPTURE(cross);
  CAPTURE(length);
  const auto layer = layer_of(name, causal, cross, options);
  for (const bool padded : {false, true}) {
    CAPTURE(padded);
    AttentionInput input{normal_numbers(23, {2, length, width}, 1)};
    if (padded) input.mask = mask_for(length);
    if (cross) input.memory = normal_numbers(23, {2, length + 9, width}, 2);
    if (cross && padded) input.memory_mask = mask_for(length + 9);
    Context context = Context::inference();
    const std::vector<double> found = (*layer)(input, context).to_doubles();
    const std::vector<Sample> queries = samples_of(input.x, input.mask);
    const std::vector<Sample> memory = cross ? samples_of(input.memory, input.memory_mask) : queries;
    double worst = 0;
    for (std::size_t b = 0; b < queries.size(); ++b) {
      const Matrix expected = formula(Numbers(*layer), queries[b], memory[b], causal);
      for (std::size_t i = 0; i < expected.rows; ++i)
        for (std::size_t j = 0; j < width; ++j) {
          const std::size_t at = (b * static_cast<std::size_t>(length) + queries[b].places[i]) * width + j;
          worst = std::max(worst, std::abs(found[at] - expected(i, j)));
        }
    }
    CHECK(worst < 1e-10);
  }
}

}  // namespace

TEST_CASE(
    "formulas: every one of them, plain, causal and across, within one chunk or block and over several") {
  struct Row {
    const char* name;
    Formula formula;
    const char* uses;  // p: plain, c: causal, x: cross-attention
    std::vector<std::int64_t> lengths;
    Options options = {};
  };
  const Row rows[] = {
      {"linear_transformer", linear_transformer(), "pcx", {7, 200}},
      {"performer", performer(), "pcx", {7, 200}},
      {"performer", performer(), "c", {9}, options_of({{"features", 11}})},  // no multiple of a head's width
      {"retnet", retnet, "pc", {7, 200}},
      {"retnet", retnet, "c", {70}, options_of({{"value_width", 1}})},
      {"gated_linear_attention", gated_linear, "pc", {7, 90}},
      {"attention_free_transformer", attention_free(0), "pc", {7, 90}},
      {"attention_free_transformer",
       attention_free(256),
       "pc",
       {20},
       options_of({{"form", "full"}, {"rank", 3}})},
      {"attention_free_transformer",
       attention_free(4),
       "pc",
       {20},
       options_of({{"form", "local"}, {"rank", 3}, {"window", 4}})},
      {"local", local, "pc", {5, 200}, options_of({{"reach", 3}})},
      {"sinkhorn", sinkhorn, "pc", {4, 30}, options_of({{"block", 4}})},
      {"fnet", fnet(false), "p", {7, 64}},
      {"fnet", fnet(true), "p", {7, 64}, options_of({{"unitary", true}})},
      {"nystromformer", nystromformer(5, 6), "px", {5, 33}, options_of({{"landmarks", 5}})},
      {"nystromformer", nystromformer(20, 6), "x", {6, 14}, options_of({{"landmarks", 20}})},
      {"nystromformer", nystromformer(64, 6), "p", {9}},
      {"nystromformer",
       nystromformer(5, 6, 7),
       "p",
       {5, 33},
       options_of({{"landmarks", 5}, {"convolution", 7}})},
  };
  for (const Row& row : rows)
    for (const char use : std::string(row.uses))
      for (const std::int64_t length : row.lengths)
        compare(row.name, row.formula, use == 'c', use == 'x', length, row.options);
  CHECK_THROWS_AS(
      make_attention("nystromformer", {.width = width, .options = options_of({{"convolution", 4}})}), Error);
}

TEST_CASE("sparse Sinkhorn attention: noise disturbs the sorting in training alone") {
  const auto outputs = [&](bool noise) {
    const auto layer = layer_of("sinkhorn", false, false, options_of({{"block", 2}, {"noise", noise}}));
    const AttentionInput input{normal_numbers(23, {1, 9, width}, 1)};
    Context training = Context::train(1, 1), inference = Context::inference();
    return std::pair((*layer)(input, training).to_doubles(), (*layer)(input, inference).to_doubles());
  };
  const auto with = outputs(true), without = outputs(false);
  CHECK(with.first != with.second);
  CHECK(without.first == without.second);
  CHECK(with.second == without.second);
}

TEST_CASE("Nystromformer: cross-attention without convolution") {
  CHECK(contains(error_of([&] {
                   layer_of("nystromformer", false, true, options_of({{"convolution", 5}}));
                 }),
                 "cannot serve as cross-attention"));
}

TEST_CASE("Nystromformer: with a landmark for every token and enough iterations it is the dot product") {
  const auto near = layer_of("nystromformer", false, false, options_of({{"iterations", 40}})),
             exact = layer_of("dot_product");
  const AttentionInput input{normal_numbers(23, {2, 12, width}, 1), mask_for(12)};
  Context context;
  CHECK(worst_difference((*near)(input, context), (*exact)(input, context)) < 1e-8);
}

TEST_CASE("Performer: more features estimate the dot product better") {
  const auto exact = layer_of("dot_product");
  const AttentionInput input{normal_numbers(23, {2, 12, width}, 1) * 0.5};  // the variance grows with e^|q|^2
  Context context;
  const Tensor expected = (*exact)(input, context);
  const auto error = [&](std::int64_t features) {
    const auto layer = layer_of("performer", false, false, options_of({{"features", features}}));
    return worst_difference((*layer)(input, context), expected);
  };
  CHECK(error(4096) < 0.1);
  CHECK(error(4096) < 0.5 * error(8));
}

TEST_CASE("Performer: features are drawn anew every `redraw` batches, and inference takes the last draw") {
  const auto outputs = [](std::int64_t redraw) {
    const auto layer = layer_of("performer", false, false, options_of({{"redraw", redraw}}));
    std::vector<std::vector<double>> all;
    const auto run = [&](Context context) {
      all.push_back((*layer)({normal_numbers(23, {1, 5, width}, 1)}, context).to_doubles());
    };
    run(Context::inference());
    for (std::uint32_t batch = 1; batch <= 7; ++batch) run(Context::train(1, batch));
    run(Context::inference());
    return all;
  };
  const auto never = outputs(0), always = outputs(1), third = outputs(3);
  for (std::size_t pass = 1; pass <= 8; ++pass) {
    CAPTURE(pass);
    CHECK(never[pass] == never[0]);
    CHECK((always[pass] == always[pass - 1]) == (pass == 1 || pass == 8));
    CHECK((third[pass] == third[pass - 1]) == (pass != 4 && pass != 7));
  }
}

TEST_CASE("Performer: keys of any length stay within range, in single precision, whole and step by step") {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const auto layer = layer_of("performer", causal);
    // One token in ten is a hundred times as long: without a stabiliser its features are 0 or infinite.
    Tensor x = normal_numbers(23, {1, 150, width}, 3);
    std::vector<double> lengths(150, 1);
    for (std::size_t n = 5; n < 150; n += 10) lengths[n] = 100;
    x = x * Tensor::from(lengths, {1, 150, 1});
    Context context;
    const Tensor exact = (*layer)({x}, context);
    layer->to(DType::f32, {});
    const Tensor single = (*layer)({cast(x, DType::f32)}, context);
    for (const double value : single.to_doubles()) REQUIRE(std::isfinite(value));
    CHECK(worst_difference(cast(single, DType::f64), exact) < 1e-2 * max(abs(exact)).item());
    if (!causal) continue;
    AttentionCache cache;
    const NoGrad no_grad;
    for (std::int64_t t = 0; t < 150; ++t) {
      const Tensor out = layer->step({cast(slice(x, 1, t, t + 1), DType::f32)}, cache, context);
      CHECK(worst_difference(cast(out, DType::f64), slice(exact, 1, t, t + 1)) <
            1e-2 * max(abs(exact)).item());
    }
  }
}

TEST_CASE("Performer: queries and keys so long that every weight before the division is tiny") {
  constexpr std::int64_t wide = 64, length = 24;
  AttentionConfig config;
  config.width = wide;
  config.causal = true;
  config.seed = 5;
  const auto layer = make_attention("performer", config);
  layer->to(DType::f64, {});
  const auto mapped = [&](const Tensor& x, const char* map) {
    for (const NamedTensor& entry : layer->parameters())
      if (entry.name == map) return matmul(x, transpose(entry.tensor->detach(), 0, 1));
    return Tensor();
  };
  const Tensor w = *layer->buffers()[0].tensor, seen = tril(Tensor::ones({length, length}, DType::i32));
  for (const double deviation : {6.0, 9.6, 20.0}) {
    CAPTURE(deviation);
    const Tensor x = parameter(normal_numbers(29, {1, length, wide}, 3) * deviation);
    // Out of logarithms: log sum_m phi_m(q_i) phi_m(k_j).
    const auto log_features = [&](const char* map) {
      const Tensor scaled = mapped(x, map) * std::pow(static_cast<double>(wide), -0.25);
      return matmul(scaled, transpose(w, 0, 1)) - sum(square(scaled), -1, true) * 0.5;
    };
    const Tensor scores = log_sum_exp(
        unsqueeze(log_features("query.weight"), 2) + unsqueeze(log_features("key.weight"), 1), -1);
    const Tensor expected =
        mapped(matmul(masked_softmax(scores, seen), mapped(x, "value.weight")), "output.weight");
    backward(sum(square(expected)));
    const auto error = [&](DType dtype) {
      layer->to(dtype, {});
      const Tensor given = parameter(cast(x.detach(), dtype));
      Context context;
      const Tensor out = (*layer)({given}, context);
      backward(sum(square(out)));
      const auto relative = [](const Tensor& found, const Tensor& exact) {
        return worst_difference(cast(found.detach(), DType::f64), exact.detach()) /
               max(abs(exact.detach())).item();
      };
      const double of_output = relative(out, expected), of_slope = relative(gradient(given), gradient(x));
      layer->to(DType::f64, {});
      return std::max(of_output, of_slope);
    };
    CHECK(error(DType::f64) < 1e-9);
    CHECK(error(DType::f32) < 1e-2);
  }
}

TEST_CASE("the newer mechanisms keep their word with settings other than the defaults") {
  const std::pair<const char*, Options> rows[] = {
      {"performer", options_of({{"features", 3}, {"redraw", 0}})},
      {"fnet", options_of({{"unitary", true}})},
      {"fnet", options_of({{"padding", "counted"}})},
      {"nystromformer", options_of({{"landmarks", 3}, {"iterations", 4}})},
      {"nystromformer", options_of({{"landmarks", 3}, {"padding", "counted"}})},
      {"nystromformer", options_of({{"convolution", 5}})},
      {"retnet", options_of({{"value_width", 1}})},
      {"gated_linear_attention", options_of({{"temperature", 1.0}})},
      {"attention_free_transformer", options_of({{"form", "full"}, {"rank", 3}})},
      {"attention_free_transformer", options_of({{"form", "local"}, {"window", 2}})},
      {"local", options_of({{"reach", 1}})},
      {"sinkhorn", options_of({{"block", 2}})},
      {"local", options_of({{"reach", 2}, {"sinks", 3}, {"sink", "learned"}, {"gate", "headwise"}})},
      {"dot_product", options_of({{"sink", "learned"}, {"gate", "elementwise"}, {"kv_heads", 1}})},
      {"dot_product", options_of({{"sink", "zero"}, {"gate", "headwise"}})},
      {"abc", options_of({{"slots", 3}})},
      {"gated_deltanet", options_of({{"gated", false}, {"value_width", 2}, {"convolution", 1}})},
      {"mamba2", options_of({{"expand", 1}, {"state", 3}, {"convolution", 2}})},
      {"multi_head_latent", options_of({{"kv_rank", 3}, {"query_rank", 5}, {"rotary_width", 4}})},
      {"kimi_delta", options_of({{"value_width", 2}, {"convolution", 1}, {"gate_rank", 3}})},
      {"kimi_delta", options_of({{"scale", true}})},
      {"differential", options_of({{"layer", 3}})},
      {"rwkv7", options_of({{"rank", 3}, {"gate_rank", 5}})},
      {"moba", options_of({{"block", 16}, {"blocks", 2}})},
      {"moba", options_of({{"block", 5}, {"blocks", 1}})},
      {"native_sparse", options_of({{"kv_heads", 1}, {"block", 16}, {"blocks", 4}, {"window", 7}})},
      {"native_sparse", options_of({{"block", 5}, {"blocks", 1}, {"window", 1}})},
      {"native_sparse", options_of({{"block", 2}, {"blocks", 2}})},
  };
  for (const auto& row : rows) {
    CAPTURE(row.first);
    CAPTURE(row.second.values().begin()->first);
    CHECK_NOTHROW(check_attention(row.first, row.second));
  }
}

TEST_CASE("differential: `layer` takes the place of the layer in its stack") {
  AttentionConfig third;
  third.width = width;
  third.heads = heads;
  third.layer = 3;
  AttentionConfig told = third;
  told.layer = 0;
  told.options.set("layer", std::int64_t{3});
  const Tensor x = normal_numbers(23, {1, 5, width}, 1, DType::f32);
  const auto output = [&](const AttentionConfig& config) {
    Context context;
    return (*make_attention("differential", config))({x}, context).to_doubles();
  };
  CHECK(output(told) == output(third));
  told.options = {};
  CHECK(output(told) != output(third));
}

TEST_CASE("delta rules: `scale` divides queries, which RMSNorm cancels where outputs are large") {
  for (const std::string name : {"gated_deltanet", "kimi_delta"})
    for (const double size : {0.01, 1e6}) {
      const Tensor x = normal_numbers(23, {1, 9, width}, 1) * size;
      const auto output = [&](bool scale) {
        Context context;
        return (*layer_of(name, true, false, options_of({{"scale", scale}})))({x}, context);
      };
      const Tensor plain = output(false);
      const double difference = worst_difference(output(true), plain) / max(abs(plain)).item();
      CAPTURE(name);
      CHECK((size < 1 ? difference > 1e-3 : difference < 1e-4));
    }
}

TEST_CASE("forgetting: gradients of gates that close at once are right in single precision, at any length") {
  for (const std::int64_t length : {300, 2500}) {
    const auto layer = layer_of("forgetting", true);
    const auto gradients = [&](DType dtype) {
      layer->to(dtype, {});
      for (const NamedTensor& one : layer->parameters())
        if (one.name == "forget.bias") *one.tensor = parameter(Tensor::full({heads}, -12, dtype));
      Context context;
      const Tensor out = (*layer)({cast(normal_numbers(31, {1, length, width}, 1), dtype)}, context);
      backward(sum(out * cast(normal_numbers(31, {1, length, width}, 2), dtype)));
      for (const NamedTensor& one : layer->parameters())
        if (one.name == "forget.bias") return cast(gradient(*one.tensor), DType::f64);
      return Tensor();
    };
    const Tensor exact = gradients(DType::f64), single = gradients(DType::f32);
    CAPTURE(length);
    CHECK(worst_difference(single, exact) < 1e-5);
  }
}

namespace {

/// Whether positions from `begin` on, a few at a step, get what the whole pass over x gives them.
void check_steps(Attention& layer, const Tensor& x, const Tensor& whole, std::int64_t begin, std::int64_t few,
                 AttentionCache& cache) {
  Context context;
  for (std::int64_t t = begin; t < x.size(1); t += few)
    CHECK(worst_difference(layer.step({slice(x, 1, t, t + few)}, cache, context),
                           slice(whole, 1, t, t + few)) < 1e-12);
}

}  // namespace

TEST_CASE("decoding with a state: it does not grow with the text, and beam search can reorder it") {
  const std::pair<std::string, Options> rows[] = {{"linear_transformer", {}},
                                                  {"performer", {}},
                                                  {"retnet", {}},
                                                  {"gated_linear_attention", {}},
                                                  {"attention_free_transformer", {}},
                                                  {"local", {}},
                                                  {"local", options_of({{"sinks", 3}, {"reach", 5}})},
                                                  {"cosformer", {}},
                                                  {"abc", {}},
                                                  {"mamba2", {}},
                                                  {"gated_deltanet", {}},
                                                  {"gated_deltanet", options_of({{"gated", false}})},
                                                  {"kimi_delta", {}},
                                                  {"rwkv7", {}}};
  for (const auto& [name, options] : rows) {
    CAPTURE(name);
    const auto layer = layer_of(name, true, false, options);
    const Tensor x = normal_numbers(23, {2, 150, width}, 4);
    Context context;
    const NoGrad no_grad;
    const Tensor whole = (*layer)({x}, context);
    AttentionCache cache;
    const Tensor prompt = layer->step({slice(x, 1, 0, 100)}, cache, context);
    CHECK(worst_difference(prompt, slice(whole, 1, 0, 100)) < 1e-12);
    const Shape size = cache.key.shape();
    check_steps(*layer, x, whole, 100, 1, cache);
    CHECK(cache.key.shape() == size);

    const std::vector<std::int32_t> swapped{1, 0};
    const Tensor swap = Tensor::from(swapped, {2});
    AttentionCache other;
    layer->step({slice(x, 1, 0, 100)}, other, context);
    other.reorder(RowOrder(swapped), RowOrder(swapped));
    const Tensor next = layer->step({index_select(slice(x, 1, 100, 101), 0, swap)}, other, context);
    CHECK(worst_difference(index_select(next, 0, swap), slice(whole, 1, 100, 101)) < 1e-12);
  }
}

TEST_CASE("latent attention: decoding keeps the latent and the rotary key alone, and gives the whole pass") {
  const auto layer =
      layer_of("multi_head_latent", true, false, options_of({{"kv_rank", 3}, {"rotary_width", 2}}));
  const Tensor x = normal_numbers(23, {2, 40, width}, 4);
  Context context;
  const NoGrad no_grad;
  const Tensor whole = (*layer)({x}, context);
  AttentionCache cache;
  check_steps(*layer, x, whole, 0, 4, cache);
  CHECK(cache.key.shape() == Shape{2, 40, 3});
  CHECK(cache.value.shape() == Shape{2, 40, 2});
}

TEST_CASE("DeltaNet: in single precision it keeps its digits where all keys are alike") {
  const auto layer = layer_of("gated_deltanet", true, false, options_of({{"gated", false}}));
  for (const NamedTensor& entry : layer->parameters())
    if (entry.name == "strength.bias") *entry.tensor = parameter(*entry.tensor + 5);  // beta is nearly 1
  const Tensor x = normal_numbers(23, {1, 1, width}, 6) + normal_numbers(23, {1, 150, width}, 7) * 0.02;
  Context context;
  const Tensor exact = (*layer)({x}, context);
  layer->to(DType::f32, {});
  const Tensor single = (*layer)({cast(x, DType::f32)}, context);
  CHECK(worst_difference(cast(single, DType::f64), exact) < 1e-4 * max(abs(exact)).item());
}

TEST_CASE("delta rules: features that fade at once, beside others that stay, in either precision") {
  for (const std::string name : {"kimi_delta", "gated_deltanet"}) {
    for (const bool causal : {true, false}) {
      CAPTURE(name);
      CAPTURE(causal);
      const auto layer = layer_of(name, causal);
      for (const NamedTensor& entry : layer->parameters()) {
        if (entry.name != "decay_step") continue;
        std::vector<double> steps = entry.tensor->to_doubles();
        for (std::size_t i = 0; i < steps.size(); i += 2) steps[i] += 1e3;  // e^(c_i - c_j) would be e^16000
        *entry.tensor = parameter(Tensor::from(steps, entry.tensor->shape()));
      }
      const Tensor x = parameter(normal_numbers(23, {1, 80, width}, 6));
      Context context;
      const Tensor whole = (*layer)({x}, context);
      if (causal) {
        const NoGrad no_grad;
        AttentionCache cache;
        check_steps(*layer, x.detach(), whole.detach(), 0, 5, cache);
      }
      backward(sum(square(whole)));
      const Tensor exact = gradient(x);
      layer->to(DType::f32, {});
      const Tensor single = parameter(cast(x.detach(), DType::f32)), out = (*layer)({single}, context);
      backward(sum(square(out)));
      CHECK(worst_difference(cast(out.detach(), DType::f64), whole.detach()) < 1e-4);
      CHECK(worst_difference(cast(gradient(single), DType::f64), exact) < 1e-3 * max(abs(exact)).item());
    }
  }
}

TEST_CASE("Kimi Delta Attention: features that fade alike are Gated DeltaNet's") {
  const auto kimi = layer_of("kimi_delta", true), gated = layer_of("gated_deltanet", true);
  const auto named = [](Attention& layer, const std::string& name) -> Tensor& {
    for (const NamedTensor& entry : layer.parameters())
      if (entry.name == name) return *entry.tensor;
    throw Error("no " + name);
  };
  for (const std::string part : {"query", "key", "value", "strength", "output"})
    for (const std::string end : {".weight", ".bias"})
      named(*gated, part + end) = parameter(named(*kimi, part + end).detach());
  for (const std::string name : {"convolution.weight", "norm", "decay_rate"})
    named(*gated, name) = parameter(named(*kimi, name).detach());
  const auto set = [&](Attention& layer, const std::string& name, double value) {
    Tensor& to = named(layer, name);
    to = parameter(Tensor::full(to.shape(), value, DType::f64));
  };
  for (const std::string name : {"decay_in.weight", "gate_in.weight"}) set(*kimi, name, 0);
  for (const std::string name : {"decay.weight", "gate.weight"}) set(*gated, name, 0);
  set(*kimi, "decay_step", -1.5), set(*gated, "decay_step", -1.5);
  set(*kimi, "gate_out.bias", 0);                // sigmoid: 1/2
  set(*gated, "gate.bias", 0.7388350311316078);  // silu: 1/2
  const Tensor x = normal_numbers(23, {2, 70, width}, 3);
  Context context;
  CHECK(worst_difference((*kimi)({x}, context), (*gated)({x}, context)) < 1e-8);
}

TEST_CASE("chosen blocks: decoding gives the whole pass, and all blocks chosen are the dot product") {
  const std::pair<std::string, Options> rows[] = {
      {"moba", options_of({{"block", 4}, {"blocks", 3}})},
      {"moba", options_of({{"block", 7}, {"blocks", 1}})},
      {"moba", options_of({{"block", 64}})},
      {"native_sparse", options_of({{"block", 4}, {"blocks", 4}, {"window", 3}, {"kv_heads", 1}})},
      {"native_sparse", options_of({{"block", 8}, {"blocks", 1}, {"window", 30}})},
      {"native_sparse", {}}};
  for (const auto& [name, options] : rows) {
    CAPTURE(name);
    const auto layer = layer_of(name, true, false, options);
    const Tensor x = normal_numbers(23, {2, 150, width}, 4);
    Context context;
    const NoGrad no_grad;
    const Tensor whole = (*layer)({x}, context);
    for (const std::int64_t few : {1, 5, 30}) {
      AttentionCache cache;
      check_steps(*layer, x, whole, 0, few, cache);
    }
    CHECK((*layer)({slice(x, 0, 0, 0)}, context).shape() == Shape{0, 150, width});
  }
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    Context context;
    const AttentionInput input{normal_numbers(23, {2, 50, width}, 1), mask_for(50)};
    const Tensor exact = (*layer_of("dot_product", causal))(input, context);
    for (const std::int64_t blocks : {9, 10}) {  // of 9: at 8 all but one
      const auto layer = layer_of("moba", causal, false, options_of({{"block", 6}, {"blocks", blocks}}));
      CHECK(worst_difference((*layer)(input, context), exact) < 1e-12);
    }
    const auto fewer = layer_of("moba", causal, false, options_of({{"block", 6}, {"blocks", 8}}));
    CHECK(worst_difference((*fewer)(input, context), exact) > 1e-6);
  }
  CHECK_THROWS_AS(
      make_attention("native_sparse", {.width = width, .heads = 2, .options = options_of({{"kv_heads", 3}})}),
      Error);
}

TEST_CASE("MoBA: however many queries choose one block, all are served") {
  const auto layer = layer_of("moba", false, false, options_of({{"block", 4}, {"blocks", 2}}));
  Tensor x = normal_numbers(23, {1, 1, width}, 5) + normal_numbers(23, {1, 90, width}, 6) * 0.01;
  x = concat({x, normal_numbers(23, {1, 4, width}, 7) * 9}, 1);  // one block draws them all, or repels them
  Context context, captured;
  Capture capture;
  captured.capture = &capture;
  const Tensor out = (*layer)({x}, context);
  static_cast<void>((*layer)({x}, captured));
  const Tensor weights = capture.find("weights");
  Numbers numbers(*layer);
  const std::vector<double> w = weights.to_doubles(), found = out.to_doubles();
  const Matrix v = numbers.map("value", samples_of(x, {})[0].x);
  Matrix merged(94, width);
  for (std::size_t h = 0; h < heads; ++h) {
    Matrix of_head(94, 94);
    std::copy_n(w.begin() + static_cast<std::ptrdiff_t>(h * 94 * 94), 94 * 94, of_head.values.begin());
    put_head(product(of_head, head_of(v, h)), h, merged);
  }
  const Matrix expected = numbers.map("output", merged);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected.values[i]) < 1e-10);
}

TEST_CASE("Attention Free Transformer: with biases, decoding gives what the whole pass gives") {
  for (const std::string form : {"local", "full"}) {
    CAPTURE(form);
    const auto layer = layer_of("attention_free_transformer", true, false, options_of({{"form", form}}));
    const Tensor x = normal_numbers(23, {2, 40, width}, 4);
    Context context;
    const NoGrad no_grad;
    const Tensor whole = (*layer)({x}, context);
    AttentionCache cache;
    check_steps(*layer, x, whole, 0, 4, cache);
    CHECK(contains(error_of([&] {
                     (*layer)({normal_numbers(23, {1, 257, width}, 4)}, context);
                   }),
                   "longer than max_length = 256"));
  }
  const Options wrong = options_of({{"form", "simple"}, {"rank", 3}});  // a rank, which that form has not
  CHECK(contains(error_of([&] { layer_of("attention_free_transformer", true, false, wrong); }), "'rank'"));
}

TEST_CASE("gates that close at once stay within range, in single precision") {
  struct Row {
    const char *name, *bias;
    bool causal;
  };
  for (const auto& [name, bias, causal] :
       {Row{"gated_linear_attention", "fade_out.bias", true}, Row{"forgetting", "forget.bias", false},
        Row{"forgetting", "forget.bias", true}}) {
    CAPTURE(name);
    CAPTURE(causal);
    const auto layer = layer_of(name, causal);
    for (const NamedTensor& entry : layer->parameters())
      if (entry.name == bias) *entry.tensor = parameter(*entry.tensor - 1e4);
    layer->to(DType::f32, {});
    const Tensor x = parameter(cast(normal_numbers(23, {1, 50, width}, 6), DType::f32));
    Context context;
    const Tensor out = (*layer)({x}, context);
    backward(sum(square(out)));
    for (const Tensor& values : {out, gradient(x)})
      for (const double value : values.to_doubles()) REQUIRE(std::isfinite(value));
  }
}

TEST_CASE("what is cut by the length of a sample does not depend on the padding beside it") {
  for (const std::string name : {"fnet", "nystromformer"}) {
    CAPTURE(name);
    const auto layer =
        layer_of(name, false, false, name == "fnet" ? Options() : options_of({{"landmarks", 4}}));
    const Tensor x = normal_numbers(23, {1, 11, width}, 5);
    std::vector<std::int32_t> real(30, 0);
    std::fill_n(real.begin() + 3, 11, 1);
    Context context;
    const Tensor alone = (*layer)({x}, context);
    const Tensor padded = (*layer)({pad(x, 1, 3, 16), Tensor::from(real, {1, 30})}, context);
    CHECK(worst_difference(slice(padded, 1, 3, 14), alone) < 1e-12);
  }
}
