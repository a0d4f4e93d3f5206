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

/// A folder held open by its descriptor. Writes go into this folder even if it was moved or its
/// path leads elsewhere by now. Symbolic links in it are refused, so a run from an untrusted source
/// cannot make a program touch files outside it.
///
/// A `name` is that of an entry, without "/". Every failure throws an Error with the path. Copies
/// share the open folder.
class OpenFolder {
 public:
  /// Opens the folder; the path itself may be a link.
  explicit OpenFolder(const std::filesystem::path& path);

  /// The path that it was opened by.
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const;
  /// Its current path; empty when no path leads to it any more.
  std::filesystem::path place() const;
  /// "" while path() still leads to it; otherwise its fate: "was moved to "/b"", or "was removed".
  std::string fate() const;

  /// Names of its entries, sorted.
  std::vector<std::string> names() const;
  /// True for an entry of any kind, links included.
  bool has(const std::string& name) const;
  bool has_file(const std::string& name) const;
  /// The subfolder of that name, if there is one. Throws when the entry is not a folder or is a
  /// link.
  std::optional<OpenFolder> find_folder(const std::string& name) const;
  /// Returns the subfolder of that name, creating it when missing.
  OpenFolder make_folder(const std::string& name) const;

  /// Throws unless the name is unused or names a regular file. All functions below require this.
  void check_regular_file(const std::string& name) const;
  std::string read(const std::string& name) const;
  void read_in_parts(const std::string& name, const std::function<void(std::string_view part)>& take) const;
  /// Replaces a file as write_file_atomically does.
  void write(const std::string& name, std::string_view content) const;
  void write(const std::string& name, const std::function<void(FileWriter&)>& write) const;
  /// Opens a file for appending, creating it when missing. The caller closes the descriptor.
  /// open_to_append() and cut() first copy a file that has other hard links (those of a copied
  /// run), which then keep their content.
  int open_to_append(const std::string& name) const;
  void append(const std::string& name, std::string_view bytes) const;
  void cut(const std::string& name, std::int64_t bytes) const;
  /// Moves the entry to `new_name` in `to`, on the same file system, replacing what is there; a
  /// link itself is replaced, not its target.
  void move(const std::string& name, const OpenFolder& to, const std::string& new_name) const;
  /// Removes a file, a link or an empty folder; a missing one is not an error.
  void remove(const std::string& name) const;
  /// Waits until a file, or the list of names, is on disk.
  void sync(const std::string& name) const;
  void sync() const;

 private:
  OpenFolder(std::filesystem::path path, int descriptor);
  void copy_if_linked(const std::string& name) const;
  int open_entry(const char* what, const std::string& name, int flags) const;

  std::filesystem::path path_;
  std::shared_ptr<const Descriptor> folder_;
};

}  // namespace heed
