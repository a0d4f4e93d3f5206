#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/hub/architecture.h"

namespace heed {

/// Writes the folder that CTranslate2 (4.x, https://github.com/OpenNMT/CTranslate2) reads: model.bin, config.json and
/// shared_vocabulary.json. `run`: an encoder-decoder; `tokens`: its vocabulary by id. Throws an Error that lists the settings
/// which CTranslate2's Transformer does not have, and when the folder holds anything.
void write_ctranslate2(const std::filesystem::path& folder, RunContent run,
                       const std::vector<std::string>& tokens, const std::string& unknown);

}  // namespace heed
