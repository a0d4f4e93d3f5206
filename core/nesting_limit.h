#pragma once

#include <string>
#include <utility>

#include "heed/core/error.h"

namespace heed {

/// A callback for a JSON parser (depth, event, value) that refuses text nested `limit` levels deep or
/// deeper: what walks over a value later, to print it in an error for instance, is recursive. The
/// Error begins with `source`.
inline auto nesting_limit(int limit, std::string source) {
  return [limit, source = std::move(source)](int depth, const auto&, const auto&) {
    check(depth < limit, source, " is nested too deeply: ", limit, " levels or more");
    return true;
  };
}

}  // namespace heed
