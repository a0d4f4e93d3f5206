#include "adapters.h"

#include <algorithm>

#include "heed/core/error.h"

namespace heed::verify {
namespace {

const std::vector<ParameterName>& shared_parameters() {
  static const std::vector<ParameterName> names = {
      {"Wq", "query.weight", true},  {"bq", "query.bias"},
      {"Wk", "key.weight", true},    {"bk", "key.bias"},
      {"Wv", "value.weight", true},  {"bv", "value.bias"},
      {"Wo", "output.weight", true}, {"bo", "output.bias"},
  };
  return names;
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

Options::Value option_value(const std::string& key, const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  check(value.is_array() && !value.empty(), "configuration key \"", key,
        "\" has a value of an unknown kind: ", value.dump());
  if (value.front().is_string()) return value.get<std::vector<std::string>>();
  return value.get<std::vector<double>>();
}

}  // namespace

std::span<const Adapter> adapters() {
  static const std::vector<Adapter> list = {
      {.variant = "mha", .attention = "dot_product"},
      {.variant = "shx", .attention = "dot_product"},  // single-headed cross-attention: H = 1
  };
  return list;
}

const Adapter* find_adapter(const ReferenceCase& reference) {
  for (const std::string& name : {reference.variant(), reference.family()})
    for (const Adapter& adapter : adapters())
      if (adapter.variant == name) return &adapter;
  return nullptr;
}

AttentionConfig configuration_of(const ReferenceCase& reference, const Adapter& adapter) {
  static const std::vector<std::string> common = {"variant", "H", "causal", "cross", "bias", "extension"};
  AttentionConfig config;
  config.width = reference.at("in.X").size(-1);
  config.heads = reference.config.at("H");
  config.causal = reference.config.value("causal", false);
  config.cross = reference.config.value("cross", false);
  config.bias = reference.config.value("bias", reference.has("param.bq"));
  for (const auto& [key, value] : reference.config.items()) {
    if (contains(common, key) || contains(adapter.ignored, key)) continue;
    const auto option = std::find_if(adapter.options.begin(), adapter.options.end(),
                                     [&key = key](const auto& entry) { return entry.first == key; });
    check(option != adapter.options.end(), "configuration key \"", key, "\" is not known for variant ",
          adapter.variant);
    config.options.set(option->second, option_value(key, value));
  }
  if (adapter.configure) adapter.configure(reference, config);
  return config;
}

std::vector<ParameterName> parameter_names(const ReferenceCase& reference, const Adapter& adapter) {
  std::vector<ParameterName> names;
  for (const std::string& parameter : reference.names("param.")) {
    const auto is_it = [&](const ParameterName& name) { return name.reference == parameter; };
    const auto own = std::find_if(adapter.parameters.begin(), adapter.parameters.end(), is_it);
    const auto shared = std::find_if(shared_parameters().begin(), shared_parameters().end(), is_it);
    check(own != adapter.parameters.end() || shared != shared_parameters().end(), "parameter ", parameter,
          " is not known for variant ", adapter.variant);
    names.push_back(own != adapter.parameters.end() ? *own : *shared);
  }
  return names;
}

CaseOutputs run_once(const Adapter& adapter, Attention& attention, const CaseInputs& inputs,
                     Context& context) {
  CaseOutputs result;
  result.outputs["O"] = attention(inputs.attention, context);
  for (const auto& [reference, ours] : adapter.losses)
    for (const AuxiliaryLoss& loss : context.losses)
      if (loss.name == ours) result.losses[reference] = loss.value;
  return result;
}

}  // namespace heed::verify
