#include "heed/models/attention/option_help.h"

namespace heed {
namespace {

/// Components whose settings the default components lack.
constexpr std::string_view mixed = R"(components=["dense", "fact_dense", "fact_random"])";

constexpr OptionHelp table[] = {
    {"", "sink", "An extra logit in every softmax, without a value: 0, or learned per head"},
    {"", "gate", "Sigmoid gate before the output map: per element, or one number per head"},
    {"", "deviation", "Standard deviation of the initial logits; 0: Xavier uniform"},
    {"", "logit_bias", "Biases in the maps that compute the logits; defaults to those of the projections"},
    {"", "hidden", "Hidden units of the maps that compute the logits; defaults to the head width"},
    {"", "padding", "Skip padding, or count it like other tokens, as published weights expect"},
    {"", "convolution", "Taps of the short causal convolution of queries, keys and values"},

    {"", "scale", "Divide queries by the root of their width, as the authors' code does"},

    {"", "kv_heads", "Heads of keys and values, shared by query heads (grouped queries); 0: no sharing"},

    {"dot_product", "output_bias", "Bias in the output map; defaults to that of the other projections"},
    {"dot_product", "qk_norm", "Normalise the queries and keys of each head by their root mean square"},

    {"synthesizer_dense", "share_w2", "One second map for all heads, as in the authors' code"},
    {"synthesizer_factorized_dense", "tiling",
     "How two short vectors fill a row: 'tile' repeats both, 'outer' stretches the first"},
    {"synthesizer_factorized_dense", "a", "Length of the first vector; defaults to about sqrt(max_length)"},
    {"synthesizer_factorized_dense", "b", "Length of the second vector; a b must be at least max_length"},
    {"synthesizer_factorized_random", "k", "Rank of the logits"},
    {"synthesizer_factorized_random", "deviation",
     "Standard deviation of the initial factors; defaults to k^(-1/4)"},
    {"synthesizer_mixture", "components",
     "Components to mix: 'dense', 'random', 'random_fixed', 'fact_dense', 'fact_random', 'dot'"},
    {"synthesizer_mixture", "hidden", "Hidden units of 'dense' and 'fact_dense'; defaults to the head width",
     mixed},
    {"synthesizer_mixture", "share_w2", "One second map for all heads of 'dense'", mixed},
    {"synthesizer_mixture", "tiling", "How the two short vectors of 'fact_dense' fill a row", mixed},
    {"synthesizer_mixture", "a", "Length of the first vector of 'fact_dense'", mixed},
    {"synthesizer_mixture", "b",
     "Length of the second vector of 'fact_dense'; a b must be at least max_length", mixed},
    {"synthesizer_mixture", "k", "Rank of the logits of 'fact_random'", mixed},

    {"hard_coded_gaussian", "offsets",
     "Offset that each head attends to, in positions; cycled over the heads"},
    {"hard_coded_gaussian", "sigma", "Standard deviation of the normal density, in positions"},
    {"hard_coded_gaussian", "gamma", "In cross-attention, mean source length divided by mean target length"},

    {"fastformer", "global_keys", "Global keys to choose from; 0: none, 1: as in the paper"},
    {"fastformer", "share_qv", "One projection for queries and values"},

    {"clusterformer", "clusters",
     "Number of clusters, or \"auto\" to choose it in the first training passes"},
    {"clusterformer", "window", "Neighbouring block that each block of sorted words also sees"},
    {"clusterformer", "assoc", "Axis of the softmax that assigns words to clusters"},
    {"clusterformer", "phi_scale", "Scale of the similarity between words and centroids"},
    {"clusterformer", "cosine",
     "Cosine similarity, which bounds both losses; false: the paper's dot product"},
    {"clusterformer", "lambda1", "Weight of the loss that pulls words to their centroids"},
    {"clusterformer", "lambda2", "Weight of the loss that pulls neighbouring centroids together"},
    {"clusterformer", "block",
     "Words per block of the causal form; defaults to max_length / clusters, or 64"},

    {"linformer", "k", "Length that keys and values are projected to; defaults to 256, at most max_length"},
    {"linformer", "share_kv", "One projection along the length for keys and values"},
    {"linformer", "per_head", "Separate projections for each head"},
    {"linformer", "layerwise", "One projection for keys, values, all heads and all layers"},

    {"sparse_transformer", "mode", "How the two patterns are used: by head, by layer, or merged"},
    {"sparse_transformer", "pattern", "Distant tokens seen: every stride-th, or the last ones of each block"},
    {"sparse_transformer", "stride", "Block length; defaults to sqrt(max_length), or 128"},
    {"sparse_transformer", "summary", "Last tokens of each block that 'fixed' shows to other blocks"},

    {"reformer", "rounds", "Rounds of hashing; more rounds miss fewer relevant pairs"},
    {"reformer", "chunk", "Tokens per chunk; a chunk sees itself and the one before"},
    {"reformer", "buckets", "Number of buckets, even; 0: two per chunk"},

    {"routing_transformer", "clusters", "Centroids per head; defaults to sqrt(max_length), or 3"},
    {"routing_transformer", "window", "Words per cluster; 0: length / clusters"},
    {"routing_transformer", "beta", "Weight of the loss that pulls words to their centroids"},
    {"routing_transformer", "shared_qk", "Use queries as keys; always true in the causal form"},
    {"routing_transformer", "decay", "Decay of the moving average of centroids per step"},
    {"routing_transformer", "update",
     "How centroids are updated: moving averages, or the paper's algorithm 1"},

    {"longformer", "window", "Window size, even: half of the tokens on each side"},
    {"longformer", "dilation", "Step between the tokens of the window"},
    {"longformer", "global_tokens", "Number of first tokens that see all tokens and are seen by all"},

    {"bigbird", "block", "Tokens per block"},
    {"bigbird", "global_blocks", "Blocks at each end that see all tokens and are seen by all"},
    {"bigbird", "window_blocks", "Neighbouring blocks that each block sees, including itself"},
    {"bigbird", "random_blocks", "Random blocks that each block and head sees"},

    {"performer", "features", "Number of random features; defaults to w ln w for heads of width w"},
    {"performer", "redraw", "Redraw the features after this many batches; 0: never"},

    {"differential", "layer",
     "Number l of the layer, which sets the initial lambda; -1: its place in the stack"},

    {"retnet", "value_width", "Width of the values relative to the layer"},

    {"fnet", "unitary", "Divide by sqrt(length * width), to preserve vector norms"},

    {"nystromformer", "landmarks", "Number of landmarks, which approximate all queries and keys"},
    {"nystromformer", "iterations", "Iterations towards the pseudo-inverse"},
    {"nystromformer", "convolution", "Width of the convolution of the values, odd; 0: none"},

    {"gated_linear_attention", "gate_rank", "Rank of the map that computes the gates"},
    {"gated_linear_attention", "temperature", "Higher values make the state fade more slowly"},

    {"attention_free_transformer", "form", "Learned position biases: none, within a window, or everywhere"},
    {"attention_free_transformer", "rank", "Rank of the position biases", "form=\"local\""},
    {"attention_free_transformer", "window", "Distance below which positions have a bias", "form=\"local\""},

    {"local", "reach", "Tokens seen on each side"},
    {"local", "sinks", "Number of first tokens that all tokens see"},

    {"sinkhorn", "block", "Tokens per block"},
    {"sinkhorn", "iterations", "Iterations that make the sorting doubly stochastic"},
    {"sinkhorn", "temperature", "Temperature of the sorting; lower is sharper"},
    {"sinkhorn", "noise", "Gumbel noise in training, to explore other orders"},

    {"abc", "slots", "Memory vectors per head"},

    {"gated_deltanet", "value_width", "Width of the values relative to the layer"},
    {"gated_deltanet", "gated", "Let the state decay; false: DeltaNet"},

    {"kimi_delta", "value_width", "Width of the values relative to the layer"},
    {"kimi_delta", "gate_rank", "Rank of the maps for decay and output gate; 0: the head width"},

    {"rwkv7", "rank", "Rank of the maps for decay and in-context rate; 0: chosen from the width"},
    {"rwkv7", "gate_rank", "Rank of the map for the output gate; 0: chosen from the width"},

    {"moba", "block", "Number of keys per block"},
    {"moba", "blocks", "Blocks that each query sees, including its own"},

    {"native_sparse", "block", "Keys per block; a block is compressed to one key and chosen as a whole"},
    {"native_sparse", "blocks", "Blocks chosen per query, including those always chosen"},
    {"native_sparse", "window", "Size of the window of keys that each query sees"},

    {"mamba2", "expand", "Width of the values relative to the layer"},
    {"mamba2", "state", "State size per element of a value"},

    {"multi_head_latent", "kv_rank",
     "Width of the latent vector for keys and values; 0: four times the head width"},
    {"multi_head_latent", "query_rank", "Width of the latent vector for queries; 0: none"},
    {"multi_head_latent", "rotary_width", "Width of the part with rotary positions; 0: half the head width"},

    {"mixed_heads", "parts", "Mechanisms of the heads; set options of a part as NAME.SETTING"},
    {"mixed_heads", "part_heads", "Heads per part; defaults to an even split"},
};

}  // namespace

std::span<const OptionHelp> option_help() {
  return table;
}

}  // namespace heed
