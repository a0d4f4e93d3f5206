#include "heed/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/core/name_table.h"

namespace heed {
namespace {

constexpr NameTable<ScheduleKind, 4> kinds{"schedule",
                                           {{{"constant", ScheduleKind::constant},
                                             {"linear", ScheduleKind::linear},
                                             {"cosine", ScheduleKind::cosine},
                                             {"inverse_sqrt", ScheduleKind::inverse_sqrt}}}};

void check_options(const ScheduleOptions& options, std::int64_t step) {
  check(options.learning_rate > 0 && std::isfinite(options.learning_rate), "schedule: the learning rate is ",
        options.learning_rate, "; it must be positive");
  check(options.warmup_steps >= 0, "schedule: warmup_steps is ", options.warmup_steps,
        "; it must not be negative");
  check(options.final_rate >= 0 && options.final_rate <= options.learning_rate, "schedule: final_rate is ",
        options.final_rate, "; it must be between 0 and the learning rate ", options.learning_rate);
  check(step >= 1, "schedule: steps count from 1, got ", step);
}

}  // namespace

std::vector<std::string> schedule_names() {
  return kinds.names();
}

ScheduleKind schedule_kind(std::string_view name) {
  return kinds.find(name);
}

std::string_view name_of(ScheduleKind kind) {
  return kinds.name_of(kind);
}

double learning_rate_at(const ScheduleOptions& options, std::int64_t step, std::int64_t steps) {
  check_options(options, step);
  const double peak = options.learning_rate;
  const double now = static_cast<double>(step), warmup = static_cast<double>(options.warmup_steps);
  if (now <= warmup) return peak * now / warmup;

  const double length = static_cast<double>(std::max<std::int64_t>(steps - options.warmup_steps, 1));
  const double done = std::min((now - warmup) / length, 1.0);
  switch (options.kind) {
    case ScheduleKind::constant:
      return peak;
    case ScheduleKind::linear:
      return peak + (options.final_rate - peak) * done;
    case ScheduleKind::cosine:
      return options.final_rate + (peak - options.final_rate) * 0.5 * (1 + std::cos(std::numbers::pi * done));
    case ScheduleKind::inverse_sqrt:
      return peak * std::sqrt(std::max(warmup, 1.0) / now);
  }
  fail("schedule: unknown kind");
}

}  // namespace heed
