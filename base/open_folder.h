#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/file.h"

namespace heed {

struct Descriptor;

/// A folder that is held open. What is written goes into this very folder, wherever it was moved and whatever
/// its path leads to by then; and into nothing else, because a file or folder in it that is a symbolic link
/// is refused. So a run that somebody sent cannot lead a program into files outside of it.
///
/// A `name` is that of an entry, without "/". Every failure throws an Error with the path. Copies share the
/// open folder.
class OpenFolder {
 public:
  /// The path itself may be a link.
  explicit OpenFolder(const std::filesystem::path& path);

  /// By which it was opened.
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const;
  /// Where it is now; empty when no path leads to it any more.
  std::filesystem::path place() const;
  /// "" while path() leads to it; else what became of it: "was moved to "/b"", or "was removed".
  std::string fate() const;

  /// Names of its entries, sorted.
  std::vector<std::string> names() const;
  /// Whether there is an entry of any kind, a link included.
  bool has(const std::string& name) const;
  bool has_file(const std::string& name) const;
  /// The folder of that name in it; nothing where there is none. Throws for what is no folder or a link.
  std::optional<OpenFolder> find_folder(const std::string& name) const;
  /// The same, made where there is none.
  OpenFolder make_folder(const std::string& name) const;

  /// Throws unless a name is free, or that of a regular file: what all below need.
  void check_own_file(const std::string& name) const;
  std::string read(const std::string& name) const;
  void read_in_parts(const std::string& name, const std::function<void(std::string_view part)>& take) const;
  /// Replaces a file as write_file_atomically does.
  void write(const std::string& name, std::string_view content) const;
  void write(const std::string& name, const std::function<void(FileWriter&)>& write) const;
  /// Opens a file to be written to at its end, and made where it is missing. The caller closes the
  /// descriptor.
  int open_to_append(const std::string& name) const;
  void append(const std::string& name, std::string_view bytes) const;
  void cut(const std::string& name, std::int64_t bytes) const;
  /// Replaces what has that name in `to`, on the same file system; a link is replaced itself.
  void move(const std::string& name, const OpenFolder& to, const std::string& new_name) const;
  /// A file, a link or an empty folder; one that is missing is no error.
  void remove(const std::string& name) const;
  /// Waits until a file, or the list of names, is on the disk.
  void sync(const std::string& name) const;
  void sync() const;

 private:
  OpenFolder(std::filesystem::path path, int descriptor);
  int open_own(const char* what, const std::string& name, int flags) const;

  std::filesystem::path path_;
  std::shared_ptr<const Descriptor> folder_;
};

}  // namespace heed
