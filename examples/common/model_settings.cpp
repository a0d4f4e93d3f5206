#include "model_settings.h"

namespace heed::programs {
namespace {

std::vector<std::string> unread_settings(Stacks stacks) {
  switch (stacks) {
    case Stacks::encoder:
      return {"decoder_layers", "decoder_attention", "cross_attention", "tie_embeddings"};
    case Stacks::decoder:
      return {"encoder_layers", "encoder_attention", "cross_attention", "pooling"};
    case Stacks::encoder_decoder:
      break;
  }
  return {"pooling"};
}

}  // namespace

Json model_defaults(const TransformerConfig& defaults, Stacks stacks) {
  Json settings = Json::parse(to_json(defaults));
  for (const char* name : {"source_vocabulary", "target_vocabulary", "classes", "seed"}) settings.erase(name);
  for (const std::string& name : unread_settings(stacks)) settings.erase(name);
  return settings;
}

std::vector<std::string> attention_settings(Stacks stacks) {
  switch (stacks) {
    case Stacks::encoder:
      return {"model.encoder_attention"};
    case Stacks::decoder:
      return {"model.decoder_attention"};
    case Stacks::encoder_decoder:
      break;
  }
  return {"model.encoder_attention", "model.decoder_attention", "model.cross_attention"};
}

TransformerConfig model_config(const Settings& settings, const Json& derived) {
  Json model = settings.at("model");
  model.update(derived);
  model["seed"] = settings.get<std::int64_t>("seed");
  return transformer_config_from_json(model.dump());
}

}  // namespace heed::programs
