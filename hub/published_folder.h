#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heed/data/safetensors.h"

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

/// Reads config.json, model.safetensors or the files that model.safetensors.index.json names, and tokenizer.json, or
/// Marian's source.spm, target.spm and vocab.json in its place. Throws an Error that names the file and what is wrong; where
/// there are weights of PyTorch alone, or no tokenizer, it gives the line of Python that makes the missing file.
PublishedModel read_published(const std::filesystem::path& folder);

/// Writes such a folder. Throws an Error when it exists and holds anything.
void write_published(const std::filesystem::path& folder, const PublishedModel& model, StoredFloat stored);

}  // namespace heed
