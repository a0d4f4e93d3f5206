#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/models/module.h"
#include "heed/models/options.h"

// What a decoder remembers: a row for each hypothesis, which grows with every token and lies in a block with
// room for more.

namespace heed {

/// `held` [R, T, ...] with `added` [R, n, ...] behind it along axis 1. Written into the memory of `held`
/// where that has room and no other handle sees it, otherwise into a new block with room for half as much
/// again, so that T tokens cost O(T) copies. What is tracked is concatenated: a gradient keeps what it has
/// read. `held` undefined: `added` alone.
Tensor appended(Tensor held, const Tensor& added);

/// Which rows of a batch go on: row i of what follows is row rows[i] of what was.
class RowOrder {
 public:
  explicit RowOrder(std::span<const std::int32_t> rows);

  /// `held` [R, ...] in this order. On the CPU rows that change their place are moved, and the others stay
  /// where they are, if no row is needed after its place was taken and no other handle sees the memory;
  /// otherwise all are copied. Throws for a row outside [0, R).
  Tensor of(Tensor held) const;

 private:
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> moved_;  // the places whose row comes from elsewhere
  bool in_place_ = true;             // no moved row comes from a place that another one takes
};

/// The order in which the rows marked in `keep` go on: each where it is, and the last ones in the places of
/// those that end, so that few move.
std::vector<std::int32_t> rows_that_go_on(const std::vector<bool>& keep);

struct AttentionOptions;  // of autograd/ops.h
struct Projections;       // of heads.h

class Attention;

/// The most positions that a setting may speak of: of lengths, windows, blocks and the like.
inline constexpr std::int64_t most_positions = std::int64_t{1} << 24;
/// The most of what a model holds a vector for each: of hidden units, clusters, ranks and the like.
inline constexpr std::int64_t most_units = std::int64_t{1} << 16;

/// How one attention layer is to be built. A variant that cannot do what is asked for throws at construction.
struct AttentionConfig {
  std::int64_t width = 0;       ///< d, a multiple of heads unless head_width is given
  std::int64_t heads = 1;       ///< H
  std::int64_t head_width = 0;  ///< dh; 0: d / H. Otherwise these are some of the heads of a layer
  double dropout = 0;           ///< on the attention weights
  bool bias = false;            ///< biases in the projections
  bool causal = false;          ///< position i sees positions <= i only
  bool cross = false;           ///< keys and values come from a memory
  bool rotary = false;    ///< queries and keys of self-attention are turned by their positions (rotary.h)
  bool alibi = false;     ///< distances are taken from the logits of self-attention (distance_bias.h)
  bool relative = false;  ///< distances have learned biases in self-attention (distance_bias.h)
  std::int64_t max_length = 0;  ///< L, for variants whose parameters depend on the length (0: not stated)
  std::int64_t layer = 0;       ///< index of the layer in its stack
  /// The first layer of the stack with the same variant, whose parameters and state this one may share; it
  /// must outlive this one. Null for that layer itself.
  const Attention* first = nullptr;
  Options options;         ///< settings of the variant
  std::uint64_t seed = 0;  ///< of the initial parameters

  /// H dh: the width of all queries, keys or values together.
  std::int64_t inner_width() const { return head_width > 0 ? heads * head_width : width; }
};

/// What a variant can do; the tests hold every variant to its word.
struct Capabilities {
  bool causal = false;
  /// In the causal form nothing of a later token reaches an output. False where later tokens may change which
  /// of the earlier ones are seen (by their ranks in a sort), while their values still never enter.
  bool strictly_causal = true;
  bool cross = false;
  bool cross_by_step = true;  ///< as cross-attention, a query's output depends on no other query
  bool any_length = true;     ///< no parameter depends on the length
  bool as_heads = false;      ///< can be some of the heads of a layer (AttentionConfig::head_width)
  bool rotary = false;        ///< compares queries with keys, and can turn them (AttentionConfig::rotary)
  bool alibi = false;         ///< has logits from which distances can be taken (AttentionConfig::alibi)
  bool relative = false;      ///< has logits to which learned biases can be added (AttentionConfig::relative)
  bool deterministic = true;  ///< draws no random numbers in inference
  bool padding = true;        ///< masked tokens change nothing, and their outputs are 0
  std::string reason = {};    ///< why it cannot do the rest, for error messages
};

/// The input of one call. Masks are i32, 1 = real token, undefined = all real.
struct AttentionInput {
  Tensor x;            ///< queries [B, N, d]
  Tensor mask;         ///< [B, N]
  Tensor memory;       ///< [B, M, d] for cross-attention; undefined for self-attention
  Tensor memory_mask;  ///< [B, M]
  Tensor global = {};  ///< [B, N], 1 = global token, for variants that have such
};

/// What an attention layer remembers between decoding steps. The batch axis comes first in every tensor, and
/// what grows with the positions grows along axis 1 (growing.h).
struct AttentionCache {
  /// [B, T, H dh], of fewer heads where they are shared; of variants without keys the history of inputs [B,
  /// T, d].
  Tensor key;
  Tensor value;                       ///< as the key
  Tensor mask;                        ///< [B, T]
  bool of_memory = false;             ///< key and value depend on the memory alone, and have its rows
  std::int64_t position = 0;          ///< of the next query, where a variant needs to know
  std::vector<AttentionCache> parts;  ///< of a layer that is made of several attentions
  /// Goes on with the given rows of the batch, as when beam search reorders its hypotheses, and of the
  /// memory.
  void reorder(const RowOrder& rows, const RowOrder& memory_rows);
  /// Adds the mask of new positions to that of the `before` held ones; undefined while all are real.
  void extend_mask(const AttentionInput& input, std::int64_t before);
};

/// One attention mechanism of the specification, the part between two residual connections.
class Attention : public Module {
 public:
  /// O [B, N, d]; rows at padded query positions are exactly 0. Errors name this layer's path in the model.
  Tensor operator()(const AttentionInput& input, Context& context);
  /// Decoding: the outputs [B, n, d] for new positions x [B, n, d], given all positions before them, which
  /// the cache holds; several at a time (n > 1) where no later token changes what a position sees
  /// (Capabilities::strictly_causal). For cross-attention `memory` [S, M, d] is the same at every step and
  /// has a row for each B / S consecutive rows of x. The base version keeps the inputs and recomputes.
  virtual Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context);

  const AttentionConfig& config() const { return config_; }

 protected:
  explicit Attention(AttentionConfig config) : config_(std::move(config)) {}
  /// Whether AttentionInput::global means something; where not, giving it is an error.
  virtual bool takes_global_tokens() const { return false; }
  /// O before the rows of padded queries are zeroed.
  virtual Tensor forward(const AttentionInput& input, Context& context) = 0;
  /// Registers the four maps under their usual names.
  void add_projections(Projections& w);
  /// What the attention kernel is told: the key mask, and dropout on the weights while training. Each call
  /// draws a new dropout.
  AttentionOptions kernel_options(const Tensor& key_mask, Context& context) const;
  /// How many rows of a step share one row of the memory; throws when they cannot.
  std::int64_t rows_per_memory(const AttentionInput& input) const;
  /// The queries of a step, [B, n, d], beside those that look at the same memory: [S, (B / S) n, d].
  Tensor by_memory(const AttentionInput& input) const;
  /// Leaves a tensor with whoever looks inside this pass.
  void show(Context& context, std::string_view name, const Tensor& value) const;
  /// Leaves "weights" [B, H, N, M], those of attention(query, key, value, options) before dropout; computed
  /// only when somebody looks.
  void show_weights(Context& context, const Tensor& query, const Tensor& key,
                    const AttentionOptions& options) const;

 private:
  AttentionConfig config_;
};

/// One line of the list of variants.
struct AttentionVariant {
  std::string name;
  Capabilities capabilities;
  std::function<std::unique_ptr<Attention>(const AttentionConfig&)> make;
  /// What it can do with other settings than its defaults, where that differs; empty: always the same.
  std::function<Capabilities(const Options&)> capabilities_with = nullptr;
};

/// Adds an application's own variant to the list, so that models, settings, runs and programs find it by its
/// name, as if it were one of heed's. `make` builds a layer and may throw; make_attention() checks before it
/// what the capabilities rule out, and after it that no setting is left over. Throws for a name that is
/// empty, taken, "none", or not of lower-case letters, digits and '_', for no `make`, and for more than 1000
/// variants. What it returns, and what was found before, stays valid for as long as the program runs. May be
/// called from any thread at any time; a program registers its variants before it reads settings, opens a run
/// or builds a model that names them, for example while its global variables are initialised.
const AttentionVariant& register_attention(AttentionVariant variant);

/// All variants: heed's, in a fixed order, then those that were registered, in theirs.
std::span<const AttentionVariant> attention_variants();
/// Builds a variant by name. Throws for an unknown name (with the nearest one), for a use the variant cannot
/// serve, for a setting that it does not have, and for one outside its range.
std::unique_ptr<Attention> make_attention(std::string_view name, const AttentionConfig& config);
/// The line of a variant. Throws for an unknown name, with the nearest one.
const AttentionVariant& attention_variant(std::string_view name);
/// What a variant can do with these settings. Throws for an unknown name, with the nearest one.
Capabilities attention_capabilities(std::string_view name, const Options& options);
/// The settings of a variant with their defaults (those that follow from the configuration, as for 4 heads of
/// width 16 and 256 positions) and ranges, of all its uses. Throws for an unknown name, with the nearest one.
std::vector<Options::Asked> attention_settings(std::string_view name);

}  // namespace heed
