#include "heed/models/attention/option_help.h"

namespace heed {
namespace {

/// Components that have settings which the default ones have not.
constexpr std::string_view mixed = R"(components=["dense", "fact_dense", "fact_random"])";

constexpr OptionHelp table[] = {
    {"", "sink", "A logit in every softmax that stands for nothing: 0, or learned for each head"},
    {"", "gate", "A sigmoid gate before the output map: for each element, or one number a head"},
    {"", "deviation", "Standard deviation of the initial logits; 0: Xavier uniform"},
    {"", "logit_bias", "Biases in the maps that make the logits; by default as in the projections"},
    {"", "hidden", "Hidden units of the maps that make the logits; by default the width of a head"},
    {"", "padding",
     "Padding is passed over, or counts as other tokens do, as in published weights and their code"},
    {"", "convolution", "Taps of the short causal convolution of queries, keys and values"},

    {"", "kv_heads", "Heads of keys and values, which query heads share (grouped queries); 0: one each"},

    {"dot_product", "output_bias", "A bias in the output map; by default as in the other projections"},
    {"dot_product", "qk_norm",
     "The queries and the keys of each head are normalised by their root mean square"},

    {"synthesizer_dense", "share_w2", "One second map for all heads, as in the authors' code"},
    {"synthesizer_factorized_dense", "tiling",
     "How two short vectors fill a row: 'tile' repeats both, 'outer' stretches the first"},
    {"synthesizer_factorized_dense", "a", "Length of the first vector; by default about sqrt(max_length)"},
    {"synthesizer_factorized_dense", "b", "Length of the second; a b must reach max_length"},
    {"synthesizer_factorized_random", "k", "Rank of the logits"},
    {"synthesizer_factorized_random", "deviation",
     "Standard deviation of the initial factors; by default k^(-1/4)"},
    {"synthesizer_mixture", "components",
     "What is mixed: 'dense', 'random', 'random_fixed', 'fact_dense', 'fact_random', 'dot'"},
    {"synthesizer_mixture", "hidden",
     "Hidden units of 'dense' and 'fact_dense'; by default the width of a head", mixed},
    {"synthesizer_mixture", "share_w2", "Of 'dense': one second map for all heads", mixed},
    {"synthesizer_mixture", "tiling", "Of 'fact_dense': how two short vectors fill a row", mixed},
    {"synthesizer_mixture", "a", "Of 'fact_dense': length of the first vector", mixed},
    {"synthesizer_mixture", "b", "Of 'fact_dense': length of the second; a b must reach max_length", mixed},
    {"synthesizer_mixture", "k", "Of 'fact_random': rank of the logits", mixed},

    {"hard_coded_gaussian", "offsets",
     "Where each head looks, in positions from its own; repeated over the heads"},
    {"hard_coded_gaussian", "sigma", "Width of the normal density, in positions"},
    {"hard_coded_gaussian", "gamma", "Of cross-attention: mean source length divided by mean target length"},

    {"fastformer", "global_keys", "Global keys among which tokens choose; 0: none, 1: the paper's"},
    {"fastformer", "share_qv", "One projection for queries and values"},

    {"clusterformer", "clusters",
     "Clusters of words: a number, or \"auto\" (chosen in the first training passes)"},
    {"clusterformer", "window", "The block that a block of sorted words sees beside itself"},
    {"clusterformer", "assoc", "What the softmax of the assignment runs over"},
    {"clusterformer", "phi_scale", "Factor of the similarity of words and centroids"},
    {"clusterformer", "cosine",
     "Similarity by angle, which bounds both losses; false: the paper's dot product"},
    {"clusterformer", "lambda1", "Weight of the loss that draws words to their centroids"},
    {"clusterformer", "lambda2", "Weight of the loss that makes neighbouring clusters alike"},
    {"clusterformer", "block",
     "Of the causal form: words of a block; by default max_length / clusters, or 64"},

    {"linformer", "k", "Sums that keys and values are projected to; by default 256, at most max_length"},
    {"linformer", "share_kv", "One projection along the length for keys and values"},
    {"linformer", "per_head", "Projections of its own for each head"},
    {"linformer", "layerwise", "One projection for keys, values, heads and all layers"},

    {"sparse_transformer", "mode", "Which of two patterns a head uses: by head, by layer, or both merged"},
    {"sparse_transformer", "pattern", "Every stride-th token, or the last tokens of each block of stride"},
    {"sparse_transformer", "stride", "Length of a block; by default sqrt(max_length), or 128"},
    {"sparse_transformer", "summary", "Of 'fixed': tokens of each block that all later ones see"},

    {"reformer", "rounds", "Rounds of hashing: more find more of the pairs that matter"},
    {"reformer", "chunk", "Tokens of a chunk, which sees itself and the one before"},
    {"reformer", "buckets", "Buckets, an even number; 0: two for each chunk"},

    {"routing_transformer", "clusters", "Centroids of each head; by default sqrt(max_length), or 3"},
    {"routing_transformer", "window", "Words that a cluster takes; 0: length / clusters"},
    {"routing_transformer", "beta", "Weight of the loss that draws words to their centroids"},
    {"routing_transformer", "shared_qk", "Queries serve as keys; always so in the causal form"},
    {"routing_transformer", "decay", "How much of the centroids stays in a step"},
    {"routing_transformer", "update", "How centroids follow: moving averages, or the paper's algorithm 1"},

    {"longformer", "window", "Tokens seen around each one, half on either side; even"},
    {"longformer", "dilation", "Distance between the tokens of the window"},
    {"longformer", "global_tokens", "First tokens that see all and are seen by all"},

    {"bigbird", "block", "Tokens of a block"},
    {"bigbird", "global_blocks", "First blocks that see all and are seen by all"},
    {"bigbird", "window_blocks", "Neighbouring blocks that a block sees, itself included"},
    {"bigbird", "random_blocks", "Blocks drawn at random for each block and head"},

    {"performer", "features", "Random features; by default w ln w for heads of width w"},
    {"performer", "redraw", "Batches after which features are drawn anew; 0: never"},

    {"retnet", "value_width", "Width of the values, in widths of the layer"},

    {"fnet", "unitary", "Divides by sqrt(length width), so that lengths of vectors stay"},

    {"nystromformer", "landmarks", "Landmarks that stand for all queries and keys"},
    {"nystromformer", "iterations", "Steps towards the pseudo-inverse"},
    {"nystromformer", "convolution", "Width of the convolution of the values, odd; 0: none"},

    {"gated_linear_attention", "gate_rank", "Rank of the map that makes the gates"},
    {"gated_linear_attention", "temperature", "The larger, the more slowly the state fades"},

    {"attention_free_transformer", "form", "Biases between places: none, within a window, or everywhere"},
    {"attention_free_transformer", "rank", "Rank of the biases between places", "form=\"local\""},
    {"attention_free_transformer", "window", "Distance up to which places have a bias", "form=\"local\""},

    {"local", "reach", "Tokens seen on each side"},
    {"local", "sinks", "First tokens that are seen from everywhere"},

    {"sinkhorn", "block", "Tokens of a block"},
    {"sinkhorn", "iterations", "Steps that make the sorting doubly stochastic"},
    {"sinkhorn", "temperature", "Below 1: a sharper sorting"},
    {"sinkhorn", "noise", "Gumbel noise in training, which tries other orders"},

    {"abc", "slots", "Vectors of memory for each head"},

    {"gated_deltanet", "value_width", "Width of the values, in widths of the layer"},
    {"gated_deltanet", "gated", "The state also fades; false: DeltaNet"},

    {"kimi_delta", "value_width", "Width of the values, in widths of the layer"},
    {"kimi_delta", "gate_rank", "Rank of the maps of decays and of the output gate; 0: the width of a head"},

    {"rwkv7", "rank", "Rank of the maps of decays and of in-context rates; 0: by the width, in steps of 32"},
    {"rwkv7", "gate_rank", "Rank of the map of the output gate; 0: by the width, in steps of 32"},

    {"moba", "block", "Keys that stand in a block"},
    {"moba", "blocks", "Blocks that a query sees, its own among them"},

    {"native_sparse", "block", "Keys of a block, which are compressed to one and chosen together"},
    {"native_sparse", "blocks", "Blocks that the queries of a group choose"},
    {"native_sparse", "window", "Last keys that every query sees"},

    {"mamba2", "expand", "Width of the values, in widths of the layer"},
    {"mamba2", "state", "Numbers of state for each element of a value"},

    {"multi_head_latent", "kv_rank", "Width of the latent of keys and values; 0: four widths of a head"},
    {"multi_head_latent", "query_rank", "Width of the latent of queries; 0: none"},
    {"multi_head_latent", "rotary_width",
     "Width of the part with rotary positions; 0: half the width of a head"},

    {"mixed_heads", "parts", "The mechanisms of the heads; NAME.SETTING are settings of a part"},
    {"mixed_heads", "part_heads", "How many heads each part has; by default as even as possible"},
};

}  // namespace

std::span<const OptionHelp> option_help() {
  return table;
}

}  // namespace heed
