#pragma once

/// The version, stated once, for the preprocessor: HEED_VERSION >= 10203 means 1.2.3 or later.
#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0
#define HEED_VERSION (10000 * HEED_VERSION_MAJOR + 100 * HEED_VERSION_MINOR + HEED_VERSION_PATCH)

#define HEED_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define HEED_VERSION_TEXT(major, minor, patch) HEED_VERSION_TEXT_OF(major, minor, patch)

namespace heed {

inline constexpr const char* version =
    HEED_VERSION_TEXT(HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH);

}  // namespace heed
