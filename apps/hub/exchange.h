#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/run.h"
#include "heed/data/safetensors.h"

namespace heed {

// Imports published models as runs, and exports runs as published models.

/// What an import or export has to report.
struct ExchangeReport {
  std::string architecture;  ///< "GPT-2"
  std::string task;          ///< of the run
  std::int64_t parameters = 0;
  std::vector<std::string> remarks = {};
};

/// Turns a published model, as Hugging Face's `transformers` keeps it in a folder, into a run with its
/// settings, tokenizer and weights. The run answers, and others can start from it (training.from); it cannot
/// be resumed, because there is no optimizer state. The folder holds config.json, model.safetensors or the
/// files that model.safetensors.index.json lists, and tokenizer.json, or Marian's source.spm, target.spm and
/// vocab.json. Throws an Error that names what is missing, unknown or of the wrong shape, and when `out` is
/// not empty; where only PyTorch's weights exist, or no tokenizer, it gives the line of Python that makes the
/// missing file.
ExchangeReport import_run(const std::filesystem::path& folder, const std::filesystem::path& out);

/// From now on Run::open(), training.from and all else that opens a run take a published folder, too, as
/// import_run() would make a run of it, without writing one. What starts from it records the digests of what
/// it read. heed's programs and its C API call it; a program of one's own does at its beginning.
void read_published_runs();

/// Writes a run in the published layout of its task: the best weights if it was evaluated while it trained,
/// with low-rank parts merged. Throws an Error that lists the settings that the layout does not have, and
/// when `out` is not empty.
ExchangeReport export_run(const std::filesystem::path& run, const std::filesystem::path& out,
                          StoredFloat stored = StoredFloat::f32);

/// `ours`, the weights of a run or their gradients, in the published layout that fits the run; for tests.
std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours);

}  // namespace heed
