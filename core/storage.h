#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "heed/core/device.h"

namespace heed {

struct Int8Rows;

/// A block of device memory. Backends derive from it; the destructor gives the memory back to their pool.
class Storage {
 public:
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device device() const { return device_; }
  std::size_t bytes() const { return bytes_; }
  /// Address of the first byte when the host can read and write the memory directly; null otherwise.
  void* host_data() const { return host_data_; }
  /// Whether the memory is somebody else's, who sees it too: no op overwrites it, whoever holds it.
  bool is_lent() const { return is_lent_; }

  /// How often elements were overwritten in place: backward() refuses what was computed from older ones. Writes
  /// through host_data() do not count.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void overwritten() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// What round_to_int8() left of a matrix that fills this storage; null where it did not, or once it is overwritten.
  const Int8Rows* int8_rows() const { return int8_version_ == version() ? int8_rows_.get() : nullptr; }
  void keep_int8_rows(std::shared_ptr<const Int8Rows> rows) {
    int8_rows_ = std::move(rows);
    int8_version_ = version();
  }

 protected:
  Storage(Device device, std::size_t bytes, void* host_data, bool is_lent = false)
      : device_(device), bytes_(bytes), host_data_(host_data), is_lent_(is_lent) {}

 private:
  Device device_;
  std::size_t bytes_;
  void* host_data_;
  bool is_lent_;
  std::atomic<std::uint64_t> version_{0};
  std::shared_ptr<const Int8Rows> int8_rows_;
  std::uint64_t int8_version_ = 0;
};

}  // namespace heed
