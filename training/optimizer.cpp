#include "heed/training/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>
#include <tuple>
#include <utility>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/names.h"
#include "heed/core/backend.h"
#include "heed/text/safetensors.h"
#include "heed/training/step.h"

namespace heed {

static double rate_at(const ScheduleOptions& options, std::int64_t step, std::int64_t steps) {
  check(step >= 1, "schedule: steps count from 1, got ", step);
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

Schedule make_schedule(const ScheduleOptions& options) {
  check_ranges("schedule", options);
  check(options.final_rate <= options.learning_rate, "schedule: final_rate is ", options.final_rate,
        "; it must not be above learning_rate, ", options.learning_rate);
  return [options](std::int64_t step, std::int64_t steps) { return rate_at(options, step, steps); };
}

double learning_rate_at(const ScheduleOptions& options, std::int64_t step, std::int64_t steps) {
  return make_schedule(options)(step, steps);
}

namespace {

constexpr NameTable<OptimizerKind, 4> optimizer_kinds{"optimizer",
                                                      {{{"sgd", OptimizerKind::sgd},
                                                        {"adam", OptimizerKind::adam},
                                                        {"adamw", OptimizerKind::adamw},
                                                        {"muon", OptimizerKind::muon}}}};

/// Returns zeros like the parameters; undefined for those that are not `wanted`.
std::vector<Tensor> zeros_like(const std::vector<NamedTensor>& parameters, const auto& wanted) {
  std::vector<Tensor> zeros(parameters.size());
  for (std::size_t i = 0; i < zeros.size(); ++i) {
    const Tensor& tensor = *parameters[i].tensor;
    if (wanted(i)) zeros[i] = Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device());
  }
  return zeros;
}

bool is_matrix(const Tensor& tensor) {
  return tensor.rank() == 2 && tensor.size(0) > 1 && tensor.size(1) > 1 && is_hidden_map(tensor);
}

/// Appends the moments to a list, naming them with the prefix "first_moment." or "second_moment.".
void append(std::vector<std::pair<std::string, Tensor>>& list, const char* prefix,
            const std::vector<NamedTensor>& parameters, const std::vector<Tensor>& moments) {
  for (std::size_t i = 0; i < moments.size(); ++i)
    if (moments[i].defined()) list.emplace_back(prefix + parameters[i].name, moments[i]);
}

void check_distinct(const std::vector<NamedTensor>& parameters) {
  std::set<std::string_view> names;
  std::set<const Tensor*> tensors;
  std::set<const Node*> leaves;  // one leaf may be given through several handles, as with tied weights
  for (const NamedTensor& parameter : parameters) {
    check(names.insert(parameter.name).second, "optimizer: two parameters are called \"", parameter.name,
          "\", so the moments of one would be lost");
    const Node* leaf =
        parameter.tensor && parameter.tensor->tracked() ? parameter.tensor->node().get() : nullptr;
    check(tensors.insert(parameter.tensor).second && (!leaf || leaves.insert(leaf).second),
          "optimizer: parameter \"", parameter.name, "\" is given twice");
  }
}

std::vector<NamedTensor> list_parameters(std::span<const ParameterGroup> groups) {
  std::vector<NamedTensor> all;
  for (const ParameterGroup& group : groups)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

}  // namespace

void check_in_f32(std::string_view name, double value) {
  check(value == 0 || (std::abs(value) >= least_in_f32 && std::abs(value) <= most_in_f32), name, " is ",
        value, ", which f32 cannot distinguish from 0 or infinity; it must be 0, or ", least_in_f32, " to ",
        most_in_f32);
}

std::vector<std::string> optimizer_names() {
  return optimizer_kinds.names();
}

OptimizerKind optimizer_kind(std::string_view name) {
  return optimizer_kinds.find(name);
}

std::string_view name_of(OptimizerKind kind) {
  return optimizer_kinds.name_of(kind);
}

bool lies_in(std::string_view parameter, std::string_view part) {
  return parameter.starts_with(part) && (parameter.size() == part.size() || parameter[part.size()] == '.');
}

void check_part(Module& model, std::string_view part, std::string_view wanted) {
  std::vector<std::string> known;
  for (const NamedTensor& each : model.state()) {
    if (lies_in(each.name, part)) return;
    const std::string its_part = each.name.substr(0, each.name.find('.'));
    if (std::ranges::count(known, its_part) == 0) known.push_back(its_part);
  }
  fail("the model has no part \"", part, "\" ", wanted, "; it has ", listed(known));
}

TrainedParameters trained_parameters(Module& model, std::span<const PartRate> part_rates) {
  const std::vector<NamedTensor> all = model.parameters();
  for (const PartRate& one : part_rates) {
    check(std::isfinite(one.rate) && one.rate >= 0, "the learning rate of part \"", one.part, "\" is ",
          one.rate, " times the schedule's; it must not be negative");
    check(std::ranges::count(part_rates, one.part, &PartRate::part) == 1, "part \"", one.part,
          "\" of the model is given two learning rates");
    check_part(model, one.part, "to freeze or to give a learning rate");
  }
  TrainedParameters trained;
  for (const NamedTensor& each : all) {
    const PartRate* longest = nullptr;
    for (const PartRate& one : part_rates)
      if (lies_in(each.name, one.part) && (!longest || one.part.size() > longest->part.size()))
        longest = &one;
    if (longest && longest->rate == 0) {
      *each.tensor = each.tensor->detach();
      continue;
    }
    trained.parameters.push_back(each);
    trained.rates.push_back(longest ? longest->rate : 1);
  }
  check(!trained.parameters.empty(), "all parts of the model are frozen: nothing is left to train");
  return trained;
}

Optimizer::Optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options,
                     std::vector<double> rates, std::vector<bool> owned)
    : parameters_(std::move(parameters)),
      rates_(std::move(rates)),
      owned_(std::move(owned)),
      options_(options) {
  check_ranges("optimizer", options_);
  check_in_f32("optimizer: weight_decay", options_.weight_decay);
  check_distinct(parameters_);
  const bool decouples = options_.kind == OptimizerKind::adamw || options_.kind == OptimizerKind::muon;
  const bool spares_vectors = decouples && !options_.decay_vectors;
  if (rates_.empty()) rates_.assign(parameters_.size(), 1);
  check(rates_.size() == parameters_.size(), "optimizer: ", rates_.size(), " learning rates for ",
        parameters_.size(), " parameters");
  check(owned_.empty() || owned_.size() == parameters_.size(), "optimizer: ", owned_.size(), " owners for ",
        parameters_.size(), " parameters");
  check(!parameters_.empty(), "optimizer: there are no parameters to train");
  for (const double rate : rates_) {
    check(std::isfinite(rate) && rate >= 0, "optimizer: the rate of a parameter is ", rate,
          "; it must be finite and not negative");
    check_in_f32("optimizer: the rate of a parameter", rate);
  }
  for (const NamedTensor& parameter : parameters_) {
    check(parameter.tensor != nullptr, "optimizer: \"", parameter.name,
          "\" has a null address instead of a tensor");
    const Tensor& tensor = *parameter.tensor;
    check(tensor.defined() && tensor.tracked() && tensor.is_contiguous(), "optimizer: \"", parameter.name,
          "\" is not a contiguous tracked leaf; make it with heed::parameter()");
    check(tensor.device() == parameters_[0].tensor->device(), "optimizer: \"", parameter.name, "\" is on ",
          tensor.device(), ", but \"", parameters_[0].name, "\" is on ", parameters_[0].tensor->device());
    shapes_.push_back(tensor.shape());
    matrices_.push_back(options_.kind == OptimizerKind::muon && is_matrix(tensor));
    decays_.push_back(spares_vectors && tensor.rank() < 2 ? 0 : options_.weight_decay);
  }
  const bool is_sgd = options_.kind == OptimizerKind::sgd;
  const auto is_own = [this](std::size_t i) { return owned_.empty() || owned_[i]; };
  if (!is_sgd || options_.beta1 > 0) first_moment_ = zeros_like(parameters_, is_own);
  if (!is_sgd)
    second_moment_ = zeros_like(parameters_, [&](std::size_t i) { return is_own(i) && !matrices_[i]; });
}

Optimizer::Optimizer(std::span<const ParameterGroup> groups, const OptimizerOptions& options)
    : Optimizer(list_parameters(groups), options) {
  std::size_t i = 0;
  for (const ParameterGroup& group : groups) {
    check(std::isfinite(group.rate) && group.rate >= 0, "optimizer: the rate of a group is ", group.rate,
          "; it must be finite and not negative");
    const double decay = group.weight_decay.value_or(0);
    check(std::isfinite(decay) && decay >= 0, "optimizer: the weight_decay of a group is ", decay,
          "; it must be finite and not negative");
    check_in_f32("optimizer: the rate of a group", group.rate);
    check_in_f32("optimizer: the weight_decay of a group", decay);
    for (std::size_t k = 0; k < group.parameters.size(); ++k, ++i) {
      rates_[i] = group.rate;
      if (group.weight_decay) decays_[i] = *group.weight_decay;
    }
  }
}

void Optimizer::clip(double limit) {
  check(limit > 0, "optimizer: the limit of the gradient's norm is ", limit, "; it must be positive");
  clip_ = GradientNorm(parameters_).scale(limit);
}

/// Throws if a parameter's member was assigned another tensor, since the moments belong to the old
/// one.
void Optimizer::check_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& tensor = *parameters_[i].tensor;
    check(tensor.defined() && tensor.tracked() && tensor.is_contiguous() && tensor.shape() == shapes_[i],
          "optimizer: \"", parameters_[i].name, "\" is no longer the contiguous leaf of shape ", shapes_[i],
          " that the optimizer was created with; make a new optimizer");
    if (first_moment_.empty() || !first_moment_[i].defined()) continue;
    const Tensor& moment = first_moment_[i];
    check(moment.device() == tensor.device() && moment.dtype() == tensor.dtype(), "optimizer: \"",
          parameters_[i].name, "\" is ", tensor.dtype(), " on ", tensor.device(),
          ", and what the optimizer keeps of it ", moment.dtype(), " on ", moment.device(),
          "; make a new optimizer");
  }
}

void Optimizer::step(double learning_rate, const Tensor& gradient_scale, const Tensor& skip) {
  check(std::isfinite(learning_rate) && learning_rate >= 0, "optimizer: the learning rate is ", learning_rate,
        "; it must be finite and not negative");
  check_parameters();
  const auto has_gradient = [](const NamedTensor& one) { return gradient(*one.tensor).defined(); };
  check(!owned_.empty() || std::ranges::any_of(parameters_, has_gradient),
        "optimizer: no parameter has a gradient; call backward() before step()");
  OptimizerStep update;
  const Tensor clip = std::exchange(clip_, {});
  update.gradient_scale = gradient_scale.defined() ? gradient_scale : clip;
  update.skip = skip;
  update.beta1 = options_.beta1;
  update.beta2 = options_.beta2;
  update.epsilon = options_.epsilon;
  update.decoupled_decay = options_.kind == OptimizerKind::adamw || options_.kind == OptimizerKind::muon;
  update.step = steps_ + 1;

  std::set<Group> groups;
  for (std::size_t i = 0; i < rates_.size(); ++i) groups.insert(parameter_group(i));
  for (const Group& group : groups) {
    const auto [rate, decay, of_matrices, dtype] = group;
    update.learning_rate = learning_rate * rate * (of_matrices ? options_.muon.rate : 1);
    update.weight_decay = decay;
    step_group(group, update);
  }
  ++steps_;
}

Optimizer::Group Optimizer::parameter_group(std::size_t i) const {
  return {rates_[i], decays_[i], matrices_[i], parameters_[i].tensor->dtype()};
}

void Optimizer::step_group(const Group& group, OptimizerStep& update) {
  const bool of_matrices = std::get<2>(group);
  std::vector<Tensor> weights, gradients, first, second;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& weight = *parameters_[i].tensor;
    const bool is_due = parameter_group(i) == group && (owned_.empty() || owned_[i]);
    const Tensor grad = is_due ? gradient(weight) : Tensor();
    if (!grad.defined()) continue;
    weights.push_back(weight.detach());
    gradients.push_back(contiguous(grad.detach()));
    if (!first_moment_.empty()) first.push_back(first_moment_[i]);
    if (!second_moment_.empty() && !of_matrices) second.push_back(second_moment_[i]);
  }
  if (weights.empty()) return;
  update.parameters = weights;
  update.gradients = gradients;
  update.first_moment = first;
  update.second_moment = second;
  const Backend& backend = backend_of(weights[0]);
  if (of_matrices)
    muon(update, options_.muon, products_);
  else if (options_.kind == OptimizerKind::sgd)
    backend.sgd(update);
  else
    backend.adam(update);
  for (const Tensor& weight : weights) weight.storage()->overwritten();
}

void Optimizer::zero_gradients() {
  for (const NamedTensor& parameter : parameters_) zero_gradient(*parameter.tensor);
}

std::map<std::string, Tensor> Optimizer::state() const {
  check(steps_ <= std::numeric_limits<std::int32_t>::max(), "optimizer: too many steps to save: ", steps_);
  std::vector<std::pair<std::string, Tensor>> list;
  append(list, "first_moment.", parameters_, first_moment_);
  append(list, "second_moment.", parameters_, second_moment_);
  std::map<std::string, Tensor> state(list.begin(), list.end());
  state["steps"] = Tensor::from(std::vector<std::int32_t>{static_cast<std::int32_t>(steps_)}, {1});
  return state;
}

void Optimizer::check_state(const std::map<std::string, Tensor>& state) const {
  const std::map<std::string, Tensor> own = this->state();
  const std::vector<std::pair<std::string, Tensor>> targets(own.begin(), own.end());
  check_named_tensors(state, targets, concat_text("state of the ", name_of(options_.kind), " optimizer"));
  check(state.at("steps").item() >= 0, "optimizer state: the number of steps is negative");
}

void Optimizer::load_state(const std::map<std::string, Tensor>& state) {
  check_state(state);
  for (const auto& [name, own] : this->state()) copy_elements(state.at(name), own);
  steps_ = static_cast<std::int64_t>(state.at("steps").item());
}

static Tensor copy_tensor(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
  backend_of(tensor).copy(tensor.detach(), copy);
  return copy;
}

MovingAverage::MovingAverage(std::vector<NamedTensor> parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  check(decay > 0 && decay < 1, "moving average: the decay is ", decay, "; it must lie between 0 and 1");
  for (const NamedTensor& parameter : parameters_) averages_.push_back(copy_tensor(*parameter.tensor));
}

void MovingAverage::update(std::int64_t step) {
  const NoGrad no_grad;
  const double warm = (1 + static_cast<double>(step)) / (10 + static_cast<double>(step));
  const double share = 1 - std::min(decay_, warm);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    averages_[i] = averages_[i] + (parameters_[i].tensor->detach() - averages_[i]) * share;
}

std::map<std::string, Tensor> MovingAverage::state() const {
  std::map<std::string, Tensor> state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) state[parameters_[i].name] = averages_[i];
  return state;
}

void MovingAverage::load_state(const std::map<std::string, Tensor>& state) {
  std::vector<std::pair<std::string, Tensor>> targets;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    targets.emplace_back(parameters_[i].name, averages_[i]);
  copy_named_tensors(state, targets, "moving average of the weights");
}

AveragedWeights::AveragedWeights(const MovingAverage* average) : average_(average) {
  if (!average_) return;
  for (std::size_t i = 0; i < average_->parameters_.size(); ++i) {
    const Tensor weight = average_->parameters_[i].tensor->detach();
    saved_.push_back(copy_tensor(weight));
    backend_of(weight).copy(average_->averages_[i], weight);
    weight.storage()->overwritten();
  }
}

AveragedWeights::~AveragedWeights() {
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    const Tensor weight = average_->parameters_[i].tensor->detach();
    backend_of(weight).copy(saved_[i], weight);
    weight.storage()->overwritten();
  }
}

}  // namespace heed
