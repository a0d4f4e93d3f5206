#include "heed/tasks/folds.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/core/file.h"
#include "heed/core/open_folder.h"
#include "heed/tasks/data.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string name_of_fold(std::int64_t fold) {
  return "fold-" + std::to_string(fold);
}

/// The metrics that all folds have, over the folds.
std::string summary(const std::vector<Measurement>& folds) {
  Json means, deviations, each = Json::array();
  const auto count = static_cast<double>(folds.size());
  for (const Metric& metric : folds.front().metrics) {
    std::vector<double> values;
    for (const Measurement& fold : folds)
      for (const Metric& one : fold.metrics)
        if (one.name == metric.name) values.push_back(one.value);
    if (values.size() < folds.size()) continue;
    double mean = 0, squares = 0;
    for (const double value : values) mean += value / count;
    for (const double value : values) squares += (value - mean) * (value - mean);
    means[metric.name] = rounded(mean);
    deviations[metric.name] = rounded(std::sqrt(squares / (count - 1)));
  }
  for (const Measurement& fold : folds) {
    Json& one = each.emplace_back(Json::object());
    for (const Metric& metric : fold.metrics) one[metric.name] = rounded(metric.value);
  }
  means["deviation"] = std::move(deviations);
  means["folds"] = std::move(each);
  return means.dump();
}

}  // namespace

FoldsResult train_folds(const TaskKind& kind, const Settings& settings, const TrainRequest& request) {
  const auto folds = settings.get<std::int64_t>("data.folds");
  const bool is_first = !request.ranks || request.ranks->is_first();
  if (is_first && !request.resume) RunFolder::check_new(request.folder);
  check(!request.resume || !path_exists(request.folder / "config.json"), "cannot resume: ", request.folder,
        " holds one run and no folds: leave out --folds (data.folds) to go on with it, or choose another "
        "folder");
  std::vector<Measurement> measured;
  for (std::int64_t fold = 1; fold <= folds; ++fold) {
    if (is_first && request.callbacks.message)
      request.callbacks.message(concat_text("fold ", fold, " of ", folds));
    Settings its_settings = settings;
    its_settings.set("data.fold", std::to_string(fold), "data.folds");
    TrainRequest its_request = request;
    its_request.folder = request.folder / name_of_fold(fold);
    if (is_first && path_exists(request.folder)) OpenFolder(request.folder).find_folder(name_of_fold(fold));
    its_request.resume = request.resume && path_exists(its_request.folder / "config.json");
    if (!train_run(kind, its_settings, its_request).finished) return {};
    if (!is_first) continue;  // rank 0 has the run
    RunOptions options;
    options.device = settings.get<std::string>("device");
    options.verify = request.verify;
    options.kind = &kind;
    measured.push_back(Run::open(its_request.folder, options).measure("test"));
    if (request.callbacks.message)
      request.callbacks.message(concat_text("fold ", fold, ": ", measured.back().json));
  }
  return {true, measured.empty() ? std::string() : summary(measured)};
}

fs::path folder_of_settings(const fs::path& folder) {
  const fs::path first = folder / name_of_fold(1);
  return path_exists(first / "config.json") && !path_exists(folder / "config.json") ? first : folder;
}

}  // namespace heed
