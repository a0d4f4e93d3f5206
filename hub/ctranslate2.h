#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/hub/architecture.h"

namespace heed {

/// Writes the folder that CTranslate2 (4.x, https://github.com/OpenNMT/CTranslate2) reads: model.bin,
/// config.json and shared_vocabulary.json, or one file for sources and one for targets. `run`: an
/// encoder-decoder; `source`, `target`: its vocabularies by id, which may be the same. Throws an Error that
/// lists the settings which CTranslate2's Transformer does not have, and when the folder holds anything.
void write_ctranslate2(const std::filesystem::path& folder, RunContent run,
                       const std::vector<std::string>& source, const std::vector<std::string>& target,
                       const std::string& unknown);

}  // namespace heed
