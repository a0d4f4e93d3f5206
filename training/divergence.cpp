#include "heed/training/divergence.h"

#include <algorithm>
#include <cmath>

#include "heed/core/error.h"

namespace heed {
namespace {

constexpr double far_above = 4;      // times the first loss
constexpr double above = 1.5;        // likewise: more than batches differ by
constexpr double beyond_all = 1000;  // likewise

}  // namespace

std::optional<double> loss_of(const Evaluation& evaluation) {
  for (const Metric& metric : evaluation.metrics)
    if (metric.name == "loss") return metric.value;
  return std::nullopt;
}

bool is_far_above(double loss, double first_loss) {
  return first_loss > 0 && loss > far_above * first_loss;
}

bool has_diverged(const Evaluation& evaluation, std::optional<double> first_loss) {
  if (std::ranges::any_of(evaluation.metrics, [](const Metric& metric) { return std::isinf(metric.value); }))
    return true;
  const std::optional<double> loss = loss_of(evaluation);
  return loss && first_loss && *first_loss > 0 && *loss > beyond_all * *first_loss &&
         std::isinf(std::exp(*loss));
}

std::string remark_on_best(const BestEvaluation& best, double first_loss) {
  const double limit = best.chosen_by_loss ? above : far_above;
  if (!(first_loss > 0 && best.loss > limit * first_loss)) return {};
  return concat_text("the best weights, of step ", best.step, ", have a loss of ", best.loss,
                     " on the validation data, and it was ", first_loss,
                     " in training before the first step: training has made the model worse; try a lower"
                     " learning_rate, more warmup_steps or a clip_norm");
}

}  // namespace heed
