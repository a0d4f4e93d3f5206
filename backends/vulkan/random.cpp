#include "heed/core/random.h"

#include <cmath>
#include <initializer_list>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {
namespace {

constexpr std::int64_t block_words = 4;

/// Calls body(begin, count) for pieces of a contiguous tensor, each of which one dispatch with workgroups of
/// `workgroup` invocations can bind and cover. Each piece begins with a block of the stream.
template <class Body>
void for_each_piece(const Gpu& gpu, std::int64_t workgroup, const Tensor& out, const Body& body) {
  const std::int64_t bound = most_bytes(gpu) / static_cast<std::int64_t>(size_of(out.dtype()));
  const std::int64_t covered = most_groups(gpu) * workgroup * block_words;
  const std::int64_t longest = std::min({bound, covered, std::int64_t{1} << 30}) / block_words * block_words;
  for (std::int64_t begin = 0; begin < out.count(); begin += longest)
    body(begin, std::min(longest, out.count() - begin));
}

Tensor piece_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x.defined() ? x.view({count}, {1}, x.offset() + begin) : x;
}

/// Pushes what random.comp declares, for the elements from `begin` on.
void push_stream(Launch& launch, const RandomKey& key, std::int64_t begin, std::int64_t count) {
  const auto block = static_cast<std::uint64_t>(begin / block_words);
  launch.push(count).push(static_cast<std::uint32_t>(block)).push(static_cast<std::uint32_t>(block >> 32));
  launch.push(static_cast<std::uint32_t>(key.seed)).push(static_cast<std::uint32_t>(key.seed >> 32));
  launch.push(key.step).push(key.op);
}

/// Fills `out` by a shader with `numbers` as its parameters.
void draw(std::string_view shader, const RandomKey& key, std::initializer_list<double> numbers,
          const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const std::uint32_t workgroup = workgroup_size(gpu, 128);
  for_each_piece(gpu, workgroup, out, [&](std::int64_t begin, std::int64_t count) {
    Launch launch(gpu, shader_name(shader, out.dtype()), {workgroup});
    launch.write(piece_of(out, begin, count));
    push_stream(launch, key, begin, count);
    for (const double number : numbers) launch.push(number);
    launch.work(0, static_cast<double>(count) * static_cast<double>(size_of(out.dtype())));
    launch.folded_groups(ceil_div(count, workgroup * block_words));
  });
}

}  // namespace

void uniform(const RandomKey& key, double low, double high, const Tensor& out) {
  draw("uniform", key, {low, high - low, last_below(low, high, out.dtype())}, out);
}

void normal(const RandomKey& key, double mean, double deviation, const Tensor& out) {
  draw("normal", key, {mean, deviation}, out);
}

void dropout(const Tensor& x, const Tensor& residual, double p, const RandomKey& key, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const std::uint32_t workgroup = workgroup_size(gpu, 128);
  const auto first_kept = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  for_each_piece(gpu, workgroup, out, [&](std::int64_t begin, std::int64_t count) {
    Launch launch(gpu, shader_name("dropout", out.dtype()), {workgroup, residual.defined() ? 1u : 0u});
    launch.write(piece_of(out, begin, count)).read(piece_of(x, begin, count));
    launch.read(piece_of(residual, begin, count));
    push_stream(launch, key, begin, count);
    launch.push(first_kept).push(1 / (1 - p));
    const double tensors = residual.defined() ? 3 : 2;
    launch.work(0, tensors * static_cast<double>(count) * static_cast<double>(size_of(out.dtype())));
    launch.folded_groups(ceil_div(count, workgroup * block_words));
  });
}

}  // namespace heed::vulkan
