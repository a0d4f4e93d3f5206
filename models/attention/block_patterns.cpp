#include "heed/models/attention/block_patterns.h"

#include <algorithm>

namespace heed {
namespace {

/// Collects the blocks of a pattern row by row.
class PatternBuilder {
 public:
  explicit PatternBuilder(const PatternDefinition& definition)
      : definition_(definition), offsets_{0}, mask_(static_cast<std::size_t>(side() * side())) {}

  void add(std::int64_t head, std::int64_t row, std::int64_t column) {
    const BlockContent content = definition_.content(head, row, column);
    if (content == BlockContent::none) return;
    std::int32_t id = -1;
    if (content == BlockContent::some) {
      const BlockContent found = fill_mask(head, row, column);
      if (found == BlockContent::none) return;
      if (found == BlockContent::some) id = mask_id();
    }
    columns_.push_back(static_cast<std::int32_t>(column));
    ids_.push_back(id);
  }

  void end_row() { offsets_.push_back(static_cast<std::int32_t>(columns_.size())); }

  std::shared_ptr<const BlockPattern> finish() const {
    auto pattern = std::make_shared<BlockPattern>();
    pattern->block = side();
    pattern->queries = definition_.queries;
    pattern->keys = definition_.keys;
    pattern->heads = definition_.heads;
    pattern->offsets = vector(offsets_);
    pattern->columns = vector(columns_);
    pattern->mask_ids = vector(ids_);
    std::vector<std::int32_t> masks(std::max<std::size_t>(known_.size(), 1) * mask_.size(), 0);
    for (const auto& [mask, id] : known_)
      std::copy(mask.begin(), mask.end(), masks.begin() + id * static_cast<std::ptrdiff_t>(mask_.size()));
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(known_.size(), 1));
    pattern->masks = Tensor::from(masks, {count, side(), side()});
    return pattern;
  }

 private:
  std::int64_t side() const { return definition_.block; }

  static Tensor vector(const std::vector<std::int32_t>& values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  }

  /// Writes mask_ and says what it holds. What lies beyond the matrix is 0, and does not count.
  BlockContent fill_mask(std::int64_t head, std::int64_t row, std::int64_t column) {
    std::fill(mask_.begin(), mask_.end(), 0);
    const std::int64_t top = row * side(), left = column * side();
    const std::int64_t rows = std::min(side(), definition_.queries - top),
                       columns = std::min(side(), definition_.keys - left);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const bool exists = definition_.entry(head, top + i, left + j);
        mask_[static_cast<std::size_t>(i * side() + j)] = exists;
        count += exists;
      }
    }
    if (count == 0) return BlockContent::none;
    return count == rows * columns ? BlockContent::all : BlockContent::some;
  }

  std::int32_t mask_id() {
    return known_.emplace(mask_, static_cast<std::int32_t>(known_.size())).first->second;
  }

  const PatternDefinition& definition_;
  std::vector<std::int32_t> offsets_, columns_, ids_, mask_;
  std::map<std::vector<std::int32_t>, std::int32_t> known_;
};

}  // namespace

std::shared_ptr<const BlockPattern> make_block_pattern(const PatternDefinition& definition) {
  const std::int64_t block = definition.block;
  check(block > 0 && definition.heads > 0 && definition.queries >= 0 && definition.keys >= 0,
        "make_block_pattern: ", definition.heads, " heads, ", definition.queries, " queries, ",
        definition.keys, " keys and blocks of side ", block, " make no pattern");
  PatternBuilder builder(definition);
  for (std::int64_t head = 0; head < definition.heads; ++head) {
    for (std::int64_t row = 0; row * block < definition.queries; ++row) {
      for (std::int64_t column = 0; column * block < definition.keys; ++column)
        builder.add(head, row, column);
      builder.end_row();
    }
  }
  return builder.finish();
}

std::shared_ptr<const BlockPattern> PatternCache::get(const Key& key, const Make& make) {
  const auto found = patterns_.find(key);
  if (found != patterns_.end()) return found->second;
  // Batches come in many lengths; a run that meets more than this keeps building.
  constexpr std::size_t most = 256;
  if (patterns_.size() >= most) patterns_.clear();
  return patterns_[key] = make();
}

Tensor PatternAttention::visible(std::int64_t length) const {
  const std::int64_t heads = config().heads;
  std::vector<std::int32_t> entries;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j) entries.push_back(sees(h, i, j, length));
  return Tensor::from(entries, {heads, length, length});
}

AttentionOptions PatternAttention::attention_options(const Tensor& key_mask, Context& context) const {
  AttentionOptions options;
  options.key_mask = key_mask;
  if (context.training && config().dropout > 0) {
    options.dropout = config().dropout;
    options.dropout_key = context.random.next();
  }
  return options;
}

void PatternAttention::show_visible_weights(Context& context, const Tensor& query, const Tensor& key,
                                            const Tensor& key_mask) const {
  if (!context.capture) return;
  AttentionOptions options;
  options.key_mask = key_mask;
  const Tensor entries = visible(query.size(2));
  options.mask = Tensor::from(entries.to_vector<std::int32_t>(), entries.shape(), query.device());
  show_weights(context, query, key, options);
}

}  // namespace heed
