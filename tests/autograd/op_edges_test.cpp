// What ops do at the edges of their domain: tensors without elements, one product term, positions that do not
// fit, NaN, and gradients whose memory belongs to somebody else.

#include "heed/autograd/graph.h"
#include "heed/core/backend.h"
#include "heed/tests/model_support.h"

namespace {

Tensor reals(const Shape& shape) {
  return uniform(shape, 0.1, 0.9, {5, 0, static_cast<std::uint32_t>(shape.count())}, DType::f64);
}
Tensor ids(const Shape& shape) {
  return Tensor::zeros(shape, DType::i32);
}

/// The output has the shape, and every input a gradient of its own shape; both fused and composed.
void check_shapes(const char* what, std::vector<Tensor> inputs, const Shape& expected,
                  const std::function<Tensor(std::span<const Tensor>)>& op) {
  CAPTURE(what);
  for (const bool composed : {false, true}) {
    CAPTURE(composed);
    std::optional<ComposeOnly> compose_only;
    if (composed) compose_only.emplace();
    std::vector<Tensor> leaves = inputs;
    for (Tensor& leaf : leaves) {
      if (is_floating(leaf.dtype())) leaf = parameter(leaf);
    }
    const Tensor out = op(leaves);
    CHECK(out.shape() == expected);
    if (!out.tracked()) continue;
    backward(out, Tensor::ones(out.shape(), out.dtype()));
    for (const Tensor& leaf : leaves) {
      if (!leaf.tracked()) continue;
      REQUIRE(gradient(leaf).defined());
      CHECK(gradient(leaf).shape() == leaf.shape());
      for (const double value : gradient(leaf).to_vector<double>()) CHECK(std::isfinite(value));
    }
  }
}

using In = std::span<const Tensor>;

}  // namespace

TEST_CASE("attention over no keys gives 0 and a log-sum-exp of -infinity, fused and composed") {
  const Tensor query = parameter(Tensor::ones({1, 2, 3, 4}, DType::f64)),
               key = Tensor::ones({1, 2, 0, 4}, DType::f64), value = Tensor::ones({1, 2, 0, 5}, DType::f64);
  for (const bool composed : {false, true}) {
    const std::unique_ptr<ComposeOnly> scope = composed ? std::make_unique<ComposeOnly>() : nullptr;
    const AttentionPart part = attention_part(query, key, value);
    CHECK(part.output.shape() == Shape{1, 2, 3, 5});
    CHECK(max(abs(part.output.detach())).item() == 0);
    CHECK(max(part.log_sum_exp.detach()).item() == -infinity);
    backward(sum(part.output));
    CHECK(max(abs(gradient(query))).item() == 0);
  }
}

TEST_CASE("ops: gradients at corners are those that the limit has, not NaN") {
  const auto slope = [](const std::function<Tensor(const Tensor&)>& op, double at) {
    const Tensor x = parameter(Tensor::from<double>({at}, {1}));
    backward(sum(op(x)));
    return gradient(x).item();
  };
  CHECK(slope([](const Tensor& x) { return abs(x); }, 0) == 0);
  CHECK(slope([](const Tensor& x) { return pow(x, 0.0); }, 0) == 0);
  CHECK(slope([](const Tensor& x) { return pow(x, Tensor::from<double>({0}, {1})); }, 0) == 0);
  CHECK(slope([](const Tensor& x) { return pow(Tensor::from<double>({0}, {1}), x); }, 2) == 0);
  CHECK(slope([](const Tensor& x) { return x / 49.0; }, 49) == 1 / 49.0);

  CHECK(log_sum_exp(Tensor::from<double>({infinity, 1}, {2}), 0).item() == infinity);
  CHECK(log_sum_exp(Tensor::from<double>({-infinity, -infinity}, {2}), 0).item() == -infinity);
  const Tensor rows = parameter(Tensor::from<double>({-infinity, -infinity, 1, 2}, {2, 2}));
  backward(sum(where(Tensor::from<std::int32_t>({0, 1}, {2}), log_sum_exp(rows, 1), 0.0)));
  const Doubles found = gradient(rows).to_doubles();
  CHECK(found[0] == 0);
  CHECK(found[1] == 0);
  CHECK(std::abs(found[2] - 1 / (1 + std::exp(1.0))) < 1e-12);
}

namespace {

constexpr double magnitudes[] = {1e-38, 1e-20, 1e-10, 1e-3, 0.3,  1,    9,   40,
                                 88.5,  100,   1e4,   1e10, 1e18, 1e20, 3e38};

/// Values and gradients in f32 against those in f64, where those are numbers of f32; `scale`: what they are sums of.
void check_in_f32(const char* what, const Doubles& at, double scale,
                  const std::function<Tensor(std::span<const Tensor>)>& op) {
  const auto results = [&](DType dtype) {
    std::vector<Tensor> leaves, all;
    for (const double x : at) leaves.push_back(parameter(cast(Tensor::full({5}, x), dtype)));
    all.push_back(op(leaves));
    backward(sum(all[0]));
    for (const Tensor& leaf : leaves) all.push_back(gradient(leaf));
    return all;
  };
  const std::vector<Tensor> found = results(DType::f32), expected = results(DType::f64);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double right = expected[i].to_doubles()[0], value = found[i].to_doubles()[4];
    if (!(std::abs(right) < 3.3e38) || (i > 0 && !(std::abs(expected[0].to_doubles()[0]) < 3.3e38))) continue;
    CAPTURE_ALL(std::string(what), i, at[0], right, value);
    CHECK(std::abs(value - right) <= 2e-6 * std::max(std::abs(right), scale) + 1e-36);
  }
}

}  // namespace

TEST_CASE("ops: values and gradients at every magnitude of f32 are those of f64") {
  for (const double size : magnitudes)
    for (const double x : {size, -size}) {
      const double some = std::min(size, 1.0);
      // The derivative of gelu_tanh squares x.
#define HEED_UNARY(name, ...)                                \
  if (size < 1e19 || std::string_view(#name) != "gelu_tanh") \
    check_in_f32(#name, {x}, some, [](In in) { return name(in[0]); });
#define HEED_PARAMETRIC(name, ...)
#include "heed/core/elementwise.def"
      for (const double b : {1e-37, 1e-20, 1.0, 1e20, 1e37}) {
        check_in_f32("swiglu", {x, b}, 0, [](In in) { return swiglu(in[0], in[1]); });
        check_in_f32("geglu", {x, b}, some * b, [](In in) { return geglu(in[0], in[1]); });
        check_in_f32("norm", {x, b}, 0, [](In in) { return norm(stack({in[0], in[1], in[0]}, 0), 0); });
        check_in_f32("standard_deviation", {x, b}, 0, [](In in) {
          return standard_deviation(stack({in[0], in[1], in[0]}, 0), 0);
        });
        check_in_f32("log_sum_exp", {x, b}, 1, [](In in) {
          return log_sum_exp(stack({in[0], in[1]}, 0), 0);
        });
      }
    }
}

TEST_CASE("ops: the largest element so far, along any axis, fused and composed") {
  const Tensor x = uniform({2, 300, 3}, -1, 1, {4, 0, 1}, DType::f64);
  for (const int axis : {0, 1, 2}) {
    const Tensor found = running_max(x, axis), last = slice(found, axis, x.size(axis) - 1, x.size(axis));
    CHECK(last.to_doubles() == max(x, axis, true).to_doubles());
    CHECK(slice(found, axis, 0, 1).to_doubles() == slice(x, axis, 0, 1).to_doubles());
    const ComposeOnly scope;
    CHECK(running_max(x, axis).to_doubles() == found.to_doubles());
  }
}

TEST_CASE("ops: what says whether to stop may compute by itself") {
  int asked = 0;
  const StopCheck check([&] {
    ++asked;
    return sum(Tensor::ones({2})).item() < 0;
  });
  CHECK(sum(Tensor::ones({2})).item() == 2);
  CHECK(asked == 1);
}

TEST_CASE("ops: a number divided by itself is 1") {
  for (int n = 1; n < 200; ++n) {
    CHECK((Tensor::full({1}, n) / static_cast<double>(n)).item() == 1);
    CHECK((Tensor::full({1}, n, DType::f64) / static_cast<double>(n)).item() == 1);
  }
}

TEST_CASE("ops: elu and softplus keep their digits where they are small") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double error = dtype == DType::f32 ? 1e-6 : 1e-13;
    for (const double x : {-1e-30, -1e-12, -3e-8, -1e-4, -0.01, -0.3, -1.0, -20.0, -60.0, 2.0, 30.0}) {
      CAPTURE(x);
      const Tensor at = Tensor::full({5}, x, dtype);  // a whole vector of it and less
      const double given = at.to_doubles()[0];
      const auto is_near = [&](const Tensor& found, double expected) {
        for (const double value : found.to_doubles())
          CHECK(std::abs(value - expected) <= error * std::abs(expected));
      };
      if (given < 0) is_near(elu(at, 0.5), 0.5 * std::expm1(given));
      is_near(softplus(at), std::max(given, 0.0) + std::log1p(std::exp(-std::abs(given))));
    }
  }
}

TEST_CASE("losses: binary cross entropy keeps its digits at confident logits, and takes soft targets") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double error = dtype == DType::f32 ? 1e-6 : 1e-13;
    for (const double logit : {-90.0, -30.0, -3.0, -1e-5, 0.0, 0.7, 12.0, 60.0})
      for (const double target : {0.0, 1.0, 0.25}) {
        CAPTURE_ALL(logit, target);
        const Tensor x = parameter(Tensor::full({1}, logit, dtype));
        const Tensor loss = binary_cross_entropy_with_logits(x, Tensor::full({1}, target, dtype));
        const double given = x.detach().to_doubles()[0];
        const auto softplus_of = [](double at) {
          return std::max(at, 0.0) + std::log1p(std::exp(-std::abs(at)));
        };
        const double expected = target * softplus_of(-given) + (1 - target) * softplus_of(given);
        CHECK(std::abs(loss.item() - expected) <= error * expected + 1e-38);
        backward(loss);
        CHECK(std::abs(gradient(x).item() - (1 / (1 + std::exp(-given)) - target)) <= error);
      }
  }
}

TEST_CASE(
    "losses: squared errors need equal shapes; classes without probability add nothing to a divergence") {
  const Tensor x = Tensor::from<double>({1, 2, 4}, {3});
  CHECK(mean_squared_error(x, x + 2.0).item() == 4);
  CHECK_ERROR(mean_squared_error(x, reshape(x, {3, 1})), "[3] and [3, 1] differ");

  const Tensor p = parameter(Tensor::from<double>({std::log(0.5), std::log(0.5), -infinity}, {3}));
  const Tensor q = parameter(Tensor::from<double>({std::log(0.25), std::log(0.5), std::log(0.25)}, {3}));
  const Tensor divergence = kl_divergence(p, q);
  CHECK(divergence.item() == doctest::Approx(0.5 * std::log(2.0)));
  backward(divergence);
  CHECK(gradient(p).to_doubles()[2] == 0);
  CHECK(gradient(q).to_doubles() == Doubles{-0.5, -0.5, 0});
  CHECK(kl_divergence(q.detach(), p.detach()).item() == infinity);
  CHECK_ERROR(kl_divergence(x, x[0]), "kl_divergence");
}

// Whether a function can be called with a tensor alone, and with numbers that it does not take.
#define ALONE(name)         \
  []<class T>(const T& x) { \
    return requires {       \
      name(x);              \
    };                      \
  }(Tensor())
#define WITH_NUMBERS(name)        \
  []<class T>(const T& x) {       \
    return requires {             \
      name(x, UnaryParams{2, 3}); \
    };                            \
  }(Tensor())

TEST_CASE("ops: no function has a call without its numbers, and none takes numbers that it has not") {
  CHECK_FALSE(ALONE(clamp));
  CHECK_FALSE(ALONE(add_scalar));
  CHECK_FALSE(ALONE(mul_scalar));
  CHECK_FALSE(ALONE(div_scalar));
  CHECK_FALSE(ALONE(pow_scalar));
  CHECK_FALSE(WITH_NUMBERS(relu));
  CHECK_FALSE(WITH_NUMBERS(elu));
  const Tensor x = Tensor::from(Floats{-2, -0.5F, 1}, {3});
  CHECK(elu(x).to_doubles() == elu(x, 1).to_doubles());
  CHECK(elu(x).to_doubles() != relu(x).to_doubles());
  CHECK(leaky_relu(x).to_doubles() == leaky_relu(x, 0.01).to_doubles());
  CHECK(leaky_relu(x).to_doubles() != relu(x).to_doubles());
  for (const UnaryOp op : {UnaryOp::elu, UnaryOp::leaky_relu, UnaryOp::pow_scalar})
    CHECK_ERROR(unary(op, x), "needs a number in addition to the tensor, got none");
  CHECK_ERROR(unary(UnaryOp::clamp, x), "clamp: needs two numbers");
  CHECK_THROWS_WITH_AS(unary(UnaryOp::relu, x, {0.5}),
                       "relu: takes no number in addition to the tensor, got 0.5 and 0", Error);
  CHECK_THROWS_WITH_AS(unary(UnaryOp::elu, x, {0.5, 2}),
                       "elu: takes one number in addition to the tensor, got 0.5 and 2", Error);
  const Tensor rows = Tensor::ones({2, 3}), weight = Tensor::ones({3, 3});
  CHECK_ERROR(feed_forward(rows, {weight, {}}, UnaryOp::elu, {weight, {}}), "elu");
}

TEST_CASE("ops: sizes and values that cannot be are errors, not other tensors") {
  const Tensor none = Tensor::zeros({0}), four = Tensor::zeros({4});
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  Random random(1);
  CHECK_ERROR(none.view({huge, 4}), "view: shape");
  CHECK_ERROR(four.view({-2, -2}), "negative extent");
  CHECK_ERROR(split(four, 0, std::vector<std::int64_t>{-1, 5}), "size -1");
  CHECK_ERROR(Tensor::full({2}, 0.5, DType::i32), "0.5");
  CHECK_ERROR(Tensor::full({2}, 1e30, DType::i32), "i32");
  CHECK_ERROR(Tensor::arange(std::int64_t{1} << 61), "memory");
  CHECK_ERROR(masked_fill(Tensor::zeros({3}), ids({2, 3}), 1), "masked_fill");
  CHECK_ERROR(layer_norm(Tensor::zeros({2, 3}), {}, {}, -1), "epsilon");
  CHECK_ERROR(recompute_in_backward({}, {four}, random), "recompute_in_backward");
  CHECK_ERROR(Tensor::empty({std::int64_t{1} << 40, std::int64_t{1} << 40}), "more elements");
  CHECK_ERROR(Tensor::empty({huge, 4}), "more elements");
  CHECK_ERROR(Tensor::empty({std::int64_t{1} << 50}), "out of memory");
  CHECK_ERROR(Tensor::empty({2, -1}), "negative");
  CHECK_ERROR(expand(reals({1}), {-1}), "negative");
  // Products that wrap around to the right number, numbers that are cut to the right axis.
  CHECK_ERROR(reshape(none, {huge, 4}), "reshape");
  CHECK_ERROR(reshape(none, {huge, 0, 4}), "reshape");
  CHECK_ERROR(reshape(reals({6}), {huge, 3, -1}), "reshape");
  CHECK_ERROR(expand(reals({1, 1}), {huge, 4}), "expand");
  CHECK_ERROR(permute(reals({2, 3}), {1, std::int64_t{1} << 32}), "4294967296");
  CHECK_ERROR(pad(reals({3}), 0, INT64_MAX, 1), "pad");
}

TEST_CASE("edges: ops on tensors without elements") {
  const Tensor none = reals({0, 3});
  check_shapes("unary", {none}, {0, 3}, [](In in) { return gelu(in[0]); });
  check_shapes("binary", {none, reals({3})}, {0, 3}, [](In in) { return in[0] * in[1]; });
  check_shapes("binary, stretched", {reals({1, 3}), none}, {0, 3}, [](In in) { return in[0] / in[1]; });
  check_shapes("where", {none, reals({1}), ids({3})}, {0, 3},
               [](In in) { return where(in[2], in[0], in[1]); });
  check_shapes("reshape", {none}, {3, 0, 5}, [](In in) { return reshape(in[0], {3, 0, 5}); });
  check_shapes("transpose", {none}, {3, 0}, [](In in) { return contiguous(transpose(in[0], 0, 1)); });
  check_shapes("slice", {reals({2, 3})}, {2, 0}, [](In in) { return slice(in[0], 1, 1, 1); });
  check_shapes("expand", {reals({1, 3})}, {0, 3}, [](In in) { return expand(in[0], {0, 3}); });
  check_shapes("concat", {none, reals({2, 3})}, {2, 3}, [](In in) { return concat({in[0], in[1]}, 0); });
  check_shapes("pad", {none}, {2, 3}, [](In in) { return pad(in[0], 0, 1, 1); });
  check_shapes("roll", {none}, {0, 3}, [](In in) { return roll(in[0], 1, 0); });
  check_shapes("repeat", {none}, {0, 6}, [](In in) { return repeat(in[0], 2, 1); });
  check_shapes("tile", {none}, {2, 0, 6}, [](In in) { return tile(in[0], {2, 0, 2}); });
  check_shapes("vectors of nothing", {reals({0}), reals({0})}, {},
               [](In in) { return matmul(in[0], in[1]); });
  check_shapes("einsum", {none, reals({3})}, {0}, [](In in) { return einsum("...i,i->...", in); });
  check_shapes("kl_divergence", {none, none}, {0}, [](In in) { return kl_divergence(in[0], in[1]); });
  check_shapes("sum", {none}, {3}, [](In in) { return sum(in[0], 0); });
  check_shapes("sum of all", {none}, {}, [](In in) { return sum(in[0]); });
  check_shapes("prod", {none}, {3}, [](In in) { return prod(in[0], 0); });
  CHECK(prod(parameter(none), 0).tracked());
  check_shapes("max", {none}, {0}, [](In in) { return max(in[0], 1); });
  check_shapes("mean", {none}, {0, 1}, [](In in) { return mean(in[0], 1, true); });
  check_shapes("cumulative_sum", {none}, {0, 3}, [](In in) { return cumulative_sum(in[0], 0); });
  check_shapes("softmax", {none}, {0, 3}, [](In in) { return softmax(in[0]); });
  check_shapes("fourier", {reals({2, 0, 3})}, {2, 0, 3}, [](In in) { return fourier(in[0]); });
  check_shapes("softmax over nothing", {none}, {0, 3}, [](In in) { return softmax(in[0], 0); });
  check_shapes("log_softmax", {reals({3, 0})}, {3, 0}, [](In in) { return log_softmax(in[0]); });
  check_shapes("log_sum_exp", {none}, {0}, [](In in) { return log_sum_exp(in[0], 1); });
  check_shapes("masked_softmax", {none, ids({3})}, {0, 3},
               [](In in) { return masked_softmax(in[0], in[1]); });
  check_shapes("layer_norm", {none, reals({3}), reals({3})}, {0, 3},
               [](In in) { return layer_norm(in[0], in[1], in[2]); });
  check_shapes("dropout", {none}, {0, 3}, [](In in) { return dropout(in[0], 0.5, {1, 2, 3}); });
  check_shapes("dropout_add", {none}, {0, 3}, [](In in) {
    return dropout_add(in[0], in[0], 0.5, {1, 2, 3});
  });
  check_shapes("embedding", {reals({4, 3}), ids({2, 0})}, {2, 0, 3},
               [](In in) { return embedding(in[0], in[1]); });
  check_shapes("index_select of 8 axes", {reals({2, 3}), ids({2})}, {2, 2}, [](In in) {
    return reshape(index_select(reshape(in[0], {1, 1, 2, 1, 1, 1, 3, 1}), 6, in[1]), {2, 2});
  });
  check_shapes("index_select", {none, ids({2})}, {0, 2}, [](In in) { return index_select(in[0], 1, in[1]); });
  check_shapes("gather", {reals({2, 3}), ids({2, 0})}, {2, 0}, [](In in) { return gather(in[0], 1, in[1]); });
  check_shapes("scatter_add", {reals({2, 0}), ids({2, 0})}, {2, 4},
               [](In in) { return scatter_add(in[0], 1, in[1], 4); });
  check_shapes("sort", {none}, {0, 3}, [](In in) { return sort(in[0]).first; });
  check_shapes("top_k of none", {reals({2, 3})}, {2, 0}, [](In in) { return top_k(in[0], 0).first; });
  check_shapes("cross_entropy", {none, ids({0})}, {0},
               [](In in) { return cross_entropy(in[0], in[1], 0.1); });
  check_shapes("linear_cross_entropy", {none, reals({5, 3}), reals({5}), ids({0})}, {},
               [](In in) { return linear_cross_entropy(in[0], in[1], in[2], in[3]); });
}

TEST_CASE("edges: products over no terms are zero") {
  const auto multiply = [](In in) { return matmul(in[0], in[1]); };
  check_shapes("no rows", {reals({0, 3}), reals({3, 4})}, {0, 4}, multiply);
  check_shapes("no columns", {reals({2, 3}), reals({3, 0})}, {2, 0}, multiply);
  check_shapes("no terms", {reals({2, 0}), reals({0, 4})}, {2, 4}, multiply);
  check_shapes("no terms, shared", {reals({2, 3, 0}), reals({0, 4})}, {2, 3, 4}, multiply);
  check_shapes("no batch", {reals({0, 2, 3}), reals({0, 3, 4})}, {0, 2, 4}, multiply);
  const auto affine = [](In in) { return linear(in[0], in[1], in[2]); };
  check_shapes("linear, no rows", {reals({2, 0, 3}), reals({4, 3}), reals({4})}, {2, 0, 4}, affine);
  check_shapes("linear, no inputs", {reals({2, 0}), reals({4, 0}), reals({4})}, {2, 4}, affine);
  check_shapes("linear, no outputs", {reals({2, 3}), reals({0, 3}), reals({0})}, {2, 0}, affine);
  CHECK(matmul(reals({2, 0}), reals({0, 2})).to_vector<double>() == Doubles(4, 0.0));
}

TEST_CASE("edges: attention without queries, keys or samples") {
  const auto attend = [](In in) { return attention(in[0], in[1], in[2]); };
  check_shapes("no queries", {reals({2, 2, 0, 4}), reals({2, 2, 3, 4}), reals({2, 2, 3, 5})}, {2, 2, 0, 5},
               attend);
  check_shapes("no keys", {reals({2, 2, 3, 4}), reals({2, 2, 0, 4}), reals({2, 2, 0, 5})}, {2, 2, 3, 5},
               attend);
  check_shapes("no samples", {reals({0, 2, 3, 4}), reals({0, 2, 3, 4}), reals({0, 2, 3, 5})}, {0, 2, 3, 5},
               attend);
  CHECK_ERROR(attention(reals({1, 1, 2, 0}), reals({1, 1, 3, 0}), reals({1, 1, 3, 2})), "width 0");
  // Memory that was used before: what the kernel leaves alone would show.
  for (int i = 0; i < 8; ++i) Tensor::full({6}, std::numeric_limits<double>::quiet_NaN(), DType::f64);
  const Tensor out = attention(reals({1, 1, 3, 4}), reals({1, 1, 0, 4}), reals({1, 1, 0, 2}));
  CHECK(out.to_vector<double>() == Doubles(6, 0.0));
}

TEST_CASE("edges: a tensor of rank 0 goes through the ops that take any shape") {
  const Tensor x = Tensor::full({}, 0.5, DType::f64);
  check_shapes("unary", {x}, {}, [](In in) { return tanh(in[0]); });
  check_shapes("binary", {x, reals({2, 3})}, {2, 3}, [](In in) { return in[0] * in[1]; });
  check_shapes("sum", {x}, {}, [](In in) { return sum(in[0]); });
  check_shapes("mean", {x}, {}, [](In in) { return mean(in[0]); });
  check_shapes("reshape", {x}, {1, 1}, [](In in) { return reshape(in[0], {1, 1}); });
  check_shapes("unsqueeze", {x}, {1}, [](In in) { return unsqueeze(in[0], 0); });
  check_shapes("expand", {x}, {2, 2}, [](In in) { return expand(in[0], {2, 2}); });
  check_shapes("permute", {x}, {}, [](In in) { return permute(in[0], {}); });
  check_shapes("dropout", {x}, {}, [](In in) { return dropout(in[0], 0.5, {1, 2, 3}); });
}

TEST_CASE("edges: an axis that is out of range is reported with the op and the shape") {
  const Tensor x = reals({2, 3}), places = ids({2, 3}), parts[] = {x, x};
  const Shape order{0, 2};
  CHECK_ERROR(sum(x, 2), "sum: axis");
  CHECK_ERROR(mean(x, -3), "mean: axis");
  CHECK_ERROR(max(x, 2), "max: axis");
  CHECK_ERROR(argmax(x, 2), "argmax: axis");
  CHECK_ERROR(softmax(Tensor::ones({}), -1), "softmax: axis");
  CHECK_ERROR(log_softmax(x, 5), "log_softmax: axis");
  CHECK_ERROR(log_sum_exp(x, 2), "log_sum_exp: axis");
  CHECK_ERROR(cumulative_sum(x, 2), "cumulative_sum: axis");
  CHECK_ERROR(transpose(x, 0, 2), "transpose: axis");
  CHECK_ERROR(permute(x, order), "permute: axis");
  CHECK_ERROR(slice(x, 2, 0, 1), "slice: axis");
  CHECK_ERROR(select(x, 2, 0), "select: axis");
  CHECK_ERROR(squeeze(x, 2), "squeeze: axis");
  CHECK_ERROR(unsqueeze(x, 4), "unsqueeze: axis");
  CHECK_ERROR(concat(parts, 2), "concat: axis");
  CHECK_ERROR(split(x, 2, std::vector<std::int64_t>{1}), "split: axis");
  CHECK_ERROR(pad(x, 2, 1, 1), "pad: axis");
  CHECK_ERROR(index_select(x, 2, ids({1})), "index_select: axis");
  CHECK_ERROR(gather(x, 2, places), "gather: axis");
  CHECK_ERROR(scatter_add(x, 2, places, 3), "scatter_add: axis");
}

TEST_CASE("edges: steps beyond the end, and an axis too long for indices") {
  CHECK(slice(reals({3}), 0, 1, 3, INT64_MAX).to_doubles() == Doubles{reals({3}).to_doubles()[1]});
  const Tensor long_axis = expand(Tensor::ones({1}), {std::int64_t{1} << 31});
  CHECK_ERROR(argmax(long_axis, 0), "i32");
  CHECK_ERROR(argsort(long_axis), "i32");
  CHECK_ERROR(top_k(long_axis, 1), "i32");
}

TEST_CASE("edges: operands of another type are refused, biases included") {
  const Tensor x = Tensor::ones({2, 3}), weight = Tensor::ones({4, 3}), wrong = Tensor::ones({4}, DType::f64);
  CHECK_ERROR(linear(x, weight, wrong), "f32 and f64");
  CHECK_ERROR(linear_cross_entropy(x, weight, wrong, ids({2})), "f32 and f64");
  CHECK_ERROR(layer_norm(x, Tensor::ones({3}, DType::f64), {}), "f32 and f64");
}

TEST_CASE("edges: NaN is not lost") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = Tensor::from(Doubles{1, nan, 3, 2, 5, 4}, {2, 3});
  for (const Tensor& y : {sum(x, 1), max(x, 1), min(x, 1), softmax(x), log_softmax(x), log_sum_exp(x, 1),
                          layer_norm(x, {}, {}), cross_entropy(x, ids({2})), matmul(x, reals({3, 2}))})
    CHECK(std::isnan(y.to_vector<double>()[0]));
  CHECK(argmax(x, 1).to_vector<std::int32_t>() == Ints{1, 1});
  CHECK(sort(x).second.to_vector<std::int32_t>() == Ints{0, 2, 1, 0, 2, 1});
  const Tensor none_allowed = masked_softmax(x, Tensor::from(Ints{1, 0, 1}, {3}));
  CHECK(none_allowed.to_vector<double>()[0] == doctest::Approx(1 / (1 + std::exp(2))));
}

TEST_CASE("edges: the gradient given to backward, and one that a host keeps, are never written to") {
  const Tensor start = Tensor::from(Doubles{1, 2}, {2});
  const Tensor x = parameter(Tensor::from(Doubles{3, 4}, {2}));
  backward(exp(tanh(x)), start);
  backward(x, start);
  zero_gradient(x);
  backward(x + 0.0, start);
  const Tensor kept = gradient(x);
  backward(x * 5.0, start);
  backward(dropout(x, 0.5, {1, 2, 3}), start);
  CHECK(start.to_vector<double>() == Doubles{1, 2});
  CHECK(kept.to_vector<double>() == Doubles{1, 2});
  start.assign(std::span<const double>(Doubles{7, 7}));
  CHECK(kept.to_vector<double>() == Doubles{1, 2});
}

TEST_CASE("edges: an error inside backward leaves nothing behind") {
  const auto before = memory_stats().current_bytes;
  {
    const Tensor x = parameter(reals({64, 64})), index = Tensor::full({1}, 70, DType::i32);
    const Tensor shared = tanh(x);
    const Tensor broken =
        record("broken", shared.detach(), {shared}, [](const Tensor&) -> Gradients { fail("broken here"); });
    const Tensor loss = sum(broken) + sum(exp(shared));
    CHECK_THROWS_WITH_AS(backward(loss), "broken here", Error);
    CHECK_ERROR(embedding(x, index), "outside");
    zero_gradient(x);
    // The part of the graph that was not reached gives its whole gradient, and only that.
    backward(sum(shared));
    const Tensor y = parameter(x.detach());
    backward(sum(tanh(y)));
    CHECK(gradient(x).to_vector<double>() == gradient(y).to_vector<double>());
  }
  CHECK(memory_stats().current_bytes == before);
}

TEST_CASE("a block pattern that kernels would misread is refused") {
  const Tensor x = Tensor::ones({1, 1, 4, 2});
  const auto with = [&](const std::function<void(BlockPattern&)>& change) {
    BlockPattern pattern{2, 4, 4, 1, {}, {}, {}, {}};
    pattern.offsets = Tensor::from(Ints{0, 1, 2}, {3});
    pattern.columns = Tensor::from(Ints{0, 1}, {2});
    pattern.mask_ids = Tensor::from(Ints{0, -1}, {2});
    pattern.masks = Tensor::from(Ints{1, 0, 1, 1}, {1, 2, 2});
    change(pattern);
    AttentionOptions options;
    options.pattern = std::make_shared<BlockPattern>(pattern);
    return error_of([&] { attention(x, x, x, options); });
  };
  CHECK(with([](BlockPattern&) {}) == "");
  const auto transposed = [](BlockPattern& p) { p.masks = transpose(p.masks, 1, 2); };
  CHECK(contains(with(transposed), "must be contiguous"));
  const auto strided = [](BlockPattern& p) {
    p.columns = Tensor::from(Ints{0, 7, 1, 7}, {4}).view({2}, {2}, 0);
  };
  CHECK(contains(with(strided), "must be contiguous"));
  CHECK(contains(with([](BlockPattern& p) { p.offsets = slice(p.offsets, 0, 0, 2); }), "needs 3 offsets"));
  CHECK(contains(with([](BlockPattern& p) { p.columns = slice(p.columns, 0, 0, 1); }), "as many"));
  CHECK(contains(with([](BlockPattern& p) { p.masks = {}; }), "masks"));
}

TEST_CASE("cross entropy refuses a target that is neither a class nor the ignored one, fused and composed") {
  const Tensor logits = Tensor::ones({2, 3});
  for (const bool composed : {false, true}) {
    const std::unique_ptr<ComposeOnly> scope = composed ? std::make_unique<ComposeOnly>() : nullptr;
    for (const std::int32_t wrong : {3, -1, -101})
      CHECK_THROWS_AS(cross_entropy(logits, Tensor::from<std::int32_t>({wrong, 2}, {2}), 0, -100), Error);
  }
  CHECK_NOTHROW(cross_entropy(logits, Tensor::from<std::int32_t>({-1, 2}, {2})));  // -1 is what is ignored
}

TEST_CASE("recompute: a segment without inputs still trains the parameters inside") {
  const Tensor w = parameter(Tensor::full({3}, 2, DType::f64));
  Random random(1);
  const Tensor out =
      recompute_in_backward([&](std::span<const Tensor>, Random&) { return w * w; }, {}, random);
  CHECK(out.to_vector<double>() == Doubles{4, 4, 4});
  backward(sum(out));
  CHECK(gradient(w).to_vector<double>() == Doubles{4, 4, 4});
}

TEST_CASE("numbers as operands have the type of the tensor beside them") {
  const Tensor x = Tensor::from(Floats{-1, 0.5, 2}, {3});
  CHECK(less(x, 0.5).to_vector<std::int32_t>() == Ints{1, 0, 0});
  CHECK(greater_equal(x, 0.5).to_vector<std::int32_t>() == Ints{0, 1, 1});
  CHECK(maximum(x, 0.5).to_vector<float>() == Floats{0.5, 0.5, 2});
  CHECK(minimum(x, 0.5).to_vector<float>() == Floats{-1, 0.5, 0.5});
  CHECK(where(less(x, 0), 7, x).to_vector<float>() == Floats{7, 0.5, 2});
  CHECK(where(less(x, 0), x, 7).to_vector<float>() == Floats{-1, 7, 7});
  CHECK(equal(cast(x, DType::f64), 0.5).to_vector<std::int32_t>() == Ints{0, 1, 0});

  const Tensor ids = Tensor::from(Ints{1, 2, 3}, {3});
  CHECK((ids + 1).to_vector<std::int32_t>() == Ints{2, 3, 4});
  CHECK((ids - 1).to_vector<std::int32_t>() == Ints{0, 1, 2});
  CHECK((2 * ids).to_vector<std::int32_t>() == Ints{2, 4, 6});
  CHECK(not_equal(ids, 2).to_vector<std::int32_t>() == Ints{1, 0, 1});
  CHECK_ERROR(less(ids, 2.5), "less: 2.5 cannot be represented as i32");
  CHECK_THROWS_AS(where(ids, ids, 0.5), Error);
  CHECK_THROWS_AS(ids + 3e9, Error);
  CHECK_THROWS_AS(ids * 0.5, Error);
  CHECK_THROWS_AS(maximum(Tensor(), 1.0), Error);

  const Tensor p = parameter(x);
  backward(sum(where(less(x, 0), 0.0, maximum(p, 1.0))));
  CHECK(gradient(p).to_vector<float>() == Floats{0, 0, 1});
}

TEST_CASE("edges: a sum of whole numbers that does not fit is an error, and one that fits is right") {
  constexpr std::int32_t large = 2'000'000'000;
  for (const std::int64_t n : {2LL, 9LL, 5000LL, 200'000LL}) {
    CAPTURE(n);
    for (const bool along_columns : {false, true}) {
      CAPTURE(along_columns);
      const Shape shape = along_columns ? Shape{n, 3} : Shape{3, n};
      const Tensor all = Tensor::full(shape, large, DType::i32);
      CHECK_ERROR(sum(all, Axes{along_columns ? 0 : 1}), "does not fit in i32");
      // Pairs that cancel each other: parts of the sum do not fit, but the sum does.
      Ints values(static_cast<std::size_t>(3 * n));
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          values[static_cast<std::size_t>(along_columns ? j * 3 + i : i * n + j)] = j < n / 2       ? large
                                                                                    : j < n / 2 * 2 ? -large
                                                                                                    : 7;
      const Tensor pairs = sum(Tensor::from(values, shape), Axes{along_columns ? 0 : 1});
      for (const double value : pairs.to_doubles()) CHECK(value == (n % 2 == 1 ? 7 : 0));
    }
  }
}
