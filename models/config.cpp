#include "heed/models/config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/names.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr double most_layers = 1024, most_vocabulary = 2147483647, most_length = 1 << 24;

/// Calls visit(setting, member) for every setting: the single list behind reading, writing, checking and
/// help.
template <class Visit, class Config>
void for_each_setting(Visit&& visit, Config& config) {
  const auto number = [&](std::string_view name, double low, double high, std::string_view help,
                          auto member) {
    visit(ConfigSetting{name, help, low, high}, config.*member);
  };
  const auto choice = [&](std::string_view name, std::vector<std::string> choices, std::string_view help,
                          auto member) {
    visit(ConfigSetting{name, help, 0, 0, std::move(choices)}, config.*member);
  };
  const auto any = [&](std::string_view name, std::string_view help, auto member) {
    visit(ConfigSetting{name, help}, config.*member);
  };
  using T = TransformerConfig;
  number("width", 1, 65536, "the width d of all layers, a multiple of the heads", &T::width);
  number("heads", 1, 1024, "attention heads", &T::heads);
  number("feed_forward", 1, 1 << 20, "hidden width of the feed-forward layers", &T::feed_forward);
  number("encoder_layers", 1, most_layers, "layers of the encoder", &T::encoder_layers);
  number("decoder_layers", 1, most_layers, "layers of the decoder", &T::decoder_layers);
  number("source_vocabulary", 0, most_vocabulary, "tokens that an encoder knows", &T::source_vocabulary);
  number("target_vocabulary", 0, most_vocabulary, "tokens that a decoder knows", &T::target_vocabulary);
  number("classes", 0, most_vocabulary, "classes of a classifier", &T::classes);
  choice("pooling", {"mean", "attention", "max"}, "how an encoder's outputs become one vector", &T::pooling);
  number(
      "word_pairs", 0, 1 << 28,
      "rows of a table of hashed words and pairs of words, classified linearly beside the encoder; 0: none",
      &T::word_pairs);
  number("local_width", 0, 64, "neighbouring tokens that a convolution joins before the encoder; 0: none",
         &T::local_width);
  number("max_length", 1, most_length, "positions, where parameters depend on them", &T::max_length);
  number("dropout", 0, below_one, "on embeddings and the output of every sub-layer", &T::dropout);
  number("word_dropout", 0, below_one, "on whole tokens that an encoder reads", &T::word_dropout);
  number("attention_dropout", 0, below_one, "on attention weights", &T::attention_dropout);
  number("activation_dropout", 0, below_one, "inside the feed-forward layers", &T::activation_dropout);
  choice("activation", {"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"},
         "of the feed-forward layers; swiglu and geglu are gated, with a map more", &T::activation);
  choice("norm", {"post", "pre"}, "LN(x + f(x)), or x + f(LN(x)) with a norm behind each stack", &T::norm);
  choice("norm_kind", {"layer", "rms"}, "layer normalisation, or by the root mean square alone",
         &T::norm_kind);
  choice("positions", {"sinusoidal", "learned", "none", "sinusoidal_halves", "rotary", "alibi", "relative"},
         "what tells positions apart; in halves the sines stand before the cosines; rotary turns queries and "
         "keys, alibi takes distances from logits, relative adds learned numbers for them",
         &T::positions);
  any("embedding_norm", "embeddings are normalised before the first layer", &T::embedding_norm);
  number("token_types", 0, 65536,
         "vectors for the tokens of the first, second, ... text of an input; 0: none", &T::token_types);
  choice("tie_embeddings", {"none", "decoder", "all"},
         "what is one matrix: output map and target embedding, and the source's too", &T::tie_embeddings);
  any("output_bias", "the output map of a decoder has a bias", &T::output_bias);
  any("output_transform", "masked: a map and a norm stand before the output map", &T::output_transform);
  any("pointer", "a decoder may copy tokens of its source", &T::pointer);
  any("scale_embeddings", "embeddings are multiplied by sqrt(width)", &T::scale_embeddings);
  any("attention_bias", "the projections of attention have biases", &T::attention_bias);
  any("recompute_layers", "backward runs each layer again: memory for time", &T::recompute_layers);
  number("epsilon", 1e-30, 1, "of normalisation", &T::epsilon);
  number("embedding_deviation", 0, 1e6, "of initial embeddings and learned positions; 0: 1 / sqrt(width)",
         &T::embedding_deviation);
  number("lora_rank", 0, 65536, "of the low-rank maps that alone are trained in the stacks (LoRA); 0: none",
         &T::lora_rank);
  number("lora_alpha", 0, 1e6, "of LoRA: what it adds is multiplied by lora_alpha / lora_rank",
         &T::lora_alpha);
  any("lora_maps", "of LoRA: the maps it is added to, by their names, such as query,value,feed_forward.input",
      &T::lora_maps);
  choice("share_layers", {"none", "attention", "all"}, "what the layers of a stack have in common",
         &T::share_layers);
  any("encoder_attention", "of the encoder: a variant, or one for each layer", &T::encoder_attention);
  any("decoder_attention", "of the decoder, likewise", &T::decoder_attention);
  any("cross_attention", "of the decoder to the encoder, likewise; \"none\" leaves it out",
      &T::cross_attention);
  number("seed", -0x1p63, 0x1p63, "of the initial parameters", &T::seed);
}

[[noreturn]] void wrong_type(std::string_view key, const char* wanted, const Json& value) {
  fail("setting '", key, "' must be ", wanted, ", but is ", value.dump());
}

void read(std::string_view key, const Json& value, std::int64_t& out) {
  if (!value.is_number_integer()) wrong_type(key, "an integer", value);
  constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > largest)
    wrong_type(key, "an integer below 2^63", value);
  out = value.get<std::int64_t>();
}
void read(std::string_view key, const Json& value, double& out) {
  if (!value.is_number()) wrong_type(key, "a number", value);
  out = value.get<double>();
}
void read(std::string_view key, const Json& value, bool& out) {
  if (!value.is_boolean()) wrong_type(key, "true or false", value);
  out = value.get<bool>();
}
void read(std::string_view key, const Json& value, std::string& out) {
  if (!value.is_string()) wrong_type(key, "text", value);
  out = value.get<std::string>();
}

void read(std::string_view key, const Json& value, AttentionChoice& out) {
  out = {};
  if (value.is_string()) {
    out.name = value.get<std::string>();
    return;
  }
  if (!value.is_object()) wrong_type(key, "the name of an attention, or an object with its \"name\"", value);
  for (const auto& [name, setting] : value.items()) {
    if (name == "name") {
      read(concat_text(key, ".name"), setting, out.name);
    } else if (name == "heads") {
      read(concat_text(key, ".heads"), setting, out.heads);
    } else {
      out.options.set(name, option_from_json(concat_text(key, ".", name), setting.dump()));
    }
  }
  out.options.take_integer("heads", 0);  // so that a misspelt "heads" gets a suggestion
}
void read(std::string_view key, const Json& value, AttentionChoices& out) {
  const std::size_t count = value.is_array() ? value.size() : 1;
  out.assign(count, {});
  for (std::size_t i = 0; i < count; ++i) read(key, value.is_array() ? value[i] : value, out[i]);
}

Json written(const AttentionChoice& choice) {
  if (choice.heads == 0 && choice.options.values().empty()) return choice.name;
  Json out{{"name", choice.name}};
  if (choice.heads != 0) out["heads"] = choice.heads;
  for (const auto& [name, value] : choice.options.values()) {
    std::visit([&, &key = name](const auto& held) { out[key] = held; }, value);
  }
  return out;
}
Json written(const AttentionChoices& choices) {
  if (choices.size() == 1) return written(choices.front());
  Json out = Json::array();
  for (const AttentionChoice& choice : choices) out.push_back(written(choice));
  return out;
}
template <class T>
Json written(const T& value) {
  return value;
}

void check_value(const ConfigSetting& setting, std::int64_t value) {
  if (setting.high < 0x1p63)
    check_setting(setting.name, value, static_cast<std::int64_t>(setting.low),
                  static_cast<std::int64_t>(setting.high));
}
void check_value(const ConfigSetting& setting, double value) {
  check_setting(setting.name, value, setting.low, setting.high);
}
void check_value(const ConfigSetting& setting, const std::string& value) {
  if (!setting.choices.empty()) check_setting(setting.name, value, setting.choices);
}
void check_value(const ConfigSetting&, bool) {}
void check_value(const ConfigSetting& setting, const AttentionChoices& choices) {
  for (const AttentionChoice& choice : choices)
    check_setting(concat_text(setting.name, ".heads"), choice.heads, 0, 1024);
}

void check_choices(const char* key, const AttentionChoices& choices, std::int64_t layers, bool shares) {
  const auto count = static_cast<std::int64_t>(choices.size());
  check(count == 1 || count == layers, "setting '", key, "' must have one entry, or one for each of the ",
        layers, " layers, but has ", count);
  check(!shares || count == 1, "setting '", key, "' must have one entry when share_layers is set, but has ",
        count);
}

}  // namespace

const AttentionChoice& choice_for(const AttentionChoices& choices, std::int64_t layer) {
  return choices.size() == 1 ? choices.front() : choices.at(static_cast<std::size_t>(layer));
}

std::span<const ConfigSetting> transformer_settings() {
  static const std::vector<ConfigSetting> settings = [] {
    std::vector<ConfigSetting> all;
    TransformerConfig config;
    for_each_setting([&](ConfigSetting setting, const auto&) { all.push_back(std::move(setting)); }, config);
    return all;
  }();
  return settings;
}

std::span<const std::string> choices_of(std::string_view name) {
  for (const ConfigSetting& setting : transformer_settings())
    if (setting.name == name && !setting.choices.empty()) return setting.choices;
  fail("the model has no setting '", name, "' that is a choice");
}

void check_config(const TransformerConfig& config) {
  for_each_setting([](const ConfigSetting& setting, const auto& value) { check_value(setting, value); },
                   config);
  const bool shares = config.share_layers != "none";
  check_choices("encoder_attention", config.encoder_attention, config.encoder_layers, shares);
  check_choices("decoder_attention", config.decoder_attention, config.decoder_layers, shares);
  check_choices("cross_attention", config.cross_attention, config.decoder_layers, shares);
}

const TransformerConfig& checked_config(const TransformerConfig& config, std::string_view model,
                                        std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  check_config(config);
  for (const auto& [name, size] : sizes) check(size > 0, model, " needs ", name, ", got ", size);
  return config;
}

std::string to_json(const TransformerConfig& config) {
  Json json;
  for_each_setting([&](const ConfigSetting& setting,
                       const auto& member) { json[std::string(setting.name)] = written(member); },
                   config);
  return json.dump(2);
}

TransformerConfig transformer_config_from_json(std::string_view text) {
  TransformerConfig config;
  const Json json = parse_json<Json>(text, "the model configuration");
  check(json.is_object(), "the model configuration must be a JSON object");
  std::vector<std::string> known;
  for_each_setting(
      [&](const ConfigSetting& setting, auto& member) {
        known.emplace_back(setting.name);
        if (const auto found = json.find(known.back()); found != json.end())
          read(setting.name, *found, member);
      },
      config);
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail("the model has no setting '", key, "'", suggest_name(key, known));
  }
  return config;
}

namespace {

/// No cross-attention except in the last layer, which has one head of full width.
AttentionChoices last_layer_alone(std::int64_t layers) {
  AttentionChoices choices(static_cast<std::size_t>(std::max<std::int64_t>(layers, 1)));
  for (AttentionChoice& choice : choices) choice.name = "none";
  choices.back().name = "dot_product";
  choices.back().heads = 1;
  return choices;
}

}  // namespace

std::vector<std::string> preset_names() {
  return {"hc-sa", "sh-x", "hc-all"};
}

void apply_preset(TransformerConfig& config, std::string_view name) {
  const std::vector<std::string> names = preset_names();
  check(std::find(names.begin(), names.end(), name) != names.end(), "unknown preset '", name, "'",
        suggest_name(std::string(name), names));
  AttentionChoice hard_coded;  // default offsets: -1, 1 in the encoder and across, -1, 0 in the decoder
  hard_coded.name = "hard_coded_gaussian";
  config.encoder_attention = config.decoder_attention = {hard_coded};
  if (name == "hc-sa") config.cross_attention = {AttentionChoice{}};
  if (name == "sh-x") config.cross_attention = last_layer_alone(config.decoder_layers);
  if (name == "hc-all") config.cross_attention = {hard_coded};
}

}  // namespace heed
