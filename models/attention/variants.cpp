#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/fork.h"
#include "heed/base/names.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/option_help.h"
#include "heed/models/module.h"

// The built-in variants; applications add theirs with register_attention(). For each name, a file
// in models/attention/ defines <name>_variant(), which returns the capabilities and the factory.
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
  variant(linear_transformer)            \
  variant(performer)                     \
  variant(retnet)                        \
  variant(fnet)                          \
  variant(nystromformer)                 \
  variant(gated_linear_attention)        \
  variant(attention_free_transformer)    \
  variant(local)                         \
  variant(sinkhorn)                      \
  variant(differential)                  \
  variant(forgetting)                    \
  variant(cosformer)                     \
  variant(abc)                           \
  variant(gated_deltanet)                \
  variant(mamba2)                        \
  variant(multi_head_latent)             \
  variant(kimi_delta)                    \
  variant(rwkv7)                         \
  variant(moba)                          \
  variant(native_sparse)                 \
  variant(delta_product)                 \
  variant(hgrn2)                         \
  variant(rwkv6)                         \
  variant(gated_slot)                    \
  variant(based)                         \
  variant(mlstm)                         \
  variant(gated_deltanet2)               \
  variant(comba)                         \
  variant(log_linear)                    \
  variant(path)                          \
  variant(mesa_net)                      \
  variant(mamba3)                        \
  variant(deepseek_sparse)               \
  variant(mixed_heads)
// clang-format on

namespace heed {

#define HEED_DECLARE(name) AttentionVariant name##_variant();
HEED_ATTENTION_VARIANTS(HEED_DECLARE)
#undef HEED_DECLARE

namespace {

/// The list of variants. Entries never move, so references to them stay valid while others are
/// added.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;  // built on first use, possibly while globals are initialised
    return registry;
  }

  std::span<const AttentionVariant> variants() const {
    const std::lock_guard lock(mutex_);
    return variants_;
  }

  const AttentionVariant& add(AttentionVariant variant) {
    const std::string owner = concat_text("register_attention: '", variant.name, "'");
    const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    check(!variant.name.empty(), "register_attention: the name is empty");
    check(std::ranges::all_of(variant.name, allowed), owner,
          ": a name has lower-case letters, digits and '_', as it stands in settings and on command lines");
    check(variant.name != "none", owner, ": this name stands for no attention at all");
    check(variant.make != nullptr, owner, " has no function that makes a layer");
    const std::lock_guard lock(mutex_);
    check(std::ranges::none_of(variants_, [&](const auto& one) { return one.name == variant.name; }), owner,
          ": this name is taken");
    check(variants_.size() < most_variants, owner, ": there are ", most_variants, " variants already");
    return variants_.emplace_back(std::move(variant));
  }

 private:
  static constexpr std::size_t most_variants = 1000;

  Registry() {
    variants_.reserve(most_variants);
#define HEED_ADD(name) variants_.push_back(name##_variant());
    HEED_ATTENTION_VARIANTS(HEED_ADD)
#undef HEED_ADD
  }

  mutable LeafMutex mutex_;
  std::vector<AttentionVariant> variants_;
};

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
  check(!(config.rotary && config.cross), owner,
        "cross-attention has no rotary positions: those of a memory are not the query's");
  check(!((config.alibi || config.relative) && config.cross), owner,
        "cross-attention has no distances: the positions of a memory are not the query's");
}

/// Throws if a configuration needs a capability that the variant lacks; the message gives the
/// reason and the variants that have it.
void check_capabilities(std::string_view name, const AttentionConfig& config, const Capabilities& can) {
  const auto check_one = [&](bool asked, bool Capabilities::*field, const char* what,
                             const std::string& reason) {
    if (!asked || can.*field) return;
    std::vector<std::string> able;
    for (const AttentionVariant& variant : attention_variants())
      if (variant.capabilities.*field) able.push_back(variant.name);
    fail("attention '", name, "' cannot ", what, reason.empty() ? "" : ": ", reason,
         "; these can: ", listed(able));
  };
  check_one(config.causal, &Capabilities::causal, "serve as causal attention", can.reason);
  check_one(config.cross, &Capabilities::cross, "serve as cross-attention", can.reason);
  // No variant states a reason for lacking positions of its own.
  check_one(config.rotary, &Capabilities::rotary,
            "have rotary positions, which turn the queries and keys that are compared", {});
  check_one(config.alibi, &Capabilities::alibi,
            "have alibi positions, which take distances from the logits of all pairs", {});
  check_one(config.relative, &Capabilities::relative,
            "have relative positions, which add learned numbers to the logits of all pairs", {});
  check_one(config.head_width > 0, &Capabilities::as_heads,
            "have heads of a width of their own (model.head_width, mixed_heads)", can.reason);
}

}  // namespace

const AttentionVariant& register_attention(AttentionVariant variant) {
  return Registry::instance().add(std::move(variant));
}

std::span<const AttentionVariant> attention_variants() {
  return Registry::instance().variants();
}

const AttentionVariant& attention_variant(std::string_view name) {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) {
    if (variant.name == name) return variant;
    names.emplace_back(variant.name);
  }
  fail("unknown attention '", name, "'", suggest_name(name, names),
       " (one of an application's own has to be registered first, by register_attention)");
}

Capabilities attention_capabilities(std::string_view name, const Options& options) {
  const AttentionVariant& variant = attention_variant(name);
  if (!variant.capabilities_with) return variant.capabilities;
  // From a copy: what is looked up is recorded, and threads may share a model.
  return variant.capabilities_with(Options(options));
}

/// Throws for an option that is not a setting of the variant but is spelled almost like one: a
/// listed setting, or one that this configuration looked up.
static void check_spelling(std::string_view name, const Options& options) {
  if (options.values().empty()) return;
  std::vector<std::string> known;
  for (const Options::Asked& asked : options.asked()) known.push_back(asked.name);
  for (const Options::Asked& asked : attention_settings(name)) known.push_back(asked.name);
  for (const auto& [option, value] : options.values())
    if (std::ranges::count(known, option) == 0 && !nearest_name(option, known).empty())
      fail("attention '", name, "' has no setting '", option, "'", suggest_name(option, known));
}

static std::unique_ptr<Attention> checked_attention(std::string_view name, const AttentionConfig& config) {
  const Capabilities can = attention_capabilities(name, config.options);
  check_config(name, config);
  check_capabilities(name, config, can);
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
  check(made != nullptr, owner, ": what makes it gave no layer");
  config.options.check_all_taken(owner);
  return made;
}

std::unique_ptr<Attention> make_attention(std::string_view name, const AttentionConfig& config) {
  try {
    return checked_attention(name, config);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error&) {
    check_spelling(name, config.options);  // a misspelt option may be the cause
    throw;
  }
}

/// Adds the settings that a layer looks up in each use of a variant, given the values of other
/// settings.
static void add_asked(std::string_view name, const std::map<std::string, Options::Value>& beside,
                      std::vector<Options::Asked>& settings) {
  const Capabilities can = attention_capabilities(name, {});
  for (const bool causal : {false, true}) {
    for (const bool cross : {false, true}) {
      if ((causal && (cross || !can.causal)) || (cross && !can.cross)) continue;
      AttentionConfig config;
      config.width = 64;
      config.heads = 4;
      config.max_length = 256;
      config.causal = causal;
      config.cross = cross;
      for (const auto& [other, value] : beside) config.options.set(other, value);
      checked_attention(name, config);  // not make_attention(), which looks here for names
      for (Options::Asked asked : config.options.asked()) {
        if (std::ranges::count(settings, asked.name, &Options::Asked::name) > 0) continue;
        asked.beside = beside;
        settings.push_back(std::move(asked));
      }
    }
  }
}

std::vector<Options::Asked> attention_settings(std::string_view name) {
  const ShapesOnly scope;
  std::vector<Options::Asked> settings;
  add_asked(name, {}, settings);
  for (const OptionHelp& known : option_help()) {
    if (known.variant != name || known.beside.empty()) continue;
    const std::size_t end = known.beside.find('=');
    const std::string other(known.beside.substr(0, end));
    add_asked(name, {{other, option_from_json(other, known.beside.substr(end + 1))}}, settings);
  }
  for (Options::Asked& asked : settings)
    for (const OptionHelp& known : option_help())
      if (known.option == asked.name &&
          (known.variant == name || (known.variant.empty() && asked.help.empty())))
        asked.help = known.help;
  return settings;
}

}  // namespace heed
