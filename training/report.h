#pragma once

#include <span>
#include <string>
#include <string_view>

#include "heed/training/progress.h"

namespace heed {

/// A page with the curves of a run (losses, evaluation metrics, learning rate, gradient norm) and its
/// configuration. All in one file, drawings as inline SVG: it opens without a network.
std::string report_html(std::span<const Progress> records, std::string_view configuration);

}  // namespace heed
