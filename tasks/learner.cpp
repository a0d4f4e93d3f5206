#include "heed/tasks/learner.h"

namespace heed {

std::vector<std::string> Learner::take_remarks() {
  std::vector<std::string> taken;
  taken.swap(remarks_);
  return taken;
}

void Learner::remark_on_reading(const ReadReport& report) {
  if (report.replaced > 0)
    remark(concat_text(report.replaced, " bytes of the data were no characters and were replaced"));
  if (report.blank > 0) remark(concat_text(report.blank, " blank lines of the data were left out"));
}

std::vector<Metric> Learner::metrics(std::span<const double> values) const {
  check(values.size() == kind_.metrics.size(), kind_.name, " measures ", kind_.metrics.size(),
        " metrics, not ", values.size());
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < values.size(); ++i)
    metrics.push_back({std::string(kind_.metrics[i].name), values[i], kind_.metrics[i].larger_is_better});
  return metrics;
}

Evaluation Learner::evaluation(std::span<const double> values) const {
  return {metrics(values), settings_.get<std::string>("training.keep_best_by")};
}

}  // namespace heed
