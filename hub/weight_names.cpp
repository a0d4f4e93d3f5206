#include "heed/hub/weight_names.h"

#include <algorithm>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {
namespace {

std::string listed_weights(const std::vector<std::string>& names) {
  std::string text;
  const std::size_t shown = std::min<std::size_t>(names.size(), 8);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return shown < names.size() ? concat_text(text, " and ", names.size() - shown, " more") : text;
}

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

}  // namespace

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

std::map<std::string, Tensor> our_weights(const std::map<std::string, Tensor>& published,
                                          const WeightNames& names, std::span<const std::string> unused,
                                          std::string_view what) {
  const NoGrad no_grad;
  std::set<std::string> known;
  std::vector<std::string> missing, unknown;
  std::map<std::string, Tensor> ours;
  for (const WeightName& name : names.all()) {
    const auto found = published.find(name.published);
    if (found != published.end())
      ours[name.ours] = weight_of_published(found->second, name, what);
    else if (!name.layout.may_lack && known.insert(name.published).second)
      missing.push_back(name.published);
    known.insert(name.published);
  }
  for (const auto& [name, tensor] : published) {
    const bool is_unused = std::ranges::any_of(unused, [&name = name](const std::string& one) {
      return name.starts_with(one) || name.ends_with(one);
    });
    if (!known.contains(name) && !is_unused) unknown.push_back(name);
  }
  check(missing.empty() && unknown.empty(), what, ": ",
        missing.empty() ? "" : concat_text("weights are missing: ", listed_weights(missing)),
        missing.empty() || unknown.empty() ? "" : "; ",
        unknown.empty()
            ? ""
            : concat_text("weights have names that heed does not know: ", listed_weights(unknown)));
  return ours;
}

std::map<std::string, Tensor> published_weights(const std::map<std::string, Tensor>& ours,
                                                const WeightNames& names, std::string_view what) {
  const NoGrad no_grad;
  std::set<std::string> known;
  std::map<std::string, std::vector<Tensor>> parts;
  for (const WeightName& name : names.all()) {
    const auto found = ours.find(name.ours);
    if (found == ours.end()) {
      check(name.layout.may_lack, what, ": the run has no weight ", name.ours, ", which the layout needs as ",
            name.published);
      continue;
    }
    known.insert(name.ours);
    std::vector<Tensor>& all = parts[name.published];
    all.resize(static_cast<std::size_t>(name.layout.parts));
    all[static_cast<std::size_t>(name.layout.part)] = found->second.detach();
  }
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : ours)
    if (!known.contains(name)) unknown.push_back(name);
  check(unknown.empty(), what, ": the layout has no place for ", listed_weights(unknown));
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

}  // namespace heed
