#include "heed/models/low_rank.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/layers.h"

namespace heed {
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
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
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

std::map<std::string, Tensor> merged_low_rank(std::map<std::string, Tensor> weights,
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
