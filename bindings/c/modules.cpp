// The C API: attention layers, the parameters of modules, optimizers, mixed precision, files of all these.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/c/handles.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"
#include "heed/training/checkpoint.h"

namespace heed::c {
namespace {

/// `owner` keeps the module alive.
heed_module* module_handle(std::shared_ptr<void> owner, Module& module, Attention* attention) {
  auto object = std::make_shared<ModuleObject>();
  object->owner = std::move(owner);
  object->module = &module;
  object->attention = attention;
  object->parameters = module.parameters();
  return new_handle<heed_module>(std::move(object));
}

/// Settings that not every layer has belong to the mechanism.
std::shared_ptr<Attention> make_layer(const std::string& name, const Options& given) {
  AttentionConfig config;
  config.width = given.take_integer("width", 0);
  config.heads = given.take_integer("heads", config.heads);
  config.dropout = given.take_number("dropout", config.dropout);
  config.bias = given.take_bool("bias", config.bias);
  config.causal = given.take_bool("causal", config.causal);
  config.cross = given.take_bool("cross", config.cross);
  config.max_length = given.take_integer("max_length", config.max_length);
  config.seed = static_cast<std::uint64_t>(given.take_integer("seed", 0, 0));
  const DType dtype = given.take_choice("dtype", {"f32", "f64"}) == "f64" ? DType::f64 : DType::f32;
  const Device device = find_device(given.take_text("device", ""));
  const std::string positions = given.take_choice("positions", {"none", "rotary", "alibi", "relative"});
  config.rotary = positions == "rotary";
  config.alibi = positions == "alibi";
  config.relative = positions == "relative";
  config.options = given;  // including those taken here, so that a misspelt name finds the nearest
  std::shared_ptr<Attention> made = make_attention(name, config);
  if (dtype != DType::f32 || device != Device{}) made->to(dtype, device);
  return made;
}

/// The leaf behind a handle, which finds it again after heed_move().
std::shared_ptr<Tensor> find_leaf(const heed_tensor* handle, const std::string& argument) {
  std::shared_ptr<Tensor> leaf = object_of(handle, argument.c_str());
  gradient(*leaf);  // throws if it is none
  return leaf;
}

void take_muon(const Options& settings, MuonOptions& options) {
  options.momentum = settings.take_number("momentum", options.momentum, 0, 0.9999999);
  options.nesterov = settings.take_bool("nesterov", options.nesterov);
  options.iterations = settings.take_integer("iterations", options.iterations, 1, 99);
  options.rate = settings.take_number("matrix_rate", options.rate, 1e-37, 1e30);
  const bool original = settings.take_choice("adjust_rate", {"match_rms_adamw", "original"}) == "original";
  options.adjustment = original ? RateAdjustment::original : RateAdjustment::match_rms_adamw;
}

std::shared_ptr<OptimizerObject> make_optimizer(const std::string& name, const Options& settings,
                                                std::span<const heed_parameter_group> groups) {
  OptimizerOptions options;
  double clip_norm = 0;
  about_settings([&] {
    options.kind = optimizer_kind(name);
    const bool is_sgd = options.kind == OptimizerKind::sgd;
    options.beta1 = settings.take_number("beta1", is_sgd ? 0 : options.beta1, 0, 0.9999999);
    options.beta2 = settings.take_number("beta2", options.beta2, 0, 0.9999999);
    options.epsilon = settings.take_number("epsilon", options.epsilon, 1e-30, 1);
    options.weight_decay = settings.take_number("weight_decay", options.weight_decay, 0, 1e6);
    options.decay_vectors = settings.take_bool("decay_vectors", false);
    if (options.kind == OptimizerKind::muon) take_muon(settings, options.muon);
    clip_norm = settings.take_number("clip_norm", 0, 0, 1e30);
    settings.check_all_taken("optimizer '" + name + "'");
  });
  std::vector<std::shared_ptr<Tensor>> leaves;
  std::vector<ParameterGroup> made;
  for (const heed_parameter_group& group : groups) {
    check_argument(group.parameters != nullptr || group.count == 0, "parameters is NULL");
    ParameterGroup& to = made.emplace_back();
    to.rate = group.rate;
    to.weight_decay =
        std::isnan(group.weight_decay) ? std::nullopt : std::optional<double>(group.weight_decay);
    for (std::size_t i = 0; i < group.count; ++i) {
      const std::string parameter = concat_text("parameters[", leaves.size(), ']');
      leaves.push_back(find_leaf(group.parameters[i], parameter));
      to.parameters.push_back({parameter, leaves.back().get()});
    }
  }
  return std::make_shared<OptimizerObject>(std::move(leaves), std::move(made), options, clip_norm);
}

ScheduleOptions schedule_options(const Options& given) {
  ScheduleOptions options;
  for_each_setting(SettingVisitor([&](auto& value, const Setting& setting) {
                     using T = std::remove_cvref_t<decltype(value)>;
                     if constexpr (std::is_enum_v<T>) {
                       const std::string name = given.take_choice(setting.name, setting.choices);
                       value =
                           static_cast<T>(std::ranges::find(setting.choices, name) - setting.choices.begin());
                     } else if constexpr (std::is_floating_point_v<T>) {
                       value = given.take_number(setting.name, value, setting.low, setting.high);
                     } else {
                       value = given.take_integer(setting.name, value, static_cast<std::int64_t>(setting.low),
                                                  static_cast<std::int64_t>(setting.high));
                     }
                   }),
                   options);
  given.check_all_taken("a schedule");
  return options;
}

/// Checks the rate and clips the gradients.
Optimizer& prepare_step(OptimizerObject& object, double learning_rate) {
  check(learning_rate >= 0 && learning_rate <= 1e30, "optimizer: the learning rate is ", learning_rate,
        "; it must not be negative");
  Optimizer& optimizer = object.get();
  if (object.clip_norm > 0) optimizer.clip(object.clip_norm);
  return optimizer;
}

/// Moves leaves and layers; without a device or a dtype they keep theirs.
void move(const Leaves& leaves, const std::optional<Device>& device, const std::string& dtype) {
  check(dtype.empty() || dtype == "f32" || dtype == "f64", "parameters are f32 or f64, not ", dtype,
        "; an autocast computes in f16 and bf16");
  const auto dtype_for = [&](const Tensor& now) {
    return dtype.empty() ? now.dtype() : dtype == "f64" ? DType::f64 : DType::f32;
  };
  for (const auto& object : leaves.modules)
    check(object->attention != nullptr,
          "the model of a run stays on the device that the run was opened with: open it on another");
  std::vector<Tensor> moved;  // all before any leaf changes
  const NoGrad no_grad;
  for (const auto& leaf : leaves.tensors) {
    gradient(*leaf);  // throws if it is none
    const Tensor typed = leaf->detach().to(dtype_for(*leaf)).to(device.value_or(leaf->device()));
    Tensor copy = Tensor::empty(typed.shape(), typed.dtype(), typed.device());
    backend_of(copy).copy(typed, copy);
    moved.push_back(parameter(copy));
    set_hidden_map(moved.back(), is_hidden_map(*leaf));
  }
  for (const auto& object : leaves.modules) {
    const std::vector<NamedTensor> state = object->module->state();
    if (state.empty()) continue;
    const Tensor& first = *state[0].tensor;
    object->module->to(dtype_for(first), device.value_or(first.device()));
  }
  for (std::size_t i = 0; i < moved.size(); ++i) *leaves.tensors[i] = moved[i];
}

/// Objects that share a file.
struct Saved {
  Saved(const char* const* names, const void* const* objects, std::size_t count) {
    check_argument((names != nullptr && objects != nullptr) || count == 0, "names or objects is NULL");
    for (std::size_t i = 0; i < count; ++i)
      add(text_of(names[i], concat_text("names[", i, ']').c_str()), objects[i],
          concat_text("objects[", i, ']').c_str());
  }

  std::map<std::string, Tensor> tensors;  ///< they share memory with the objects, but for numbers of steps
  std::vector<std::shared_ptr<ModuleObject>> modules;
  std::vector<std::pair<std::string, std::shared_ptr<OptimizerObject>>> optimizers;  ///< with prefixes

 private:
  void add(const std::string& name, const void* object, const char* argument) {
    const auto handle = reinterpret_cast<std::uintptr_t>(object);
    const std::string prefix = name.empty() ? "" : name + '.';
    switch (kind_of(handle)) {
      case Kind::module:
        modules.push_back(object_of(static_cast<const heed_module*>(object), argument));
        return add(prefix, model_state(*modules.back()->module));
      case Kind::optimizer:
        optimizers.emplace_back(prefix, object_of(static_cast<const heed_optimizer*>(object), argument));
        return add(prefix, optimizers.back().second->get().state());
      default:
        return add("", {{name, tensor_of(static_cast<const heed_tensor*>(object), argument).detach()}});
    }
  }
  void add(const std::string& prefix, const std::map<std::string, Tensor>& found) {
    for (const auto& [name, tensor] : found)
      check(tensors.emplace(prefix + name, tensor).second, "two tensors are called \"", prefix, name, '"');
  }
};

void load_saved(const Saved& saved, const std::filesystem::path& path) {
  const std::map<std::string, Tensor> read = load_safetensors(path).tensors;
  for (const auto& [prefix, object] : saved.optimizers) {
    const auto steps = read.find(prefix + "steps");
    check(steps == read.end() || steps->second.count() != 1 || steps->second.item() >= 0, path.string(),
          ": the number of steps is negative");
  }
  copy_named_tensors(read,
                     std::vector<std::pair<std::string, Tensor>>(saved.tensors.begin(), saved.tensors.end()),
                     concat_text(path.string(), " does not fit"));
  for (const auto& module : saved.modules) module->module->state_changed();
  for (const auto& [prefix, object] : saved.optimizers) {  // again, with the number of steps
    std::map<std::string, Tensor> state = object->get().state();
    for (auto& [name, tensor] : state) tensor = read.at(prefix + name);
    object->get().load_state(state);
  }
}

}  // namespace

OptimizerObject::OptimizerObject(std::vector<std::shared_ptr<Tensor>> leaves,
                                 std::vector<ParameterGroup> groups, const OptimizerOptions& options,
                                 double limit)
    : clip_norm(limit),
      leaves_(std::move(leaves)),
      groups_(std::move(groups)),
      options_(options),
      optimizer_(std::make_unique<Optimizer>(std::span<const ParameterGroup>(groups_), options_)) {
  device_ = leaves_[0]->device();
}

Optimizer& OptimizerObject::get() {
  if (leaves_[0]->device() == device_) return *optimizer_;
  auto moved = std::make_unique<Optimizer>(std::span<const ParameterGroup>(groups_), options_);
  moved->load_state(optimizer_->state());
  optimizer_ = std::move(moved);
  device_ = leaves_[0]->device();
  return *optimizer_;
}

Leaves find_leaves(const void* const* objects, std::size_t count) {
  check_argument(objects != nullptr || count == 0, "objects is NULL");
  Leaves found;
  std::set<const Tensor*> seen;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string argument = concat_text("objects[", i, ']');
    if (kind_of(reinterpret_cast<std::uintptr_t>(objects[i])) == Kind::module) {
      const auto module = object_of(static_cast<const heed_module*>(objects[i]), argument.c_str());
      found.modules.push_back(module);
      for (const NamedTensor& parameter : module->module->parameters())
        if (seen.insert(parameter.tensor).second) found.parameters.push_back(parameter);
      continue;
    }
    const auto leaf = object_of(static_cast<const heed_tensor*>(objects[i]), argument.c_str());
    if (!seen.insert(leaf.get()).second) continue;
    found.tensors.push_back(leaf);
    found.parameters.push_back({argument, leaf.get()});
  }
  return found;
}

}  // namespace heed::c

using namespace heed;
using namespace heed::c;

heed_status heed_attention_create(const char* name, const char* settings, heed_module** out) {
  return guarded(__func__, out, [&] {
    const std::string variant = text_of(name, "name");
    const std::shared_ptr<Attention> layer =
        about_settings([&] { return make_layer(variant, settings_of(settings)); });
    return module_handle(layer, *layer, layer.get());
  });
}

heed_status heed_attention_forward(heed_module* layer, const heed_tensor* x, const heed_tensor* mask,
                                   const heed_tensor* memory, const heed_tensor* memory_mask,
                                   heed_context* context, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const auto module = object_of(layer, "layer");
    check_argument(module->attention != nullptr, "layer is a whole model, not an attention layer");
    const AttentionInput input{tensor_of(x, "x"), optional_tensor(mask, "mask"),
                               optional_tensor(memory, "memory"),
                               optional_tensor(memory_mask, "memory_mask")};
    return (*module->attention)(input, *context_of(context));
  });
}

heed_status heed_check_attention(const char* name, const char* settings) {
  return guarded(__func__, [&] { check_attention(text_of(name, "name"), settings_of(settings)); });
}

heed_status heed_context_create(int32_t training, uint64_t seed, uint32_t step, heed_context** out) {
  return guarded(__func__, out, [&] {
    auto context = std::make_shared<Context>(Context::train(seed, step));
    context->training = training != 0;
    return new_handle<heed_context>(std::move(context));
  });
}

heed_status heed_context_auxiliary_loss(const heed_context* context, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return object_of(context, "context")->auxiliary_loss(); });
}

heed_status heed_context_dropout(heed_context* context, const heed_tensor* x, double p, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    check(p >= 0 && p < 1, "dropout: p is ", p, "; it must be in [0, 1)");
    return maybe_dropout(tensor_of(x, "x"), p, *object_of(context, "context"));
  });
}

heed_status heed_context_add_loss(heed_context* context, const char* name, double weight,
                                  const heed_tensor* value) {
  return guarded(__func__, [&] {
    const Tensor loss = tensor_of(value, "value");
    check(loss.count() == 1, "a loss has one element, not the shape ", loss.shape());
    object_of(context, "context")->losses.push_back({text_of(name, "name"), weight, reshape(loss, {})});
  });
}

heed_status heed_context_show(heed_context* context, const char* path, const char* name,
                              const heed_tensor* value) {
  return guarded(__func__, [&] {
    const auto pass = object_of(context, "context");
    Capture::Entry entry{text_of(path, "path"), text_of(name, "name"), tensor_of(value, "value").detach()};
    if (pass->capture) pass->capture->entries.push_back(std::move(entry));
  });
}

void heed_context_free(heed_context* context) {
  free_handle(__func__, context);
}

heed_status heed_module_parameter_count(heed_module* module, size_t* out) {
  return guarded(__func__, out, [&] { return object_of(module, "module")->parameters.size(); });
}

heed_status heed_module_parameter(heed_module* module, size_t index, const char** name, heed_tensor** out) {
  if (name) *name = nullptr;
  if (out) *out = nullptr;
  return guarded(__func__, [&] {
    const auto object = object_of(module, "module");
    check_argument(index < object->parameters.size(), "index is ", index, ", but the module has ",
                   object->parameters.size(), " parameters");
    const NamedTensor& parameter = object->parameters[index];
    // The caller's own layer may move: the handle is its member. A run computes for other threads, too.
    const auto leaf = object->attention ? std::shared_ptr<Tensor>(object, parameter.tensor)
                                        : std::make_shared<Tensor>(*parameter.tensor);
    if (out) *out = new_handle<heed_tensor>(leaf);
    if (name) *name = parameter.name.c_str();
  });
}

heed_status heed_save(const char* path, const char* const* names, const void* const* objects, size_t count) {
  return guarded(__func__, [&] {
    save_safetensors(text_of(path, "path"), {Saved(names, objects, count).tensors, {{"format", "pt"}}});
  });
}

heed_status heed_load(const char* path, const char* const* names, const void* const* objects, size_t count) {
  return guarded(__func__, [&] { load_saved(Saved(names, objects, count), text_of(path, "path")); });
}

void heed_module_free(heed_module* module) {
  free_handle(__func__, module);
}

heed_status heed_run_model(heed_run* run, heed_module** out) {
  return guarded(__func__, out, [&] {
    const std::shared_ptr<RunObject> owner = object_of(run, "run");
    return module_handle(owner, owner->run.task().model(), nullptr);
  });
}

heed_status heed_optimizer_create(const char* name, const char* settings, heed_tensor* const* parameters,
                                  size_t count, heed_optimizer** out) {
  const heed_parameter_group all = {parameters, count, 1, std::numeric_limits<double>::quiet_NaN()};
  return heed_optimizer_create_groups(name, settings, &all, 1, out);
}

heed_status heed_optimizer_create_groups(const char* name, const char* settings,
                                         const heed_parameter_group* groups, size_t count,
                                         heed_optimizer** out) {
  return guarded("heed_optimizer_create", out, [&] {
    check_argument(groups != nullptr || count == 0, "groups is NULL");
    return new_handle<heed_optimizer>(
        make_optimizer(text_of(name, "name"), settings_of(settings), std::span(groups, count)));
  });
}

heed_status heed_optimizer_step(heed_optimizer* optimizer, double learning_rate) {
  return guarded(
      __func__, [&] { prepare_step(*object_of(optimizer, "optimizer"), learning_rate).step(learning_rate); });
}

heed_status heed_optimizer_zero_gradients(heed_optimizer* optimizer) {
  return guarded(__func__, [&] { object_of(optimizer, "optimizer")->get().zero_gradients(); });
}

void heed_optimizer_free(heed_optimizer* optimizer) {
  free_handle(__func__, optimizer);
}

heed_status heed_learning_rate(const char* settings, int64_t step, int64_t steps, double* out) {
  return guarded(__func__, out, [&] {
    return about_settings(
        [&] { return learning_rate_at(schedule_options(settings_of(settings)), step, steps); });
  });
}

heed_status heed_move(const void* const* objects, size_t count, const char* device, const char* dtype) {
  return guarded(__func__, [&] {
    move(find_leaves(objects, count), device ? std::optional(find_device(device)) : std::nullopt,
         dtype ? dtype : "");
  });
}

heed_status heed_autocast_create(const void* const* objects, size_t count, const char* precision,
                                 double loss_scale, heed_autocast** out) {
  return guarded(__func__, out, [&] {
    const Precision kind =
        about_settings([&] { return precision_from_name(text_of(precision, "precision")); });
    Leaves leaves = find_leaves(objects, count);
    for (const auto& leaf : leaves.tensors) gradient(*leaf);  // throws if it is none
    LossScaleState scale;
    if (loss_scale != 0) scale.scale = loss_scale;
    return new_handle<heed_autocast>(std::make_shared<AutocastObject>(std::move(leaves), kind, scale));
  });
}

heed_status heed_autocast_dtype(const heed_autocast* autocast, heed_dtype* out) {
  return guarded(__func__, out,
                 [&] { return static_cast<heed_dtype>(object_of(autocast, "autocast")->autocast.dtype()); });
}

heed_status heed_autocast_backward(heed_autocast* autocast, heed_function loss, void* context,
                                   heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    check_argument(loss != nullptr, "loss is NULL");
    return object_of(autocast, "autocast")->autocast.backward([&] { return call(loss, context, {}); });
  });
}

heed_status heed_autocast_step(heed_autocast* autocast, heed_optimizer* optimizer, double learning_rate) {
  return guarded(__func__, [&] {
    const auto cast = object_of(autocast, "autocast");
    const auto object = object_of(optimizer, "optimizer");
    cast->autocast.step(prepare_step(*object, learning_rate), learning_rate);
  });
}

heed_status heed_autocast_loss_scale(const heed_autocast* autocast, double* scale, int64_t* skipped) {
  return guarded(__func__, [&] {
    const LossScaleState state = object_of(autocast, "autocast")->autocast.loss_scale_state();
    if (scale) *scale = state.scale;
    if (skipped) *skipped = state.skipped;
  });
}

void heed_autocast_free(heed_autocast* autocast) {
  free_handle(__func__, autocast);
}
