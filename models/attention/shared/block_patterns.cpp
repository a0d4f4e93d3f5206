#include "heed/models/attention/shared/block_patterns.h"

#include <algorithm>
#include <map>

#include "heed/base/error.h"

namespace heed {
namespace {

/// Collects the blocks of a pattern row by row.
class PatternBuilder {
 public:
  PatternBuilder(const PatternDefinition& definition, std::int64_t side)
      : definition_(definition), side_(side), offsets_{0} {}

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
    pattern->block = side_;
    pattern->queries = definition_.queries;
    pattern->keys = definition_.keys;
    pattern->heads = definition_.heads;
    pattern->offsets = vector(offsets_);
    pattern->columns = vector(columns_);
    pattern->mask_ids = vector(ids_);
    pattern->masks = masks();
    return pattern;
  }

 private:
  Tensor masks() const {
    // A pattern has at least one mask, even if no block uses it.
    if (known_.empty()) return Tensor::zeros({1}, DType::i32).view({1, side_, side_}, {0, 0, 0}, 0);
    const auto count = static_cast<std::int64_t>(known_.size());
    std::vector<std::int32_t> all(
        static_cast<std::size_t>(checked_product("the masks of a block pattern", count, side_, side_)), 0);
    for (const auto& [mask, id] : known_)
      std::copy(mask.begin(), mask.end(), all.begin() + id * static_cast<std::ptrdiff_t>(mask.size()));
    return Tensor::from(all, {count, side_, side_});
  }

  static Tensor vector(const std::vector<std::int32_t>& values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  }

  /// Fills mask_ and classifies it. Entries beyond the matrix are 0 and do not count.
  BlockContent fill_mask(std::int64_t head, std::int64_t row, std::int64_t column) {
    mask_.assign(static_cast<std::size_t>(checked_product("a block of a pattern", side_, side_)), 0);
    const std::int64_t top = row * side_, left = column * side_;
    const std::int64_t rows = std::min(side_, definition_.queries - top),
                       columns = std::min(side_, definition_.keys - left);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const bool exists = definition_.entry(head, top + i, left + j);
        mask_[static_cast<std::size_t>(i * side_ + j)] = exists;
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
  std::int64_t side_;
  std::vector<std::int32_t> offsets_, columns_, ids_, mask_;
  std::map<std::vector<std::int32_t>, std::int32_t> known_;
};

}  // namespace

std::shared_ptr<const BlockPattern> make_block_pattern(const PatternDefinition& definition) {
  check(definition.block > 0 && definition.heads > 0 && definition.queries >= 0 && definition.keys >= 0,
        "make_block_pattern: ", definition.heads, " heads, ", definition.queries, " queries, ",
        definition.keys, " keys and blocks of side ", definition.block, " make no pattern");
  // A block larger than the matrix serves no purpose, so its side is limited.
  constexpr std::int64_t any_matrix = 1024;
  const std::int64_t block =
      std::min(definition.block, std::max({any_matrix, definition.queries, definition.keys}));
  PatternBuilder builder(definition, block);
  for (std::int64_t head = 0; head < definition.heads; ++head) {
    for (std::int64_t row = 0; row * block < definition.queries; ++row) {
      for (std::int64_t column = 0; column * block < definition.keys; ++column)
        builder.add(head, row, column);
      builder.end_row();
    }
  }
  return builder.finish();
}

PatternDefinition window_definition(std::int64_t queries, std::int64_t keys, std::int64_t least,
                                    std::int64_t most) {
  PatternDefinition definition{queries, keys, 1, 64, {}, {}};
  const std::int64_t first = keys - queries;  // the position of query 0
  definition.entry = [=](std::int64_t, std::int64_t i, std::int64_t j) {
    return first + i - j >= least && first + i - j <= most;
  };
  definition.content = [=, b = definition.block](std::int64_t, std::int64_t row, std::int64_t column) {
    const std::int64_t middle = first + (row - column) * b;  // i - j within a block: middle +- (b - 1)
    const std::int64_t low = middle - (b - 1), high = middle + (b - 1);
    if (high < least || low > most) return BlockContent::none;
    return low >= least && high <= most ? BlockContent::all : BlockContent::some;
  };
  return definition;
}

Tensor PatternAttention::visible(std::int64_t length) const {
  const std::int64_t heads = config().heads;
  std::vector<std::int32_t> entries;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j) entries.push_back(sees(h, i, j, length));
  return Tensor::from(entries, {heads, length, length});
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
