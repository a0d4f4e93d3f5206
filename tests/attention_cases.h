#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heed/core/attention.h"
#include "heed/core/backend.h"
#include "heed/core/random.h"

// Cases of attention that every backend must compute correctly.

namespace heed::test::attention_cases {

struct Case {
  std::string name = {};
  std::int64_t batch = 2, heads = 3, queries = 7, keys = 7, key_width = 5, value_width = 4;
  bool causal = false;
  double dropout = 0;
  bool heads_inside = false;  ///< views of [B, N, H, d] memory
  std::function<Tensor(const Case&)> key_mask = {}, mask = {};
  std::function<BlockPattern(const Case&)> pattern = {};
  bool slopes = false;
  std::function<std::vector<double>(const Case&)> bias = {};  ///< [bias_batches, bias_heads, N, M]
  std::int64_t bias_batches = 1, bias_heads = 1;
};

inline double random_value(std::uint32_t stream, std::uint64_t i) {
  return 2 * unit_interval(random_word({11, 0, stream}, i)) - 1;
}

/// Random values in [-1, 1), as [B, H, rows, width] of the case's layout.
inline Tensor random_panels(const Case& c, std::uint32_t stream, std::int64_t rows, std::int64_t width,
                            DType dtype) {
  const Shape shape =
      c.heads_inside ? Shape{c.batch, rows, c.heads, width} : Shape{c.batch, c.heads, rows, width};
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_value(stream, i);
  const Tensor memory = dtype == DType::f64
                            ? Tensor::from(values, shape)
                            : Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
  if (!c.heads_inside) return memory;
  return memory.view({c.batch, c.heads, rows, width}, {rows * c.heads * width, width, c.heads * width, 1}, 0);
}

template <class T>
double element(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Shape& s = x.strides();
  return static_cast<double>(x.data<T>()[b * s[0] + h * s[1] + i * s[2] + j * s[3]]);
}

/// Returns the bias of one logit, which heads or batch entries may share.
inline double bias_value(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t of_batch = x.size(0) > 1 ? b : 0, of_head = x.size(1) > 1 ? h : 0;
  return x.dtype() == DType::f64 ? element<double>(x, of_batch, of_head, i, j)
                                 : element<float>(x, of_batch, of_head, i, j);
}

inline Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return dtype == DType::f64 ? Tensor::from(values, shape)
                             : Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

struct Inputs {
  AttentionArgs args;
  Tensor grad, allowed;  // allowed: dense i32 [B, H, N, M]
  BlockPattern pattern;
};

inline Tensor dense_mask(const Case& c, const Inputs& in) {
  std::vector<std::int32_t> allowed;
  const std::vector<std::int32_t> blocks =
      in.args.pattern ? in.pattern.dense().to_vector<std::int32_t>() : std::vector<std::int32_t>{};
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.queries; ++i) {
        for (std::int64_t j = 0; j < c.keys; ++j) {
          bool exists = !c.causal || j <= i + c.keys - c.queries;
          if (in.args.key_mask.defined()) {
            const Shape& s = in.args.key_mask.strides();
            exists = exists && in.args.key_mask.data<std::int32_t>()[b * s[0] + j * s[1]] != 0;
          }
          if (in.args.mask.defined()) exists = exists && element<std::int32_t>(in.args.mask, b, h, i, j) != 0;
          if (in.args.bias.defined()) exists = exists && bias_value(in.args.bias, b, h, i, j) > -INFINITY;
          if (in.args.pattern) {
            const std::int64_t head = in.pattern.heads == 1 ? 0 : h;
            exists = exists && blocks[static_cast<std::size_t>((head * c.queries + i) * c.keys + j)] != 0;
          }
          allowed.push_back(exists);
        }
      }
    }
  }
  return Tensor::from(allowed, {c.batch, c.heads, c.queries, c.keys});
}

inline void make_inputs(const Case& c, DType dtype, Inputs& in) {
  in.args.query = random_panels(c, 1, c.queries, c.key_width, dtype);
  in.args.key = random_panels(c, 2, c.keys, c.key_width, dtype);
  in.args.value = random_panels(c, 3, c.keys, c.value_width, dtype);
  in.grad = random_panels(c, 4, c.queries, c.value_width, dtype);
  in.args.scale = 0.8;
  in.args.causal = c.causal;
  in.args.dropout = c.dropout;
  in.args.dropout_key = {5, 6, 7};
  if (c.key_mask) in.args.key_mask = c.key_mask(c);
  if (c.mask) in.args.mask = c.mask(c);
  if (c.pattern) {
    in.pattern = c.pattern(c);
    in.args.pattern = std::shared_ptr<const BlockPattern>(std::shared_ptr<void>(), &in.pattern);
  }
  if (c.slopes) {
    std::vector<double> slopes;
    for (std::int64_t h = 1; h <= c.heads; ++h) slopes.push_back(0.4 / static_cast<double>(h));
    in.args.slopes = tensor_of(slopes, {c.heads}, dtype);
  }
  if (c.bias) in.args.bias = tensor_of(c.bias(c), {c.bias_batches, c.bias_heads, c.queries, c.keys}, dtype);
  in.allowed = dense_mask(c, in);
}

/// Returns random biases.
inline std::vector<double> some_bias(const Case& c) {
  std::vector<double> values;
  const std::int64_t count = c.bias_batches * c.bias_heads * c.queries * c.keys;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(2 * random_value(8, static_cast<std::uint64_t>(i)));
  return values;
}

/// Returns random biases that exclude every fifth pair and all of query 1.
inline std::vector<double> bias_with_holes(const Case& c) {
  std::vector<double> values = some_bias(c);
  for (std::size_t n = 0; n < values.size(); ++n)
    if (n % 5 == 2 || static_cast<std::int64_t>(n) / c.keys % c.queries == 1) values[n] = -INFINITY;
  return values;
}

/// Masks the last b + 1 keys of batch entry b as padding.
inline Tensor padded_ends(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask.push_back(j < c.keys - 1 - b);
  }
  return Tensor::from(mask, {c.batch, c.keys});
}

/// Masks every third key as padding; batch entry 1 has no real key at all.
inline Tensor scattered_padding(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask.push_back(b != 1 && j % 3 != 0);
  }
  return Tensor::from(mask, {c.batch, c.keys});
}

/// Returns a mask expanded from [1, 1, N, M]; query 2 sees nothing.
inline Tensor shared_mask(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t i = 0; i < c.queries; ++i) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask.push_back(i != 2 && (i * 7 + j * 5) % 4 != 0);
  }
  return Tensor::from(mask, {c.queries, c.keys})
      .view({c.batch, c.heads, c.queries, c.keys}, {0, 0, c.keys, 1}, 0);
}

/// Returns a mask expanded from [1, H, N, 1]: whole rows are masked, the last stride is 0.
inline Tensor row_mask(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t h = 0; h < c.heads; ++h) {
    for (std::int64_t i = 0; i < c.queries; ++i) mask.push_back((h + i) % 2);
  }
  return Tensor::from(mask, {c.heads, c.queries})
      .view({c.batch, c.heads, c.queries, c.keys}, {0, c.queries, 1, 0}, 0);
}

/// Returns a random pattern with absent, full and partial blocks; head 0 and band 1 see nothing.
inline BlockPattern random_pattern(const Case& c, std::int64_t block, std::int64_t heads) {
  BlockPattern p{.block = block,
                 .queries = c.queries,
                 .keys = c.keys,
                 .heads = heads,
                 .offsets = {},
                 .columns = {},
                 .mask_ids = {},
                 .masks = {}};
  const std::int64_t rows = (c.queries + block - 1) / block, columns = (c.keys + block - 1) / block;
  std::vector<std::int32_t> offsets{0}, column, id, masks;
  std::uint64_t n = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::uint32_t kind = random_word({3, 0, 0}, n++) % 4;
        if (kind == 0 || (h == 0 && r == 1)) continue;
        column.push_back(static_cast<std::int32_t>(k));
        id.push_back(kind == 1 ? -1 : static_cast<std::int32_t>(kind - 2));
      }
      offsets.push_back(static_cast<std::int32_t>(column.size()));
    }
  }
  for (std::uint64_t i = 0; i < 2 * static_cast<std::uint64_t>(block * block); ++i) {
    masks.push_back(static_cast<std::int32_t>(random_word({4, 0, 0}, i) & 1));
  }
  p.offsets = Tensor::from(offsets, {static_cast<std::int64_t>(offsets.size())});
  p.columns = Tensor::from(column, {static_cast<std::int64_t>(column.size())});
  p.mask_ids = Tensor::from(id, {static_cast<std::int64_t>(id.size())});
  p.masks = Tensor::from(masks, {2, block, block});
  return p;
}

inline std::function<BlockPattern(const Case&)> pattern_of(std::int64_t block, bool per_head) {
  return [=](const Case& c) { return random_pattern(c, block, per_head ? c.heads : 1); };
}

/// Returns a case of so many queries and keys.
inline Case sized(std::string name, std::int64_t queries, std::int64_t keys, Case rest = {}) {
  rest.name = std::move(name);
  rest.queries = queries;
  rest.keys = keys;
  return rest;
}

/// Returns cases with slopes and biases, combined with everything else.
inline std::vector<Case> biased_cases() {
  return {
      sized("slopes", 17, 17, {.slopes = true}),
      sized("slopes, causal", 33, 33, {.causal = true, .slopes = true}),
      sized("slopes, causal, more keys", 3, 21, {.causal = true, .slopes = true}),
      sized("slopes, causal, more queries", 21, 9, {.causal = true, .slopes = true}),
      sized("slopes, one query", 1, 37, {.heads_inside = true, .slopes = true}),
      sized("slopes, padding, mask, dropout", 18, 18,
            {.causal = true,
             .dropout = 0.25,
             .key_mask = scattered_padding,
             .mask = shared_mask,
             .slopes = true}),
      sized("slopes, pattern per head", 30, 45,
            {.heads_inside = true, .pattern = pattern_of(7, true), .slopes = true}),
      sized("bias for all", 18, 35, {.bias = some_bias}),
      sized("bias per head", 21, 21,
            {.causal = true, .heads_inside = true, .bias = some_bias, .bias_heads = 3}),
      sized("bias per sample", 7, 19, {.bias = some_bias, .bias_batches = 2}),
      sized("bias per sample and head, holes", 9, 14,
            {.bias = bias_with_holes, .bias_batches = 2, .bias_heads = 3}),
      sized("bias, one query", 1, 21, {.causal = true, .bias = some_bias, .bias_heads = 3}),
      sized("bias of many heads", 12, 11,
            {.batch = 3, .heads = 9, .key_mask = scattered_padding, .bias = some_bias, .bias_heads = 9}),
      sized("bias and slopes, padding, mask, dropout", 18, 18,
            {.causal = true,
             .dropout = 0.25,
             .key_mask = scattered_padding,
             .mask = shared_mask,
             .slopes = true,
             .bias = bias_with_holes,
             .bias_heads = 3}),
      sized("bias per head, pattern, causal", 29, 29,
            {.causal = true,
             .dropout = 0.2,
             .key_mask = padded_ends,
             .pattern = pattern_of(4, false),
             .bias = some_bias,
             .bias_heads = 3}),
      sized("bias for all, pattern per head", 30, 45,
            {.pattern = pattern_of(7, true), .slopes = true, .bias = some_bias}),
      sized("bias, tiles of the device", 70, 130,
            {.batch = 3,
             .heads = 2,
             .key_width = 16,
             .causal = true,
             .dropout = 0.1,
             .slopes = true,
             .bias = some_bias,
             .bias_heads = 2}),
      sized("bias, many tiles", 270, 1100,
            {.batch = 2, .heads = 1, .key_mask = padded_ends, .slopes = true, .bias = some_bias}),
      sized("bias, long heads that are cut", 300, 900,
            {.batch = 1, .heads = 2, .causal = true, .bias = some_bias, .bias_heads = 2}),
  };
}

inline std::vector<Case> plain_cases() {
  return {
      sized("plain", 7, 7),
      sized("one of each", 1, 1, {.batch = 1, .heads = 1, .key_width = 1, .value_width = 1}),
      sized("heads inside", 24, 24, {.key_width = 16, .value_width = 16, .heads_inside = true}),
      sized("one query", 1, 37, {.heads_inside = true}),
      sized("more keys", 5, 19),
      sized("causal", 33, 33, {.causal = true}),
      sized("causal, more keys", 9, 21, {.causal = true}),
      sized("causal, two queries: one entry is missing", 2, 2, {.causal = true}),
      sized("causal, more queries: the first see nothing", 21, 9, {.causal = true}),
      sized("causal, one query", 1, 21, {.causal = true}),
      sized("padded ends", 17, 17, {.key_mask = padded_ends}),
      sized("scattered padding", 17, 20, {.key_mask = scattered_padding}),
      sized("scattered padding, causal", 17, 17, {.causal = true, .key_mask = scattered_padding}),
      sized("mask", 18, 35, {.mask = shared_mask}),
      sized("mask of rows", 18, 35, {.mask = row_mask}),
      sized("mask, padding, causal", 18, 18,
            {.causal = true, .dropout = 0.25, .key_mask = scattered_padding, .mask = shared_mask}),
      sized("dropout", 19, 23, {.dropout = 0.3}),
      sized("dropout, causal", 40, 40, {.causal = true, .dropout = 0.1, .heads_inside = true}),
      sized("dropout of nearly all", 6, 70, {.dropout = 0.97}),
      sized("pattern", 30, 30, {.pattern = pattern_of(8, false)}),
      sized("pattern per head", 30, 45, {.heads_inside = true, .pattern = pattern_of(7, true)}),
      sized("pattern, causal, padding, mask, dropout", 29, 29,
            {.causal = true,
             .dropout = 0.2,
             .key_mask = padded_ends,
             .mask = shared_mask,
             .pattern = pattern_of(4, true)}),
      sized("pattern of large blocks", 300, 700, {.batch = 1, .heads = 2, .pattern = pattern_of(190, true)}),
      sized("pattern, many blocks per tile", 40, 900,
            {.batch = 1, .heads = 2, .dropout = 0.1, .pattern = pattern_of(16, true)}),
      sized("many tiles", 270, 1100, {.batch = 1, .heads = 2, .dropout = 0.1, .key_mask = scattered_padding}),
      sized("many tiles, causal", 600, 600, {.batch = 1, .heads = 2, .causal = true}),
      sized("few heads, cut along keys", 250, 1100,
            {.batch = 1, .heads = 1, .dropout = 0.1, .mask = shared_mask}),
      sized("few heads, cut along keys, causal, pattern", 400, 1300,
            {.batch = 1, .heads = 1, .causal = true, .dropout = 0.1, .pattern = pattern_of(100, false)}),
  };
}

inline std::vector<Case> cases() {
  std::vector<Case> all = plain_cases();
  for (const Case& c : biased_cases()) all.push_back(c);
  return all;
}

}  // namespace heed::test::attention_cases
