#include "heed/tests/cases/op_cases.h"
#include "heed/core/attention.h"

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

Tensor ids(std::vector<std::int32_t> values, const Shape& shape) {
  return Tensor::from(values, shape);
}

/// The numbers that a parametric operation is checked with.
UnaryParams numbers_of(UnaryOp op) {
  return {0.7, op == UnaryOp::clamp ? 1.3 : 0};
}

void add_elementwise(std::vector<OpCase>& cases, Draw& draw) {
#define HEED_UNARY(name, y, saved, dydx, low, high)                                            \
  cases.push_back({#name, [](Inputs in) { return name(in[0]); }, {draw({3, 17}, low, high)}}); \
  cases.push_back({#name "/transposed",                                                        \
                   [](Inputs in) { return name(transpose(in[0], 0, 1)); },                     \
                   {draw({5, 7}, low, high)}});
#define HEED_PARAMETRIC(name, y, saved, dydx, low, high)                                                  \
  cases.push_back({#name,                                                                                 \
                   [](Inputs in) { return unary(UnaryOp::name, in[0], numbers_of(UnaryOp::name)); },      \
                   {draw({3, 17}, low, high)}});                                                          \
  cases.push_back(                                                                                        \
      {#name "/transposed",                                                                               \
       [](Inputs in) { return unary(UnaryOp::name, transpose(in[0], 0, 1), numbers_of(UnaryOp::name)); }, \
       {draw({5, 7}, low, high)}});
#define HEED_BINARY(name, ...)                                                     \
  cases.push_back({#name,                                                          \
                   [](Inputs in) { return binary(BinaryOp::name, in[0], in[1]); }, \
                   {draw({4, 9}, 0.3, 0.9), draw({4, 9}, 1.1, 2.0)}});             \
  cases.push_back({#name "/broadcast",                                             \
                   [](Inputs in) { return binary(BinaryOp::name, in[0], in[1]); }, \
                   {draw({2, 1, 9}, 0.3, 0.9), draw({5, 1}, 1.1, 2.0)}});          \
  cases.push_back({#name "/row",                                                   \
                   [](Inputs in) { return binary(BinaryOp::name, in[0], in[1]); }, \
                   {draw({3, 19}, 1.1, 2.0), draw({19}, 0.3, 0.9)}});
#define HEED_COMPARE(name, ...)                                                      \
  cases.push_back({#name,                                                            \
                   [](Inputs in) { return compare(CompareOp::name, in[0], in[1]); }, \
                   {draw({4, 9}), draw({9})},                                        \
                   false});
#include "heed/core/elementwise.def"

  cases.push_back({"where",
                   [](Inputs in) { return where(in[0], in[1], in[2]); },
                   {ids({1, 0, 0, 1, 1}, {5}), draw({3, 5}), draw({1})}});
  cases.push_back({"masked_fill",
                   [](Inputs in) { return masked_fill(in[0], in[1], 0.5); },
                   {draw({3, 5}), ids({1, 0, 0, 1, 1}, {5})}});

  // A number on either side.
#define HEED_BINARY(name, dtypes, ...)                                                                \
  cases.push_back({#name "/number on the right",                                                      \
                   [](Inputs in) { return binary(BinaryOp::name, in[0], 1.0); },                      \
                   {draw({4, 9}, 1.1, 2.0)}});                                                        \
  cases.push_back({#name "/number on the left",                                                       \
                   [](Inputs in) { return binary(BinaryOp::name, 1.5, in[0]); },                      \
                   {draw({4, 9}, 1.6, 2.0)}});                                                        \
  if (std::string_view(#dtypes) == "ANY")                                                             \
    cases.push_back(                                                                                  \
        {#name "/integers",                                                                           \
         [](Inputs in) { return binary(BinaryOp::name, binary(BinaryOp::name, in[0], 3.0), in[1]); }, \
         {ids({4, -7, 0, 2}, {4}), ids({1, -5, 9, 2}, {4})},                                          \
         false});
#define HEED_COMPARE(name, ...)                                                                              \
  cases.push_back({#name "/numbers",                                                                         \
                   [](Inputs in) {                                                                           \
                     return compare(CompareOp::name, in[0], 2.0) + 2 * compare(CompareOp::name, 3.0, in[0]); \
                   },                                                                                        \
                   {ids({4, -7, 0, 2, 3}, {5})},                                                             \
                   false});
#include "heed/core/elementwise.def"
  cases.push_back(
      {"neg/integers",
       [](Inputs in) { return -in[0] * 1000 + abs(in[0]) * 100 + square(in[0]) + clamp(relu(in[0]), 1, 2); },
       {ids({4, -7, 0, 2}, {4})},
       false});
  cases.push_back({"operators",
                   [](Inputs in) {
                     Tensor x = 2 / (1 - in[0] * in[1]);
                     x += in[0];
                     x *= 3;
                     x -= 0.5;
                     x /= in[1];
                     return where(in[0] < 0.5, x, 0.0) + where(0.25 <= in[1], 1.0, x);
                   },
                   {draw({3, 4}, 0.1, 0.4), draw({4}, 0.3, 0.9)}});
  cases.push_back(
      {"where/numbers", [](Inputs in) { return where(in[0], 2.5, -0.5); }, {ids({1, 0, 0, 1}, {4})}, false});
  cases.push_back(
      {"logical_not", [](Inputs in) { return logical_not(in[0]); }, {ids({1, 0, 0, -1}, {4})}, false});
  const Tensor odd = Tensor::from<double>({1, std::nan(""), HUGE_VAL, -HUGE_VAL, 0}, {5});
  cases.push_back({"isnan", [](Inputs in) { return isnan(in[0]); }, {odd}, false});
  cases.push_back({"isfinite", [](Inputs in) { return isfinite(in[0]); }, {odd}, false});
}

void add_shape(std::vector<OpCase>& cases, Draw& draw) {
  cases.push_back({"reshape", [](Inputs in) { return square(reshape(in[0], {4, -1})); }, {draw({2, 6, 3})}});
  cases.push_back({"reshape/transposed",
                   [](Inputs in) { return reshape(transpose(in[0], 0, 2), {-1}); },
                   {draw({2, 6, 3})}});
  cases.push_back({"permute", [](Inputs in) { return exp(permute(in[0], {2, 0, 1})); }, {draw({2, 3, 5})}});
  cases.push_back({"slice", [](Inputs in) { return square(slice(in[0], 1, 1, -1, 2)); }, {draw({3, 8})}});
  cases.push_back({"select", [](Inputs in) { return square(select(in[0], 1, -2)); }, {draw({3, 8})}});
  cases.push_back({"expand", [](Inputs in) { return square(expand(in[0], {4, 3, 5})); }, {draw({3, 1})}});
  cases.push_back({"concat",
                   [](Inputs in) {
                     return square(concat({in[0], in[1]}, 1));
                   },
                   {draw({3, 2}), draw({3, 5})}});
  cases.push_back({"stack", [](Inputs in) { return square(stack(in, 1)); }, {draw({3, 4}), draw({3, 4})}});
  cases.push_back({"split",
                   [](Inputs in) {
                     const std::int64_t sizes[] = {2, 5};
                     const auto pieces = split(in[0], 1, sizes);
                     return concat({square(pieces[1]), exp(pieces[0])}, 1);
                   },
                   {draw({3, 7})}});
  cases.push_back({"[]", [](Inputs in) { return square(in[0][1] * in[0][-1][0]); }, {draw({3, 4})}});
  cases.push_back({"flip", [](Inputs in) { return exp(flip(in[0], {0, -1})); }, {draw({3, 2, 5})}});
  cases.push_back(
      {"flip/integers", [](Inputs in) { return flip(in[0], 1); }, {ids({1, 2, 3, 4, 5, 6}, {2, 3})}, false});
  cases.push_back({"roll", [](Inputs in) { return exp(roll(in[0], 2, -1)); }, {draw({3, 2, 5})}});
  cases.push_back({"repeat", [](Inputs in) { return exp(repeat(in[0], 3, 1)); }, {draw({2, 3, 2})}});
  cases.push_back({"tile", [](Inputs in) { return exp(tile(in[0], {2, 1, 3})); }, {draw({2, 3})}});
  cases.push_back({"tril", [](Inputs in) { return square(tril(in[0], 1)); }, {draw({2, 4, 5})}});
  cases.push_back({"triu", [](Inputs in) { return square(triu(in[0])); }, {draw({5, 4})}});
  cases.push_back({"tril/integers",
                   [](Inputs in) { return tril(in[0], -1) + triu(in[0], 1); },
                   {ids({1, 2, 3, 4}, {2, 2})},
                   false});
  cases.push_back(
      {"eye", [](Inputs in) { return in[0] * eye(3, in[0].dtype(), in[0].device()); }, {draw({3, 3})}});
  cases.push_back(
      {"one_hot", [](Inputs in) { return one_hot(in[0], 4); }, {ids({3, 0, -1, 2, 2, 1}, {2, 3})}, false});
  cases.push_back({"pad", [](Inputs in) { return square(pad(in[0], 1, 2, 1, 0.5)); }, {draw({3, 4})}});
}

void add_reductions(std::vector<OpCase>& cases, Draw& draw) {
  cases.push_back({"sum/last", [](Inputs in) { return square(sum(in[0], -1)); }, {draw({5, 33})}});
  cases.push_back({"sum/first", [](Inputs in) { return square(sum(in[0], 0)); }, {draw({7, 19})}});
  cases.push_back({"sum/middle", [](Inputs in) { return square(sum(in[0], 1, true)); }, {draw({3, 7, 5})}});
  cases.push_back({"sum/all", [](Inputs in) { return square(sum(in[0])); }, {draw({7, 19})}});
  cases.push_back({"mean", [](Inputs in) { return square(mean(in[0], -1)); }, {draw({5, 11})}});
  cases.push_back({"max", [](Inputs in) { return square(max(in[0], -1)); }, {draw.distinct({5, 11})}});
  cases.push_back(
      {"max/first", [](Inputs in) { return square(max(in[0], 0, true)); }, {draw.distinct({5, 11})}});
  cases.push_back({"min", [](Inputs in) { return square(min(in[0], 1)); }, {draw.distinct({3, 5, 4})}});
  cases.push_back({"sum/axes", [](Inputs in) { return square(sum(in[0], {0, 1})); }, {draw({3, 4, 5})}});
  cases.push_back({"sum/axes apart",
                   [](Inputs in) {
                     return square(sum(in[0], {-1, 0}));
                   },
                   {draw({3, 4, 5})}});
  cases.push_back({"sum/axes kept",
                   [](Inputs in) {
                     return square(sum(in[0], {0, 2, 3}, true));
                   },
                   {draw({3, 4, 5, 2})}});
  cases.push_back({"sum/integers",
                   [](Inputs in) { return sum(in[0], 0) + sum(in[0]); },
                   {ids({1, -2, 30000000, 4, 5, 6}, {2, 3})},
                   false});
  cases.push_back({"mean/axes", [](Inputs in) { return square(mean(in[0], {1, 2})); }, {draw({3, 4, 5})}});
  cases.push_back({"max/all", [](Inputs in) { return square(max(in[0])); }, {draw.distinct({3, 11})}});
  cases.push_back({"min/axes",
                   [](Inputs in) {
                     return square(min(in[0], {0, 2}));
                   },
                   {draw.distinct({3, 4, 5})}});
  cases.push_back({"max/integers",
                   [](Inputs in) { return max(in[0], 1) * 10 + min(in[0]); },
                   {ids({1, -2, 3, 4, 5, -6}, {2, 3})},
                   false});
  cases.push_back({"prod", [](Inputs in) { return prod(in[0], 1); }, {draw({3, 7, 2})}});
  cases.push_back({"prod/with zeros",
                   [](Inputs in) {
                     return prod(in[0] * cast(in[1], in[0].dtype()), {0, 1});
                   },
                   {draw({2, 3, 4}), ids({1, 1, 0, 0}, {4})}});
  cases.push_back(
      {"prod/integers", [](Inputs in) { return prod(in[0], 0); }, {ids({1, -2, 3, 4, 5, 6}, {3, 2})}, false});
  cases.push_back({"variance", [](Inputs in) { return variance(in[0], {0, -1}); }, {draw({3, 4, 5})}});
  cases.push_back(
      {"variance/unbiased", [](Inputs in) { return variance(in[0], 1, true, 1); }, {draw({3, 5})}});
  cases.push_back({"standard_deviation",
                   [](Inputs in) { return standard_deviation(in[0], 1, false, 1); },
                   {draw({3, 5})}});
  cases.push_back({"norm", [](Inputs in) { return norm(in[0], -1); }, {draw({3, 5})}});
  cases.push_back({"norm/all", [](Inputs in) { return norm(in[0]); }, {draw({3, 5})}});
  cases.push_back({"argmax", [](Inputs in) { return argmax(in[0], 1); }, {draw({3, 13, 4})}, false});
  cases.push_back(
      {"cumulative_sum", [](Inputs in) { return square(cumulative_sum(in[0], 1)); }, {draw({2, 9, 3})}});
  cases.push_back({"cumulative_sum/reverse",
                   [](Inputs in) { return square(cumulative_sum(in[0], -1, true)); },
                   {draw({3, 9})}});
  cases.push_back({"softmax", [](Inputs in) { return square(softmax(in[0])); }, {draw({5, 21}, -3, 3)}});
  cases.push_back(
      {"softmax/first", [](Inputs in) { return square(softmax(in[0], 0)); }, {draw({5, 6}, -3, 3)}});
  cases.push_back(
      {"log_softmax", [](Inputs in) { return square(log_softmax(in[0])); }, {draw({5, 21}, -3, 3)}});
  cases.push_back({"masked_softmax",
                   [](Inputs in) { return square(masked_softmax(in[0], in[1])); },
                   {draw({3, 2, 4}, -3, 3), ids({1, 0, 1, 1, 0, 0, 0, 0}, {2, 4})}});
  cases.push_back(
      {"log_sum_exp", [](Inputs in) { return square(log_sum_exp(in[0], 1)); }, {draw({3, 9, 2}, -3, 3)}});
}

void add_products(std::vector<OpCase>& cases, Draw& draw) {
  cases.push_back(
      {"matmul", [](Inputs in) { return square(matmul(in[0], in[1])); }, {draw({5, 7}), draw({7, 3})}});
  cases.push_back({"matmul/batched",
                   [](Inputs in) { return square(matmul(in[0], in[1])); },
                   {draw({2, 3, 5, 7}), draw({3, 7, 4})}});
  cases.push_back({"matmul/shared",
                   [](Inputs in) { return square(matmul(in[0], in[1])); },
                   {draw({2, 5, 7}), draw({7, 4})}});
  cases.push_back({"matmul/transposed",
                   [](Inputs in) { return square(matmul(transpose(in[0], 0, 1), transpose(in[1], 0, 1))); },
                   {draw({7, 5}), draw({3, 7})}});
  cases.push_back({"matmul/heads",
                   [](Inputs in) {  // views of [B, N, H, d], as attention has them
                     return square(matmul(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 3, 1})));
                   },
                   {draw({2, 5, 3, 4}), draw({2, 6, 3, 4})}});
  cases.push_back({"matmul/row",
                   [](Inputs in) { return square(matmul(in[0], in[1])); },
                   {draw({1, 70}), draw({70, 90})}});
  cases.push_back(
      {"matmul/vectors",
       [](Inputs in) {
         return matmul(in[0], in[1]) * square(concat({matmul(in[0], in[2]), matmul(in[2], in[3])}, 0));
       },
       {draw({4}), draw({4}), draw({4, 4}), draw({4})}});
  cases.push_back({"linear",
                   [](Inputs in) { return square(linear(in[0], in[1], in[2])); },
                   {draw({2, 5, 7}), draw({3, 7}), draw({3})}});
  cases.push_back({"linear/no bias",
                   [](Inputs in) { return square(linear(in[0], in[1])); },
                   {draw({5, 7}), draw({3, 7})}});
  const auto maps = [](Inputs in) {
    const LinearMap of[] = {{in[1], in[2]}, {in[3], {}}, {in[4], {}}};
    return linear_maps(in[0], of);
  };
  cases.push_back({"linear_maps",
                   [=](Inputs in) { return square(concat(maps(in), -1)); },
                   {draw({2, 5, 7}), draw({3, 7}), draw({3}), draw({3, 7}), draw({3, 7})}});
  cases.push_back({"linear_maps/of several widths",
                   [=](Inputs in) { return square(concat(maps(in), -1)); },
                   {draw({9, 7}), draw({3, 7}), draw({3}), draw({5, 7}), draw({1, 7})}});
  cases.push_back({"linear_maps/one is not used",
                   [=](Inputs in) {
                     const std::vector<Tensor> all = maps(in);
                     return square(all[0]) * all[2] + sum(in[3]);
                   },
                   {draw({5, 7}), draw({3, 7}), draw({3}), draw({4, 7}), draw({3, 7})}});
  const auto layer = [](UnaryOp activation) {
    return [activation](Inputs in) {
      return square(feed_forward(in[0], {in[1], in[2]}, activation, {in[3], in[4]}));
    };
  };
  const auto inputs = [&](const Shape& x, std::int64_t hidden) {
    const std::int64_t width = x[x.rank() - 1];
    return std::vector{draw(x), draw({hidden, width}), draw({hidden}), draw({3, hidden}), draw({3})};
  };
  cases.push_back({"feed_forward", layer(UnaryOp::gelu), inputs({2, 5, 7}, 11)});
  cases.push_back({"feed_forward/gelu_tanh", layer(UnaryOp::gelu_tanh), inputs({9, 8}, 12)});
  cases.push_back({"feed_forward/silu", layer(UnaryOp::silu), inputs({3, 7}, 1)});
  cases.push_back({"feed_forward/one row", layer(UnaryOp::gelu), inputs({7}, 10)});
  cases.push_back({"feed_forward/of no product's activations", layer(UnaryOp::tanh), inputs({4, 5}, 6)});
  cases.push_back({"feed_forward/no bias",
                   [](Inputs in) {
                     return square(feed_forward(in[0], {in[1], {}}, UnaryOp::silu, {in[2], {}}));
                   },
                   {draw({5, 7}), draw({6, 7}), draw({2, 6})}});
}

void add_einsum(std::vector<OpCase>& cases, Draw& draw) {
  const auto row = [&](const char* equation, std::vector<Tensor> inputs) {
    cases.push_back({concat_text("einsum/", equation),
                     [equation](Inputs in) { return square(einsum(equation, in)); }, std::move(inputs)});
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

void add_indices(std::vector<OpCase>& cases, Draw& draw) {
  cases.push_back({"embedding",
                   [](Inputs in) { return square(embedding(in[0], in[1])); },
                   {draw({6, 5}), ids({0, 3, 3, -1, 5, 3}, {2, 3})}});
  cases.push_back({"index_select",
                   [](Inputs in) { return square(index_select(in[0], 1, in[1])); },
                   {draw({3, 6, 2}), ids({5, 0, 0, 2}, {4})}});
  cases.push_back({"gather_rows",
                   [](Inputs in) { return square(gather_rows(in[0], in[1])); },
                   {draw({2, 4, 3}), ids({3, 1, 0, 0, 2, -1}, {2, 3})}});
  cases.push_back({"scatter_add_rows",
                   [](Inputs in) { return square(scatter_add_rows(in[0], in[1], 5)); },
                   {draw({2, 3, 4}), ids({4, 1, 4, 0, -1, 2}, {2, 3})}});
  cases.push_back({"gather",
                   [](Inputs in) { return square(gather(in[0], 1, in[1])); },
                   {draw({2, 4, 2}), ids({3, 1, 0, 0, 2, 2, 1, 3, 0, 1, 2, 3}, {2, 3, 2})}});
  cases.push_back({"scatter_add",
                   [](Inputs in) { return square(scatter_add(in[0], -1, in[1], 6)); },
                   {draw({2, 3}), ids({5, 1, 5, 0, 2, 2}, {2, 3})}});
  cases.push_back({"argsort", [](Inputs in) { return argsort(in[0]); }, {draw({3, 37})}, false});
  cases.push_back(
      {"sort", [](Inputs in) { return square(sort(in[0], true).first); }, {draw.distinct({3, 17})}});
  cases.push_back(
      {"top_k", [](Inputs in) { return square(top_k(in[0], 4).first); }, {draw.distinct({3, 17})}});
}

void add_layers(std::vector<OpCase>& cases, Draw& draw) {
  cases.push_back({"layer_norm",
                   [](Inputs in) { return square(layer_norm(in[0], in[1], in[2])); },
                   {draw({2, 5, 19}), draw({19}), draw({19})}});
  cases.push_back(
      {"layer_norm/plain", [](Inputs in) { return exp(layer_norm(in[0], {}, {})); }, {draw({5, 19})}});
  cases.push_back(
      {"rms_norm", [](Inputs in) { return square(rms_norm(in[0], in[1])); }, {draw({2, 5, 19}), draw({19})}});
  // Divided by about the square root of positions times features, by which the transform makes vectors
  // longer.
  const auto transformed = [](const Tensor& x, const Tensor& lengths) {
    return square(fourier(x, lengths) * 0.08);
  };
  cases.push_back({"fourier", [=](Inputs in) { return transformed(in[0], {}); }, {draw({2, 12, 10})}});
  cases.push_back({"fourier/ragged", [=](Inputs in) { return transformed(in[0], {}); }, {draw({3, 7, 33})}});
  cases.push_back(
      {"fourier/lengths",
       [=](Inputs in) {
         const Tensor& x = in[0];
         if (!x.defined()) return fourier(x);
         return transformed(x, Tensor::from(std::vector<std::int32_t>{5, 11, 0}, {3}, x.device()));
       },
       {draw({3, 11, 6})}});
  const auto turned = [](Inputs in) {
    const Tensor& x = in[0];
    if (!x.defined()) return rotary(x, x, x);
    const DType dtype = statistics_type(x.dtype());
    const Tensor angles =
        reshape(Tensor::arange(x.size(1) * x.size(3) / 2, dtype, x.device()), {x.size(1), x.size(3) / 2}) *
        0.37;
    return square(rotary(x, cos(angles), sin(angles)));
  };
  cases.push_back({"rotary", turned, {draw({2, 5, 3, 8})}});
  cases.push_back({"rotary/ragged", turned, {draw({3, 7, 1, 22})}});
  cases.push_back({"rotary/transposed",
                   [=](Inputs in) {
                     return turned(std::vector<Tensor>{permute(in[0], {0, 2, 1, 3})});
                   },
                   {draw({2, 3, 5, 6})}});
  cases.push_back({"rms_norm/plain", [](Inputs in) { return exp(rms_norm(in[0], {})); }, {draw({5, 19})}});
  cases.push_back({"dropout",
                   [](Inputs in) {
                     return square(dropout(in[0], 0.3, {1, 2, 3}));
                   },
                   {draw({5, 19})}});
  cases.push_back({"dropout_add",
                   [](Inputs in) {
                     return square(dropout_add(in[0], in[1], 0.3, {1, 2, 3}));
                   },
                   {draw({5, 19}), draw({5, 19})}});
  // Both results, one of them, or with the other parameters: ragged widths meet blocks of random words
  // anywhere.
  const auto both = [](const NormedSum& of) { return square(of.sum) * 0.3 + exp(of.normalised * 0.2); };
  cases.push_back({"add_layer_norm",
                   [=](Inputs in) {
                     return both(add_layer_norm(in[0], in[1], 0.3, {1, 2, 3}, in[2], in[3]));
                   },
                   {draw({2, 5, 19}), draw({2, 5, 19}), draw({19}), draw({19})}});
  cases.push_back({"add_layer_norm/post-norm, no dropout",
                   [](Inputs in) {
                     return square(add_layer_norm(in[0], in[1], 0, {1, 2, 3}, in[2], in[3]).normalised);
                   },
                   {draw({7, 31}), draw({7, 31}), draw({31}), draw({31})}});
  cases.push_back({"add_layer_norm/only the sum",
                   [](Inputs in) {
                     return square(add_layer_norm(in[0], in[1], 0.3, {1, 2, 3}, {}, {}).sum);
                   },
                   {draw({3, 6}), draw({3, 6})}});
  cases.push_back({"add_rms_norm",
                   [=](Inputs in) {
                     return both(add_rms_norm(in[0], in[1], 0.3, {1, 2, 3}, in[2]));
                   },
                   {draw({9, 20}), draw({9, 20}), draw({20})}});
  cases.push_back({"add_rms_norm/plain, no dropout",
                   [=](Inputs in) {
                     return both(add_rms_norm(in[0], in[1], 0, {1, 2, 3}, {}));
                   },
                   {draw({5, 3}), draw({5, 3})}});
  cases.push_back({"mean_squared_error",
                   [](Inputs in) { return mean_squared_error(in[0], in[1]); },
                   {draw({3, 5}), draw({3, 5})}});
  cases.push_back(
      {"kl_divergence", [](Inputs in) { return kl_divergence(in[0], in[1]); }, {draw({3, 5}), draw({3, 5})}});
  cases.push_back({"cross_entropy",
                   [](Inputs in) { return cross_entropy(in[0], in[1]); },
                   {draw({4, 23}, -3, 3), ids({0, 22, 7, 7}, {4})}});
  cases.push_back({"cross_entropy/smoothed",
                   [](Inputs in) { return cross_entropy(in[0], in[1], 0.1); },
                   {draw({2, 2, 23}, -3, 3), ids({0, -1, 7, 22}, {2, 2})}});
  cases.push_back({"linear_cross_entropy",
                   [](Inputs in) { return linear_cross_entropy(in[0], in[1], in[2], in[3], 0.1); },
                   {draw({2, 2, 5}), draw({23, 5}), draw({23}), ids({0, -1, 7, 22}, {2, 2})}});
  cases.push_back({"linear_cross_entropy/some rows at once",
                   [](Inputs in) { return linear_cross_entropy(in[0], in[1], {}, in[2], 0, -1, 2) * 3; },
                   {draw({5, 6}), draw({9, 6}), ids({0, 8, 7, 2, 2}, {5})}});
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

void add_attention(std::vector<OpCase>& cases, Draw& draw) {
  const auto with = [](AttentionOptions options) {
    return [options](Inputs in) {
      return square(attention(in[0], in[1], in[2], options_beside(in[0], options)));
    };
  };
  const auto qkv = [&](std::int64_t n, std::int64_t m) {
    return std::vector<Tensor>{draw({2, 2, n, 4}), draw({2, 2, m, 4}), draw({2, 2, m, 3})};
  };
  AttentionOptions options;
  cases.push_back({"attention", with(options), qkv(5, 7)});
  options.causal = true;
  cases.push_back({"attention/causal", with(options), qkv(7, 7)});
  cases.push_back({"attention/causal, fewer queries", with(options), qkv(3, 7)});
  options = {};
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 7});
  cases.push_back({"attention/padding", with(options), qkv(5, 7)});
  options = {};
  options.mask = greater(draw({2, 5, 7}), Tensor::zeros({}, DType::f64));
  cases.push_back({"attention/mask", with(options), qkv(5, 7)});
  options = {};
  options.dropout = 0.3;
  options.dropout_key = {1, 2, 3};
  cases.push_back({"attention/dropout", with(options), qkv(5, 7)});
  cases.push_back({"attention/heads",
                   [](Inputs in) {  // q, k, v as views of [B, N, H, d]
                     const auto heads = [](const Tensor& x) {
                       return permute(reshape(x, {2, 5, 3, 4}), {0, 2, 1, 3});
                     };
                     const Tensor out = attention(heads(in[0]), heads(in[1]), heads(in[2]));
                     return square(reshape(permute(out, {0, 2, 1, 3}), {2, 5, 12}));
                   },
                   {draw({2, 5, 12}), draw({2, 5, 12}), draw({2, 5, 12})}});
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
  cases.push_back({"attention/block pattern", with(options), qkv(7, 7)});
  const auto part = [](AttentionOptions options) {  // both results
    return [options](Inputs in) {
      const AttentionPart part = attention_part(in[0], in[1], in[2], options_beside(in[0], options));
      return concat({square(part.output), sin(unsqueeze(part.log_sum_exp, 3))}, 3);
    };
  };
  cases.push_back({"attention_part/block pattern", part(options), qkv(7, 7)});
  options = {};
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}, {2, 7});
  options.dropout = 0.3;
  options.dropout_key = {1, 2, 3};
  cases.push_back({"attention_part/padding, dropout", part(options), qkv(5, 7)});
  // Even and odd keys; the first query of the second part and both of the last query have none.
  cases.push_back({"join_attention",
                   [even = ids({1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0}, {3, 4}),
                    odd = ids({0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0}, {3, 4})](Inputs in) {
                     const auto among = [&](const Tensor& mask) {
                       AttentionOptions options;
                       options.mask = beside(in[0], mask);
                       return attention_part(in[0], in[1], in[2], options);
                     };
                     const AttentionPart parts[] = {among(even), among(odd)};
                     return square(join_attention(parts));
                   },
                   qkv(3, 4)});
  cases.push_back({"attention_weights",
                   [](Inputs in) { return square(attention_weights(in[0], in[1])); },
                   {draw({1, 2, 3, 4}), draw({1, 2, 5, 4})}});
}

/// Slopes, and biases of all shapes as a fourth input.
void add_attention_bias(std::vector<OpCase>& cases, Draw& draw) {
  const auto with = [](AttentionOptions options) {
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
  cases.push_back({"attention/slopes", with(options), inputs(5, 7)});
  options.causal = true;
  cases.push_back({"attention/slopes, causal", with(options), inputs(7, 7)});
  cases.push_back({"attention/slopes, causal, fewer queries", with(options), inputs(3, 7)});
  cases.push_back({"attention/slopes and bias, causal", with(options), inputs(6, 7, 1, 2)});
  options = {};
  cases.push_back({"attention/bias", with(options), inputs(5, 7, 1, 2)});
  cases.push_back({"attention/bias of samples and heads", with(options), inputs(5, 7, 2, 2)});
  cases.push_back({"attention/bias, transposed",
                   [](Inputs in) {
                     AttentionOptions turned;
                     turned.bias = transpose(in[3], 2, 3);
                     return square(attention(in[0], in[1], in[2], turned));
                   },
                   {draw({2, 2, 5, 4}), draw({2, 2, 7, 4}), draw({2, 2, 7, 3}), draw({1, 2, 7, 5})}});
  options.causal = true;
  cases.push_back({"attention/bias for all, causal", with(options), inputs(7, 7, 1, 1)});
  options = {};
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 7});
  options.dropout = 0.3;
  options.dropout_key = {1, 2, 3};
  cases.push_back({"attention/bias of samples, padding, dropout", with(options), inputs(5, 7, 2, 1)});
  // log_sum_exp is -infinity where a query has no key: here each has one.
  options.key_mask = ids({1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}, {2, 7});
  cases.push_back({"attention_part/bias, padding, dropout",
                   [options](Inputs in) {
                     AttentionOptions all = options_beside(in[0], options);
                     all.bias = in[3];
                     const AttentionPart part = attention_part(in[0], in[1], in[2], all);
                     return concat({square(part.output), sin(unsqueeze(part.log_sum_exp, 3))}, 3);
                   },
                   inputs(5, 7, 1, 2)});
  cases.push_back({"attention_weights/bias",
                   [](Inputs in) {
                     AttentionOptions biased;
                     biased.bias = in[2];
                     return square(attention_weights(in[0], in[1], biased));
                   },
                   {draw({1, 2, 3, 4}), draw({1, 2, 5, 4}), draw({1, 2, 3, 5})}});
}

void add_recompute(std::vector<OpCase>& cases, Draw& draw) {
  cases.push_back({"recompute_in_backward",
                   [](Inputs in) {
                     Random random(7);
                     return recompute_in_backward(
                         [](Inputs x, Random& keys) { return dropout(exp(x[0]) * x[1], 0.3, keys.next()); },
                         {in[0], in[1]}, random);
                   },
                   {draw({3, 4}), draw({4})}});
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  Draw draw;
  add_elementwise(cases, draw);
  add_shape(cases, draw);
  add_reductions(cases, draw);
  add_products(cases, draw);
  add_einsum(cases, draw);
  add_indices(cases, draw);
  add_layers(cases, draw);
  add_attention(cases, draw);
  add_recompute(cases, draw);
  add_attention_bias(cases, draw);
  return cases;
}

std::vector<Tensor> inputs_for(const OpCase& op_case, DType dtype, Device device) {
  std::vector<Tensor> inputs;
  for (const Tensor& input : op_case.inputs) {
    const Tensor converted = is_floating(input.dtype()) ? cast(input, dtype) : input;
    if (converted.dtype() == DType::f32) {
      inputs.push_back(Tensor::from(converted.to_vector<float>(), converted.shape(), device));
    } else if (converted.dtype() == DType::f64) {
      inputs.push_back(Tensor::from(converted.to_vector<double>(), converted.shape(), device));
    } else {
      inputs.push_back(Tensor::from(converted.to_vector<std::int32_t>(), converted.shape(), device));
    }
  }
  return inputs;
}

}  // namespace heed
