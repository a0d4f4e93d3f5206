#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "heed/models/module.h"
#include "heed/training/run_folder.h"

namespace heed {

struct TrainerState;

/// A run that is read, not trained; it may have been killed, or be training at this
/// moment. Nothing is changed.
class RunFiles {
 public:
  /// Throws an Error when there is no run, when an older version of heed made it, or when its configuration
  /// was changed. Without `verify` whatever can be read is read, here and by all that follows.
  static RunFiles open(const std::filesystem::path& run, bool verify = true);

  const std::filesystem::path& path() const { return path_; }
  const std::string& task() const { return manifest_.task; }
  /// The text of config.json.
  const std::string& config() const { return config_; }
  const std::string& identity() const { return manifest_.identity; }
  /// What it began from, as in RunManifest; empty where it began from chance.
  const std::map<std::string, std::string>& origin() const { return manifest_.origin; }
  /// A file that the run started with, such as "tokenizer.json".
  std::string text(std::string_view name) const;
  /// "" where none was recorded.
  std::string data_digest(std::string_view part) const;
  /// False until the first checkpoint is written: training goes on from its start.
  bool has_checkpoint() const;
  /// An evaluation chose best weights (or, where nothing was evaluated, weights were averaged).
  bool has_best() const;
  /// Fills a model with the "best" or the "last" weights. Throws an Error, with what to do, when the run has
  /// no such weights, when they are missing, or when they are not those that the run wrote.
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
