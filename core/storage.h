#pragma once

#include <cstddef>

#include "heed/core/device.h"

namespace heed {

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

 protected:
  Storage(Device device, std::size_t bytes, void* host_data)
      : device_(device), bytes_(bytes), host_data_(host_data) {}

 private:
  Device device_;
  std::size_t bytes_;
  void* host_data_;
};

}  // namespace heed
