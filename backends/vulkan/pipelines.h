#pragma once

#include <string>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "heed/backends/vulkan/api.h"

namespace heed::vulkan {

/// Returns the driver's data in `file`, the content of a cache file, if it was made for the device
/// whose identity has the checksum `device`; "" if the file is truncated, damaged or another
/// device's.
std::string driver_data(std::string file, std::uint64_t device);

class OpenDevice;
struct ShaderCode;

/// The most specialisation constants that a launch may give, numbered from 0. The next number is
/// the subgroup size.
inline constexpr std::uint32_t most_constants = 12;

/// A shader specialised by constants, ready to run.
struct Pipeline {
  VkPipeline pipeline = VK_NULL_HANDLE;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;
};

/// Compiles pipelines when they are first needed and keeps them. The driver's results are kept on
/// disk too, in one file per device and driver in cache_folder(). A file that is damaged or another
/// device's is ignored and rewritten; failure to write one is not an error.
class Pipelines {
 public:
  explicit Pipelines(OpenDevice& device);
  /// Returns the pipeline. Throws an Error when there is no shader of that name or the driver
  /// cannot compile it.
  const Pipeline& get(std::string_view shader, std::span<const std::uint32_t> constants,
                      std::size_t bindings);
  /// Writes the cache file if pipelines were added since it was read or written.
  void save() noexcept;
  /// Bytes of the driver's data in the cache file when the device was opened; 0 if none were
  /// usable.
  std::size_t found_bytes() const { return found_bytes_; }

 private:
  struct Key {
    std::string_view shader;
    std::array<std::uint32_t, most_constants> constants;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Layout {
    VkDescriptorSetLayout set = VK_NULL_HANDLE;
    VkPipelineLayout pipeline = VK_NULL_HANDLE;
  };

  const Layout& layout(std::size_t bindings);
  /// Returns a module as it is passed to the driver.
  std::vector<std::uint32_t> words_of(const ShaderCode& code, std::span<const std::uint32_t> constants) const;
  Pipeline compile(std::string_view shader, std::span<const std::uint32_t> constants, std::size_t bindings);

  OpenDevice& device_;
  std::filesystem::path file_;  // empty: no cache file
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::map<Key, Pipeline> pipelines_;
  std::map<std::size_t, Layout> layouts_;
  std::size_t found_bytes_ = 0;
  bool changed_ = false;
};

}  // namespace heed::vulkan
