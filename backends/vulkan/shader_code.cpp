#include "heed/backends/vulkan/shader_code.h"

#include <algorithm>

namespace heed::vulkan {

const ShaderCode* find_shader(std::string_view name) {
  const std::span<const ShaderCode> all = shader_codes();
  const auto found = std::ranges::lower_bound(all, name, {}, &ShaderCode::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

}  // namespace heed::vulkan
