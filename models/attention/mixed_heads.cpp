// Heads of several kinds in one layer, as in the mixed layers of the released code of hard-coded
// attention (You, Sun and Iyyer, ACL 2020, arXiv 2005.00742). Part p has H_p of the H heads. All
// heads are equally wide, and the variant of each part computes its heads as a layer of their own:
//
//   O = sum_p O_p,    O_p = merge(heads of p) Wo_p  Wo_p: the rows of Wo that belong to these heads
//
// The sum equals merge(all heads) Wo, because a product with stacked rows is a sum of products.
// Time and parameters are those of the heads. Distance slopes (models/positions.h) are those of a
// part's own heads. A layer supports what all its parts support; a part that lacks a requested
// capability throws at construction.
//
// Settings: "parts", the variants (default dot_product, hard_coded_gaussian); "part_heads", the
// number of heads of each (default: an even split, with the remainder on the first ones); and
// "<variant>.<setting>" for the settings of a part, such as "longformer.window".

#include <algorithm>
#include <numeric>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/module.h"

namespace heed {
namespace {

std::vector<std::string> names_of_parts(const Options& options) {
  return options.take_texts("parts", {"dot_product", "hard_coded_gaussian"});
}

/// The capabilities that all parts share, with the first reason that a part gives.
Capabilities capabilities_of_parts(const Options& options) {
  Capabilities all{
      .causal = true, .cross = true, .as_heads = true, .rotary = true, .alibi = true, .relative = true};
  for (const std::string& name : names_of_parts(options)) {
    const Capabilities one = attention_capabilities(name, options.within(name));
    for (bool Capabilities::*field :
         {&Capabilities::causal, &Capabilities::strictly_causal, &Capabilities::cross,
          &Capabilities::cross_by_step, &Capabilities::any_length, &Capabilities::rotary,
          &Capabilities::alibi, &Capabilities::relative, &Capabilities::deterministic,
          &Capabilities::padding})
      all.*field = all.*field && one.*field;
    if (all.reason.empty()) all.reason = one.reason;
  }
  all.as_heads = false;
  return all;
}

class MixedHeads : public Attention {
 public:
  explicit MixedHeads(const AttentionConfig& config)
      : Attention(config), names_(names_of_parts(config.options)) {
    check(!names_.empty(), "setting 'parts' must name at least one variant");
    const std::vector<std::int64_t> heads = heads_of_parts(config, names_.size());
    const auto* first = dynamic_cast<const MixedHeads*>(config.first);
    for (std::size_t p = 0; p < names_.size(); ++p) {
      AttentionConfig part = config;
      part.heads = heads[p];
      part.head_width = config.width / config.heads;
      part.options = config.options.within(names_[p]);
      part.first = first ? first->part_named(names_[p]) : nullptr;
      part.seed = initialiser_.next_seed();
      parts_.push_back(make_attention(names_[p], part));
      add_module("parts." + std::to_string(p), *parts_.back());
    }
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    cache.parts.resize(parts_.size());
    cache.of_memory = true;
    Tensor total;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      total = added(total, parts_[p]->step(input, cache.parts[p], context));
      cache.of_memory = cache.of_memory && cache.parts[p].of_memory;
    }
    return total;
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    Tensor total;
    for (const auto& part : parts_) total = added(total, (*part)(input, context));
    return total;
  }

 private:
  const Attention* part_named(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? nullptr : parts_[static_cast<std::size_t>(found - names_.begin())].get();
  }

  static Tensor added(const Tensor& total, const Tensor& part) {
    return total.defined() ? total + part : part;
  }

  static std::vector<std::int64_t> heads_of_parts(const AttentionConfig& config, std::size_t parts) {
    std::vector<double> even;
    const auto count = static_cast<std::int64_t>(parts);
    for (std::int64_t p = 0; p < count; ++p) {
      const std::int64_t share = config.heads / count + (p < config.heads % count ? 1 : 0);
      even.push_back(static_cast<double>(share));
    }
    const std::vector<double> asked =
        config.options.take_numbers("part_heads", even, 1, static_cast<double>(config.heads));
    std::vector<std::int64_t> heads;
    for (const double h : asked) {
      heads.push_back(static_cast<std::int64_t>(h));
      check(h >= 1 && static_cast<double>(heads.back()) == h,
            "every part needs at least one whole head, got ", h);
    }
    check(heads.size() == parts, "'part_heads' has ", heads.size(), " entries for ", parts, " parts");
    const std::int64_t all = std::accumulate(heads.begin(), heads.end(), std::int64_t{0});
    check(all == config.heads, "the parts have ", all, " heads, but the layer has ", config.heads);
    return heads;
  }

  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Attention>> parts_;
};

}  // namespace

AttentionVariant mixed_heads_variant() {
  return {"mixed_heads",
          {.causal = true, .cross = true},  // of the default parts
          make_layer<MixedHeads>,
          capabilities_of_parts};
}

}  // namespace heed
