#include <array>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {
namespace {

constexpr std::size_t operand_count = 8;

/// The tensors of a Recurrence, in the order of its members.
template <class OfConst>
auto list_operands(OfConst& of) {
  return std::array{&of.query,   &of.key,     &of.value,  &of.log_decay,
                    &of.reading, &of.writing, &of.target, &of.state};
}

struct StateSizes {
  std::int64_t batch, heads, length, key_width, width;
};

StateSizes check_recurrence(const Recurrence& of) {
  constexpr const char* op = "recurrence";
  check_floating(op, of.query);
  check(of.query.rank() == 4 && of.query.size(3) > 0, op, ": query of shape ", of.query.shape(),
        " must be [B, H, N, dk] with dk > 0");
  check(of.key.defined() == of.value.defined(), op, ": give key and value together");
  check(of.reading.defined() == of.writing.defined(), op, ": give reading and writing together");
  check(!of.target.defined() || of.reading.defined(), op, ": a target needs reading and writing");
  check(of.key.defined() || of.reading.defined(), op,
        ": nothing changes the state; give key and value, or reading and writing");
  const Tensor& wide = of.value.defined() ? of.value : of.target.defined() ? of.target : of.state;
  check(wide.defined(), op, ": without value and target, a state must be given");
  check(wide.rank() == 4 && wide.size(3) > 0, op, ": value, target or state of shape ", wide.shape(),
        " must have four axes, the last of which is not empty");
  const StateSizes n{of.query.size(0), of.query.size(1), of.query.size(2), of.query.size(3), wide.size(3)};
  const Shape keys = of.query.shape(), values{n.batch, n.heads, n.length, n.width};
  const auto fits = [&](const char* name, const Tensor& x, const Shape& shape) {
    if (!x.defined()) return;
    check_same(op, of.query, x);
    check(x.shape() == shape, op, ": ", name, " of shape ", x.shape(), " must be ", shape);
  };
  fits("key", of.key, keys);
  fits("value", of.value, values);
  fits("reading", of.reading, keys);
  fits("writing", of.writing, keys);
  fits("target", of.target, values);
  fits("state", of.state, {n.batch, n.heads, n.key_width, n.width});
  fits("log_decay", of.log_decay,
       of.log_decay.defined() && of.log_decay.rank() == 3 ? Shape{n.batch, n.heads, n.length} : keys);
  return n;
}

/// Computes the recurrence token by token from single ops.
RecurrenceResult recurrence_composed(const Recurrence& of, const StateSizes& n) {
  const Tensor& q = of.query;
  Tensor state = of.state.defined()
                     ? of.state
                     : Tensor::zeros({n.batch, n.heads, n.key_width, n.width}, q.dtype(), q.device());
  std::vector<Tensor> outputs(static_cast<std::size_t>(n.length));
  for (std::int64_t step = 0; step < n.length; ++step) {
    const std::int64_t t = of.reverse ? n.length - 1 - step : step;
    const auto row = [&](const Tensor& x) { return slice(x, 2, t, t + 1); };  // [B, H, 1, ...]
    if (of.log_decay.defined()) {
      const Tensor g = row(of.log_decay);
      state = state * exp(g.rank() == 3 ? unsqueeze(g, 3) : transpose(g, 2, 3));
    }
    Tensor more = of.key.defined() ? matmul(transpose(row(of.key), 2, 3), row(of.value)) : Tensor();
    if (of.reading.defined()) {
      const Tensor read = matmul(row(of.reading), state);
      const Tensor written =
          matmul(transpose(row(of.writing), 2, 3), of.target.defined() ? row(of.target) - read : -read);
      more = more.defined() ? more + written : written;
    }
    state = state + more;
    outputs[static_cast<std::size_t>(t)] = matmul(row(q), state);
  }
  return {concat(outputs, 2), state};
}

/// A contiguous last axis, as kernels read vectors.
Tensor with_contiguous_vectors(const Tensor& x) {
  if (!x.defined()) return x;
  const Tensor values = x.detach();
  return values.stride(3) == 1 || values.size(3) == 1 ? values : contiguous(values);
}

/// [B, H, N, n] stored as [B, N, H, n], so that merging the heads afterwards copies nothing.
Tensor stored_by_tokens(const Tensor& like, std::int64_t width) {
  return permute(empty_like(like, {like.size(0), like.size(2), like.size(1), width}), {0, 2, 1, 3});
}

RecurrenceResult recurrence_fused(const Recurrence& of, const StateSizes& n) {
  std::array<Tensor, operand_count> inputs;
  Recurrence plain_of = of;
  const auto given = list_operands(of);
  const auto taken = list_operands(plain_of);
  for (std::size_t i = 0; i < operand_count; ++i) {
    inputs[i] = *given[i];
    *taken[i] = given[i]->defined() && given[i]->rank() == 3 ? given[i]->detach()
                                                             : with_contiguous_vectors(*given[i]);
  }
  plain_of.state = plain(of.state);
  const Tensor& q = plain_of.query;
  const bool keeps = would_record(inputs);
  const Tensor output = stored_by_tokens(q, n.width),
               last = empty_like(q, {n.batch, n.heads, n.key_width, n.width});
  const Tensor written =
      keeps && of.reading.defined() ? empty_like(q, {n.batch, n.heads, n.length, n.width}) : Tensor();
  const bool wants_decay = of.log_decay.defined() && of.log_decay.tracked();
  const Tensor states =
      keeps && (of.reading.defined() || wants_decay)
          ? empty_like(q, {n.batch, n.heads, ceil_div(n.length, recurrence_chunk), n.key_width, n.width})
          : Tensor();
  backend_of(q).recurrence.forward(plain_of, output, written, states, last);

  const auto gradients = [plain_of, written, states, n, wants_decay](std::span<const Tensor> grads) {
    Recurrence of_inputs;
    const auto read = list_operands(plain_of);
    const auto made = list_operands(of_inputs);
    for (std::size_t i = 0; i < operand_count; ++i)
      if (const Tensor& x = *read[i]; x.defined())
        *made[i] = &x == &plain_of.log_decay ? empty_like(x) : stored_by_tokens(x, x.size(3));
    const Tensor& like = plain_of.query;
    if (!wants_decay) of_inputs.log_decay = {};
    of_inputs.state = empty_like(like, {n.batch, n.heads, n.key_width, n.width});
    const Tensor grad = grads[0].defined() ? with_contiguous_vectors(grads[0])
                                           : Tensor::zeros({n.batch, n.heads, n.length, n.width},
                                                           like.dtype(), like.device());
    backend_of(like).recurrence.backward(plain_of, written, states, grad, plain(grads[1]), of_inputs);
    Gradients all;
    for (const Tensor* one : made) all.push_back(*one);
    if (!plain_of.state.defined()) all.back() = {};
    return all;
  };
  const Tensor outs[] = {output, last};
  const std::vector<Tensor> results =
      record_joint("recurrence", outs, inputs, gradients, list_operands(plain_of));
  return {results[0], results[1]};
}

}  // namespace

RecurrenceResult recurrence(const Recurrence& of) {
  const StateSizes n = check_recurrence(of);
  if (is_half(of.query.dtype())) {
    Recurrence precise = of;
    for (Tensor* x : list_operands(precise))
      if (x->defined()) *x = cast(*x, DType::f32);
    const RecurrenceResult found = recurrence(precise);
    return {cast(found.output, of.query.dtype()), cast(found.state, of.query.dtype())};
  }
  if (of.query.count() == 0) {  // no token changes the state
    const Tensor state = of.state.defined() ? of.state
                                            : Tensor::zeros({n.batch, n.heads, n.key_width, n.width},
                                                            of.query.dtype(), of.query.device());
    return {matmul(of.query, state), state};
  }
  return usable(backend_of(of.query).recurrence) ? recurrence_fused(of, n) : recurrence_composed(of, n);
}

}  // namespace heed
