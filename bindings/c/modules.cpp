// The C API: attention layers, the parameters of modules, optimizers, files of all these.

#include <map>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/c/handles.h"
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
  config.options = given;  // including those taken here, so that a misspelt name finds the nearest
  std::shared_ptr<Attention> made = make_attention(name, config);
  if (dtype != DType::f32 || device != Device{}) made->to(dtype, device);
  return made;
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
                                                std::vector<Tensor> tensors) {
  auto object = std::make_shared<OptimizerObject>();
  OptimizerOptions options;
  about_settings([&] {
    options.kind = optimizer_kind(name);
    const bool is_sgd = options.kind == OptimizerKind::sgd;
    options.beta1 = settings.take_number("beta1", is_sgd ? 0 : options.beta1, 0, 0.9999999);
    options.beta2 = settings.take_number("beta2", options.beta2, 0, 0.9999999);
    options.epsilon = settings.take_number("epsilon", options.epsilon, 1e-30, 1);
    options.weight_decay = settings.take_number("weight_decay", options.weight_decay, 0, 1e6);
    options.decay_vectors = settings.take_bool("decay_vectors", false);
    if (options.kind == OptimizerKind::muon) take_muon(settings, options.muon);
    object->clip_norm = settings.take_number("clip_norm", 0, 0, 1e30);
    settings.check_all_taken("optimizer '" + name + "'");
  });
  object->tensors = std::move(tensors);
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < object->tensors.size(); ++i) {
    gradient(object->tensors[i]);  // throws if it is not a leaf
    named.push_back({concat_text("parameters[", i, ']'), &object->tensors[i]});
  }
  object->optimizer = std::make_unique<Optimizer>(std::move(named), options);
  return object;
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
        return add(prefix, optimizers.back().second->optimizer->state());
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
    std::map<std::string, Tensor> state = object->optimizer->state();
    for (auto& [name, tensor] : state) tensor = read.at(prefix + name);
    object->optimizer->load_state(state);
  }
}

}  // namespace
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
    if (out) *out = new_handle<heed_tensor>(std::make_shared<Tensor>(*parameter.tensor));
    if (name) *name = parameter.name.c_str();
  });
}

heed_status heed_module_save(heed_module* module, const char* path) {
  return guarded(__func__, [&] { save_model(*object_of(module, "module")->module, text_of(path, "path")); });
}

heed_status heed_module_load(heed_module* module, const char* path) {
  return guarded(__func__, [&] { load_model(*object_of(module, "module")->module, text_of(path, "path")); });
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
    return module_handle(owner, owner->run.learner().model(), nullptr);
  });
}

heed_status heed_optimizer_create(const char* name, const char* settings, heed_tensor* const* parameters,
                                  size_t count, heed_optimizer** out) {
  return guarded(__func__, out, [&] {
    return new_handle<heed_optimizer>(make_optimizer(text_of(name, "name"), settings_of(settings),
                                                     tensors_of(parameters, count, "parameters")));
  });
}

heed_status heed_optimizer_step(heed_optimizer* optimizer, double learning_rate) {
  return guarded(__func__, [&] {
    const auto object = object_of(optimizer, "optimizer");
    check(learning_rate >= 0 && learning_rate <= 1e30, "optimizer: the learning rate is ", learning_rate,
          "; it must not be negative");
    if (object->clip_norm > 0) object->optimizer->clip(object->clip_norm);
    object->optimizer->step(learning_rate);
  });
}

heed_status heed_optimizer_zero_gradients(heed_optimizer* optimizer) {
  return guarded(__func__, [&] { object_of(optimizer, "optimizer")->optimizer->zero_gradients(); });
}

void heed_optimizer_free(heed_optimizer* optimizer) {
  free_handle(__func__, optimizer);
}
