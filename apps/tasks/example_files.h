#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/learner.h"
#include "heed/base/file.h"

// Examples in memory (apps/tasks/data.h) as files that tasks read.

namespace heed {

/// Stands for the folder of the run in the settings of "data" in its config.json.
inline constexpr std::string_view data_of_run = "<run>";
/// Settings of "data" that name a file in the folder `from` name that file in `to`.
void move_data(Settings& settings, const std::filesystem::path& from, const std::filesystem::path& to);

/// Examples in memory as files in a temporary folder, in the layout that the task reads.
class ExampleFiles {
 public:
  /// Throws an Error that names part, column and row for what the task cannot learn from: another number of
  /// columns, columns of different lengths, none at all, a text that is not UTF-8 or holds a NUL.
  ExampleFiles(const TaskKind& kind, std::span<const Examples> examples);

  const std::filesystem::path& folder() const { return folder_.path(); }
  /// Names and contents: "train.jsonl".
  const std::map<std::string, std::string>& files() const { return files_; }
  std::string path_of(const Examples& examples) const;
  /// Makes the settings name the files. Throws a SettingsError where they already name files or their layout,
  /// and when there is nothing to learn from.
  void name_in(Settings& settings) const;

 private:
  const ExampleTable& table_of(const std::string& part) const;
  std::string name_of(const std::string& part) const;

  const TaskKind& kind_;
  std::vector<std::string> parts_;
  std::map<std::string, std::string> files_;
  TemporaryFolder folder_{"heed-examples"};
};

}  // namespace heed
