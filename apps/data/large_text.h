#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_file.h"
#include "heed/text/token_stream.h"

namespace heed {

/// A part of a document: its beginning, or the continuation of the piece before.
struct TextPiece {
  std::string text;
  bool begins = true;  ///< true: starts a document
};

/// Documents in pieces, each small enough for memory.
class LargeText {
 public:
  explicit LargeText(std::int64_t memory_bytes = default_memory_bytes) : spool_(memory_bytes) {}
  void add(std::string_view text, bool begins);
  std::size_t size() const { return pieces_.size(); }  ///< number of pieces
  bool empty() const { return pieces_.empty(); }
  TextPiece operator[](std::size_t piece) const;
  std::int64_t bytes() const { return spool_.size(); }
  std::int64_t bytes(std::size_t piece) const { return pieces_.at(piece).bytes; }
  std::int64_t characters() const { return characters_; }  ///< Unicode code points

 private:
  struct Piece {
    std::int64_t begin, bytes;
    bool begins;
  };
  Spool spool_;
  std::vector<Piece> pieces_;
  std::int64_t characters_ = 0;
};

/// Adds the text of a file (see read_text_by_lines) as one document, in pieces of about 16 MiB. A
/// piece ends before a line break that follows a word, where tokenizers split a text as well; if 16
/// MiB have no such place, before a space that follows a word, or else between two characters.
void read_large_text(const std::filesystem::path& path, LargeText& text, const TextOptions& options = {},
                     ReadReport* report = nullptr);
/// Returns the first `characters` characters of a text, and the rest. A document that is split
/// begins anew in the second part.
std::pair<LargeText, LargeText> split_large_text(const LargeText& text, std::int64_t characters,
                                                 std::int64_t memory_bytes = default_memory_bytes);

}  // namespace heed
