#include "heed/training/loss_meter.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

void LossMeter::add(const std::string& name, const Tensor& sum) {
  const NoGrad no_grad;
  Tensor& total = sums_[name];
  if (!total.defined()) {
    const auto earlier = restored_.find(name);
    const double start = earlier == restored_.end() ? 0 : earlier->second;
    total = Tensor::full(sum.shape(), start, sum.dtype(), sum.device());
    restored_.erase(name);
  }
  total = total + sum.detach();
}

std::map<std::string, double> LossMeter::sums() const {
  std::map<std::string, double> values = restored_;
  for (const auto& [name, total] : sums_) values[name] = total.item();
  return values;
}

void LossMeter::restore(const std::map<std::string, double>& sums, std::int64_t tokens) {
  clear();
  restored_ = sums;
  tokens_ = tokens;
}

void LossMeter::clear() {
  sums_.clear();
  restored_.clear();
  tokens_ = 0;
}

}  // namespace heed
