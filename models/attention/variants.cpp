#include <algorithm>
#include <vector>

#include "heed/core/checked.h"
#include "heed/core/nearest_name.h"
#include "heed/models/attention/attention.h"
#include "heed/models/initialise.h"

// The list of names: one line per variant. The file models/attention/<name>.cpp defines <name>_variant(),
// which says what the variant can do and how it is made.
// clang-format off
#define HEED_ATTENTION_VARIANTS(variant) \
  variant(dot_product)                   \
  variant(synthesizer_dense)             \
  variant(synthesizer_random)            \
  variant(synthesizer_random_fixed)      \
  variant(synthesizer_factorized_dense)  \
  variant(synthesizer_factorized_random) \
  variant(synthesizer_mixture)           \
  variant(hard_coded_gaussian)           \
  variant(fastformer)                    \
  variant(clusterformer)                 \
  variant(linformer)                     \
  variant(sparse_transformer)            \
  variant(reformer)                      \
  variant(routing_transformer)           \
  variant(longformer)                    \
  variant(bigbird)                       \
  variant(mixed_heads)
// clang-format on

namespace heed {

#define HEED_DECLARE(name) AttentionVariant name##_variant();
HEED_ATTENTION_VARIANTS(HEED_DECLARE)
#undef HEED_DECLARE

namespace {

void check_config(std::string_view name, const AttentionConfig& config) {
  const std::string owner = concat_text("attention '", name, "': ");
  checked_range(owner + "the width", config.width, 1, most_units);
  checked_range(owner + "the number of heads", config.heads, 1, most_units);
  checked_range(owner + "the width of a head", config.head_width, 0, most_units);
  checked_range(owner + "max_length", config.max_length, 0, most_positions);
  check(config.head_width > 0 || config.width % config.heads == 0, owner,
        "the width must be a multiple of the number of heads, got width ", config.width, " and ",
        config.heads, " heads");
  check(config.dropout >= 0 && config.dropout < 1, owner, "dropout must be in [0, 1), got ", config.dropout);
  check(!(config.causal && config.cross), owner, "cross-attention cannot be causal");
}

std::string names_where(bool Capabilities::*can) {
  std::string names;
  for (const AttentionVariant& variant : attention_variants()) {
    if (variant.capabilities.*can) names += (names.empty() ? "" : ", ") + std::string(variant.name);
  }
  return names;
}

void check_capability(std::string_view name, const Capabilities& capabilities, bool asked,
                      bool Capabilities::*can, const char* use) {
  if (!asked || capabilities.*can) return;
  const std::string_view reason = capabilities.reason;
  fail("attention '", name, "' cannot serve as ", use, reason.empty() ? "" : ": ", reason,
       "; these can: ", names_where(can));
}

}  // namespace

std::span<const AttentionVariant> attention_variants() {
#define HEED_LINE(name) name##_variant(),
  static const std::vector<AttentionVariant> variants{HEED_ATTENTION_VARIANTS(HEED_LINE)};
#undef HEED_LINE
  return variants;
}

const AttentionVariant& attention_variant(std::string_view name) {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) {
    if (variant.name == name) return variant;
    names.emplace_back(variant.name);
  }
  fail("unknown attention '", name, "'", suggest_name(name, names));
}

Capabilities attention_capabilities(std::string_view name, const Options& options) {
  const AttentionVariant& variant = attention_variant(name);
  return variant.capabilities_with ? variant.capabilities_with(options) : variant.capabilities;
}

std::unique_ptr<Attention> make_attention(std::string_view name, const AttentionConfig& config) {
  const Capabilities can = attention_capabilities(name, config.options);
  check_config(name, config);
  check_capability(name, can, config.causal, &Capabilities::causal, "causal attention");
  check_capability(name, can, config.cross, &Capabilities::cross, "cross-attention");
  check_capability(name, can, config.head_width > 0, &Capabilities::as_heads, "some of the heads of a layer");
  check(can.any_length || config.max_length > 0, "attention '", name,
        "' has parameters for every position and needs a max_length, got ", config.max_length);
  const std::string owner = concat_text("attention '", name, "'");
  std::unique_ptr<Attention> made;
  try {
    made = attention_variant(name).make(config);
  } catch (Error& error) {
    error.add_context(owner + ": ");
    throw;
  }
  config.options.check_all_taken(owner);
  return made;
}

std::vector<Options::Asked> attention_settings(std::string_view name) {
  const Capabilities can = attention_capabilities(name, {});
  const ShapesOnly scope;
  std::vector<Options::Asked> settings;
  for (const bool causal : {false, true}) {
    for (const bool cross : {false, true}) {
      if ((causal && (cross || !can.causal)) || (cross && !can.cross)) continue;
      AttentionConfig config;
      config.width = 64;
      config.heads = 4;
      config.max_length = 256;
      config.causal = causal;
      config.cross = cross;
      make_attention(name, config);
      for (const Options::Asked& asked : config.options.asked()) {
        const auto same = [&](const Options::Asked& other) { return other.name == asked.name; };
        if (std::none_of(settings.begin(), settings.end(), same)) settings.push_back(asked);
      }
    }
  }
  return settings;
}

}  // namespace heed
