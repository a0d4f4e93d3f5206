#include "heed/models/language_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "model_support.h"

using namespace heed;
using namespace heed::test;

namespace {

constexpr std::int32_t mask_token = 1;

MaskingOptions rule() {
  MaskingOptions options;
  options.mask_token = mask_token;
  options.vocabulary = 50;
  for (std::int32_t id = 2; id < 50; ++id) options.ordinary.push_back(id);
  return options;
}

std::vector<Tokens> sequences(std::size_t count, std::size_t length) {
  std::vector<Tokens> all(count);
  for (std::size_t b = 0; b < count; ++b) {
    all[b].push_back(0);  // a special token at the front
    for (std::size_t i = 1; i < length + b % 2; ++i)
      all[b].push_back(2 +
                       static_cast<std::int32_t>(random_word({4, static_cast<std::uint32_t>(b), 0}, i) % 48));
  }
  return all;
}

std::vector<std::int32_t> values(const Tensor& tensor) {
  return tensor.to_vector<std::int32_t>();
}

}  // namespace

TEST_CASE(
    "masking: 15 % of the ordinary tokens are to be guessed, 80/10/10 of them changed as the rule says") {
  const auto text = sequences(200, 101);
  const MaskedBatch batch = make_masked_batch(text, rule(), {1, 2, 3});
  const auto ids = values(batch.input.ids), rows = values(batch.targets.rows),
             targets = values(batch.targets.ids);
  const std::size_t length = 102;
  // 100 or 101 ordinary tokens give 15 places each.
  CHECK(batch.targets.count == 200 * 15);
  int masked = 0, kept = 0, other = 0;
  std::vector<bool> chosen(ids.size());
  for (std::size_t t = 0; t < rows.size(); ++t) {
    const auto row = static_cast<std::size_t>(rows[t]);
    chosen[row] = true;
    CHECK(targets[t] == text[row / length][row % length]);
    CHECK(targets[t] >= 2);
    masked += ids[row] == mask_token ? 1 : 0;
    kept += ids[row] == targets[t] ? 1 : 0;
    other += ids[row] != mask_token && ids[row] != targets[t] ? 1 : 0;
    CHECK(ids[row] != 0);
  }
  CHECK(std::is_sorted(rows.begin(), rows.end()));
  // Three standard deviations of 3000 draws; a random token is the old one once in 48 times.
  CHECK(std::abs(masked - 2400) < 66);
  CHECK(std::abs(kept - 306) < 50);
  CHECK(std::abs(other - 294) < 50);
  for (std::size_t b = 0; b < text.size(); ++b)
    for (std::size_t i = 0; i < text[b].size(); ++i)
      if (!chosen[b * length + i]) CHECK(ids[b * length + i] == text[b][i]);
}

TEST_CASE("masking: it depends on the key, sequence by sequence") {
  const auto text = sequences(4, 30);
  const auto inputs = [&](const RandomKey& key) {
    return values(make_masked_batch(text, rule(), key).input.ids);
  };
  CHECK(inputs({1, 2, 3}) == inputs({1, 2, 3}));
  CHECK(inputs({1, 2, 3}) != inputs({2, 2, 3}));
  CHECK(inputs({1, 2, 3}) != inputs({1, 3, 3}));
  // The second sequence alone, with the op number that it had.
  const auto alone = values(make_masked_batch(std::span(text).subspan(1, 1), rule(), {1, 2, 4}).input.ids);
  const auto all = inputs({1, 2, 3});
  CHECK(std::equal(alone.begin(), alone.end(), all.begin() + 31));
}

TEST_CASE("masking: short sequences have at least one token to guess, special ones none") {
  const std::vector<Tokens> text = {{0, 5}, {0, 0}, {7}};
  const MaskedBatch batch = make_masked_batch(text, rule(), {1, 1, 0});
  CHECK(values(batch.targets.rows) == Tokens{1, 4});
  CHECK(values(batch.targets.ids) == Tokens{5, 7});
  MaskingOptions everything = rule();
  everything.share = 1;
  everything.mask = 1;
  everything.random = 0;
  CHECK(values(make_masked_batch(text, everything, {1, 1, 0}).input.ids) == Tokens{0, 1, 0, 0, 1, -1});
}

TEST_CASE("masking: special tokens may stand anywhere in the vocabulary") {
  MaskingOptions options = rule();
  options.mask_token = 49;
  options.ordinary = {3, 7, 8};
  options.share = 1;
  options.mask = 0;
  options.random = 1;
  const std::vector<Tokens> text = {{2, 3, 7, 40, 8, 49, 3, 3, 3, 7}};
  const MaskedBatch batch = make_masked_batch(text, options, {1, 1, 0});
  CHECK(values(batch.targets.ids) == Tokens{3, 7, 8, 3, 3, 3, 7});
  const auto ids = values(batch.input.ids);
  for (std::size_t i = 0; i < ids.size(); ++i)
    CHECK((i == 0 || i == 3 || i == 5 ? ids[i] == text[0][i]
                                      : std::ranges::count(options.ordinary, ids[i]) == 1));
}

TEST_CASE("masking: what makes no sense is refused") {
  const std::vector<Tokens> text = {{2, 3, 4}};
  const auto message = [&](auto change) {
    MaskingOptions options = rule();
    change(options);
    return message_of([&] { make_masked_batch(text, options, {1, 1, 0}); });
  };
  CHECK(contains(message([](auto& o) { o.share = 0; }), "share"));
  CHECK(contains(message([](auto& o) { o.mask = 0.95; }), "at most 1 together"));
  CHECK(contains(message([](auto& o) { o.random = -0.1; }), "negative"));
  CHECK(contains(message([](auto& o) { o.mask_token = 50; }), "mask token 50"));
  CHECK(contains(message([](auto& o) { o.ordinary = {}; }), "ordinary"));
  CHECK(contains(message([](auto& o) { o.ordinary = {2, 50}; }), "ordinary"));
  CHECK(contains(message([](auto& o) { o.vocabulary = 4, o.ordinary = {2, 3}; }), "the token 4"));
  CHECK_THROWS_AS(make_masked_batch(std::vector<Tokens>{{0, 1}}, rule(), {1, 1, 0}), Error);
}

TEST_CASE("masked language model: the loss is the cross entropy at the hidden places alone") {
  TransformerConfig config = tiny_config();
  config.source_vocabulary = 50;
  for (const char* tied : {"none", "all"}) {
    config.tie_embeddings = tied;
    MaskedLanguageModel model(config);
    CHECK(has_name(model, "output.weight") == (config.tie_embeddings == "none"));
    CHECK(has_name(model, "output_bias"));
    const auto text = sequences(3, 9);
    const MaskedBatch batch = make_masked_batch(text, rule(), {1, 1, 0});
    Context context = Context::inference();
    const Loss loss = model.loss(batch, 0, context);
    const Tensor logits = reshape(model.logits(model.hidden(batch.input, context)), {-1, 50});
    const Tensor rows = index_select(logits, 0, batch.targets.rows);
    CHECK(loss.sum.item() ==
          doctest::Approx(sum(cross_entropy(rows, batch.targets.ids, 0)).item()).epsilon(1e-5));
    CHECK(loss.count == batch.targets.count);
  }
}

TEST_CASE("masked language model: gradient check, and it sees both sides") {
  TransformerConfig config = tiny_config();
  config.source_vocabulary = 50;
  MaskedLanguageModel model(config);
  model.to(DType::f64, {});
  const MaskedBatch batch = make_masked_batch(sequences(2, 6), rule(), {1, 1, 0});
  const GradcheckResult result = gradcheck_parameters(model, [&] {
    Context context = Context::inference();
    return objective(model.loss(batch, 0.1, context), context);
  });
  CHECK(result.passed);
  const NoGrad no_grad;
  Context context = Context::inference();
  const auto first_of = [&](std::int32_t last) {
    return model.hidden(pad_tokens(std::vector<Tokens>{{3, 4, last}}), context).to_vector<double>()[0];
  };
  CHECK(first_of(5) != first_of(6));
  CHECK_THROWS_AS(MaskedLanguageModel{TransformerConfig{}}, Error);
}
