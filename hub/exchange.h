#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/data/safetensors.h"
#include "heed/tasks/run.h"

// Published models become runs, and runs published models.

namespace heed {

/// What is worth telling of an import or export.
struct ExchangeReport {
  std::string architecture;  ///< "GPT-2"
  std::string task;          ///< of the run
  std::int64_t parameters = 0;
  std::vector<std::string> remarks = {};
};

/// Makes a run of a published model: its settings, tokenizer and weights, as if it had been trained here. The run answers,
/// and others start from it (training.from); it has no state of an optimizer to go on with. Throws an Error that names
/// what is missing, unknown or of another shape, and when `out` holds anything.
ExchangeReport import_run(const std::filesystem::path& folder, const std::filesystem::path& out);

/// Writes a run in the published layout that fits its task: its best weights where it has measured itself, low-rank parts
/// merged. Throws an Error that lists the settings which the layout does not have, and when `out` holds anything.
ExchangeReport export_run(const std::filesystem::path& run, const std::filesystem::path& out,
                          StoredFloat stored = StoredFloat::f32);
/// Writes a run that writes a text for a text as a model of CTranslate2, likewise; in f32, which CTranslate2 converts when
/// it loads a model.
ExchangeReport export_ctranslate2(const std::filesystem::path& run, const std::filesystem::path& out);

/// The names that published weights and heed's have for a model in the layout that fits the run, for tests: `ours` may be
/// the run's weights or their gradients.
std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours);

}  // namespace heed
