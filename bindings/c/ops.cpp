// The C API: ops, by name if they are in the library's table.

#include "heed/autograd/ops.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/base/names.h"
#include "heed/c/handles.h"

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

}  // namespace

std::string op_names_json() {
  return nlohmann::ordered_json({{"unary", unary_names},
                                 {"binary", binary_names},
                                 {"compare", compare_names},
                                 {"reduce", reduce_names}})
      .dump();
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
