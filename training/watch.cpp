#include "heed/training/watch.h"

#include <algorithm>
#include <cmath>

#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/core/device.h"
#include "heed/training/run_folder.h"

namespace heed {
namespace {

// Limits for remarks: loose, so that ordinary training never triggers them. A loss is compared with that of
// the first step, which is the loss of the untrained model.
constexpr double far_above = 4;            // times the first loss
constexpr double well_above = 1.5;         // likewise: beyond the variation between batches
constexpr double beyond_all = 1000;        // likewise
constexpr double dwarfing_auxiliary = 10;  // times the task's loss
constexpr double dwarfing_norm = 100;      // likewise
constexpr int records_in_a_row = 3;

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Returns the metric "loss", a mean like the training loss, if the evaluation has one.
std::optional<double> loss_in(const Evaluation& evaluation) {
  const auto found = std::ranges::find(evaluation.metrics, "loss", &Metric::name);
  return found == evaluation.metrics.end() ? std::nullopt : std::optional(found->value);
}

bool is_far_above(double loss, double first_loss) {
  return first_loss > 0 && loss > far_above * first_loss;
}

bool is_better(const Metric& metric, double other) {
  return metric.larger_is_better ? metric.value > other : metric.value < other;
}

/// Whether the weights are useless even if the deciding metric, such as an accuracy, is still finite: some
/// metric is not, or the loss is over a thousand times that of the first step and its exponential overflows.
bool has_diverged(const Evaluation& evaluation, std::optional<double> first_loss) {
  if (first_not_finite(evaluation.metrics) != nullptr) return true;
  const std::optional<double> loss = loss_in(evaluation);
  return loss && first_loss && *first_loss > 0 && *loss > beyond_all * *first_loss &&
         std::isinf(std::exp(*loss));
}

}  // namespace

TrainingWatch::TrainingWatch(const TrainerOptions& options, TrainerCallbacks callbacks, TrainerState& state,
                             std::int64_t steps, std::string unit, Device device)
    : options_(options),
      callbacks_(std::move(callbacks)),
      state_(state),
      steps_(steps),
      unit_(std::move(unit)),
      device_(device),
      evaluates_(options.evaluate_every > 0) {}

void TrainingWatch::open(RunFolder* folder, std::int64_t batches) {
  const auto remark = [this](std::string_view text) { say(text); };
  folder_ = folder;
  if (folder) metrics_ = std::make_unique<MetricsLog>(folder->folder(), state_.metrics_bytes, remark);
  if (folder && options_.tensorboard)
    tensorboard_ =
        std::make_unique<TensorBoardLog>(folder->folder(), state_.step, metrics_->records(), remark);
  session_ = Session{};
  session_.first_step = state_.step;
  session_.earlier_tokens = state_.tokens_since_record;
  session_.earlier_seconds = state_.elapsed_seconds;
  session_.skipped_said = state_.loss_scale.skipped;
  warn_ineffective_options(batches);
}

void TrainingWatch::warn_ineffective_options(std::int64_t batches) const {
  // The first evaluation is always a better one, and one at the end stops nothing.
  if (options_.patience > 0 && options_.patience >= (steps_ - 1) / options_.evaluate_every)
    say(concat_text("patience is ", options_.patience, ", but evaluations of every ", options_.evaluate_every,
                    " steps cannot stop a training of ", steps_,
                    " early; give a smaller training.evaluate_every or training.patience, or more steps"));
  const ScheduleOptions& schedule = options_.schedule;
  if (!options_.learning_rate && schedule.warmup_steps > steps_)
    say(concat_text("the learning rate rises for ", schedule.warmup_steps, " steps, but training has ",
                    steps_, ", so it never reaches ", schedule.learning_rate,
                    "; give a smaller training.schedule.warmup_steps, or more steps"));
  if (options_.accumulation > batches)
    say(concat_text("a step takes ", options_.accumulation, " batches, but there are ", batches,
                    batches == 1 ? " of them" : " different ones",
                    ": a smaller training.accumulation gives the same gradients sooner"));
}

void TrainingWatch::record(const StepOutcome& outcome, const LossMeter& losses,
                           const std::map<std::string, double>& weights, const LossScale* loss_scale) {
  if (loss_scale) say_skipped_steps(loss_scale->state());
  read_first_loss();
  const Progress progress = measured(outcome, losses);
  judge(progress, weights);
  session_.last_record = session_.last_shown = Clock::now();
  session_.earlier_tokens = 0;
  publish(progress);
}

bool TrainingWatch::wants_to_show() const {
  return options_.log_seconds > 0 && callbacks_.progress &&
         seconds_between(session_.last_shown, Clock::now()) >= options_.log_seconds;
}

void TrainingWatch::show(const StepOutcome& outcome, const LossMeter& losses) {
  session_.last_shown = Clock::now();
  callbacks_.progress(measured(outcome, losses));
}

/// Runs an evaluation and excludes its time from the training speed.
Evaluation TrainingWatch::timed(const std::function<Evaluation()>& measure) {
  const Clock::time_point start = Clock::now();
  Evaluation evaluation = measure();
  const Clock::duration duration = Clock::now() - start;
  session_.last_record += duration;
  session_.last_shown += duration;
  return evaluation;
}

void TrainingWatch::show_evaluation(const std::function<Evaluation()>& measure) {
  const Evaluation evaluation = timed(measure);
  if (evaluation.metrics.empty()) return;
  if (evaluation.sample > 0)
    say_once("sample", concat_text("evaluations that only show progress read ", evaluation.sample, " of ",
                                   evaluation.all, ' ', evaluation.unit.empty() ? unit_ : evaluation.unit,
                                   " (training.shown_sample)"));
  const auto found = std::ranges::find(evaluation.metrics, evaluation.keep_best_by, &Metric::name);
  if (found != evaluation.metrics.end() &&
      (!session_.best_shown || is_better(*found, session_.best_shown->value)))
    session_.best_shown = *found, session_.best_shown_step = state_.step;
  publish(make_progress(evaluation));
  report();
}

bool TrainingWatch::evaluate(const std::function<Evaluation()>& measure) {
  const Evaluation evaluation = timed(measure);
  if (evaluation.metrics.empty()) {
    if (options_.patience > 0)
      say_once("patience",
               concat_text("patience is ", options_.patience,
                           ", but there is nothing to evaluate: training stops at its last step"));
    evaluates_ = false;
    return false;
  }
  const auto found = std::ranges::find(evaluation.metrics, evaluation.keep_best_by, &Metric::name);
  check(found != evaluation.metrics.end(), "trainer: the evaluation has no metric \"",
        evaluation.keep_best_by, "\" to choose the best weights by");

  read_first_loss();
  Progress progress = make_progress(evaluation);
  const std::partial_ordering order = compare_with_best(evaluation, *found);
  progress.is_best = std::is_gteq(order);  // the later of equal ones
  if (session_.evaluations++ == 0) session_.first_metric = *found;
  if (found->value != session_.first_metric.value) session_.metric_moves = true;
  if (progress.is_best) {
    state_.best_metric = found->value;
    state_.best_loss = loss_in(evaluation);
    state_.best_step = state_.step;
  }
  state_.evaluations_without_improvement = std::is_gt(order) ? 0 : state_.evaluations_without_improvement + 1;
  publish(progress);
  report();
  return progress.is_best;
}

bool TrainingWatch::out_of_patience() const {
  return options_.patience > 0 && state_.evaluations_without_improvement >= options_.patience;
}

void TrainingWatch::save() {
  read_first_loss();
  state_.elapsed_seconds = elapsed_seconds();
  state_.metrics_bytes = metrics_->sync();
}

TrainResult TrainingWatch::finish() {
  const bool stopped_early = state_.step < steps_ && out_of_patience();
  if (session_.evaluations > 0 && !state_.best_metric)
    say("training diverged: no evaluation is worth keeping, and there are no best weights; try a lower"
        " learning_rate, more warmup_steps or a clip_norm");
  const Metric& metric = session_.first_metric;
  if (const std::int64_t alike = evaluations_alike(); alike > 1 && state_.best_metric)
    say(concat_text(metric.name, " is ", metric.value, " in all ", alike,
                    " evaluations, so the weights with the smallest loss are kept as best (the latest of "
                    "ties); training.keep_best_by names another metric"));
  // Weights chosen by accuracy, say, may well have a larger loss: for them only a loss far above the first
  // counts.
  const double limit = metric.larger_is_better ? far_above : well_above,
               first = state_.first_loss.value_or(0);
  if (session_.evaluations > 0 && first > 0 && state_.best_loss.value_or(0) > limit * first)
    say(concat_text("the best weights, of step ", state_.best_step, ", have a loss of ", *state_.best_loss,
                    " on the validation data, but it was ", first,
                    " before the first training step: training has made the model worse; try a lower "
                    "learning_rate, more warmup_steps or a clip_norm"));
  say_better_shown(metric);
  if (stopped_early)
    say(concat_text("stopped early in step ", state_.step, ": ", state_.evaluations_without_improvement,
                    " evaluations (the patience is ", options_.patience, ") brought no improvement",
                    state_.best_metric ? concat_text(" on a ", metric.name, " of ", *state_.best_metric)
                                       : std::string()));
  return {state_.step,      state_.step >= steps_ || stopped_early,
          stopped_early,    state_.best_metric,
          state_.best_step, elapsed_seconds()};
}

/// Reports that an evaluation that was only shown was better than the kept one.
void TrainingWatch::say_better_shown(const Metric& metric) const {
  if (!state_.best_metric || !session_.best_shown || !is_better(*session_.best_shown, *state_.best_metric))
    return;
  say(concat_text("keeping the weights of step ", state_.best_step, ", with ", metric.name, ' ',
                  *state_.best_metric, "; step ", session_.best_shown_step, " had ",
                  session_.best_shown->value,
                  ", but was only shown (training.evaluate_every chooses among more evaluations)"));
}

/// Returns the number of the run's evaluations, including earlier sessions, if the deciding metric
/// is the same in all; otherwise 0.
std::int64_t TrainingWatch::evaluations_alike() const {
  if (session_.evaluations == 0 || session_.metric_moves) return 0;
  std::int64_t recorded = 0;
  for (const Progress& record : metrics_ ? metrics_->records() : std::vector<Progress>())
    for (const auto& [name, value] : record.metrics) {
      if (name != session_.first_metric.name || record.sample > 0) continue;
      if (value != session_.first_metric.value) return 0;
      ++recorded;
    }
  return std::max(recorded, session_.evaluations);
}

// --- records

Progress TrainingWatch::make_progress(const Evaluation& evaluation) const {
  Progress progress = progress_now();
  progress.sample = evaluation.sample;
  progress.how = evaluation.how;
  for (const Metric& metric : evaluation.metrics) progress.metrics.emplace_back(metric.name, metric.value);
  return progress;
}

Progress TrainingWatch::progress_now() const {
  Progress progress;
  progress.step = state_.step;
  progress.steps = steps_;
  progress.epoch = state_.epoch;
  progress.unit = unit_;
  progress.elapsed_seconds = elapsed_seconds();
  const double session = progress.elapsed_seconds - session_.earlier_seconds;
  const auto done = static_cast<double>(std::max<std::int64_t>(state_.step - session_.first_step, 1));
  progress.seconds_left = session / done * static_cast<double>(steps_ - state_.step);
  return progress;
}

/// Waits for the device.
Progress TrainingWatch::measured(const StepOutcome& outcome, const LossMeter& losses) const {
  Progress progress = progress_now();
  progress.learning_rate = outcome.learning_rate;
  progress.gradient_norm = outcome.gradient_norm.item();
  progress.memory_bytes = static_cast<std::int64_t>(memory_stats(device_).peak_bytes);
  const double tokens = static_cast<double>(std::max<std::int64_t>(losses.tokens(), 1));
  for (const auto& [name, sum] : losses.sums())
    if (name == "loss")
      progress.loss = sum / tokens;
    else
      progress.auxiliary.emplace_back(name, sum / tokens);
  progress.tokens_per_second = static_cast<double>(losses.tokens() - session_.earlier_tokens) /
                               std::max(seconds_between(session_.last_record, Clock::now()), 1e-9);
  return progress;
}

void TrainingWatch::publish(const Progress& progress) {
  if (metrics_) metrics_->append(progress);
  if (tensorboard_) tensorboard_->append(progress);
  if (callbacks_.progress) callbacks_.progress(progress);
}

void TrainingWatch::report() {
  if (!folder_ || !callbacks_.report) return;
  try {
    callbacks_.report(*folder_, metrics_->records());
  } catch (const Error& error) {
    say_once("report", concat_text("training continues, but without a report: ", error.what()));
  }
}

/// Waits for the device, once.
void TrainingWatch::read_first_loss() {
  if (!state_.first_loss && first_loss_.defined()) state_.first_loss = first_loss_.item();
}

double TrainingWatch::elapsed_seconds() const {
  return session_.earlier_seconds + seconds_between(session_.start, Clock::now());
}

// --- remarks

/// Compares an evaluation with the best one: by the metric, ties by the loss. A diverged one is
/// worse than any.
std::partial_ordering TrainingWatch::compare_with_best(const Evaluation& evaluation,
                                                       const Metric& metric) const {
  if (has_diverged(evaluation, state_.first_loss)) return std::partial_ordering::less;
  if (!state_.best_metric) return std::partial_ordering::greater;
  if (metric.value != *state_.best_metric)
    return metric.larger_is_better ? metric.value <=> *state_.best_metric
                                   : *state_.best_metric <=> metric.value;
  const std::optional<double> loss = loss_in(evaluation);
  return loss && state_.best_loss ? *state_.best_loss <=> *loss : std::partial_ordering::equivalent;
}

/// Warns about problems that are not errors.
void TrainingWatch::judge(const Progress& progress, const std::map<std::string, double>& weights) {
  const double start = state_.first_loss.value_or(progress.loss), loss = std::abs(progress.loss);
  session_.far_records = is_far_above(progress.loss, start) ? session_.far_records + 1 : 0;
  if (session_.far_records == records_in_a_row)
    say_once("loss",
             concat_text("training diverges: the loss is ", progress.loss, " and was ", start,
                         " at the start; try a lower learning_rate, more warmup_steps or a clip_norm"));
  for (const auto& [name, value] : progress.auxiliary) {
    const auto known = weights.find(name);
    const double weight = known == weights.end() ? 1 : known->second;
    if (std::abs(weight * value) > dwarfing_auxiliary * loss)
      say_once("auxiliary " + name,
               concat_text("the auxiliary loss \"", name, "\" (", value, " times its weight ", weight,
                           ") dwarfs the loss of the task (", progress.loss,
                           "); lower its weight among the options of the attention that adds it"));
  }
  session_.steep_records =
      progress.gradient_norm > dwarfing_norm * std::max(loss, 1.0) ? session_.steep_records + 1 : 0;
  if (session_.steep_records == records_in_a_row)
    say_once("norm", concat_text("the gradient's norm (", progress.gradient_norm, ") dwarfs the loss (",
                                 progress.loss, "); try a lower learning_rate",
                                 options_.clip_norm > 0 ? concat_text(": clip_norm ", options_.clip_norm,
                                                                      " clips nearly all of every gradient")
                                                        : std::string(", or a clip_norm of 1")));
}

void TrainingWatch::say_skipped_steps(const LossScaleState& scale) {
  if (scale.skipped == session_.skipped_said) return;
  say(concat_text(
      scale.skipped - session_.skipped_said,
      " steps did not change the weights, because gradients overflowed f16; the loss scale is now ",
      scale.scale));
  session_.skipped_said = scale.skipped;
}

void TrainingWatch::report_unregistered(const std::vector<Shape>& shapes) const {
  if (shapes.empty()) return;
  constexpr std::size_t most = 5;
  const std::string text = listed(std::span(shapes).first(std::min(shapes.size(), most)));
  say(concat_text("tensors that get gradients but are not parameters of the model are not trained: ",
                  shapes.size(), ", of shape ", text, shapes.size() > most ? ", ..." : "",
                  "; register them with add_parameter(), or their module with add_module()"));
}

void TrainingWatch::report_expected_time() const {
  constexpr std::int64_t steps_that_tell = 10;
  constexpr double long_seconds = 180;
  const std::int64_t done = state_.step - session_.first_step,
                     warmup = options_.learning_rate ? 0 : std::min(options_.schedule.warmup_steps, steps_);
  if (done != steps_that_tell) return;
  const double step_seconds =
      (elapsed_seconds() - session_.earlier_seconds) / static_cast<double>(steps_that_tell);
  const double left = step_seconds * static_cast<double>(steps_ - state_.step);
  if (left <= long_seconds) return;
  std::string text =
      concat_text("training will take another ", duration_text(left), " for its ", steps_,
                  " steps (training.steps), without evaluations, judging by the first ", steps_that_tell);
  const double warmup_seconds = step_seconds * static_cast<double>(warmup);
  if (state_.step < warmup && warmup_seconds > long_seconds)
    text += concat_text("; the warm-up alone, ", warmup,
                        " steps (training.schedule.warmup_steps), will take ", duration_text(warmup_seconds));
  say(text);
}

void TrainingWatch::say(std::string_view text) const {
  if (callbacks_.message) callbacks_.message(text);
}

void TrainingWatch::say_once(const std::string& topic, std::string_view text) {
  if (session_.said.insert(topic).second) say(text);
}

}  // namespace heed
