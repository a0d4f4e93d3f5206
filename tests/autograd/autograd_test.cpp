// The graph: gradients, recomputed segments and layers, random graphs.

#include "heed/autograd/graph.h"
#include "heed/core/backend.h"
#include "heed/core/profile.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/transformer.h"
#include "heed/tests/model_support.h"

namespace {
Tensor leaf(Doubles numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  return parameter(Tensor::from(numbers, {count}));
}
}  // namespace

TEST_CASE("autograd: gradients accumulate over calls until zeroed") {
  const Tensor x = leaf({1, 2});
  backward(sum(square(x)));
  CHECK(gradient(x).to_doubles() == Doubles{2, 4});
  backward(sum(square(x)));
  CHECK(gradient(x).to_doubles() == Doubles{4, 8});
  zero_gradient(x);
  CHECK_FALSE(gradient(x).defined());
}

TEST_CASE("autograd: a tensor used several times collects every path") {
  const Tensor x = leaf({3});
  const Tensor y = x * x + x + x;  // dy/dx = 2 x + 2
  backward(sum(y * y));
  CHECK(gradient(x).to_doubles()[0] == doctest::Approx(2 * 15 * 8));
}

TEST_CASE("autograd: the gradient of many pieces does not cost their number times what was split") {
  const Tensor x = parameter(Tensor::ones({256, 64}, DType::f64));
  const std::vector<std::int64_t> single(256, 1);
  start_profile();
  backward(sum(square(concat(split(x, 0, single), 0))));
  stop_profile();
  double bytes = 0;
  for (const ProfileRow& row : profile_rows()) bytes += row.bytes;
  CHECK(bytes < 100 * 256 * 64 * 8);  // 8 halvings of a few passes each
  CHECK(gradient(x).to_doubles() == Doubles(256 * 64, 2));
}

TEST_CASE("autograd: two leaves that receive the same gradient do not share its memory when it is changed") {
  const Tensor a = leaf({1}), b = leaf({1});
  backward(sum(a + b));
  backward(sum(a * 3));
  CHECK(gradient(a).to_doubles()[0] == 4);
  CHECK(gradient(b).to_doubles()[0] == 1);
}

TEST_CASE("autograd: nothing is recorded without a parameter or under NoGrad") {
  const Tensor x = leaf({1, 2});
  CHECK_FALSE((x.detach() * 2).tracked());
  {
    const NoGrad no_grad;
    CHECK_FALSE((x * 2).tracked());
  }
  CHECK((x * 2).tracked());
}

TEST_CASE("autograd: an op with several results has one backward") {
  const Tensor x = leaf({1, 2}), weight = parameter(Tensor::ones({1, 2}, DType::f64));
  const auto through_two = [&] {
    const LinearMap maps[] = {{weight, {}}, {weight * 3.0, {}}};
    return linear_maps(reshape(x, {1, 2}), maps);
  };
  const auto loss = [](const Tensor& y) { return sum(square(y)); };
  const std::vector<Tensor> both = through_two();  // 3 and 9
  backward(loss(both[0]) + loss(both[1]) * 0.5);
  CHECK(gradient(x).to_doubles() == Doubles{6 + 27, 6 + 27});
  CHECK(gradient(weight).to_doubles() == Doubles{1 * (6 + 27), 2 * (6 + 27)});

  zero_gradient(x), zero_gradient(weight);
  const std::vector<Tensor> one = through_two();
  backward(loss(one[1]));
  CHECK(gradient(x).to_doubles() == Doubles{54, 54});
  CHECK_ERROR(backward(loss(one[0])), "linear_maps was already walked");

  const NoGrad no_grad;
  for (const Tensor& result : through_two()) CHECK_FALSE(result.tracked());
}

TEST_CASE("autograd: errors name what is wrong") {
  const Tensor x = leaf({1, 2});
  CHECK_ERROR(backward(x * 2), "[2]");
  CHECK_ERROR(backward(sum(x.detach())), "does not depend");
  const Tensor y = sum(square(x));
  backward(y);
  CHECK_ERROR(backward(y), "already walked");
  CHECK_ERROR(gradient(y), "not a leaf");
  CHECK_THROWS_WITH_AS(x + leaf({1, 2, 3}), "add: shapes [2] and [3] do not broadcast", Error);
  CHECK_ERROR(matmul(Tensor::ones({2, 3}), Tensor::ones({2, 3})), "[2, 3]");
  CHECK_ERROR(Tensor::ones({2}) + x, "f32 and f64");
}

TEST_CASE(
    "autograd: a chain of a hundred thousand ops needs no deep stack, in backward and when it is dropped") {
  const Tensor x = leaf({1});
  Tensor y = x, dropped = x;
  for (int i = 0; i < 100000; ++i) y = y + 1.0, dropped = dropped + 1.0;
  backward(sum(y));
  CHECK(gradient(x).to_doubles()[0] == 1);
}

TEST_CASE("autograd: backward frees what the ops saved") {
  const Tensor x = parameter(Tensor::ones({1000}));
  const auto before = memory_stats().current_bytes;
  for (int i = 0; i < 3; ++i) {
    const Tensor loss = sum(square(exp(tanh(x))));
    CHECK(memory_stats().current_bytes > before + 8000);
    backward(loss);
    zero_gradient(x);
    CHECK(memory_stats().current_bytes < before + 1000);
  }
  CHECK(memory_stats().current_bytes == before);
}

TEST_CASE("autograd: a recomputed segment gives the same gradients and draws the same random numbers") {
  const auto run = [](bool recompute) {
    const Tensor x = leaf({1, 2, 3}), w = leaf({0.5, -1, 2});
    Random random(11);
    const auto segment = [&](std::span<const Tensor> in, Random& keys) {
      return dropout(tanh(in[0] * w), 0.4, keys.next());
    };
    const Tensor hidden =
        recompute ? recompute_in_backward(segment, {x}, random) : segment(std::vector<Tensor>{x}, random);
    backward(sum(dropout(hidden, 0.2, random.next()) * hidden));
    return std::make_pair(gradient(x).to_doubles(), gradient(w).to_doubles());
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("gradcheck refuses an empty function") {
  CHECK_THROWS_WITH_AS(gradcheck({}, {Tensor::from(Doubles{1, 2}, {2})}), "gradcheck: the function is empty",
                       Error);
}

TEST_CASE("gradcheck records by itself: where the caller does not, and within a function that is checked") {
  const std::vector<Tensor> inputs{Tensor::from<double>({1, 2}, {2})};
  const auto squares = [](std::span<const Tensor> in) { return square(in[0]); };
  {
    const NoGrad no_grad;
    CHECK(gradcheck(squares, inputs).passed);
    CHECK_FALSE(recording());
  }
  const auto nested = [&](std::span<const Tensor> in) {
    CHECK(gradcheck(squares, inputs).passed);
    return squares(in);
  };
  CHECK(gradcheck(nested, inputs).passed);
}

TEST_CASE("gradcheck finds a wrong derivative") {
  const auto wrong = [](std::span<const Tensor> in) { return square(in[0]) + in[0].detach() * 0.01; };
  const GradcheckResult result = gradcheck(wrong, {Tensor::from(Doubles{1, 2}, {2})});
  CHECK_FALSE(result.passed);
  CHECK(result.worst_error == doctest::Approx(0.01 / 2.01).epsilon(0.01));
}

// --- A model that recomputes its layers in backward trains as one that keeps everything, in less memory.

namespace {

struct Outcome {
  double loss = 0;
  std::vector<Doubles> gradients;
  std::size_t peak_bytes = 0;
};

/// One step with dropout of a model with four layers a side.
Outcome train_step(bool recompute) {
  TransformerConfig config = test::tiny_config();
  config.encoder_layers = config.decoder_layers = 4;
  config.dropout = config.attention_dropout = 0.2;
  config.max_length = 64;
  config.recompute_layers = recompute;
  EncoderDecoder model(config);
  model.to(DType::f64, {});
  const std::vector<Tokens> sources(8, Tokens(40, 3)), targets(8, Tokens(30, 5));
  const TranslationBatch batch = make_translation_batch(sources, targets, 1, 2);
  Context context = Context::train(7, 1);
  const auto before = memory_stats().current_bytes;
  reset_peak_memory();
  const Tensor loss = model.loss(batch, 0.1, context).mean();
  backward(loss);
  Outcome outcome{loss.item(), {}, memory_stats().peak_bytes - before};
  for (const NamedTensor& entry : model.parameters())
    outcome.gradients.push_back(gradient(*entry.tensor).to_vector<double>());
  return outcome;
}

}  // namespace

TEST_CASE("recompute: the same loss, the same gradients, less memory") {
  const Outcome kept = train_step(false), recomputed = train_step(true);
  CHECK(recomputed.loss == kept.loss);
  REQUIRE(recomputed.gradients.size() == kept.gradients.size());
  for (std::size_t t = 0; t < kept.gradients.size(); ++t) {
    for (std::size_t i = 0; i < kept.gradients[t].size(); ++i)
      CHECK(std::abs(recomputed.gradients[t][i] - kept.gradients[t][i]) <= 1e-12);
  }
  CHECK(recomputed.peak_bytes * 2 < kept.peak_bytes);
}

TEST_CASE(
    "recompute: a parameter that is overwritten before backward is an error, one that is not read is not") {
  const Tensor x = parameter(Tensor::ones({2, 3})), weight = parameter(Tensor::ones({4, 3})),
               factor = parameter(Tensor::ones({4})), other = parameter(Tensor::ones({4}));
  for (const Tensor* changed : {&weight, &factor, &other}) {
    Random random(1, 0);
    const Tensor out = recompute_in_backward(
        [&](std::span<const Tensor> inputs, Random&) { return linear(inputs[0], weight) * factor; }, {x},
        random);
    const Floats twos(static_cast<std::size_t>(changed->count()), 2);
    Tensor(*changed).assign(std::span<const float>(twos));
    if (changed == &other)
      backward(sum(out));
    else
      CHECK_ERROR(backward(sum(out)), "overwritten");
  }
}

TEST_CASE("recompute: a layer that leaves something in the context is refused") {
  const auto layer = [](const Tensor& x, const Tensor&, Context& context) {
    context.losses.push_back({"clusters", 1, x});
    return x;
  };
  const Tensor x = parameter(Tensor::ones({1}));
  Context context = Context::train(1, 1);
  CHECK_ERROR(recomputed_layer(layer, x, {}, context), "recompute_layers");
  CHECK(context.losses.empty());
}

// --- Random graphs of ops in f64. Gradients must agree with finite differences and between fused and
// composed bodies, and must not depend on who else holds the tensors in between: what an op overwrites when
// it is the only owner must never be needed again.

namespace {

/// Numbers that follow from the graph's seed.
class GraphDice {
 public:
  explicit GraphDice(std::uint32_t seed) : key_{seed, 0, 0} {}
  std::int64_t operator()(std::size_t sides) {
    return static_cast<std::int64_t>(random_word(key_, next_++) % sides);
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

using InputTensors = std::span<const Tensor>;

// All tensors of a graph have the shape [3, 4, 4], so that any op can follow any other. Values stay within
// (-1, 1).
const Shape common{3, 4, 4};

Tensor next_tensor(const std::vector<Tensor>& made, InputTensors leaves, GraphDice& dice) {
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
      return index_select(x, 1, Tensor::from(Ints{3, 0, 0, -1}, {4}));
    case 22: {
      const Tensor q = unsqueeze(x, 0), k = unsqueeze(y, 0);
      AttentionOptions options;
      options.causal = dice(2) == 1;
      return squeeze(attention(q, k, q, options), 0);
    }
    default: {
      Random random(5);
      return recompute_in_backward(
          [](InputTensors in, Random& keys) { return dropout(tanh(in[0] * in[1]), 0.2, keys.next()) * 0.5; },
          {x, row}, random);
    }
  }
}

/// The graph of a seed: leaves [3, 4, 4], [4, 4] and [4] -> a number. With `keep`, all tensors in between
/// outlive the call.
Tensor graph(std::uint32_t seed, InputTensors leaves, std::vector<Tensor>* keep = nullptr) {
  GraphDice dice(seed);
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

std::vector<Doubles> gradients(std::uint32_t seed, bool composed, bool keep_all) {
  std::optional<ComposeOnly> compose_only;
  if (composed) compose_only.emplace();
  std::vector<Tensor> leaves = leaves_of(seed), kept;
  for (Tensor& leaf : leaves) leaf = parameter(leaf);
  const Tensor loss = graph(seed, leaves, keep_all ? &kept : nullptr);
  std::vector<Doubles> before;
  for (const Tensor& tensor : kept) before.push_back(tensor.to_vector<double>());
  backward(loss);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].to_vector<double>() == before[i]);
  std::vector<Doubles> results;
  for (const Tensor& leaf : leaves)
    results.push_back(gradient(leaf).defined() ? gradient(leaf).to_vector<double>() : Doubles());
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
        gradcheck([&](InputTensors in) { return graph(seed, in); }, leaves_of(seed), 2e-6, 1e-5, 12);
    CHECK_MESSAGE(result.passed, "input ", result.worst_input, " element ", result.worst_element, ": ",
                  result.analytic, " against ", result.numeric);
  }
}
