#pragma once

#include "heed/tests/attention_cases.h"
#include "heed/tests/attention_large_logits.h"
#include "vulkan_compare.h"

// Shared by the tests of attention on Vulkan devices: cases moved there, and all results of
// attention.

namespace heed::test::attention_cases {

/// Returns a case of these sizes: batch, heads, queries, keys, and the widths of keys and values.
inline Case sized(const char* name, const std::array<std::int64_t, 6>& sizes) {
  Case c{.name = name};
  std::int64_t* const to[] = {&c.batch, &c.heads, &c.queries, &c.keys, &c.key_width, &c.value_width};
  for (std::size_t i = 0; i < sizes.size(); ++i) *to[i] = sizes[i];
  return c;
}
/// Returns a case of these sizes after `change`.
template <class Change>
Case sized(const char* name, const std::array<std::int64_t, 6>& sizes, const Change& change) {
  Case c = sized(name, sizes);
  change(c);
  return c;
}

/// Copies the elements, rounded to `dtype`, to memory of the same strides on a device.
inline Tensor moved(const Tensor& x, Device device, DType dtype) {
  if (!x.defined()) return x;
  std::int64_t last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) last += (x.size(axis) - 1) * x.stride(axis);
  const Shape whole{x.count() > 0 ? last + 1 : 0};
  const Tensor memory = x.view(whole, {1}, x.offset());
  const Tensor there =
      dtype == DType::i32
          ? Tensor::from(memory.to_vector<std::int32_t>(), whole, device)
          : converted(Tensor::from(converted(memory, DType::f32).to_vector<float>(), whole, device), dtype);
  return there.view(x.shape(), x.strides(), 0);
}
inline Tensor moved(const Tensor& x, Device device) {
  return x.defined() ? moved(x, device, x.dtype()) : x;
}

/// A case's arguments and the gradient of its result; without that, it has a forward pass only.
struct Call {
  AttentionArgs args;
  Tensor grad;
};

/// Calls `change` with each tensor of floats that is read in the type of the call.
template <class Change>
void change_operands(Call& call, const Change& change) {
  AttentionArgs& args = call.args;
  for (Tensor* x : {&args.query, &args.key, &args.value, &args.bias, &call.grad}) *x = change(*x);
}

/// Returns the call on a device, in a type that it may round to.
inline Call call_on(Device device, const Inputs& in, DType dtype = DType::f32) {
  Call call{in.args, in.grad};
  change_operands(call, [&](const Tensor& x) { return moved(x, device, dtype); });
  for (Tensor* x : {&call.args.key_mask, &call.args.mask, &call.args.slopes}) *x = moved(*x, device);
  return call;
}

/// Returns the call in f32 on the CPU, with the numbers that a call on a device was rounded to.
inline Call on_cpu(const Inputs& in, const Call& rounded) {
  Call call = rounded;
  change_operands(call, [](const Tensor& x) { return moved(x, {}, DType::f32); });
  call.args.key_mask = in.args.key_mask;
  call.args.mask = in.args.mask;
  call.args.slopes = in.args.slopes;
  return call;
}

inline const std::string result_names[] = {"out", "sums", "dquery", "dkey", "dvalue", "dbias"};

/// Returns everything attention computes, in the order of these names; dbias if there is a bias.
template <class Forward, class Backward>
Numbers results_by(const Forward& forward, const Backward& backward, const Case& c, const Call& call,
                   const Tensor& log_sum_exp_grad = {}) {
  const auto& [args, grad] = call;
  const DType dtype = args.query.dtype();
  const Device device = args.query.device();
  const auto empty = [&](std::int64_t rows, std::int64_t width) {
    const Shape shape{c.batch, c.heads, rows, width};
    if (!c.heads_inside) return unwritten(shape, dtype, device);
    return unwritten({c.batch, rows, c.heads, width}, dtype, device)
        .view(shape, {rows * c.heads * width, width, c.heads * width, 1}, 0);
  };
  const Tensor out = empty(c.queries, c.value_width),
               sums = unwritten({c.batch, c.heads, c.queries, 2}, DType::f32, device),
               dquery = empty(c.queries, c.key_width), dkey = empty(c.keys, c.key_width),
               dvalue = empty(c.keys, c.value_width),
               dbias = args.bias.defined() ? unwritten(args.bias.shape(), dtype, device) : Tensor();
  forward(args, out, sums);
  if (!grad.defined()) return numbers_of({out, sums});
  backward(args, out, sums, grad, log_sum_exp_grad, dquery, dkey, dvalue, dbias);
  Numbers all = numbers_of({out, sums, dquery, dkey, dvalue});
  if (dbias.defined()) all.push_back(dbias.to_doubles());
  return all;
}

/// Compares results; statistics are not rounded to a half type and have a limit of their own.
inline void check_results(const Numbers& found, const Numbers& expected, double allowed,
                          double of_statistics) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = worst_error(found[i], expected[i]);
    CHECK_MESSAGE(error <= (i == 1 ? of_statistics : allowed), result_names[i], " differs by ", error);
  }
}

inline double rounding_of(DType half) {
  return half == DType::f16 ? 0x1p-11 : 0x1p-8;
}

}  // namespace heed::test::attention_cases
