#include "heed/apps/hub/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/names.h"

namespace heed::hub {

// --- names of weights

void WeightNames::add(std::string published, std::string ours, WeightLayout layout) {
  names_.push_back({std::move(published), std::move(ours), layout});
}

void WeightNames::add_map(const MapName& map) {
  add(map.published + ".weight", map.ours + ".weight", map.layout);
  if (map.has_bias) add(map.published + ".bias", map.ours + ".bias", map.layout);
}

void WeightNames::add_layers(std::int64_t layers, const std::string& published, const std::string& ours,
                             std::span<const MapName> maps) {
  const auto numbered = [](std::string name, std::int64_t number) {
    return name.replace(name.find("{}"), 2, std::to_string(number));
  };
  for (std::int64_t i = 0; i < layers; ++i)
    for (const MapName& map : maps)
      add_map(
          {numbered(published, i) + map.published, numbered(ours, i) + map.ours, map.has_bias, map.layout});
}

void WeightNames::add_prefix(std::string_view prefix) {
  for (WeightName& name : names_) name.published.insert(0, prefix);
}

// --- weights

namespace {

/// Extracts one of heed's weights from a published one.
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
    x = slice(x, 0, layout.part * rows, (layout.part + layout.span) * rows);
  }
  if (layout.first_row > 0) {
    check(x.rank() > 0 && x.size(0) > layout.first_row, what, ": weight ", name.published, " has the shape ",
          x.shape(), ", of which ", layout.first_row, " rows are to be left out");
    x = slice(x, 0, layout.first_row, x.size(0));
  }
  return contiguous(layout.offset != 0 ? x + layout.offset : x);
}

/// Returns the name of a weight in BERT's first files; the same name if it did not change.
std::string first_name_part(const std::string& name) {
  for (const auto& [now, first] :
       {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, std::pair{"LayerNorm.bias", "LayerNorm.beta"}})
    if (name.ends_with(now)) return name.substr(0, name.size() - std::string_view(now).size()) + first;
  return name;
}

bool have_same_values(const Tensor& a, const Tensor& b) {
  const auto values = [](const Tensor& x) {
    return (x.dtype() == DType::f32 ? x : cast(x, DType::f32)).to_vector<float>();
  };
  return a.shape() == b.shape() && values(a) == values(b);
}

/// Checks that weights left out as copies really equal the original.
void check_copies(const Tensors& published, const Tensors& ours, const ImportPlan& plan,
                  std::string_view what) {
  for (const auto& [suffix, our_name] : plan.copies) {
    const auto same = std::ranges::find(plan.names.all(), our_name, &WeightName::ours);
    for (const auto& [name, tensor] : published)
      if (name.ends_with(suffix))
        check(have_same_values(tensor, ours.at(our_name)), what, ": weight ", name, " differs from ",
              same->published, ", to which it is tied: heed has one weight for both");
  }
}

}  // namespace

std::string prefix_of(const Tensors& tensors, std::string_view name) {
  for (const auto& [whole, tensor] : tensors) {
    const std::size_t before = whole.size() - std::min(name.size(), whole.size());
    if (whole.ends_with(name) && (before == 0 || whole[before - 1] == '.')) return whole.substr(0, before);
  }
  return "";
}

bool fold_embedding_scale(Tensors& weights, const Json& model) {
  const bool tied = model.at("tie_embeddings") != "none";
  if (!model.at("scale_embeddings").get<bool>()) return tied;
  const NoGrad no_grad;
  Tensor& embedding = weights.at("embedding.weight");
  if (tied) weights["output.weight"] = embedding;
  embedding = embedding * std::sqrt(model.at("width").get<double>());
  return false;
}

void add_missing_biases(Tensors& weights, std::string_view part) {
  Tensors biases;
  for (const auto& [name, tensor] : weights) {
    if (name.find(part) == std::string::npos || !name.ends_with(".weight") || tensor.rank() != 2) continue;
    const std::string bias = name.substr(0, name.size() - std::string_view("weight").size()) + "bias";
    if (!weights.contains(bias)) biases[bias] = Tensor::zeros({tensor.size(0)});
  }
  weights.merge(biases);
}

Tensors our_weights(const Tensors& published, const UnsupportedTensors& unread, const ImportPlan& plan,
                    std::string_view what) {
  const NoGrad no_grad;
  const auto is_unused = [&](const std::string& name) {
    return std::ranges::any_of(
        plan.unused, [&](const std::string& one) { return name.starts_with(one) || name.ends_with(one); });
  };
  for (const auto& [name, reason] : unread) check(is_unused(name), reason);
  std::set<std::string> known;
  std::vector<std::string> missing, unknown;
  Tensors ours;
  for (const WeightName& name : plan.names.all()) {
    auto found = published.find(name.published);
    if (found == published.end()) found = published.find(first_name_part(name.published));
    if (found != published.end())
      ours[name.ours] = weight_of_published(found->second, name, what);
    else if (!known.contains(name.published))
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

Tensors published_weights(const ExportPlan& plan, std::string_view what, bool are_gradients) {
  const NoGrad no_grad;
  Tensors left = plan.weights, published;
  std::map<std::string, std::vector<Tensor>> parts;
  for (const WeightName& name : plan.names.all()) {
    const auto found = plan.weights.find(name.ours);
    check(found != plan.weights.end(), what, ": the run has no weight ", name.ours,
          ", which the layout needs as ", name.published);
    left.erase(name.ours);
    std::vector<Tensor>& all = parts[name.published];
    all.push_back(found->second.detach());
    if (name.layout.part + name.layout.span < name.layout.parts) continue;
    Tensor x = all.size() == 1 ? all.front() : concat(all, 0);
    if (name.layout.transposed && x.rank() == 2) x = transpose(x, 0, 1);
    if (name.layout.is_row) x = unsqueeze(x, 0);
    if (name.layout.first_row > 0) x = pad(x, 0, name.layout.first_row, 0);
    if (!are_gradients && name.layout.offset != 0) x = x - name.layout.offset;
    published[name.published] = contiguous(x);
  }
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : left) unknown.push_back(name);
  check(unknown.empty(), what, ": the layout has no place for ", listed(unknown, 8));
  return published;
}

// --- config.json

namespace {

/// The names of an activation in `transformers` and in heed; the first published name is used for
/// writing.
constexpr std::array<std::pair<const char*, const char*>, 8> activations = {
    {{"relu", "relu"},
     {"gelu", "gelu"},
     {"gelu_new", "gelu_tanh"},
     {"gelu_pytorch_tanh", "gelu_tanh"},
     {"gelu_fast", "gelu_tanh"},
     {"silu", "silu"},
     {"swish", "silu"},
     {"gelu_python", "gelu"}}};

std::string our_activation(const char* member, const std::string& published) {
  std::vector<std::string> known;
  for (const auto& [theirs, ours] : activations) {
    if (published == theirs) return ours;
    known.emplace_back(theirs);
  }
  fail("config.json: \"", member, "\" is \"", published,
       "\", an activation that heed does not have; it knows ", listed(known));
}

std::string published_activation(const std::string& ours) {
  for (const auto& [theirs, own] : activations)
    if (ours == own) return theirs;
  fail("there is no published name for the activation '", ours, "'");
}

}  // namespace

const MemberTable& common_members() {
  static const MemberTable table{
      .only = Json::parse(R"({"pruned_heads": {}, "quantization_config": null, "per_layer_config": null,
                              "cross_attention_hidden_size": null})"),
      .read = "model_type architectures vocab_size tie_word_embeddings eos_token_id",
      .without_effect =
          "transformers_version _name_or_path dtype torch_dtype use_cache "
          "output_hidden_states output_attentions return_dict torchscript "
          "chunk_size_feed_forward initializer_range gradient_checkpointing "
          "is_encoder_decoder bos_token_id pad_token_id sep_token_id "
          "tokenizer_class finetuning_task num_labels id2label label2id "
          "problem_type"};
  return table;
}

Config::Config(const std::string& text, std::string file)
    : json_(parse_json<Json>(text, file)), file_(std::move(file)) {
  check(json_.is_object(), file_, " is not a JSON object");
  type_ = value("model_type", "");
}

std::vector<std::string> Config::architectures() const {
  std::vector<std::string> names;
  for (const Json& one : has("architectures") ? json_["architectures"] : Json::array())
    if (one.is_string()) names.push_back(one);
  return names;
}

bool Config::is_of(std::string_view ending) const {
  return std::ranges::any_of(architectures(), [&](const auto& name) { return name.ends_with(ending); });
}

bool Config::has(const char* name) const {
  return !json_parts::is_null(json_, name);
}

std::int64_t Config::integer(const char* name, std::int64_t low, std::int64_t high) const {
  const Json value = json_.value(name, Json());
  check(value.is_number_integer(), file_, ": \"", name, "\" of a ", type_, " model must be an integer, is ",
        dumped(value));
  check(value >= low && value <= high, file_, ": \"", name, "\" must be ", low, " to ", high, ", is ",
        dumped(value));
  return value.get<std::int64_t>();
}

double Config::number_or_null(const char* name, double fallback) const {
  return json_.contains(name) ? value(name, 0.0).get<double>() : fallback;
}

std::vector<std::int64_t> Config::integers(const char* name, std::int64_t low, std::int64_t high) const {
  std::vector<std::int64_t> all;
  if (!has(name)) return all;
  const Json& value = json_[name];
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    check(one.is_number_integer() && one >= low && one <= high, file_, ": \"", name,
          "\" must be an integer of ", low, " to ", high, ", or a list of them, is ", dumped(value));
    all.push_back(one.get<std::int64_t>());
  }
  return all;
}

double Config::number(const char* name) const {
  check(has(name), file_, ": the number \"", name, "\" is missing");
  return value(name, 0.0).get<double>();
}

Config Config::part(const char* name) const {
  if (!has(name)) return {Json::object(), type_, file_};
  check(json_[name].is_object(), file_, ": \"", name, "\" must be an object, is ", dumped(json_[name]));
  return {json_[name], type_, file_};
}

Json Config::value(const char* name, const Json& fallback) const {
  if (!has(name)) return fallback;
  const Json& value = json_[name];
  if (fallback.is_number() ? value.is_number() : value.type() == fallback.type()) return value;
  fail(file_, ": \"", name, "\" must be ",
       fallback.is_number()    ? "a number"
       : fallback.is_boolean() ? "true or false"
                               : "a string",
       ", is ", dumped(value));
}

void Config::expect(const char* name, const Json& value) const {
  if (!has(name)) return;
  const Json& said = json_[name];
  const bool is_list = said.is_array() && !value.is_array();
  check(said == value || (is_list && std::ranges::count(said, value) == std::ssize(said)), file_, ": \"",
        name, "\" is ", dumped(said), ", which heed's ", type_, " model does not support; ",
        is_list ? "each must be " : "it must be ", dumped(value));
}

void Config::check_rows(const char* name, const Tensors& tensors, const std::string& weight) const {
  const auto found = tensors.find(weight);
  if (!has(name) || found == tensors.end() || found->second.rank() == 0) return;
  check(json_[name] == found->second.size(0), file_, ": \"", name, "\" is ", dumped(json_[name]),
        ", but the weight ", weight, " has ", found->second.size(0), " rows: they do not belong together");
}

Json Config::model(std::span<const ConfigMember> members) const {
  Json model = Json::object();
  for (const ConfigMember& one : members) {
    Json said = one.fallback.is_null() ? Json(integer(one.published, one.low, one.high))
                                       : value(one.published, one.fallback);
    if (said.is_string()) said = our_activation(one.published, said);
    check(!model.contains(one.ours) || model[one.ours] == said, file_, ": \"", one.published, "\" is ",
          dumped(said), ", but another member says that heed's model.", one.ours,
          ", which exists only once, is ", dumped(model.value(one.ours, Json())));
    model[one.ours] = std::move(said);
  }
  return model;
}

Json published_members(const Json& model, std::span<const ConfigMember> members) {
  Json config = Json::object();
  for (const ConfigMember& one : members) {
    config[one.published] = model.at(one.ours);
    if (one.fallback.is_string())
      config[one.published] = published_activation(model.at(one.ours).get<std::string>());
  }
  return config;
}

Json published_ends(const RunContent& run) {
  if (run.ends.empty()) return {};
  return run.ends.size() == 1 ? Json(run.ends[0]) : Json(run.ends);
}

void check_fits(std::string_view layout, const Json& model, const Json& fixed, const Json& allowed,
                std::string_view advice) {
  std::vector<std::string> misfits;
  const auto check_setting = [&](const std::string& name, const Json& values) {
    if (!model.contains(name) || std::ranges::count(values, model[name]) > 0) return;
    std::vector<std::string> wanted;
    for (const Json& one : values) wanted.push_back(dumped(one));
    misfits.push_back(
        concat_text("model.", name, " is ", dumped(model[name]), " (it has ", listed(wanted, " or "), ")"));
  };
  for (const auto& [name, value] : fixed.items()) check_setting(name, Json::array({value}));
  for (const auto& [name, values] : allowed.items()) check_setting(name, values);
  check(misfits.empty(), "the layout of ", layout,
        " does not support these settings of the run: ", listed(misfits), advice);
}

bool ties_output(ImportPlan& plan, const Config& config, const Tensors& tensors, const std::string& map,
                 const std::string& embedding, bool by_default) {
  if (!config.value("tie_word_embeddings", by_default).get<bool>()) return false;
  const auto one = tensors.find(map), two = tensors.find(embedding);
  if (one == tensors.end() || two == tensors.end() || have_same_values(one->second, two->second)) {
    plan.copies.emplace_back(map, "embedding.weight");
    return true;
  }
  plan.remarks.push_back(
      concat_text(map, " is kept: it differs from the embedding, to which config.json ties it"));
  return false;
}

// --- the list of architectures

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> list;
    for (const auto& file : {llama_architectures(), gpt2_architectures(), bert_architectures(),
                             modern_bert_architectures(), marian_architectures()})
      list.insert(list.end(), file.begin(), file.end());
    return list;
  }();
  return all;
}

namespace {

/// Throws an Error for a model whose head ("BertForQuestionAnswering") is not supported.
void check_head(const Architecture& architecture, const Config& config) {
  for (const std::string& name : config.architectures()) {
    const std::size_t head = name.find("For");
    const auto is_of = [&](std::string_view ending) { return name.ends_with(ending); };
    if (head == name.npos || std::ranges::any_of(architecture.heads, is_of)) continue;
    std::vector<std::string> supported;
    for (const std::string_view one : architecture.heads)
      supported.push_back(name.substr(0, head).append(one));
    fail("config.json: the model is a ", name, ", whose head heed does not support; it supports ",
         listed(supported));
  }
}

}  // namespace

const Architecture& find_architecture(const Config& config, const Tensors& tensors) {
  std::vector<std::string_view> known;
  std::vector<std::string> names;
  for (const Architecture& one : architectures()) {
    known.push_back(one.model_type);
    if (one.model_type != config.type()) continue;
    check_head(one, config);
    return one;
  }
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  fail("config.json: the architecture (\"model_type\") is \"", config.type(),
       "\", which heed does not know; it knows ", listed(known), ". Some of its weights: ", listed(names, 5));
}

const Architecture& find_architecture(const RunContent& run) {
  for (const Architecture& one : architectures())
    if (one.exports && one.exports(run)) return one;
  fail("there is no published layout for a ", run.task,
       " run; there are those for language_model (GPT-2, Llama, Mistral, Qwen3, Phi-3, Gemma, BERT), "
       "classify, rate, tag and "
       "embed_text (BERT) and translate, summarize and converse (Marian)");
}

}  // namespace heed::hub
