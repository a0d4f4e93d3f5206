#include "heed/models/transformer_config.h"

#include <nlohmann/json.hpp>
#include <span>

#include "heed/core/error.h"
#include "heed/core/nearest_name.h"
#include "heed/core/nesting_limit.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// Calls visit(key, member) for every setting: the one list that reading and writing share.
template <class Config, class Visit>
void for_each_setting(Config& config, Visit&& visit) {
  visit("width", config.width);
  visit("heads", config.heads);
  visit("feed_forward", config.feed_forward);
  visit("encoder_layers", config.encoder_layers);
  visit("decoder_layers", config.decoder_layers);
  visit("source_vocabulary", config.source_vocabulary);
  visit("target_vocabulary", config.target_vocabulary);
  visit("classes", config.classes);
  visit("pooling", config.pooling);
  visit("max_length", config.max_length);
  visit("dropout", config.dropout);
  visit("attention_dropout", config.attention_dropout);
  visit("activation_dropout", config.activation_dropout);
  visit("activation", config.activation);
  visit("norm", config.norm);
  visit("positions", config.positions);
  visit("tie_embeddings", config.tie_embeddings);
  visit("scale_embeddings", config.scale_embeddings);
  visit("attention_bias", config.attention_bias);
  visit("recompute_layers", config.recompute_layers);
  visit("epsilon", config.epsilon);
  visit("embedding_deviation", config.embedding_deviation);
  visit("share_layers", config.share_layers);
  visit("encoder_attention", config.encoder_attention);
  visit("decoder_attention", config.decoder_attention);
  visit("cross_attention", config.cross_attention);
  visit("seed", config.seed);
}

[[noreturn]] void wrong_type(std::string_view key, const char* wanted, const Json& value) {
  fail("setting '", key, "' must be ", wanted, ", but is ", value.dump());
}

void read(std::string_view key, const Json& value, std::int64_t& out) {
  if (!value.is_number_integer()) wrong_type(key, "an integer", value);
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

void check_one_of(const char* key, const std::string& value, std::initializer_list<std::string> allowed) {
  const std::span<const std::string> names(allowed.begin(), allowed.size());
  if (std::find(names.begin(), names.end(), value) != names.end()) return;
  fail("setting '", key, "' cannot be '", value, "'", suggest_name(value, names));
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

void check_config(const TransformerConfig& config) {
  const auto positive = [](const char* key, std::int64_t value) {
    check(value > 0, "setting '", key, "' must be positive, is ", value);
  };
  const auto probability = [](const char* key, double value) {
    check(value >= 0 && value < 1, "setting '", key, "' must be in [0, 1), is ", value);
  };
  positive("width", config.width);
  positive("heads", config.heads);
  positive("feed_forward", config.feed_forward);
  positive("encoder_layers", config.encoder_layers);
  positive("decoder_layers", config.decoder_layers);
  positive("max_length", config.max_length);
  probability("dropout", config.dropout);
  probability("attention_dropout", config.attention_dropout);
  probability("activation_dropout", config.activation_dropout);
  check_one_of("pooling", config.pooling, {"mean", "attention"});
  check_one_of("activation", config.activation, {"relu", "gelu", "gelu_tanh", "silu"});
  check_one_of("norm", config.norm, {"post", "pre"});
  check_one_of("positions", config.positions, {"sinusoidal", "learned"});
  check_one_of("tie_embeddings", config.tie_embeddings, {"none", "decoder", "all"});
  check(config.epsilon > 0, "setting 'epsilon' must be positive, is ", config.epsilon);
  check(config.embedding_deviation >= 0, "setting 'embedding_deviation' must not be negative, is ",
        config.embedding_deviation);
  check_one_of("share_layers", config.share_layers, {"none", "attention", "all"});
  const bool shares = config.share_layers != "none";
  check_choices("encoder_attention", config.encoder_attention, config.encoder_layers, shares);
  check_choices("decoder_attention", config.decoder_attention, config.decoder_layers, shares);
  check_choices("cross_attention", config.cross_attention, config.decoder_layers, shares);
}

std::string to_json(const TransformerConfig& config) {
  Json json;
  for_each_setting(config, [&](const char* key, const auto& member) { json[key] = written(member); });
  return json.dump(2);
}

TransformerConfig transformer_config_from_json(std::string_view text) {
  TransformerConfig config;
  Json json;
  try {
    json = Json::parse(text, nesting_limit(64, "the model configuration"));
  } catch (const nlohmann::json::exception& error) {
    fail("the model configuration is not valid JSON: ", error.what());
  }
  check(json.is_object(), "the model configuration must be a JSON object");
  std::vector<std::string> known;
  for_each_setting(config, [&](const char* key, auto& member) {
    known.emplace_back(key);
    if (const auto found = json.find(key); found != json.end()) read(key, *found, member);
  });
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail("the model has no setting '", key, "'", suggest_name(key, known));
  }
  return config;
}

}  // namespace heed
