#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// Ends the refusal of a file that was changed or belongs elsewhere.
inline constexpr const char* unverified_hint = " (--unverified uses it all the same)";

/// What run.json says of a run, so that files of another run and files that were changed are noticed.
struct RunManifest {
  std::string task;      ///< "classify"
  std::string identity;  ///< 32 random hexadecimal digits, which trainer_state.json repeats
  /// Digests that config.json may have: one, or two while a resumed run replaces it.
  std::vector<std::string> config;
  std::map<std::string, std::string>
      files;  ///< name -> digest, of what belongs to the model beside its weights
  std::map<std::string, std::string> data;  ///< part of the data -> digest
  /// Of the run that this one started from: its "task", its "identity", the digest of its "weights"; empty: none.
  std::map<std::string, std::string> origin = {};
};

/// The text ends with a digest of itself.
std::string run_manifest_text(const RunManifest& manifest);
/// Throws an Error that names `source` for text that run_manifest_text did not write; with `verify` also for
/// text that was changed since.
RunManifest parse_run_manifest(std::string_view text, std::string_view source, bool verify = true);

/// True for a name that a run may give one of its own files: no folder, nothing hidden, none
/// of the names that every run has.
bool is_name_of_run_file(std::string_view name);

}  // namespace heed
