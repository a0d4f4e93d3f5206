#include <heed/c/heed.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fuzz_support.h"

namespace heed::fuzz {
namespace {

/// A program of calls of the C API, made of the input byte by byte: handles that are there, freed, NULL, of
/// another type or invented, sizes and settings that fit or do not. Small shapes keep each call short.
class CProgram {
 public:
  explicit CProgram(FuzzChoices& choices) : choices_(choices), before_(heed_live_handles()) {
    if (names_.empty()) {
      const auto ops = nlohmann::json::parse(list("ops"));
      for (const char* kind : {"unary", "binary", "compare", "reduce"})
        for (const auto& name : ops[kind]) names_[kind].push_back(name);
      for (const auto& [name, takes] : ops["named"].items()) names_["named"].push_back(name);
      for (const auto& variant : nlohmann::json::parse(list("attention"))) {
        names_["attention"].push_back(variant["name"]);
        for (const auto& setting : variant["settings"]) settings_[variant["name"]].push_back(setting["name"]);
      }
    }
  }
  CProgram(const CProgram&) = delete;
  CProgram& operator=(const CProgram&) = delete;

  void run() {
    for (int call = 0; call < 96 && !choices_.rest().empty(); ++call) {
      step(choices_.below(48));
      require(heed_live_handles() - before_ == live());
    }
    finish();
  }

 private:
  enum Kind { tensor, context, module, optimizer };
  static constexpr int64_t most_elements = 512;
  struct Buffer {
    std::vector<std::byte> bytes;
    int released = 0;
  };
  struct Callback {
    CProgram* program;
    unsigned mode;
    std::string op;
  };

  static std::string list(const char* what) {
    char* text = nullptr;
    require(heed_list(what, &text) == HEED_OK);
    std::string copy = text;
    heed_text_free(text);
    return copy;
  }

  // --- what must hold ---

  /// A failure has words, and is never an exception that heed did not expect.
  static bool ok(heed_status status) {
    require(status >= HEED_OK && status <= HEED_INTERRUPTED);
    if (status == HEED_OK) return true;
    const std::string_view words = heed_last_error();
    require(!words.empty() && !words.starts_with("unexpected: "));
    return false;
  }
  template <class Handle>
  void result(Kind kind, heed_status status, Handle* const& made) {  // read after the call that makes it
    require(ok(status) || made == nullptr);
    if (!made) return;
    if (kind == tensor && elements(made) > most_elements) {
      heed_tensor_free(reinterpret_cast<heed_tensor*>(made));
      return;
    }
    handles_[kind].push_back(reinterpret_cast<std::uintptr_t>(made));
    if (handles_[kind].size() > 16) free_handle(kind, handles_[kind].front());
  }
  int64_t live() const {
    std::size_t count = 0;
    for (const auto& [kind, handles] : handles_) count += handles.size();
    return static_cast<int64_t>(count);
  }
  void finish() {
    for (auto& [kind, handles] : handles_)
      while (!handles.empty()) free_handle(kind, handles.back());
    require(ok(heed_set_recording(1, nullptr)));
    require(heed_live_handles() == before_);
    for (const auto& buffer : buffers_) require(buffer->released == 1);
  }

  // --- what calls are made of ---

  std::uintptr_t some(Kind kind) {
    const unsigned oddity = choices_.below(40);
    if (oddity == 0) return 0;
    if (oddity == 1 && !freed_.empty()) return freed_[choices_.below(static_cast<unsigned>(freed_.size()))];
    if (oddity == 2) kind = static_cast<Kind>(choices_.below(4));
    if (oddity == 3) return choices_.below(256) * std::uintptr_t{0x0101010101};
    const std::vector<std::uintptr_t>& of_kind = handles_[kind];
    return of_kind.empty() ? 0 : of_kind[choices_.below(static_cast<unsigned>(of_kind.size()))];
  }
  // NOLINTBEGIN(performance-no-int-to-ptr): handles are numbers
  heed_tensor* some_tensor() { return reinterpret_cast<heed_tensor*>(some(tensor)); }
  heed_tensor* tensor_or_null() { return choices_.below(2) ? some_tensor() : nullptr; }
  heed_context* some_context() { return reinterpret_cast<heed_context*>(some(context)); }
  heed_module* some_module() { return reinterpret_cast<heed_module*>(some(module)); }
  heed_optimizer* some_optimizer() { return reinterpret_cast<heed_optimizer*>(some(optimizer)); }

  /// Frees it as one of this kind, which need not be its own.
  void free_handle(Kind kind, std::uintptr_t handle) {
    if (kind == tensor) heed_tensor_free(reinterpret_cast<heed_tensor*>(handle));
    if (kind == context) heed_context_free(reinterpret_cast<heed_context*>(handle));
    if (kind == module) heed_module_free(reinterpret_cast<heed_module*>(handle));
    if (kind == optimizer) heed_optimizer_free(reinterpret_cast<heed_optimizer*>(handle));
    if (std::erase(handles_[kind], handle) > 0) freed_.push_back(handle);
  }
  // NOLINTEND(performance-no-int-to-ptr)

  double number() {
    static constexpr double numbers[] = {0, 1,    2,      -1,     0.5,      1e-5, -0.25, 3,
                                         7, 1e30, -1e300, 1e-320, INFINITY, NAN,  4e9,   0.1};
    return numbers[choices_.below(16)];
  }
  int32_t axis() {
    static constexpr int32_t axes[] = {0, -1, 1, 2, -2, HEED_ALL_AXES, 3, -3, INT32_MIN, 9, INT32_MAX - 1,
                                       -9};
    return axes[choices_.below(12)];
  }
  int64_t extent() {
    static constexpr int64_t extents[] = {2, 1, 3, 4, 0, 8, 5, -1, -2, 7, INT64_MAX, INT64_MIN, 1LL << 62, 6};
    return extents[choices_.below(14)];
  }
  /// Of few elements, or of none that could be.
  std::vector<int64_t> shape() {
    std::vector<int64_t> extents;
    int64_t count = 1;
    for (unsigned left = choices_.below(5); left > 0; --left) {
      extents.push_back(choices_.below(8) ? 1 + choices_.below(4) : extent());
      if (extents.back() > 0 && extents.back() <= 8) count *= extents.back();
      if (count > most_elements) extents.back() = 1;
    }
    if (choices_.below(64) == 1) extents.assign(8 + choices_.below(2), 1);
    return extents;
  }
  heed_dtype dtype() {
    static constexpr heed_dtype dtypes[] = {HEED_F32, HEED_F32,  HEED_F64, HEED_F64, HEED_I32,
                                            HEED_F16, HEED_BF16, 9,        -1};
    return dtypes[choices_.below(9)];
  }
  const char* device() {
    static constexpr const char* devices[] = {"cpu", nullptr, "tpu", "cpu "};
    return devices[choices_.below(8) ? 0 : choices_.below(4)];
  }
  std::string name(const char* kind) {
    if (choices_.below(24) == 1) return choices_.text();
    const std::vector<std::string>& names = names_[kind];
    return names[choices_.below(static_cast<unsigned>(names.size()))];
  }
  /// A JSON object of these names and some of no meaning, or any text.
  std::string settings(const std::vector<std::string>& names) {
    static constexpr const char* values[] = {"2",   "4",     "8",     "1",       "0",   "-1",
                                             "0.5", "true",  "false", "\"x\"",   "[1]", "null",
                                             "{}",  "1e400", "3",     "\"f64\"", "16",  "[\"a\"]"};
    std::string json = "{\"width\": 8, \"max_length\": 16";
    if (choices_.below(8) == 0) json = "{\"zero\": 0";
    for (unsigned left = choices_.below(5); left > 0; --left) {
      const std::string one = names[choices_.below(static_cast<unsigned>(names.size()))];
      json += ", \"" + one + "\": " + values[choices_.below(18)];
    }
    if (choices_.below(24) == 1) json += choices_.text();
    return json + "}";
  }
  static int64_t elements(const void* handle) {
    int64_t extents[HEED_MAX_RANK], count = 1;
    int32_t rank = 0;
    require(heed_tensor_shape(static_cast<const heed_tensor*>(handle), &rank, extents, nullptr) == HEED_OK);
    for (int32_t i = 0; i < rank; ++i) count *= extents[i];
    return count;
  }
  /// Bytes for a tensor of that shape, as its values or as memory to lend; too few are never given.
  std::vector<std::byte> bytes_for(const std::vector<int64_t>& extents, heed_dtype type) {
    int64_t count = 1;
    for (const int64_t one : extents) count = one > 0 && one <= 8 ? count * one : 0;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * (type == HEED_F64 ? 8 : 4));
    for (std::size_t at = 0; at + 4 <= bytes.size(); at += type == HEED_F64 ? 8 : 4) {
      const double value = choices_.below(4) ? 0.25 * choices_.below(9) - 1 : number();
      const auto whole = static_cast<int32_t>(choices_.below(8)) - 1;
      const auto single = static_cast<float>(value);
      if (type == HEED_F64) std::memcpy(&bytes[at], &value, 8);
      if (type == HEED_F32) std::memcpy(&bytes[at], &single, 4);
      if (type == HEED_I32) std::memcpy(&bytes[at], &whole, 4);
    }
    return bytes;
  }

  // --- the calls ---

  /// With the numbers where the op takes them, else without.
  static heed_status unary(const std::string& op, const heed_tensor* x, double p, double q,
                           heed_tensor** out) {
    const heed_status status = heed_unary(op.c_str(), x, p, q, out);
    return status == HEED_OK ? status : heed_unary(op.c_str(), x, 0, 0, out);
  }

  static heed_status call_back(void* context, heed_tensor* const* inputs, size_t count,
                               heed_tensor** output) {
    const Callback& callback = *static_cast<Callback*>(context);
    heed_tensor* made = nullptr;
    heed_status status = HEED_OK;
    switch (callback.mode) {
      case 0:
        heed_set_last_error("on purpose");
        return HEED_ERROR;
      case 1:
        return HEED_OK;  // without an output
      case 2:
        *output = inputs[0];
        return HEED_OK;
      case 3:
        return 77;
      case 4:
        *output = reinterpret_cast<heed_tensor*>(std::uintptr_t{0x123451});
        return HEED_OK;
      case 5:
        status = unary(callback.op, inputs[0], 0.5, 2, output);
        heed_tensor_free(inputs[count - 1]);
        return status;
      case 6:
        status = unary(callback.op, inputs[0], 0.5, 2, &made);
        heed_tensor_free(made);
        *output = made;
        return status;
      default:
        status = unary(callback.op, inputs[0], 0.5, 2, &made);
        if (status == HEED_OK) status = heed_binary("mul", made, inputs[count - 1], output);
        heed_tensor_free(made);
        return status;
    }
  }

  void step(unsigned call) {
    heed_tensor* made = nullptr;
    switch (call) {
      case 0:
      case 1:
      case 2:
        return create();
      case 3:
        return borrow();
      case 4: {
        const std::vector<int64_t> extents = shape();
        const double a = number(), b = number();
        const heed_status status =
            heed_tensor_random(choices_.below(16) ? (choices_.below(2) ? "normal" : "uniform") : nullptr, a,
                               b, choices_.below(9), 1, 2, dtype(), static_cast<int32_t>(extents.size()),
                               extents.data(), device(), &made);
        return result(tensor, status, made);
      }
      case 5:
        return free_handle(static_cast<Kind>(choices_.below(4)), some(static_cast<Kind>(choices_.below(4))));
      case 6:
        return look();
      case 7:
        return move();
      case 8:
        return result(tensor, heed_tensor_to_device(some_tensor(), device(), &made), made);
      case 9:
      case 10:
      case 11:
        return result(tensor, heed_tensor_parameter(some_tensor(), &made), made);
      case 12:
        return result(tensor, heed_tensor_detach(some_tensor(), &made), made);
      case 13:
      case 14:
      case 15: {
        heed_tensor* const from = some_tensor();
        heed_status status = heed_reduce("sum", from, HEED_ALL_AXES, 0, &made);
        if (ok(status) && choices_.below(2)) ok(heed_backward(made, nullptr));
        ok(heed_backward(from, choices_.below(2) ? some_tensor() : nullptr));
        return result(tensor, status, made);
      }
      case 16:
        ok(heed_tensor_zero_gradient(some_tensor()));
        return result(tensor, heed_tensor_gradient(some_tensor(), &made), made);
      case 17: {
        int32_t before = 0;
        require(ok(heed_set_recording(choices_.below(8) ? 1 : 0, choices_.below(2) ? &before : nullptr)));
        return;
      }
      case 18:
        return check_gradient();
      case 19:
      case 20:
      case 21: {
        const std::string op = name("unary");
        const double p = number(), q = number();
        return result(tensor, unary(op, some_tensor(), p, q, &made), made);
      }
      case 22:
      case 23:
      case 24: {
        const std::string op = name("binary");
        heed_tensor *const a = some_tensor(), *const b = some_tensor();
        return result(tensor, heed_binary(op.c_str(), a, b, &made), made);
      }
      case 25: {
        const std::string op = name("compare");
        heed_tensor *const a = some_tensor(), *const b = some_tensor();
        return result(tensor, heed_compare(op.c_str(), a, b, &made), made);
      }
      case 26:
        return result(tensor, heed_scalar_like(some_tensor(), number(), &made), made);
      case 27:
      case 31:
      case 34:
      case 38:
      case 41:
        return apply_named();
      case 28:
        return result(tensor, heed_cast(some_tensor(), dtype(), &made), made);
      case 29:
      case 30: {
        const std::string op = name("reduce");
        const int32_t along = axis(), keep = choices_.below(2) ? 1 : 0;
        return result(tensor, heed_reduce(op.c_str(), some_tensor(), along, keep, &made), made);
      }
      case 32:
        return arrange();
      case 33: {
        const int64_t begin = extent(), end = extent(), stride = extent();
        return result(tensor, heed_slice(some_tensor(), axis(), begin, end, stride, &made), made);
      }
      case 35:
      case 36: {
        heed_tensor *const a = some_tensor(), *const b = some_tensor();
        return result(tensor, heed_matmul(a, b, &made), made);
      }
      case 37: {
        heed_tensor *const x = some_tensor(), *const weight = some_tensor(), *const bias = tensor_or_null();
        return result(tensor, heed_linear(x, weight, bias, &made), made);
      }
      case 39: {
        heed_tensor* const x = some_tensor();
        return result(tensor, heed_dropout(x, number(), 1, choices_.below(3), 1, &made), made);
      }
      case 40: {
        heed_tensor *const logits = some_tensor(), *const targets = some_tensor();
        return result(tensor, heed_cross_entropy(logits, targets, number(), &made), made);
      }
      case 42:
        return create_layer();
      case 43:
      case 44:
        return pass_layer();
      case 45:
        return create_optimizer();
      case 46: {
        ok(heed_optimizer_step(some_optimizer(), number()));
        if (choices_.below(2)) ok(heed_optimizer_zero_gradients(some_optimizer()));
        return;
      }
      default:
        return misuse();
    }
  }

  /// An op of the list "named", with tensors and settings that fit or do not.
  void apply_named() {
    const std::string op = name("named");
    const std::string json = settings({"axis", "epsilon", "value", "causal", "reverse", "count", "k"});
    std::vector<heed_tensor*> inputs;
    for (unsigned left = choices_.below(5); left > 0; --left) inputs.push_back(some_tensor());
    heed_tensor* made[2];
    std::size_t count = 0;
    const heed_status status = heed_op(
        op.c_str(), inputs.data(), inputs.size(),
        choices_.below(2) ? nullptr : ("{" + json.substr(json.find(',') + 1)).c_str(), made, 2, &count);
    require(count <= 2);
    for (heed_tensor* const tensor_made : made) result(tensor, status, tensor_made);
  }
  void create() {
    const std::vector<int64_t> extents = shape();
    const heed_dtype type = dtype();
    const bool zeros = choices_.below(6) == 1;
    const std::vector<std::byte> bytes = bytes_for(extents, type);
    heed_tensor* made = nullptr;
    const heed_status status =
        heed_tensor_create(type, static_cast<int32_t>(extents.size()), extents.data(),
                           zeros || bytes.empty() ? nullptr : bytes.data(), device(), &made);
    result(tensor, status, made);
  }
  void borrow() {
    const std::vector<int64_t> extents = shape();
    const heed_dtype type = dtype();
    auto buffer = std::make_unique<Buffer>();
    buffer->bytes = bytes_for(extents, type);
    if (buffer->bytes.empty()) return;
    heed_tensor* made = nullptr;
    const heed_status status = heed_tensor_borrow(
        type, static_cast<int32_t>(extents.size()), extents.data(), buffer->bytes.data(),
        [](void* one) { ++static_cast<Buffer*>(one)->released; }, buffer.get(), &made);
    if (status != HEED_OK) require(buffer->released == 0);
    result(tensor, status, made);
    if (status == HEED_OK) buffers_.push_back(std::move(buffer));
  }
  void look() {
    heed_tensor* const x = some_tensor();
    int64_t extents[HEED_MAX_RANK], strides[HEED_MAX_RANK];
    int32_t rank = 0, tracked = 0;
    heed_dtype type = 0;
    void* data = nullptr;
    char* text = nullptr;
    double item = 0;
    const bool is_there = ok(heed_tensor_shape(x, &rank, extents, strides));
    require(ok(heed_tensor_dtype(x, &type)) == is_there);
    require(ok(heed_tensor_device(x, &text)) == is_there && (text != nullptr) == is_there);
    require(ok(heed_tensor_is_tracked(x, &tracked)) == is_there);
    require(ok(heed_tensor_data(x, &data)) == is_there);
    if (is_there && elements(x) > 0)
      require(*static_cast<volatile char*>(data) == *static_cast<volatile char*>(data));
    require(ok(heed_tensor_item(x, &item)) == (is_there && elements(x) == 1));
    heed_text_free(text);
  }
  /// Elements out and in, with the right number of bytes but for now and then.
  void move() {
    heed_tensor* const x = some_tensor();
    int64_t extents[HEED_MAX_RANK];
    int32_t rank = 0;
    heed_dtype type = 0;
    if (!ok(heed_tensor_shape(x, &rank, extents, nullptr)) || !ok(heed_tensor_dtype(x, &type))) return;
    const auto right = static_cast<std::size_t>(elements(x)) * (type == HEED_F64 ? 8 : 4);
    std::vector<std::byte> bytes(choices_.below(8) ? right : choices_.below(64));
    require(ok(heed_tensor_read(x, bytes.data(), bytes.size())) == (bytes.size() == right));
    if (choices_.below(2)) {  // a view with gaps is refused
      const bool assigned = ok(heed_tensor_assign(x, bytes.data(), bytes.size()));
      require(!assigned || bytes.size() == right);
    }
  }
  void check_gradient() {
    Callback callback{this, choices_.below(16), name("unary")};
    std::vector<heed_tensor*> inputs;
    for (unsigned left = choices_.below(3); left > 0; --left) inputs.push_back(some_tensor());
    heed_gradcheck_result found;
    if (inputs.empty()) callback.mode = 0;
    ok(heed_gradcheck(choices_.below(32) ? call_back : nullptr, &callback, inputs.data(), inputs.size(),
                      number(), &found));
  }
  void arrange() {
    heed_tensor* made = nullptr;
    const bool reshapes = choices_.below(2) == 1;
    heed_tensor* const x = some_tensor();
    std::vector<int64_t> numbers = shape();
    if (!reshapes) {
      numbers = {1, 0, 2, 3};
      numbers.resize(choices_.below(5));
      if (!numbers.empty() && choices_.below(4) == 0) numbers[0] = extent();
    }
    const auto rank = static_cast<int32_t>(numbers.size());
    result(tensor, (reshapes ? heed_reshape : heed_permute)(x, rank, numbers.data(), &made), made);
  }
  void create_layer() {
    const std::string variant = name("attention");
    std::vector<std::string> names = {"heads", "dropout", "bias",  "causal", "cross",
                                      "seed",  "dtype",   "heads", "x"};
    if (const auto own = settings_.find(variant); own != settings_.end())
      names.insert(names.end(), own->second.begin(), own->second.end());
    const std::string json = settings(names);
    heed_module* made = nullptr;
    result(module, heed_attention_create(variant.c_str(), choices_.below(16) ? json.c_str() : nullptr, &made),
           made);
  }
  void pass_layer() {
    heed_tensor* made = nullptr;
    heed_context* pass = nullptr;
    heed_module* const layer = some_module();
    if (choices_.below(3) == 0)
      result(context, heed_context_create(choices_.below(2) ? 1 : 0, 3, choices_.below(4), &pass), pass);
    heed_tensor* x = some_tensor();
    if (choices_.below(4)) {  // one that fits
      const int64_t extents[] = {1 + choices_.below(2), 1 + choices_.below(6), 8};
      const heed_status status =
          heed_tensor_random("normal", 0, 1, choices_.below(9), 1, 2, choices_.below(8) ? HEED_F32 : HEED_F64,
                             3, extents, nullptr, &x);
      result(tensor, status, x);
    }
    heed_tensor *const mask = choices_.below(3) ? nullptr : some_tensor(), *const memory =
                                                                               choices_.below(4)
                                                                                   ? nullptr
                                                                                   : some_tensor();
    heed_context* const of_pass = choices_.below(2) ? some_context() : nullptr;
    const heed_status status = heed_attention_forward(
        layer, x, mask, memory, choices_.below(8) ? nullptr : some_tensor(), of_pass, &made);
    result(tensor, status, made);
    made = nullptr;
    if (choices_.below(2)) result(tensor, heed_context_auxiliary_loss(some_context(), &made), made);
    std::size_t count = 0;
    const char* words = nullptr;
    made = nullptr;
    ok(heed_module_parameter_count(layer, &count));
    const heed_status found = heed_module_parameter(layer, choices_.below(12), &words, &made);
    require((found == HEED_OK) == (words != nullptr) && (!words || *words != 0));
    result(tensor, found, made);
  }
  void create_optimizer() {
    static constexpr const char* kinds[] = {"adam", "sgd", "adamw", "muon", nullptr};
    std::vector<heed_tensor*> parameters;
    for (unsigned left = choices_.below(4); left > 0; --left) parameters.push_back(some_tensor());
    const std::string json = settings({"beta1", "beta2", "epsilon", "weight_decay", "clip_norm"});
    heed_optimizer* made = nullptr;
    const heed_status status =
        heed_optimizer_create(kinds[choices_.below(5)],
                              choices_.below(2) ? nullptr : ("{" + json.substr(json.find(',') + 1)).c_str(),
                              parameters.data(), parameters.size(), &made);
    result(optimizer, status, made);
  }
  /// Calls that can only fail.
  void misuse() {
    char* text = nullptr;
    heed_tensor* made = nullptr;
    heed_run* run = nullptr;
    heed_module* model = nullptr;
    auto* const wrong = reinterpret_cast<heed_run*>(some(static_cast<Kind>(choices_.below(4))));
    require(!ok(heed_run_open("/nowhere/at/all",
                              settings({"device", "weights", "verify", "settings"}).c_str(), &run)));
    require(!ok(heed_run_describe(wrong, &text)));
    require(!ok(heed_run_predict(wrong, nullptr, 1, settings({"errors", "first_line"}).c_str(), &text)));
    require(!ok(heed_run_capture(wrong, nullptr, 0, "/nowhere/at/all", 0, &text)));
    require(!ok(heed_run_measure(wrong, "test", &text)) && !ok(heed_run_model(wrong, &model)));
    require(!run && !text && !model);
    heed_run_free(wrong);
    const char* const whole = "";
    const void* const parts[] = {some_module()};
    require(!ok(heed_load("/nowhere/at/all", &whole, parts, 1)));
    require(!ok(heed_save("/nowhere/at/all/model", &whole, parts, 1)));
    require(!ok(heed_set_cpu_threads(-static_cast<int32_t>(choices_.below(3)))));
    require(!ok(heed_tensor_create(HEED_F32, 2, nullptr, nullptr, nullptr, &made)) && !made);
    require(!ok(heed_tensor_create(HEED_F32, 0, nullptr, nullptr, nullptr, nullptr)));
    require(!ok(heed_unary(nullptr, some_tensor(), 0, 0, &made)) && !made);
    require(!ok(heed_list(choices_.below(2) ? choices_.text().c_str() : nullptr, &text)) && !text);
    heed_context* const context_made = some_context();
    require(!ok(heed_context_auxiliary_loss(context_made, nullptr)));
  }

  FuzzChoices& choices_;
  int64_t before_;
  std::map<Kind, std::vector<std::uintptr_t>> handles_;
  std::vector<std::uintptr_t> freed_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  static inline std::map<std::string, std::vector<std::string>> names_, settings_;
};

}  // namespace

// The C API given a program by the input: no call crashes, each that fails says why and returns nothing,
// handles are counted rightly, and lent memory is released once.
bool fuzz_c_api(std::string_view bytes) {
  heed_set_cpu_threads(1);  // so little work is not worth waking others
  FuzzChoices choices(bytes);
  CProgram(choices).run();
  return true;
}

}  // namespace heed::fuzz
