#include "heed/backends/vulkan/pipelines.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "heed/backends/vulkan/open_device.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "heed/base/file.h"

namespace heed::vulkan {

namespace {

/// Precedes the driver's data, so that a truncated, damaged or foreign file never reaches the driver.
struct CacheHeader {
  char magic[8] = {'h', 'e', 'e', 'd', 'v', 'k', 'p', '2'};
  std::uint64_t device = 0;  // checksum of the device's identity
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};
constexpr std::int64_t largest_cache = std::int64_t{1} << 30;

/// The driver's data in a cache file; empty if the file cannot be read, is damaged or another device's.
std::string read_cache(const std::filesystem::path& file, std::uint64_t device) {
  try {
    return driver_data(read_file(file, largest_cache), device);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string driver_data(std::string file, std::uint64_t device) {
  CacheHeader header;
  const CacheHeader expected;
  if (file.size() < sizeof header) return {};
  std::memcpy(&header, file.data(), sizeof header);
  file.erase(0, sizeof header);
  const bool whole = std::memcmp(header.magic, expected.magic, sizeof header.magic) == 0 &&
                     header.device == device && header.bytes == file.size() && header.checksum == fnv1a(file);
  return whole ? file : std::string();
}

Pipelines::Pipelines(OpenDevice& device) : device_(device) {
  const std::filesystem::path folder = cache_folder();
  std::string data;
  if (!folder.empty()) {
    file_ = folder / ("pipelines-" + device.described().identity + ".bin");
    data = read_cache(file_, fnv1a(device.described().identity));
  }
  found_bytes_ = data.size();
  auto info = structure<VkPipelineCacheCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO);
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  check_result(device.api().CreatePipelineCache(device.api().device, &info, nullptr, &cache_),
               "vkCreatePipelineCache");
}

const Pipelines::Layout& Pipelines::layout(std::size_t bindings) {
  Layout& made = layouts_[bindings];
  if (made.pipeline) return made;
  const DeviceApi& api = device_.api();
  std::vector<VkDescriptorSetLayoutBinding> list(bindings);
  for (std::uint32_t i = 0; i < bindings; ++i)
    list[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  auto set = structure<VkDescriptorSetLayoutCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO);
  if (device_.capabilities().push_descriptor)
    set.flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR;
  set.bindingCount = static_cast<std::uint32_t>(bindings);
  set.pBindings = list.data();
  check_result(api.CreateDescriptorSetLayout(api.device, &set, nullptr, &made.set),
               "vkCreateDescriptorSetLayout");
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
  auto info = structure<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  info.setLayoutCount = 1;
  info.pSetLayouts = &made.set;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  check_result(api.CreatePipelineLayout(api.device, &info, nullptr, &made.pipeline),
               "vkCreatePipelineLayout");
  return made;
}

std::vector<std::uint32_t> Pipelines::words_of(const ShaderCode& code,
                                               std::span<const std::uint32_t> constants) const {
  const Capabilities& can = device_.capabilities();
  std::map<std::uint32_t, std::uint32_t> values{{most_constants, can.subgroup_size}};
  for (std::uint32_t i = 0; i < constants.size(); ++i) values[i] = constants[i];
  std::vector<std::uint32_t> words = specialised(with_float_controls(code.words, can.float_controls), values);
  // Only attention's loops contain the conditions that Capabilities::unrolling is about; products
  // run several times faster unrolled.
  return can.unrolling || !code.name.starts_with("attention") ? words : without_unrolling(words);
}

Pipeline Pipelines::compile(std::string_view shader, std::span<const std::uint32_t> constants,
                            std::size_t bindings) {
  const DeviceApi& api = device_.api();
  const ShaderCode& code = shader_code(shader);
  check(device_.capabilities().storage16 || !uses_16_bit_storage(code.words), "vulkan: ", device_.name(),
        " has no 16-bit storage, which half precision needs; compute in f32");
  const std::vector<std::uint32_t> words = words_of(code, constants);
  auto module_info = structure<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  module_info.codeSize = words.size() * sizeof words[0];
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check_result(api.CreateShaderModule(api.device, &module_info, nullptr, &module), "vkCreateShaderModule");

  const Layout& used = layout(bindings);
  auto info = structure<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  auto subgroups = structure<VkPipelineShaderStageRequiredSubgroupSizeCreateInfo>(
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO);
  subgroups.requiredSubgroupSize = device_.capabilities().subgroup_size;
  if (device_.capabilities().subgroup_size_control && uses_subgroups(code.words)) {
    info.stage.pNext = &subgroups;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.layout = used.pipeline;
  Pipeline made{VK_NULL_HANDLE, used.pipeline, used.set};
  const VkResult result = api.CreateComputePipelines(api.device, cache_, 1, &info, nullptr, &made.pipeline);
  api.DestroyShaderModule(api.device, module, nullptr);
  check_result(result, concat_text("compiling shader \"", shader, "\" for ", device_.name()).c_str());
  check(made.pipeline != VK_NULL_HANDLE, "vulkan: ", device_.name(), " cannot compile shader \"", shader,
        "\"");
  changed_ = true;
  finish_before_exit_handlers();
  return made;
}

const Pipeline& Pipelines::get(std::string_view shader, std::span<const std::uint32_t> constants,
                               std::size_t bindings) {
  Key key{shader, {}};
  std::ranges::copy(constants, key.constants.begin());
  const auto found = pipelines_.find(key);
  if (found != pipelines_.end()) return found->second;
  const Pipeline made = compile(shader, constants, bindings);
  key.shader = shader_code(shader).name;  // lives as long as the program
  return pipelines_.emplace(key, made).first->second;
}

void Pipelines::save() noexcept {
  if (!changed_ || file_.empty()) return;
  changed_ = false;
  try {
    const DeviceApi& api = device_.api();
    std::size_t bytes = 0;
    if (api.GetPipelineCacheData(api.device, cache_, &bytes, nullptr) != VK_SUCCESS) return;
    std::string data(bytes, '\0');
    if (api.GetPipelineCacheData(api.device, cache_, &bytes, data.data()) != VK_SUCCESS) return;
    data.resize(bytes);
    CacheHeader header;
    header.device = fnv1a(device_.described().identity);
    header.bytes = data.size();
    header.checksum = fnv1a(data);
    data.insert(0, reinterpret_cast<const char*>(&header), sizeof header);
    std::filesystem::create_directories(file_.parent_path());
    if (std::filesystem::is_symlink(file_)) std::filesystem::remove(file_);  // its target is not heed's file
    write_file_atomically(file_, data);
  } catch (const std::exception&) {  // the cache only saves time
    file_.clear();
  }
}

}  // namespace heed::vulkan
