#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/task.h"
#include "heed/base/file.h"

// Examples in memory (apps/tasks/data.h), as files that tasks read.

namespace heed {

/// The placeholder for the run's folder in the "data" settings of its config.json.
inline constexpr std::string_view data_of_run = "<run>";
/// Changes "data" settings that name a file in the folder `from` to name the same file in `to`.
void rebase_data_paths(Settings& settings, const std::filesystem::path& from,
                       const std::filesystem::path& to);

/// Sets the layout of examples in memory for a table with the task's required columns, whatever the
/// layout of the run's own files.
Settings example_layout(const TaskEntry& entry, Settings settings);

/// Examples from memory, written to files in a temporary folder in the layout that the task reads.
class ExampleFiles {
 public:
  /// Throws an Error naming part, column and row for invalid examples: a wrong number of columns,
  /// columns of different lengths, no rows, or a text that is not UTF-8 or contains a NUL.
  ExampleFiles(const TaskEntry& entry, std::span<const Examples> examples);

  const std::filesystem::path& folder() const { return folder_.path(); }
  /// Names and contents: "train.jsonl".
  const std::map<std::string, std::string>& files() const { return files_; }
  std::string path_of(const Examples& examples) const;
  /// Sets the "data" settings to these files. Throws a SettingsError if the settings already name
  /// files or their layout, and if there are no training examples.
  void set_paths(Settings& settings) const;

 private:
  const ExampleTable& find_table(const std::string& part) const;
  std::string name_of(const std::string& part) const;

  const TaskEntry& entry_;
  std::vector<std::string> parts_;
  std::map<std::string, std::string> files_;
  std::size_t train_columns_ = 0;
  TemporaryFolder folder_{"heed-examples"};
};

}  // namespace heed
