#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heed/core/device.h"
#include "heed/core/dtype.h"
#include "heed/core/error.h"
#include "heed/models/transformer_config.h"
#include "program.h"
#include "settings.h"

namespace heed::programs {

/// Which stacks a model has.
enum class Stacks { encoder, decoder, encoder_decoder };

/// The "model" settings with their defaults: all of TransformerConfig but what follows from the data and what
/// a model of these stacks does not read.
Json model_defaults(const TransformerConfig& defaults, Stacks stacks);
/// Those of them that take any value, as Settings has it: the attention mechanisms.
std::vector<std::string> attention_settings(Stacks stacks);

/// The configuration of the settings; `derived` adds what follows from the data.
TransformerConfig model_config(const Settings& settings, const Json& derived);

/// A new model of the settings; throws UsageError for settings that make no sense.
template <class Model>
std::unique_ptr<Model> make_model(const Settings& settings, const Json& derived, Device device) {
  try {
    auto model = std::make_unique<Model>(model_config(settings, derived));
    model->to(DType::f32, device);
    return model;
  } catch (const Error& error) {
    throw UsageError(concat_text("model: ", error.what()));
  }
}

}  // namespace heed::programs
