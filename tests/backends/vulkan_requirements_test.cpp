// What heed asks of a Vulkan device: the baseline, 16-bit storage for half precision alone, batches bounded
// by work, float controls, constants that are written into modules, and what becomes of special values.

#include <bit>

#include "heed/backends/vulkan/shader_code.h"
#include "heed/tests/vulkan_compare.h"

namespace {

/// The instructions of a number in a module: their words after the first.
std::vector<std::vector<std::uint32_t>> instructions(std::span<const std::uint32_t> module,
                                                     std::uint32_t number) {
  std::vector<std::vector<std::uint32_t>> found;
  for (std::size_t at = 5; at < module.size(); at += module[at] >> 16) {
    REQUIRE((module[at] >> 16) > 0);
    if ((module[at] & 0xffffu) != number) continue;
    const auto words = module.subspan(at + 1, (module[at] >> 16) - 1);
    found.emplace_back(words.begin(), words.end());
  }
  return found;
}

}  // namespace

TEST_CASE("vulkan baseline: what a device lacks is named") {
  VkPhysicalDeviceLimits enough{};
  enough.maxPerStageDescriptorStorageBuffers = vulkan::most_bindings;
  enough.maxComputeSharedMemorySize = 32768;
  enough.maxComputeWorkGroupInvocations = 256;
  VkPhysicalDeviceVulkan12Features features{};
  CHECK(contains(vulkan::missing_from_baseline(enough, features), "timeline semaphores"));
  features.timelineSemaphore = VK_TRUE;
  CHECK(vulkan::missing_from_baseline(enough, features).empty());
  struct Lack {
    std::uint32_t VkPhysicalDeviceLimits::*limit;
    std::uint32_t value;
    const char* says;
  };
  for (const auto& [limit, value, says] :
       {Lack{&VkPhysicalDeviceLimits::maxPerStageDescriptorStorageBuffers, 4,
             "4 storage buffers at once, fewer than 12"},
        Lack{&VkPhysicalDeviceLimits::maxComputeSharedMemorySize, 16384, "16384 bytes of shared memory"},
        Lack{&VkPhysicalDeviceLimits::maxComputeWorkGroupInvocations, 128, "128 invocations"}}) {
    VkPhysicalDeviceLimits limits = enough;
    limits.*limit = value;
    CHECK(contains(vulkan::missing_from_baseline(limits, features), says));
  }
}

TEST_CASE("vulkan queues: the first that computes, or by choice the first that draws nothing") {
  const auto family = [](VkQueueFlags flags) { return VkQueueFamilyProperties{flags, 1, 64, {1, 1, 1}}; };
  constexpr VkQueueFlags draws = VK_QUEUE_GRAPHICS_BIT, computes = VK_QUEUE_COMPUTE_BIT,
                         copies = VK_QUEUE_TRANSFER_BIT;
  const std::vector discrete{family(copies), family(draws | computes | copies), family(computes | copies)};
  CHECK(vulkan::choose_queue_family(discrete, "").family == 1u);
  CHECK(vulkan::choose_queue_family(discrete, "main").family == 1u);
  CHECK(vulkan::choose_queue_family(discrete, "compute").family == 2u);
  const std::span only_main = std::span(discrete).first(2), none = std::span(discrete).first(1);
  CHECK(!vulkan::choose_queue_family(only_main, "compute").family);
  CHECK(contains(vulkan::choose_queue_family(only_main, "compute").problem, "HEED_VULKAN_QUEUE"));
  CHECK(vulkan::choose_queue_family(none, "").problem == "it has no queue that computes");
}

TEST_CASE("vulkan modules: only those of half precision use 16-bit storage") {
  std::size_t halves = 0;
  for (const vulkan::ShaderCode& code : vulkan::shader_codes()) {
    CAPTURE(code.name);
    const bool half = contains(std::string(code.name), "f16") || contains(std::string(code.name), "u16");
    halves += half;
    CHECK(vulkan::uses_16_bit_storage(code.words) == half);
  }
  CHECK(halves > 50);
}

TEST_CASE("vulkan modules: float controls are asked for where a device has them") {
  const vulkan::FloatControls all{true, true, true, true, true};
  for (const vulkan::ShaderCode& code : vulkan::shader_codes()) {
    CAPTURE(code.name);
    const auto plain = vulkan::with_float_controls(code.words, {});
    CHECK(std::ranges::equal(plain, code.words));
    const auto asked = vulkan::with_float_controls(code.words, all);
    constexpr std::uint32_t entry_point = 15, execution_mode = 16, capability = 17;
    const auto modes = instructions(asked, execution_mode);
    const std::uint32_t id = instructions(asked, entry_point)[0][1];
    const bool half = vulkan::uses_16_bit_storage(code.words);
    const auto has = [&](std::uint32_t mode, std::uint32_t bits) {
      return std::ranges::count(modes, std::vector{id, mode, bits}) == 1;
    };
    CHECK(has(4461, 32));
    CHECK(has(4462, 32));
    CHECK(has(4461, 16) == half);
    CHECK(has(4462, 16) == half);
    CHECK(has(4459, 16) == half);
    CHECK(instructions(asked, capability).size() ==
          instructions(code.words, capability).size() + (half ? 3 : 2));
  }
  const std::vector<std::uint32_t> damaged{0x07230203, 0x10500, 0, 10, 0, 0};
  CHECK_ERROR(vulkan::uses_16_bit_storage(damaged), "damaged");
}

TEST_CASE("vulkan modules: constants are written into them, and what follows is worked out") {
  constexpr std::uint32_t type_bool = 20, type_int = 21, constant_true = 41, constant_false = 42,
                          constant = 43, composite = 44, spec_true = 48, spec_constant = 50,
                          spec_composite = 51, spec_op = 52, decorate = 71;
  std::vector<std::uint32_t> module{0x07230203, 0x10500, 0, 100, 0};
  const auto add = [&](std::uint32_t number, const std::vector<std::uint32_t>& words) {
    module.push_back(static_cast<std::uint32_t>(words.size() + 1) << 16 | number);
    module.insert(module.end(), words.begin(), words.end());
  };
  constexpr std::uint32_t bool_type = 1, uint_type = 2, vector_type = 3;
  add(decorate, {10, 1, 4});  // SpecId 4
  add(decorate, {11, 1, 5});
  add(decorate, {12, 1, 6});
  add(decorate, {13, 11, 25});  // BuiltIn WorkgroupSize
  add(type_bool, {bool_type});
  add(type_int, {uint_type, 32, 0});
  add(constant, {uint_type, 9, 3});
  add(spec_constant, {uint_type, 10, 1});
  add(spec_constant, {uint_type, 11, 100});
  add(spec_true, {bool_type, 12});
  add(spec_composite, {vector_type, 13, 10, 11, 9});
  struct Operation {
    std::vector<std::uint32_t> words;
    std::uint32_t result;
  };
  // By the number of the operation: what the result is with 20 for constant 4, 100 for 5 (its default) and 3.
  const std::vector<Operation> operations = {{{128, 10, 9}, 23},  {{130, 10, 11}, -80u}, {{132, 10, 9}, 60},
                                             {{134, 11, 9}, 33},  {{137, 11, 9}, 1},     {{194, 11, 9}, 12},
                                             {{196, 10, 9}, 160}, {{197, 10, 9}, 23},    {{199, 10, 11}, 4},
                                             {{81, 13, 1}, 100},  {{169, 12, 10, 9}, 3}};
  const std::vector<Operation> conditions = {
      {{170, 10, 9}, false}, {{171, 10, 9}, true},  {{172, 10, 9}, true},
      {{174, 9, 10}, false}, {{176, 9, 10}, true},  {{178, 9, 9}, true},
      {{168, 12}, true},     {{166, 12, 41}, true}, {{167, 12, 41}, false}};
  const auto add_all = [&](const std::vector<Operation>& all, std::uint32_t type, std::uint32_t id) {
    for (const auto& [words, result] : all) {
      std::vector<std::uint32_t> whole{type, id++};
      whole.insert(whole.end(), words.begin(), words.end());
      add(spec_op, whole);
    }
  };
  add_all(operations, uint_type, 20);
  add_all(conditions, bool_type, 40);
  add(spec_op, {uint_type, 60, 134, 10, 61});  // by what nobody knows: left as it is
  add(spec_op, {uint_type, 62, 130, 9, 9});
  add(spec_op, {uint_type, 63, 134, 10, 62});  // by 0: likewise
  const auto made = vulkan::specialised(module, {{4, 20}, {6, 0}});

  std::map<std::uint32_t, std::uint32_t> found;
  for (const auto& words : instructions(made, constant)) found[words[1]] = words[2];
  for (const auto& words : instructions(made, constant_true)) found[words[1]] = 1;
  for (const auto& words : instructions(made, constant_false)) found[words[1]] = 0;
  CHECK(found.at(10) == 20);
  CHECK(found.at(11) == 100);
  CHECK(found.at(12) == 0);
  const auto check_all = [&](const std::vector<Operation>& all, std::uint32_t id) {
    for (const Operation& each : all) {
      CAPTURE(each.words[0]);
      CHECK(found.at(id++) == each.result);
    }
  };
  check_all(operations, 20);
  check_all(conditions, 40);
  CHECK(instructions(made, composite) ==
        std::vector<std::vector<std::uint32_t>>{{vector_type, 13, 10, 11, 9}});
  CHECK(instructions(made, decorate) == std::vector<std::vector<std::uint32_t>>{{13, 11, 25}});
  CHECK(instructions(made, spec_op) ==
        std::vector<std::vector<std::uint32_t>>{{uint_type, 60, 134, 10, 61}, {uint_type, 63, 134, 10, 62}});
}

TEST_CASE("vulkan modules: no constant is left to the driver, and no loop where it is not to unroll any") {
  constexpr std::uint32_t loop_merge = 246;
  std::size_t hints = 0;
  for (const vulkan::ShaderCode& code : vulkan::shader_codes()) {
    CAPTURE(code.name);
    const auto made = vulkan::specialised(code.words, {{0, 64}, {12, 32}});
    for (const std::uint32_t number : {48u, 49u, 50u, 51u, 52u}) CHECK(instructions(made, number).empty());
    const auto rolled = vulkan::without_unrolling(made);
    CHECK(rolled.size() == made.size());
    for (const auto& words : instructions(made, loop_merge)) hints += words[2] & 1u;
    for (const auto& words : instructions(rolled, loop_merge)) CHECK((words[2] & 1u) == 0);
  }
  CHECK(hints > 100);
}

VULKAN_TEST("vulkan: special values pass through copies, conversions and products as on the CPU") {
  // For f16 in turn: halfway cases on both sides, tiny numbers, what overflows, and its last number before
  // that.
  const Doubles values = {-0.0,     0.0,       infinity, -infinity, 1 + 0x1p-11, 1 + 0x3p-11, 0x1p-24,
                          -0x3p-24, 0x1.8p-25, 0x1p-25,  65519,     65520,       -1e30};
  const Shape shape{static_cast<std::int64_t>(values.size())};
  const Tensor x = copy_on(device, tensor_of<float>(values, shape));
  const auto bits_after = [&](DType dtype) {
    const Tensor half = Tensor::empty(shape, dtype, device);
    backend_of(device).copy(x, half);
    std::vector<std::uint16_t> bits(values.size());
    backend_of(device).download(half, bits.data());
    return bits;
  };
  const std::vector<std::uint16_t> f16 = {0x8000, 0, 0x7c00, 0xfc00, 0x3c00, 0x3c02, 1,
                                          0x8003, 1, 0,      0x7bff, 0x7c00, 0xfc00};
  CHECK(bits_after(DType::f16) == f16);
  std::vector<std::uint16_t> bf16;
  for (const double value : values) {
    const auto word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    bf16.push_back(static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16));
  }
  CHECK(bits_after(DType::bf16) == bf16);
  // -0 stays -0, and infinity times 0 is not a number.
  const Floats zeros = (x * 0.0).to_vector<float>();
  CHECK(std::signbit(zeros[0]));
  CHECK(!std::signbit(zeros[1]));
  CHECK(std::isnan(zeros[2]));
  CHECK(zeros[4] == 0);
}

VULKAN_TEST("vulkan: a batch is submitted when its work is enough") {
  vulkan::Stream& stream = vulkan::gpu(device.index).stream();
  const Tensor x = Tensor::zeros({1000}, DType::f32, device);
  const auto submissions = [&] {
    stream.wait_idle();
    // Every eight commands, where the device has always caught up.
    const std::int64_t before = stream.counters().submissions;
    for (int i = 0; i < 20; ++i) backend_of(device).unary(UnaryOp::neg, {}, x, x);
    return stream.counters().submissions - before;
  };
  CHECK(submissions() <= 2);
  const LoweredLimits limits(device, [](vulkan::Limits& lower) { lower.batch_seconds = 1e-12; });
  CHECK(submissions() >= 20);
}

VULKAN_TEST("vulkan: the report of memory says what the driver has left") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  CHECK(contains(gpu.memory().report(), "by the driver this process has") ==
        gpu.capabilities().memory_budget);
  CHECK(gpu.limits().max_allocation > 0);
}
