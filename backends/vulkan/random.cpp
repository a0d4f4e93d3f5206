#include "heed/core/random.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {
namespace {

constexpr std::int64_t block_words = 4;

Tensor take_piece(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x.defined() ? x.view({count}, {1}, x.offset() + begin) : x;
}

/// Fills contiguous `out` by a shader of random.comp, which may read `inputs` laid out alike, with its
/// specialisation constant 1 and its own parameters. The work is cut into pieces that one dispatch can bind
/// and cover, each of which begins with a block of the stream.
template <class... Parameters>
void draw(std::string_view shader, bool flag, const RandomKey& key, const Tensor& out,
          std::initializer_list<const Tensor*> inputs, Parameters... numbers) {
  Gpu& gpu = gpu_of(out);
  const std::uint32_t workgroup = workgroup_size(gpu, 128);
  const auto element = static_cast<std::int64_t>(size_of(out.dtype()));
  const std::int64_t covered = most_groups(gpu) * workgroup * block_words;
  const std::int64_t longest =
      std::min({most_bytes(gpu) / element, covered, std::int64_t{1} << 30}) / block_words * block_words;
  for (std::int64_t begin = 0; begin < out.count(); begin += longest) {
    const std::int64_t count = std::min(longest, out.count() - begin);
    const auto block = static_cast<std::uint64_t>(begin / block_words);
    Launch launch(gpu, shader_name(shader, out.dtype()), {workgroup, flag});
    launch.write(take_piece(out, begin, count));
    std::int64_t tensors = 1;
    for (const Tensor* input : inputs) {
      launch.read(take_piece(*input, begin, count));
      tensors += input->defined() ? 1 : 0;
    }
    launch.push(count, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32));
    launch.push(static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32));
    launch.push(key.step, key.op);
    (launch.push(numbers), ...);
    launch.work(0, static_cast<double>(tensors * count * element));
    launch.folded_groups(ceil_div(count, workgroup * block_words));
  }
}

}  // namespace

void uniform(const RandomKey& key, double low, double high, const Tensor& out) {
  draw("uniform", false, key, out, {}, low, high - low, last_below(low, high, out.dtype()));
}

void normal(const RandomKey& key, double mean, double deviation, const Tensor& out) {
  draw("normal", false, key, out, {}, mean, deviation);
}

void dropout(const Tensor& x, const Tensor& residual, double p, const RandomKey& key, const Tensor& out) {
  const auto first_kept = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  draw("dropout", residual.defined(), key, out, {&x, &residual}, first_kept, 1 / (1 - p));
}

}  // namespace heed::vulkan
