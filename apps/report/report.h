#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/progress.h"
#include "heed/training/run_folder.h"

// Pages about runs, comparisons and captures. A page is JSON, which is embedded in one offline file
// of HTML together with the script that draws it (page/report.js):
//
//   {"title": "mine", "task": "classify", "sections": [{"title": "Curves", "curves": [...]}, ...]}
//
// Each member of a section but its title is drawn by the function of that name in the script's
// `blocks`. This header is for heed's own sources: it is not installed.

namespace heed {
class CaptureFile;
struct DrawingOptions;
}  // namespace heed

namespace heed::page {

using Json = nlohmann::ordered_json;

/// Rounds a value to six significant digits.
double rounded(double value);

/// Returns a page as HTML. With a `nonce`, its scripts carry it, for a server's
/// Content-Security-Policy.
std::string html(const Json& page, std::string_view nonce = {});

/// The records of a run, with a name to tell it from other runs.
struct RunRecords {
  std::string name;
  std::vector<Progress> records;
};

/// Returns "curves": loss and its parts, metrics, learning rate, gradient norm, throughput and
/// memory of each run. For a long run, only the records with the lowest and highest value of each
/// interval are kept.
Json curves(std::span<const RunRecords> runs);
/// Returns "summary": the progress of a run and its best evaluation; empty without records.
Json summary(std::span<const Progress> records);
/// Returns a line of input for display: an image (apps/data/formats.h), or the first 600 bytes of its text.
Json line(std::string_view line);
/// Returns "examples" of a capture, for maps() and strips() in the script; null if there is nothing
/// to draw.
Json examples(const CaptureFile& capture, const DrawingOptions& options);
/// Writes report.html into a run during training, from its records and settings
/// (TrainerCallbacks::report).
void write_while_training(const RunFolder& run, std::span<const Progress> records);

}  // namespace heed::page
