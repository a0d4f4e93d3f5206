#pragma once

#include <string>
#include <string_view>

namespace heed {

/// True when the bytes begin as a gzip file does (RFC 1952).
bool is_gzip(std::string_view bytes);
/// The content of a gzip file of one or more members. Throws Error, beginning with `origin`, when it is
/// damaged, cut off, or followed by something else.
std::string gunzip(std::string_view bytes, std::string_view origin);

}  // namespace heed
