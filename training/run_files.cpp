#include "heed/training/run_files.h"

#include <algorithm>
#include <system_error>

#include "heed/base/digest.h"
#include "heed/base/file.h"
#include "heed/training/checkpoint.h"
#include "heed/training/model_file.h"
#include "heed/training/run_folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

/// Calls `read` again if it failed and files may have moved in the meantime.
template <class Read, class Moved>
auto read_while_training(const Read& read, const Moved& moved) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    try {
      return read();
    } catch (const Error&) {
      if (!moved()) throw;
    }
  }
  return read();
}

/// Where a file of a run is, and the state that belongs to it. While the run trains, a new checkpoint may
/// appear at any moment, and files may move after they were found.
struct Place {
  std::string state;
  fs::path file;
  friend bool operator==(const Place&, const Place&) = default;
};

Place place_of(const fs::path& run, const std::string& name) {
  fs::path found;
  const std::string state = read_while_training(
      [&] {
        found = run_file(run, "trainer_state.json");
        return read_file(found);
      },
      [&] { return !found.empty() && !path_exists(found); });
  const fs::path fresh = run / "checkpoint.new" / name;
  return {state, path_exists(fresh) ? fresh : run / name};
}

}  // namespace

RunFiles RunFiles::open(const fs::path& run, bool verify) {
  std::error_code unreadable;
  check(!path_exists(run) || fs::is_directory(run, unreadable), "there is no run in ", run,
        ": it is a file, and a run is a folder");
  check(path_exists(run / "config.json"), "there is no run in ", run,
        !path_exists(run) ? ": there is no such folder"
        : path_exists(run / "run.json")
            ? ": it ended before its config.json was written; train it without --resume"
            : ": it has no config.json");
  check(path_exists(run / "run.json"), "the run in ", run,
        " was made by an older version of heed, which kept no run.json, or has lost it; use that version, or"
        " train it again");
  RunFiles files;
  files.path_ = run;
  files.verify_ = verify;
  // In this order: a run that resumes may write a new configuration between the two reads.
  files.config_ = read_file(run / "config.json");
  files.manifest_ = parse_run_manifest(read_file(run / "run.json"), (run / "run.json").string(), verify);
  const std::vector<std::string>& known = files.manifest_.config;
  check(!verify || std::count(known.begin(), known.end(), digest_of(files.config_)) > 0, run / "config.json",
        " was changed after it was written", unverified_hint);
  return files;
}

std::string RunFiles::text(std::string_view name) const {
  const auto known = manifest_.files.find(std::string(name));
  check(known != manifest_.files.end(), "the ", task(), " run in ", path_, " has no ", name);
  std::string content = read_file(path_ / name);
  check(!verify_ || digest_of(content) == known->second, path_ / name, " was changed after it was written",
        unverified_hint);
  return content;
}

std::string RunFiles::data_digest(std::string_view part) const {
  const auto known = manifest_.data.find(std::string(part));
  return known == manifest_.data.end() ? "" : known->second;
}

TrainerState RunFiles::state_in(const std::string& text) const {
  const fs::path path = path_ / "trainer_state.json";
  TrainerState state = parse_trainer_state(text, path.string(), verify_);
  check(!verify_ || state.identity == identity(), path, " belongs to another run", unverified_hint);
  return state;
}

bool RunFiles::has_checkpoint() const {
  return path_exists(path_ / "trainer_state.json") || path_exists(path_ / "checkpoint.new");
}

bool RunFiles::has_best() const {
  if (!has_checkpoint()) return false;
  const TrainerState state = state_in(place_of(path_, "trainer_state.json").state);
  return state.files.contains("best.safetensors");
}

RunFiles::Weights RunFiles::weights(std::string_view which) const {
  check(which == "best" || which == "last", "a run has no \"", which, "\" weights; choose best or last");
  const std::string name = which == "best" ? "best.safetensors" : "model.safetensors";
  Place place;
  Weights weights;
  read_while_training(
      [&] {
        place = place_of(path_, name);
        const TrainerState state = state_in(place.state);
        check(which == "last" || state.files.contains(name), "the run in ", path_,
              " has chosen no best weights yet; load the last ones (--weights last)");
        check(path_exists(place.file), place.file, " is missing, but the run has written it in step ",
              state.files.contains(name) ? state.files.at(name).step : state.step,
              which == "best" ? "; put it back, or load the last weights (--weights last)" : "; put it back");
        weights.tensors = read_saved_file(place.file, state, verify_).tensors;
        if (state.files.contains(name)) weights.digest = state.files.at(name).digest;
      },
      [&] { return place_of(path_, name) != place; });
  return weights;
}

void RunFiles::load_weights(Module& model, std::string_view which) const {
  const fs::path file = path_ / (which == "best" ? "best.safetensors" : "model.safetensors");
  load_model_state(model, weights(which).tensors, file.string());
}

}  // namespace heed
