#pragma once

#include "heed/models/attention/attention.h"
#include "heed/models/config.h"
#include "heed/models/module.h"
#include "heed/tests/support.h"

// Shared by the tests of models.

namespace heed::test {

/// Returns a Transformer of a few hundred parameters, without dropout, smooth everywhere.
inline TransformerConfig tiny_config() {
  TransformerConfig config;
  config.width = 8;
  config.heads = 2;
  config.feed_forward = 12;
  config.encoder_layers = 1;
  config.decoder_layers = 1;
  config.source_vocabulary = 11;
  config.target_vocabulary = 11;
  config.classes = 3;
  config.max_length = 12;
  config.dropout = 0;
  config.activation = "gelu";
  return config;
}

inline std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& entry : tensors) names.push_back(entry.name);
  return names;
}

inline bool has_name(Module& module, const std::string& name) {
  for (const NamedTensor& entry : module.parameters()) {
    if (entry.name == name) return true;
  }
  return false;
}

/// Returns reproducible normal numbers for a test's own seed; each stream has others.
inline Tensor normal_numbers(std::uint32_t seed, const Shape& shape, std::uint32_t stream,
                             DType dtype = DType::f64) {
  return normal(shape, 0, 1, {seed, 0, stream}, dtype);
}
/// Returns reproducible uniform numbers in [-1, 1) for a test's own seed.
inline Tensor uniform_numbers(std::uint32_t seed, const Shape& shape, std::uint32_t stream,
                              DType dtype = DType::f64) {
  return uniform(shape, -1, 1, {seed, 0, stream}, dtype);
}

inline Options options_of(std::initializer_list<std::pair<const char*, Options::Value>> settings) {
  Options options;
  for (const auto& [name, value] : settings) options.set(name, value);
  return options;
}

/// A pass whose internals are recorded.
struct Watched {
  Watched(Attention& layer, const AttentionInput& input) {
    Context context = Context::inference();
    context.capture = &capture;
    out = layer(input, context);
  }
  Ints ids(const char* name) const { return capture.find(name).to_vector<std::int32_t>(); }

  Capture capture;
  Tensor out;
};

/// Compares the gradients of all parameters of an f64 model with finite differences of `loss`.
template <class Loss>
ModuleGradcheckResult gradcheck_parameters(Module& model, Loss&& loss, std::int64_t max_elements = 5) {
  return gradcheck(
      model, [&](auto) { return loss(); }, {}, 1e-6, 1e-5, max_elements);
}

/// Returns the largest difference between elements of two tensors of one shape.
inline double worst_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const Doubles x = a.to_doubles(), y = b.to_doubles();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - y[i]));
  return worst;
}

}  // namespace heed::test
