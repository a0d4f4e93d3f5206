#pragma once

#include "heed/models/config.h"

/// A language model with the parts of GPT-2 (Radford et al. 2019): norms before the layers, learned
/// positions, biases, one matrix for embeddings and output.
inline heed::TransformerConfig gpt2_config(std::int64_t layers, std::int64_t width, std::int64_t heads,
                                           std::int64_t vocabulary, std::int64_t length) {
  heed::TransformerConfig config;
  config.width = width;
  config.heads = heads;
  config.feed_forward = 4 * width;
  config.decoder_layers = layers;
  config.target_vocabulary = vocabulary;
  config.max_length = length;
  config.dropout = 0;
  config.activation = "gelu_tanh";
  config.norm = "pre";
  config.positions = "learned";
  config.tie_embeddings = "decoder";
  config.scale_embeddings = false;
  config.attention_bias = true;
  config.embedding_deviation = 0.02;
  return config;
}
