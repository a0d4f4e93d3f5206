#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// How the learning rate goes on after the warm-up. constant: stays. linear: falls on a straight line to
/// `final_rate`. cosine: falls on half a cosine to `final_rate` (arXiv 1608.03983). inverse_sqrt: peak
/// sqrt(warm-up / step) (Vaswani et al. 2017, section 5.3).
enum class ScheduleKind { constant, linear, cosine, inverse_sqrt };

/// "constant", "linear", "cosine", "inverse_sqrt".
std::vector<std::string> schedule_names();
/// Throws an Error that lists the names for one that is not among them.
ScheduleKind schedule_kind(std::string_view name);
std::string_view name_of(ScheduleKind kind);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  double learning_rate = 1e-3;  ///< the peak
  /// The rate rises on a straight line from 0 and reaches the peak at this step.
  std::int64_t warmup_steps = 0;
  double final_rate = 0;  ///< at the last step of linear and cosine
};

/// The learning rate of step 1, 2, ..., `steps`. Throws for options out of range.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step, std::int64_t steps);

}  // namespace heed
