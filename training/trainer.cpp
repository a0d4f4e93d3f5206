#include "heed/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/training/report.h"
#include "heed/training/step_monitor.h"

namespace heed {
namespace {

// Steps take 32 bits in the optimizer's state, and batches number the random streams with 32 bits.
constexpr std::int64_t most_batches = std::numeric_limits<std::int32_t>::max();

// Limits for warnings about values out of proportion: loose, so that ordinary training never triggers them.
constexpr double dwarfing_auxiliary = 10;  // times the task's loss
constexpr double dwarfing_norm = 100;      // likewise
constexpr int records_in_a_row = 3;

std::int64_t batches_in(Task& task, std::int64_t epoch) {
  const std::int64_t batches = task.batches(epoch);
  check(batches >= 1, "trainer: epoch ", epoch, " has ", batches, " batches; there is no data to train on");
  return batches;
}

}  // namespace

void check_options(const TrainerOptions& options) {
  check_ranges("trainer", options);
  check((options.steps > 0) != (options.epochs > 0),
        "trainer: give either steps or epochs, not both or none; steps is ", options.steps, ", epochs is ",
        options.epochs);
  const std::int64_t batches = options.steps * options.accumulation;  // cannot overflow: each has 31 bits
  check(batches <= most_batches, "trainer: ", options.steps, " steps of ", options.accumulation,
        " batches are ", batches, " batches; at most ", most_batches, " are possible");
  check(options.patience == 0 || options.evaluate_every > 0,
        "trainer: patience needs evaluations; set evaluate_every, or patience=0");
  learning_rate_at(options.schedule, 1, 1);  // throws for a schedule out of range
}

void check_recording(std::string_view what) {
  check(recording(), what,
        ": recording is off on this thread, so that there are no gradients to train with; end the NoGrad or "
        "RecordingScope that turned it off");
}

Trainer::Trainer(Task& task, const TrainerOptions& options, TrainerCallbacks callbacks, Ranks* ranks)
    : task_(task),
      options_((check_options(options), options)),
      callbacks_(std::move(callbacks)),
      trained_(trained_parameters(task.model(), options.part_rates)),
      exchange_(task.model(), trained_.parameters, ranks),
      optimizer_(trained_.parameters, options.optimizer, trained_.rates, exchange_.owned()),
      steps_(options.steps),
      evaluates_(options.evaluate_every > 0) {
  const Device device = optimizer_.parameters()[0].tensor->device();
  check_precision(options_.precision, device);
  if (!exchange_.is_first()) callbacks_.progress = {}, callbacks_.message = {};
  if (options_.ema_decay > 0)
    average_ = std::make_unique<MovingAverage>(trained_.parameters, options_.ema_decay);
  for (std::int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    last_batch_ = checked_sum("trainer: batches", last_batch_, batches_in(task, epoch));
    check(last_batch_ <= most_batches, "trainer: ", options_.epochs, " epochs are more than ", most_batches,
          " batches; give fewer epochs");
  }
  if (options_.epochs > 0) steps_ = ceil_div(last_batch_, options_.accumulation);
  state_.seed = options_.seed;
}

TrainResult Trainer::run(RunFolder* folder) {
  check_recording("trainer");
  open(folder);
  bool stop = false;
  while (state_.step < steps_ && !out_of_patience() && !stop) {
    const StepOutcome outcome = step();
    const bool last = state_.step == steps_;
    if (due(options_.log_every) || last)
      record_losses(outcome);
    else
      show_between_records(outcome);
    bool better = false;
    if (due(options_.evaluate_every) || (last && options_.evaluate_every > 0)) better = evaluate();
    stop = exchange_.any(callbacks_.stop_requested && callbacks_.stop_requested());
    if (due(options_.save_every) || better || last || stop || out_of_patience()) save(better);
  }
  write_report();
  check_run();
  TrainResult result;
  result.step = state_.step;
  result.stopped_early = state_.step < steps_ && out_of_patience();
  result.finished = state_.step >= steps_ || result.stopped_early;
  result.best_metric = state_.best_metric;
  result.best_step = state_.best_step;
  result.seconds = elapsed_seconds();
  say_outcome(result);
  return result;
}

void Trainer::open(RunFolder* folder) {
  folder_ = exchange_.is_first() ? folder : nullptr;
  saves_ = exchange_.any(folder_ != nullptr);
  if (load()) check_resumed();
  if (folder_) folder_->write_config();
  autocast_ = std::make_unique<Autocast>(task_.model(), options_.precision, state_.loss_scale);
  if (folder_)
    metrics_ = std::make_unique<MetricsLog>(folder_->folder(), state_.metrics_bytes,
                                            [this](std::string_view text) { say(text); });
  if (folder_ && options_.tensorboard)
    tensorboard_ = std::make_unique<TensorBoardLog>(folder_->folder(), state_.step, metrics_->records(),
                                                    [this](std::string_view text) { say(text); });
  if (options_.accumulation < exchange_.count())
    say(concat_text("a step has ", options_.accumulation, " batches (training.accumulation), so that ",
                    exchange_.count() - options_.accumulation, " of ", exchange_.count(),
                    " ranks have nothing to compute"));
  session_ = Session{};
  session_.start = session_.last_record = session_.last_shown = std::chrono::steady_clock::now();
  session_.first_step = state_.step;
  session_.earlier_seconds = state_.elapsed_seconds;
}

/// Loads the folder's checkpoint, which only rank 0 reads, and copies the initial weights to all ranks.
/// Returns false if there is no checkpoint.
bool Trainer::load() {
  std::map<std::string, Tensor> moments;
  std::string text;
  if (folder_ && folder_->has_checkpoint()) {
    state_ = load_checkpoint(*folder_, parts(moments));
    text = trainer_state_text(state_);
  }
  if (!exchange_.is_shared()) return !text.empty();
  text = exchange_.broadcast(text);
  exchange_.broadcast_model();
  if (average_) average_->load_state(exchange_.broadcast(average_->state()));
  if (text.empty()) return false;
  if (!exchange_.is_first()) state_ = parse_trainer_state(text, "the state of rank 0");
  optimizer_.load_state(exchange_.deal(std::move(moments)));
  check(optimizer_.steps() == state_.step, "cannot resume: the optimizer counts ", optimizer_.steps(),
        " steps, but the run ", state_.step);
  return true;
}

void Trainer::check_resumed() {
  check(state_.seed == options_.seed, "cannot resume: the seed is ", options_.seed,
        ", but the run was started with ", state_.seed);
  check(state_.step <= steps_, "cannot resume: the run has made ", state_.step,
        " steps, and this training is to end after ", steps_,
        ": give as many (training.steps), or train anew");
  const std::int64_t batches = batches_in(task_, state_.epoch);
  check(batches == state_.epoch_batches, "cannot resume: epoch ", state_.epoch, " has ", batches,
        " batches, but had ", state_.epoch_batches,
        " when the checkpoint was made; the data or the batching changed");
  meter_.restore(state_.losses_since_record, state_.tokens_since_record);
  skipped_said_ = state_.loss_scale.skipped;
  say(concat_text("resuming from step ", state_.step, " of ", steps_, " (epoch ", state_.epoch, ", batch ",
                  state_.batch, " of ", batches, ")"));
  const std::string platform = platform_name(optimizer_.parameters()[0].tensor->device());
  if (platform != state_.platform) {
    say(concat_text("the checkpoint was made with ", state_.platform, " and training goes on with ", platform,
                    ": the last bits of results may differ from an uninterrupted run"));
  }
}

Trainer::StepOutcome Trainer::step() {
  std::optional<GradientWatch> watch;
  if (state_.step == session_.first_step) watch.emplace();
  const std::int64_t tokens = accumulate_gradients();
  if (state_.step == 0) first_loss_ = meter_.on_device().at("loss") / static_cast<double>(tokens);
  const GradientNorm norm = exchange_.norm(static_cast<double>(tokens));
  LossScale* const loss_scale = autocast_->loss_scale();
  if (loss_scale) loss_scale->update(norm.norm());
  guard_.watch(state_.step + 1, norm, meter_, loss_scale ? loss_scale->can_shrink() : Tensor());
  if (norm.norm().device().type == DeviceType::cpu) check_finite();
  const double rate = learning_rate();
  optimizer_.step(rate, norm.scale(options_.clip_norm),
                  loss_scale ? maximum(guard_.skip(), loss_scale->skip()) : guard_.skip());
  optimizer_.zero_gradients();
  if (watch) say_untrained(watch->left());
  exchange_.share_weights();
  ++state_.step;
  if (average_) average_->update(state_.step);
  return {rate, norm.norm()};
}

/// Tensors that still have a gradient after the first step are not parameters of the model.
void Trainer::say_untrained(const std::vector<Shape>& shapes) {
  if (shapes.empty()) return;
  std::string text;
  constexpr std::size_t most = 5;
  for (std::size_t i = 0; i < std::min(shapes.size(), most); ++i)
    text += concat_text(i ? ", " : "", shapes[i]);
  say(concat_text("tensors that get gradients but are no parameters of the model are not trained: ",
                  shapes.size(), ", of shape ", text, shapes.size() > most ? ", ..." : "",
                  "; register their part with add_module(), or them with add_parameter()"));
}

double Trainer::learning_rate() const {
  const std::int64_t step = state_.step + 1;
  if (!options_.learning_rate) return learning_rate_at(options_.schedule, step, steps_);
  const double rate = options_.learning_rate(step, steps_);
  check(std::isfinite(rate) && rate >= 0, "trainer: the learning rate of step ", step, " is ", rate,
        "; it must be a number from 0 on");
  return rate;
}

/// Accumulates the gradients of sums over tokens; dividing by all tokens at the end gives the exact mean,
/// whatever the batch sizes. Returns the number of tokens. All batches of a step see the same weights and
/// buffers, and everything is added in batch order, so it does not matter which rank computes a batch.
std::int64_t Trainer::accumulate_gradients() {
  std::int64_t tokens = 0, left = options_.accumulation;
  if (last_batch_ > 0) left = std::min(left, last_batch_ - state_.batches_done);
  std::vector<Observation> observations;
  for (; left > 0; left -= exchange_.count()) {
    std::optional<BatchOutcome> own;
    for (int rank = 0; rank < std::min<std::int64_t>(left, exchange_.count()); ++rank) {
      if (rank == exchange_.rank()) own = run_batch();
      advance();
    }
    for (BatchOutcome& batch : exchange_.add(std::move(own), left > exchange_.count())) {
      for (const BatchOutcome::Term& term : batch.terms) meter_.add(term.name, term.sum);
      meter_.add_tokens(batch.count);
      tokens += batch.count;
      std::ranges::move(batch.observations, std::back_inserter(observations));
    }
  }
  exchange_.finish();
  for (const Observation& one : observations) one.layer->absorb(one.values);
  session_.tokens_since_record += tokens;
  return tokens;
}

/// Runs forward and backward for the next batch; leaves its gradients in the leaves.
BatchOutcome Trainer::run_batch() {
  BatchOutcome outcome;
  // Streams count from 1: stream 0 is for draws before training, such as initial weights.
  Context context = Context::train(options_.seed, static_cast<std::uint32_t>(state_.batches_done + 1));
  context.observations = &outcome.observations;
  autocast_->backward([&] {
    const Loss batch = task_.loss(state_.epoch, state_.batch, context);
    outcome.count = batch.count;
    return objective_of(batch, context, outcome);
  });
  return outcome;
}

Tensor Trainer::objective_of(const Loss& batch, const Context& context, BatchOutcome& outcome) {
  check(batch.sum.defined() && batch.sum.count() == 1, "trainer: the loss of a batch has one element");
  check(batch.count > 0, "trainer: batch ", state_.batch, " of epoch ", state_.epoch, " has ", batch.count,
        " ", task_.unit(), "; leave such batches out");
  const double count = static_cast<double>(batch.count);
  outcome.terms.push_back({"loss", batch.sum.detach()});
  Tensor objective = batch.sum;
  for (const AuxiliaryLoss& auxiliary : context.losses) {
    const Tensor value = reshape(auxiliary.value, objective.shape());
    outcome.terms.push_back({auxiliary.name, value.detach() * count});
    auxiliary_weights_[auxiliary.name] = auxiliary.weight;
    objective = objective + value * (auxiliary.weight * count);
  }
  return objective;
}

void Trainer::advance() {
  ++state_.batches_done;
  if (++state_.batch < batches_in(task_, state_.epoch)) return;
  state_.batch = 0;
  ++state_.epoch;
}

/// Waits for the device.
void Trainer::check_finite() {
  try {
    guard_.check(meter_);
  } catch (const Error&) {
    optimizer_.zero_gradients();
    throw;
  }
}

void Trainer::say_skipped_steps() {
  if (!autocast_->loss_scale()) return;
  const LossScaleState scale = autocast_->loss_scale_state();
  if (scale.skipped == skipped_said_) return;
  say(concat_text(
      scale.skipped - skipped_said_,
      " steps left the weights as they were, because gradients overflowed f16; the loss scale is now ",
      scale.scale));
  skipped_said_ = scale.skipped;
}

void Trainer::record_losses(const StepOutcome& outcome) {
  check_finite();
  say_skipped_steps();
  read_first_loss();
  const Progress progress = measured(outcome);
  judge(progress);
  session_.last_record = session_.last_shown = std::chrono::steady_clock::now();
  session_.tokens_since_record = 0;
  meter_.clear();
  publish(progress);
}

/// Shows the same numbers as a record without storing any of them.
void Trainer::show_between_records(const StepOutcome& outcome) {
  if (options_.log_seconds <= 0 || !callbacks_.progress) return;
  const auto now = std::chrono::steady_clock::now();
  if (std::chrono::duration<double>(now - session_.last_shown).count() < options_.log_seconds) return;
  check_finite();
  session_.last_shown = now;
  callbacks_.progress(measured(outcome));
}

/// Waits for the device.
Progress Trainer::measured(const StepOutcome& outcome) const {
  Progress progress = progress_now();
  progress.learning_rate = outcome.learning_rate;
  progress.gradient_norm = outcome.gradient_norm.item();
  progress.memory_bytes =
      static_cast<std::int64_t>(memory_stats(optimizer_.parameters()[0].tensor->device()).peak_bytes);
  const double tokens = static_cast<double>(std::max<std::int64_t>(meter_.tokens(), 1));
  for (const auto& [name, sum] : meter_.sums()) {
    if (name == "loss") {
      progress.loss = sum / tokens;
    } else {
      progress.auxiliary.emplace_back(name, sum / tokens);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - session_.last_record).count();
  progress.tokens_per_second = static_cast<double>(session_.tokens_since_record) / std::max(seconds, 1e-9);
  return progress;
}

/// Waits for the device, once.
void Trainer::read_first_loss() {
  if (!state_.first_loss && first_loss_.defined()) state_.first_loss = first_loss_.item();
}

/// Warns about problems that are not errors.
void Trainer::judge(const Progress& progress) {
  const double start = state_.first_loss.value_or(progress.loss), loss = std::abs(progress.loss);
  session_.far_records = is_far_above(progress.loss, start) ? session_.far_records + 1 : 0;
  if (session_.far_records == records_in_a_row)
    say_once("loss",
             concat_text("training diverges: the loss is ", progress.loss, " and was ", start,
                         " at the start; try a lower learning_rate, more warmup_steps or a clip_norm"));
  for (const auto& [name, value] : progress.auxiliary) {
    const auto known = auxiliary_weights_.find(name);
    const double weight = known == auxiliary_weights_.end() ? 1 : known->second;
    if (std::abs(weight * value) > dwarfing_auxiliary * loss)
      say_once("auxiliary " + name,
               concat_text("the auxiliary loss \"", name, "\" (", value, " times its weight ", weight,
                           ") dwarfs the loss of the task (", progress.loss,
                           "); lower its weight among the options of the attention that adds it"));
  }
  session_.steep_records =
      progress.gradient_norm > dwarfing_norm * std::max(loss, 1.0) ? session_.steep_records + 1 : 0;
  if (session_.steep_records == records_in_a_row)
    say_once("norm",
             concat_text("the gradient's norm (", progress.gradient_norm, ") dwarfs the loss (",
                         progress.loss, "); try a lower learning_rate",
                         options_.clip_norm > 0 ? concat_text(": clip_norm ", options_.clip_norm,
                                                              " cuts nearly all of every gradient off")
                                                : std::string(", or a clip_norm of 1")));
}

bool Trainer::evaluate() {
  check_finite();
  const auto start = std::chrono::steady_clock::now();
  const Evaluation evaluation = measure();
  // Training speed must not include the time for evaluations.
  const auto duration = std::chrono::steady_clock::now() - start;
  session_.last_record += duration;
  session_.last_shown += duration;
  if (evaluation.metrics.empty()) {
    if (options_.patience > 0)
      say_once("patience",
               concat_text("patience is ", options_.patience,
                           ", but there is nothing to evaluate: training stops at its last step"));
    evaluates_ = false;
    return false;
  }
  const auto found =
      std::find_if(evaluation.metrics.begin(), evaluation.metrics.end(),
                   [&](const Metric& metric) { return metric.name == evaluation.keep_best_by; });
  check(found != evaluation.metrics.end(), "trainer: the evaluation has no metric \"",
        evaluation.keep_best_by, "\" to choose the best weights by");

  read_first_loss();
  Progress progress = progress_now();
  for (const Metric& metric : evaluation.metrics) progress.metrics.emplace_back(metric.name, metric.value);
  progress.is_best = is_better(evaluation, *found);
  ++session_.evaluations;
  session_.larger_is_better = found->larger_is_better;
  if (progress.is_best) {
    state_.best_metric = found->value;
    state_.best_loss = loss_of(evaluation);
    state_.best_step = state_.step;
    state_.evaluations_without_improvement = 0;
  } else {
    ++state_.evaluations_without_improvement;
  }
  publish(progress);
  write_report();
  return progress.is_best;
}

/// Returns rank 0's measurement, computed with the help of the other ranks.
Evaluation Trainer::measure() {
  const NoGrad no_grad;
  const AveragedWeights averaged(average_.get());
  task_.share_evaluation(exchange_.ranks());
  Evaluation evaluation = task_.evaluate();
  task_.share_evaluation(nullptr);
  return exchange_.broadcast(std::move(evaluation));
}

/// A diverged evaluation is never the best, even if the deciding metric is still finite.
bool Trainer::is_better(const Evaluation& evaluation, const Metric& metric) const {
  if (!std::isfinite(metric.value) || has_diverged(evaluation, state_.first_loss)) return false;
  if (!state_.best_metric) return true;
  return metric.larger_is_better ? metric.value > *state_.best_metric : metric.value < *state_.best_metric;
}

void Trainer::publish(const Progress& progress) {
  if (metrics_) metrics_->append(progress);
  if (tensorboard_) tensorboard_->append(progress);
  if (callbacks_.progress) callbacks_.progress(progress);
}

void Trainer::save(bool as_best) {
  if (!saves_) return;
  std::map<std::string, Tensor> moments;
  if (exchange_.is_shared()) moments = exchange_.gather(optimizer_.state());
  if (!folder_) return;
  check_finite();
  check_weights(optimizer_.parameters(), state_.step);
  read_first_loss();
  if (autocast_->loss_scale()) state_.loss_scale = autocast_->loss_scale_state();
  state_.losses_since_record = meter_.sums();
  state_.tokens_since_record = meter_.tokens();
  state_.epoch_batches = batches_in(task_, state_.epoch);
  state_.elapsed_seconds = elapsed_seconds();
  state_.metrics_bytes = metrics_->sync();
  state_.platform = platform_name(optimizer_.parameters()[0].tensor->device());
  const bool only_averages = average_ && !evaluates_;
  restore_run();
  save_checkpoint(*folder_, parts(moments), state_, as_best || only_averages);
  folder_->check_in_place();
}

/// Files may have been removed during training.
void Trainer::restore_run() {
  for (const std::string& name : folder_->restore())
    say(concat_text(folder_->file(name), " had disappeared and was written again"));
}

/// Training is complete only if the run can be opened.
void Trainer::check_run() {
  if (!folder_) return;
  restore_run();
  folder_->check_in_place();
  folder_->check_opens();
  for (const auto& [name, file] : state_.files)
    check(folder_->folder().has(name), folder_->file(name),
          " disappeared while the run trained; put it back, or train anew");
}

/// Failing to write the report does not end training.
void Trainer::write_report() {
  if (!folder_) return;
  try {
    folder_->folder().write("report.html", report_html(metrics_->records(), folder_->config()));
  } catch (const Error& error) {
    say_once("report", concat_text("training goes on, but without a report: ", error.what()));
  }
}

void Trainer::say(std::string_view text) const {
  if (callbacks_.message) callbacks_.message(text);
}

void Trainer::say_once(const std::string& topic, std::string_view text) {
  if (session_.said.insert(topic).second) say(text);
}

void Trainer::say_outcome(const TrainResult& result) {
  if (session_.evaluations > 0 && !state_.best_metric)
    say("training diverged: no evaluation is worth keeping, and there are no best weights; try a lower"
        " learning_rate, more warmup_steps or a clip_norm");
  if (session_.evaluations > 0 && state_.best_loss && state_.first_loss) {
    const BestEvaluation best{state_.best_step, *state_.best_loss, !session_.larger_is_better};
    if (const std::string remark = remark_on_best(best, *state_.first_loss); !remark.empty()) say(remark);
  }
  if (result.stopped_early)
    say(concat_text("stopped early in step ", result.step, ": ", state_.evaluations_without_improvement,
                    " evaluations (the patience is ", options_.patience, ") brought nothing better",
                    state_.best_metric
                        ? concat_text(" than the ", *state_.best_metric, " of step ", state_.best_step)
                        : std::string()));
}

Progress Trainer::progress_now() const {
  Progress progress;
  progress.step = state_.step;
  progress.steps = steps_;
  progress.epoch = state_.epoch;
  progress.unit = task_.unit();
  progress.elapsed_seconds = elapsed_seconds();
  const double session = progress.elapsed_seconds - session_.earlier_seconds;
  const auto done = static_cast<double>(std::max<std::int64_t>(state_.step - session_.first_step, 1));
  progress.seconds_left = session / done * static_cast<double>(steps_ - state_.step);
  return progress;
}

double Trainer::elapsed_seconds() const {
  const auto now = std::chrono::steady_clock::now();
  return session_.earlier_seconds + std::chrono::duration<double>(now - session_.start).count();
}

bool Trainer::out_of_patience() const {
  return options_.patience > 0 && state_.evaluations_without_improvement >= options_.patience;
}

}  // namespace heed
