#include "heed/models/module.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/low_precision.h"

namespace heed {
namespace {

template <class T>
Tensor upload_copy(const Tensor& x, Device device) {
  return Tensor::from(x.to_vector<T>(), x.shape(), device);
}

/// A contiguous copy of a floating tensor with memory of its own, converted on the host, the only device
/// with f64.
Tensor converted(const Tensor& x, DType dtype, Device device) {
  const Tensor copy = x.dtype() == DType::f64 ? upload_copy<double>(x, {}) : upload_copy<float>(x, {});
  const Tensor cast_copy = copy.dtype() == dtype ? copy : cast(copy, dtype);
  if (device.type == DeviceType::cpu) return cast_copy;
  return dtype == DType::f64 ? upload_copy<double>(cast_copy, device) : upload_copy<float>(cast_copy, device);
}

/// Throws unless `name` is unused in the module that `owner` describes.
void check_new_name(const std::string& owner, const char* kind, const std::string& name,
                    std::span<const NamedTensor> parameters, std::span<const NamedTensor> buffers,
                    std::span<const std::pair<std::string, Module*>> parts) {
  check(!name.empty(), owner, ": a ", kind, " needs a name");
  const auto taken = [&](const NamedTensor& one) { return one.name == name; };
  const bool is_taken = std::ranges::any_of(parameters, taken) || std::ranges::any_of(buffers, taken) ||
                        std::ranges::any_of(parts, [&](const auto& one) { return one.first == name; });
  check(!is_taken, owner, ": the ", kind, " '", name, "' has the name of another parameter, buffer or part");
}

}  // namespace

bool is_hidden_map(const Tensor& leaf) {
  return is_leaf(leaf) && leaf.node()->marked;
}

void set_hidden_map(const Tensor& leaf, bool is_map) {
  check(is_leaf(leaf), "set_hidden_map: the tensor is not a leaf made by parameter()");
  leaf.node()->marked = is_map;
}

std::vector<NamedTensor> Module::collected(std::vector<NamedTensor> Module::*list) {
  std::vector<NamedTensor> out;
  std::unordered_set<const Tensor*> seen;
  const auto collect = [&](auto& self, Module& module, const std::string& prefix) -> void {
    for (const NamedTensor& own : module.*list)
      if (seen.insert(own.tensor).second) out.push_back({prefix + own.name, own.tensor});
    for (const auto& [name, part] : module.parts_) self(self, *part, prefix + name + ".");
  };
  collect(collect, *this, "");
  return out;
}

std::vector<NamedTensor> Module::state() {
  std::vector<NamedTensor> out = parameters();
  for (NamedTensor& buffer : buffers()) out.push_back(std::move(buffer));
  return out;
}

void Module::to(DType dtype, Device device) {
  check(is_floating(dtype), "a model's parameters must be f32 or f64, not ", dtype);
  const NoGrad no_grad;
  for (const NamedTensor& entry : parameters()) {
    const bool hidden_map = is_hidden_map(*entry.tensor);
    *entry.tensor = parameter(converted(entry.tensor->detach(), dtype, device));
    set_hidden_map(*entry.tensor, hidden_map);
  }
  for (const NamedTensor& entry : buffers()) {
    Tensor& buffer = *entry.tensor;
    if (is_floating(buffer.dtype())) buffer = converted(buffer, dtype, device);
  }
}

void Module::state_changed() {
  forget();
  for (const auto& [name, part] : parts_) part->state_changed();
}

void Module::freeze() {
  for_each_part([](Module& part) {
    for (NamedTensor& own : part.parameters_) {
      *own.tensor = own.tensor->detach();
      part.buffers_.push_back(std::move(own));
    }
    part.parameters_.clear();
  });
}

void Module::round_to_int8() {
  round_matrices(heed::round_to_int8, "8 bits");
}

void Module::round_to_bf16() {
  round_matrices(heed::round_to_bf16, "bf16");
}

void Module::round_matrices(void (*round)(const Tensor&), const char* format) {
  std::vector<NamedTensor> matrices;
  for (const NamedTensor& named : parameters()) {
    const Tensor& member = *named.tensor;
    if (member.rank() != 2) continue;
    check(member.device().type == DeviceType::cpu && member.dtype() == DType::f32, "\"", named.name, "\" is ",
          member.dtype(), " on ", member.device(), "; weights in ", format, " are for f32 on the CPU");
    matrices.push_back(named);
  }
  for (const NamedTensor& named : matrices) {
    try {
      round(*named.tensor);
    } catch (Error& error) {
      error.add_context(concat_text("\"", named.name, "\": "));
      state_changed();  // some matrices have been rounded already
      throw;
    }
  }
  state_changed();
}

void Module::for_each_part(const std::function<void(Module&)>& visit) {
  visit(*this);
  for (const auto& [name, part] : parts_) part->for_each_part(visit);
}

void Module::absorb(std::span<const Tensor>) {
  fail(described("module"), ": it has no buffers that absorb() could update");
}

Module* Module::find(std::string_view path) {
  if (this->path() == path) return this;
  for (const auto& [name, part] : parts_)
    if (Module* found = part->find(path)) return found;
  return nullptr;
}

std::int64_t Module::parameter_count() {
  std::int64_t count = 0;
  for (const NamedTensor& entry : parameters()) {
    std::int64_t own = 1;
    for (const std::int64_t extent : entry.tensor->shape()) own = checked_product(entry.name, own, extent);
    count = checked_sum("the number of parameters", count, own);
  }
  return count;
}

std::string Module::path() const {
  if (!parent_) return name_;
  const std::string above = parent_->path();
  return above.empty() ? name_ : above + "." + name_;
}

std::string Module::described(const char* kind) const {
  const std::string where = path();
  return where.empty() ? std::string(kind) : where + " (" + kind + ")";
}

void Module::add_parameter(std::string name, Tensor& member, const Tensor& initial, bool hidden_map) {
  check_new_name(described("module"), "parameter", name, parameters_, buffers_, parts_);
  member = parameter(initial);
  set_hidden_map(member, hidden_map);
  parameters_.push_back({std::move(name), &member});
}

void Module::add_buffer(std::string name, Tensor& member, const Tensor& initial) {
  check_new_name(described("module"), "buffer", name, parameters_, buffers_, parts_);
  member = initial.detach();
  buffers_.push_back({std::move(name), &member});
}

void Module::add_module(std::string name, Module& part) {
  check_new_name(described("module"), "part", name, parameters_, buffers_, parts_);
  check(&part != this, described("module"), ": \"", name, "\" is the module itself, not a part of it");
  part.for_each_part([&](const Module& below) {
    check(&below != this, described("module"), ": \"", name, "\" contains the module to which it is added");
  });
  if (!part.parent_) {
    part.parent_ = this;
    part.name_ = name;
  }
  parts_.emplace_back(std::move(name), &part);
}

Tensor Capture::find(std::string_view name) const {
  Tensor found;
  for (const Entry& entry : entries)
    if (entry.name == name) found = entry.value;
  return found;
}

void Context::observe(Module& layer, std::vector<Tensor> values) {
  if (observations)
    observations->push_back({&layer, std::move(values)});
  else
    layer.absorb(values);
}

Tensor Context::auxiliary_loss() const {
  Tensor total;
  for (const AuxiliaryLoss& loss : losses) {
    check(loss.value.count() == 1, "auxiliary loss '", loss.name, "' must have one element, has shape ",
          loss.value.shape());
    const Tensor term = reshape(loss.value, {}) * loss.weight;
    total = total.defined() ? total + term : term;
  }
  return total;
}

Context StepContexts::next() {
  check(step_ < std::numeric_limits<std::uint32_t>::max(), "StepContexts: no step comes after number ",
        step_);
  return Context::train(seed_, ++step_);
}

Tensor ShapesOnly::tensor(const Shape& shape, DType dtype) {
  std::int64_t count = 1;
  Shape strides;
  for (const std::int64_t extent : shape) {
    count = checked_product("the size of a parameter", count, extent);
    strides.push_back(0);
  }
  return Tensor::zeros({1}, dtype).view(shape, strides, 0);
}

ModuleGradcheckResult gradcheck(Module& module,
                                const std::function<Tensor(std::span<const Tensor>)>& function,
                                std::vector<Tensor> inputs, double tolerance, double step,
                                std::int64_t max_elements) {
  check(static_cast<bool>(function), "gradcheck: the function is empty");
  const std::vector<NamedTensor> parameters = module.parameters();
  const std::size_t count = inputs.size();
  std::vector<Tensor> before;
  for (const NamedTensor& entry : parameters) {
    check(entry.tensor->dtype() == DType::f64, "gradcheck: parameter '", entry.name, "' has type ",
          entry.tensor->dtype(), "; finite differences need f64: module.to(DType::f64, {})");
    before.push_back(*entry.tensor);
    inputs.push_back(entry.tensor->detach());
  }
  const auto set = [&](std::span<const Tensor> values) {
    for (std::size_t i = 0; i < parameters.size(); ++i) *parameters[i].tensor = values[i];
    module.state_changed();
  };
  ModuleGradcheckResult result;
  try {
    static_cast<GradcheckResult&>(result) = gradcheck(
        [&](std::span<const Tensor> values) {
          set(values.subspan(count));
          return function(values.first(count));
        },
        inputs, tolerance, step, max_elements);
  } catch (...) {
    set(before);
    throw;
  }
  set(before);
  const auto worst = static_cast<std::size_t>(result.worst_input);
  if (result.worst_input >= 0)
    result.worst_name = worst < count ? concat_text("input ", worst) : parameters[worst - count].name;
  return result;
}

RandomKey Initialiser::next() {
  const RandomKey key = key_;
  ++key_.op;
  return key;
}

Tensor Initialiser::uniform(const Shape& shape, double low, double high) {
  const RandomKey key = next();
  return ShapesOnly::active() ? ShapesOnly::tensor(shape) : heed::uniform(shape, low, high, key);
}

Tensor Initialiser::normal(const Shape& shape, double deviation) {
  const RandomKey key = next();
  return ShapesOnly::active() ? ShapesOnly::tensor(shape) : heed::normal(shape, 0, deviation, key);
}

Tensor Initialiser::constant(const Shape& shape, double value, DType dtype) {
  return ShapesOnly::active() ? ShapesOnly::tensor(shape, dtype) : Tensor::full(shape, value, dtype);
}

Tensor Initialiser::xavier_uniform(const Shape& shape, std::int64_t fan_in, std::int64_t fan_out,
                                   double gain) {
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
  return uniform(shape, -bound, bound);
}

Tensor Initialiser::linear_weight(std::int64_t out, std::int64_t in, double gain) {
  return maps_ == LinearInit::xavier ? xavier_uniform(out, in, gain)
                                     : kaiming_uniform({out, in}, in, gain / std::sqrt(3.0));
}

Tensor Initialiser::linear_bias(std::int64_t out, std::int64_t in) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return maps_ == LinearInit::xavier ? constant({out}, 0) : uniform({out}, -bound, bound);
}

Tensor Initialiser::kaiming_uniform(const Shape& shape, std::int64_t fan_in, double gain) {
  const double bound = gain * std::sqrt(3.0 / static_cast<double>(fan_in));
  return uniform(shape, -bound, bound);
}

Tensor Initialiser::kaiming_normal(const Shape& shape, std::int64_t fan_in, double gain) {
  return normal(shape, gain / std::sqrt(static_cast<double>(fan_in)));
}

Tensor Initialiser::orthogonal(std::int64_t out, std::int64_t in, double gain) {
  const std::int64_t count = std::min(out, in), width = std::max(out, in);
  const Tensor drawn = normal({count, width}, 1);
  if (ShapesOnly::active()) return ShapesOnly::tensor({out, in});
  // Gram and Schmidt's method in f64; the second pass removes what rounding left of the first.
  std::vector<double> rows = drawn.to_doubles();
  const auto row = [&](std::int64_t i) { return rows.begin() + i * width; };
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t pass = 0; pass < 2 * i; ++pass) {
      const auto other = row(pass % i);
      const double along = std::inner_product(other, other + width, row(i), 0.0);
      for (std::int64_t j = 0; j < width; ++j) row(i)[j] -= along * other[j];
    }
    const double length = std::sqrt(std::inner_product(row(i), row(i) + width, row(i), 0.0));
    for (std::int64_t j = 0; j < width; ++j) row(i)[j] /= length;
  }
  const Tensor matrix = cast(Tensor::from(rows, {count, width}) * gain, DType::f32);
  return out <= in ? matrix : contiguous(transpose(matrix, 0, 1));
}

Tensor Initialiser::truncated_normal(const Shape& shape, double deviation, double bound) {
  check(bound >= 0.5, "truncated_normal: the bound must be at least 0.5 deviations, is ", bound);
  Tensor x = normal(shape, deviation);
  while (!ShapesOnly::active()) {  // values beyond the bound are drawn again
    const Tensor beyond = greater(abs(x), bound * deviation);
    if (sum(beyond).item() == 0) break;
    x = where(beyond, normal(shape, deviation), x);
  }
  return x;
}

std::uint64_t Initialiser::next_seed() {
  const auto words = philox(next(), 0);
  return (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
}

}  // namespace heed
