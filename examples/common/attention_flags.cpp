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

AttentionFlags::AttentionFlags(CLI::App& command, Stacks stacks) : stacks_(stacks) {
  const bool both = stacks == Stacks::encoder_decoder;
  command
      .add_option(
          "--attention", attention_,
          concat_text(both ? "Self-attention of the encoder, and of the decoder where it can serve there"
                           : "Self-attention",
                      ": ", names_text()))
      ->type_name("NAME");
  if (!both) return;
  command.add_option("--decoder-attention", decoder_, "Self-attention of the decoder")->type_name("NAME");
  command
      .add_option("--cross-attention", cross_,
                  "Attention of the decoder to the encoder's output, dot_product unless named here")
      ->type_name("NAME");
}

std::vector<std::string> AttentionFlags::apply(Settings& settings) const {
  std::vector<std::string> notes;
  const auto choose = [&](const char* path, const char* flag, const std::string& name) {
    capabilities_of(name);
    settings.set(path, name, flag);
  };
  if (attention_) {
    if (stacks_ != Stacks::decoder) choose("model.encoder_attention", "--attention", *attention_);
    const bool causal = capabilities_of(*attention_).causal;
    // Without an encoder there is nothing else to choose it for: building the model says why it cannot serve.
    if (stacks_ == Stacks::decoder || (stacks_ == Stacks::encoder_decoder && causal)) {
      choose("model.decoder_attention", "--attention", *attention_);
    } else if (stacks_ == Stacks::encoder_decoder && !decoder_) {
      notes.push_back(concat_text("attention '", *attention_, "' cannot serve in the decoder, which keeps ",
                                  settings.at("model.decoder_attention").dump()));
    }
  }
  if (decoder_) choose("model.decoder_attention", "--decoder-attention", *decoder_);
  if (cross_) choose("model.cross_attention", "--cross-attention", *cross_);
  return notes;
}

}  // namespace heed::programs
