#include "heed/core/recurrence.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "heed/backends/vulkan/launch.h"

// A state for each head that changes token by token (shaders/recurrence.comp). A call beyond the
// device's limits is cut into samples, heads, and stretches of whole chunks, which pass on the
// state.

namespace heed::vulkan {
namespace {

Tensor make_contiguous(const Tensor& x) {
  return !x.defined() || x.is_contiguous() ? x : compact(x);
}

/// g [B, H, N] or [B, H, N, dk] for each row of S.
Tensor take_decays(const Recurrence& of) {
  const Tensor& g = of.log_decay;
  if (!g.defined() || g.rank() == 4) return make_contiguous(g);
  const Shape& s = g.strides();
  return compact(g.view(of.query.shape(), {s[0], s[1], s[2], 0}, g.offset()));
}

/// Part of an axis of [B, H, N or chunks, ...]; `state` as well where the axis is not that of tokens.
Tensor part_of(const Tensor& x, int axis, Part part) {
  return x.defined() ? narrowed(x, axis, part) : x;
}
Recurrence part_of(const Recurrence& of, int axis, Part part) {
  Recurrence cut = of;
  for (Tensor* x :
       {&cut.query, &cut.key, &cut.value, &cut.log_decay, &cut.reading, &cut.writing, &cut.target})
    *x = part_of(*x, axis, part);
  if (axis < 2) cut.state = part_of(of.state, axis, part);
  return cut;
}

/// Returns the axis to halve if a call exceeds the limits, otherwise -1. `elements`: of tensors,
/// for each token; the states have one for each head.
int axis_to_cut(const Gpu& gpu, const Recurrence& of, std::int64_t width, std::int64_t elements,
                std::int64_t states, std::int64_t groups) {
  const Shape& shape = of.query.shape();
  const std::int64_t heads = shape[0] * shape[1], chunks = ceil_div(shape[2], recurrence_chunk);
  const std::int64_t most = std::max(shape[2] * elements, std::max(chunks, states) * shape[3] * width);
  if (range_holds(gpu, heads * most, DType::f32) && heads * groups <= most_groups(gpu)) return -1;
  return shape[0] > 1 ? 0 : shape[1] > 1 ? 1 : chunks > 1 ? 2 : -1;
}

/// The halves of an axis; of tokens by whole chunks, in the order in which they are taken.
struct RecurrenceHalves {
  std::array<Part, 2> tokens, chunks;

  RecurrenceHalves(const Recurrence& of, int axis) : tokens(halves(of.query.size(axis))), chunks(tokens) {
    if (axis < 2) return;
    const std::int64_t length = of.query.size(2);
    chunks = halves(ceil_div(length, recurrence_chunk));
    const std::int64_t first = chunks[0].count * recurrence_chunk;
    tokens = {Part{0, first}, Part{first, length - first}};
    if (of.reverse) tokens = {Part{length - first, first}, Part{0, length - first}};
  }
};

/// Runs the forward pass from the state in `last`.
void forward_from_last(const Recurrence& of, const Tensor& out, const Tensor& written, const Tensor& states,
                       const Tensor& last) {
  Gpu& gpu = gpu_of(out);
  const std::int64_t heads = of.query.size(0) * of.query.size(1), length = of.query.size(2),
                     keys = of.query.size(3), width = out.size(3);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const auto rows = static_cast<std::uint32_t>(ceil_div(keys, 8));
  const std::uint32_t height = std::min({std::bit_ceil(rows), 64u, workgroup}), columns = workgroup / height;
  const std::int64_t tiles = ceil_div(width, columns);
  if (const int axis = axis_to_cut(gpu, of, width, std::max(keys, width), 1, tiles); axis >= 0) {
    const RecurrenceHalves cut(of, axis);
    for (int half = 0; half < 2; ++half)
      forward_from_last(part_of(of, axis, cut.tokens[half]), part_of(out, axis, cut.tokens[half]),
                        part_of(written, axis, cut.tokens[half]), part_of(states, axis, cut.chunks[half]),
                        axis < 2 ? part_of(last, axis, cut.tokens[half]) : last);
    return;
  }
  const Tensor to = out.is_contiguous() ? out : Tensor::empty(out.shape(), out.dtype(), out.device());
  const bool adds = of.key.defined(), overwrites = of.reading.defined();
  Launch(gpu, "recurrence_f32",
         {workgroup, columns, static_cast<std::uint32_t>(ceil_div(keys, height)), adds,
          of.log_decay.defined(), overwrites, of.target.defined(), states.defined(), of.reverse})
      .read(make_contiguous(of.query), make_contiguous(of.key), make_contiguous(of.value), take_decays(of),
            make_contiguous(of.reading), make_contiguous(of.writing), make_contiguous(of.target))
      .write(to, either(written, to), either(states, to))
      .update(last)
      .push(heads, length, keys, width, recurrence_chunk)
      .work(recurrence_flops(of, width), 0)
      .folded_groups(heads * tiles);
  if (!out.is_contiguous()) copy(to, out);
}

/// A copy of values [B, H, N, dv] with room for their gradients, [B, H, 2, N, dv]; undefined: only the room.
Tensor with_room(const Tensor& values, const Shape& shape, const Tensor& like) {
  const Tensor both = Tensor::empty({shape[0], shape[1], 2, shape[2], shape[3]}, like.dtype(), like.device());
  if (values.defined())
    copy(values, both.view(shape, {both.stride(0), both.stride(1), shape[3], 1}, both.offset()));
  return both;
}
Tensor split_room(const Tensor& both) {
  const Shape& s = both.shape();
  return both.view({s[0], s[1], s[3], s[4]}, {both.stride(0), both.stride(1), s[4], 1},
                   both.offset() + s[3] * s[4]);
}

/// Runs the backward pass from the gradient of the last state to that of the first.
void backward_to_first(const Recurrence& of, const Tensor& written, const Tensor& states, const Tensor& grad,
                       const Recurrence& gradients) {
  Gpu& gpu = gpu_of(grad);
  const std::int64_t heads = of.query.size(0) * of.query.size(1), length = of.query.size(2),
                     keys = of.query.size(3), width = grad.size(3);
  const std::int64_t chunk = std::min(length, recurrence_chunk);
  if (const int axis = axis_to_cut(gpu, of, width, std::max(keys, 2 * width), chunk + 1, 1); axis >= 0) {
    const RecurrenceHalves cut(of, axis);
    for (int half = 1; half >= 0; --half) {
      Recurrence of_half = part_of(gradients, axis, cut.tokens[half]);
      backward_to_first(part_of(of, axis, cut.tokens[half]), part_of(written, axis, cut.tokens[half]),
                        part_of(states, axis, cut.chunks[half]), part_of(grad, axis, cut.tokens[half]),
                        of_half);
    }
    return;
  }
  const Device device = grad.device();
  const auto own = [](const Tensor& x) { return x.defined() ? compact(x) : x; };
  const bool adds = of.key.defined(), overwrites = of.reading.defined(), decays = of.log_decay.defined();
  const Tensor q = own(of.query), k = own(of.key), r = own(of.reading), w = own(of.writing),
               g = decays && of.log_decay.rank() == 4 ? own(of.log_decay) : take_decays(of);
  const Tensor v = adds ? with_room(of.value, grad.shape(), grad) : Tensor(),
               x = overwrites ? with_room(written, grad.shape(), grad) : Tensor();
  const Tensor walk = Tensor::empty({heads, chunk + 1, keys, width}, DType::f32, device);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const auto columns = std::min<std::uint32_t>(16, std::bit_ceil(static_cast<std::uint32_t>(width)));
  Launch(gpu, "recurrence_backward_f32", {workgroup, columns, adds, decays, overwrites, of.reverse})
      .update(q)
      .update(either(k, q))
      .update(either(g, q))
      .update(either(r, q))
      .update(either(w, q))
      .update(either(v, q))
      .update(either(x, q))
      .read(make_contiguous(grad), states)
      .update(walk)
      .update(gradients.state)
      .push(heads, length, keys, width, chunk)
      .work(recurrence_backward_flops(of, width), 0)
      .folded_groups(heads);
  copy(q, gradients.query);
  if (adds) copy(k, gradients.key), copy(split_room(v), gradients.value);
  if (overwrites) copy(r, gradients.reading), copy(w, gradients.writing);
  if (gradients.target.defined()) copy(split_room(x), gradients.target);
  if (!gradients.log_decay.defined()) return;
  if (of.log_decay.rank() == 4) return copy(g, gradients.log_decay);
  const Tensor sums = Tensor::empty({heads * length, 1}, DType::f32, device);
  reduce(ReduceOp::sum, g.view({heads * length, keys, 1}), sums);
  copy(sums.view(gradients.log_decay.shape()), gradients.log_decay);
}

}  // namespace

void recurrence_forward(const Recurrence& of, const Tensor& out, const Tensor& written, const Tensor& states,
                        const Tensor& last) {
  of.state.defined() ? copy(of.state, last) : fill(0, last);
  forward_from_last(of, out, written, states, last);
}

void recurrence_backward(const Recurrence& of, const Tensor& written, const Tensor& states,
                         const Tensor& grad, const Tensor& last_grad, const Recurrence& gradients) {
  Tensor before = states;
  if (!before.defined()) {  // forward did not keep them
    const Shape& shape = of.query.shape();
    const std::int64_t chunks = ceil_div(shape[2], recurrence_chunk);
    before = Tensor::empty({shape[0], shape[1], chunks, shape[3], grad.size(3)}, grad.dtype(), grad.device());
    recurrence_forward(of, Tensor::empty(grad.shape(), grad.dtype(), grad.device()), {}, before,
                       gradients.state);
  }
  last_grad.defined() ? copy(last_grad, gradients.state) : fill(0, gradients.state);
  backward_to_first(of, written, before, grad, gradients);
}

}  // namespace heed::vulkan
