#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace heed::vulkan {

/// A compute shader as compiled into the library.
struct ShaderCode {
  std::string_view name;
  std::span<const std::uint32_t> words;  ///< SPIR-V
};

/// All modules, sorted by name. The definition is generated from shaders/ by cmake/shaders.cmake.
std::span<const ShaderCode> shader_codes();
/// One of them; null when there is none of that name (left out because glslang lacked an extension).
const ShaderCode* find_shader(std::string_view name);

}  // namespace heed::vulkan
