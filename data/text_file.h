#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/text_list.h"

namespace heed {

/// How the bytes of a text file stand for characters. It is always named by the caller, never guessed.
enum class Encoding { utf8, latin1, cp1252 };
/// "utf-8", "latin-1", "cp1252".
std::vector<std::string> encoding_names();
/// Throws Error on any other name.
Encoding encoding_from_name(std::string_view name);

/// What becomes of bytes that the encoding does not have: an Error, or U+FFFD, one for each ill-formed
/// sequence of UTF-8 (see unicode::CodePoint) and for each byte of cp1252.
enum class BadBytes { error, replace };
/// "error", "replace".
std::vector<std::string> bad_bytes_names();
/// Throws Error on any other name.
BadBytes bad_bytes_from_name(std::string_view name);

/// How every reader of texts reads.
struct TextOptions {
  Encoding encoding = Encoding::utf8;
  BadBytes bad_bytes = BadBytes::error;
  /// The most bytes of one file, unpacked.
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  /// The most bytes of a line, line end included, where a text is read by lines.
  std::uint64_t max_line_bytes = std::uint64_t{64} << 20;
};

/// What a reader met that its caller is to say.
struct ReadReport {
  std::int64_t replaced = 0;  ///< bytes in whose place stands U+FFFD
  std::int64_t blank = 0;     ///< blank lines that were left out, of tables and of two files of lines
};

/// The lines of a text file, plain or gzip (told apart by its first bytes), as UTF-8 without line ends. Lines
/// end in "\n" or "\r\n"; the last one may lack it. A UTF-8 byte-order mark at the start is no text and is
/// left out; a NUL is a character like others. Throws Error with path and line number on bytes that the
/// encoding does not have, on what is no regular file, on an empty file, on a damaged or cut-off gzip file,
/// and beyond the limits of the options, before memory is taken.
TextList read_lines(const std::filesystem::path& path, const TextOptions& options = {},
                    ReadReport* report = nullptr);
/// The same for bytes already in memory; `origin` says in errors where they came from.
TextList parse_lines(std::string_view bytes, std::string_view origin, const TextOptions& options = {},
                     ReadReport* report = nullptr);

/// The text of such a file as UTF-8, line by line, each with its line end as it stands; a line may have any length. The
/// file is never in memory as a whole. Throws as read_lines does.
void read_text_by_lines(const std::filesystem::path& path, const TextOptions& options,
                        const std::function<void(std::string_view line)>& take, ReadReport* report = nullptr);

/// The bytes of a file that parse_* are to read. Throws Error when it is no regular file, and when it is
/// longer than max_bytes, before it is read.
std::string read_limited_file(const std::filesystem::path& path, const TextOptions& options);

/// Sentences and their translations: line i of one belongs to line i of the other.
struct ParallelText {
  TextList source, target;
  std::size_t size() const { return source.size(); }
};

/// Reads two files of lines (see read_lines) side by side. Lines without a character in either file are counted and left
/// out. Throws Error with both counts when they differ.
ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TextOptions& options = {}, ReadReport* report = nullptr);

}  // namespace heed
