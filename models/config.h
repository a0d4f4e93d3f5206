#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/models/options.h"

namespace heed {

/// Which attention mechanism a layer uses.
struct AttentionChoice {
  /// Of attention_variants(), or "none" where a decoder layer has no cross-attention.
  std::string name = "dot_product";
  std::int64_t heads = 0;  ///< 0: as many as the model's
  Options options;         ///< settings of the variant
};
/// One choice for all layers of a stack, or one for each.
using AttentionChoices = std::vector<AttentionChoice>;

/// The shape of a Transformer. The defaults follow Vaswani et al. 2017 (arXiv 1706.03762), in a smaller size.
/// A model reads what concerns it: a language model has no encoder, a classifier no decoder.
struct TransformerConfig {
  std::int64_t width = 256;          ///< d
  std::int64_t heads = 4;            ///< H
  std::int64_t feed_forward = 1024;  ///< hidden width of the feed-forward layers
  std::int64_t encoder_layers = 3;
  std::int64_t decoder_layers = 3;
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::int64_t classes = 0;  ///< of a classifier or a matcher
  /// Of an encoder whose outputs become one vector: their "mean", "max" (of each element) or "attention".
  std::string pooling = "mean";
  /// Of a classifier or a matcher: rows of a table for words and pairs of words, which are classified
  /// linearly beside the encoder; 0: none.
  std::int64_t word_pairs = 0;
  /// Of an encoder: neighbouring tokens that a convolution joins before the first layer; 0: none.
  std::int64_t local_width = 0;
  /// For learned positions and for variants whose parameters depend on the length.
  std::int64_t max_length = 256;
  double dropout = 0.1;           ///< on embeddings and on every sub-layer's output
  double word_dropout = 0;        ///< on whole tokens of an encoder's input
  double attention_dropout = 0;   ///< on attention weights
  double activation_dropout = 0;  ///< inside the feed-forward layers
  /// "relu", "gelu", "gelu_tanh", "silu", or gated: "swiglu", "geglu" (arXiv 2002.05202), which add a map to
  /// each feed-forward layer; where there is no gate (LocalLayer, output_transform) silu and gelu stand for
  /// them.
  std::string activation = "relu";
  /// "post": LN(x + f(x)); "pre": x + f(LN(x)), and a norm at the end of each stack.
  std::string norm = "post";
  std::string norm_kind = "layer";  ///< or "rms" (arXiv 1910.07467), wherever vectors are normalised
  /// Or "sinusoidal_halves", "learned", "rotary" (rotary.h), "alibi" or "relative" (distance_bias.h), "none".
  std::string positions = "sinusoidal";
  /// LN(embedding + positions + type), before dropout (BERT).
  bool embedding_norm = false;
  /// Vectors that are added to the tokens of the first, second, ... text of an input (BERT); 0: none.
  std::int64_t token_types = 0;
  /// "decoder": the output map is the target embedding; "all": the source's too.
  std::string tie_embeddings = "none";
  bool output_bias = false;  ///< the output map of a decoder has a bias
  /// Of a masked language model: a map and a norm between encoder and output, LN(act(W x + b)) (BERT).
  bool output_transform = false;
  /// Of an encoder-decoder: it may copy tokens of its source (Pointer).
  bool pointer = false;
  bool scale_embeddings = true;  ///< multiplies embeddings by sqrt(width)
  bool attention_bias = false;
  /// Training keeps each layer's inputs only and runs it again in backward: memory for time.
  bool recompute_layers = false;
  double epsilon = 1e-5;       ///< of normalisation
  std::int64_t lora_rank = 0;  ///< of what fine-tuning adds to maps (low_rank.h); 0: all weights are trained
  double lora_alpha = 16;      ///< its scale is lora_alpha / lora_rank
  std::string lora_maps = "query,value";  ///< names of the maps, with commas between them
  double embedding_deviation = 0;         ///< of initial embeddings and learned positions; 0: 1 / sqrt(width)
  /// What the layers of a stack have in common: "none", their "attention", or "all" of each layer; the
  /// gradients of the layers add up.
  std::string share_layers = "none";
  AttentionChoices encoder_attention{{}};
  AttentionChoices decoder_attention{{}};
  AttentionChoices cross_attention{{}};
  std::int64_t seed = 1;  ///< of the initial parameters
};

/// A setting of TransformerConfig: its name, what it is, and what it may be.
struct ConfigSetting {
  std::string_view name;
  std::string_view help;                  ///< one line
  double low = 0, high = 0;               ///< of numbers, both inclusive
  std::vector<std::string> choices = {};  ///< of texts that are a choice
};
/// All settings, in the order of to_json(); the one place where names, ranges and choices stand. Those that
/// are true or false have neither, nor have attentions (attention_settings() lists what these take).
std::span<const ConfigSetting> transformer_settings();
/// The choices of a setting that is one. Throws for any other name.
std::span<const std::string> choices_of(std::string_view name);

/// Throws an Error that names the first setting outside its range or choices, with its value.
void check_config(const TransformerConfig& config);
/// The configuration, when it passes check_config() and has the sizes, by their names, that the model cannot
/// do without.
const TransformerConfig& checked_config(const TransformerConfig& config, std::string_view model,
                                        std::initializer_list<std::pair<const char*, std::int64_t>> sizes);
/// The choice for one layer of a stack.
const AttentionChoice& choice_for(const AttentionChoices& choices, std::int64_t layer);

/// JSON text of all settings, indented.
std::string to_json(const TransformerConfig& config);
/// Reads JSON text; settings that it leaves out keep their defaults. An unknown key throws with the nearest
/// name, a wrong type or value with the key. An attention is a name, or {"name": ..., "heads": ..., settings
/// of the variant}, or a list of these, one for each layer.
TransformerConfig transformer_config_from_json(std::string_view text);

/// The names of the presets below.
std::vector<std::string> preset_names();

/// Chooses the attentions of a translation model as "Hard-Coded Gaussian Attention for Neural Machine
/// Translation" (You, Sun and Iyyer, ACL 2020, arXiv 2005.00742) names its models; all other settings stay:
///
///   name     encoder self   decoder self   cross
///   hc-sa    hard-coded     hard-coded     learned, in all layers
///   sh-x     hard-coded     hard-coded     one learned head in the last layer, none in the others
///   hc-all   hard-coded     hard-coded     hard-coded in all layers
///
/// Throws for an unknown name, with the nearest one. The gamma of hc-all's cross-attention, mean source over
/// target length, belongs to the data: it stays 1 until it is set.
void apply_preset(TransformerConfig& config, std::string_view name);

}  // namespace heed
