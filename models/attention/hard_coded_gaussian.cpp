// Hard-coded Gaussian attention: "Hard-Coded Gaussian Attention for Neural Machine Translation",
// You, Sun and Iyyer, ACL 2020, arXiv 2005.00742, section 3. Queries and keys are not compared:
// head h of query i always reads around position f_h(i), weighted by a normal density. In
// self-attention Y = X:
//
//   v         = split(Y Wv)                                                        [B, H, M, dh]
//   f_h(i)    = gamma i + offset_h,      offset_h = offsets[h mod number of offsets]
//   A_h[i, j] = 1 / (sigma sqrt(2 pi)) exp( -(j - f_h(i))^2 / (2 sigma^2) ) if j is allowed, else 0
//   O         = merge(A v) Wo
//
// As in the paper, the density is not normalised: rows at the ends and rows with masked keys sum to
// less than 1. A key is allowed unless it is padding or, in the causal form, later than the query.
//
// A is a band and is never materialised. Queries are processed in blocks of 64 rows, each with the
// window of keys that its rows can reach. The window ends where a weight falls below the precision
// of the dtype (9 sigma for f64, otherwise 6 sigma). In self-attention all blocks have the same
// weights. Up to 32 bands are cached by their lengths. Time N (64 + 2 reach) d + N d^2, memory N d,
// parameters 2 d^2.
//
// Settings: offsets (default -1, 1; causal: -1, 0), sigma (1), and for cross-attention gamma (1),
// the mean source length divided by the mean target length. Departure: dropout, if any, acts on A.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/attention/attention.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

constexpr std::int64_t rows_per_block = 64;

class HardCodedGaussianAttention : public Attention {
 public:
  explicit HardCodedGaussianAttention(const AttentionConfig& config)
      : Attention(config),
        offsets_(config.options.take_numbers("offsets", {-1.0, config.causal ? 0.0 : 1.0}, -1e6, 1e6)),
        sigma_(config.options.take_number("sigma", 1, 1e-6, 1e6)),
        gamma_(config.options.take_number("gamma", 1, 1e-6, 1e6)),
        value_(*this, "value", config.width, config.inner_width(), config.bias, initialiser_),
        output_(*this, "output", config.inner_width(), config.width, config.bias, initialiser_) {
    check(!offsets_.empty(), "setting 'offsets' must list at least one number");
    check(config.cross || gamma_ == 1, "only cross-attention has a gamma, got ", gamma_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (config().cross) {
      if (!cache.value.defined()) cache.value = value_(input.memory);
      cache.of_memory = true;
      // The result does not depend on the query, so all rows of a memory share it.
      const std::int64_t sharing = rows_per_memory(input), queries = input.x.size(1);
      const Tensor out = attend(cache.value, input.memory_mask, cache.position, queries, context);
      cache.position += queries;
      if (sharing == 1) return out;
      return reshape(expand(unsqueeze(out, 1), {out.size(0), sharing, queries, out.size(2)}),
                     input.x.shape());
    }
    // Only the last positions are within reach, and their absolute positions do not matter.
    cache.extend_mask(input);
    cache.value = appended(std::move(cache.value), value_(input.x));
    const std::int64_t held = cache.value.size(1), queries = input.x.size(1);
    const std::int64_t reach = std::max<std::int64_t>(-first_key(0, cache.value.dtype()), 0);
    const std::int64_t kept = std::min(held, reach + queries);
    cache.value = slice(cache.value, 1, held - kept, held);
    if (cache.mask.defined()) cache.mask = slice(cache.mask, 1, held - kept, held);
    return attend(cache.value, cache.mask, kept - queries, queries, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Tensor& memory = config().cross ? input.memory : input.x;
    const Tensor& mask = config().cross ? input.memory_mask : input.mask;
    return attend(value_(memory), mask, 0, input.x.size(1), context);
  }

 private:
  /// The window of a block reaches this far beyond the centres of its rows.
  double reach(DType dtype) const { return (dtype == DType::f64 ? 9 : 6) * sigma_; }

  /// The first key of the window of a block whose first query is i; it may be negative.
  std::int64_t first_key(std::int64_t i, DType dtype) const {
    const double lowest = *std::min_element(offsets_.begin(), offsets_.end());
    return static_cast<std::int64_t>(std::floor(gamma_ * static_cast<double>(i) + lowest - reach(dtype)));
  }

  std::int64_t window_size(std::int64_t rows, DType dtype) const {
    const auto [lowest, highest] = std::minmax_element(offsets_.begin(), offsets_.end());
    const double span = gamma_ * static_cast<double>(rows - 1) + *highest - *lowest + 2 * reach(dtype);
    return static_cast<std::int64_t>(std::ceil(span)) + 2;  // for both ends and the rounding of the first key
  }

  /// The queries: `blocks` blocks of `rows` rows from query `first` on, over `keys` keys.
  struct Layout {
    std::int64_t first, blocks, rows, keys;
  };

  /// The windows of all blocks.
  struct Windows {
    std::vector<std::int64_t> begin;  ///< the first key of each block
    std::int64_t size;                ///< keys per window
  };

  /// The windows of a layout. Those much wider than the sequence are cut to it.
  Windows windows(const Layout& at, DType dtype) const {
    Windows windows{{}, window_size(at.rows, dtype)};
    for (std::int64_t n = 0; n < at.blocks; ++n)
      windows.begin.push_back(first_key(at.first + n * at.rows, dtype));
    if (windows.size <= 1024 + 2 * (at.keys + at.rows)) return windows;
    if (config().cross) {
      windows.size = std::max<std::int64_t>(at.keys, 1);
      for (std::int64_t& begin : windows.begin) begin = 0;
      return windows;
    }
    // All blocks share their weights, so all windows are cut alike, to the keys that any block
    // needs.
    const std::int64_t last = at.first + (at.blocks - 1) * at.rows, begin = first_key(0, dtype);
    const std::int64_t from = std::max(begin, -last), to = std::min(begin + windows.size, at.keys - at.first);
    for (std::int64_t n = 0; n < at.blocks; ++n)
      windows.begin[static_cast<std::size_t>(n)] = at.first + n * at.rows + from;
    windows.size = std::max<std::int64_t>(to - from, 1);
    return windows;
  }

  /// The weights of the blocks, [H, blocks, rows, window]. In self-attention a weight depends on j
  /// - i alone, so there is one block that serves all: [H, 1, rows, window].
  Tensor weights(const Layout& at, const Windows& windows, const Tensor& like) const {
    const std::int64_t blocks = config().cross ? at.blocks : 1, heads = config().heads;
    std::vector<double> density;
    density.reserve(static_cast<std::size_t>(
        checked_product("the weights of hard-coded attention", heads, blocks, at.rows, windows.size)));
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t n = 0; n < blocks; ++n) {
        const std::int64_t begin = windows.begin[static_cast<std::size_t>(n)], top = at.first + n * at.rows;
        for (std::int64_t i = top; i < top + at.rows; ++i)
          for (std::int64_t j = begin; j < begin + windows.size; ++j) {
            // Self-attention counts from the block's first query.
            density.push_back(config().cross ? weight(h, i, j) : weight(h, i - top, j - top));
          }
      }
    }
    return tensor_of(density, {heads, blocks, at.rows, windows.size}, like.dtype(), like.device());
  }

  /// A_h[i, j], ignoring padding.
  double weight(std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (config().causal && j > i) return 0;
    const double offset = offsets_[static_cast<std::size_t>(h) % offsets_.size()];
    const double centre = gamma_ * static_cast<double>(i) + offset;  // f_h(i)
    const double z = (static_cast<double>(j) - centre) / sigma_;
    return std::exp(-z * z / 2) / (sigma_ * std::sqrt(2 * std::numbers::pi));
  }

  /// The full A [1 or B, H, N, M] for queries first, first + 1, ...; for inspection only.
  Tensor all_weights(const Tensor& v, const Tensor& mask, std::int64_t first, std::int64_t queries) const {
    std::vector<double> a;
    for (std::int64_t h = 0; h < config().heads; ++h)
      for (std::int64_t i = first; i < first + queries; ++i)
        for (std::int64_t j = 0; j < v.size(1); ++j) a.push_back(weight(h, i, j));
    const Tensor whole = tensor_of(a, {1, config().heads, queries, v.size(1)}, v.dtype(), v.device());
    return mask.defined() ? whole * cast(unsqueeze(unsqueeze(mask, 1), 1), v.dtype()) : whole;
  }

  /// The keys of all windows, concatenated: i32 [blocks window], -1 beyond the sequence.
  static Tensor window_keys(const Windows& windows, std::int64_t count, Device device) {
    std::vector<std::int32_t> keys;
    for (const std::int64_t begin : windows.begin)
      for (std::int64_t j = begin; j < begin + windows.size; ++j)
        keys.push_back(j >= 0 && j < count ? static_cast<std::int32_t>(j) : -1);
    return Tensor::from(keys, {static_cast<std::int64_t>(keys.size())}, device);
  }

  /// Everything that depends on the lengths alone, on the device of `like` and in its dtype.
  struct Band {
    Tensor weights, keys;
  };

  Band band(const Layout& at, const Tensor& like) {
    const Device device = like.device();
    return bands_.get(cache_key({at.first, at.blocks, at.rows, at.keys}, like.dtype(), device), [&] {
      const Windows windows = this->windows(at, like.dtype());
      return Band{weights(at, windows, like), window_keys(windows, at.keys, device)};
    });
  }

  /// O [B, N, d] from v [B, M, d] and mask [B, M], for the queries at first, ..., first + N - 1.
  Tensor attend(Tensor v, const Tensor& mask, std::int64_t first, std::int64_t queries, Context& context) {
    const std::int64_t batch = v.size(0), heads = config().heads, dh = config().inner_width() / heads;
    const std::int64_t rows = std::min(rows_per_block, std::max<std::int64_t>(queries, 1));
    const std::int64_t blocks = ceil_div(queries, rows);
    show(context, "weights", [&] { return all_weights(v, mask, first, queries); });
    // v [B, M, d]: padded keys contribute nothing.
    v = without_padding(v, mask);

    const auto& [constant, keys] = band({first, blocks, rows, v.size(1)}, v);
    const Tensor rows_of_keys = gather_rows(v, expand(keys, {batch, keys.size(0)}));
    const Tensor windows = permute(reshape(rows_of_keys, {batch, blocks, -1, heads, dh}), {0, 3, 1, 2, 4});

    Tensor a = constant;
    if (context.training && config().dropout > 0) a = expand(a, {batch, heads, blocks, rows, a.size(3)});
    a = maybe_dropout(a, config().dropout, context);
    const Tensor av = permute(matmul(a, windows), {0, 2, 3, 1, 4});  // [B, blocks, rows, H, dh]
    return output_(slice(reshape(av, {batch, blocks * rows, config().inner_width()}), 1, 0, queries));
  }

  std::vector<double> offsets_;
  double sigma_, gamma_;
  Part<Linear> value_, output_;
  BoundedCache<Band, 32> bands_;
};

}  // namespace

AttentionVariant hard_coded_gaussian_variant() {
  return {"hard_coded_gaussian",
          {.causal = true, .cross = true, .as_heads = true},
          make_layer<HardCodedGaussianAttention>};
}

}  // namespace heed
