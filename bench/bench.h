#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <vector>

#include <CLI/CLI.hpp>

#include "heed/models/config.h"

// What the benchmarks share.

/// Seconds, of which only differences mean anything.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Work>
double seconds_of(Work&& work) {
  const double start = now();
  work();
  return now() - start;
}

/// The share of the values that is below, between two of them if need be: 0.5 is the median.
inline double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

/// Parses the flags and does the work; what main() returns.
inline int run_program(CLI::App& app, int argc, char** argv, const char* name,
                       const std::function<int()>& work) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return work();
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << '\n';
    return 1;
  }
}

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
