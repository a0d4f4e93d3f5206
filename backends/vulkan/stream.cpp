#include "heed/backends/vulkan/stream.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "heed/base/error.h"
#include "heed/core/profile.h"

namespace heed::vulkan {

// Large batches may exceed the time-outs of drivers; small ones cost latency. A device that is idle gets work
// early.
constexpr std::size_t longest_batch = 64, first_batch = 8;
// At most this many batches wait for the device: the work of a few training steps.
constexpr std::size_t most_in_flight = 64;
// A longer list of accesses costs more to search than a barrier does.
constexpr std::size_t most_accesses = 128;
constexpr std::uint32_t sets_per_pool = 64, descriptors_per_set = most_bindings;

constexpr VkPipelineStageFlags device_stages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags device_writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags device_reads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

/// The number of submissions in HEED_VULKAN_LOSE_AFTER; if it is not set, more than can ever happen.
static std::int64_t submissions_until_lost() {
  const char* text = std::getenv("HEED_VULKAN_LOSE_AFTER");
  if (!text || !*text) return std::numeric_limits<std::int64_t>::max();
  const std::string_view digits = text;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  check(error == std::errc() && end == digits.end() && number >= 0, "HEED_VULKAN_LOSE_AFTER is \"", digits,
        "\"; it takes a number of submissions");
  return number;
}

Stream::Stream(OpenDevice& device) : device_(device) {
  const DeviceApi& api = device.api();
  api.GetDeviceQueue(api.device, device.described().queue_family, 0, &queue_);
  auto type = structure<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  auto info = structure<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type);
  check_result(api.CreateSemaphore(api.device, &info, nullptr, &timeline_), "vkCreateSemaphore");
  serial_ = is_set("HEED_VULKAN_SERIAL");
  lose_after_ = submissions_until_lost();
}

void Stream::check_alive() const {
  if (!lost_.empty()) throw DeviceLost(lost_);
}

void Stream::lose(VkResult result, const char* what) {
  lost_ = concat_text("the Vulkan device ", device_.name(), " was lost (", what, ": ", name_of(result),
                      "); its unfinished kernels:");
  const Batch* suspect = in_flight_.empty() ? batch_.get() : in_flight_.front().get();
  if (suspect)
    for (const std::string_view name : suspect->names) lost_ += concat_text(' ', name);
  lost_ +=
      ". What was on it cannot be read any more; restart from the last checkpoint. HEED_VULKAN_SERIAL=1 "
      "runs the kernels one by one, which names the culprit";
  throw DeviceLost(lost_);
}

std::unique_ptr<Stream::Batch> Stream::fresh_batch() {
  const DeviceApi& api = device_.api();
  std::unique_ptr<Batch> batch;
  if (!idle_.empty()) {
    batch = std::move(idle_.back());
    idle_.pop_back();
    check_result(api.ResetCommandPool(api.device, batch->pool, 0), "vkResetCommandPool");
    for (const VkDescriptorPool pool : batch->descriptor_pools) api.ResetDescriptorPool(api.device, pool, 0);
    batch->sets_left = batch->pools_used = 0;
    batch->names.clear();
    batch->seconds = 0;
    return batch;
  }
  batch = std::make_unique<Batch>();
  auto pool = structure<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  pool.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
  pool.queueFamilyIndex = device_.described().queue_family;
  check_result(api.CreateCommandPool(api.device, &pool, nullptr, &batch->pool), "vkCreateCommandPool");
  auto info = structure<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  info.commandPool = batch->pool;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  check_result(api.AllocateCommandBuffers(api.device, &info, &batch->commands), "vkAllocateCommandBuffers");
  return batch;
}

VkCommandBuffer Stream::commands() {
  check_alive();
  check(!finished_, "vulkan: the program is exiting; ", device_.name(), " takes no more work");
  if (!batch_) {
    if (in_flight_.size() >= most_in_flight) wait(in_flight_.front()->value);
    std::unique_ptr<Batch> batch = fresh_batch();
    batch->value = recording_;
    bound_ = VK_NULL_HANDLE;
    drain_before_exit_handlers();
    auto begin = structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    check_result(device_.api().BeginCommandBuffer(batch->commands, &begin), "vkBeginCommandBuffer");
    batch_ = std::move(batch);
    begin_timing();
  }
  return batch_->commands;
}

void Stream::begin_timing() {
  batch_->is_timed = false;
  if (!profiling()) return;
  if (device_.described().timestamp_bits == 0) {
    add_profile_remark(
        concat_text(device_.name(), ": its queue writes no timestamps, so its kernels are not timed"));
    return;
  }
  const DeviceApi& api = device_.api();
  if (!batch_->times) {
    auto info = structure<VkQueryPoolCreateInfo>(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = longest_batch + 1;
    check_result(api.CreateQueryPool(api.device, &info, nullptr, &batch_->times), "vkCreateQueryPool");
  }
  api.CmdResetQueryPool(batch_->commands, batch_->times, 0, longest_batch + 1);
  api.CmdWriteTimestamp(batch_->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, batch_->times, 0);
  batch_->works.clear();
  batch_->is_timed = true;
}

/// A command's time runs from the end of all commands before it to its own end.
void Stream::add_times(const Batch& batch) {
  if (!batch.is_timed) return;
  const DeviceApi& api = device_.api();
  std::uint64_t ticks[longest_batch + 1];
  const auto count = static_cast<std::uint32_t>(batch.names.size());
  check_result(
      api.GetQueryPoolResults(api.device, batch.times, 0, count + 1, (count + 1) * sizeof *ticks, ticks,
                              sizeof *ticks, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
      "vkGetQueryPoolResults");
  const std::uint64_t valid = ~std::uint64_t{0} >> (64 - device_.described().timestamp_bits);
  for (std::size_t i = 0; i < count; ++i) {
    const auto passed = static_cast<double>((ticks[i + 1] - ticks[i]) & valid);
    add_to_profile(batch.names[i], passed * device_.described().timestamp_period * 1e-9, batch.works[i].flops,
                   batch.works[i].bytes);
  }
}

void Stream::collect_times() {
  if (lost_.empty() && !finished_) wait_idle();
}

void Stream::drain() noexcept {
  if (finished_) return;
  try {
    if (lost_.empty()) wait_idle();
  } catch (const std::exception&) {  // nothing is left to report it to
  }
  // A driver may still work on a submission after it has signalled the value.
  device_.api().DeviceWaitIdle(device_.api().device);
}

void Stream::finish() noexcept {
  drain();
  finished_ = true;
}

void Stream::order(std::span<const Binding> accesses) {
  const auto conflicts = [&](const Binding& next) {
    return std::ranges::any_of(since_barrier_, [&](const Binding& before) {
      return before.buffer == next.buffer && before.offset < next.offset + next.bytes &&
             next.offset < before.offset + before.bytes && (next.written || before.written);
    });
  };
  if (since_barrier_.size() > most_accesses || std::ranges::any_of(accesses, conflicts)) barrier();
  since_barrier_.insert(since_barrier_.end(), accesses.begin(), accesses.end());
}

void Stream::barrier() {
  since_barrier_.clear();
  if (leave_out_barriers_) return;
  auto memory = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  memory.srcAccessMask = device_writes;
  memory.dstAccessMask = device_writes | device_reads;
  device_.api().CmdPipelineBarrier(commands(), device_stages, device_stages, 0, 1, &memory, 0, nullptr, 0,
                                   nullptr);
  ++counters_.barriers;
}

void Stream::skip_barriers(bool leave_out) {
  leave_out_barriers_ = leave_out;
  if (!leave_out) barrier();
}

VkDescriptorSet Stream::new_set(const Pipeline& pipeline) {
  const DeviceApi& api = device_.api();
  if (batch_->sets_left == 0) {
    if (batch_->pools_used == batch_->descriptor_pools.size()) {
      const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, sets_per_pool * descriptors_per_set};
      auto info = structure<VkDescriptorPoolCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO);
      info.maxSets = sets_per_pool;
      info.poolSizeCount = 1;
      info.pPoolSizes = &size;
      VkDescriptorPool pool = VK_NULL_HANDLE;
      check_result(api.CreateDescriptorPool(api.device, &info, nullptr, &pool), "vkCreateDescriptorPool");
      batch_->descriptor_pools.push_back(pool);
    }
    ++batch_->pools_used;
    batch_->sets_left = sets_per_pool;
  }
  --batch_->sets_left;
  auto info = structure<VkDescriptorSetAllocateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO);
  info.descriptorPool = batch_->descriptor_pools[batch_->pools_used - 1];
  info.descriptorSetCount = 1;
  info.pSetLayouts = &pipeline.set_layout;
  VkDescriptorSet set = VK_NULL_HANDLE;
  check_result(api.AllocateDescriptorSets(api.device, &info, &set), "vkAllocateDescriptorSets");
  return set;
}

void Stream::bind(const Pipeline& pipeline, std::span<const Binding> bindings) {
  const DeviceApi& api = device_.api();
  VkDescriptorBufferInfo ranges[descriptors_per_set];
  VkWriteDescriptorSet writes[descriptors_per_set];
  for (std::uint32_t i = 0; i < bindings.size(); ++i) {
    ranges[i] = {bindings[i].buffer, bindings[i].offset, bindings[i].bytes};
    writes[i] = structure<VkWriteDescriptorSet>(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET);
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes[i].pBufferInfo = &ranges[i];
  }
  const auto count = static_cast<std::uint32_t>(bindings.size());
  if (device_.capabilities().push_descriptor) {
    api.CmdPushDescriptorSetKHR(batch_->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout, 0, count,
                                writes);
    return;
  }
  const VkDescriptorSet set = new_set(pipeline);
  for (std::uint32_t i = 0; i < count; ++i) writes[i].dstSet = set;
  api.UpdateDescriptorSets(api.device, count, writes, 0, nullptr);
  api.CmdBindDescriptorSets(batch_->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout, 0, 1, &set, 0,
                            nullptr);
}

void Stream::dispatch(std::string_view name, const Pipeline& pipeline, std::span<const Binding> bindings,
                      std::span<const std::uint32_t> push, const std::uint32_t (&groups)[3],
                      const Work& work) {
  const DeviceApi& api = device_.api();
  const VkCommandBuffer buffer = commands();
  order(bindings);
  if (bound_ != pipeline.pipeline) {
    api.CmdBindPipeline(buffer, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.pipeline);
    bound_ = pipeline.pipeline;
  }
  bind(pipeline, bindings);
  if (!push.empty())
    api.CmdPushConstants(buffer, pipeline.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         static_cast<std::uint32_t>(push.size_bytes()), push.data());
  api.CmdDispatch(buffer, groups[0], groups[1], groups[2]);
  ++counters_.dispatches;
  after_command(name, work);
}

void Stream::copy(VkBuffer from, std::uint64_t from_offset, VkBuffer to, std::uint64_t to_offset,
                  std::uint64_t bytes) {
  const VkCommandBuffer buffer = commands();
  const Binding accesses[] = {{from, from_offset, bytes, true, false}, {to, to_offset, bytes, false, true}};
  order(accesses);
  const VkBufferCopy region{from_offset, to_offset, bytes};
  device_.api().CmdCopyBuffer(buffer, from, to, 1, &region);
  after_command("copy", {0, 2.0 * static_cast<double>(bytes)});
}

void Stream::fill(VkBuffer target, std::uint64_t offset, std::uint64_t bytes, std::uint32_t word) {
  const VkCommandBuffer buffer = commands();
  const Binding access{target, offset, bytes, false, true};
  order({&access, 1});
  device_.api().CmdFillBuffer(buffer, target, offset, bytes, word);
  after_command("fill", {0, static_cast<double>(bytes)});
}

void Stream::after_command(std::string_view name, const Work& work) {
  batch_->names.push_back(name);
  if (batch_->is_timed) {
    const auto after = static_cast<std::uint32_t>(batch_->names.size());
    device_.api().CmdWriteTimestamp(batch_->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, batch_->times,
                                    after);
    batch_->works.push_back(work);
  }
  if (serial_) return wait_idle();
  batch_->seconds +=
      work.flops / device_.described().flops_per_second + work.bytes / device_.described().bytes_per_second;
  if (batch_->seconds >= device_.limits().batch_seconds) return submit();
  const std::size_t length = batch_->names.size();
  if (length >= longest_batch || (length == first_batch && in_flight_.empty())) submit();
}

void Stream::submit() {
  if (!batch_) return;
  check_alive();
  const DeviceApi& api = device_.api();
  // Makes the device's writes visible to the host, which reads them after waiting.
  auto memory = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  memory.srcAccessMask = device_writes;
  memory.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  api.CmdPipelineBarrier(batch_->commands, device_stages, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &memory, 0,
                         nullptr, 0, nullptr);
  const VkResult ended = api.EndCommandBuffer(batch_->commands);
  if (ended != VK_SUCCESS) lose(ended, "vkEndCommandBuffer");
  auto values = structure<VkTimelineSemaphoreSubmitInfo>(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
  values.signalSemaphoreValueCount = 1;
  values.pSignalSemaphoreValues = &batch_->value;
  auto info = structure<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO, &values);
  info.commandBufferCount = 1;
  info.pCommandBuffers = &batch_->commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  const bool submits = counters_.submissions < lose_after_;
  const VkResult result = submits ? api.QueueSubmit(queue_, 1, &info, VK_NULL_HANDLE) : VK_ERROR_DEVICE_LOST;
  in_flight_.push_back(std::move(batch_));
  if (result != VK_SUCCESS) lose(result, submits ? "vkQueueSubmit" : "as HEED_VULKAN_LOSE_AFTER asks for");
  ++recording_;
  ++counters_.submissions;
  completed();  // recycles finished batches
}

std::uint64_t Stream::completed() {
  check_alive();
  if (finished_) return completed_;
  const DeviceApi& api = device_.api();
  const VkResult result = api.GetSemaphoreCounterValue(api.device, timeline_, &completed_);
  if (result == VK_ERROR_DEVICE_LOST) lose(result, "vkGetSemaphoreCounterValue");
  check_result(result, "vkGetSemaphoreCounterValue");
  while (!in_flight_.empty() && in_flight_.front()->value <= completed_) {
    add_times(*in_flight_.front());
    idle_.push_back(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }
  return completed_;
}

void Stream::wait(std::uint64_t value) {
  check_alive();
  if (value >= recording_ && batch_) submit();
  value = std::min(value, recording_ - 1);  // a launch that threw may have named a batch that never came
  if (value <= completed_ || completed() >= value) return;
  const DeviceApi& api = device_.api();
  auto info = structure<VkSemaphoreWaitInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO);
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  ++counters_.waits;
  const VkResult result = api.WaitSemaphores(api.device, &info, std::numeric_limits<std::uint64_t>::max());
  if (result == VK_ERROR_DEVICE_LOST) lose(result, "vkWaitSemaphores");
  check_result(result, "vkWaitSemaphores");
  // On a lost device a wait may end with success (Vulkan specification, 5.2.3, "Lost Device").
  if (completed() < value) lose(VK_ERROR_DEVICE_LOST, "vkWaitSemaphores");
}

}  // namespace heed::vulkan
