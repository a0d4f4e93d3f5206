#include "heed/training/run_files.h"

#include <algorithm>
#include <system_error>

#include "heed/core/digest.h"
#include "heed/core/file.h"
#include "heed/training/checkpoint.h"
#include "heed/training/model_file.h"
#include "heed/training/run_folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

constexpr const char* unverified = " (--unverified uses it all the same)";

/// Calls `read` again when it fails: a file of a run that trains may move between being found and being read,
/// and a new checkpoint may come between the files of the old one. `changed` tells whether that can be.
template <class Read, class Changed>
auto read_while_training(const Read& read, const Changed& changed) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    try {
      return read();
    } catch (const Error&) {
      if (!changed()) throw;
    }
  }
  return read();
}

std::string trainer_state_of(const fs::path& run) {
  int attempts = 0;
  return read_while_training([&] { return read_file(run_file(run, "trainer_state.json")); },
                             [&] { return path_exists(run / "trainer_state.json") && ++attempts < 5; });
}

}  // namespace

RunFiles RunFiles::open(const fs::path& run, bool verify) {
  std::error_code unreadable;
  check(!path_exists(run) || fs::is_directory(run, unreadable), "there is no run in ", run,
        ": it is a file, and a run is a folder");
  check(path_exists(run / "config.json"), "there is no run in ", run,
        path_exists(run) ? ": it has no config.json" : ": there is no such folder");
  check(path_exists(run / "run.json"), "the run in ", run,
        " was made by an older version of heed, which kept no run.json, or has lost it; use that version, or"
        " train it again");
  RunFiles files;
  files.path_ = run;
  files.verify_ = verify;
  // In this order, since a run that is resumed announces a new configuration before it writes it.
  files.config_ = read_file(run / "config.json");
  files.manifest_ = parse_run_manifest(read_file(run / "run.json"), (run / "run.json").string());
  const std::vector<std::string>& known = files.manifest_.config;
  check(!verify || std::count(known.begin(), known.end(), digest_of(files.config_)) > 0, run / "config.json",
        " was changed after it was written", unverified);
  return files;
}

std::string RunFiles::text(std::string_view name) const {
  const auto known = manifest_.files.find(std::string(name));
  check(known != manifest_.files.end(), "the ", task(), " run in ", path_, " has no ", name);
  std::string content = read_file(path_ / name);
  check(!verify_ || digest_of(content) == known->second, path_ / name, " was changed after it was written",
        unverified);
  return content;
}

std::string RunFiles::data_digest(std::string_view part) const {
  const auto known = manifest_.data.find(std::string(part));
  return known == manifest_.data.end() ? "" : known->second;
}

bool RunFiles::has_best() const {
  if (!path_exists(path_ / "trainer_state.json") && !path_exists(path_ / "checkpoint.new")) return false;
  const TrainerState state =
      parse_trainer_state(trainer_state_of(path_), (path_ / "trainer_state.json").string(), verify_);
  return state.files.contains("best.safetensors");
}

void RunFiles::load_weights(Module& model, std::string_view which) const {
  check(which == "best" || which == "last", "a run has no \"", which, "\" weights; choose best or last");
  const std::string name = which == "best" ? "best.safetensors" : "model.safetensors";
  std::string state_text;
  const TensorFile file = read_while_training(
      [&] {
        state_text = trainer_state_of(path_);
        const TrainerState state =
            parse_trainer_state(state_text, (path_ / "trainer_state.json").string(), verify_);
        check(!verify_ || state.identity == identity(), path_ / "trainer_state.json",
              " belongs to another run", unverified);
        check(which == "last" || state.files.contains(name), "the run in ", path_,
              " has chosen no best weights yet; load the last ones (--weights last)");
        const bool is_new = path_exists(path_ / "checkpoint.new" / name);
        const fs::path path = is_new ? path_ / "checkpoint.new" / name : path_ / name;
        check(path_exists(path), path, " is missing, but the run has written it in step ",
              state.files.contains(name) ? state.files.at(name).step : state.step,
              which == "best" ? "; put it back, or load the last weights (--weights last)" : "; put it back");
        return read_saved_file(path, state, verify_);
      },
      [&] { return trainer_state_of(path_) != state_text; });
  load_model_state(model, file.tensors, (path_ / name).string());
}

}  // namespace heed
