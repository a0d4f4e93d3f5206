#pragma once

#include "heed/autograd/cases/op_cases.h"
#include "heed/tests/kernel_check.h"

// Ops that work on rows, as cases of any size.

namespace heed::test {

struct Extent {
  std::int64_t rows, n;
};

/// Returns the ops on rows of this size. Their operands begin in the middle of their memory; what a
/// mask hides are infinities and NaN.
inline std::vector<OpCase> row_cases(const Extent& extent) {
  const auto [rows, n] = extent;
  const std::int64_t all = rows + 1;  // the first is cut off
  const auto drawn = [&](const Shape& shape, double low, double high, std::uint32_t stream) {
    return tensor_of<double>(numbers(shape.count(), low, high, stream), shape);
  };
  const Tensor x = drawn({all, n}, -8, 8, 1), far = drawn({all, n}, -30, 30, 2),
               weight = drawn({n}, 0.5, 2, 3), bias = drawn({n}, -1, 1, 4), other = drawn({all, n}, -2, 2, 5);
  Doubles hidden = values_of<double>(x), allowed(hidden.size()), targets;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    const bool allows_nothing = static_cast<std::int64_t>(i) / n == 1;
    allowed[i] = !allows_nothing && random_word({7, 0, 0}, i) % 3 != 0;
    if (allowed[i] == 0) hidden[i] = i % 2 ? not_a_number : infinity;
  }
  for (std::int64_t r = 0; r < all; ++r)
    targets.push_back(r % 4 == 3 ? -1 : static_cast<double>(r * 7919 % n));
  const Tensor classes = tensor_of<std::int32_t>(targets, {all}),
               mask = tensor_of<std::int32_t>(allowed, {all, n}),
               behind = tensor_of<double>(hidden, {all, n});

  std::vector<OpCase> cases;
  using In = std::span<const Tensor>;
  const auto add = [&](std::string name, std::vector<Tensor> inputs, std::function<Tensor(In)> op) {
    const auto cut = [op, all](In in) {
      std::vector<Tensor> rest(in.begin(), in.end());
      for (Tensor& one : rest)
        if (one.rank() == 2 || one.dtype() == DType::i32) one = slice(one, 0, 1, all);
      return op(rest);
    };
    cases.push_back({std::move(name), cut, std::move(inputs)});
  };
  const auto both = [](const NormedSum& of) { return of.sum * 0.3 + of.normalised; };
  const RandomKey key{5, 6, 7};
  add("softmax", {far}, [](In in) { return softmax(in[0]); });
  add("log_softmax", {far}, [](In in) { return log_softmax(in[0]); });
  add("masked_softmax", {behind, mask}, [](In in) { return masked_softmax(in[0], in[1]); });
  add("layer_norm/plain", {x}, [](In in) { return layer_norm(in[0], {}, {}); });
  add("layer_norm", {x, weight, bias}, [](In in) { return layer_norm(in[0], in[1], in[2]); });
  add("rms_norm/plain", {x}, [](In in) { return rms_norm(in[0], {}); });
  add("rms_norm", {x, weight}, [](In in) { return rms_norm(in[0], in[1]); });
  for (const double p : {0.0, 0.3}) {
    add(concat_text("add_layer_norm/dropout ", p), {x, other, weight, bias},
        [=](In in) { return both(add_layer_norm(in[0], in[1], p, key, in[2], in[3])); });
    add(concat_text("add_rms_norm/dropout ", p), {x, other, weight},
        [=](In in) { return both(add_rms_norm(in[0], in[1], p, key, in[2])); });
  }
  for (const double smoothing : {0.0, 0.1})
    add(concat_text("cross_entropy/smoothing ", smoothing), {x, classes},
        [=](In in) { return cross_entropy(in[0], in[1], smoothing); });
  return cases;
}

}  // namespace heed::test
