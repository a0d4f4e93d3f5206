// Random graphs of ops in f64. Gradients must agree with finite differences and between fused and composed
// bodies, and must not depend on who else holds the tensors in between: what an op overwrites when it is the
// only owner must never be needed again.

#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/backend.h"

using namespace heed;

namespace {

/// Numbers that follow from the graph's seed.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : key_{seed, 0, 0} {}
  std::int64_t operator()(std::size_t sides) {
    return static_cast<std::int64_t>(random_word(key_, next_++) % sides);
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

using Inputs = std::span<const Tensor>;

// All tensors of a graph have the shape [3, 4, 4], so that any op can follow any other. Values stay within
// (-1, 1).
const Shape common{3, 4, 4};

Tensor next_tensor(const std::vector<Tensor>& made, Inputs leaves, Dice& dice) {
  const Tensor& x = made[static_cast<std::size_t>(dice(made.size()))];
  const Tensor& y = made[static_cast<std::size_t>(dice(made.size()))];
  const Tensor &matrix = leaves[1], &row = leaves[2];
  const RandomKey key{9, 0, static_cast<std::uint32_t>(dice(1000))};
  switch (dice(24)) {
    case 0:
      return tanh(x + y);
    case 1:
      return x * y;
    case 2:
      return (x - y) * 0.5;
    case 3:
      return exp(x - 1.0);
    case 4:
      return sigmoid(x);
    case 5:
      return x + 0.0;
    case 6:
      return -x;
    case 7:
      return transpose(x, 1, 2);
    case 8:
      return permute(permute(x, {2, 0, 1}), {1, 2, 0});
    case 9:
      return concat({slice(x, 0, 1, 3), slice(y, 0, 0, 1)}, 0);
    case 10:
      return pad(slice(x, 1, 0, -1), 1, 0, 1, 0.25);
    case 11:
      return reshape(reshape(x, {12, 4}), common);
    case 12:
      return expand(mean(x, 2, true), common);
    case 13:
      return tanh(cumulative_sum(x, 1, true));
    case 14:
      return softmax(x, static_cast<int>(dice(3)));
    case 15:
      return exp(log_softmax(x));
    case 16:
      return tanh(layer_norm(x, row, row));
    case 17:
      return dropout(x, 0.3, key) * 0.5;
    case 18:
      return dropout_add(x, y, 0.3, key) * 0.3;
    case 19:
      return tanh(linear(x, matrix, row));
    case 20:
      return tanh(matmul(x, transpose(y, 1, 2)));
    case 21:
      return index_select(x, 1, Tensor::from(std::vector<std::int32_t>{3, 0, 0, -1}, {4}));
    case 22: {
      const Tensor q = unsqueeze(x, 0), k = unsqueeze(y, 0);
      AttentionOptions options;
      options.causal = dice(2) == 1;
      return squeeze(attention(q, k, q, options), 0);
    }
    default: {
      Random random(5);
      return recompute_in_backward(
          [](Inputs in, Random& keys) { return dropout(tanh(in[0] * in[1]), 0.2, keys.next()) * 0.5; },
          {x, row}, random);
    }
  }
}

/// The graph of a seed: leaves [3, 4, 4], [4, 4] and [4] -> a number. With `keep`, all tensors in between
/// outlive the call.
Tensor graph(std::uint32_t seed, Inputs leaves, std::vector<Tensor>* keep = nullptr) {
  Dice dice(seed);
  std::vector<Tensor> made{leaves[0], expand(leaves[1], common), expand(leaves[2], common)};
  for (int i = 0; i < 14; ++i) made.push_back(next_tensor(made, leaves, dice));
  // The last few, so that most graphs have branches that end in different places.
  Tensor total = sum(square(made.back()));
  for (std::size_t i = made.size() - 4; i + 1 < made.size(); ++i) total = total + sum(made[i] * made[i + 1]);
  if (keep) *keep = std::move(made);
  return total;
}

std::vector<Tensor> leaves_of(std::uint32_t seed) {
  std::vector<Tensor> leaves;
  for (const Shape& shape : {common, Shape{4, 4}, Shape{4}})
    leaves.push_back(
        uniform(shape, -0.9, 0.9, {seed, 1, static_cast<std::uint32_t>(leaves.size())}, DType::f64));
  return leaves;
}

std::vector<std::vector<double>> gradients(std::uint32_t seed, bool composed, bool keep_all) {
  std::optional<ComposeOnly> compose_only;
  if (composed) compose_only.emplace();
  std::vector<Tensor> leaves = leaves_of(seed), kept;
  for (Tensor& leaf : leaves) leaf = parameter(leaf);
  const Tensor loss = graph(seed, leaves, keep_all ? &kept : nullptr);
  std::vector<std::vector<double>> before;
  for (const Tensor& tensor : kept) before.push_back(tensor.to_vector<double>());
  backward(loss);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].to_vector<double>() == before[i]);
  std::vector<std::vector<double>> results;
  for (const Tensor& leaf : leaves)
    results.push_back(gradient(leaf).defined() ? gradient(leaf).to_vector<double>() : std::vector<double>());
  return results;
}

}  // namespace

TEST_CASE("random graphs: gradients agree with finite differences, composed bodies and other owners") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const auto fused = gradients(seed, false, false);
    CHECK(gradients(seed, false, true) == fused);  // to the bit: only the owners differ
    const auto composed = gradients(seed, true, false);
    CHECK(gradients(seed, true, true) == composed);
    for (std::size_t t = 0; t < fused.size(); ++t) {
      REQUIRE(composed[t].size() == fused[t].size());
      for (std::size_t i = 0; i < fused[t].size(); ++i)
        CHECK(std::abs(composed[t][i] - fused[t][i]) <= 1e-9 * std::max(1.0, std::abs(fused[t][i])));
    }
    const GradcheckResult result =
        gradcheck([&](Inputs in) { return graph(seed, in); }, leaves_of(seed), 2e-6, 1e-5, 12);
    CHECK_MESSAGE(result.passed, "input ", result.worst_input, " element ", result.worst_element, ": ",
                  result.analytic, " against ", result.numeric);
  }
}
