#include "heed/models/layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/models/config.h"

namespace heed {

static void check_input(const Tensor& x, std::int64_t width, DType dtype) {
  check(x.rank() > 0 && x.size(-1) == width, "expects inputs of width ", width, ", got shape ", x.shape());
  check(x.dtype() == dtype, "holds ", dtype, " parameters, got ", x.dtype(), " inputs");
}

constexpr std::array<const char*, 3> norm_names = {"LayerNorm", "RMSNorm", "no norm"};

/// The index of a setting's choice; throws with the nearest name when there is none.
static std::int64_t number_of_choice(std::string_view setting, std::string_view name) {
  const std::span<const std::string> names = setting_choices(setting);
  check_setting(setting, std::string(name), names);
  return std::find(names.begin(), names.end(), name) - names.begin();
}

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, Initialiser& initialiser, double gain) {
  check(in > 0 && out > 0, "Linear: widths must be positive, got ", in, " -> ", out);
  add_parameter("weight", weight, initialiser.linear_weight(out, in, gain), true);
  if (with_bias) add_parameter("bias", bias, initialiser.linear_bias(out, in));
}

Tensor Linear::with_low_rank(const Tensor& x, const Tensor& y) const {
  return lora_a_.defined() ? y + linear(linear(x, lora_a_), lora_b_) * lora_scale_ : y;
}

Tensor Linear::operator()(const Tensor& x) const {
  return each({this}, x)[0];
}

std::vector<Tensor> Linear::each(std::initializer_list<const Linear*> maps, const Tensor& x) {
  const Linear* checked = nullptr;  // the map that an error names
  try {
    std::vector<LinearMap> parameters;
    for (const Linear* map : maps) {
      checked = map;
      check_input(x, map->weight.size(1), map->weight.dtype());
      parameters.push_back({map->weight, map->bias});
    }
    std::vector<Tensor> outs = linear_maps(x, parameters);
    std::size_t i = 0;
    for (const Linear* map : maps) outs[i] = map->with_low_rank(x, outs[i]), ++i;
    return outs;
  } catch (Error& error) {
    if (checked) error.add_context(checked->described("Linear") + ": ");
    throw;
  }
}

Tensor Linear::through(const Linear& first, UnaryOp activation, const Linear& second, const Tensor& x) {
  if (first.lora_a_.defined() || second.lora_a_.defined()) return second(unary(activation, first(x)));
  try {
    check_input(x, first.weight.size(1), first.weight.dtype());
    return feed_forward(x, {first.weight, first.bias}, activation, {second.weight, second.bias});
  } catch (Error& error) {
    error.add_context(first.described("Linear") + ": ");
    throw;
  }
}

void Linear::add_low_rank(std::int64_t rank, double alpha, Initialiser& initialiser) {
  check(rank > 0 && rank <= std::min(weight.size(0), weight.size(1)), described("Linear"),
        ": lora_rank must be 1 to ", std::min(weight.size(0), weight.size(1)), " for a map of ",
        weight.size(1), " -> ", weight.size(0), ", is ", rank);
  freeze();
  add_parameter("lora_a", lora_a_,
                initialiser.normal({rank, weight.size(1)}, 1 / std::sqrt(static_cast<double>(rank))), true);
  add_parameter("lora_b", lora_b_, Initialiser::constant({weight.size(0), rank}, 0), true);
  lora_scale_ = alpha / static_cast<double>(rank);
}

Tensor Linear::matrix() const {
  return lora_a_.defined() ? weight + matmul(lora_b_, lora_a_) * lora_scale_ : weight;
}

Embedding::Embedding(std::int64_t count, std::int64_t width, double deviation, Initialiser& initialiser) {
  check(count > 0 && width > 0, "Embedding: needs a positive size and width, got ", count, " x ", width);
  add_parameter("weight", weight, initialiser.normal({count, width}, deviation));
}

Tensor Embedding::operator()(const Tensor& ids) const try {
  return embedding(weight, ids);
} catch (Error& error) {
  error.add_context(described("Embedding") + ": ");
  throw;
}

Norm::Norm(NormKind kind, std::int64_t width, double epsilon) : kind_(kind), epsilon_(epsilon) {
  check(width > 0, norm_names[static_cast<std::size_t>(kind)], ": the width must be positive, got ", width);
  if (kind != NormKind::none) add_parameter("weight", weight, Initialiser::constant({width}, 1));
  if (kind == NormKind::layer) add_parameter("bias", bias, Initialiser::constant({width}, 0));
}

Norm::Norm(const TransformerConfig& config)
    : Norm(find_norm_kind(config.norm_kind), config.width, config.epsilon) {}

Tensor Norm::operator()(const Tensor& x) const try {
  if (kind_ == NormKind::none) return x;
  check_input(x, weight.size(0), weight.dtype());
  return kind_ == NormKind::rms ? rms_norm(x, weight, epsilon_) : layer_norm(x, weight, bias, epsilon_);
} catch (Error& error) {
  error.add_context(described(norm_names[static_cast<std::size_t>(kind_)]) + ": ");
  throw;
}

NormedSum Norm::operator()(const Tensor& x, const Tensor& residual, double p, const RandomKey& key) const
    try {
  if (kind_ == NormKind::none) {
    const Tensor sum = dropout_add(x, residual, p, key);
    return {sum, sum};
  }
  check_input(x, weight.size(0), weight.dtype());
  return kind_ == NormKind::rms ? add_rms_norm(x, residual, p, key, weight, epsilon_)
                                : add_layer_norm(x, residual, p, key, weight, bias, epsilon_);
} catch (Error& error) {
  error.add_context(described(norm_names[static_cast<std::size_t>(kind_)]) + ": ");
  throw;
}

NormKind find_norm_kind(std::string_view name) {
  return static_cast<NormKind>(number_of_choice("norm_kind", name));
}

Activation find_activation(std::string_view name) {
  return static_cast<Activation>(number_of_choice("activation", name));
}

bool is_gated(Activation activation) {
  return activation >= Activation::swiglu;
}

UnaryOp activation_op(Activation activation) {
  switch (activation) {
    case Activation::gelu:
    case Activation::geglu:
      return UnaryOp::gelu;
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return UnaryOp::gelu_tanh;
    case Activation::silu:
    case Activation::swiglu:
      return UnaryOp::silu;
    default:
      return UnaryOp::relu;
  }
}

Tensor apply(Activation activation, const Tensor& x) {
  return unary(activation_op(activation), x);
}

FeedForward::FeedForward(std::int64_t width, std::int64_t hidden, Activation activation, double dropout,
                         Initialiser& initialiser, bool bias)
    : input_(width, hidden, bias, initialiser),
      output_(hidden, width, bias, initialiser),
      gate_(is_gated(activation) ? std::make_unique<Linear>(width, hidden, bias, initialiser) : nullptr),
      activation_(activation),
      dropout_(dropout) {
  add_module("input", input_);
  if (gate_) add_module("gate", *gate_);
  add_module("output", output_);
}

FeedForward::FeedForward(const TransformerConfig& config, Initialiser& initialiser)
    : FeedForward(config.width, config.feed_forward, find_activation(config.activation),
                  config.activation_dropout, initialiser, config.feed_forward_bias) {}

Tensor FeedForward::hidden(const Tensor& x) const {
  if (!gate_) return apply(activation_, input_(x));
  const std::vector<Tensor> both = Linear::each({gate_.get(), &input_}, x);
  if (activation_ == Activation::geglu_tanh) return gelu_tanh(both[0]) * both[1];
  return activation_ == Activation::swiglu ? swiglu(both[0], both[1]) : geglu(both[0], both[1]);
}

Tensor FeedForward::operator()(const Tensor& x, Context& context) const {
  const bool drops = context.training && dropout_ > 0;
  if (!gate_ && !drops) return Linear::through(input_, activation_op(activation_), output_, x);
  return output_(maybe_dropout(hidden(x), dropout_, context));
}

Tensor maybe_dropout(const Tensor& x, double p, Context& context) {
  return context.training && p > 0 ? dropout(x, p, context.random.next()) : x;
}

Tensor drop_tokens(const Tensor& x, double p, Context& context) {
  if (!context.training || p == 0) return x;
  Shape each = x.shape();
  each[each.rank() - 1] = 1;
  return x * dropout(Tensor::ones(each, x.dtype(), x.device()), p, context.random.next());
}

void Sequential::add(std::function<Tensor(const Tensor&)> function) {
  check(function != nullptr, described("Sequential"), ": step ", steps_.size(), " is an empty function");
  steps_.emplace_back([function = std::move(function)](const Tensor& x, Context&) { return function(x); });
}

Tensor Sequential::operator()(const Tensor& x, Context& context) const {
  Tensor result = x;
  for (const auto& step : steps_) result = step(result, context);
  return result;
}

Tensor Sequential::operator()(const Tensor& x) const {
  Context context = Context::inference();
  return (*this)(x, context);
}

std::string summary(Module& model) {
  const std::vector<NamedTensor> parameters = model.parameters(), buffers = model.buffers();
  std::size_t name_width = 4, shape_width = 5;
  for (const auto* list : {&parameters, &buffers}) {
    for (const NamedTensor& entry : *list) {
      name_width = std::max(name_width, entry.name.size());
      shape_width = std::max(shape_width, concat_text(entry.tensor->shape()).size());
    }
  }
  PlainStream text;
  const auto row = [&](const std::string& name, const std::string& shape, const auto& elements,
                       const char* note) {
    text << std::left << std::setw(static_cast<int>(name_width)) << name << "  "
         << std::setw(static_cast<int>(shape_width)) << shape << "  " << std::right << std::setw(12)
         << elements << note << '\n';
  };
  const auto rows = [&](const std::vector<NamedTensor>& list, const char* note) {
    std::int64_t total = 0;
    for (const NamedTensor& entry : list) {
      row(entry.name, concat_text(entry.tensor->shape()), entry.tensor->count(), note);
      total += entry.tensor->count();
    }
    return total;
  };
  row("name", "shape", "elements", "");
  const std::int64_t trained = rows(parameters, ""), kept = rows(buffers, "  buffer");
  text << trained << " parameters";
  if (!buffers.empty()) text << ", " << kept << " elements of buffers";
  text << '\n';
  return text.str();
}

// --- low-rank parts of maps

namespace {

constexpr std::array<std::string_view, 9> parts_of_base = {
    "embedding", "source_embedding", "target_embedding", "input", "source", "target",
    "local",     "encoder",          "decoder"};

/// In a recommender these parts are below "title".
bool is_of_base(std::string_view path) {
  constexpr std::string_view title = "title.";
  if (path.starts_with(title)) path.remove_prefix(title.size());
  const std::string_view part = path.substr(0, path.find('.'));
  return std::find(parts_of_base.begin(), parts_of_base.end(), part) != parts_of_base.end();
}

std::vector<std::string> maps_named_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');)
    if (!name.empty()) names.push_back(name);
  return names;
}

bool path_ends_in(std::string_view path, std::string_view name) {
  return path == name || (path.ends_with(name) && path[path.size() - name.size() - 1] == '.');
}

/// The last two names: "encoder.layers.0.attention.query" becomes "attention.query".
std::string short_map_name(const std::string& path) {
  const std::size_t last = path.rfind('.');
  const std::size_t before = last == std::string::npos || last == 0 ? last : path.rfind('.', last - 1);
  return before == std::string::npos ? path : path.substr(before + 1);
}

}  // namespace

void add_low_rank_parts(Module& model, const TransformerConfig& config) {
  if (config.lora_rank == 0) return;
  const std::vector<std::string> wanted = maps_named_in(config.lora_maps);
  std::vector<Linear*> maps;
  std::set<std::string> found, known;
  model.for_each_part([&](Module& part) {
    const std::string path = part.path();
    auto* map = dynamic_cast<Linear*>(&part);
    if (!map || !is_of_base(path) || std::ranges::count(maps, map) > 0) return;
    known.insert(short_map_name(path));
    for (const std::string& name : wanted)
      if (path_ends_in(path, name)) {
        if (std::ranges::count(maps, map) == 0) maps.push_back(map);
        found.insert(name);
      }
  });
  const std::string names = listed(known);
  check(!known.empty(), "lora_rank is ", config.lora_rank,
        ", but the model has no map that it could be added to");
  check(!wanted.empty(), "lora_maps names no map; there are ", names);
  for (const std::string& name : wanted)
    check(found.contains(name), "lora_maps: no map of the model is called '", name, "'; there are ", names);
  model.for_each_part([](Module& part) {
    if (is_of_base(part.path())) part.freeze();
  });
  Initialiser initialiser(static_cast<std::uint64_t>(config.seed) ^ 0x10f4a);
  for (Linear* map : maps) map->add_low_rank(config.lora_rank, config.lora_alpha, initialiser);
}

std::map<std::string, Tensor> merge_low_rank(std::map<std::string, Tensor> weights,
                                             const TransformerConfig& config) {
  const NoGrad no_grad;
  std::map<std::string, Tensor> merged;
  for (auto& [name, tensor] : weights) {
    if (name.ends_with(".lora_a") || name.ends_with(".lora_b")) continue;
    const std::string map = name.substr(0, name.rfind('.'));
    const auto a = weights.find(map + ".lora_a"), b = weights.find(map + ".lora_b");
    const bool has_both = name.ends_with(".weight") && a != weights.end() && b != weights.end();
    merged[name] = has_both ? tensor + matmul(b->second, a->second) *
                                           (config.lora_alpha / static_cast<double>(config.lora_rank))
                            : tensor;
  }
  return merged;
}

}  // namespace heed
