#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/core/error.h"

namespace heed {

/// The names of a choice, in one place: of an enum's values, for settings, errors and help.
template <class Kind, std::size_t count>
struct NameTable {
  std::string_view what;  ///< "optimizer"
  std::array<std::pair<std::string_view, Kind>, count> rows;

  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& [name, kind] : rows) list.emplace_back(name);
    return list;
  }
  /// Throws an Error that lists the names for one that is not among them.
  Kind find(std::string_view wanted) const {
    std::string known;
    for (const auto& [name, kind] : rows) {
      if (name == wanted) return kind;
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
    fail("unknown ", what, " \"", wanted, "\"; choose one of ", known);
  }
  std::string_view name_of(Kind wanted) const {
    for (const auto& [name, kind] : rows) {
      if (kind == wanted) return name;
    }
    fail("a ", what, " without a name");
  }
};

}  // namespace heed
