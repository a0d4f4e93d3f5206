// The C API: ops, by name if they are in the library's table.

#include "heed/autograd/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "heed/base/names.h"
#include "heed/c/handles.h"
#include "heed/core/device.h"

namespace heed::c {
namespace {

const std::vector<std::string> unary_names = {
#define HEED_UNARY(name, ...) #name,
#include "heed/core/elementwise.def"
};
const std::vector<std::string> binary_names = {
#define HEED_BINARY(name, ...) #name,
#include "heed/core/elementwise.def"
};
const std::vector<std::string> compare_names = {
#define HEED_COMPARE(name, ...) #name,
#include "heed/core/elementwise.def"
};
const std::vector<std::string> reduce_names = {"sum", "mean", "max", "min", "log_sum_exp", "argmax"};

/// The index of a name in its list, which is the number of the op.
std::size_t number_of(const char* op, const std::vector<std::string>& names, const char* kind) {
  const std::string name = text_of(op, "op");
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) fail("unknown ", kind, " op '", name, "'", suggest_name(name, names));
  return static_cast<std::size_t>(found - names.begin());
}

Tensor reduced(const std::string& op, const Tensor& x, int32_t axis, bool keep) {
  const bool all = axis == HEED_ALL_AXES;
  if (op == "sum") return all ? sum(x) : sum(x, axis, keep);
  if (op == "mean") return all ? mean(x) : mean(x, axis, keep);
  const Tensor values = all ? reshape(x, {x.count()}) : x;
  if (all) axis = 0;
  if (op == "max") return max(values, axis, keep);
  if (op == "min") return min(values, axis, keep);
  if (op == "log_sum_exp") return log_sum_exp(values, axis, keep);
  const Tensor first = argmax(values, axis);
  return keep ? unsqueeze(first, axis) : first;
}

/// reshape(), but a view whenever only extents of 1 come or go, so that what is written to it gets
/// to x.
Tensor reshaped(const Tensor& x, const Shape& shape) {
  const auto without_ones = [](const Shape& of) {
    std::vector<std::int64_t> kept(of.begin(), of.end());
    std::erase(kept, 1);
    return kept;
  };
  if (x.is_contiguous()) return reshape(x, shape);
  Shape target = shape;
  if (const auto unknown = std::ranges::find(shape, -1); unknown != shape.end()) {
    std::int64_t known = 1;
    for (const std::int64_t extent : shape)
      if (extent != -1) known = checked_product("reshape", known, extent);
    if (known > 0) target[static_cast<int>(unknown - shape.begin())] = x.count() / known;
  }
  if (without_ones(x.shape()) != without_ones(target)) return reshape(x, shape);
  Tensor view = x;
  for (int i = x.rank() - 1; i >= 0; --i)
    if (x.size(i) == 1) view = squeeze(view, i);
  for (int i = 0; i < target.rank(); ++i)
    if (target[i] == 1) view = unsqueeze(view, i);
  return view;
}

using OpResults = std::vector<Tensor>;

/// Cuts `text` after the first `end`, and returns the part before it, without leading spaces.
std::string_view cut(std::string_view& text, char end) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

/// The arguments of heed_op(), read in the order in which the C++ function of the op takes them.
class OpArguments {
 public:
  /// `takes`: tensors; settings -> results. A tensor that ends in '?' may be missing; "..." allows
  /// more of the last tensor or, after a space, more of the last pair. A missing setting has the
  /// value after its '=', or 0 or none.
  OpArguments(const std::string& op, std::string_view takes, const Options& defaults,
              const heed_tensor* const* tensors, std::size_t count, Options with)
      : op_(op), defaults_(defaults), with_(std::move(with)), declared_(takes) {
    for (const auto& [name, value] : defaults.values())
      if (!with_.values().empty() && !with_.values().contains(name)) with_.set(name, value);
    check_argument(tensors != nullptr || count == 0, "inputs is NULL");
    std::vector<bool> optional;
    std::size_t needed = 0, period = 0;  // how many of the last the dots repeat
    for (std::string_view words = cut(declared_, ';'); !words.empty();) {
      const std::string_view word = cut(words, ' ');
      if (word.ends_with("...")) period = word.size() == 3 ? 2 : 1;
      if (word == "...") break;
      optional.push_back(word.ends_with('?'));
      if (!optional.back()) needed = optional.size();
    }
    check_argument(count >= needed && (period > 0 || count <= optional.size()), op, " takes ", takes,
                   ", but got ", count, " tensors");
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t last = optional.size() - period;
      const bool may_miss = optional[i < optional.size() ? i : last + (i - optional.size()) % period];
      const std::string name = "inputs[" + std::to_string(i) + ']';
      tensors_.push_back(may_miss ? optional_tensor(tensors[i], name.c_str())
                                  : tensor_of(tensors[i], name.c_str()));
    }
  }

  template <class T>
  T next() {
    T argument{};
    take(argument);
    return argument;
  }
  void check_all_taken() const {
    if (!with_.values().empty()) with_.check_all_taken(concat_text("the op '", op_, "'"));
  }

 private:
  void take(Tensor& tensor) { tensor = at_ < tensors_.size() ? tensors_[at_++] : Tensor(); }
  void take(LinearMap& map) { take(map.weight), take(map.bias); }
  void take(AttentionPart& part) { take(part.output), take(part.log_sum_exp); }
  template <class T>
  void take(std::vector<T>& all) {
    check_argument(!std::is_same_v<T, AttentionPart> || tensors_.size() % 2 == 0, op_,
                   " takes pairs of tensors, but got ", tensors_.size(), " tensors");
    while (at_ < tensors_.size()) take(all.emplace_back());
  }
  void take(bool& flag) {
    flag = value<bool>([&](const std::string& name) { return with_.take_bool(name, false); });
  }
  void take(int& number) { number = static_cast<int>(integer(INT32_MIN, INT32_MAX)); }
  void take(std::int64_t& number) { number = integer(INT64_MIN, INT64_MAX); }
  void take(double& number) {
    number = value<double>([&](const std::string& name) {
      const auto given = with_.values().find(name);
      if (name != "value" || given == with_.values().end() || !std::get_if<std::string>(&given->second))
        return with_.take_number(name, 0);
      // It fills elements, so it may be a number that JSON does not have.
      const std::string text = with_.take_choice(name, {"inf", "-inf", "nan"});
      using Limits = std::numeric_limits<double>;
      return text == "nan" ? Limits::quiet_NaN() : text == "inf" ? Limits::infinity() : -Limits::infinity();
    });
  }
  void take(std::string& text) {
    text = value<std::string>([&](const std::string& name) { return with_.take_text(name, ""); });
  }
  void take(std::vector<std::int64_t>& list) { list = integers<std::int64_t>(setting()); }
  void take(Shape& shape) {
    const auto extents = next<std::vector<std::int64_t>>();
    shape = shape_of(static_cast<int32_t>(std::min<std::size_t>(extents.size(), 1000)), extents.data());
  }
  void take(Axes& axes) {
    const std::string name = setting();
    std::vector<int> list = integers<int>(name);
    if (!with_.values().contains(name))
      for (int axis = 0; axis < tensors_[0].rank(); ++axis) list.push_back(axis);
    axes = list;
  }
  void take(DType& dtype) {
    dtype = with_.take_choice(setting(), {"f32", "f64"}) == "f64" ? DType::f64 : DType::f32;
  }
  void take(Device& device) { device = find_device(next<std::string>()); }
  void take(UnaryOp& op) {
    op = static_cast<UnaryOp>(number_of(next<std::string>().c_str(), unary_names, "unary"));
  }
  void take(RandomKey& key) {
    key.seed = static_cast<std::uint64_t>(integer(0, INT64_MAX));
    key.step = static_cast<std::uint32_t>(integer(0, UINT32_MAX));
    key.op = static_cast<std::uint32_t>(integer(0, UINT32_MAX));
  }
  void take(AttentionOptions& options) {
    take(options.mask), take(options.bias), take(options.slopes);
    take(options.causal), take(options.scale);
  }

  void take(Recurrence& r) {
    for (Tensor* tensor :
         {&r.query, &r.key, &r.value, &r.log_decay, &r.reading, &r.writing, &r.target, &r.state})
      take(*tensor);
    take(r.reverse);
  }

  /// The name of the next setting.
  std::string setting() {
    const std::string_view declared = cut(declared_, ',');
    return std::string(declared.substr(0, declared.find_first_of(":= ")));
  }
  /// The value of the next setting. Where none is given, its default takes less time than with_ does.
  template <class T, class Take>
  T value(const Take& take_given) {
    const std::string name = setting();
    const auto fallback = defaults_.values().find(name);
    const bool is_given = !with_.values().empty() || fallback == defaults_.values().end();
    return is_given ? take_given(name) : std::get<T>(fallback->second);
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return value<std::int64_t>(
        [&](const std::string& name) { return with_.take_integer(name, 0, low, high); });
  }
  template <class Number>
  std::vector<Number> integers(const std::string& name) {
    std::vector<Number> found;
    for (const double number : with_.take_numbers(name, {}, -1e15, 1e15)) {
      check(number == std::floor(number), "'", name, "' has whole numbers, not ", number);
      found.push_back(static_cast<Number>(number));
    }
    return found;
  }

  std::string op_;
  std::vector<Tensor> tensors_;
  std::size_t at_ = 0;  // the next of them
  const Options& defaults_;
  Options with_;               // what is given and, if anything is, the other defaults
  std::string_view declared_;  // the settings that are left
};

/// The form in which an argument is kept during the call.
template <class T>
struct Owned {
  using Type = std::remove_cvref_t<T>;
};
template <class T>
struct Owned<std::span<const T>> {
  using Type = std::vector<T>;
};
template <>
struct Owned<std::string_view> {
  using Type = std::string;
};

OpResults as_results(Tensor result) {
  return {std::move(result)};
}
OpResults as_results(OpResults several) {
  return several;
}
template <class Pair>
OpResults as_results(const Pair& both) {
  const auto& [first, second] = both;
  return {first, second};
}

template <class Result, class... Arguments>
OpResults call(Result (*function)(Arguments...), OpArguments& given) {
  std::tuple<typename Owned<Arguments>::Type...> arguments{given.next<typename Owned<Arguments>::Type>()...};
  return as_results(std::apply(function, arguments));
}
template <auto function>
OpResults run(OpArguments& given) {
  return call(function, given);
}
// Which of the functions of one name.
template <Tensor (*function)(const Tensor&, const Axes&, bool)>
constexpr auto reduce = run<function>;
template <Tensor (*function)(const Tensor&, const Axes&, bool, std::int64_t)>
constexpr auto spread = run<function>;
template <Tensor (*function)(std::string_view, std::span<const Tensor>)>
constexpr auto product = run<function>;
template <Tensor (*function)(std::span<const Tensor>, int)>
constexpr auto joined = run<function>;
template <Tensor (*function)(const Tensor&, const Tensor&, const Tensor&)>
constexpr auto choice = run<function>;

/// The list of all ops without a C function of their own. heed_list() returns it, and Python makes
/// its functions from it. A setting has the type of its default, or the one after its ':'.
struct NamedOp {
  const char* name;
  const char* takes;  ///< see OpArguments; settings in the order of the C++ function
  const char* does;
  OpResults (*run)(OpArguments& given);
};

// clang-format off
const NamedOp named_ops[] = {
    // elements
    {"where", "condition a b", "a where the condition is not 0, otherwise b; all three broadcast.", choice<where>},
    {"masked_fill", "x mask; value: number", "x with `value` where the mask (i32, broadcast to x) is not 0.", run<masked_fill>},
    {"logical_not", "x", "i32 1 where x is 0, else 0.", run<logical_not>},
    {"isnan", "x", "i32 1 where x is NaN, else 0.", run<isnan>},
    {"isfinite", "x", "i32 1 where x is neither infinite nor NaN, else 0.", run<isfinite>},
    // shape
    {"expand", "x; shape: ints", "A broadcast view: an extent of 1, or a missing leading axis, is repeated.", run<expand>},
    {"concat", "parts...; axis=0", "The parts, joined along an axis.", joined<concat>},
    {"split", "x; axis=0, sizes: ints -> pieces...", "Pieces of an axis with these sizes, which add up to its size.", run<split>},
    {"pad", "x; axis=-1, before=0, after=0, value=0.0", "x with `before` and `after` elements of `value` added to an axis.", run<pad>},
    {"contiguous", "x", "x with its elements in row-major order; x itself if they are.", run<contiguous>},
    {"roll", "x; shift: int, axis=-1", "x with the elements of an axis moved by `shift` places; those that leave it come in on the other side.", run<roll>},
    {"repeat", "x; count=1, axis=-1", "Every element of an axis `count` times in a row: a a b b, as in NumPy.", run<repeat>},
    {"tile", "x; shape: ints", "x repeated as a whole, so many times along each axis: a b a b. More counts than axes add leading axes.", run<tile>},
    {"flip", "x; axes", "x with the elements of these axes reversed, by default of all.", run<flip>},
    {"tril", "x; diagonal=0", "x [..., n, m] with zeros where column - row > diagonal.", run<tril>},
    {"triu", "x; diagonal=0", "x [..., n, m] with zeros where column - row < diagonal.", run<triu>},
    {"one_hot", "ids; classes: int, dtype=\"f32\"", "1 at each of the ids [...] and 0 elsewhere, [..., classes]; a row of zeros for -1.", run<one_hot>},
    // reductions: along some axes, or all
    {"sum", "x; axes, keep_axes=false", "The sum.", reduce<sum>},
    {"mean", "x; axes, keep_axes=false", "The mean.", reduce<mean>},
    {"max", "x; axes, keep_axes=false", "The largest element.", reduce<max>},
    {"min", "x; axes, keep_axes=false", "The smallest element.", reduce<min>},
    {"prod", "x; axes, keep_axes=false", "The product.", reduce<prod>},
    {"norm", "x; axes, keep_axes=false", "sqrt(sum(x^2)).", reduce<norm>},
    {"variance", "x; axes, keep_axes=false, correction=0", "The mean squared deviation; `correction` 1: sum / (n - 1), the unbiased estimate.", spread<variance>},
    {"standard_deviation", "x; axes, keep_axes=false, correction=0", "sqrt(variance); its gradient is 0 where all elements are equal.", spread<standard_deviation>},
    {"sum_to", "x; shape: ints", "x summed over the axes that broadcasting added or repeated, so that the result has this shape.", run<sum_to>},
    {"cumulative_sum", "x; axis=-1, reverse=false", "The running sum along an axis, from its end if `reverse`.", run<cumulative_sum>},
    {"running_max", "x; axis=-1", "The largest element so far along an axis, without a gradient.", run<running_max>},
    {"fourier", "x lengths?", "The real part of a discrete Fourier transform over the positions and features of x [B, N, d]; of sample b over its first lengths[b] positions, and 0 beyond.", run<fourier>},
    {"softmax", "x; axis=-1", "exp(x) / sum(exp(x)) along an axis.", run<softmax>},
    {"log_softmax", "x; axis=-1", "x - log(sum(exp(x))) along an axis.", run<log_softmax>},
    {"masked_softmax", "x allowed", "Softmax over the last axis where `allowed` (i32, broadcast to x) is not 0. All other weights are 0; a row with none allowed is all 0.", run<masked_softmax>},
    // products
    {"linear_maps", "x weight bias? ...", "linear(x, weight, bias) for each of the maps, in one op.", run<linear_maps>},
    {"feed_forward", "x first_weight first_bias? second_weight second_bias?; activation=\"relu\"", "linear(activation(linear(x, first)), second) in one op.", run<feed_forward>},
    {"einsum", "operands...; equation: text", "Einstein summation in NumPy's notation: \"bhid,bhjd->bhij\".", product<einsum>},
    // indices: i32; -1 stands for "nothing"
    {"embedding", "table ids", "Rows of table [n, width] by ids of any shape, as [..., width]; -1 gives zeros.", run<embedding>},
    {"index_select", "x ids; axis=0", "The slices of an axis picked by ids [m], the same for all other axes.", run<index_select>},
    {"gather_rows", "x ids", "Rows ids[b, i] of each sample b of x [batch, n, ...] by ids [batch, m], as [batch, m, ...].", run<gather_rows>},
    {"scatter_add_rows", "x ids; rows: int", "The adjoint of gather_rows: out [batch, rows, ...], out[b, ids[b, i]] += x[b, i].", run<scatter_add_rows>},
    {"gather", "x ids; axis=-1", "out[..., i, ...] = x[..., ids[..., i, ...], ...]; ids has the extents of x on all other axes.", run<gather>},
    {"scatter_add", "x ids; axis=-1, extent: int", "x added at ids to zeros with x's shape, but `extent` along the axis: the adjoint of gather.", run<scatter_add>},
    {"argsort", "x; descending=false", "The indices (i32) of a stable sort along the last axis.", run<argsort>},
    {"sort", "x; descending=false -> values ids", "The sorted values along the last axis, with a gradient, and their indices.", run<sort>},
    {"top_k", "x; k=1 -> values ids", "The k largest elements along the last axis, in descending order, and their indices.", run<top_k>},
    // normalisation, dropout, losses
    {"layer_norm", "x weight? bias?; epsilon=1e-5", "(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis.", run<layer_norm>},
    {"rms_norm", "x weight?; epsilon=1e-5", "x / sqrt(mean(x^2) + epsilon) * weight over the last axis.", run<rms_norm>},
    {"rotary", "x cosines sines", "x [B, N, H, dh] with elements i and i + dh / 2 at position n rotated by the angle whose cosine and sine, both [N, dh / 2], are given (rotary positions).", run<rotary>},
    {"dropout_add", "x residual; p: number, seed: int, step: int, stream=0", "residual + dropout(x), in one pass.", run<dropout_add>},
    {"add_layer_norm", "x residual weight? bias?; p=0.0, seed=0, step=0, stream=0, epsilon=1e-5 -> sum normalised", "dropout_add(x, residual) and its layer_norm, in one pass each way.", run<add_layer_norm>},
    {"add_rms_norm", "x residual weight?; p=0.0, seed=0, step=0, stream=0, epsilon=1e-5 -> sum normalised", "dropout_add(x, residual) and its rms_norm, in one pass each way.", run<add_rms_norm>},
    {"mean_squared_error", "x target", "mean((x - target)^2) of two tensors of one shape, as rank 0.", run<mean_squared_error>},
    {"kl_divergence", "log_p log_q", "KL(p || q) per row of log probabilities [..., classes]: [...].", run<kl_divergence>},
    {"linear_cross_entropy", "x weight bias? targets; smoothing=0.0, ignored=-1, rows_at_once=0", "sum(cross_entropy(linear(x, weight, bias), targets)), without ever holding all logits.", run<linear_cross_entropy>},
    {"permutation", "; count: int, seed: int, step=0, stream=0, device=\"\"", "0, ..., count - 1 (i32) in a random order, the same on every device.", run<permutation>},
    // attention
    {"dot_product_attention", "query key value mask? bias? slopes?; causal=false, scale=0.0", "softmax(q k^T scale + bias) v of query [B, H, N, dk], key [B, H, M, dk], value [B, H, M, dv]. mask (i32, 1 = allowed) and bias broadcast to [B, H, N, M]; slopes [H] times |i + M - N - j| is subtracted (ALiBi); causal allows j <= i + M - N; a scale of 0 is 1 / sqrt(dk).", run<attention>},
    {"attention_part", "query key value mask? bias? slopes?; causal=false, scale=0.0 -> output log_sum_exp", "Attention over some of the keys, and the log-sum-exp of its logits [batch, heads, length].", run<attention_part>},
    {"join_attention", "output log_sum_exp ...", "Attention with one softmax over the keys of all parts, from attention_part.", run<join_attention>},
    {"recurrence", "query key? value? log_decay? reading? writing? target? state?; reverse=false -> output state", "q S and the last state S [B, H, dk, dv] for a state that each token changes: S' = diag(e^g) S; S = S' + k^T v + w^T (x - r S'), with q, k, r, w [B, H, N, dk], v, x [B, H, N, dv] and g [B, H, N] or [B, H, N, dk].", run<recurrence>},
    {"attention_weights", "query key mask? bias? slopes?; causal=false, scale=0.0", "The attention weights [batch, heads, length, keys].", run<attention_weights>},
};
// clang-format on

/// The defaults of the settings, such as -1 in "x; axis=-1, rows: int -> values ids".
Options read_defaults(std::string_view takes) {
  Options defaults;
  cut(takes, ';');
  takes = takes.substr(0, takes.find(" ->"));
  while (!takes.empty()) {
    const std::string_view declared = cut(takes, ',');
    const std::string name(declared.substr(0, declared.find_first_of(":= ")));
    if (const std::size_t value = declared.find('='); value != declared.npos)
      defaults.set(name, option_from_json(name, declared.substr(value + 1)));
  }
  return defaults;
}

OpResults run_named(const std::string& name, const heed_tensor* const* inputs, std::size_t count,
                    const char* settings) {
  static const auto ops = [] {
    std::map<std::string, std::pair<NamedOp, Options>> by_name;
    for (const NamedOp& op : named_ops) by_name.emplace(op.name, std::pair(op, read_defaults(op.takes)));
    return by_name;
  }();
  const auto found = ops.find(name);
  if (found == ops.end()) {
    std::vector<std::string> names;
    for (const NamedOp& op : named_ops) names.emplace_back(op.name);
    fail("unknown op '", name, "'", suggest_name(name, names));
  }
  const auto& [op, defaults] = found->second;
  OpArguments given(name, op.takes, defaults, inputs, count, settings_of(settings));
  OpResults results = op.run(given);
  given.check_all_taken();
  return results;
}

}  // namespace

std::string op_names_json() {
  nlohmann::ordered_json list = {
      {"unary", unary_names}, {"binary", binary_names}, {"compare", compare_names}, {"reduce", reduce_names}};
#define HEED_UNARY(name, y, ...) list["does"][#name] = #y;
#define HEED_PARAMETRIC(name, y, ...)     \
  list["parametric"].emplace_back(#name); \
  HEED_UNARY(name, y, )
#define HEED_BINARY(name, dtypes, y, ...) list["does"][#name] = #y;
#define HEED_COMPARE(name, condition) list["does"][#name] = #condition;
#include "heed/core/elementwise.def"
  for (const NamedOp& op : named_ops) {
    list["named"][op.name] = op.takes;
    list["does"][op.name] = op.does;
  }
  return list.dump();
}

}  // namespace heed::c

using namespace heed;
using namespace heed::c;

heed_status heed_unary(const char* op, const heed_tensor* x, double p, double q, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const auto number = static_cast<UnaryOp>(number_of(op, unary_names, "unary"));
    return unary(number, tensor_of(x, "x"), {p, q});
  });
}

heed_status heed_binary(const char* op, const heed_tensor* a, const heed_tensor* b, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const auto number = static_cast<BinaryOp>(number_of(op, binary_names, "binary"));
    return binary(number, tensor_of(a, "a"), tensor_of(b, "b"));
  });
}

heed_status heed_compare(const char* op, const heed_tensor* a, const heed_tensor* b, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const auto number = static_cast<CompareOp>(number_of(op, compare_names, "comparing"));
    return compare(number, tensor_of(a, "a"), tensor_of(b, "b"));
  });
}

heed_status heed_scalar_like(const heed_tensor* like, double value, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return scalar_like(tensor_of(like, "like"), value); });
}

heed_status heed_cast(const heed_tensor* x, heed_dtype dtype, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return cast(tensor_of(x, "x"), dtype_of_number(dtype)); });
}

heed_status heed_reduce(const char* op, const heed_tensor* x, int32_t axis, int32_t keep_axis,
                        heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const std::size_t number = number_of(op, reduce_names, "reducing");
    check_argument(axis != HEED_ALL_AXES || keep_axis == 0, "keep_axis needs one axis, not HEED_ALL_AXES");
    return reduced(reduce_names[number], tensor_of(x, "x"), axis, keep_axis != 0);
  });
}

heed_status heed_reshape(const heed_tensor* x, int32_t rank, const int64_t* shape, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return reshaped(tensor_of(x, "x"), shape_of(rank, shape)); });
}

heed_status heed_permute(const heed_tensor* x, int32_t rank, const int64_t* order, heed_tensor** out) {
  return guarded_tensor(__func__, out,
                        [&] { return permute(tensor_of(x, "x"), shape_of(rank, order, "order")); });
}

heed_status heed_slice(const heed_tensor* x, int32_t axis, int64_t begin, int64_t end, int64_t step,
                       heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return slice(tensor_of(x, "x"), axis, begin, end, step); });
}

heed_status heed_matmul(const heed_tensor* a, const heed_tensor* b, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return matmul(tensor_of(a, "a"), tensor_of(b, "b")); });
}

heed_status heed_linear(const heed_tensor* x, const heed_tensor* weight, const heed_tensor* bias,
                        heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    return linear(tensor_of(x, "x"), tensor_of(weight, "weight"), optional_tensor(bias, "bias"));
  });
}

heed_status heed_dropout(const heed_tensor* x, double p, uint64_t seed, uint32_t step, uint32_t stream,
                         heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return dropout(tensor_of(x, "x"), p, {seed, step, stream}); });
}

heed_status heed_cross_entropy(const heed_tensor* logits, const heed_tensor* targets, double smoothing,
                               heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    return cross_entropy(tensor_of(logits, "logits"), tensor_of(targets, "targets"), smoothing);
  });
}

heed_status heed_op(const char* op, const heed_tensor* const* inputs, size_t count, const char* settings,
                    heed_tensor** outputs, size_t room, size_t* made) {
  if (made) *made = 0;
  for (std::size_t i = 0; outputs && i < room; ++i) outputs[i] = nullptr;
  return guarded(__func__, [&] {
    const std::string name = text_of(op, "op");
    check_argument(outputs != nullptr || room == 0, "outputs is NULL");
    const OpResults results = run_named(name, inputs, count, settings);
    check_argument(results.size() <= room, name, " makes ", results.size(),
                   " tensors, but outputs has room for ", room);
    for (std::size_t i = 0; i < results.size(); ++i)
      outputs[i] = new_handle<heed_tensor>(std::make_shared<Tensor>(results[i]));
    if (made) *made = results.size();
  });
}
