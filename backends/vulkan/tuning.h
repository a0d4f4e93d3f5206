#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "heed/backends/vulkan/physical_devices.h"

namespace heed::vulkan {

/// The tile that a workgroup of a tiled product computes, and the shares of its invocations or
/// subgroups.
struct TileShape {
  std::uint32_t rows, columns, depth;   ///< of the tiles in shared memory: BM, BN, BK
  std::uint32_t own_rows, own_columns;  ///< outputs of one invocation (TM, TN) or subgroup (WM, WN)
  std::uint32_t invocations;
  std::uint32_t stage_bytes;  ///< of shared memory for a tile of a and one of b
  std::uint32_t other_bytes;  ///< of shared memory besides those
  double efficiency;          ///< share of the arithmetic rate that full workgroups reach
};

/// A kernel for tiled products: its tiles, and the parameters of the model of its speed.
struct TileSet {
  std::vector<TileShape> tiles;
  double per_byte;           ///< multiply-adds of the whole GPU while its memory moves a byte
  double per_launch;         ///< multiply-adds of one processor in the time of one more launch
  std::int64_t units = 128;  ///< processors of the GPU
};

/// The tiles of shaders/matmul.comp.
const TileSet& scalar_tiles();
/// The tiles of shaders/matmul_cooperative.comp on a device whose subgroups have `lanes` lanes.
TileSet fragment_tiles(std::uint32_t lanes);

/// Describes a tile: "128 x 64 x 32, 64 x 32 each".
std::string name_of(const TileShape& tile);
/// Returns whether a tile fits into a workgroup of a device.
bool fits(const TileShape& tile, const Limits& limits);
/// Returns how many tiles in shared memory alternate: two if there is room, else one.
std::uint32_t stage_count(const TileShape& tile, const Limits& limits);

/// The division of a batch of products into workgroups.
struct MatmulPlan {
  TileShape tile;
  std::uint32_t stages = 1;     ///< tiles in shared memory that alternate
  std::int64_t parts = 1;       ///< pieces of k; if more than one, a second pass adds their sums
  std::int64_t part_depth = 0;  ///< a multiple of the tile's depth
  /// Returns the number of tiles of an m x n output.
  std::int64_t tiles(std::int64_t m, std::int64_t n) const;
};

/// Returns the plan that a simple model of a GPU finds fastest, within the limits of the device. It
/// depends on the shape, the set and the limits alone, so that every run adds in the same order.
/// `longest_scratch` bounds the bytes of [parts, items, m, n] floats.
MatmulPlan plan_matmul(const TileSet& set, const Limits& limits, std::int64_t items, std::int64_t m,
                       std::int64_t n, std::int64_t k, std::uint64_t longest_scratch);

/// The size of attention's workgroups, as far as rows and limits allow it.
struct AttentionTuning {
  /// LANES of shaders/attention_products.comp, 4, 8 or 16: its tiles are 4 lanes x 4 lanes scores.
  std::int64_t lanes = 16;
  /// The subgroups of shaders/attention_fragments.comp, 1, 2 or 4: each takes the rows of a
  /// fragment.
  std::int64_t subgroups = 4;
};

/// The tiles of products with their speed on a device, and attention's workgroups: measured, or
/// assumed for a large GPU.
struct Tuning {
  TileSet scalar, fragments;
  AttentionTuning attention;
  std::string digest;  ///< of the measured figures; "" if they are assumed
};

/// The possible sizes of attention's workgroups.
inline constexpr std::array<std::int64_t, 3> attention_lanes{4, 8, 16}, attention_subgroups{1, 2, 4};

/// Returns the figures that tune_device() saved for a device and its driver, or assumed ones.
/// Throws an Error that names the file if it is damaged or was written for other kernels, since
/// ignoring it would silently change results.
Tuning load_tuning(const PhysicalDevice& device);
/// Returns the file that load_tuning() reads; "" if there is no folder for it.
std::filesystem::path tuning_file(const std::string& identity);
/// Returns the text of such a file for the device of that identity and name.
std::string tuning_text(const Tuning& tuning, const std::string& identity, const std::string& name);

}  // namespace heed::vulkan
