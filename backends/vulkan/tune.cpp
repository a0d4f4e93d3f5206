#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <span>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/core/attention.h"
#include "heed/core/device.h"

// Measures what tuning.h assumes of a device: `heed tune-gpu`.

namespace heed::vulkan {
namespace {

/// Seconds of one call: the median of five rounds, each of enough calls to take about 20 ms, after five more
/// in which an idle device raises its clocks.
double seconds_of(Gpu& gpu, const std::function<void()>& work) {
  const auto timed = [&](int calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    gpu.stream().wait_idle();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
  };
  timed(1);  // compiles
  const int calls = std::clamp(static_cast<int>(0.02 / timed(1)), 1, 1000);
  timed(5 * calls);
  std::array<double, 5> rounds;
  for (double& round : rounds) round = timed(calls);
  std::ranges::sort(rounds);
  return rounds[2];
}

/// Seconds of a square product with a tile.
double product_seconds(Gpu& gpu, TileKernel kernel, DType dtype, const TileShape& tile, std::int64_t size) {
  const Device device{DeviceType::vulkan, gpu.index()};
  const Tensor a = Tensor::zeros({1, 1, size, size}, dtype, device),
               b = Tensor::zeros({1, 1, size, size}, dtype, device),
               out = Tensor::empty({1, 1, size, size}, dtype, device);
  const MatmulPlan plan{tile, stage_count(tile, gpu.limits()), 1, ceil_div(size, tile.depth) * tile.depth};
  return seconds_of(gpu, [&] {
    multiply_tiles(gpu, kernel, tiled({a, b, {}, out, false, {}}, kernel, {}), plan);
  });
}

/// Bytes per second that a copy of 16 MiB reads and writes.
double memory_rate(Gpu& gpu) {
  const Device device{DeviceType::vulkan, gpu.index()};
  const Tensor from = Tensor::zeros({4 << 20}, DType::f32, device),
               to = Tensor::empty({4 << 20}, DType::f32, device);
  return 2 * 4.0 * (4 << 20) / seconds_of(gpu, [&] { copy(from, to); });
}

double launch_seconds(Gpu& gpu) {
  const Device device{DeviceType::vulkan, gpu.index()};
  const Tensor one = Tensor::zeros({1}, DType::f32, device), other = Tensor::zeros({1}, DType::f32, device);
  constexpr int pairs = 50;
  const auto copies = [&] {
    for (int i = 0; i < pairs; ++i) copy(one, other), copy(other, one);
  };
  return seconds_of(gpu, copies) / (2 * pairs);
}

/// Measures the multiply-adds per second of products with each tile, at the smallest size (a power of two, up
/// to 4096, whose tiles one dispatch holds on any device) at which a product takes 10 ms.
void measure(Gpu& gpu, TileKernel kernel, DType dtype, TileSet& set) {
  std::int64_t size = 128;
  double best = 0;
  for (TileShape& tile : set.tiles) {
    if (!fits(tile, gpu.limits())) continue;  // it is never chosen
    const auto seconds = [&] { return product_seconds(gpu, kernel, dtype, tile, size); };
    while (size < 4096 && seconds() < 0.01) size *= 2;
    tile.efficiency = std::pow(static_cast<double>(size), 3) / seconds();
    best = std::max(best, tile.efficiency);
  }
  for (TileShape& tile : set.tiles)
    if (fits(tile, gpu.limits())) tile.efficiency /= best;
  set.per_byte = best / memory_rate(gpu);
  set.per_launch = best / static_cast<double>(set.units) * launch_seconds(gpu);
}

/// Seconds of attention, forward and backward, with a given tuning.
double attention_seconds(Gpu& gpu, DType dtype, std::int64_t length, const AttentionTuning& tried) {
  struct Restored {
    Gpu& gpu;
    AttentionTuning before = gpu.tuning().attention;
    ~Restored() { gpu.use(before); }
  } const restored{gpu};
  gpu.use(tried);
  const Device device{DeviceType::vulkan, gpu.index()};
  const Shape shape{1, 8, length, 64};
  const auto empty = [&] { return Tensor::empty(shape, dtype, device); };
  const Tensor x = Tensor::zeros(shape, dtype, device), out = empty(), dquery = empty(), dkey = empty(),
               dvalue = empty(), sums = Tensor::empty({1, 8, length, 2}, DType::f32, device);
  AttentionArgs args;
  args.query = args.key = args.value = x;
  return seconds_of(gpu, [&] {
    attention_forward(args, out, sums);
    attention_backward(args, out, sums, x, {}, dquery, dkey, dvalue, {});
  });
}

/// Sets `size`, a member of `best`, to the value in `tried` with which attention is fastest, at a length (at
/// most 4096) at which it takes 10 ms with the device's own tuning.
void measure(Gpu& gpu, DType dtype, std::span<const std::int64_t> tried, AttentionTuning& best,
             std::int64_t AttentionTuning::*size) {
  std::int64_t length = 128;
  while (length < 4096 && attention_seconds(gpu, dtype, length, gpu.tuning().attention) < 0.01) length *= 2;
  double least = std::numeric_limits<double>::infinity();
  for (const std::int64_t candidate : tried) {
    AttentionTuning with = best;
    with.*size = candidate;
    const double seconds = attention_seconds(gpu, dtype, length, with);
    if (seconds < least) best = with, least = seconds;
  }
}

/// Times every tile of products, a copy, a launch, and attention with workgroups of each size.
Tuning measured(Gpu& gpu) {
  Tuning tuning{scalar_tiles(), fragment_tiles(gpu.capabilities().subgroup_size), {}, ""};
  tuning.scalar.units = tuning.fragments.units = gpu.tuning().scalar.units;
  measure(gpu, TileKernel::scalar, DType::f32, tuning.scalar);
  const MatrixHardware& hardware = matrix_hardware({DeviceType::vulkan, gpu.index()});
  measure(gpu, DType::f32, attention_lanes, tuning.attention, &AttentionTuning::lanes);
  if (hardware.f16 || hardware.bf16) {
    const DType half = hardware.f16 ? DType::f16 : DType::bf16;
    measure(gpu, TileKernel::cooperative, half, tuning.fragments);
    measure(gpu, half, attention_subgroups, tuning.attention, &AttentionTuning::subgroups);
  }
  return tuning;
}

}  // namespace
}  // namespace heed::vulkan

namespace heed {

std::filesystem::path tune_device(Device device) {
  using namespace vulkan;
  check(device.type == DeviceType::vulkan, "tune: ", device, " has nothing to tune; name a Vulkan device");
  Gpu& gpu = vulkan::gpu(device.index);
  const std::filesystem::path file = tuning_file(gpu.described().identity);
  check(!file.empty(), "there is no folder to keep the tuning in: set HEED_CACHE_DIR");
  const std::lock_guard lock(gpu.mutex());
  const std::string text = tuning_text(measured(gpu), gpu.described().identity, gpu.name());
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, text);
  return file;
}

}  // namespace heed
