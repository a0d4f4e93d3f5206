#pragma once

#include <filesystem>
#include <string>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/data/safetensors.h"
#include "temporary_folder.h"

/// The bytes of a file of weights without the identity of its run, which is the one thing that two equal runs do
/// not share.
inline std::string weights_content(const std::filesystem::path& path) {
  heed::TensorFile file = heed::load_safetensors(path);
  heed::check(file.metadata.erase("run") == 1, path, " does not say of which run it is");
  const TemporaryFolder folder;
  heed::save_safetensors(folder / "x", file);
  return heed::read_file(folder / "x");
}
