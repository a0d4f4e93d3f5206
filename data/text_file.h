#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// How the bytes of a text file stand for characters. It is always named by the caller, never guessed.
enum class Encoding { utf8, latin1, cp1252 };
/// "utf-8", "latin-1" or "cp1252"; throws Error on any other name.
Encoding encoding_from_name(std::string_view name);

/// The lines of a text file, plain or gzip (told apart by its first bytes), as UTF-8 without line ends. Lines
/// end in
/// "\n" or "\r\n"; the last one may lack it. A UTF-8 byte-order mark at the start is no text and is left out.
/// Throws Error with path and line number on bytes that the encoding does not have, on an empty file, and on
/// a damaged or cut-off gzip file.
std::vector<std::string> read_lines(const std::filesystem::path& path, Encoding encoding = Encoding::utf8);
/// The same for bytes already in memory; `origin` says in errors where they came from.
std::vector<std::string> parse_lines(std::string_view bytes, std::string_view origin,
                                     Encoding encoding = Encoding::utf8);

/// The whole text of such a file as UTF-8, line ends included as they stand. Throws as read_lines does.
std::string read_text(const std::filesystem::path& path, Encoding encoding = Encoding::utf8);
/// The same for bytes already in memory.
std::string parse_text(std::string_view bytes, std::string_view origin, Encoding encoding = Encoding::utf8);

}  // namespace heed
