#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/backends/vulkan/physical_devices.h"

namespace heed::vulkan {

/// What a workgroup of a tiled product computes, and how its invocations or subgroups share it.
struct TileShape {
  std::uint32_t rows, columns, depth;   ///< of the tiles in shared memory: BM, BN, BK
  std::uint32_t own_rows, own_columns;  ///< outputs of one invocation (TM, TN) or subgroup (WM, WN)
  std::uint32_t invocations;
  std::uint32_t stage_bytes;  ///< of shared memory for a tile of a and one of b
  std::uint32_t other_bytes;  ///< of shared memory besides those
  double efficiency;          ///< share of the arithmetic rate that full workgroups reach
};

/// A kernel for tiled products: its tiles, and what the model of its speed needs.
struct TileSet {
  std::vector<TileShape> tiles;
  double per_byte;           ///< multiply-adds that the whole GPU does while its memory moves a byte
  double per_launch;         ///< multiply-adds that one processor does in the time of one more launch
  std::int64_t units = 128;  ///< processors of the GPU
};

/// The tiles of shaders/matmul.comp.
const TileSet& scalar_tiles();
/// The tiles of shaders/matmul_cooperative.comp on a device whose subgroups have `lanes` lanes.
TileSet fragment_tiles(std::uint32_t lanes);

/// "128 x 64 x 32, 64 x 32 each"
std::string name_of(const TileShape& tile);
/// Whether a tile fits into a workgroup of a device.
bool fits(const TileShape& tile, const Limits& limits);
/// How many tiles in shared memory alternate: two if there is room, else one.
std::uint32_t stages_of(const TileShape& tile, const Limits& limits);

/// How a batch of products is cut into workgroups.
struct MatmulPlan {
  TileShape tile;
  std::uint32_t stages = 1;     ///< tiles in shared memory that alternate
  std::int64_t parts = 1;       ///< pieces of k; with more than one, their sums are added in a second pass
  std::int64_t part_depth = 0;  ///< a multiple of the tile's depth
  /// Tiles of an m x n output.
  std::int64_t tiles(std::int64_t m, std::int64_t n) const;
};

/// The plan that a simple model of a GPU finds fastest, within the limits of the device. It depends on
/// the shape, the set and the limits alone, so that every run adds in the same order. `longest_scratch`
/// bounds the bytes of [parts, items, m, n] floats.
MatmulPlan plan_matmul(const TileSet& set, const Limits& limits, std::int64_t items, std::int64_t m,
                       std::int64_t n, std::int64_t k, std::uint64_t longest_scratch);

}  // namespace heed::vulkan
