#include "attention_flags.h"

#include "heed/core/error.h"
#include "heed/models/attention/attention.h"

namespace heed::programs {
namespace {

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) names.emplace_back(variant.name);
  return names;
}

std::string names_text() {
  std::string text;
  for (const std::string& name : variant_names()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

const Capabilities& capabilities_of(const std::string& name) {
  check_name("attention", name, variant_names());
  return attention_variant(name).capabilities;
}

}  // namespace

std::vector<std::string> attention_settings() {
  return {"model.encoder_attention", "model.decoder_attention", "model.cross_attention"};
}

AttentionFlags::AttentionFlags(CLI::App& command) {
  command
      .add_option("--attention", encoder_,
                  "Attention of the encoder, and of the decoder where it can serve there: " + names_text())
      ->type_name("NAME");
  command.add_option("--decoder-attention", decoder_, "Self-attention of the decoder")->type_name("NAME");
  command.add_option("--cross-attention", cross_, "Attention of the decoder to the encoder's output")
      ->type_name("NAME");
}

std::vector<std::string> AttentionFlags::apply(Settings& settings) const {
  std::vector<std::string> notes;
  const auto choose = [&](const std::string& use, const char* flag, const std::optional<std::string>& own,
                          bool Capabilities::*able) {
    const std::string path = "model." + use + "_attention";
    if (own) {
      capabilities_of(*own);
      settings.set(path, *own, flag);
    } else if (encoder_ && capabilities_of(*encoder_).*able) {
      settings.set(path, *encoder_, "--attention");
    } else if (encoder_) {
      notes.push_back(concat_text("attention '", *encoder_, "' cannot serve as ", use,
                                  " attention, which stays ", settings.at(path).dump()));
    }
  };
  if (encoder_) {
    capabilities_of(*encoder_);
    settings.set("model.encoder_attention", *encoder_, "--attention");
  }
  choose("decoder", "--decoder-attention", decoder_, &Capabilities::causal);
  choose("cross", "--cross-attention", cross_, &Capabilities::cross);
  return notes;
}

}  // namespace heed::programs
