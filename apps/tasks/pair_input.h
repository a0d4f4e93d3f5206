#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_features.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/base/unicode.h"
#include "heed/models/pairs.h"

// Pairs of texts as inputs: of match, and of rate where its data has two texts in a row.

namespace heed {

/// Defaults for little data, which a model soon memorises: a small model, dropout, weight decay,
/// averaged weights and sparse features. There is one evaluation, at the end, as in classify.
inline constexpr const char* for_pairs = R"({
  "data": {"valid_fraction": 0.05},
  "tokenizer": {"kind": "auto", "vocabulary": 8000},
  "model": {"dropout": 0.3, "sparse_features": 131072},
  "training": {"steps": 1000, "evaluate_every": 1000, "save_every": 500, "ema_decay": 0.99,
    "optimizer": {"name": "adamw", "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 200, "learning_rate": 0.001}}})";

/// A pair of texts, read jointly or in two towers.
class TextPairInput : public TokenizedInput<PairTokenizer> {
 public:
  struct Item {
    TokenPair tokens;
    std::string_view first, second;
  };
  using Model = PairMatcher;
  static constexpr const char* unit = "pairs";
  /// Many pairs take more than the default steps.
  static constexpr EpochLimit epoch_limit = {1000, 1000, 10'000};
  static constexpr bool fits_batches = false;

  explicit TextPairInput(const Settings& settings)
      : TokenizedInput(settings), is_joint_(settings.read<PairModel>("model").is_joint()) {}
  NamedFiles learned_files(const LabelledText& train, const auto& learn_tokenizer) const {
    return learn_tokenizer([all = all_texts(train)](const auto& take) {
      all([&](std::string_view text) { take(PairTokenizer::spaced(text)); });
    });
  }
  Item item(std::string_view line) {
    const std::size_t tab = line.find('\t');
    check(tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos,
          "expected two texts with one tab between them");
    return item(line.substr(0, tab), line.substr(tab + 1));
  }
  Item item(const LabelledText& text, std::size_t index) {
    return item(text.texts[index], text.seconds[index]);
  }
  std::string remark_on(const LabelledText& text) const {
    std::int64_t blank = 0;
    for (std::size_t i = 0; i < text.size(); ++i)
      blank += is_blank(text.texts[i]) || is_blank(text.seconds[i]) ? 1 : 0;
    return blank > 0 ? concat_text(blank, " pairs have a blank text") : "";
  }

  std::unique_ptr<Module> make_model(TransformerConfig config, const Settings& /*trained*/,
                                     std::int64_t batch_tokens) const {
    if (is_joint_) config.max_length *= 2;
    return model_of<Model>(config, batch_tokens, is_joint_);
  }
  Lengths lengths(const std::vector<Item>& items, const Model& /*model*/) const {
    Lengths lengths;
    for (const Item& item : items) {
      lengths[0].push_back(static_cast<std::int32_t>(item.tokens.first.tokens.size()));
      lengths[1].push_back(static_cast<std::int32_t>(item.tokens.second.tokens.size()));
    }
    return lengths;
  }
  Tensor deep_logits(Model& model, const std::vector<Item>& items, Context& context) const {
    return model.deep_logits(model.batch(item_tokens(items)), context);
  }
  static TextFeatures features(const Item& pair, std::int64_t count) {
    return pair_features(pair.first, pair.second, count);
  }
  void show(CaptureFile& file, const std::string& name, const Capture& capture, const Item& item) const {
    std::vector<Tokens> rows = {item.tokens.first.tokens, item.tokens.second.tokens};
    if (is_joint_) {
      rows[0].insert(rows[0].end(), rows[1].begin(), rows[1].end());
      rows.pop_back();
    }
    add_pass(file, name, capture, rows, tokenizer_->tokenizer());
  }

 private:
  Item item(std::string_view first, std::string_view second) {
    return {(*tokenizer_)(first, second), first, second};
  }

  const bool is_joint_;
};

}  // namespace heed
