#include "capture_file.h"

namespace heed::programs {

void add_capture_flag(CLI::App& command, std::string& path) {
  command
      .add_option("--capture", path,
                  "Writes the attention weights, cluster assignments and orders of every example to a "
                  "safetensors file; slow")
      ->type_name("FILE");
}

void CaptureFile::add(const std::string& example, const Capture& capture) {
  for (const Capture::Entry& entry : capture.entries)
    add(example + "." + entry.layer + "." + entry.name, entry.value);
}

void CaptureFile::add(const std::string& name, const Tensor& value) {
  std::string free = name;
  for (int i = 1; content_.tensors.contains(free); ++i) free = name + "." + std::to_string(i);
  content_.tensors.emplace(free, value);
}

void CaptureFile::save() const {
  save_safetensors(path_, content_);
}

}  // namespace heed::programs
