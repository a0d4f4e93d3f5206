#include "heed/training/moving_average.h"

#include <algorithm>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/backend.h"
#include "heed/training/model_file.h"

namespace heed {
namespace {

Tensor copy_of(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
  backend_of(tensor).copy(tensor.detach(), copy);
  return copy;
}

}  // namespace

MovingAverage::MovingAverage(std::vector<NamedTensor> parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  check(decay > 0 && decay < 1, "moving average: the decay is ", decay, "; it must lie between 0 and 1");
  for (const NamedTensor& parameter : parameters_) averages_.push_back(copy_of(*parameter.tensor));
}

void MovingAverage::update(std::int64_t step) {
  const NoGrad no_grad;
  const double warm = (1 + static_cast<double>(step)) / (10 + static_cast<double>(step));
  const double share = 1 - std::min(decay_, warm);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages_[i] = averages_[i] + (parameters_[i].tensor->detach() - averages_[i]) * share;
  }
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
    saved_.push_back(copy_of(weight));
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
