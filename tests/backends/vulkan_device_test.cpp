// The device layer of the Vulkan backend: choice of device, memory, the stream, limits, faults.

#include "heed/backends/vulkan/launch.h"
#include "heed/core/backend.h"
#include "heed/tests/vulkan_support.h"

namespace {

Floats counted_floats(std::size_t count) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

/// Opens a device once more. Like every opened device it is never closed.
vulkan::Gpu& opened_again(Device device) {
  static std::vector<vulkan::Gpu*>& all = *new std::vector<vulkan::Gpu*>;
  return *all.emplace_back(new vulkan::Gpu(device.index));
}

/// Gives a device something to do, in memory that lives as long as the result.
std::shared_ptr<vulkan::Block> record_fill(vulkan::Gpu& gpu, Device device) {
  const auto block = gpu.memory().allocate(device, 256);
  gpu.stream().fill(block->buffer(), block->offset(), 256, 0);
  return block;
}

}  // namespace

TEST_CASE("devices: names that do not exist are refused with what there is") {
  CHECK(find_device("cpu") == Device{});
  CHECK(contains(error_of([] { find_device("gpu"); }), "auto, cpu, vulkan"));
  for (const char* name : {"vulkan:no such device", "vulkan:", "vulkan:99"})
    CHECK_ERROR(find_device(name), "does not exist");
  CHECK_ERROR(Tensor::empty({1}, DType::f32, {DeviceType::vulkan, 99}), "vulkan:99");
}

VULKAN_TEST("devices: a software device is used only when it is named") {
  const VulkanDevices& all = vulkan_devices();
  const bool only_software =
      std::ranges::all_of(all.devices, [](const DeviceInfo& info) { return info.kind == "software"; });
  if (!only_software) return;
  CHECK(find_device("auto") == Device{});
  CHECK(contains(error_of([] { find_device("vulkan"); }), "must be named"));
  CHECK(find_device("vulkan:LLVMPIPE") == device);
  CHECK(find_device("vulkan:" + std::to_string(device.index)) == device);
}

VULKAN_TEST("devices: the environment names the device that nobody gave") {
  CHECK(find_device("") == Device{});
  setenv("HEED_DEVICE", name_of(device).c_str(), 1);
  CHECK(find_device("") == device);
  unsetenv("HEED_DEVICE");
}

VULKAN_TEST("vulkan: data goes there and comes back") {
  for (const std::size_t count : {1u, 3u, 1000u, (7u << 20) + 5}) {
    const Floats values = counted_floats(count);
    const Tensor there = Tensor::from(values, {static_cast<std::int64_t>(count)}, device);
    CHECK(there.to_vector<float>() == values);
    const Tensor sum = there + there;  // the device works on it when it is overwritten
    there.assign(std::span<const float>(counted_floats(count)));
    CHECK(there.to_vector<float>() == values);
    Floats doubled = values;
    for (float& value : doubled) value *= 2;
    CHECK(sum.to_vector<float>() == doubled);
  }
  CHECK(Tensor::from(Floats{}, {0}, device).to_vector<float>().empty());
  CHECK_THROWS_AS(Tensor::empty({2}, DType::f32, device).data<float>(), Error);
}

VULKAN_TEST("vulkan: memory is counted, used again and given back") {
  const std::size_t before = memory_stats(device).current_bytes;
  reset_peak_memory(device);
  {
    const Tensor a = Tensor::zeros({1000}, DType::f32, device), b = Tensor::ones({5000}, DType::f32, device);
    CHECK(memory_stats(device).current_bytes >= before + 24000);
  }
  CHECK(memory_stats(device).current_bytes == before);
  CHECK(memory_stats(device).peak_bytes >= before + 24000);
  const std::size_t reserved = memory_stats(device).reserved_bytes;
  for (int i = 0; i < 100; ++i) Tensor::zeros({100000}, DType::f32, device);
  CHECK(memory_stats(device).reserved_bytes == reserved);
  backend_of(device).trim(device);
  CHECK(memory_stats(device).reserved_bytes <= reserved);
}

VULKAN_TEST("vulkan: too large a tensor is refused with the allocator's report") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  CHECK_THROWS_AS(Tensor::empty({1 << 20, 1 << 20}, DType::f32, device), OutOfMemory);
  // A driver that has nothing left.
  static PFN_vkAllocateMemory real;
  real = gpu.api().AllocateMemory;
  gpu.replaceable_api().AllocateMemory = [](VkDevice, const VkMemoryAllocateInfo*,
                                            const VkAllocationCallbacks*,
                                            VkDeviceMemory*) { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
  const std::string message = error_of([&] { Tensor::empty({400 << 20}, DType::f32, device); });
  gpu.replaceable_api().AllocateMemory = real;
  CHECK(contains(message, "no room for"));
  CHECK(contains(message, "slabs"));
  CHECK(Tensor::ones({3}, DType::f32, device).to_vector<float>() == Floats{1, 1, 1});
}

VULKAN_TEST("vulkan: what a driver has no memory for is OutOfMemory, whatever it was") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  static PFN_vkCreateBuffer real;
  real = gpu.api().CreateBuffer;
  gpu.replaceable_api().CreateBuffer = [](VkDevice, const VkBufferCreateInfo*, const VkAllocationCallbacks*,
                                          VkBuffer*) { return VK_ERROR_OUT_OF_HOST_MEMORY; };
  CHECK_THROWS_AS(Tensor::empty({400 << 20}, DType::f32, device), OutOfMemory);
  gpu.replaceable_api().CreateBuffer = real;
  CHECK(Tensor::ones({3}, DType::f32, device).to_vector<float>() == Floats{1, 1, 1});
}

VULKAN_TEST("vulkan: a long run of ops waits only when a value is read") {
  vulkan::Stream& stream = vulkan::gpu(device.index).stream();
  Tensor x = Tensor::zeros({100}, DType::f32, device);
  stream.wait_idle();
  const DeviceCounters before = stream.counters();
  for (int i = 0; i < 1000; ++i) x = x + 1.0;
  CHECK(stream.counters().waits == before.waits);
  CHECK(stream.counters().submissions > before.submissions + 10);
  CHECK(x.to_vector<float>()[99] == 1000);
  CHECK(stream.counters().waits <= before.waits + 1);
}

VULKAN_TEST("vulkan: ops that touch different memory need no barrier") {
  vulkan::Stream& stream = vulkan::gpu(device.index).stream();
  std::vector<Tensor> tensors;
  for (int i = 0; i < 20; ++i) tensors.push_back(Tensor::empty({64}, DType::f32, device));
  const std::int64_t before = stream.counters().barriers;
  for (const Tensor& tensor : tensors) backend_of(device).fill(3, tensor);
  CHECK(stream.counters().barriers <= before + 1);
  for (const Tensor& tensor : tensors) CHECK(tensor.to_vector<float>()[63] == 3);
}

VULKAN_TEST("vulkan: the validation layers see a missing barrier") {
  if (!std::getenv("HEED_VULKAN_VALIDATION")) {
    MESSAGE("skipped: HEED_VULKAN_VALIDATION is not set");
    return;
  }
  REQUIRE(vulkan::validation_messages().empty());
  vulkan::Stream& stream = vulkan::gpu(device.index).stream();
  const Tensor a = Tensor::ones({64}, DType::f32, device);
  stream.wait_idle();
  stream.skip_barriers(true);
  const Tensor b = (a + 1.0) * 2.0;  // the product reads what the sum writes
  stream.submit();
  stream.skip_barriers(false);
  CHECK(!vulkan::validation_messages().empty());
  vulkan::clear_validation_messages();
}

VULKAN_TEST("vulkan: a lost device is an error that names its last kernels") {
  // A second opening of the device, which is lost at its next submission.
  vulkan::Gpu& gpu = opened_again(device);
  gpu.replaceable_api().QueueSubmit = [](VkQueue, std::uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  const auto block = record_fill(gpu, device);
  CHECK_ERROR(gpu.stream().wait_idle(), "unfinished kernels: fill");
  CHECK_THROWS_AS(record_fill(gpu, device), DeviceLost);
}

VULKAN_TEST("vulkan: commands that a driver has no memory for are never taken for done") {
  for (const bool at_submission : {true, false}) {
    CAPTURE(at_submission);
    vulkan::Gpu& gpu = opened_again(device);
    const vulkan::DeviceApi real = gpu.api();
    if (at_submission)
      gpu.replaceable_api().QueueSubmit = [](VkQueue, std::uint32_t, const VkSubmitInfo*, VkFence) {
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
      };
    else
      gpu.replaceable_api().EndCommandBuffer = [](VkCommandBuffer) { return VK_ERROR_OUT_OF_HOST_MEMORY; };
    const auto block = record_fill(gpu, device);
    CHECK_THROWS_AS(gpu.stream().wait_idle(), DeviceLost);
    gpu.replaceable_api() = real;  // there is memory again, but what was recorded is gone
    CHECK_THROWS_AS(record_fill(gpu, device), DeviceLost);
    CHECK_THROWS_AS(gpu.stream().wait_idle(), DeviceLost);
  }
}

VULKAN_TEST("vulkan: a wait that ends on a lost device is no success") {
  vulkan::Gpu& gpu = opened_again(device);
  gpu.replaceable_api().WaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, std::uint64_t) {
    return VK_SUCCESS;
  };
  gpu.replaceable_api().GetSemaphoreCounterValue = [](VkDevice, VkSemaphore, std::uint64_t* value) {
    *value = 0;
    return VK_SUCCESS;
  };
  const auto block = record_fill(gpu, device);
  CHECK_THROWS_AS(gpu.stream().wait_idle(), DeviceLost);
}

VULKAN_TEST("vulkan: what a launch that threw had announced is not waited for") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const Tensor ones = Tensor::ones({3}, DType::f32, device);
  synchronize(device);
  CHECK_THROWS_AS(vulkan::Launch(gpu, "no such shader").reports_errors("wrong").groups(1), Error);
  CHECK(ones.to_vector<float>() == Floats{1, 1, 1});  // this waited for ever
}
