#pragma once

#include <cstdint>

namespace heed::cpu {

/// How a batch of products [m, k] x [k, n] is cut into tasks: a grid of tiles of C, and pieces of k that are summed on
/// their own. It follows from the shape alone, so that the bits of the result are the same for any number of threads.
struct MatmulPlan {
  std::int64_t tile_rows, tile_columns;
  std::int64_t rows = 1, columns = 1;  ///< tiles of C
  std::int64_t parts = 1;              ///< pieces of k
  std::int64_t part_depth;             ///< length of all pieces but the last
  std::int64_t tiles_at_once = 1;      ///< tiles per task of the pool, where they are small
  std::int64_t tiles() const { return batch * rows * columns * parts; }
  std::int64_t tasks() const { return (tiles() + tiles_at_once - 1) / tiles_at_once; }

  /// All extents are positive, but k may be 0.
  MatmulPlan(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k);

 private:
  void cut_matrix();
  void cut_vector();
  void set(std::int64_t tile_rows, std::int64_t tile_columns, std::int64_t part_depth);
  /// Nanoseconds that one thread takes, and what waiting for the last tiles counts.
  double cost() const;

  std::int64_t batch, m, n, k;
};

}  // namespace heed::cpu
