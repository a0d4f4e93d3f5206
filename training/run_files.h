#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "heed/models/module.h"
#include "heed/training/run_folder.h"

namespace heed {

struct TrainerState;

/// Read-only access to a run, which may have been killed or may be training right now.
class RunFiles {
 public:
  /// Throws an Error if there is no run, if an older version of heed made it, or if its configuration was
  /// changed. Without `verify`, this and all later calls read whatever can be read.
  static RunFiles open(const std::filesystem::path& run, bool verify = true);

  const std::filesystem::path& path() const { return path_; }
  const std::string& task() const { return manifest_.task; }
  /// The text of config.json.
  const std::string& config() const { return config_; }
  const std::string& identity() const { return manifest_.identity; }
  /// The run it started from, as in RunManifest; empty if it started from random weights.
  const std::map<std::string, std::string>& origin() const { return manifest_.origin; }
  /// One of the run's initial files, such as "tokenizer.json".
  std::string text(std::string_view name) const;
  /// "" if none was recorded.
  std::string data_digest(std::string_view part) const;
  /// False until the first checkpoint is written; until then, training resumes from the beginning.
  bool has_checkpoint() const;
  /// Whether an evaluation chose best weights (or, without evaluations, weights were averaged).
  bool has_best() const;
  /// Loads the "best" or the "last" weights into a model. Throws an Error that says what to do if the run
  /// has no such weights, if their file is missing, or if it is not the one that the run wrote.
  void load_weights(Module& model, std::string_view which) const;
  /// The same weights by name, for a model of another kind.
  struct Weights {
    std::map<std::string, Tensor> tensors;
    std::string digest;  ///< of their file
  };
  Weights weights(std::string_view which) const;

 private:
  TrainerState state_in(const std::string& text) const;

  std::filesystem::path path_;
  bool verify_ = true;
  std::string config_;
  RunManifest manifest_;
};

}  // namespace heed
