#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heed/data/safetensors.h"
#include "heed/tasks/run.h"

namespace heed {

/// A published model as Hugging Face's `transformers` keeps it in a folder.
struct PublishedModel {
  std::string config;                 ///< the text of config.json, a JSON object
  std::string tokenizer;              ///< the text of tokenizer.json, of sources where targets have another
  std::string target_tokenizer = {};  ///< likewise; "": they have the same
  std::map<std::string, Tensor> tensors;               ///< by their published names; 16-bit floats became f32
  std::map<std::string, std::string> more_files = {};  ///< when written: other small files, name -> text
  std::vector<std::string> remarks = {};               ///< when read: what is worth telling
};

/// Reads config.json, model.safetensors or the files that model.safetensors.index.json names, and
/// tokenizer.json, or Marian's source.spm, target.spm and vocab.json in its place. Throws an Error that names
/// the file and what is wrong; where there are weights of PyTorch alone, or no tokenizer, it gives the line
/// of Python that makes the missing file.
PublishedModel read_published(const std::filesystem::path& folder);

/// Writes such a folder. Throws an Error when it exists and holds anything.
void write_published(const std::filesystem::path& folder, const PublishedModel& model, StoredFloat stored);

// Published models become runs, and runs published models.

/// What is worth telling of an import or export.
struct ExchangeReport {
  std::string architecture;  ///< "GPT-2"
  std::string task;          ///< of the run
  std::int64_t parameters = 0;
  std::vector<std::string> remarks = {};
};

/// Makes a run of a published model: its settings, tokenizer and weights, as if it had been trained here. The
/// run answers, and others start from it (training.from); it has no state of an optimizer to go on with.
/// Throws an Error that names what is missing, unknown or of another shape, and when `out` holds anything.
ExchangeReport import_run(const std::filesystem::path& folder, const std::filesystem::path& out);

/// Writes a run in the published layout that fits its task: its best weights where it has measured itself,
/// low-rank parts merged. Throws an Error that lists the settings which the layout does not have, and when
/// `out` holds anything.
ExchangeReport export_run(const std::filesystem::path& run, const std::filesystem::path& out,
                          StoredFloat stored = StoredFloat::f32);
/// Writes a run that writes a text for a text as a model of CTranslate2, likewise; in f32, which CTranslate2
/// converts when it loads a model.
ExchangeReport export_ctranslate2(const std::filesystem::path& run, const std::filesystem::path& out);

/// The names that published weights and heed's have for a model in the layout that fits the run, for tests:
/// `ours` may be the run's weights or their gradients.
std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours);

}  // namespace heed
