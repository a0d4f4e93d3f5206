#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

/// The per-device copies that backends keep of a pattern. Copying a pattern does not copy them,
/// since the copy may be changed.
class DeviceCopies {
 public:
  DeviceCopies() = default;
  DeviceCopies(const DeviceCopies&) {}
  DeviceCopies& operator=(const DeviceCopies&);
  /// The list for one device; `make` creates it on the first call.
  Tensor get(Device device, const std::function<Tensor()>& make) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Device, Tensor>> lists_;
};

/// A block-sparse N x M attention matrix. It lists the entries that exist block by block, so no N x
/// M matrix is ever stored.
///
/// The matrix is cut into `block` x `block` squares (the last row and column of squares may be
/// short). Query block r of pattern head h sees the key blocks columns[offsets[h R + r] ..
/// offsets[h R + r + 1]), ascending, R = ceil(N / block). A block whose mask id is -1 is full;
/// otherwise entry (i, j) of the block exists where masks[id, i, j] is 1. Identical partial blocks
/// share one mask, so a diagonal band needs only a few.
///
/// The lists are on the CPU, whatever device the attention runs on, and must not change once they
/// have been used.
struct BlockPattern {
  std::int64_t block = 0;    ///< side of a block
  std::int64_t queries = 0;  ///< N
  std::int64_t keys = 0;     ///< M
  std::int64_t heads = 1;    ///< 1: the same pattern for all heads; otherwise one per head
  Tensor offsets;            ///< i32 [heads * R + 1]
  Tensor columns;            ///< i32 [number of blocks]
  Tensor mask_ids;           ///< i32 [number of blocks], -1 = full
  /// i32 [number of masks, block, block]; at least one mask, so that it is always defined.
  Tensor masks;
  DeviceCopies device_copies = {};

  /// Throws unless the tensors have the shapes and dtypes above and are contiguous, as kernels
  /// expect.
  void check_layout() const;
  /// Throws unless offsets, columns and mask ids are consistent. Checks every block.
  void check_lists() const;
  /// The pattern as a dense i32 mask [heads, N, M]: for the composed body and for tests.
  Tensor dense() const;
};

/// Options of attention, for query [B, H, N, dk], key [B, H, M, dk] and value [B, H, M, dv].
struct AttentionOptions {
  double scale = 0;      ///< 0: 1 / sqrt(dk)
  bool causal = false;   ///< key j is allowed for query i when j <= i + M - N
  Tensor key_mask = {};  ///< i32 [B, M], 1 = real, 0 = padding; undefined: all real
  Tensor mask = {};      ///< i32, broadcasts to [B, H, N, M], 1 = allowed; undefined: all allowed
  /// Existing blocks of the N x M matrix; null: all.
  std::shared_ptr<const BlockPattern> pattern = {};
  /// f32 [H] (f64 for f64 operands): logits get -slopes[h] |i + M - N - j|, without a matrix. No
  /// gradient.
  Tensor slopes = {};
  /// [1 or B, 1 or H, N, M], added to the scaled logits; -infinity excludes the pair.
  Tensor bias = {};
  double dropout = 0;  ///< probability of zeroing a weight, after the softmax
  RandomKey dropout_key =
      {};  ///< word ((b H + h) N + i) M + j of the stream decides about weight [b, h, i, j]
};

/// Arguments of the attention kernels. The op layer completes the options: scale is not 0, key_mask
/// and slopes are contiguous, mask is broadcast (stride 0) to [B, H, N, M], and the last stride of
/// bias is 1.
struct AttentionArgs : AttentionOptions {
  Tensor query;  ///< [B, H, N, dk], last stride 1
  Tensor key;    ///< [B, H, M, dk], last stride 1
  Tensor value;  ///< [B, H, M, dv], last stride 1
};

}  // namespace heed
