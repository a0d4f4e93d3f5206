#pragma once

#include <string_view>

// The files of training/page/ and Chart.js, which are built into the library and into every page that needs
// them (cmake/page.cmake), so that pages work offline.

namespace heed::page {

extern const std::string_view style;          ///< style.css
extern const std::string_view chart_library;  ///< Chart.js, with its licence
extern const std::string_view charts;         ///< charts.js
extern const std::string_view maps;           ///< maps.js
extern const std::string_view live;           ///< live.js

}  // namespace heed::page
