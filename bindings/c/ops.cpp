// The C API: ops, by name if they are in the library's table.

#include "heed/autograd/ops.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

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

/// All elements along one axis.
Tensor flat(const Tensor& x) {
  return reshape(x, {x.count()});
}

Tensor reduced(const std::string& op, const Tensor& x, int32_t axis, bool keep) {
  const bool all = axis == HEED_ALL_AXES;
  if (op == "sum") return all ? sum(x) : sum(x, axis, keep);
  if (op == "mean") return all ? mean(x) : mean(x, axis, keep);
  const Tensor values = all ? flat(x) : x;
  if (all) axis = 0;
  if (op == "max") return max(values, axis, keep);
  if (op == "min") return min(values, axis, keep);
  if (op == "log_sum_exp") return log_sum_exp(values, axis, keep);
  const Tensor first = argmax(values, axis);
  return keep ? unsqueeze(first, axis) : first;
}

Tensor attention_of(const heed_tensor* query, const heed_tensor* key, const heed_tensor* value,
                    const heed_tensor* mask, int32_t causal, const heed_tensor* bias,
                    const heed_tensor* slopes) {
  AttentionOptions options;
  options.mask = optional_tensor(mask, "mask");
  options.causal = causal != 0;
  options.bias = optional_tensor(bias, "bias");
  options.slopes = optional_tensor(slopes, "slopes");
  return attention(tensor_of(query, "query"), tensor_of(key, "key"), tensor_of(value, "value"), options);
}

/// The tensors that an op by name was given; a missing one is undefined.
class Inputs {
 public:
  /// What heed_op() was given for `takes`, the words before the first ';': one that ends in '?' may be missing,
  /// one that ends in "..." stands for any number.
  Inputs(const std::string& op, std::string_view takes, const heed_tensor* const* given, std::size_t count) {
    check_argument(given != nullptr || count == 0, "inputs is NULL");
    std::size_t needed = 0, most = 0;
    std::istringstream words{std::string(takes.substr(0, takes.find(';')))};
    std::vector<bool> optional;
    for (std::string word; words >> word;) {
      if (word.ends_with("...")) most = count;
      optional.push_back(word.ends_with('?'));
      most = std::max(most, optional.size());
      if (!optional.back()) needed = optional.size();
    }
    check_argument(count >= needed && count <= most, op, " takes ", takes, ", but got ", count, " tensors");
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = concat_text("inputs[", i, ']');
      const bool may_miss = i < optional.size() && optional[i];
      tensors_.push_back(may_miss ? optional_tensor(given[i], name.c_str())
                                  : tensor_of(given[i], name.c_str()));
    }
  }
  Tensor operator[](std::size_t i) const { return i < tensors_.size() ? tensors_[i] : Tensor(); }
  const std::vector<Tensor>& all() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};
using With = const Options&;  // the settings of an op
using Made = std::vector<Tensor>;

struct NamedOp {
  const char* name;
  const char* takes;  ///< tensors; settings
  Made (*run)(const Inputs& in, With with);
};

template <class Number>
std::vector<Number> numbers(With with, std::string_view name) {
  std::vector<Number> found;
  for (const double number : with.take_numbers(name, {}, -1e15, 1e15)) {
    check(number == std::floor(number), "'", name, "' has whole numbers, not ", number);
    found.push_back(static_cast<Number>(number));
  }
  return found;
}
Shape shape_setting(With with) {
  const std::vector<std::int64_t> extents = numbers<std::int64_t>(with, "shape");
  return shape_of(static_cast<int32_t>(std::min<std::size_t>(extents.size(), 1000)), extents.data());
}
int axis_setting(With with, std::int64_t fallback = -1) {
  return static_cast<int>(with.take_integer("axis", fallback, -HEED_MAX_RANK, HEED_MAX_RANK));
}
/// Those of the setting "axes"; without it all.
Axes axes_setting(const Tensor& x, With with) {
  std::vector<int> axes = numbers<int>(with, "axes");
  if (!with.values().contains("axes"))
    for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  return axes;
}
RandomKey key_setting(With with) {
  return {static_cast<std::uint64_t>(with.take_integer("seed", 0, 0)),
          static_cast<std::uint32_t>(with.take_integer("step", 0, 0, 0xffffffff)),
          static_cast<std::uint32_t>(with.take_integer("stream", 0, 0, 0xffffffff))};
}
double epsilon_setting(With with) {
  return with.take_number("epsilon", 1e-5);
}
AttentionOptions attention_setting(const Inputs& in, std::size_t mask, With with) {
  AttentionOptions options;
  options.mask = in[mask];
  options.bias = in[mask + 1];
  options.slopes = in[mask + 2];
  options.causal = with.take_bool("causal", false);
  options.scale = with.take_number("scale", 0);
  return options;
}

template <Tensor (*over)(const Tensor&, const Axes&, bool)>
Made over_axes(const Inputs& in, With with) {
  return {over(in[0], axes_setting(in[0], with), with.take_bool("keep_axes", false))};
}
constexpr const char* reduction = "x; axes, keep_axes";

const NamedOp named_ops[] = {
    // elements
    {"masked_fill", "x mask; value",
     [](const Inputs& in, With with) -> Made {
       return {masked_fill(in[0], in[1], with.take_number("value", 0))};
     }},
    {"logical_not", "x", [](const Inputs& in, With) -> Made { return {logical_not(in[0])}; }},
    {"isnan", "x", [](const Inputs& in, With) -> Made { return {isnan(in[0])}; }},
    {"isfinite", "x", [](const Inputs& in, With) -> Made { return {isfinite(in[0])}; }},
    // shape
    {"expand", "x; shape",
     [](const Inputs& in, With with) -> Made { return {expand(in[0], shape_setting(with))}; }},
    {"split", "x; axis, sizes",
     [](const Inputs& in, With with) -> Made {
       return split(in[0], axis_setting(with, 0), numbers<std::int64_t>(with, "sizes"));
     }},
    {"pad", "x; axis, before, after, value",
     [](const Inputs& in, With with) -> Made {
       return {pad(in[0], axis_setting(with), with.take_integer("before", 0), with.take_integer("after", 0),
                   with.take_number("value", 0))};
     }},
    {"contiguous", "x", [](const Inputs& in, With) -> Made { return {contiguous(in[0])}; }},
    {"roll", "x; axis, shift",
     [](const Inputs& in, With with) -> Made {
       return {roll(in[0], with.take_integer("shift", 0), axis_setting(with))};
     }},
    {"repeat", "x; axis, count",
     [](const Inputs& in, With with) -> Made {
       return {repeat(in[0], with.take_integer("count", 1), axis_setting(with))};
     }},
    {"tile", "x; shape",
     [](const Inputs& in, With with) -> Made { return {tile(in[0], shape_setting(with))}; }},
    {"flip", "x; axes",
     [](const Inputs& in, With with) -> Made { return {flip(in[0], axes_setting(in[0], with))}; }},
    {"tril", "x; diagonal",
     [](const Inputs& in, With with) -> Made { return {tril(in[0], with.take_integer("diagonal", 0))}; }},
    {"triu", "x; diagonal",
     [](const Inputs& in, With with) -> Made { return {triu(in[0], with.take_integer("diagonal", 0))}; }},
    {"one_hot", "ids; classes, dtype",
     [](const Inputs& in, With with) -> Made {
       return {one_hot(in[0], with.take_integer("classes", 0),
                       with.take_choice("dtype", {"f32", "f64"}) == "f64" ? DType::f64 : DType::f32)};
     }},
    // reductions
    {"sum", reduction, over_axes<sum>},
    {"mean", reduction, over_axes<mean>},
    {"max", reduction, over_axes<max>},
    {"min", reduction, over_axes<min>},
    {"prod", reduction, over_axes<prod>},
    {"norm", reduction, over_axes<norm>},
    {"variance", "x; axes, keep_axes, correction",
     [](const Inputs& in, With with) -> Made {
       return {variance(in[0], axes_setting(in[0], with), with.take_bool("keep_axes", false),
                        with.take_integer("correction", 0))};
     }},
    {"standard_deviation", "x; axes, keep_axes, correction",
     [](const Inputs& in, With with) -> Made {
       return {standard_deviation(in[0], axes_setting(in[0], with), with.take_bool("keep_axes", false),
                                  with.take_integer("correction", 0))};
     }},
    {"sum_to", "x; shape",
     [](const Inputs& in, With with) -> Made { return {sum_to(in[0], shape_setting(with))}; }},
    {"cumulative_sum", "x; axis, reverse",
     [](const Inputs& in, With with) -> Made {
       return {cumulative_sum(in[0], axis_setting(with), with.take_bool("reverse", false))};
     }},
    {"fourier", "x lengths?", [](const Inputs& in, With) -> Made { return {fourier(in[0], in[1])}; }},
    {"masked_softmax", "x allowed",
     [](const Inputs& in, With) -> Made { return {masked_softmax(in[0], in[1])}; }},
    // products
    {"linear_maps", "x weight bias? ...",
     [](const Inputs& in, With) -> Made {
       std::vector<LinearMap> maps;
       for (std::size_t i = 1; i < in.all().size(); i += 2) maps.push_back({in[i], in[i + 1]});
       return linear_maps(in[0], maps);
     }},
    {"feed_forward", "x first_weight first_bias? second_weight second_bias?; activation",
     [](const Inputs& in, With with) -> Made {
       const std::string name = with.take_text("activation", "relu");
       const auto activation = static_cast<UnaryOp>(number_of(name.c_str(), unary_names, "unary"));
       return {feed_forward(in[0], {in[1], in[2]}, activation, {in[3], in[4]})};
     }},
    {"einsum", "operands...; equation",
     [](const Inputs& in, With with) -> Made { return {einsum(with.take_text("equation", ""), in.all())}; }},
    // indices
    {"index_select", "x ids; axis",
     [](const Inputs& in, With with) -> Made { return {index_select(in[0], axis_setting(with, 0), in[1])}; }},
    {"gather_rows", "x ids", [](const Inputs& in, With) -> Made { return {gather_rows(in[0], in[1])}; }},
    {"scatter_add_rows", "x ids; rows",
     [](const Inputs& in, With with) -> Made {
       return {scatter_add_rows(in[0], in[1], with.take_integer("rows", 0))};
     }},
    {"gather", "x ids; axis",
     [](const Inputs& in, With with) -> Made { return {gather(in[0], axis_setting(with), in[1])}; }},
    {"scatter_add", "x ids; axis, extent",
     [](const Inputs& in, With with) -> Made {
       return {scatter_add(in[0], axis_setting(with), in[1], with.take_integer("extent", 0))};
     }},
    {"argsort", "x; descending",
     [](const Inputs& in, With with) -> Made {
       return {argsort(in[0], with.take_bool("descending", false))};
     }},
    {"sort", "x; descending",
     [](const Inputs& in, With with) -> Made {
       const auto [values, ids] = sort(in[0], with.take_bool("descending", false));
       return {values, ids};
     }},
    {"top_k", "x; k",
     [](const Inputs& in, With with) -> Made {
       const auto [values, ids] = top_k(in[0], with.take_integer("k", 1));
       return {values, ids};
     }},
    // normalisation, dropout, losses
    {"rms_norm", "x weight?; epsilon",
     [](const Inputs& in, With with) -> Made { return {rms_norm(in[0], in[1], epsilon_setting(with))}; }},
    {"rotary", "x cosines sines",
     [](const Inputs& in, With) -> Made { return {rotary(in[0], in[1], in[2])}; }},
    {"dropout_add", "x residual; p, seed, step, stream",
     [](const Inputs& in, With with) -> Made {
       return {dropout_add(in[0], in[1], with.take_number("p", 0), key_setting(with))};
     }},
    {"add_layer_norm", "x residual weight? bias?; p, seed, step, stream, epsilon",
     [](const Inputs& in, With with) -> Made {
       const NormedSum both = add_layer_norm(in[0], in[1], with.take_number("p", 0), key_setting(with), in[2],
                                             in[3], epsilon_setting(with));
       return {both.sum, both.normalised};
     }},
    {"add_rms_norm", "x residual weight?; p, seed, step, stream, epsilon",
     [](const Inputs& in, With with) -> Made {
       const NormedSum both = add_rms_norm(in[0], in[1], with.take_number("p", 0), key_setting(with), in[2],
                                           epsilon_setting(with));
       return {both.sum, both.normalised};
     }},
    {"mean_squared_error", "x target",
     [](const Inputs& in, With) -> Made { return {mean_squared_error(in[0], in[1])}; }},
    {"kl_divergence", "log_p log_q",
     [](const Inputs& in, With) -> Made { return {kl_divergence(in[0], in[1])}; }},
    {"linear_cross_entropy", "x weight bias? targets; smoothing, ignored, rows_at_once",
     [](const Inputs& in, With with) -> Made {
       return {linear_cross_entropy(
           in[0], in[1], in[2], in[3], with.take_number("smoothing", 0),
           static_cast<std::int32_t>(with.take_integer("ignored", -1, INT32_MIN, INT32_MAX)),
           with.take_integer("rows_at_once", 0, 0))};
     }},
    {"permutation", "; count, seed, step, stream, device",
     [](const Inputs&, With with) -> Made {
       return {permutation(with.take_integer("count", 0, 0), key_setting(with),
                           find_device(with.take_text("device", "")))};
     }},
    // attention
    {"attention_part", "query key value mask? bias? slopes?; causal, scale",
     [](const Inputs& in, With with) -> Made {
       const AttentionPart part = attention_part(in[0], in[1], in[2], attention_setting(in, 3, with));
       return {part.output, part.log_sum_exp};
     }},
    {"join_attention", "output log_sum_exp ...",
     [](const Inputs& in, With) -> Made {
       check_argument(in.all().size() % 2 == 0, "join_attention takes pairs of tensors, but got ",
                      in.all().size(), " tensors");
       std::vector<AttentionPart> parts;
       for (std::size_t i = 0; i < in.all().size(); i += 2) parts.push_back({in[i], in[i + 1]});
       return {join_attention(parts)};
     }},
    {"attention_weights", "query key mask? bias? slopes?; causal, scale",
     [](const Inputs& in, With with) -> Made {
       return {attention_weights(in[0], in[1], attention_setting(in, 2, with))};
     }},
};

const NamedOp& named_op(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedOp& op : named_ops) {
    if (op.name == name) return op;
    names.emplace_back(op.name);
  }
  fail("unknown op '", name, "'", suggest_name(name, names));
}

}  // namespace

std::string op_names_json() {
  nlohmann::ordered_json names = {
      {"unary", unary_names}, {"binary", binary_names}, {"compare", compare_names}, {"reduce", reduce_names}};
  for (const NamedOp& op : named_ops) names["named"][op.name] = op.takes;
  return names.dump();
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

heed_status heed_where(const heed_tensor* condition, const heed_tensor* a, const heed_tensor* b,
                       heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    return where(tensor_of(condition, "condition"), tensor_of(a, "a"), tensor_of(b, "b"));
  });
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

heed_status heed_softmax(const heed_tensor* x, int32_t axis, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return softmax(tensor_of(x, "x"), axis); });
}

heed_status heed_log_softmax(const heed_tensor* x, int32_t axis, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return log_softmax(tensor_of(x, "x"), axis); });
}

heed_status heed_reshape(const heed_tensor* x, int32_t rank, const int64_t* shape, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return reshape(tensor_of(x, "x"), shape_of(rank, shape)); });
}

heed_status heed_permute(const heed_tensor* x, int32_t rank, const int64_t* order, heed_tensor** out) {
  return guarded_tensor(__func__, out,
                        [&] { return permute(tensor_of(x, "x"), shape_of(rank, order, "order")); });
}

heed_status heed_slice(const heed_tensor* x, int32_t axis, int64_t begin, int64_t end, int64_t step,
                       heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return slice(tensor_of(x, "x"), axis, begin, end, step); });
}

heed_status heed_concat(const heed_tensor* const* parts, size_t count, int32_t axis, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] { return concat(tensors_of(parts, count, "parts"), axis); });
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

heed_status heed_embedding(const heed_tensor* table, const heed_tensor* ids, heed_tensor** out) {
  return guarded_tensor(__func__, out,
                        [&] { return embedding(tensor_of(table, "table"), tensor_of(ids, "ids")); });
}

heed_status heed_layer_norm(const heed_tensor* x, const heed_tensor* weight, const heed_tensor* bias,
                            double epsilon, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    return layer_norm(tensor_of(x, "x"), optional_tensor(weight, "weight"), optional_tensor(bias, "bias"),
                      epsilon == 0 ? 1e-5 : epsilon);
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

heed_status heed_attention(const heed_tensor* query, const heed_tensor* key, const heed_tensor* value,
                           const heed_tensor* mask, int32_t causal, heed_tensor** out) {
  return guarded_tensor(__func__, out,
                        [&] { return attention_of(query, key, value, mask, causal, nullptr, nullptr); });
}

heed_status heed_biased_attention(const heed_tensor* query, const heed_tensor* key, const heed_tensor* value,
                                  const heed_tensor* mask, int32_t causal, const heed_tensor* bias,
                                  const heed_tensor* slopes, heed_tensor** out) {
  return guarded_tensor(__func__, out,
                        [&] { return attention_of(query, key, value, mask, causal, bias, slopes); });
}

heed_status heed_op(const char* op, const heed_tensor* const* inputs, size_t count, const char* settings,
                    heed_tensor** outputs, size_t room, size_t* made) {
  if (made) *made = 0;
  for (std::size_t i = 0; outputs && i < room; ++i) outputs[i] = nullptr;
  return guarded(__func__, [&] {
    const std::string name = text_of(op, "op");
    const NamedOp& named = named_op(name);
    check_argument(outputs != nullptr || room == 0, "outputs is NULL");
    const Options with = settings_of(settings);
    const Inputs in(named.name, named.takes, inputs, count);
    const Made results = named.run(in, with);
    with.check_all_taken(concat_text("the op '", named.name, "'"));
    check_argument(results.size() <= room, named.name, " makes ", results.size(),
                   " tensors, but outputs has room for ", room);
    for (std::size_t i = 0; i < results.size(); ++i)
      outputs[i] = new_handle<heed_tensor>(std::make_shared<Tensor>(results[i]));
    if (made) *made = results.size();
  });
}
