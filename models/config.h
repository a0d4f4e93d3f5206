#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/setting.h"
#include "heed/models/options.h"

namespace heed {

/// The attention mechanism of a layer.
struct AttentionChoice {
  /// One of attention_variants(), or "none" for a decoder layer without cross-attention.
  std::string name = "dot_product";
  std::int64_t heads = 0;  ///< 0: those of the model
  Options options = {};    ///< settings of the variant
};
/// One choice for all layers of a stack, or one per layer.
using AttentionChoices = std::vector<AttentionChoice>;

/// The shape of a Transformer. The defaults follow Vaswani et al. 2017 (arXiv 1706.03762), in a
/// smaller size. A model reads only the settings that concern it: a language model has no encoder,
/// a classifier no decoder.
struct TransformerConfig {
  std::int64_t width = 256;          ///< d
  std::int64_t heads = 4;            ///< H
  std::int64_t head_width = 0;       ///< of each attention head; 0: width / heads
  std::int64_t feed_forward = 1024;  ///< hidden width of the feed-forward layers
  std::int64_t encoder_layers = 3;
  std::int64_t decoder_layers = 3;
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::int64_t classes = 0;  ///< for a classifier or a matcher
  /// The pooling of an encoder's outputs to one vector: "mean", "max" (per element), "attention",
  /// "first" (the first token alone, BERT's [CLS]), "last", or "weighted" (the mean with the weights
  /// 1, 2, ... of the tokens: Muennighoff 2022, arXiv 2202.08904, section 3.2).
  std::string pooling = "mean";
  /// A map of that vector, act(W x + b) with "tanh", "relu", "gelu" (BERT's pooler: arXiv
  /// 1810.04805) or "identity", or "none".
  std::string pooler = "none";
  std::int64_t pooler_width = 0;  ///< of a sentence encoder's pooler; 0: width
  /// Number of text features (apps/data/text_features.h) for the linear part of classifiers and matchers
  /// (SparseLinear); 0: no such part.
  std::int64_t sparse_features = 0;
  std::int64_t vector_features = 0;  ///< numbers of a vector that this part reads, too
  /// Encoders: number of neighbouring tokens that a convolution joins before the first layer; 0:
  /// none.
  std::int64_t local_width = 0;
  /// Limits learned positions, and variants whose parameters depend on the length.
  std::int64_t max_length = 256;
  double dropout = 0.1;           ///< on embeddings and on every sub-layer's output
  double word_dropout = 0;        ///< on whole tokens of an encoder's input
  double attention_dropout = 0;   ///< on attention weights
  double activation_dropout = 0;  ///< inside the feed-forward layers
  /// "relu", "gelu", "gelu_tanh", "silu", or the gated "swiglu", "geglu" and "geglu_tanh" (arXiv
  /// 2002.05202), which add a map to each feed-forward layer. Where no gate exists (LocalLayer,
  /// output_transform), silu and gelu replace them.
  std::string activation = "relu";
  bool feed_forward_bias = true;  ///< the maps of the feed-forward layers have biases
  /// "post": LN(x + f(x)); "pre": x + f(LN(x)); "sandwich": x + LN'(f(LN(x))) (Ding et al. 2021,
  /// arXiv 2105.13290, section 2.4). The last two have a final norm after each stack.
  std::string norm = "post";
  bool first_norm = true;           ///< "pre", "sandwich": the input of the first attention is normalised
  std::string norm_kind = "layer";  ///< "layer" or "rms" (arXiv 1910.07467)
  /// Canon layers ("Physics of language models: part 4.1", Allen-Zhu 2025, arXiv 2512.17351; positions A
  /// and C): the input h of each self-attention and feed-forward layer becomes h_t + sum over s < canon of
  /// w_s * h_{t-s}, with a vector w_s [d] for each s. The paper takes 4. 0: none. Encoders look back, too.
  std::int64_t canon = 0;
  /// "sinusoidal", "sinusoidal_halves", "learned" or "none"; or, within attention, "rotary",
  /// "alibi" or "relative" (positions.h).
  std::string positions = "sinusoidal";
  /// ALiBi's slopes when the number of heads H is not a power of two: "even", 2^(-8h / H), or
  /// "interleaved" (AttentionConfig::interleaved_slopes).
  std::string alibi_slopes = "even";
  double rotary_base = 10000;      ///< of rotary positions: RotaryAngles::base
  double rotary_factor = 1;        ///< RotaryAngles::factor
  std::int64_t rotary_length = 0;  ///< RotaryAngles::length
  /// "llama3", "dynamic", "yarn" or "longrope", which RotaryAngles explains, like the numbers below.
  std::string rotary_scaling = "llama3";
  double rotary_few_turns = 1, rotary_many_turns = 0, rotary_amplitude = 0, rotary_share = 1;
  /// RotaryAngles::short_factors and long_factors, numbers separated by commas.
  std::string rotary_short = "", rotary_long = "";
  /// LN(embedding + positions + type), before dropout (BERT).
  bool embedding_norm = false;
  /// Number of vectors that mark the tokens of the first, second, ... text of an input (BERT); 0:
  /// none.
  std::int64_t token_types = 0;
  /// "decoder": the output map is the target embedding; "all": it is also the source embedding.
  std::string tie_embeddings = "none";
  bool output_bias = false;  ///< the output map of a decoder has a bias
  double output_cap = 0;     ///< bounds the output logits (VocabularyHead); 0: no bound
  /// Masked language models: a map and a norm between encoder and output, LN(act(W x + b)) (BERT).
  bool output_transform = false;
  /// Encoder-decoders: the decoder may copy tokens of its source (Pointer).
  bool pointer = false;
  bool scale_embeddings = true;  ///< multiply embeddings by sqrt(width)
  bool attention_bias = false;
  /// Training keeps only the inputs of each layer and runs the layer again in backward: saves
  /// memory, costs time.
  bool recompute_layers = false;
  double epsilon = 1e-5;  ///< of normalisation
  /// The rank of the maps that LoRA adds (layers.h); 0: all weights are trained.
  std::int64_t lora_rank = 0;
  double lora_alpha = 16;                 ///< LoRA's scale is lora_alpha / lora_rank
  std::string lora_maps = "query,value";  ///< names of the maps that LoRA changes, comma-separated
  /// The deviation of initial embeddings and learned positions; 0: 1 / sqrt(width).
  double embedding_deviation = 0;
  /// Parameters that the layers of a stack share: "none", those of their "attention", or "all". The
  /// gradients of the layers add up.
  std::string share_layers = "none";
  AttentionChoices encoder_attention{{}};
  AttentionChoices decoder_attention{{}};
  AttentionChoices cross_attention{{}};
  std::int64_t seed = 1;  ///< of the initial parameters
};

/// All settings, in the order of to_json(). Flags and attentions have neither range nor choices
/// (attention_settings() lists those of attentions).
std::span<const Setting> transformer_settings();
/// The choices of a setting that has them. Throws for any other name.
std::span<const std::string> setting_choices(std::string_view name);

/// Throws an Error that names the first setting outside its range or choices, and its value.
void check_config(TransformerConfig config);
/// Returns the configuration after check_config(). Throws an Error when one of `sizes`, the named
/// sizes that the model needs, is not positive.
const TransformerConfig& checked_config(const TransformerConfig& config, std::string_view model,
                                        std::initializer_list<std::pair<const char*, std::int64_t>> sizes);
/// The attention of one layer of a stack.
const AttentionChoice& choice_for(const AttentionChoices& choices, std::int64_t layer);

/// All settings as indented JSON text.
std::string to_json(TransformerConfig config);
/// Reads JSON text; settings that are absent keep their defaults. Throws for an unknown key, with
/// the nearest name, and for a wrong type or value, with the key. An attention is a name, an object
/// {"name": ..., "heads": ..., settings of the variant}, or a list of these, one per layer.
TransformerConfig transformer_config_from_json(std::string_view text);

/// The names of the presets below.
std::vector<std::string> preset_names();

/// Sets the attentions of a translation model to one of the models named in "Hard-Coded Gaussian
/// Attention for Neural Machine Translation" (You, Sun and Iyyer, ACL 2020, arXiv 2005.00742);
/// other settings are unchanged:
///
///   name     encoder self   decoder self   cross
///   hc-sa    hard-coded     hard-coded     learned, in all layers
///   sh-x     hard-coded     hard-coded     one learned head in the last layer, none in the others
///   hc-all   hard-coded     hard-coded     hard-coded in all layers
///
/// Throws for an unknown name, with the nearest one. The gamma of hc-all's cross-attention, the
/// mean ratio of source to target length, depends on the data: it stays 1 until it is set.
void apply_preset(TransformerConfig& config, std::string_view name);

}  // namespace heed
