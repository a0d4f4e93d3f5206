#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "heed/apps/tasks/run.h"
#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/c/heed.h"
#include "heed/core/tensor.h"
#include "heed/models/attention/attention.h"
#include "heed/models/options.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"

// The layer between the C API and the library: handles, and exceptions that become statuses.

namespace heed::c {

/// NULL, a freed handle or one of another type, or a size that is not the tensor's.
class BadArgument : public Error {
 public:
  using Error::Error;
};
/// The caller's own function failed.
class CallbackFailed : public Error {
 public:
  using Error::Error;
};

template <class... Parts>
void check_argument(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw BadArgument(concat_text(parts...));
}

/// The object behind a heed_module: a layer, or the model of a run.
struct ModuleObject {
  std::shared_ptr<void> owner;  // of the module
  Module* module = nullptr;
  Attention* attention = nullptr;  // the module, if it is one
  std::vector<NamedTensor> parameters;
};

/// An optimizer whose parameters may move to another device.
class OptimizerObject {
 public:
  /// `leaves`: those of all groups, in order.
  OptimizerObject(std::vector<std::shared_ptr<Tensor>> leaves, std::vector<ParameterGroup> groups,
                  const OptimizerOptions& options, double limit);
  /// Returns the optimizer, with its moments on the parameters' current device.
  Optimizer& get();

  const double clip_norm;  // 0: none

 private:
  std::vector<std::shared_ptr<Tensor>> leaves_;  // the groups hold pointers to these
  std::vector<ParameterGroup> groups_;
  OptimizerOptions options_;
  Device device_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// Leaves, and the parameters of modules.
struct Leaves {
  std::vector<NamedTensor> parameters;  // each once
  std::vector<std::shared_ptr<ModuleObject>> modules;
  std::vector<std::shared_ptr<Tensor>> tensors;  // those that belong to no module
};

struct AutocastObject {
  AutocastObject(Leaves all, Precision precision, const LossScaleState& loss_scale)
      : leaves(std::move(all)), autocast(leaves.parameters, precision, loss_scale) {}
  Leaves leaves;
  Autocast autocast;
};

/// Calls the caller's function once, when it is destroyed.
class Release {
 public:
  Release() = default;
  ~Release();
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;
  void set(void (*release)(void*), void* context) {
    release_ = release;
    context_ = context;
  }

 private:
  void (*release_)(void*) = nullptr;
  void* context_ = nullptr;
};

struct RunObject {
  explicit RunObject(Run opened) : run(std::move(opened)), settings(run.settings().json()) {}
  Run run;
  std::string settings;  // as JSON; those of the run change while it measures
};

struct QueueObject {
  QueueObject(std::shared_ptr<RunObject> answering, const QueueOptions& options)
      : run(std::move(answering)), queue(run->run, options) {}
  std::shared_ptr<RunObject> run;
  AnswerQueue queue;
};

/// The types of handles, in order of their numbers.
enum class Kind : std::uint8_t { tensor = 1, context, module, optimizer, run, queue, autocast };

/// The object behind a type of handle.
template <class Handle>
struct Behind;
template <class T, Kind number>
struct BehindAll {
  using Object = T;
  static constexpr Kind kind = number;
};
template <>
struct Behind<heed_tensor> : BehindAll<Tensor, Kind::tensor> {};
template <>
struct Behind<heed_context> : BehindAll<Context, Kind::context> {};
template <>
struct Behind<heed_module> : BehindAll<ModuleObject, Kind::module> {};
template <>
struct Behind<heed_optimizer> : BehindAll<OptimizerObject, Kind::optimizer> {};
template <>
struct Behind<heed_run> : BehindAll<RunObject, Kind::run> {};
template <>
struct Behind<heed_queue> : BehindAll<QueueObject, Kind::queue> {};
template <>
struct Behind<heed_autocast> : BehindAll<AutocastObject, Kind::autocast> {};

/// The table of all handles. A handle is a number disguised as a pointer: it is looked up, never
/// dereferenced, and never reused, so that a freed one is recognised.
std::uintptr_t add_object(Kind kind, std::shared_ptr<void> object);
/// Returns the object, which `take` removes from the table; throws a BadArgument that names the
/// argument if there is none of this kind.
std::shared_ptr<void> find_object(Kind kind, std::uintptr_t handle, const char* argument, bool take = false);
/// Returns the kind that the handle claims; any number if it is not a handle.
Kind kind_of(std::uintptr_t handle);

/// Returns the object behind an argument. It stays valid even if another thread frees the handle.
template <class Handle>
auto object_of(const Handle* handle, const char* argument) {
  using Type = Behind<Handle>;
  return std::static_pointer_cast<typename Type::Object>(
      find_object(Type::kind, reinterpret_cast<std::uintptr_t>(handle), argument));
}

template <class Handle>
Handle* new_handle(std::shared_ptr<typename Behind<Handle>::Object> object) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is never dereferenced
  return reinterpret_cast<Handle*>(add_object(Behind<Handle>::kind, std::move(object)));
}

inline Tensor tensor_of(const heed_tensor* handle, const char* argument) {
  return *object_of(handle, argument);
}
/// Returns the tensor; NULL gives an undefined one.
inline Tensor optional_tensor(const heed_tensor* handle, const char* argument) {
  return handle ? tensor_of(handle, argument) : Tensor();
}

/// Returns the given pass, or inference for NULL.
inline std::shared_ptr<Context> context_of(const heed_context* context) {
  return context ? object_of(context, "context") : std::make_shared<Context>(Context::inference());
}

/// Returns a text that may not be NULL.
inline std::string text_of(const char* text, const char* argument) {
  check_argument(text != nullptr, argument, " is NULL");
  return text;
}
/// Returns the leaves of a list of leaves and modules.
Leaves find_leaves(const void* const* objects, std::size_t count);
/// Calls the caller's function and returns its result. Throws a CallbackFailed if it fails.
Tensor call(heed_function function, void* context, std::span<const Tensor> inputs);

/// Copies a text for the caller, who must free it.
char* new_text(const std::string& text);

/// Turns a plain Error about the caller's settings into a SettingsError.
template <class Body>
auto about_settings(const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) throw;
    throw SettingsError(error.what());
  }
}

/// Parses settings as a JSON object, empty for NULL. Throws a SettingsError for anything else.
template <class Json>
Json settings_object(const char* json) {
  if (!json) return Json::object();
  return about_settings([&] {
    auto settings = parse_json<Json>(json, "settings");
    check(settings.is_object(), "settings must be a JSON object, not ", json);
    return settings;
  });
}
Options settings_of(const char* json);

/// Returns all ops, for heed_list().
std::string op_names_json();

/// The capabilities of a mechanism, as heed_list() and heed_register_attention() name them.
inline constexpr std::pair<const char*, bool Capabilities::*> capability_flags[] = {
    {"causal", &Capabilities::causal},
    {"strictly_causal", &Capabilities::strictly_causal},
    {"cross", &Capabilities::cross},
    {"cross_by_step", &Capabilities::cross_by_step},
    {"any_length", &Capabilities::any_length},
    {"as_heads", &Capabilities::as_heads},
    {"deterministic", &Capabilities::deterministic},
    {"padding", &Capabilities::padding},
};

/// Turns the current exception into a status, and its message into the last error of this thread.
heed_status status_of_exception(const char* function) noexcept;

/// Runs the body of an API function, with plain arithmetic; no exception leaves it.
template <class Body>
heed_status guarded(const char* function, const Body& body) noexcept {
  const PlainArithmetic plain;
  try {
    body();
    return HEED_OK;
  } catch (...) {
    return status_of_exception(function);
  }
}

/// Runs the body of a function with a result, which is NULL or 0 on failure.
template <class Result, class Body>
heed_status guarded(const char* function, Result* out, const Body& body) noexcept {
  if (out) *out = {};
  return guarded(function, [&] {
    check_argument(out != nullptr, "out is NULL");
    *out = body();
  });
}

/// Runs a body that returns a Tensor; an undefined one becomes NULL.
template <class Body>
heed_status guarded_tensor(const char* function, heed_tensor** out, const Body& body) noexcept {
  return guarded(function, out, [&]() -> heed_tensor* {
    Tensor result = body();
    return result.defined() ? new_handle<heed_tensor>(std::make_shared<Tensor>(std::move(result))) : nullptr;
  });
}

/// Frees a handle. An invalid one is only reported by heed_last_error().
template <class Handle>
void free_handle(const char* function, Handle* handle) noexcept {
  if (!handle) return;
  guarded(function, [&] {
    find_object(Behind<Handle>::kind, reinterpret_cast<std::uintptr_t>(handle), "the handle", true);
  });
}

// Numbers and lists from C as the library's types.

inline Shape shape_of(int32_t rank, const int64_t* numbers, const char* argument = "shape") {
  check_argument(rank >= 0 && rank <= HEED_MAX_RANK, "rank is ", rank, "; it must be 0 to ", HEED_MAX_RANK);
  check_argument(numbers != nullptr || rank == 0, argument, " is NULL");
  return rank == 0 ? Shape() : Shape(std::span(numbers, static_cast<std::size_t>(rank)));
}

inline DType dtype_of_number(heed_dtype dtype) {
  check_argument(dtype >= HEED_F32 && dtype <= HEED_BF16, "dtype is ", dtype, ", which is not a heed_dtype");
  return static_cast<DType>(dtype);
}
static_assert(HEED_F32 == static_cast<int>(DType::f32) && HEED_BF16 == static_cast<int>(DType::bf16));

inline std::vector<Tensor> tensors_of(const heed_tensor* const* handles, std::size_t count,
                                      const std::string& argument) {
  check_argument(handles != nullptr || count == 0, argument, " is NULL");
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < count; ++i)
    tensors.push_back(tensor_of(handles[i], concat_text(argument, '[', i, ']').c_str()));
  return tensors;
}

}  // namespace heed::c
