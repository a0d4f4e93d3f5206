#pragma once

#include <cstddef>
#include <optional>

namespace heed::cpu {

/// How many bytes of addresses this process may use (ulimit -v); nothing where there is no limit.
std::optional<std::size_t> address_limit();

/// How many it uses; 0 where the system does not say.
std::size_t addresses_used();

}  // namespace heed::cpu
