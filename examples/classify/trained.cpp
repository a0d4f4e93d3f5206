#include "trained.h"

#include <algorithm>

#include "../common/runtime.h"
#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/core/nesting_limit.h"
#include "heed/training/run_folder.h"

namespace heed::programs {

void save_classes(const std::filesystem::path& path, const std::vector<std::string>& classes) {
  write_file_atomically(path, Json(classes).dump(2) + "\n");
}

std::vector<std::string> load_classes(const std::filesystem::path& path) {
  const Json names =
      Json::parse(read_file(path), nesting_limit(2, path.string()), /*allow_exceptions=*/false);
  check(names.is_array() && names.size() >= 2 &&
            std::all_of(names.begin(), names.end(), [](const Json& name) { return name.is_string(); }),
        path.string(), ": expected a list of the names of at least two classes");
  return names.get<std::vector<std::string>>();
}

ClassifierFlags::ClassifierFlags(CLI::App& command) : run(command) {
  run.settings.integer("--batch-size", "prediction.batch_size", "Texts that are read at a time");
}

Trained open_run(const ClassifierFlags& flags) {
  Settings settings = run_settings(classification_defaults(DataKind::files), flags.run);
  const Device device = apply_runtime(settings);
  Tokenizer tokenizer = run_tokenizer(flags.run);
  std::vector<std::string> classes = load_classes(run_file(flags.run.run, "classes.json"));
  auto model = make_classifier(settings, tokenizer.vocabulary_size(),
                               static_cast<std::int64_t>(classes.size()), device);
  load_run_weights(*model, flags.run);
  TextEncoder encode(std::move(tokenizer), settings);
  const std::int64_t batch_size = prediction_batch_size(settings);
  return {std::move(settings), std::move(classes), std::move(model), std::move(encode), batch_size};
}

}  // namespace heed::programs
