#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heed/apps/report/capture.h"
#include "heed/data/tokenizer.h"
#include "heed/models/module.h"

namespace heed {

/// What layers show in a pass that is given a context for inference; without gradients.
Capture captured(const std::function<void(Context&)>& pass);

/// Adds what one pass over `rows` left, with their tokens. Of two rows each is an example of its own:
/// "<example>-first" and "<example>-second".
void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer);

}  // namespace heed
