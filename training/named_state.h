#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "heed/core/tensor.h"

namespace heed {

/// Copies saved tensors into the targets of the same names. Before anything is changed, checks that both have
/// exactly the same names, shapes and dtypes; the Error names `what` and the first tensor that is missing,
/// differs or is unknown.
void copy_named_tensors(const std::map<std::string, Tensor>& saved,
                        std::span<const std::pair<std::string, Tensor>> targets, std::string_view what);

}  // namespace heed
