#include "heed/autograd/cases/op_cases.h"

#include <cmath>
#include <string_view>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

using Inputs = std::span<const Tensor>;

/// Fresh random numbers for each tensor of the table.
class Draw {
 public:
  Tensor operator()(const Shape& shape, double low = -1, double high = 1) {
    return uniform(shape, low, high, {2024, 0, next_++}, DType::f64);
  }
  /// Values that differ by at least 0.05, in random order: no ties, and no kink within
  /// a finite-difference step.
  Tensor distinct(const Shape& shape) {
    const Tensor order = argsort(uniform({shape.count()}, 0, 1, {2024, 0, next_++}, DType::f64));
    return reshape(cast(order, DType::f64) * 0.05, shape);
  }

 private:
  std::uint32_t next_ = 0;
};

/// The rows so far; add(name, inputs, function) makes another.
struct Table {
  using Function = std::function<Tensor(Inputs)>;
  std::vector<OpCase> cases;

  void operator()(std::string name, std::vector<Tensor> inputs, Function function) {
    cases.push_back({std::move(name), std::move(function), std::move(inputs)});
  }
  /// A row of which only values are compared.
  void values(std::string name, std::vector<Tensor> inputs, Function function) {
    cases.push_back({std::move(name), std::move(function), std::move(inputs), false});
  }
};

Tensor ids(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

/// The numbers that a parametric operation is checked with.
UnaryParams unary_numbers(UnaryOp op) {
  return {0.7, op == UnaryOp::clamp ? 1.3 : 0};
}

void add_elementwise(Table& add, Draw& draw) {
#define HEED_UNARY(name, y, saved, dydx, low, high)                              \
  add(#name, {draw({3, 17}, low, high)}, [](Inputs in) { return name(in[0]); }); \
  add(#name "/transposed", {draw({5, 7}, low, high)}, [](Inputs in) { return name(transpose(in[0], 0, 1)); });
#define HEED_PARAMETRIC(name, y, saved, dydx, low, high)                                    \
  add(#name, {draw({3, 17}, low, high)},                                                    \
      [](Inputs in) { return unary(UnaryOp::name, in[0], unary_numbers(UnaryOp::name)); }); \
  add(#name "/transposed", {draw({5, 7}, low, high)},                                       \
      [](Inputs in) { return unary(UnaryOp::name, transpose(in[0], 0, 1), unary_numbers(UnaryOp::name)); });
#define HEED_BINARY(name, ...)                                                 \
  add(#name, {draw({4, 9}, 0.3, 0.9), draw({4, 9}, 1.1, 2.0)},                 \
      [](Inputs in) { return binary(BinaryOp::name, in[0], in[1]); });         \
  add(#name "/broadcast", {draw({2, 1, 9}, 0.3, 0.9), draw({5, 1}, 1.1, 2.0)}, \
      [](Inputs in) { return binary(BinaryOp::name, in[0], in[1]); });         \
  add(#name "/row", {draw({3, 19}, 1.1, 2.0), draw({19}, 0.3, 0.9)},           \
      [](Inputs in) { return binary(BinaryOp::name, in[0], in[1]); });
#define HEED_COMPARE(name, ...)                \
  add.values(#name, {draw({4, 9}), draw({9})}, \
             [](Inputs in) { return compare(CompareOp::name, in[0], in[1]); });
#include "heed/core/elementwise.def"

  add("where", {ids({1, 0, 0, 1, 1}, {5}), draw({3, 5}), draw({1})},
      [](Inputs in) { return where(in[0], in[1], in[2]); });
  add("masked_fill", {draw({3, 5}), ids({1, 0, 0, 1, 1}, {5})},
      [](Inputs in) { return masked_fill(in[0], in[1], 0.5); });

  // A number on either side.
#define HEED_BINARY(name, dtypes, ...)                                                \
  add(#name "/number on the right", {draw({4, 9}, 1.1, 2.0)},                         \
      [](Inputs in) { return binary(BinaryOp::name, in[0], 1.0); });                  \
  add(#name "/number on the left", {draw({4, 9}, 1.6, 2.0)},                          \
      [](Inputs in) { return binary(BinaryOp::name, 1.5, in[0]); });                  \
  if (std::string_view(#dtypes) == "ANY")                                             \
    add.values(#name "/integers", {ids({4, -7, 0, 2}, {4}), ids({1, -5, 9, 2}, {4})}, \
               [](Inputs in) { return binary(BinaryOp::name, binary(BinaryOp::name, in[0], 3.0), in[1]); });
#define HEED_COMPARE(name, ...)                                                             \
  add.values(#name "/numbers", {ids({4, -7, 0, 2, 3}, {5})}, [](Inputs in) {                \
    return compare(CompareOp::name, in[0], 2.0) + 2 * compare(CompareOp::name, 3.0, in[0]); \
  });
#include "heed/core/elementwise.def"
  add.values("neg/integers", {ids({4, -7, 0, 2}, {4})}, [](Inputs in) {
    return -in[0] * 1000 + abs(in[0]) * 100 + square(in[0]) + clamp(relu(in[0]), 1, 2);
  });
  add("operators", {draw({3, 4}, 0.1, 0.4), draw({4}, 0.3, 0.9)}, [](Inputs in) {
    Tensor x = 2 / (1 - in[0] * in[1]);
    x += in[0];
    x *= 3;
    x -= 0.5;
    x /= in[1];
    return where(in[0] < 0.5, x, 0.0) + where(0.25 <= in[1], 1.0, x);
  });
  add.values("where/numbers", {ids({1, 0, 0, 1}, {4})}, [](Inputs in) { return where(in[0], 2.5, -0.5); });
  add.values("logical_not", {ids({1, 0, 0, -1}, {4})}, [](Inputs in) { return logical_not(in[0]); });
  const Tensor odd = Tensor::from<double>({1, std::nan(""), HUGE_VAL, -HUGE_VAL, 0}, {5});
  add.values("isnan", {odd}, [](Inputs in) { return isnan(in[0]); });
  add.values("isfinite", {odd}, [](Inputs in) { return isfinite(in[0]); });
}

void add_shape(Table& add, Draw& draw) {
  add("reshape", {draw({2, 6, 3})}, [](Inputs in) { return square(reshape(in[0], {4, -1})); });
  add("reshape/transposed", {draw({2, 6, 3})},
      [](Inputs in) { return reshape(transpose(in[0], 0, 2), {-1}); });
  add("permute", {draw({2, 3, 5})}, [](Inputs in) { return exp(permute(in[0], {2, 0, 1})); });
  add("slice", {draw({3, 8})}, [](Inputs in) { return square(slice(in[0], 1, 1, -1, 2)); });
  add("select", {draw({3, 8})}, [](Inputs in) { return square(select(in[0], 1, -2)); });
  add("expand", {draw({3, 1})}, [](Inputs in) { return square(expand(in[0], {4, 3, 5})); });
  add("concat", {draw({3, 2}), draw({3, 5})}, [](Inputs in) { return square(concat({in[0], in[1]}, 1)); });
  add("stack", {draw({3, 4}), draw({3, 4})}, [](Inputs in) { return square(stack(in, 1)); });
  add("split", {draw({3, 7})}, [](Inputs in) {
    const std::int64_t sizes[] = {2, 5};
    const auto pieces = split(in[0], 1, sizes);
    return concat({square(pieces[1]), exp(pieces[0])}, 1);
  });
  add("[]", {draw({3, 4})}, [](Inputs in) { return square(in[0][1] * in[0][-1][0]); });
  add("flip", {draw({3, 2, 5})}, [](Inputs in) { return exp(flip(in[0], {0, -1})); });
  add.values("flip/integers", {ids({1, 2, 3, 4, 5, 6}, {2, 3})}, [](Inputs in) { return flip(in[0], 1); });
  add("roll", {draw({3, 2, 5})}, [](Inputs in) { return exp(roll(in[0], 2, -1)); });
  add("repeat", {draw({2, 3, 2})}, [](Inputs in) { return exp(repeat(in[0], 3, 1)); });
  add("tile", {draw({2, 3})}, [](Inputs in) { return exp(tile(in[0], {2, 1, 3})); });
  add("tril", {draw({2, 4, 5})}, [](Inputs in) { return square(tril(in[0], 1)); });
  add("triu", {draw({5, 4})}, [](Inputs in) { return square(triu(in[0])); });
  add.values("tril/integers", {ids({1, 2, 3, 4}, {2, 2})},
             [](Inputs in) { return tril(in[0], -1) + triu(in[0], 1); });
  add("eye", {draw({3, 3})}, [](Inputs in) { return in[0] * eye(3, in[0].dtype(), in[0].device()); });
  add.values("one_hot", {ids({3, 0, -1, 2, 2, 1}, {2, 3})}, [](Inputs in) { return one_hot(in[0], 4); });
  add("pad", {draw({3, 4})}, [](Inputs in) { return square(pad(in[0], 1, 2, 1, 0.5)); });
}

void add_reductions(Table& add, Draw& draw) {
  add("sum/last", {draw({5, 33})}, [](Inputs in) { return square(sum(in[0], -1)); });
  add("sum/first", {draw({7, 19})}, [](Inputs in) { return square(sum(in[0], 0)); });
  add("sum/middle", {draw({3, 7, 5})}, [](Inputs in) { return square(sum(in[0], 1, true)); });
  add("sum/all", {draw({7, 19})}, [](Inputs in) { return square(sum(in[0])); });
  add("mean", {draw({5, 11})}, [](Inputs in) { return square(mean(in[0], -1)); });
  add("max", {draw.distinct({5, 11})}, [](Inputs in) { return square(max(in[0], -1)); });
  add("max/first", {draw.distinct({5, 11})}, [](Inputs in) { return square(max(in[0], 0, true)); });
  add("min", {draw.distinct({3, 5, 4})}, [](Inputs in) { return square(min(in[0], 1)); });
  add("sum/axes", {draw({3, 4, 5})}, [](Inputs in) { return square(sum(in[0], {0, 1})); });
  add("sum/axes apart", {draw({3, 4, 5})}, [](Inputs in) { return square(sum(in[0], {-1, 0})); });
  add("sum/axes kept", {draw({3, 4, 5, 2})}, [](Inputs in) { return square(sum(in[0], {0, 2, 3}, true)); });
  add.values("sum/integers", {ids({1, -2, 30000000, 4, 5, 6}, {2, 3})},
             [](Inputs in) { return sum(in[0], 0) + sum(in[0]); });
  add("mean/axes", {draw({3, 4, 5})}, [](Inputs in) { return square(mean(in[0], {1, 2})); });
  add("max/all", {draw.distinct({3, 11})}, [](Inputs in) { return square(max(in[0])); });
  add("min/axes", {draw.distinct({3, 4, 5})}, [](Inputs in) { return square(min(in[0], {0, 2})); });
  add.values("max/integers", {ids({1, -2, 3, 4, 5, -6}, {2, 3})},
             [](Inputs in) { return max(in[0], 1) * 10 + min(in[0]); });
  add("prod", {draw({3, 7, 2})}, [](Inputs in) { return prod(in[0], 1); });
  add("prod/with zeros", {draw({2, 3, 4}), ids({1, 1, 0, 0}, {4})}, [](Inputs in) {
    return prod(in[0] * cast(in[1], in[0].dtype()), {0, 1});
  });
  add.values("prod/integers", {ids({1, -2, 3, 4, 5, 6}, {3, 2})}, [](Inputs in) { return prod(in[0], 0); });
  add("variance", {draw({3, 4, 5})}, [](Inputs in) { return variance(in[0], {0, -1}); });
  add("variance/unbiased", {draw({3, 5})}, [](Inputs in) { return variance(in[0], 1, true, 1); });
  add("standard_deviation", {draw({3, 5})}, [](Inputs in) { return standard_deviation(in[0], 1, false, 1); });
  add("norm", {draw({3, 5})}, [](Inputs in) { return norm(in[0], -1); });
  add("norm/all", {draw({3, 5})}, [](Inputs in) { return norm(in[0]); });
  add.values("argmax", {draw({3, 13, 4})}, [](Inputs in) { return argmax(in[0], 1); });
  add("cumulative_sum", {draw({2, 9, 3})}, [](Inputs in) { return square(cumulative_sum(in[0], 1)); });
  add("cumulative_sum/reverse", {draw({3, 9})},
      [](Inputs in) { return square(cumulative_sum(in[0], -1, true)); });
  add("softmax", {draw({5, 21}, -3, 3)}, [](Inputs in) { return square(softmax(in[0])); });
  add("softmax/first", {draw({5, 6}, -3, 3)}, [](Inputs in) { return square(softmax(in[0], 0)); });
  add("log_softmax", {draw({5, 21}, -3, 3)}, [](Inputs in) { return square(log_softmax(in[0])); });
  add("masked_softmax", {draw({3, 2, 4}, -3, 3), ids({1, 0, 1, 1, 0, 0, 0, 0}, {2, 4})},
      [](Inputs in) { return square(masked_softmax(in[0], in[1])); });
  add("log_sum_exp", {draw({3, 9, 2}, -3, 3)}, [](Inputs in) { return square(log_sum_exp(in[0], 1)); });
}

void add_products(Table& add, Draw& draw) {
  add("matmul", {draw({5, 7}), draw({7, 3})}, [](Inputs in) { return square(matmul(in[0], in[1])); });
  add("matmul/batched", {draw({2, 3, 5, 7}), draw({3, 7, 4})},
      [](Inputs in) { return square(matmul(in[0], in[1])); });
  add("matmul/shared", {draw({2, 5, 7}), draw({7, 4})},
      [](Inputs in) { return square(matmul(in[0], in[1])); });
  add("matmul/transposed", {draw({7, 5}), draw({3, 7})},
      [](Inputs in) { return square(matmul(transpose(in[0], 0, 1), transpose(in[1], 0, 1))); });
  add("matmul/heads", {draw({2, 5, 3, 4}), draw({2, 6, 3, 4})},
      [](Inputs in) {  // views of [B, N, H, d], as attention has them
        return square(matmul(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 3, 1})));
      });
  add("matmul/row", {draw({1, 70}), draw({70, 90})}, [](Inputs in) { return square(matmul(in[0], in[1])); });
  add("matmul/vectors", {draw({4}), draw({4}), draw({4, 4}), draw({4})}, [](Inputs in) {
    return matmul(in[0], in[1]) * square(concat({matmul(in[0], in[2]), matmul(in[2], in[3])}, 0));
  });
  add("linear", {draw({2, 5, 7}), draw({3, 7}), draw({3})},
      [](Inputs in) { return square(linear(in[0], in[1], in[2])); });
  add("linear/no bias", {draw({5, 7}), draw({3, 7})}, [](Inputs in) { return square(linear(in[0], in[1])); });
  const auto maps = [](Inputs in) {
    const LinearMap of[] = {{in[1], in[2]}, {in[3], {}}, {in[4], {}}};
    return linear_maps(in[0], of);
  };
  add("linear_maps", {draw({2, 5, 7}), draw({3, 7}), draw({3}), draw({3, 7}), draw({3, 7})},
      [=](Inputs in) { return square(concat(maps(in), -1)); });
  add("linear_maps/of several widths", {draw({9, 7}), draw({3, 7}), draw({3}), draw({5, 7}), draw({1, 7})},
      [=](Inputs in) { return square(concat(maps(in), -1)); });
  add("linear_maps/one is not used", {draw({5, 7}), draw({3, 7}), draw({3}), draw({4, 7}), draw({3, 7})},
      [=](Inputs in) {
        const std::vector<Tensor> all = maps(in);
        return square(all[0]) * all[2] + sum(in[3]);
      });
  const auto layer = [](UnaryOp activation) {
    return [activation](Inputs in) {
      return square(feed_forward(in[0], {in[1], in[2]}, activation, {in[3], in[4]}));
    };
  };
  const auto inputs = [&](const Shape& x, std::int64_t hidden) {
    const std::int64_t width = x[x.rank() - 1];
    return std::vector{draw(x), draw({hidden, width}), draw({hidden}), draw({3, hidden}), draw({3})};
  };
  add("feed_forward", inputs({2, 5, 7}, 11), layer(UnaryOp::gelu));
  add("feed_forward/gelu_tanh", inputs({9, 8}, 12), layer(UnaryOp::gelu_tanh));
  add("feed_forward/silu", inputs({3, 7}, 1), layer(UnaryOp::silu));
  add("feed_forward/one row", inputs({7}, 10), layer(UnaryOp::gelu));
  add("feed_forward/of no product's activations", inputs({4, 5}, 6), layer(UnaryOp::tanh));
  add("feed_forward/no bias", {draw({5, 7}), draw({6, 7}), draw({2, 6})}, [](Inputs in) {
    return square(feed_forward(in[0], {in[1], {}}, UnaryOp::silu, {in[2], {}}));
  });
}

void add_einsum(Table& add, Draw& draw) {
  const auto row = [&](const char* equation, std::vector<Tensor> inputs) {
    add(concat_text("einsum/", equation), std::move(inputs),
        [equation](Inputs in) { return square(einsum(equation, in)); });
  };
  row("bhid, bhjd -> bhij", {draw({2, 3, 4, 5}), draw({2, 3, 6, 5})});
  row("ij,jk", {draw({3, 4}), draw({4, 5})});
  row("i,j->ji", {draw({3}), draw({4})});
  row("ij->", {draw({3, 4})});
  row("ii->i", {draw({4, 4})});
  row("iji", {draw({3, 4, 3})});
  row("ij,ij->i", {draw({3, 4}), draw({3, 4})});
  row("ijx,jk,kl->li", {draw({2, 3, 2}), draw({3, 4}), draw({4, 5})});
  row("...ij,...jk", {draw({2, 1, 3, 4}), draw({5, 4, 2})});
  row("i...,...j->j...i", {draw({3, 2, 1}), draw({4, 5})});
  row("ab,b,c->ac", {draw({3, 4}), draw({4}), draw({2})});
}

void add_indices(Table& add, Draw& draw) {
  add("embedding", {draw({6, 5}), ids({0, 3, 3, -1, 5, 3}, {2, 3})},
      [](Inputs in) { return square(embedding(in[0], in[1])); });
  add("index_select", {draw({3, 6, 2}), ids({5, 0, 0, 2}, {4})},
      [](Inputs in) { return square(index_select(in[0], 1, in[1])); });
  add("gather_rows", {draw({2, 4, 3}), ids({3, 1, 0, 0, 2, -1}, {2, 3})},
      [](Inputs in) { return square(gather_rows(in[0], in[1])); });
  add("scatter_add_rows", {draw({2, 3, 4}), ids({4, 1, 4, 0, -1, 2}, {2, 3})},
      [](Inputs in) { return square(scatter_add_rows(in[0], in[1], 5)); });
  add("gather", {draw({2, 4, 2}), ids({3, 1, 0, 0, 2, 2, 1, 3, 0, 1, 2, 3}, {2, 3, 2})},
      [](Inputs in) { return square(gather(in[0], 1, in[1])); });
  add("scatter_add", {draw({2, 3}), ids({5, 1, 5, 0, 2, 2}, {2, 3})},
      [](Inputs in) { return square(scatter_add(in[0], -1, in[1], 6)); });
  add.values("argsort", {draw({3, 37})}, [](Inputs in) { return argsort(in[0]); });
  add("sort", {draw.distinct({3, 17})}, [](Inputs in) { return square(sort(in[0], true).first); });
  add("top_k", {draw.distinct({3, 17})}, [](Inputs in) { return square(top_k(in[0], 4).first); });
}

void add_layers(Table& add, Draw& draw) {
  add("layer_norm", {draw({2, 5, 19}), draw({19}), draw({19})},
      [](Inputs in) { return square(layer_norm(in[0], in[1], in[2])); });
  add("layer_norm/plain", {draw({5, 19})}, [](Inputs in) { return exp(layer_norm(in[0], {}, {})); });
  add("rms_norm", {draw({2, 5, 19}), draw({19})}, [](Inputs in) { return square(rms_norm(in[0], in[1])); });
  // Divided by about the square root of positions times features, by which the transform makes vectors
  // longer.
  const auto transformed = [](const Tensor& x, const Tensor& lengths) {
    return square(fourier(x, lengths) * 0.08);
  };
  add("fourier", {draw({2, 12, 10})}, [=](Inputs in) { return transformed(in[0], {}); });
  add("fourier/ragged", {draw({3, 7, 33})}, [=](Inputs in) { return transformed(in[0], {}); });
  add("fourier/lengths", {draw({3, 11, 6})}, [=](Inputs in) {
    const Tensor& x = in[0];
    if (!x.defined()) return fourier(x);
    return transformed(x, Tensor::from(std::vector<std::int32_t>{5, 11, 0}, {3}, x.device()));
  });
  const auto turned = [](Inputs in) {
    const Tensor& x = in[0];
    if (!x.defined()) return rotary(x, x, x);
    const DType dtype = statistics_type(x.dtype());
    const Tensor angles =
        reshape(Tensor::arange(x.size(1) * x.size(3) / 2, dtype, x.device()), {x.size(1), x.size(3) / 2}) *
        0.37;
    return square(rotary(x, cos(angles), sin(angles)));
  };
  add("rotary", {draw({2, 5, 3, 8})}, turned);
  add("rotary/ragged", {draw({3, 7, 1, 22})}, turned);
  add("rotary/transposed", {draw({2, 3, 5, 6})}, [=](Inputs in) {
    return turned(std::vector<Tensor>{permute(in[0], {0, 2, 1, 3})});
  });
  add("rms_norm/plain", {draw({5, 19})}, [](Inputs in) { return exp(rms_norm(in[0], {})); });
  add("dropout", {draw({5, 19})}, [](Inputs in) { return square(dropout(in[0], 0.3, {1, 2, 3})); });
  add("dropout_add", {draw({5, 19}), draw({5, 19})}, [](Inputs in) {
    return square(dropout_add(in[0], in[1], 0.3, {1, 2, 3}));
  });
  // Both results, one of them, or with the other parameters: ragged widths meet blocks of random words
  // anywhere.
  const auto both = [](const NormedSum& of) { return square(of.sum) * 0.3 + exp(of.normalised * 0.2); };
  add("add_layer_norm", {draw({2, 5, 19}), draw({2, 5, 19}), draw({19}), draw({19})}, [=](Inputs in) {
    return both(add_layer_norm(in[0], in[1], 0.3, {1, 2, 3}, in[2], in[3]));
  });
  add("add_layer_norm/post-norm, no dropout", {draw({7, 31}), draw({7, 31}), draw({31}), draw({31})},
      [](Inputs in) {
        return square(add_layer_norm(in[0], in[1], 0, {1, 2, 3}, in[2], in[3]).normalised);
      });
  add("add_layer_norm/only the sum", {draw({3, 6}), draw({3, 6})}, [](Inputs in) {
    return square(add_layer_norm(in[0], in[1], 0.3, {1, 2, 3}, {}, {}).sum);
  });
  add("add_rms_norm", {draw({9, 20}), draw({9, 20}), draw({20})}, [=](Inputs in) {
    return both(add_rms_norm(in[0], in[1], 0.3, {1, 2, 3}, in[2]));
  });
  add("add_rms_norm/plain, no dropout", {draw({5, 3}), draw({5, 3})}, [=](Inputs in) {
    return both(add_rms_norm(in[0], in[1], 0, {1, 2, 3}, {}));
  });
  add("mean_squared_error", {draw({3, 5}), draw({3, 5})},
      [](Inputs in) { return mean_squared_error(in[0], in[1]); });
  add("kl_divergence", {draw({3, 5}), draw({3, 5})}, [](Inputs in) { return kl_divergence(in[0], in[1]); });
  add("cross_entropy", {draw({4, 23}, -3, 3), ids({0, 22, 7, 7}, {4})},
      [](Inputs in) { return cross_entropy(in[0], in[1]); });
  add("cross_entropy/smoothed", {draw({2, 2, 23}, -3, 3), ids({0, -1, 7, 22}, {2, 2})},
      [](Inputs in) { return cross_entropy(in[0], in[1], 0.1); });
  add("linear_cross_entropy", {draw({2, 2, 5}), draw({23, 5}), draw({23}), ids({0, -1, 7, 22}, {2, 2})},
      [](Inputs in) { return linear_cross_entropy(in[0], in[1], in[2], in[3], 0.1); });
  add("linear_cross_entropy/some rows at once", {draw({5, 6}), draw({9, 6}), ids({0, 8, 7, 2, 2}, {5})},
      [](Inputs in) { return linear_cross_entropy(in[0], in[1], {}, in[2], 0, -1, 2) * 3; });
}

/// The same integers where `like` is.
Tensor beside(const Tensor& like, const Tensor& integers) {
  if (!integers.defined() || integers.device() == like.device()) return integers;
  return Tensor::from(integers.to_vector<std::int32_t>(), integers.shape(), like.device());
}

/// The same options with masks where the query is.
AttentionOptions options_beside(const Tensor& query, AttentionOptions options) {
  options.key_mask = beside(query, options.key_mask);
  options.mask = beside(query, options.mask);
  if (options.slopes.defined()) {
    const std::vector<double> slopes = options.slopes.to_doubles();
    options.slopes = cast(Tensor::from(std::vector<float>(slopes.begin(), slopes.end()),
                                       options.slopes.shape(), query.device()),
                          statistics_type(query.dtype()));
  }
  return options;
}

void add_attention(Table& add, Draw& draw) {
  const auto with = [](const AttentionOptions& options) {
    return [options](Inputs in) {
      return square(attention(in[0], in[1], in[2], options_beside(in[0], options)));
    };
  };
  const auto qkv = [&](std::int64_t n, std::int64_t m) {
    return std::vector<Tensor>{draw({2, 2, n, 4}), draw({2, 2, m, 4}), draw({2, 2, m, 3})};
  };
  AttentionOptions options;
  add("attention", qkv(5, 7), with(options));
  options.causal = true;
  add("attention/causal", qkv(7, 7), with(options));
  add("attention/causal, fewer queries", qkv(3, 7), with(options));
  options = {};
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 7});
  add("attention/padding", qkv(5, 7), with(options));
  options = {};
  options.mask = greater(draw({2, 5, 7}), Tensor::zeros({}, DType::f64));
  add("attention/mask", qkv(5, 7), with(options));
  options = {};
  options.dropout = 0.3;
  options.dropout_key = {1, 2, 3};
  add("attention/dropout", qkv(5, 7), with(options));
  add("attention/heads", {draw({2, 5, 12}), draw({2, 5, 12}), draw({2, 5, 12})},
      [](Inputs in) {  // q, k, v as views of [B, N, H, d]
        const auto heads = [](const Tensor& x) { return permute(reshape(x, {2, 5, 3, 4}), {0, 2, 1, 3}); };
        const Tensor out = attention(heads(in[0]), heads(in[1]), heads(in[2]));
        return square(reshape(permute(out, {0, 2, 1, 3}), {2, 5, 12}));
      });
  options = {};
  // 7 x 7 in blocks of 3: a diagonal band, with one triangular block.
  auto pattern = std::make_shared<BlockPattern>();
  pattern->block = 3;
  pattern->queries = pattern->keys = 7;
  pattern->offsets = ids({0, 1, 3, 5}, {4});
  pattern->columns = ids({0, 0, 1, 1, 2}, {5});
  pattern->mask_ids = ids({0, -1, 0, -1, -1}, {5});
  pattern->masks = ids({1, 0, 0, 1, 1, 0, 1, 1, 1}, {1, 3, 3});
  options.pattern = pattern;
  add("attention/block pattern", qkv(7, 7), with(options));
  const auto part = [](const AttentionOptions& options) {  // both results
    return [options](Inputs in) {
      const AttentionPart part = attention_part(in[0], in[1], in[2], options_beside(in[0], options));
      return concat({square(part.output), sin(unsqueeze(part.log_sum_exp, 3))}, 3);
    };
  };
  add("attention_part/block pattern", qkv(7, 7), part(options));
  options = {};
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}, {2, 7});
  options.dropout = 0.3;
  options.dropout_key = {1, 2, 3};
  add("attention_part/padding, dropout", qkv(5, 7), part(options));
  // Even and odd keys; the first query of the second part and both of the last query have none.
  add("join_attention", qkv(3, 4),
      [even = ids({1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0}, {3, 4}),
       odd = ids({0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0}, {3, 4})](Inputs in) {
        const auto among = [&](const Tensor& mask) {
          AttentionOptions options;
          options.mask = beside(in[0], mask);
          return attention_part(in[0], in[1], in[2], options);
        };
        const AttentionPart parts[] = {among(even), among(odd)};
        return square(join_attention(parts));
      });
  add("attention_weights", {draw({1, 2, 3, 4}), draw({1, 2, 5, 4})},
      [](Inputs in) { return square(attention_weights(in[0], in[1])); });
}

/// Slopes, and biases of all shapes as a fourth input.
void add_attention_bias(Table& add, Draw& draw) {
  const auto with = [](const AttentionOptions& options) {
    return [options](Inputs in) {
      AttentionOptions all = options_beside(in[0], options);
      if (in.size() > 3) all.bias = in[3];
      return square(attention(in[0], in[1], in[2], all));
    };
  };
  const auto inputs = [&](std::int64_t n, std::int64_t m, std::int64_t batches = 0, std::int64_t heads = 0) {
    std::vector<Tensor> all{draw({2, 2, n, 4}), draw({2, 2, m, 4}), draw({2, 2, m, 3})};
    if (batches > 0) all.push_back(draw({batches, heads, n, m}));
    return all;
  };
  AttentionOptions options;
  options.slopes = Tensor::from(std::vector<double>{0.5, 0.125}, {2});
  add("attention/slopes", inputs(5, 7), with(options));
  options.causal = true;
  add("attention/slopes, causal", inputs(7, 7), with(options));
  add("attention/slopes, causal, fewer queries", inputs(3, 7), with(options));
  add("attention/slopes and bias, causal", inputs(6, 7, 1, 2), with(options));
  options = {};
  add("attention/bias", inputs(5, 7, 1, 2), with(options));
  add("attention/bias of samples and heads", inputs(5, 7, 2, 2), with(options));
  add("attention/bias, transposed",
      {draw({2, 2, 5, 4}), draw({2, 2, 7, 4}), draw({2, 2, 7, 3}), draw({1, 2, 7, 5})}, [](Inputs in) {
        AttentionOptions turned;
        turned.bias = transpose(in[3], 2, 3);
        return square(attention(in[0], in[1], in[2], turned));
      });
  options.causal = true;
  add("attention/bias for all, causal", inputs(7, 7, 1, 1), with(options));
  options = {};
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 7});
  options.dropout = 0.3;
  options.dropout_key = {1, 2, 3};
  add("attention/bias of samples, padding, dropout", inputs(5, 7, 2, 1), with(options));
  // log_sum_exp is -infinity where a query has no key: here each has one.
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}, {2, 7});
  add("attention_part/bias, padding, dropout", inputs(5, 7, 1, 2), [options](Inputs in) {
    AttentionOptions all = options_beside(in[0], options);
    all.bias = in[3];
    const AttentionPart part = attention_part(in[0], in[1], in[2], all);
    return concat({square(part.output), sin(unsqueeze(part.log_sum_exp, 3))}, 3);
  });
  add("attention_weights/bias", {draw({1, 2, 3, 4}), draw({1, 2, 5, 4}), draw({1, 2, 3, 5})}, [](Inputs in) {
    AttentionOptions biased;
    biased.bias = in[2];
    return square(attention_weights(in[0], in[1], biased));
  });
}

/// All that a state can do: with and without what may be left out, over several chunks, both ways, and with
/// the last state as a result.
void add_recurrence(Table& add, Draw& draw) {
  // Which of key and value, log_decay (its axes; 0: none), reading and writing, target, and state there are.
  const auto row = [&](const char* name, const Shape& keys, std::int64_t width, bool adds, int decay_axes,
                       bool overwrites, bool has_target, bool has_state, bool reverse) {
    const Shape values{keys[0], keys[1], keys[2], width};
    std::vector<Tensor> inputs{draw(keys)};
    if (adds) inputs.push_back(draw(keys)), inputs.push_back(draw(values));
    if (decay_axes == 3) inputs.push_back(draw({keys[0], keys[1], keys[2]}, -2, 0));
    if (decay_axes == 4) inputs.push_back(draw(keys, -2, 0));
    if (overwrites) inputs.push_back(draw(keys, -0.5, 0.5)), inputs.push_back(draw(keys, -0.5, 0.5));
    if (has_target) inputs.push_back(draw(values));
    if (has_state) inputs.push_back(draw({keys[0], keys[1], keys[3], width}));
    add(concat_text("recurrence/", name), std::move(inputs), [=](Inputs in) {
      std::size_t next = 0;
      const auto take = [&](bool there) { return there ? in[next++] : Tensor(); };
      Recurrence of{.query = take(true)};
      of.key = take(adds), of.value = take(adds);
      of.log_decay = take(decay_axes > 0);
      of.reading = take(overwrites), of.writing = take(overwrites);
      of.target = take(has_target), of.state = take(has_state);
      of.reverse = reverse;
      const RecurrenceResult found = recurrence(of);
      return concat({reshape(sin(found.output), {-1}), reshape(square(found.state), {-1})}, 0);
    });
  };
  row("sums", {2, 2, 5, 4}, 3, true, 0, false, false, false, false);
  row("one decay", {1, 2, 7, 5}, 4, true, 3, false, false, true, false);
  row("decays", {2, 1, 6, 3}, 5, true, 4, false, false, false, true);
  row("delta rule", {1, 2, 6, 4}, 3, false, 0, true, true, false, false);
  row("delta rule, one decay", {2, 1, 5, 5}, 2, false, 3, true, true, true, true);
  row("delta rule, decays", {1, 2, 6, 6}, 4, false, 4, true, true, false, false);
  row("delta rule, decays, and sums", {2, 2, 5, 4}, 5, true, 4, true, false, true, true);
  row("all", {1, 1, 4, 7}, 6, true, 3, true, true, true, false);
  row("what a state is read for", {1, 2, 4, 3}, 2, false, 0, true, false, true, false);
  row("chunks", {1, 2, 37, 3}, 2, true, 4, true, true, true, false);
  row("chunks, backwards", {1, 1, 64, 2}, 3, true, 3, false, false, false, true);
  row("one token", {3, 1, 1, 4}, 4, true, 4, true, false, true, false);
}

/// Tiles of columns, and more rows than one block, which do not fit the lowered limits of a device.
void add_wide_recurrence(Table& add, Draw& draw) {
  add("recurrence/heads", {draw({1, 3, 18}), draw({1, 3, 18}), draw({1, 3, 12}), draw({1, 3, 2}, -1, 0)},
      [](Inputs in) {
        const auto heads = [](const Tensor& x) {
          return permute(reshape(x, {1, 3, 2, x.size(2) / 2}), {0, 2, 1, 3});
        };
        return square(recurrence({.query = heads(in[0]),
                                  .key = heads(in[1]),
                                  .value = heads(in[2]),
                                  .log_decay = transpose(in[3], 1, 2)})
                          .output);
      });
}

void add_recompute(Table& add, Draw& draw) {
  add("recompute_in_backward", {draw({3, 4}), draw({4})}, [](Inputs in) {
    Random random(7);
    return recompute_in_backward(
        [](Inputs x, Random& keys) { return dropout(exp(x[0]) * x[1], 0.3, keys.next()); }, {in[0], in[1]},
        random);
  });
}

}  // namespace

std::vector<OpCase> op_cases() {
  Table add;
  Draw draw;
  add_elementwise(add, draw);
  add_shape(add, draw);
  add_reductions(add, draw);
  add_products(add, draw);
  add_einsum(add, draw);
  add_indices(add, draw);
  add_layers(add, draw);
  add_attention(add, draw);
  add_recompute(add, draw);
  add_attention_bias(add, draw);
  add_recurrence(add, draw);
  add_wide_recurrence(add, draw);
  return std::move(add.cases);
}

std::vector<Tensor> inputs_for(const OpCase& op_case, DType dtype, Device device) {
  std::vector<Tensor> inputs;
  for (const Tensor& input : op_case.inputs) {
    inputs.push_back(((is_floating(input.dtype()) ? cast(input, dtype) : input) * 1).to(device));  // a copy
  }
  return inputs;
}

}  // namespace heed
