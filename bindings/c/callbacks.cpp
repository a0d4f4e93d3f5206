// The C API: functions of the caller's own that the library calls. A gradient check, an op with a derivative
// of its own, an attention mechanism.

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/base/fork.h"
#include "heed/c/handles.h"
#include "heed/models/attention/attention.h"

namespace heed::c {
namespace {

/// Handles that the caller's function borrows while this object lives; an undefined tensor is NULL.
class Lent {
 public:
  explicit Lent(std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors)
      handles_.push_back(tensor.defined() ? new_handle<heed_tensor>(std::make_shared<Tensor>(tensor))
                                          : nullptr);
  }
  ~Lent() {
    for (heed_tensor* handle : handles_) heed_tensor_free(handle);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  heed_tensor* const* data() const { return handles_.data(); }
  std::size_t size() const { return handles_.size(); }
  bool has(const heed_tensor* handle) const { return std::ranges::find(handles_, handle) != handles_.end(); }

 private:
  std::vector<heed_tensor*> handles_;
};

/// Tensors that the caller's function makes; the destructor frees their handles.
class Results {
 public:
  Results(const Lent& lent, std::size_t count) : lent_(lent), handles_(count, nullptr) {}
  ~Results() {
    for (heed_tensor* handle : handles_)
      if (!lent_.has(handle)) heed_tensor_free(handle);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  heed_tensor** data() { return handles_.data(); }
  /// Undefined if it was not made.
  Tensor at(std::size_t i, const char* what) const { return optional_tensor(handles_[i], what); }

 private:
  const Lent& lent_;
  std::vector<heed_tensor*> handles_;
};

/// Calls the caller's function; throws a CallbackFailed with its error message if it fails.
template <class Call>
void call_back(const char* what, const Call& call) {
  heed_set_last_error("");
  heed_status status = HEED_OK;
  try {
    status = call();
  } catch (const std::exception& error) {
    throw CallbackFailed(concat_text(what, " threw an exception: ", error.what()));
  } catch (...) {
    throw CallbackFailed(concat_text(what, " threw an exception of an unknown type"));
  }
  if (status == HEED_OK) return;
  const std::string said = heed_last_error();
  throw CallbackFailed(concat_text(what, " failed: ", said.empty() ? "without a message" : said));
}

}  // namespace

Tensor call(heed_function function, void* context, std::span<const Tensor> inputs) {
  const Lent lent(inputs);
  Results results(lent, 1);
  call_back("the function", [&] { return function(context, lent.data(), lent.size(), results.data()); });
  Tensor output = results.at(0, "the output of the function");
  if (!output.defined()) throw CallbackFailed("the function returned no output");
  return output;
}

namespace {

// --- an op of the caller's own

/// Keeps the name of an op, to which its nodes hold a pointer.
const char* intern_name(const std::string& name) {
  static auto* const mutex = new LeafMutex;
  static auto* const names = new std::set<std::string>;  // outlives every graph
  const std::lock_guard lock(*mutex);
  return names->insert(name).first->c_str();
}

Gradients gradients_by(heed_backward_function function, void* context, const char* name, const Tensor& grad,
                       std::size_t count) {
  const Lent lent(std::span(&grad, 1));
  Results results(lent, count);
  const std::string what = concat_text("the backward function of ", name);
  call_back(what.c_str(), [&] { return function(context, lent.data()[0], results.data(), count); });
  Gradients gradients;
  for (std::size_t i = 0; i < count; ++i) {
    gradients.push_back(results.at(i, concat_text(name, ": the gradient of input ", i).c_str()));
    const Tensor& gradient = gradients.back();
    const Device device = gradient.defined() ? gradient.device() : grad.device();
    check(device == grad.device(), name, ": the gradient of input ", i, " is on ", device,
          ", but that of the output is on ", grad.device());
  }
  return gradients;
}

// --- a mechanism of the caller's own

using Json = nlohmann::ordered_json;

struct Mechanism {
  std::string name;
  bool projections = true;
  Options settings;  // with their defaults
  std::vector<std::string> parameters;
  heed_initial_function initial = nullptr;
  heed_attention_function forward = nullptr;
  void* context = nullptr;
};

class CallersAttention : public Attention {
 public:
  CallersAttention(const AttentionConfig& config, std::shared_ptr<const Mechanism> mechanism)
      : Attention(config), mechanism_(std::move(mechanism)), parameters_(mechanism_->parameters.size()) {
    json_ = {{"width", config.width},
             {"heads", config.heads},
             {"head_width", config.inner_width() / config.heads},
             {"dropout", config.dropout},
             {"bias", config.bias},
             {"causal", config.causal},
             {"cross", config.cross},
             {"max_length", config.max_length},
             {"layer", config.layer}};
    for (const auto& [name, fallback] : mechanism_->settings.values()) take(config.options, name, fallback);
    Initialiser initialiser(config.seed);
    if (mechanism_->projections) {
      projections_ = std::make_unique<Projections>(config, initialiser);
      add_projections(*projections_);
    }
    add_parameters(initialiser.next_seed());
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    std::vector<Tensor> inputs = {input.x, input.mask, input.memory, input.memory_mask, {}, {}, {}};
    if (projections_) {
      Projections::Projected to =
          config().cross ? projections_->of_memory(input.memory) : projections_->of(input.x);
      if (config().cross) to.query = projections_->query(input.x);
      inputs[4] = split_heads(to.query, config().heads);
      inputs[5] = split_heads(to.key, config().heads);
      inputs[6] = split_heads(to.value, config().heads);
    }
    inputs.insert(inputs.end(), parameters_.begin(), parameters_.end());
    const Tensor out = call(inputs, context);
    if (!projections_) return out;
    check(out.shape() == inputs[4].shape(), mechanism_->name, " gave heads of shape ", out.shape(),
          " for queries of shape ", inputs[4].shape());
    return projections_->output(merge_heads(out));
  }

 private:
  /// The value of a setting of the mechanism's own.
  void take(const Options& given, const std::string& name, const Options::Value& fallback) {
    if (const auto* flag = std::get_if<bool>(&fallback))
      json_[name] = given.take_bool(name, *flag);
    else if (const auto* whole = std::get_if<std::int64_t>(&fallback))
      json_[name] = given.take_integer(name, *whole);
    else if (const auto* number = std::get_if<double>(&fallback))
      json_[name] = given.take_number(name, *number);
    else
      json_[name] = given.take_text(name, std::get<std::string>(fallback));
  }

  void add_parameters(std::uint64_t seed) {
    if (parameters_.empty()) return;
    Json config = json_;
    config["seed"] = seed >> 1;  // fits every language's integers
    const Lent none({});
    Results results(none, parameters_.size());
    const std::string what = concat_text("the function for the initial parameters of ", mechanism_->name);
    call_back(what.c_str(), [&] {
      return mechanism_->initial(mechanism_->context, config.dump().c_str(), results.data(),
                                 parameters_.size());
    });
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = mechanism_->parameters[i];
      const Tensor value = results.at(i, name.c_str());
      check(value.defined() && value.dtype() == DType::f32 && value.device() == Device{}, "the parameter ",
            name, " needs initial values of f32 on the CPU");
      add_parameter(name, parameters_[i], contiguous(value.detach()));
    }
  }

  Tensor call(std::span<const Tensor> inputs, Context& context) const {
    Json config = json_;
    config["path"] = path();
    config["training"] = context.training;
    const Lent lent(inputs);
    Results results(lent, 1);
    // The handle of the pass does not own it.
    const std::unique_ptr<heed_context, void (*)(heed_context*)> pass(
        new_handle<heed_context>(std::shared_ptr<Context>(std::shared_ptr<void>(), &context)),
        heed_context_free);
    call_back(mechanism_->name.c_str(), [&] {
      return mechanism_->forward(mechanism_->context, config.dump().c_str(), lent.data(), lent.size(),
                                 pass.get(), results.data());
    });
    Tensor out = results.at(0, "its output");
    if (!out.defined()) throw CallbackFailed(mechanism_->name + " returned no output");
    return out;
  }

  const std::shared_ptr<const Mechanism> mechanism_;
  Json json_;  // of the settings
  std::unique_ptr<Projections> projections_;
  std::vector<Tensor> parameters_;
};

void add_mechanism(Mechanism mechanism, const Options& declared) {
  Capabilities can;
  for (const auto& [name, flag] : capability_flags) can.*flag = declared.take_bool(name, can.*flag);
  can.reason = declared.take_text("reason", "");
  mechanism.projections = declared.take_bool("projections", true);
  mechanism.parameters = declared.take_texts("parameters", {});
  mechanism.settings = declared.within("settings");
  declared.check_all_taken("the declaration of '" + mechanism.name + "'");
  for (const auto& [name, value] : mechanism.settings.values())
    check(value.index() <= 3, "the default of the setting '", name,
          "' must be true or false, a number or text");
  check_argument(mechanism.initial != nullptr || mechanism.parameters.empty(), "initial is NULL");
  const auto kept = std::make_shared<const Mechanism>(std::move(mechanism));
  register_attention({kept->name, can, [kept](const AttentionConfig& config) {
                        return std::make_unique<CallersAttention>(config, kept);
                      }});
}

}  // namespace
}  // namespace heed::c

using namespace heed;
using namespace heed::c;

heed_status heed_gradcheck(heed_function function, void* context, heed_tensor* const* inputs, size_t count,
                           double tolerance, heed_gradcheck_result* out) {
  return guarded(__func__, out, [&] {
    check_argument(function != nullptr, "function is NULL");
    const GradcheckResult found =
        gradcheck([&](std::span<const Tensor> in) { return call(function, context, in); },
                  tensors_of(inputs, count, "inputs"), tolerance > 0 ? tolerance : 1e-6);
    return heed_gradcheck_result{found.passed ? 1 : 0, found.worst_input, found.worst_element,
                                 found.worst_error,    found.analytic,    found.numeric};
  });
}

heed_status heed_record(const char* name, const heed_tensor* value, heed_tensor* const* inputs, size_t count,
                        heed_backward_function backward, void (*release)(void* context), void* context,
                        heed_tensor** out) {
  std::shared_ptr<Release> released;
  const heed_status status = guarded_tensor(__func__, out, [&] {
    check_argument(backward != nullptr, "backward is NULL");
    const char* const op = intern_name(text_of(name, "name"));
    const Tensor result = tensor_of(value, "value");
    const std::vector<Tensor> operands = tensors_of(inputs, count, "inputs");
    std::vector<const Tensor*> reads = {&result};
    for (const Tensor& operand : operands) reads.push_back(&operand);
    released = std::make_shared<Release>();
    return record(
        op, result.detach(), operands,
        [=, keep = released](const Tensor& grad) { return gradients_by(backward, context, op, grad, count); },
        reads);
  });
  if (status == HEED_OK) released->set(release, context);
  return status;
}

heed_status heed_register_attention(const char* name, const char* declaration, heed_initial_function initial,
                                    heed_attention_function forward, void* context) {
  return guarded(__func__, [&] {
    check_argument(forward != nullptr, "forward is NULL");
    Mechanism mechanism;
    mechanism.name = text_of(name, "name");
    mechanism.initial = initial;
    mechanism.forward = forward;
    mechanism.context = context;
    const Options declared = settings_of(declaration);
    about_settings([&] { add_mechanism(std::move(mechanism), declared); });
  });
}
