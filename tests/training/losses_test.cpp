// Losses beside the usual one: perplexity, masked tokens, and the losses that layers add.

#include "heed/apps/data/large_text.h"
#include "heed/models/classifier.h"
#include "heed/models/language_model.h"
#include "heed/tests/model_support.h"
#include "heed/training/perplexity.h"
#include "heed/training/trainer.h"

namespace {

Tokens some_text(std::size_t length) {
  Tokens tokens;
  for (std::size_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_word({9, 0, 0}, i) % 11));
  return tokens;
}

Tokens counted_tokens(std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// The negative log-probability of a token after others, from logits of its own.
double surprise(LanguageModel& model, const Tokens& before, std::int32_t token) {
  const NoGrad no_grad;
  Context context = Context::inference();
  const Tensor hidden = model.hidden(pad_tokens(std::vector<Tokens>{before}), context);
  const Tensor last = model.logits(slice(hidden, 1, hidden.size(1) - 1, hidden.size(1)));
  const Tensor log_probabilities = log_softmax(reshape(last, {1, -1}));
  return -static_cast<double>(log_probabilities.to_vector<float>()[static_cast<std::size_t>(token)]);
}

}  // namespace

TEST_CASE("perplexity: the loss is that of each token after the context its window has") {
  LanguageModel model(tiny_config());
  const Tokens text = some_text(23);
  for (const std::int64_t stride : {1, 3, 4, 8}) {
    CAPTURE(stride);
    double expected = 0;
    for (const Window& window : strided_windows(23, 8, stride)) {
      for (std::int64_t i = window.first_target; i < window.length; ++i) {
        const auto begin = text.begin() + static_cast<std::ptrdiff_t>(window.begin);
        expected += surprise(model, Tokens(begin, begin + static_cast<std::ptrdiff_t>(i) + 1),
                             text[static_cast<std::size_t>(window.begin + i + 1)]);
      }
    }
    for (const std::int64_t rows : {1, 2, 16}) {
      const TextLoss loss = text_loss(model, text, 44, {8, stride, rows});
      CHECK(loss.nats == doctest::Approx(expected).epsilon(1e-5));
      CHECK(loss.tokens == 22);
      CHECK(loss.characters == 44);
    }
  }
}

TEST_CASE("perplexity: with a stride of 1 a token sees all that the window can hold") {
  LanguageModel model(tiny_config());
  const Tokens text = some_text(12);
  double expected = 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    const std::size_t first = at > 5 ? at - 5 : 0;
    expected += surprise(model,
                         Tokens(text.begin() + static_cast<std::ptrdiff_t>(first),
                                text.begin() + static_cast<std::ptrdiff_t>(at)),
                         text[at]);
  }
  CHECK(text_loss(model, text, 11, {5, 1, 4}).nats == doctest::Approx(expected).epsilon(1e-5));
}

TEST_CASE(
    "perplexity: a sample is windows side by side, evenly spread, and has its share of the characters") {
  LanguageModel model(tiny_config());
  const Tokens text = some_text(49);
  // The windows of 8 begin at 0, 8, ..., 40: three of them are the first, the third and the fifth.
  double expected = 0;
  for (const std::int64_t begin : {0, 16, 32}) {
    const Tokens part(text.begin() + begin, text.begin() + begin + 9);
    expected += text_loss(model, part, 8, {8, 8, 1}).nats;
  }
  for (const std::int64_t rows : {1, 2, 16}) {
    const TextLoss loss = text_loss(model, text, 96, {8, 4, rows, 25});
    CHECK(loss.nats == doctest::Approx(expected).epsilon(1e-5));
    CHECK(loss.tokens == 24);
    CHECK(loss.characters == 48);
  }
  const TextLoss all = text_loss(model, text, 96, {8, 4, 4}),
                 more = text_loss(model, text, 96, {8, 4, 4, 48});
  CHECK(more.nats == all.nats);
  CHECK(text_loss(model, text, 96, {8, 4, 4, 1}).tokens == 8);  // at least a window
}

TEST_CASE("perplexity: units") {
  TextLoss loss;
  loss.nats = 8 * std::log(2.0);
  loss.tokens = 4;
  loss.characters = 16;
  CHECK(loss.nats_per_token() == doctest::Approx(2 * std::log(2.0)));
  CHECK(loss.perplexity() == doctest::Approx(4));
  CHECK(loss.bits_per_character() == doctest::Approx(0.5));
  CHECK(loss.nats_per_character() == doctest::Approx(0.5 * std::log(2.0)));
}

TEST_CASE("perplexity: a text without a token to predict is refused") {
  LanguageModel model(tiny_config());
  CHECK_THROWS_AS(text_loss(model, some_text(9), 9, {8, 4, 2, -1}), Error);
  CHECK_THROWS_AS(text_loss(model, some_text(1), 1, {8, 4, 2}), Error);
  CHECK_THROWS_AS(text_loss(model, some_text(9), 9, {8, 0, 2}), Error);
  CHECK_THROWS_AS(text_loss(model, some_text(9), 9, {8, 4, 0}), Error);
}

TEST_CASE("A batch of windows holds what is read and what is to be predicted") {
  const Tokens tokens = counted_tokens(20);
  const LanguageModelBatch whole = window_batch(tokens, std::vector<Window>{{0, 3, 0}, {10, 3, 0}});
  CHECK(whole.input.ids.to_vector<std::int32_t>() == Tokens{0, 1, 2, 10, 11, 12});
  CHECK(!whole.input.mask.defined());
  CHECK(whole.targets.ids.to_vector<std::int32_t>() == Tokens{1, 2, 3, 11, 12, 13});
  CHECK(!whole.targets.rows.defined());
  const LanguageModelBatch some = window_batch(tokens, std::vector<Window>{{0, 3, 0}, {10, 3, 2}});
  CHECK(some.targets.ids.to_vector<std::int32_t>() == Tokens{1, 2, 3, 13});
  CHECK(some.targets.rows.to_vector<std::int32_t>() == Tokens{0, 1, 2, 5});
  CHECK(some.targets.count == 4);
}

TEST_CASE("Windows that do not fit their text make no batch") {
  const Tokens tokens = counted_tokens(10);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{7, 3, 0}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{0, 3, 3}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{0, 3, 0}, {0, 4, 0}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, {}), Error);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{1, most, 0}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{most, 3, 0}}), Error);
}

namespace {

constexpr std::int32_t masked_id = 1;

MaskingOptions rule() {
  MaskingOptions options;
  options.mask_token = masked_id;
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

}  // namespace

TEST_CASE(
    "masking: 15 % of the ordinary tokens are to be guessed, 80/10/10 of them changed as the rule says") {
  const auto text = sequences(200, 101);
  const MaskedBatch batch = make_masked_batch(text, rule(), {1, 2, 3});
  const auto ids = batch.input.ids.to_vector<std::int32_t>(),
             rows = batch.targets.rows.to_vector<std::int32_t>(),
             targets = batch.targets.ids.to_vector<std::int32_t>();
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
    masked += ids[row] == masked_id ? 1 : 0;
    kept += ids[row] == targets[t] ? 1 : 0;
    other += ids[row] != masked_id && ids[row] != targets[t] ? 1 : 0;
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
    return make_masked_batch(text, rule(), key).input.ids.to_vector<std::int32_t>();
  };
  CHECK(inputs({1, 2, 3}) == inputs({1, 2, 3}));
  CHECK(inputs({1, 2, 3}) != inputs({2, 2, 3}));
  CHECK(inputs({1, 2, 3}) != inputs({1, 3, 3}));
  // The second sequence alone, with the op number that it had.
  const auto alone =
      make_masked_batch(std::span(text).subspan(1, 1), rule(), {1, 2, 4}).input.ids.to_vector<std::int32_t>();
  const auto all = inputs({1, 2, 3});
  CHECK(std::equal(alone.begin(), alone.end(), all.begin() + 31));
}

TEST_CASE("masking: short sequences have at least one token to guess, special ones none") {
  const std::vector<Tokens> text = {{0, 5}, {0, 0}, {7}};
  const MaskedBatch batch = make_masked_batch(text, rule(), {1, 1, 0});
  CHECK(batch.targets.rows.to_vector<std::int32_t>() == Tokens{1, 4});
  CHECK(batch.targets.ids.to_vector<std::int32_t>() == Tokens{5, 7});
  MaskingOptions everything = rule();
  everything.share = 1;
  everything.mask = 1;
  everything.random = 0;
  CHECK(make_masked_batch(text, everything, {1, 1, 0}).input.ids.to_vector<std::int32_t>() ==
        Tokens{0, 1, 0, 0, 1, -1});
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
  CHECK(batch.targets.ids.to_vector<std::int32_t>() == Tokens{3, 7, 8, 3, 3, 3, 7});
  const auto ids = batch.input.ids.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < ids.size(); ++i)
    CHECK((i == 0 || i == 3 || i == 5 ? ids[i] == text[0][i]
                                      : std::ranges::count(options.ordinary, ids[i]) == 1));
}

TEST_CASE("masking: nonsensical options are refused") {
  const std::vector<Tokens> text = {{2, 3, 4}};
  const auto message = [&](auto change) {
    MaskingOptions options = rule();
    change(options);
    return error_of([&] { make_masked_batch(text, options, {1, 1, 0}); });
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

// --- The losses that layers add: each by its name in the pass, in the progress line and in metrics.jsonl.

namespace {

TransformerConfig clustering_config() {
  TransformerConfig config = test::tiny_config();
  config.encoder_layers = 2;
  config.encoder_attention = {{}, {}};
  config.encoder_attention[0].name = "clusterformer";
  config.encoder_attention[0].options.set("lambda1", 1.0);
  config.encoder_attention[0].options.set("lambda2", 0.5);
  config.encoder_attention[1].name = "routing_transformer";
  config.encoder_attention[1].options.set("beta", 0.25);
  return config;
}

class ClusteringObjective : public Objective {
 public:
  Module& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return 3; }
  Loss loss(std::int64_t, std::int64_t batch, Context& context) override {
    const std::vector<Tokens> sentences = {{4, 5, 6, 7, static_cast<std::int32_t>(batch)}, {8, 9, 3}};
    const Ints labels = {2, 0};
    return model_.loss(make_classification_batch(sentences, labels), 0, context);
  }

 private:
  EncoderClassifier model_{clustering_config()};
};

}  // namespace

TEST_CASE("auxiliary losses: a pass leaves each with its weight, and the objective adds them up") {
  ClusteringObjective objective;
  Context context = Context::inference();
  objective.loss(0, 0, context);
  std::map<std::string, double> weights;
  double total = 0;
  for (const AuxiliaryLoss& loss : context.losses) {
    weights[loss.name] = loss.weight;
    total += loss.weight * static_cast<double>(loss.value.item());
  }
  CHECK(weights ==
        std::map<std::string, double>{{"clustering", 1}, {"centroid_sorting", 0.5}, {"commitment", 0.25}});
  CHECK(std::abs(context.auxiliary_loss().item() - total) < 1e-5);
}

TEST_CASE("auxiliary losses: the trainer reports each by its name") {
  const TemporaryFolder folder;
  ClusteringObjective objective;
  TrainerOptions options;
  options.steps = 4;
  options.log_every = 2;
  options.schedule.learning_rate = 0.001;
  std::vector<Progress> records;
  TrainerCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) { records.push_back(progress); };
  RunFolder run = RunFolder::create(folder / "run", {.task = "test", .config = "{}"});
  Trainer(objective, options, callbacks).run(&run);
  REQUIRE(records.size() == 2);
  for (const Progress& record : records) {
    std::vector<std::string> names;
    for (const auto& [name, value] : record.auxiliary) {
      names.push_back(name);
      CHECK(std::isfinite(value));
      CHECK(value != 0);
      CHECK(contains(progress_text(record), "  " + name + " "));
    }
    CHECK(names == std::vector<std::string>{"centroid_sorting", "clustering", "commitment"});
  }
  const std::string log = read_file(folder / "run" / "metrics.jsonl");
  for (const char* name : {"clustering", "centroid_sorting", "commitment"})
    CHECK(contains(log, std::string("\"") + name + "\":"));
}
