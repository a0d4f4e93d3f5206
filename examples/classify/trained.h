#pragma once

#include <filesystem>
#include <memory>

#include "../common/trained_run.h"
#include "settings.h"

namespace heed::programs {

/// Writes and reads the names of the classes: a JSON list, in the order of the model's outputs.
void save_classes(const std::filesystem::path& path, const std::vector<std::string>& classes);
std::vector<std::string> load_classes(const std::filesystem::path& path);

/// The flags of commands that classify with a run.
struct ClassifierFlags {
  explicit ClassifierFlags(CLI::App& command);
  RunFlags run;
};

/// A trained model with everything that belongs to it.
struct Trained {
  Settings settings;
  std::vector<std::string> classes;
  std::unique_ptr<EncoderClassifier> model;
  TextEncoder encode;
  std::int64_t batch_size;
};

/// Opens the run of the flags: its configuration with the flags laid over it, its tokenizer, classes and
/// weights.
Trained open_run(const ClassifierFlags& flags);

}  // namespace heed::programs
