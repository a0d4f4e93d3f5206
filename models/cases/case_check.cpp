#include "heed/models/cases/adapters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed::verify {

double Deviation::badness() const {
  if (!problem.empty() || std::isnan(error)) return std::numeric_limits<double>::infinity();
  return allowed > 0 ? error / allowed : error > 0 ? std::numeric_limits<double>::infinity() : 0;
}

namespace {

/// |a - b| <= absolute + relative |b|, b the reference.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

/// The tolerances that the reference's description suggests.
struct Tolerances {
  Tolerance outputs, gradients;
  static Tolerances suggested(DType dtype);
};

Tolerances Tolerances::suggested(DType dtype) {
  if (dtype == DType::f64) return {{1e-9, 1e-9}, {1e-9, 1e-9}};
  return {{1e-5, 1e-4}, {1e-4, 1e-3}};
}

/// Compares element by element, indices with a tolerance of 0; NaN never passes.
Deviation compare(const std::string& name, const Tensor& ours, const Tensor& reference, Tolerance tolerance) {
  Deviation worst{name, 0, tolerance.absolute, {}};
  if (!ours.defined()) {
    worst.problem = "was not computed";
    return worst;
  }
  if (!(ours.shape() == reference.shape())) {
    worst.problem = concat_text("has shape ", ours.shape(), " instead of ", reference.shape());
    return worst;
  }
  const std::vector<double> values = ours.to_doubles(), expected = reference.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Deviation here{name,
                         std::abs(values[i] - expected[i]),
                         tolerance.absolute + tolerance.relative * std::abs(expected[i]),
                         {}};
    if (i == 0 || here.badness() > worst.badness()) worst = here;
  }
  return worst;
}

/// Our parameters by name, holding the values of the case.
std::map<std::string, Tensor*> load_parameters(const ReferenceCase& reference,
                                               const std::vector<ParameterName>& names, Attention& attention,
                                               Module* companion, DType dtype, Device device) {
  attention.to(dtype, device);
  std::map<std::string, Tensor*> tensors;
  for (const NamedTensor& named : attention.parameters()) tensors[named.name] = named.tensor;
  if (companion) {
    companion->to(dtype, device);
    for (const NamedTensor& named : companion->parameters())
      tensors["companion." + named.name] = named.tensor;
  }
  // A parameter the case is silent about would keep its random start and spoil the comparison.
  for (const auto& [name, tensor] : tensors)
    check(std::any_of(names.begin(), names.end(),
                      [&name = name](const ParameterName& n) { return n.ours == name; }),
          "our parameter ", name, " has no counterpart in the case");
  for (const NamedTensor& named : attention.buffers()) tensors[named.name] = named.tensor;
  for (const ParameterName& name : names) {
    const auto found = tensors.find(name.ours);
    check(found != tensors.end(), "parameter ", name.reference, " has no counterpart: the layer has no ",
          name.ours);
    Tensor value = convert(reference.at("param." + name.reference), dtype, device);
    if (name.transposed) value = contiguous(transpose(value, 0, 1));
    check(value.shape() == found->second->shape(), "parameter ", name.reference, " has shape ", value.shape(),
          ", our ", name.ours, " has ", found->second->shape());
    *found->second = found->second->tracked() ? parameter(value) : value;
  }
  return tensors;
}

CaseInputs load_inputs(const ReferenceCase& reference, DType dtype, Device device) {
  CaseInputs inputs;
  for (const std::string& name : reference.names("in.")) {
    const Tensor value = convert(reference.at("in." + name), dtype, device);
    if (name == "X")
      inputs.attention.x = parameter(value);
    else if (name == "Y")
      inputs.attention.memory = parameter(value);
    else if (name == "mask")
      inputs.attention.mask = value;
    else if (name == "mask_mem")
      inputs.attention.memory_mask = value;
    else
      inputs.special[name] = value;
  }
  return inputs;
}

/// sum over outputs of sum(cot * out) + sum of the auxiliary losses.
Tensor total_loss(const ReferenceCase& reference, const CaseOutputs& results, DType dtype, Device device) {
  Tensor loss = Tensor::zeros({1}, dtype, device);
  for (const auto& [name, output] : results.outputs)
    if (reference.has("cot." + name))
      loss = loss + sum(output * convert(reference.at("cot." + name), dtype, device));
  for (const auto& [name, value] : results.losses) loss = loss + sum(value);
  return loss;
}

Tensor find(const std::map<std::string, Tensor>& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

/// The gradient of a leaf; zeros where nothing depended on it.
Tensor gradient_or_zeros(const Tensor& leaf) {
  const Tensor collected = gradient(leaf);
  return collected.defined() ? collected : Tensor::zeros(leaf.shape(), leaf.dtype(), leaf.device());
}

class CaseCheck {
 public:
  CaseCheck(const ReferenceCase& reference, const Adapter& adapter, DType dtype, Device device)
      : reference_(reference), tolerances_(Tolerances::suggested(dtype)) {
    const std::vector<ParameterName> names = parameter_names(reference, adapter);
    const AttentionConfig config = layer_configuration(reference, adapter);
    const std::unique_ptr<Attention> attention =
        adapter.make ? adapter.make(reference, adapter, config) : make_attention(adapter.attention, config);
    const std::unique_ptr<Module> companion = adapter.companion ? adapter.companion(reference) : nullptr;
    const auto tensors = load_parameters(reference, names, *attention, companion.get(), dtype, device);
    CaseInputs inputs = load_inputs(reference, dtype, device);
    inputs.companion = companion.get();
    check(adapter.run || inputs.special.empty(), "the case has special inputs that variant ", adapter.variant,
          " does not read");

    Context context = Context::inference();
    const CaseOutputs results = adapter.run ? adapter.run(reference, *attention, inputs, context)
                                            : run_once(*attention, inputs, context);
    const Tensor loss = total_loss(reference, results, dtype, device);
    backward(loss);

    compare_values(results, loss);
    compare_input_gradients(inputs);
    compare_parameter_gradients(names, tensors);
  }

  const Deviation& worst() const { return worst_; }

 private:
  void note(const Deviation& deviation) {
    if (compared_++ == 0 || deviation.badness() > worst_.badness()) worst_ = deviation;
  }

  void compare_values(const CaseOutputs& results, const Tensor& loss) {
    for (const std::string& name : reference_.names("out."))
      note(compare("out." + name, find(results.outputs, name), reference_.at("out." + name),
                   tolerances_.outputs));
    for (const std::string& name : reference_.names("aux.")) {
      Tensor value = find(results.losses, name);
      if (value.defined()) value = reshape(value, {1});
      note(compare("aux." + name, value, reference_.at("aux." + name), tolerances_.outputs));
    }
    for (const std::string& name : reference_.names("disc."))
      if (const Tensor choice = find(results.discrete, name); choice.defined())
        note(compare("disc." + name, choice, reference_.at("disc." + name), {0, 0}));
    for (const auto& [name, value] : results.inside)
      if (const std::string expected = "mid." + name; reference_.has(expected))
        note(compare(expected, value, reference_.at(expected), tolerances_.outputs));
    note(compare("loss", loss, reference_.at("loss"), tolerances_.outputs));
  }

  void compare_input_gradients(const CaseInputs& inputs) {
    for (const std::string& name : reference_.names("grad.in.")) {
      const Tensor leaf = name == "X"   ? inputs.attention.x
                          : name == "Y" ? inputs.attention.memory
                                        : find(inputs.special, name);
      check(leaf.defined() && leaf.tracked(), "the case has a gradient of input ", name,
            ", which is not tracked");
      note(compare("grad.in." + name, gradient_or_zeros(leaf), reference_.at("grad.in." + name),
                   tolerances_.gradients));
    }
  }

  void compare_parameter_gradients(const std::vector<ParameterName>& names,
                                   const std::map<std::string, Tensor*>& tensors) {
    for (const ParameterName& name : names) {
      const std::string expected = "grad.param." + name.reference;
      const Tensor& leaf = *tensors.at(name.ours);
      if (!reference_.has(expected)) {
        check(!leaf.tracked(), "parameter ", name.reference, " is frozen in the case but trained by ours");
        continue;
      }
      if (!leaf.tracked()) {
        note({expected, 0, 0, "is missing: our " + name.ours + " is not trained"});
        continue;
      }
      Tensor ours = gradient_or_zeros(leaf);
      if (name.transposed) ours = transpose(ours, 0, 1);
      note(compare(expected, ours, reference_.at(expected), tolerances_.gradients));
    }
  }

  const ReferenceCase& reference_;
  Tolerances tolerances_;
  Deviation worst_;
  int compared_ = 0;
};

}  // namespace

Deviation worst_deviation(const ReferenceCase& reference, const Adapter& adapter, DType dtype,
                          Device device) {
  return CaseCheck(reference, adapter, dtype, device).worst();
}

}  // namespace heed::verify
