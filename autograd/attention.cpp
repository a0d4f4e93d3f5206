#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

struct Sizes {
  std::int64_t batch, heads, queries, keys;
};

void check_bias(const char* op, const Sizes& sizes, const Tensor& query, const AttentionOptions& options) {
  if (const Tensor& slopes = options.slopes; slopes.defined()) {
    const DType wanted = statistics_type(query.dtype());
    check(slopes.shape() == Shape{sizes.heads} && slopes.dtype() == wanted, op, ": slopes must be ", wanted,
          " of shape [H] = ", Shape{sizes.heads}, ", got ", slopes.dtype(), " of shape ", slopes.shape());
    check(slopes.device() == query.device(), op, ": the slopes are on another device than the query");
    check(!slopes.tracked(), op, ": slopes have no gradient; use a bias to learn them");
  }
  if (const Tensor& bias = options.bias; bias.defined()) {
    check_same(op, query, bias);
    check(bias.rank() == 4 && (bias.size(0) == 1 || bias.size(0) == sizes.batch) &&
              (bias.size(1) == 1 || bias.size(1) == sizes.heads) && bias.size(2) == sizes.queries &&
              bias.size(3) == sizes.keys,
          op, ": bias of shape ", bias.shape(), " must be [1 or B, 1 or H, N, M] for [B, H, N, M] = ",
          Shape{sizes.batch, sizes.heads, sizes.queries, sizes.keys});
  }
}

Sizes check_attention(const char* op, const Tensor& query, const Tensor& key,
                      const AttentionOptions& options) {
  check_same(op, query, key);
  check_floating(op, query);
  check(query.rank() == 4 && key.rank() == 4 && query.size(0) == key.size(0) &&
            query.size(1) == key.size(1) && query.size(3) == key.size(3),
        op, ": query of shape ", query.shape(), " and key of shape ", key.shape(),
        " must be [B, H, N, dk] and [B, H, M, dk]");
  check(query.size(3) > 0, op, ": heads of width 0 cannot be compared: query of shape ", query.shape());
  const Sizes sizes{query.size(0), query.size(1), query.size(2), key.size(2)};
  for (const Tensor& mask : {options.key_mask, options.mask})
    check(!mask.defined() || mask.device() == query.device(), op,
          ": a mask is on another device than the query");
  if (options.key_mask.defined()) {
    check_indices(op, options.key_mask);
    check(options.key_mask.shape() == Shape{sizes.batch, sizes.keys}, op, ": key mask of shape ",
          options.key_mask.shape(), " must be [B, M] = ", Shape{sizes.batch, sizes.keys});
  }
  if (options.mask.defined()) {
    check_indices(op, options.mask);
    const Shape full{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
    check(broadcast_shapes(op, options.mask.shape(), full) == full, op, ": mask of shape ",
          options.mask.shape(), " does not broadcast to ", full);
  }
  if (const BlockPattern* pattern = options.pattern.get()) {
    pattern->check_layout();
    check(pattern->queries == sizes.queries && pattern->keys == sizes.keys &&
              (pattern->heads == 1 || pattern->heads == sizes.heads),
          op, ": a block pattern for ", pattern->heads, " heads, ", pattern->queries, " queries and ",
          pattern->keys, " keys does not fit ", sizes.heads, " heads, ", sizes.queries, " queries and ",
          sizes.keys, " keys");
  }
  check_bias(op, sizes, query, options);
  check(options.dropout >= 0 && options.dropout < 1, op, ": dropout ", options.dropout, " is outside [0, 1)");
  return sizes;
}

double logit_scale(const Tensor& query, const AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(query.size(3)));
}

/// i32 [N, M]: key j is allowed for query i when j <= i + M - N.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, Device device) {
  const Tensor row = Tensor::arange(queries, DType::i32, device).view({queries, 1});
  return less_equal(Tensor::arange(keys, DType::i32, device).view({1, keys}),
                    row + static_cast<double>(keys - queries));
}

/// The logits q k^T scale, with slopes and bias added: [B, H, N, M].
Tensor attention_logits(const Tensor& query, const Tensor& key, const Sizes& sizes,
                        const AttentionOptions& options) {
  Tensor logits = matmul(query, transpose(key, -2, -1)) * logit_scale(query, options);
  if (options.slopes.defined()) {
    const auto places = [&](std::int64_t count) { return Tensor::arange(count, DType::i32, query.device()); };
    const Tensor ahead = unsqueeze(places(sizes.keys), 0) - (unsqueeze(places(sizes.queries), 1) +
                                                             static_cast<double>(sizes.keys - sizes.queries));
    const Tensor distances = cast(abs(ahead), options.slopes.dtype());  // [N, M]
    logits = logits - cast(reshape(options.slopes, {sizes.heads, 1, 1}) * distances, query.dtype());
  }
  return options.bias.defined() ? logits + options.bias : logits;
}

/// The product of all masks, broadcastable to [B, H, N, M]; undefined when everything is allowed.
Tensor allowed_entries(const Sizes& sizes, const AttentionOptions& options, Device device) {
  Tensor allowed = options.mask;
  const auto restrict_to = [&](const Tensor& mask) { allowed = allowed.defined() ? allowed * mask : mask; };
  if (options.key_mask.defined())
    restrict_to(options.key_mask.view({sizes.batch, 1, 1, sizes.keys},
                                      {options.key_mask.stride(0), 0, 0, options.key_mask.stride(1)},
                                      options.key_mask.offset()));
  if (options.causal) restrict_to(causal_mask(sizes.queries, sizes.keys, device));
  if (options.bias.defined())
    restrict_to(greater(options.bias.detach(), -std::numeric_limits<double>::infinity()));
  if (options.pattern) restrict_to(options.pattern->dense().to(device));
  return allowed;
}

Tensor rows_adjacent(const Tensor& x) {
  return x.stride(3) == 1 || x.size(3) == 1 ? x : contiguous(x);
}

/// [B, H, N, d] stored as [B, N, H, d], so that merging the heads afterwards copies nothing.
Tensor empty_heads(const Tensor& like, std::int64_t width) {
  return permute(empty_like(like, {like.size(0), like.size(2), like.size(1), width}), {0, 2, 1, 3});
}

AttentionArgs kernel_arguments(const Tensor& query, const Tensor& key, const Tensor& value,
                               const AttentionOptions& options) {
  AttentionArgs args{options, rows_adjacent(query.detach()), rows_adjacent(key.detach()),
                     rows_adjacent(value.detach())};
  args.scale = logit_scale(query, options);
  args.key_mask = plain(args.key_mask);
  if (args.mask.defined())
    args.mask = broadcast_view(args.mask, {query.size(0), query.size(1), query.size(2), key.size(2)});
  args.slopes = plain(args.slopes);
  if (args.bias.defined()) args.bias = rows_adjacent(args.bias.detach());
  return args;
}

/// A call of the fused kernels: the results of forward, with all that backward reads.
struct FusedAttention {
  AttentionArgs args;
  bool wants_product, wants_bias;  // whether q k^T and the bias need gradients
  Tensor output;
  /// [B, H, N, 2]: the largest score of each query and the sum of exp(score - largest). They are kept apart,
  /// because adding the logarithm of the sum to a large score would round it away.
  Tensor sums;

  FusedAttention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options)
      : args(kernel_arguments(query, key, value, options)),
        wants_product(query.tracked() || key.tracked()),
        wants_bias(options.bias.tracked()),
        output(empty_heads(query, value.size(3))),
        sums(Tensor::empty({query.size(0), query.size(1), query.size(2), 2}, statistics_type(query.dtype()),
                           query.device())) {
    backend_of(query).attention.forward(args, output, sums);
  }

  std::array<const Tensor*, 8> reads() const {
    return {&args.query, &args.key,    &args.value, &args.key_mask,
            &args.mask,  &args.slopes, &args.bias,  &output};
  }

  /// Of query, key, value and bias, from the gradients of the output and of log_sum_exp (undefined: 0).
  Gradients gradients(const Tensor& grad, const Tensor& log_sum_exp_grad) const {
    const Tensor dquery = wants_product ? empty_heads(args.query, args.query.size(3)) : Tensor();
    const Tensor dkey = wants_product ? empty_heads(args.key, args.key.size(3)) : Tensor();
    const Tensor dvalue = empty_heads(args.value, args.value.size(3));
    const Tensor dbias = wants_bias ? empty_like(args.bias) : Tensor();
    backend_of(grad).attention.backward(args, output, sums, rows_adjacent(grad), log_sum_exp_grad, dquery,
                                        dkey, dvalue, dbias);
    return {dquery, dkey, dvalue, dbias};
  }
};

Tensor attention_fused(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options) {
  const FusedAttention fused(query, key, value, options);
  const Tensor inputs[] = {query, key, value, options.bias};
  return record(
      "attention", fused.output, inputs, [fused](const Tensor& grad) { return fused.gradients(grad, {}); },
      fused.reads());
}

AttentionPart attention_part_fused(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionOptions& options) {
  const FusedAttention fused(query, key, value, options);
  const Tensor largest = select(fused.sums, 3, 0), total = select(fused.sums, 3, 1);
  const Tensor inputs[] = {query, key, value, options.bias};
  const Tensor outs[] = {fused.output, largest + log(total)};  // -infinity for queries without keys
  const std::vector<Tensor> results = record_joint(
      "attention_part", outs, inputs,
      [fused](std::span<const Tensor> grads) {
        const Tensor& grad = grads[0];
        return fused.gradients(
            grad.defined() ? grad : Tensor::zeros(fused.output.shape(), grads[1].dtype(), grads[1].device()),
            plain(grads[1]));
      },
      fused.reads());
  return {results[0], results[1]};
}

/// Composed of single ops. A query without keys has output 0 and passes no gradient on.
AttentionPart attention_part_composed(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionOptions& options) {
  const Sizes sizes = check_attention("attention_part", query, key, options);
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  const Tensor scores = attention_logits(query, key, sizes, options);
  if (sizes.keys == 0)
    return {matmul(scores, value),
            Tensor::full({sizes.batch, sizes.heads, sizes.queries}, nothing, query.dtype(), query.device())};
  const Tensor allowed = allowed_entries(sizes, options, query.device());
  const Tensor logits = allowed.defined() ? where(allowed, scores, nothing) : scores;
  const Tensor largest = max(logits.detach(), -1, true);
  const Tensor none = equal(largest, nothing);
  const Tensor shift = where(none, 0, largest);
  const Tensor exponentials = exp(logits - shift);
  // The sum is at least 1 for a query with a key, so 0.5 only guards the others.
  const Tensor total = maximum(sum(exponentials, -1, true), 0.5);
  const Tensor weights = dropout(exponentials / total, options.dropout, options.dropout_key);
  return {matmul(weights, value), squeeze(where(none, nothing, log(total) + shift), -1)};
}

void check_value(const char* op, const Tensor& query, const Tensor& key, const Tensor& value) {
  check_same(op, query, value);
  check(value.rank() == 4 && value.size(0) == key.size(0) && value.size(1) == key.size(1) &&
            value.size(2) == key.size(2) && value.size(3) > 0,
        op, ": value of shape ", value.shape(), " does not fit key of shape ", key.shape());
}

}  // namespace

Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const Sizes sizes = check_attention("attention_weights", query, key, options);
  const Tensor scores = attention_logits(query, key, sizes, options);
  const Tensor allowed = allowed_entries(sizes, options, query.device());
  return allowed.defined() ? masked_softmax(scores, allowed) : softmax(scores, -1);
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options) {
  check_attention("attention", query, key, options);
  check_value("attention", query, key, value);
  if (usable(backend_of(query).attention)) return attention_fused(query, key, value, options);
  return matmul(dropout(attention_weights(query, key, options), options.dropout, options.dropout_key), value);
}

AttentionPart attention_part(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options) {
  check_attention("attention_part", query, key, options);
  check_value("attention_part", query, key, value);
  if (is_half(query.dtype())) {  // log_sum_exp must be f32, so compute in f32 and round only the output
    const auto full = [](const Tensor& x) { return cast(x, DType::f32); };
    AttentionOptions precise = options;
    if (options.bias.defined()) precise.bias = full(options.bias);
    const AttentionPart part = attention_part(full(query), full(key), full(value), precise);
    return {cast(part.output, query.dtype()), part.log_sum_exp};
  }
  return usable(backend_of(query).attention) ? attention_part_fused(query, key, value, options)
                                             : attention_part_composed(query, key, value, options);
}

Tensor join_attention(std::span<const AttentionPart> parts) {
  check(!parts.empty(), "join_attention: there is no part");
  std::vector<Tensor> sums;
  for (const AttentionPart& part : parts) sums.push_back(part.log_sum_exp);
  const Tensor weights = cast(softmax(stack(sums, -1), -1), parts[0].output.dtype());  // [..., parts]
  Tensor total;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Tensor weight = slice(weights, -1, static_cast<std::int64_t>(p), static_cast<std::int64_t>(p) + 1);
    total = total.defined() ? total + parts[p].output * weight : parts[p].output * weight;
  }
  return total;
}

}  // namespace heed
