#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/models/options.h"

// Decoder state: one row per hypothesis. It grows with every token, inside a block that keeps spare
// room.

namespace heed {

/// `held` [R, T, ...] followed by `added` [R, n, ...] along axis 1. Writes into the memory of
/// `held` if it has room and no other handle shares it. Otherwise copies both into a new block with
/// 50 % more room, so appending T tokens costs O(T) copies. Tracked tensors are concatenated
/// instead, because backward still needs the values it has read. An undefined `held` counts as
/// empty.
Tensor appended(Tensor held, const Tensor& added);

/// Selects the rows of a batch that continue: row i of the result is row rows[i] of the input.
class RowOrder {
 public:
  explicit RowOrder(std::span<const std::int32_t> rows);

  /// `held` [R, ...] in this order. On the CPU this works in place, copying only the rows that
  /// move, provided that no row is read after its place was overwritten and no other handle shares
  /// the memory. Otherwise all rows are copied. Throws for a row outside [0, R).
  Tensor of(Tensor held) const;

 private:
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> moved_;  // places whose row comes from elsewhere
  bool in_place_ = true;             // no moved row is read from a place that is overwritten
};

/// The order in which the rows marked in `keep` continue. Rows stay in place if possible, and the
/// last rows fill the gaps, so few rows move.
std::vector<std::int32_t> rows_that_go_on(const std::vector<bool>& keep);

struct AttentionOptions;  // core/attention.h

class Attention;
struct Projections;

/// Upper limit of settings that count positions: lengths, windows, blocks.
inline constexpr std::int64_t most_positions = std::int64_t{1} << 24;
/// Upper limit of settings that count vectors held by a model: hidden units, clusters, ranks.
inline constexpr std::int64_t most_units = std::int64_t{1} << 16;

/// How rotary positions are changed for long texts; in the order of the setting's choices.
enum class RotaryScaling { llama3, dynamic, yarn, longrope };

/// How fast rotary positions (Rotary, models/positions.h) turn: the i-th pair of elements of a head
/// of width dh turns by f_i = base^(-2i / dh) from one position to the next (arXiv 2104.09864, eq.
/// 15).
///
/// A factor s above 1 lets a model read texts s times as long as its training texts. Without a
/// length, all pairs turn s times slower (position interpolation: Chen et al. 2023, arXiv
/// 2306.15595, eq. 4). With the length L of the training texts (Llama 3.1: Grattafiori et al. 2024,
/// arXiv 2407.21783, and the code published with the model), pairs that complete n = L f_i / 2 pi
/// turns in L tokens turn by
///
///   f_i for n > 4,   f_i / s for n < 1,   (1 - m) f_i / s + m f_i  with m = (n - 1) / 3  between.
///
/// Other values of `scaling`, all of which need L; N is the number of positions read so far:
///
/// - yarn (Peng et al. 2023, arXiv 2309.00071, sections 3.2 and 3.4): m falls linearly with i, from
///   1 at the pair that completes 32 turns to 0 at the pair that completes one (both rounded
///   outwards, as in the authors' code), and queries and keys are multiplied by a = 0.1 ln(s) + 1.
/// - dynamic (section 3.3 there, with NTK-aware interpolation): beyond L, the base is multiplied by
///   (s N / L - s + 1)^(dh / (dh - 2)).
/// - longrope (Ding et al. 2024, arXiv 2402.13753, section 3): f_i is divided by short_factors[i],
///   beyond L by long_factors[i], and a = sqrt(1 + ln(s) / ln(L)), as in Phi-3.
///
/// Cached keys keep their rotation when a text grows beyond L, with dynamic as in Hugging Face's
/// `transformers`; with longrope, LanguageModelSteps reads such a text again.
struct RotaryAngles {
  double base = 10000;
  double factor = 1;        ///< s
  std::int64_t length = 0;  ///< L; 0: all pairs are slowed down alike
  RotaryScaling scaling = RotaryScaling::llama3;
  double few_turns = 1;   ///< in place of one turn
  double many_turns = 0;  ///< in place of 4, or 32 with yarn; 0: these
  double amplitude = 0;   ///< a; 0: as above
  double share = 1;       ///< of a head's elements, the first ones, that rotate; dh counts these
  std::vector<double> short_factors = {}, long_factors = {};
};

/// How to build one attention layer. A variant that does not support the configuration throws at
/// construction.
struct AttentionConfig {
  std::int64_t width = 0;  ///< d, a multiple of heads unless head_width is given
  std::int64_t heads = 1;  ///< H
  /// dh; 0: d / H. Otherwise H dh may differ from d: heads of another width, or some heads of a
  /// larger layer.
  std::int64_t head_width = 0;
  double dropout = 0;        ///< on the attention weights
  bool bias = false;         ///< biases in the projections
  bool causal = false;       ///< position i sees positions <= i only
  bool cross = false;        ///< keys and values come from a memory
  bool rotary = false;       ///< rotates queries and keys of self-attention by their positions (positions.h)
  RotaryAngles angles = {};  ///< of rotary positions
  bool alibi = false;        ///< subtracts scaled distances from self-attention logits (positions.h)
  bool interleaved_slopes = false;  ///< of alibi, where H is no power of two: BLOOM's slopes
  bool relative = false;            ///< adds learned distance biases to self-attention logits (positions.h)
  std::int64_t max_length = 0;  ///< L, for variants whose parameters depend on the length (0: unspecified)
  std::int64_t layer = 0;       ///< index of the layer in its stack
  /// The first layer of the stack with the same variant. This layer may share its parameters and
  /// state, so the first one must outlive it. Null for the first layer itself.
  const Attention* first = nullptr;
  Options options = {};    ///< settings of the variant
  double epsilon = 1e-5;   ///< of the model's normalisation
  std::uint64_t seed = 0;  ///< of the initial parameters

  /// H dh: the combined width of all queries, keys or values.
  std::int64_t inner_width() const { return head_width > 0 ? heads * head_width : width; }
};

/// Capabilities of a variant; the tests check every claim.
struct Capabilities {
  bool causal = false;
  /// In the causal form, later tokens have no influence. False if they may change which earlier
  /// tokens are seen (through ranks in a sort), although their values never enter.
  bool strictly_causal = true;
  bool cross = false;
  bool cross_by_step = true;  ///< as cross-attention, a query's output depends on no other query
  bool any_length = true;     ///< no parameter depends on the length
  bool as_heads = false;      ///< heads may have a width of their own (AttentionConfig::head_width)
  bool rotary = false;        ///< can rotate its queries and keys (AttentionConfig::rotary)
  bool alibi = false;         ///< can subtract distances from its logits (AttentionConfig::alibi)
  bool relative = false;      ///< can add learned biases to its logits (AttentionConfig::relative)
  bool deterministic = true;  ///< draws no random numbers in inference
  bool padding = true;        ///< masked tokens have no effect; false: they may count like others
  std::string reason = {};    ///< why the rest is unsupported, for error messages
};

/// The input of one call. Masks are i32, 1 = real token, undefined = all real.
struct AttentionInput {
  Tensor x;                 ///< queries [B, N, d]
  Tensor mask = {};         ///< [B, N]
  Tensor memory = {};       ///< [B, M, d] for cross-attention; undefined for self-attention
  Tensor memory_mask = {};  ///< [B, M]
  Tensor global = {};       ///< [B, N], 1 = global token, for variants that have global tokens
};

/// State of an attention layer between decoding steps. The batch axis comes first in every tensor,
/// and anything that grows with the positions grows along axis 1, by appended().
struct AttentionCache {
  /// [B, T, H dh], or fewer heads if query heads share them. Variants that cache no keys store the
  /// inputs [B, T, d] here, or a state of constant size, such as sums [B, H, dk, dv].
  Tensor key;
  Tensor value;                       ///< of the same positions
  Tensor mask;                        ///< [B, T]
  bool of_memory = false;             ///< key and value depend on the memory alone: one row per memory row
  std::int64_t position = 0;          ///< of the next query, where a variant needs it
  std::vector<AttentionCache> parts;  ///< of a layer made of several attentions
  /// Continues with the given rows of the batch, for example when beam search reorders its
  /// hypotheses. What depends on the memory alone follows `memory_rows` instead.
  void reorder(const RowOrder& rows, const RowOrder& memory_rows);
  /// Appends the mask of the new positions to that of the cached ones, whose number it returns; the
  /// mask stays undefined while all are real. Call it before appending to `key` and `value`.
  std::int64_t extend_mask(const AttentionInput& input);
};

/// One attention mechanism: the part of a layer between two residual connections.
class Attention : public Module {
 public:
  /// O [B, N, d]. Unless counts_padding(), rows at padded query positions are exactly 0, and their
  /// inputs have no effect, even NaN. Errors name this layer's path in the model.
  Tensor operator()(const AttentionInput& input, Context& context);
  /// Decoding: the outputs [B, n, d] for new positions x [B, n, d], given all earlier positions in
  /// the cache. n > 1 is allowed if later tokens never change what a position sees
  /// (Capabilities::strictly_causal). For cross-attention, `memory` [S, M, d] is the same at every
  /// step, and each of its rows serves B / S consecutive rows of x. The base version caches the
  /// inputs and recomputes everything.
  virtual Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context);

  const AttentionConfig& config() const { return config_; }

 protected:
  explicit Attention(AttentionConfig config) : config_(std::move(config)), initialiser_(config_.seed) {}
  /// Whether the variant uses AttentionInput::global; giving it to any other variant is an error.
  virtual bool takes_global_tokens() const { return false; }
  /// Whether tokens at padding count like others and have outputs; NaN there is treated as 0.
  virtual bool counts_padding() const { return false; }
  /// O, before the rows of padded queries are zeroed. x and the memory are finite here, even at
  /// padding.
  virtual Tensor forward(const AttentionInput& input, Context& context) = 0;
  /// Registers the four projections under their usual names.
  void add_projections(Projections& w);
  /// Throws for more positions than config().max_length, for variants with parameters for each.
  void check_length(std::int64_t length) const;
  /// Options for the attention kernel: the key mask, and in training dropout on the weights. Each
  /// call draws a new dropout key.
  AttentionOptions kernel_options(const Tensor& key_mask, Context& context) const;
  /// How many rows of a step share one row of the memory; throws without a memory or if they do not
  /// divide evenly.
  std::int64_t rows_per_memory(const AttentionInput& input) const;
  /// The queries of a step [B, n, d], grouped by the memory row they share: [S, (B / S) n, d].
  Tensor by_memory(const AttentionInput& input) const;
  /// Records a tensor in Context::capture, detached; does nothing without a capture, when `value`
  /// is not called.
  void show(Context& context, std::string_view name, const Tensor& value) const;
  void show(Context& context, std::string_view name, const std::function<Tensor()>& value) const;
  /// Records "weights" [B, H, N, M]: those of attention(query, key, value, options) before dropout.
  /// Computed only under a capture.
  void show_weights(Context& context, const Tensor& query, const Tensor& key,
                    const AttentionOptions& options) const;

 private:
  AttentionConfig config_;

 protected:
  /// Draws the initial values of the parts and parameters, from config().seed.
  Initialiser initialiser_;
};

/// [B, N, H dh] -> [B, H, N, dh], a view: head h owns columns h dh ... (h + 1) dh - 1.
Tensor split_heads(const Tensor& x, std::int64_t heads);
/// [B, H, N, dh] -> [B, N, H dh], the inverse: a view if the memory of x is [B, N, H, dh], else a
/// copy.
Tensor merge_heads(const Tensor& x);

/// x [B, N, n] or [B, H, N, n] with zeros at padding; mask i32 [B, N], undefined = all real.
Tensor without_padding(const Tensor& x, const Tensor& mask);

/// Wq, Wk and Wv [d -> H dh] and Wo [H dh -> d], initialised in this order: the modules "query",
/// "key", "value" and "output" of most variants. `key_heads` is the number of heads of Wk and Wv;
/// 0: H. `output_bias` overrides whether Wo has a bias.
struct Projections {
  Projections(const AttentionConfig& config, Initialiser& initialiser, std::int64_t key_heads = 0,
              std::optional<bool> output_bias = {});

  /// Query, key and value projections of the same x, computed in one op.
  struct Projected {
    Tensor query, key, value;
  };
  Projected of(const Tensor& x) const;
  /// Key and value projections of a memory, computed in one op; the query stays undefined.
  Projected of_memory(const Tensor& memory) const;

  Linear query, key, value, output;
};

/// One entry of the list of variants.
struct AttentionVariant {
  std::string name;
  Capabilities capabilities;
  std::function<std::unique_ptr<Attention>(const AttentionConfig&)> make;
  /// Capabilities for given settings, where they depend on the settings; empty: they never do.
  std::function<Capabilities(const Options&)> capabilities_with = nullptr;
};

/// AttentionVariant::make for layers of one class.
template <class Layer>
std::unique_ptr<Attention> make_layer(const AttentionConfig& config) {
  return std::make_unique<Layer>(config);
}

/// Adds an application's own variant to the list, so that models, settings, runs and programs find
/// it by name, like heed's own. `make` builds a layer and may throw. make_attention() first rejects
/// what the capabilities rule out, then checks that `make` used every setting. Throws for a name
/// that is empty, taken, "none", or contains anything but lower-case letters, digits and '_'; for a
/// missing `make`; and for more than 1000 variants. The returned reference, and any obtained
/// earlier, stays valid until the program ends. May be called from any thread at any time. Register
/// variants before reading settings, opening a run or building a model that names them, for example
/// while global variables are initialised.
const AttentionVariant& register_attention(AttentionVariant variant);

/// All variants: heed's in a fixed order, then the registered ones in order of registration.
std::span<const AttentionVariant> attention_variants();
/// Builds a variant by name. Throws for an unknown name (suggesting the nearest one), an
/// unsupported use, an unknown setting, and a value outside its range.
std::unique_ptr<Attention> make_attention(std::string_view name, const AttentionConfig& config);
/// The entry of a variant. Throws for an unknown name, suggesting the nearest one.
const AttentionVariant& attention_variant(std::string_view name);
/// The capabilities of a variant with these settings. Throws for an unknown name, suggesting the
/// nearest one.
Capabilities attention_capabilities(std::string_view name, const Options& options);
/// The settings of a variant over all its uses, with defaults, ranges and help (option_help.h).
/// Settings that require certain values of others come last. Defaults that depend on the
/// configuration are those for 4 heads of width 16 and 256 positions. Throws for an unknown name,
/// suggesting the nearest one.
std::vector<Options::Asked> attention_settings(std::string_view name);

/// Checks a registered variant against its declared capabilities, in each of its uses: plain,
/// causal and cross-attention. It runs in f64 on the CPU, on random sequences of 5 and 160 words.
/// It checks shapes, lengths, padding (with any contents, also in f32), samples that hold only
/// padding, independence of the future (with words up to 100 times as large), decoding against the
/// whole pass, gradients of inputs and parameters, independence of the samples in a batch, random
/// numbers, and that buffers change only through Context::observe() (otherwise ranks would
/// disagree). Throws an Error that names the use, the broken property, the position and the values.
/// `options`: the variant's settings.
void check_attention(std::string_view name, const Options& options = {});
/// The capabilities that these checks observe, regardless of the declared ones; `reason` is the
/// declared one.
Capabilities tried_capabilities(const AttentionVariant& variant);

}  // namespace heed
