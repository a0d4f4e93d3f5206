#include "heed/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/training/gradient_exchange.h"
#include "heed/training/watch.h"

namespace heed {

// Steps take 32 bits in the optimizer's state, and batches number the random streams with 32 bits.
constexpr std::int64_t most_batches = std::numeric_limits<std::int32_t>::max();

static std::int64_t batches_in(Objective& objective, std::int64_t epoch) {
  const std::int64_t batches = objective.batches(epoch);
  check(batches >= 1, "trainer: epoch ", epoch, " has ", batches, " batches; there is no data to train on");
  return batches;
}

void check_options(const TrainerOptions& options) {
  check_ranges("trainer", options);
  check(options.steps > 0 || options.epochs > 0,
        "trainer: steps and epochs are 0; give one of them, or both");
  const std::int64_t batches = options.steps * options.accumulation;  // cannot overflow: each has 31 bits
  check(batches <= most_batches, "trainer: ", options.steps, " steps of ", options.accumulation,
        " batches are ", batches, " batches; at most ", most_batches, " are possible");
  check(options.patience == 0 || options.evaluate_every > 0,
        "trainer: patience needs evaluations; set evaluate_every, or patience=0");
  check_in_f32("trainer: clip_norm", options.clip_norm);
  check_in_f32("optimizer: weight_decay", options.optimizer.weight_decay);
  make_schedule(options.schedule);  // throws where it is out of range
  for (const PartRate& one : options.part_rates)
    check_in_f32(concat_text("trainer: the learning_rate of part \"", one.part, '"'),
                 options.schedule.learning_rate * one.rate);
}

void check_recording(std::string_view what) {
  check(recording(), what,
        ": recording is off on this thread, so there are no gradients to train with; end the NoGrad or "
        "RecordingScope that turned it off");
}

Trainer::Trainer(Objective& objective, const TrainerOptions& options, TrainerCallbacks callbacks,
                 Ranks* ranks)
    : objective_(objective),
      options_((check_options(options), options)),
      stop_requested_(callbacks.stop_requested),
      schedule_(options.learning_rate ? options.learning_rate : make_schedule(options.schedule)),
      trained_(trained_parameters(objective.model(), options.part_rates)),
      exchange_(ranks && ranks->count() > 1
                    ? std::make_unique<GradientExchange>(objective.model(), trained_.parameters, *ranks)
                    : nullptr),
      optimizer_(trained_.parameters, options.optimizer, trained_.rates,
                 exchange_ ? exchange_->owned() : std::vector<bool>()),
      sum_(trained_.parameters),
      steps_(options.steps),
      device_(trained_.parameters[0].tensor->device()) {
  check_precision(options_.precision, device_);
  if (options_.ema_decay > 0)
    average_ = std::make_unique<MovingAverage>(trained_.parameters, options_.ema_decay);
  for (std::int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    last_batch_ = checked_sum("trainer: batches", last_batch_, batches_in(objective, epoch));
    check(last_batch_ <= most_batches, "trainer: ", options_.epochs, " epochs are more than ", most_batches,
          " batches; give fewer epochs");
  }
  state_.seed = options_.seed;
  if (exchange_ && !exchange_->is_first()) callbacks.progress = {}, callbacks.message = {};
  if (options_.epochs > 0) {
    const std::int64_t of_epochs = ceil_div(last_batch_, options_.accumulation);
    if (options_.steps > 0 && callbacks.message)
      callbacks.message(concat_text("training ends after ", std::min(of_epochs, steps_), " steps: steps = ",
                                    steps_, ", and epochs = ", options_.epochs, " take ", of_epochs));
    steps_ = options_.steps > 0 ? std::min(steps_, of_epochs) : of_epochs;
  }
  watch_ = std::make_unique<TrainingWatch>(options_, std::move(callbacks), state_, steps_, objective_.unit(),
                                           device_);
}

Trainer::~Trainer() = default;

TrainResult Trainer::run(RunFolder* folder) {
  check_recording("trainer");
  open(folder);
  const auto due = [&](std::int64_t every) { return every > 0 && state_.step % every == 0; };
  std::optional<GradientWatch> first_step(std::in_place);
  bool stop = false;
  while (state_.step < steps_ && !watch_->out_of_patience() && !stop) {
    const StepOutcome outcome = step();
    if (first_step) watch_->report_unregistered(first_step->left());
    first_step.reset();
    watch_->report_expected_time();
    if (state_.step == 1) watch_->set_first_loss(meter_.mean("loss"));
    const bool last = state_.step == steps_;
    if (due(options_.log_every) || last) {
      check_finite();
      watch_->record(outcome, meter_, auxiliary_weights_, loss_scale());
      meter_.clear();
    } else if (watch_->wants_to_show()) {
      check_finite();
      watch_->show(outcome, meter_);
    }
    bool better = false;
    if (due(options_.evaluate_every) || (last && options_.evaluate_every > 0)) {
      check_finite();
      better = watch_->evaluate([&] { return measure(0); });
    } else if (due(shown_interval())) {
      check_finite();
      watch_->show_evaluation([&] { return measure(options_.shown_sample); });
    }
    stop = any_rank(stop_requested_ && stop_requested_());
    if (due(options_.save_every) || better || last || stop || watch_->out_of_patience()) save(better);
  }
  watch_->report();
  check_run();
  return watch_->finish();
}

// --- the mathematics of a step: over its batches b, with weights w and the rate of the schedule,
//
//   g = sum_b grad(loss of b) / n,  n = sum_b count of b        accumulate_gradients()
//   s = min(1, clip_norm / |g|)                                 GradientNorm
//   w, moments = optimizer(w, moments, s g, rate)               Optimizer
//
// Losses and gradients are sums until they are divided by n, so that batches may differ in size. Nothing
// waits for the device unless it is the CPU: the guard keeps a step that is not finite from changing
// anything.

StepOutcome Trainer::step() {
  const auto tokens = static_cast<double>(accumulate_gradients());
  const GradientNorm norm = exchange_ ? exchange_->norm(tokens) : GradientNorm(trained_.parameters, tokens);
  LossScale* const scale = loss_scale();
  if (scale) scale->update(norm.norm());
  guard_.watch(state_.step + 1, norm, meter_, scale ? scale->can_shrink() : Tensor());
  if (device_.type == DeviceType::cpu) check_finite();
  const double rate = learning_rate();
  optimizer_.step(rate, norm.scale(options_.clip_norm),
                  scale ? maximum(guard_.skip(), scale->skip()) : guard_.skip());
  optimizer_.zero_gradients();
  if (exchange_) exchange_->share_weights();
  ++state_.step;
  if (average_) average_->update(state_.step);
  return {rate, norm.norm()};
}

/// Leaves the sums of the gradients in the parameters, and returns the number of tokens. All batches of a
/// step see the same weights and buffers, and everything is added in batch order, so it does not matter which
/// rank computes a batch.
std::int64_t Trainer::accumulate_gradients() {
  std::int64_t tokens = 0, left = options_.accumulation;
  if (last_batch_ > 0) left = std::min(left, last_batch_ - state_.batches_done);
  std::vector<Observation> observations;
  while (left > 0) {
    for (BatchOutcome& batch : next_batches(left)) {
      for (const BatchOutcome::Term& term : batch.terms) meter_.add(term.name, term.sum);
      meter_.add_tokens(batch.count);
      tokens += batch.count;
      std::ranges::move(batch.observations, std::back_inserter(observations));
      --left;
    }
  }
  if (exchange_)
    exchange_->finish();
  else
    sum_.finish();
  for (const Observation& one : observations) one.layer->absorb(one.values);
  return tokens;
}

/// Computes the next batch, or one for each rank, and adds the gradients. `left`: batches left in this step.
std::vector<BatchOutcome> Trainer::next_batches(std::int64_t left) {
  if (!exchange_) {
    std::vector<BatchOutcome> outcomes;
    outcomes.push_back(run_batch());
    sum_.add(sum_.take());
    advance();
    return outcomes;
  }
  std::optional<BatchOutcome> own;
  for (int rank = 0; rank < std::min<std::int64_t>(left, exchange_->count()); ++rank) {
    if (rank == exchange_->rank()) own = run_batch();
    advance();
  }
  return exchange_->add(std::move(own), left > exchange_->count());
}

/// Runs forward and backward for the next batch; leaves its gradients in the parameters.
BatchOutcome Trainer::run_batch() {
  BatchOutcome outcome;
  // Streams count from 1: stream 0 is for draws before training, such as initial weights.
  Context context = Context::train(options_.seed, static_cast<std::uint32_t>(state_.batches_done + 1));
  context.observations = &outcome.observations;
  const auto objective = [&] {
    return scale_objective(objective_.loss(state_.epoch, state_.batch, context), context, outcome);
  };
  if (autocast_)
    autocast_->backward(objective);
  else
    backward(objective());
  return outcome;
}

/// Returns the loss of a batch: the objective's, and the auxiliary losses that layers left in the
/// context.
Tensor Trainer::scale_objective(const Loss& batch, const Context& context, BatchOutcome& outcome) {
  check(batch.sum.defined() && batch.sum.count() == 1, "trainer: the loss of a batch must have one element");
  if (batch.count <= 0)
    fail("trainer: batch ", state_.batch, " of epoch ", state_.epoch, " has ", batch.count, " ",
         objective_.unit(), "; leave such batches out");
  const auto count = static_cast<double>(batch.count);
  outcome.count = batch.count;
  outcome.terms.push_back({"loss", batch.sum.detach()});
  Tensor sum = batch.sum;
  for (const AuxiliaryLoss& auxiliary : context.losses) {
    const Tensor value = reshape(auxiliary.value, sum.shape());
    outcome.terms.push_back({auxiliary.name, value.detach() * count});
    auxiliary_weights_[auxiliary.name] = auxiliary.weight;
    sum = sum + value * (auxiliary.weight * count);
  }
  return sum;
}

void Trainer::advance() {
  ++state_.batches_done;
  if (++state_.batch < batches_in(objective_, state_.epoch)) return;
  state_.batch = 0;
  ++state_.epoch;
}

double Trainer::learning_rate() const {
  const std::int64_t step = state_.step + 1;
  const double rate = schedule_(step, steps_);
  check(std::isfinite(rate) && rate >= 0, "trainer: the learning rate of step ", step, " is ", rate,
        "; it must be a finite number that is not negative");
  return rate;
}

LossScale* Trainer::loss_scale() {
  return autocast_ ? autocast_->loss_scale() : nullptr;
}

/// Returns the steps between evaluations that are only shown; 0: there are enough others.
std::int64_t Trainer::shown_interval() const {
  constexpr std::int64_t least = 20;
  const std::int64_t every = options_.evaluate_every, wanted = options_.shown_evaluations;
  return every > 0 && ceil_div(steps_, every) < wanted ? std::max(steps_ / wanted, least) : 0;
}

/// Throws if a step was not finite. Waits for the device.
void Trainer::check_finite() {
  try {
    guard_.check(meter_);
  } catch (const Error&) {
    optimizer_.zero_gradients();
    throw;
  }
}

// --- starting, resuming, evaluating and saving a run

void Trainer::open(RunFolder* folder) {
  const bool is_first = !exchange_ || exchange_->is_first();
  folder_ = is_first ? folder : nullptr;
  saves_ = any_rank(folder_ != nullptr);
  if (load()) check_resumed();
  if (folder_) folder_->write_config();
  if (options_.precision != Precision::f32)
    autocast_ = std::make_unique<Autocast>(objective_.model(), options_.precision, state_.loss_scale);
  optimizer_.compute_in(dtype_in(options_.precision), matmul_precision_in(options_.precision));
  watch_->open(folder_, batches_in(objective_, 0));
  if (const std::string remark = precision_remark(options_.precision, device_); !remark.empty())
    watch_->say(remark);
  if (const int count = exchange_ ? exchange_->count() : 1; options_.accumulation < count)
    watch_->say(concat_text("a step has ", options_.accumulation, " batches (training.accumulation), so ",
                            count - options_.accumulation, " of ", count, " ranks have nothing to compute"));
}

/// Loads the folder's checkpoint, which only rank 0 reads, and copies the initial weights to all ranks.
/// Returns false if there is no checkpoint.
bool Trainer::load() {
  std::map<std::string, Tensor> moments;
  std::string text;
  if (folder_ && folder_->has_checkpoint()) {
    state_ = load_checkpoint(*folder_, parts(moments));
    if (!exchange_) return true;
    text = trainer_state_text(state_);
  }
  if (!exchange_) return false;
  text = exchange_->broadcast(text);
  exchange_->broadcast_model();
  if (average_) average_->load_state(exchange_->broadcast(average_->state()));
  if (text.empty()) return false;
  if (!exchange_->is_first()) state_ = parse_trainer_state(text, "the state of rank 0");
  optimizer_.load_state(exchange_->deal(moments));
  check(optimizer_.steps() == state_.step, "cannot resume: the optimizer counts ", optimizer_.steps(),
        " steps, but the run ", state_.step);
  return true;
}

void Trainer::check_resumed() {
  check(state_.seed == options_.seed, "cannot resume: the seed is ", options_.seed,
        ", but the run was started with ", state_.seed);
  check(state_.step <= steps_, "cannot resume: the run has made ", state_.step,
        " steps, but this training ends after ", steps_,
        "; set training.steps to at least as many, or start a new run");
  const std::int64_t batches = batches_in(objective_, state_.epoch);
  check(batches == state_.epoch_batches, "cannot resume: epoch ", state_.epoch, " has ", batches,
        " batches, but had ", state_.epoch_batches,
        " when the checkpoint was made; the data or the batching changed");
  meter_.restore(state_.losses_since_record, state_.tokens_since_record);
  watch_->say(concat_text("resuming from step ", state_.step, " of ", steps_, " (epoch ", state_.epoch,
                          ", batch ", state_.batch, " of ", batches, ")"));
  if (const std::string platform = platform_name(device_, options_.precision); platform != state_.platform)
    watch_->say(concat_text("the checkpoint was made with ", state_.platform,
                            ", and training continues with ", platform,
                            ": the last bits of results may differ from an uninterrupted run"));
}

/// Returns rank 0's measurement, computed with the help of the other ranks. `sample`: as Objective::sample().
Evaluation Trainer::measure(std::int64_t sample) {
  const NoGrad no_grad;
  const WithMatmulPrecision products(answer_precision_in(options_.precision));
  const AveragedWeights averaged(average_.get());
  objective_.set_sample(sample);
  objective_.ranks_ = exchange_ ? &exchange_->ranks() : nullptr;
  Evaluation evaluation = objective_.evaluate();
  objective_.ranks_ = nullptr;
  objective_.set_sample(0);
  return exchange_ ? exchange_->broadcast(std::move(evaluation)) : evaluation;
}

void Trainer::save(bool as_best) {
  if (!saves_) return;
  std::map<std::string, Tensor> moments;
  if (exchange_) moments = exchange_->gather(optimizer_.state());
  if (!folder_) return;
  check_finite();
  check_weights(optimizer_.parameters(), state_.step);
  if (loss_scale()) state_.loss_scale = autocast_->loss_scale_state();
  state_.losses_since_record = meter_.sums();
  state_.tokens_since_record = meter_.tokens();
  state_.epoch_batches = batches_in(objective_, state_.epoch);
  state_.platform = platform_name(device_, options_.precision);
  watch_->save();
  const bool only_averages = average_ && !watch_->evaluates();
  save_checkpoint(*folder_, parts(moments), state_, as_best || only_averages);
  check_files();
}

/// Throws if the folder was moved or files were removed during training.
void Trainer::check_files() const {
  folder_->check_in_place();
  for (const auto& [name, file] : state_.files) folder_->check_file_exists(name);
}

/// Throws if the finished run cannot be opened.
void Trainer::check_run() {
  if (!folder_) return;
  check_files();
  const auto run = RunFiles::open(folder_->path(), folder_->verifies());
  if (folder_->verifies()) run->check_files();
}

bool Trainer::any_rank(bool mine) {
  return exchange_ ? exchange_->any(mine) : mine;
}

}  // namespace heed
