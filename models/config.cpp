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

/// The table of all settings; the initial values of TransformerConfig are the defaults.
void for_each_setting(auto&& visit, TransformerConfig& c) {
  visit(c.width, "width", 1, 65536, "Width d of all layers, a multiple of the number of heads");
  visit(c.heads, "heads", 1, 1024, "Number of attention heads");
  visit(c.head_width, "head_width", 0, 65536, "Width of each attention head; 0: width / heads");
  visit(c.feed_forward, "feed_forward", 1, 1 << 20, "Hidden width of the feed-forward layers");
  visit(c.encoder_layers, "encoder_layers", 1, most_layers, "Number of encoder layers");
  visit(c.decoder_layers, "decoder_layers", 1, most_layers, "Number of decoder layers");
  visit(c.source_vocabulary, "source_vocabulary", 0, most_vocabulary, "Vocabulary size of the encoder");
  visit(c.target_vocabulary, "target_vocabulary", 0, most_vocabulary, "Vocabulary size of the decoder");
  visit(c.classes, "classes", 0, most_vocabulary, "Number of classes of a classifier");
  visit(c.pooling, "pooling", {"mean", "attention", "max", "first", "last", "weighted"},
        "How encoder outputs are combined into one vector; first, last: only that token's output; weighted: "
        "a mean in which the n-th token counts n times");
  visit(c.pooler, "pooler", {"none", "tanh", "relu", "gelu", "identity"},
        "Activation of a linear layer applied to the pooled vector; none: no such layer");
  visit(c.pooler_width, "pooler_width", 0, 65536, "Width of that layer's output; 0: width");
  visit(
      c.sparse_features, "sparse_features", 0, 1 << 28,
      "Number of hashed features (words, word pairs and runs of 1 to 5 characters) of a linear model beside "
      "the encoder, at most 33,554,432 / classes; 0: none");
  visit(c.vector_features, "vector_features", 0, 65536,
        "Numbers of a vector that the linear model reads, too");
  visit(c.local_width, "local_width", 0, 64,
        "Kernel width of a convolution over tokens before the encoder; 0: none");
  visit(c.max_length, "max_length", 1, most_length, "Number of positions, for parameters that depend on it");
  visit(c.dropout, "dropout", 0, below_one, "Dropout on embeddings and the output of every sub-layer");
  visit(c.word_dropout, "word_dropout", 0, below_one, "Dropout of whole input tokens of an encoder");
  visit(c.attention_dropout, "attention_dropout", 0, below_one, "Dropout on attention weights");
  visit(c.activation_dropout, "activation_dropout", 0, below_one, "Dropout inside the feed-forward layers");
  visit(c.activation, "activation", {"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"},
        "Activation of the feed-forward layers; swiglu, geglu and geglu_tanh are gated, with one more linear "
        "map");
  visit(c.feed_forward_bias, "feed_forward_bias", "Use biases in the feed-forward layers");
  visit(c.norm, "norm", {"post", "pre", "sandwich"},
        "post: LN(x + f(x)); pre: x + f(LN(x)); sandwich: x + LN(f(LN(x))); the last two with a final norm "
        "after each stack");
  visit(c.first_norm, "first_norm", "Normalise the input of the first layer's attention, too, with norm=pre");
  visit(c.norm_kind, "norm_kind", {"layer", "rms"},
        "layer: layer normalisation; rms: only by the root mean square");
  visit(c.canon, "canon", 0, 64,
        "Canon layers: how many of the last tokens a learned sum adds up before each self-attention and "
        "feed-forward layer; 0: none");
  visit(c.positions, "positions",
        {"sinusoidal", "learned", "none", "sinusoidal_halves", "rotary", "alibi", "relative"},
        "Position encoding; sinusoidal_halves: all sines before all cosines; rotary: rotates queries and "
        "keys; alibi: subtracts distances from logits; relative: adds a learned bias for each distance");
  visit(c.alibi_slopes, "alibi_slopes", {"even", "interleaved"},
        "alibi, for a number of heads H that is not a power of two: even: 2^(-8h / H); interleaved, as in "
        "BLOOM: the slopes of the next smaller power of two, then every second slope of twice that number");
  visit(c.rotary_base, "rotary_base", 1, 1e12,
        "rotary: pair i of a head rotates by base^(-2i / head width) per token");
  visit(c.rotary_factor, "rotary_factor", 1, 1e6,
        "rotary: factor by which rotations are slowed down, to read longer texts than in training");
  visit(c.rotary_length, "rotary_length", 0, most_length,
        "rotary: rotary_factor slows down only pairs with at most one full rotation in this many tokens, and "
        "partly pairs with up to four (Llama 3.1); 0: all pairs");
  visit(c.rotary_scaling, "rotary_scaling", {"llama3", "dynamic", "yarn", "longrope"},
        "rotary: how rotary_factor acts; llama3: as rotary_length says; dynamic: the base grows with texts "
        "beyond rotary_length; yarn: like llama3, by the number of a pair, with larger queries and keys; "
        "longrope: a factor for each pair (rotary_short, rotary_long)");
  visit(c.rotary_few_turns, "rotary_few_turns", 0, 1e6,
        "rotary: rotations in rotary_length tokens up to which a pair is slowed down by the whole factor");
  visit(c.rotary_many_turns, "rotary_many_turns", 0, 1e6,
        "rotary: rotations in rotary_length tokens from which a pair stays as it is; 0: 4, or 32 with yarn");
  visit(c.rotary_amplitude, "rotary_amplitude", 0, 1e6,
        "rotary: factor of rotated queries and keys; 0: 1, or what yarn and longrope prescribe");
  visit(c.rotary_share, "rotary_share", 0, 1, "rotary: share of the elements of a head that rotate");
  visit(c.rotary_short, "rotary_short",
        "longrope: by how much each pair is slowed down up to rotary_length tokens; numbers between commas");
  visit(c.rotary_long, "rotary_long", "longrope: the same for longer texts");
  visit(c.embedding_norm, "embedding_norm", "Normalise embeddings before the first layer");
  visit(c.token_types, "token_types", 0, 65536,
        "Number of token types, with a learned vector for the tokens of the first, second, ... text of an "
        "input; 0: none");
  visit(c.tie_embeddings, "tie_embeddings", {"none", "decoder", "all"},
        "Weight tying; decoder: output layer and target embedding; all: also the source embedding");
  visit(c.output_bias, "output_bias", "Use a bias in the output layer of a decoder");
  visit(c.output_cap, "output_cap", 0, 1e6, "Soft cap c of the output logits, c tanh(logit / c); 0: none");
  visit(c.output_transform, "output_transform",
        "masked: add a linear layer and a norm before the output layer");
  visit(c.pointer, "pointer", "Pointer network: the decoder can copy tokens of its source");
  visit(c.scale_embeddings, "scale_embeddings", "Multiply embeddings by sqrt(width)");
  visit(c.attention_bias, "attention_bias", "Use biases in the attention projections");
  visit(c.recompute_layers, "recompute_layers",
        "Recompute each layer in the backward pass: less memory, more time");
  visit(c.epsilon, "epsilon", 1e-30, 1, "Epsilon of normalisation");
  visit(c.embedding_deviation, "embedding_deviation", 0, 1e6,
        "Standard deviation of initial embeddings and learned positions; 0: 1 / sqrt(width)");
  visit(c.lora_rank, "lora_rank", 0, 65536,
        "LoRA rank; only the low-rank maps are trained in the stacks; 0: no LoRA");
  visit(c.lora_alpha, "lora_alpha", 0, 1e6, "LoRA: the update is scaled by lora_alpha / lora_rank");
  visit(c.lora_maps, "lora_maps",
        "LoRA: names of the adapted linear maps, such as query,value,feed_forward.input");
  visit(c.share_layers, "share_layers", {"none", "attention", "all"},
        "Parameters that the layers of a stack share");
  visit(c.encoder_attention, "encoder_attention",
        "Self-attention of the encoder: a mechanism, or one for each layer");
  visit(c.decoder_attention, "decoder_attention",
        "Self-attention of the decoder: a mechanism, or one for each layer");
  visit(c.cross_attention, "cross_attention",
        "Cross-attention from decoder to encoder: a mechanism, or one for each layer; \"none\": no "
        "cross-attention");
  visit(c.seed, "seed", -0x1p63, 0x1p63, "Seed of the initial parameters");
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
  for (const auto& [name, setting] : value.items())
    if (name == "name")
      read(concat_text(key, ".name"), setting, out.name);
    else if (name == "heads")
      read(concat_text(key, ".heads"), setting, out.heads);
    else
      out.options.set(name, option_from_json(concat_text(key, ".", name), setting.dump()));
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
  for (const auto& [name, value] : choice.options.values())
    std::visit([&, &key = name](const auto& held) { out[key] = held; }, value);
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

void check_value(const Setting& setting, std::int64_t value) {
  if (setting.high < 0x1p63)
    check_setting(setting.name, value, static_cast<std::int64_t>(setting.low),
                  static_cast<std::int64_t>(setting.high));
}
void check_value(const Setting& setting, double value) {
  check_setting(setting.name, value, setting.low, setting.high);
}
void check_value(const Setting& setting, const std::string& value) {
  if (!setting.choices.empty()) check_setting(setting.name, value, setting.choices);
}
void check_value(const Setting&, bool) {}
void check_value(const Setting& setting, const AttentionChoices& choices) {
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

std::span<const Setting> transformer_settings() {
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all;
    TransformerConfig config;
    for_each_setting(SettingVisitor([&](const auto& value, Setting setting) {
                       if (std::is_same_v<decltype(value), const AttentionChoices&>)
                         setting.kind = Setting::Kind::attention;
                       all.push_back(std::move(setting));
                     }),
                     config);
    return all;
  }();
  return settings;
}

std::span<const std::string> setting_choices(std::string_view name) {
  for (const Setting& setting : transformer_settings())
    if (setting.name == name && !setting.choices.empty()) return setting.choices;
  fail("the model has no setting '", name, "' that is a choice");
}

void check_config(TransformerConfig config) {
  for_each_setting(
      SettingVisitor([](const auto& value, const Setting& setting) { check_value(setting, value); }), config);
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

std::string to_json(TransformerConfig config) {
  Json json;
  for_each_setting(
      SettingVisitor([&](const auto& value, const Setting& setting) { json[setting.name] = written(value); }),
      config);
  return json.dump(2);
}

TransformerConfig transformer_config_from_json(std::string_view text) {
  TransformerConfig config;
  const Json json = parse_json<Json>(text, "the model configuration");
  check(json.is_object(), "the model configuration must be a JSON object");
  std::vector<std::string> known;
  for_each_setting(SettingVisitor([&](auto& value, const Setting& setting) {
                     known.push_back(setting.name);
                     if (const auto found = json.find(setting.name); found != json.end())
                       read(setting.name, *found, value);
                   }),
                   config);
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail("the model has no setting '", key, "'", suggest_name(key, known));
  }
  return config;
}

/// No cross-attention except in the last layer, which has one head of full width.
static AttentionChoices last_layer_alone(std::int64_t layers) {
  AttentionChoices choices(static_cast<std::size_t>(std::max<std::int64_t>(layers, 1)));
  for (AttentionChoice& choice : choices) choice.name = "none";
  choices.back().name = "dot_product";
  choices.back().heads = 1;
  return choices;
}

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
