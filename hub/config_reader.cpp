#include "heed/hub/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "heed/base/json.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, const char*>, 8> published_activations = {
    {{"relu", "relu"},
     {"gelu", "gelu"},
     {"gelu_new", "gelu_tanh"},
     {"gelu_pytorch_tanh", "gelu_tanh"},
     {"gelu_fast", "gelu_tanh"},
     {"silu", "silu"},
     {"swish", "silu"},
     {"gelu_python", "gelu"}}};

}  // namespace

struct ConfigReader::Value {
  Json json;
};

ConfigReader::ConfigReader(const std::string& text, std::string model)
    : value_(std::make_shared<Value>(Value{parse_json<Json>(text, "config.json")})),
      model_(std::move(model)) {
  check(value_->json.is_object(), "config.json is no JSON object");
}

std::int64_t ConfigReader::integer(const char* name, std::int64_t low, std::int64_t high) const {
  const Json value = value_->json.value(name, Json());
  check(value.is_number_integer(), "config.json: \"", name, "\" of a ", model_,
        " model must be an integer, is ", value.dump());
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                        : value.get<std::int64_t>() <= high;
  check(fits && value.get<std::int64_t>() >= low, "config.json: \"", name, "\" must be ", low, " to ", high,
        ", is ", value.dump());
  return value.get<std::int64_t>();
}

double ConfigReader::number(const char* name, double fallback) const {
  const Json value = value_->json.value(name, Json());
  if (value.is_null()) return fallback;
  check(value.is_number() && std::isfinite(value.get<double>()), "config.json: \"", name,
        "\" must be a number, is ", value.dump());
  return value.get<double>();
}

bool ConfigReader::flag(const char* name, bool fallback) const {
  const Json value = value_->json.value(name, Json());
  if (value.is_null()) return fallback;
  check(value.is_boolean(), "config.json: \"", name, "\" must be true or false, is ", value.dump());
  return value.get<bool>();
}

std::string ConfigReader::text(const char* name, const std::string& fallback) const {
  const Json value = value_->json.value(name, Json());
  if (value.is_null()) return fallback;
  check(value.is_string(), "config.json: \"", name, "\" must be a text, is ", value.dump());
  return value.get<std::string>();
}

bool ConfigReader::has(const char* name) const {
  return value_->json.contains(name) && !value_->json[name].is_null();
}

void ConfigReader::expect(const char* name, std::string_view json) const {
  const Json value = Json::parse(json);
  const Json found = value_->json.value(name, Json());
  check(found.is_null() || found == value, "config.json: \"", name, "\" is ", found.dump(),
        ", which heed's model of ", model_, " does not have; it follows ", value.dump(), " alone");
}

std::string ConfigReader::activation(const char* name, const std::string& fallback) const {
  const std::string found = text(name, fallback);
  std::string known;
  for (const auto& [theirs, ours] : published_activations) {
    if (found == theirs) return ours;
    known += concat_text(known.empty() ? "" : ", ", theirs);
  }
  fail("config.json: \"", name, "\" is \"", found, "\", an activation that heed does not have; it knows ",
       known);
}

void ConfigReader::check_rows(const char* name, const std::map<std::string, Tensor>& tensors,
                              const std::string& weight) const {
  const auto found = tensors.find(weight);
  if (!has(name) || found == tensors.end() || found->second.rank() == 0) return;
  const std::int64_t said = integer(name, 1, std::numeric_limits<std::int64_t>::max());
  check(found->second.size(0) == said, "config.json: \"", name, "\" is ", said, ", but the weight ", weight,
        " has ", found->second.size(0), " rows: they do not belong together");
}

void ConfigReader::check_heads(std::int64_t width, std::int64_t heads) const {
  check(width % heads == 0, "config.json: ", heads, " heads do not divide the width ", width);
}

std::string published_activation(const std::string& name) {
  for (const auto& [theirs, ours] : published_activations)
    if (name == ours) return theirs;
  fail("there is no published name for the activation '", name, "'");
}

Misfits::Misfits(const std::string& settings)
    : settings_(std::make_shared<ConfigReader::Value>(
          ConfigReader::Value{parse_json<Json>(settings, "the settings")})) {}

void Misfits::expect(const std::string& name, std::initializer_list<std::string_view> allowed) {
  const Json* value = &settings_->json;
  for (std::size_t at = 0; at <= name.size() && value;) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, dot - at);
    value = value->is_object() && value->contains(part) ? &(*value)[part] : nullptr;
    at = dot + 1;
  }
  if (!value) return;
  std::string wanted;
  for (const std::string_view one : allowed) {
    if (Json::parse(one) == *value) return;
    wanted += concat_text(wanted.empty() ? "" : " or ", one);
  }
  found_.push_back(concat_text(name, " is ", value->dump(), " (it has ", wanted, ")"));
}

void Misfits::expect_classic_layers() {
  expect("model.norm_kind", {"\"layer\""});
  expect("model.activation", {"\"relu\"", "\"gelu\"", "\"gelu_tanh\"", "\"silu\""});
}

void Misfits::check_none(std::string_view layout) const {
  std::string text;
  for (const std::string& one : found_) text += (text.empty() ? "" : ", ") + one;
  check(found_.empty(), "the layout of ", layout, " does not have what this run is made of: ", text);
}

}  // namespace heed
