#include "heed/models/attention/shared/heads.h"

#include "heed/autograd/ops.h"

namespace heed {

Tensor split_heads(const Tensor& x, std::int64_t heads) {
  check(x.rank() == 3 && heads > 0 && x.size(2) % heads == 0, "split_heads: cannot split shape ", x.shape(),
        " into ", heads, " heads");
  const std::int64_t width = x.size(2) / heads;
  if (!x.tracked() && x.stride(2) == 1)  // also for a block with spare room between rows
    return x.view({x.size(0), heads, x.size(1), width}, {x.stride(0), width, x.stride(1), 1}, x.offset());
  return permute(reshape(x, {x.size(0), x.size(1), heads, width}), {0, 2, 1, 3});
}

Tensor merge_heads(const Tensor& x) {
  check(x.rank() == 4, "merge_heads: expects [B, H, N, dh], got shape ", x.shape());
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

namespace {

std::int64_t key_width(const AttentionConfig& config, std::int64_t key_heads) {
  return key_heads > 0 ? config.inner_width() / config.heads * key_heads : config.inner_width();
}

}  // namespace

Projections::Projections(const AttentionConfig& config, Initialiser& initialiser, std::int64_t key_heads)
    : query(config.width, config.inner_width(), config.bias, initialiser),
      key(config.width, key_width(config, key_heads), config.bias, initialiser),
      value(config.width, key_width(config, key_heads), config.bias, initialiser),
      output(config.inner_width(), config.width, config.bias, initialiser) {}

Projections::Projected Projections::of(const Tensor& x) const {
  std::vector<Tensor> each = Linear::each({&query, &key, &value}, x);
  return {std::move(each[0]), std::move(each[1]), std::move(each[2])};
}

Projections::Projected Projections::of_memory(const Tensor& memory) const {
  std::vector<Tensor> each = Linear::each({&key, &value}, memory);
  return {{}, std::move(each[0]), std::move(each[1])};
}

void Attention::add_projections(Projections& w) {
  add_module("query", w.query);
  add_module("key", w.key);
  add_module("value", w.value);
  add_module("output", w.output);
}

}  // namespace heed
