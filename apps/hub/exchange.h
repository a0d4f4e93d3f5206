#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/run.h"
#include "heed/text/safetensors.h"

namespace heed {

// Imports published models as runs, and exports runs as published models.

/// The report of an import or export.
struct ExchangeReport {
  std::string architecture;  ///< "GPT-2"
  std::string task;          ///< of the run
  std::int64_t parameters = 0;
  std::vector<std::string> remarks = {};
};

/// Converts a model folder of Hugging Face's `transformers` to a run with settings, tokenizer and
/// weights. The run can predict, and training can start from it (training.from); it cannot be
/// resumed, because it has no optimizer state.
///
/// The folder holds config.json, model.safetensors or the files listed in
/// model.safetensors.index.json, and tokenizer.json, or Marian's source.spm, target.spm and
/// vocab.json. Throws an Error naming what is missing, unknown or of the wrong shape, and if `out`
/// is not empty. If only PyTorch weights exist, or no tokenizer, the message contains a line of
/// Python that creates the missing file.
ExchangeReport import_run(const std::filesystem::path& folder, const std::filesystem::path& out);

/// Writes a run in the published layout of its task, with LoRA merged: the best weights if the run
/// was evaluated during training, otherwise the last. Throws an Error listing settings that the
/// layout does not support, and if `out` is not empty.
ExchangeReport export_run(const std::filesystem::path& run, const std::filesystem::path& out,
                          StoredFloat stored = StoredFloat::f32);

/// Returns the type that is called "f32", "f16" or "bf16". Throws a SettingsError for another name.
StoredFloat stored_float(const std::string& dtype);

/// Converts gradients of a run's weights to the published layout of the run; for tests.
std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours);

}  // namespace heed
