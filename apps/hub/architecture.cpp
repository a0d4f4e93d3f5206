#include "heed/apps/hub/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/names.h"

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

std::string with_layer_number(std::string name, std::int64_t number) {
  const std::size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(number));
}

/// One of heed's weights out of a published one.
Tensor weight_of_published(Tensor x, const WeightName& name, std::string_view what) {
  const WeightLayout& layout = name.layout;
  check(is_floating(x.dtype()), what, ": weight ", name.published, " is of type ", x.dtype());
  if (x.dtype() != DType::f32) x = cast(x, DType::f32);
  if (layout.is_row) {
    check(x.rank() == 2 && x.size(0) == 1, what, ": weight ", name.published, " has the shape ", x.shape(),
          ", not [1, n]");
    x = squeeze(x, 0);
  }
  if (layout.transposed && x.rank() == 2) x = transpose(x, 0, 1);
  if (layout.parts > 1) {
    check(x.rank() > 0 && x.size(0) % layout.parts == 0, what, ": weight ", name.published, " has the shape ",
          x.shape(), ", which does not hold ", layout.parts, " equal parts");
    const std::int64_t rows = x.size(0) / layout.parts;
    x = slice(x, 0, layout.part * rows, (layout.part + 1) * rows);
  }
  return contiguous(x);
}

/// The name that BERT's first files give a weight; the same if there is none.
std::string first_name_of(const std::string& name) {
  for (const auto& [now, first] :
       {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, std::pair{"LayerNorm.bias", "LayerNorm.beta"}})
    if (name.ends_with(now)) return name.substr(0, name.size() - std::string_view(now).size()) + first;
  return name;
}

bool have_same_values(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return false;
  const auto values = [](const Tensor& x) {
    return (x.dtype() == DType::f32 ? x : cast(x, DType::f32)).to_vector<float>();
  };
  return values(a) == values(b);
}

/// Nothing that is left out because it is there already may hold something else.
void check_copies(const std::map<std::string, Tensor>& published, const std::map<std::string, Tensor>& ours,
                  const ImportPlan& plan, std::string_view what) {
  for (const auto& [suffix, our_name] : plan.copies) {
    const auto& all = plan.names.all();
    const auto same = std::ranges::find(all, our_name, &WeightName::ours);
    for (const auto& [name, tensor] : published)
      if (name.ends_with(suffix))
        check(same != all.end() && have_same_values(tensor, ours.at(our_name)), what, ": weight ", name,
              " differs from ", same == all.end() ? our_name : same->published,
              ", to which it is tied: heed has one weight for both");
  }
}

}  // namespace

// --- names of weights

void WeightNames::add(std::string published, std::string ours, WeightLayout layout) {
  names_.push_back({std::move(published), std::move(ours), layout});
}

void WeightNames::add_map(const std::string& published, const std::string& ours, WeightLayout layout) {
  add(published + ".weight", ours + ".weight", layout);
  add(published + ".bias", ours + ".bias", layout);
}

void WeightNames::add_layers(std::int64_t layers, const WeightNames& of_layer) {
  for (std::int64_t i = 0; i < layers; ++i)
    for (const WeightName& name : of_layer.names_)
      add(with_layer_number(name.published, i), with_layer_number(name.ours, i), name.layout);
}

void WeightNames::add_prefix(std::string_view prefix) {
  for (WeightName& name : names_) name.published.insert(0, prefix);
}

std::string prefix_of(const std::map<std::string, Tensor>& tensors, std::string_view name) {
  for (const auto& [whole, tensor] : tensors) {
    const std::size_t before = whole.size() - std::min(name.size(), whole.size());
    if (whole.ends_with(name) && (before == 0 || whole[before - 1] == '.')) return whole.substr(0, before);
  }
  return "";
}

bool differs_from(const std::map<std::string, Tensor>& tensors, const std::string& name,
                  const std::string& other) {
  const auto one = tensors.find(name), two = tensors.find(other);
  return one != tensors.end() && two != tensors.end() && !have_same_values(one->second, two->second);
}

std::string not_tied(const std::string& name) {
  return concat_text(name, " is kept: it differs from the embedding, to which config.json ties it");
}

std::map<std::string, Tensor> our_weights(const std::map<std::string, Tensor>& published,
                                          const UnreadTensors& unread, const ImportPlan& plan,
                                          std::string_view what) {
  const NoGrad no_grad;
  const auto is_unused = [&](const std::string& name) {
    return std::ranges::any_of(
        plan.unused, [&](const std::string& one) { return name.starts_with(one) || name.ends_with(one); });
  };
  for (const auto& [name, reason] : unread) check(is_unused(name), reason);
  std::set<std::string> known;
  std::vector<std::string> missing, unknown;
  std::map<std::string, Tensor> ours;
  for (const WeightName& name : plan.names.all()) {
    auto found = published.find(name.published);
    if (found == published.end()) found = published.find(first_name_of(name.published));
    if (found != published.end())
      ours[name.ours] = weight_of_published(found->second, name, what);
    else if (known.insert(name.published).second)
      missing.push_back(name.published);
    known.insert(found != published.end() ? found->first : name.published);
  }
  for (const auto& [name, tensor] : published) {
    const bool is_copy = std::ranges::any_of(
        plan.copies, [&name = name](const auto& copy) { return name.ends_with(copy.first); });
    if (!known.contains(name) && !is_copy && !is_unused(name)) unknown.push_back(name);
  }
  check(
      missing.empty() && unknown.empty(), what, ": ",
      missing.empty() ? "" : concat_text("weights are missing: ", listed(missing, 8)),
      missing.empty() || unknown.empty() ? "" : "; ",
      unknown.empty() ? "" : concat_text("weights have names that heed does not know: ", listed(unknown, 8)));
  check_copies(published, ours, plan, what);
  return ours;
}

std::map<std::string, Tensor> published_weights(const std::map<std::string, Tensor>& ours,
                                                const WeightNames& names, std::string_view what) {
  const NoGrad no_grad;
  std::set<std::string> known;
  std::map<std::string, std::vector<Tensor>> parts;
  for (const WeightName& name : names.all()) {
    const auto found = ours.find(name.ours);
    check(found != ours.end(), what, ": the run has no weight ", name.ours, ", which the layout needs as ",
          name.published);
    known.insert(name.ours);
    std::vector<Tensor>& all = parts[name.published];
    all.resize(static_cast<std::size_t>(name.layout.parts));
    all[static_cast<std::size_t>(name.layout.part)] = found->second.detach();
  }
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : ours)
    if (!known.contains(name)) unknown.push_back(name);
  check(unknown.empty(), what, ": the layout has no place for ", listed(unknown, 8));
  std::map<std::string, Tensor> published;
  for (const WeightName& name : names.all()) {
    const auto found = parts.find(name.published);
    if (found == parts.end() || published.contains(name.published)) continue;
    Tensor x = found->second.size() == 1 ? found->second.front() : concat(found->second, 0);
    if (name.layout.transposed && x.rank() == 2) x = transpose(x, 0, 1);
    if (name.layout.is_row) x = unsqueeze(x, 0);
    published[name.published] = contiguous(x);
  }
  return published;
}

void add_missing_biases(std::map<std::string, Tensor>& weights, std::string_view part) {
  std::map<std::string, Tensor> biases;
  for (const auto& [name, tensor] : weights) {
    if (name.find(part) == std::string::npos || !name.ends_with(".weight") || tensor.rank() != 2) continue;
    const std::string bias = name.substr(0, name.size() - std::string_view("weight").size()) + "bias";
    if (!weights.contains(bias)) biases[bias] = Tensor::zeros({tensor.size(0)});
  }
  weights.merge(biases);
}

// --- config.json

struct ConfigReader::Value {
  Json json;
};

ConfigReader::ConfigReader(const std::string& text, std::string model)
    : value_(std::make_shared<Value>(Value{parse_json<Json>(text, "config.json")})),
      model_(std::move(model)) {
  check(value_->json.is_object(), "config.json is not a JSON object");
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
  check(value.is_string(), "config.json: \"", name, "\" must be a string, is ", value.dump());
  return value.get<std::string>();
}

bool ConfigReader::has(const char* name) const {
  return value_->json.contains(name) && !value_->json[name].is_null();
}

void ConfigReader::expect(const char* name, std::string_view json) const {
  const Json value = Json::parse(json);
  const Json found = value_->json.value(name, Json());
  check(found.is_null() || found == value, "config.json: \"", name, "\" is ", found.dump(), ", which heed's ",
        model_, " model does not support; it must be ", value.dump());
}

std::string ConfigReader::activation(const char* name, const std::string& fallback) const {
  const std::string found = text(name, fallback);
  std::vector<std::string> known;
  for (const auto& [theirs, ours] : published_activations) {
    if (found == theirs) return ours;
    known.emplace_back(theirs);
  }
  fail("config.json: \"", name, "\" is \"", found, "\", an activation that heed does not have; it knows ",
       listed(known));
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
  check(found_.empty(), "the layout of ", layout,
        " does not have what this run is made of: ", listed(found_));
}

// --- the list of architectures

std::span<const Architecture* const> architectures() {
  static const std::array<const Architecture*, 3> all{&gpt2_architecture(), &bert_architecture(),
                                                      &marian_architecture()};
  return all;
}

const Architecture& architecture_of(const std::string& config, const std::map<std::string, Tensor>& tensors) {
  const std::string type = ConfigReader(config, "published").text("model_type", "");
  std::vector<std::string> known, names;
  for (const Architecture* one : architectures()) {
    if (one->model_type == type) return *one;
    known.emplace_back(one->model_type);
  }
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  fail("config.json: the architecture (\"model_type\") is \"", type,
       "\", which heed does not know; it knows ", listed(known), ". Some of its weights: ", listed(names, 5));
}

}  // namespace heed
