#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/open_device.h"
#include "heed/backends/vulkan/pipelines.h"
#include "heed/core/device.h"

namespace heed::vulkan {

/// A range of device memory as one binding of a shader sees it.
struct Binding {
  VkBuffer buffer = VK_NULL_HANDLE;
  std::uint64_t offset = 0;  ///< bytes, aligned as the device requires
  std::uint64_t bytes = 0;
  bool read = false;
  bool written = false;
};

/// The work of a command that the profile counts: floating-point operations of matrix products, and
/// the minimum traffic.
struct Work {
  double flops = 0;
  double bytes = 0;
};

/// The one command stream of a device. Commands are recorded into a batch that is submitted when it
/// is long enough or when the host waits; they take effect in the order in which they were
/// recorded. Batch n signals the value n on a timeline.
class Stream {
 public:
  explicit Stream(OpenDevice& device);

  void dispatch(std::string_view name, const Pipeline& pipeline, std::span<const Binding> bindings,
                std::span<const std::uint32_t> push, const std::uint32_t (&groups)[3], const Work& work = {});
  void copy(VkBuffer from, std::uint64_t from_offset, VkBuffer to, std::uint64_t to_offset,
            std::uint64_t bytes);
  void fill(VkBuffer buffer, std::uint64_t offset, std::uint64_t bytes, std::uint32_t word);

  /// The value that commands recorded now will signal.
  std::uint64_t recording() const { return recording_; }
  /// The last value the device has signalled; does not wait.
  std::uint64_t completed();
  void submit();
  /// Submits the recorded commands if `value` depends on them, and waits until the device has
  /// signalled it. Throws DeviceLost.
  void wait(std::uint64_t value);
  void wait_idle() { wait(batch_ ? recording_ : recording_ - 1); }
  const DeviceCounters& counters() const { return counters_; }
  /// Submits and waits, so that the profile has the times of all commands so far or, when a profile
  /// starts, of none of them.
  void collect_times();
  /// Waits until the driver is idle too. Throws nothing: for a program that is ending.
  void drain() noexcept;
  /// Waits until the driver is idle and refuses all further commands.
  void finish() noexcept;
  bool is_finished() const { return finished_; }
  /// For the test that the validation layers are active: records no barriers until called with
  /// false, then one in place of all those left out.
  void skip_barriers(bool leave_out);

 private:
  /// A command buffer and what belongs to it; reused once its value is reached.
  struct Batch {
    VkCommandPool pool = VK_NULL_HANDLE;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::vector<VkDescriptorPool> descriptor_pools;  // without push descriptors only
    std::size_t sets_left = 0, pools_used = 0;
    std::uint64_t value = 0;
    std::vector<std::string_view> names;
    double seconds = 0;  // the estimated duration of its work
    // While a profile is recorded, the device writes the time when the batch begins and after each command.
    VkQueryPool times = VK_NULL_HANDLE;
    bool is_timed = false;
    std::vector<Work> works;
  };

  VkCommandBuffer commands();
  /// Records a barrier if the next command, with these accesses, reads what was written since the
  /// last barrier, or writes what was read or written.
  void order(std::span<const Binding> accesses);
  void bind(const Pipeline& pipeline, std::span<const Binding> bindings);
  VkDescriptorSet new_set(const Pipeline& pipeline);
  void after_command(std::string_view name, const Work& work);
  void begin_timing();
  void add_times(const Batch& batch);
  void barrier();
  std::unique_ptr<Batch> fresh_batch();
  void check_alive() const;
  /// Marks the device as lost. The recorded commands are lost, and so is everything that depends on
  /// them: from now on everything throws DeviceLost. Also called if the driver ran out of memory at
  /// a submission, since commands that never ran must not count as done.
  [[noreturn]] void lose(VkResult result, const char* what);

  OpenDevice& device_;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  std::uint64_t recording_ = 1;
  std::uint64_t completed_ = 0;
  std::unique_ptr<Batch> batch_;                  // being recorded; null if none is
  std::deque<std::unique_ptr<Batch>> in_flight_;  // oldest first
  std::vector<std::unique_ptr<Batch>> idle_;
  VkPipeline bound_ = VK_NULL_HANDLE;
  std::vector<Binding> since_barrier_;  // what commands accessed
  DeviceCounters counters_;
  bool serial_;              // HEED_VULKAN_SERIAL: wait after every command, to find the one that fails
  std::int64_t lose_after_;  // HEED_VULKAN_LOSE_AFTER: submissions after which the device counts as lost
  bool leave_out_barriers_ = false;
  std::string lost_;       // why the device was lost; empty: it was not
  bool finished_ = false;  // the driver may be gone
};

}  // namespace heed::vulkan
