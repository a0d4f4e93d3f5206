#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/data/labelled_text.h"

namespace fs = std::filesystem;

namespace {

/// A folder for this process, emptied for each input and gone at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("heed_folders_fuzz_" + std::to_string(::getpid()));
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

// A folder made by the input: entries are divided by 0xFE, and each is a byte that says what it is, a name of
// two bytes (one of 16 classes, one of 256 documents) and content. It is an Error or texts, and never more
// than documents.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const FuzzInput input(data, size);
  fs::remove_all(folder.path);
  fs::create_directories(folder.path);
  std::size_t documents = 0;
  for (std::string_view rest = input.bytes; rest.size() >= 3 && documents < 32;) {
    const std::string_view entry = rest.substr(0, rest.find('\xfe'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.size() < 3) continue;
    const auto byte = [&](std::size_t i) {
      return static_cast<unsigned>(static_cast<unsigned char>(entry[i]));
    };
    const fs::path group = folder.path / ("class " + std::to_string(byte(1) % 16));
    const fs::path document =
        group /
        std::string(1, static_cast<char>(byte(2) == 0 || byte(2) == '/' || byte(2) == '.' ? 'x' : byte(2)));
    std::error_code taken;  // what an earlier entry made stays
    fs::create_directory(group, taken);
    ++documents;
    if (byte(0) % 64 == 1) {
      fs::create_directory(document, taken);
    } else if (byte(0) % 64 == 2) {
      ::mkfifo(document.c_str(), 0600);
    } else if (byte(0) % 64 == 3) {
      fs::create_symlink("nowhere", document, taken);
    } else if (byte(0) % 64 == 4) {
      if (!fs::exists(folder.path / "beside")) std::ofstream(folder.path / "beside") << "text";
    } else if (!fs::exists(fs::symlink_status(document))) {
      std::ofstream(document, std::ios::binary) << entry.substr(3);
    }
  }
  try {
    const auto text = heed::read_labelled_text(folder.path, {.text = input.text_options()});
    require(text.size() > 0 && text.size() <= documents);
  } catch (const heed::Error&) {
  }
  return 0;
}
