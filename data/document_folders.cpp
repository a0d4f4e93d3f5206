#include "heed/data/document_folders.h"

#include <algorithm>

#include "heed/core/error.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  check(!error, folder.string(), ": the folder cannot be read: ", error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string read_document(const fs::path& path, Encoding encoding) {
  check(!fs::is_directory(path), path.string(), ": expected a document, but this is a folder");
  std::string text;
  for (const std::string& line : read_lines(path, encoding)) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

LabelledText read_document_folders(const fs::path& path, Encoding encoding) {
  LabelledText text;
  for (const fs::path& folder : sorted_entries(path)) {
    check(fs::is_directory(folder), folder.string(),
          ": expected one folder for each class, but this is a file");
    const std::vector<fs::path> documents = sorted_entries(folder);
    check(!documents.empty(), folder.string(), ": the class has no documents");
    for (const fs::path& document : documents)
      text.add(read_document(document, encoding), folder.filename().string(), document.string());
  }
  check(text.size() > 0, path.string(), ": there are no folders of documents in it");
  return text;
}

}  // namespace heed
