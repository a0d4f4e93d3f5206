
#include "heed/models/search.h"
#include "heed/tests/model_support.h"

namespace {

/// A model whose next token depends on the last token and the position: log-probabilities are random but
/// fixed, and known to the test. Each row remembers its history, so that a wrong reorder shows.
class TableModel : public StepModel {
 public:
  TableModel(std::int64_t vocabulary, std::size_t rows, std::uint64_t seed, double spread = 3)
      : vocabulary_(vocabulary), seed_(seed), spread_(spread), histories_(rows) {}

  Doubles log_probabilities(const Tokens& history) const {
    Doubles row;
    double normaliser = 0;
    for (std::int64_t v = 0; v < vocabulary_; ++v) {
      const RandomKey key{seed_, static_cast<std::uint32_t>(history.size()),
                          static_cast<std::uint32_t>(history.back())};
      row.push_back(spread_ * unit_interval(random_word(key, static_cast<std::uint64_t>(v))));
      normaliser += std::exp(row.back());
    }
    for (double& value : row) value -= std::log(normaliser);
    return row;
  }

  Tensor step(const Tensor& tokens) override {
    const auto next = tokens.to_vector<std::int32_t>();
    REQUIRE(next.size() == histories_.size());
    Floats logits;
    for (std::size_t r = 0; r < next.size(); ++r) {
      histories_[r].push_back(next[r]);
      for (const double value : log_probabilities(histories_[r]))
        logits.push_back(static_cast<float>(value + 5));
    }
    return Tensor::from(logits, {static_cast<std::int64_t>(next.size()), vocabulary_});
  }

  void reorder(std::span<const std::int32_t> rows) override {
    std::vector<Tokens> kept;
    for (const std::int32_t row : rows) kept.push_back(histories_.at(static_cast<std::size_t>(row)));
    histories_ = std::move(kept);
  }

  Device device() const override { return {}; }

 private:
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  double spread_;
  std::vector<Tokens> histories_;
};

/// All outputs of at most `max_length` tokens, best first.
std::vector<Hypothesis> every_output(const TableModel& model, std::int64_t vocabulary,
                                     std::int64_t max_length, const SearchOptions& options) {
  std::vector<Hypothesis> all;
  const auto extend = [&](auto&& self, const Tokens& history, double log_probability) -> void {
    const Doubles next = model.log_probabilities(history);
    const Tokens tokens(history.begin() + 1, history.end());
    const double total = log_probability + next[static_cast<std::size_t>(options.end)];
    all.push_back(
        {tokens, total,
         total / std::pow((5.0 + static_cast<double>(tokens.size()) + 1) / 6, options.length_penalty)});
    if (static_cast<std::int64_t>(tokens.size()) == max_length) return;
    for (std::int32_t v = 0; v < vocabulary; ++v) {
      if (v == options.end) continue;
      Tokens longer = history;
      longer.push_back(v);
      self(self, longer, log_probability + next[static_cast<std::size_t>(v)]);
    }
  };
  extend(extend, {options.begin}, 0);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

TransformerConfig search_config() {
  TransformerConfig config = tiny_config();
  config.encoder_layers = config.decoder_layers = 2;
  config.embedding_deviation = 2;  // far from uniform predictions
  return config;
}

const std::vector<Tokens> some_sources{{3, 4, 5, 6, 7}, {8}, {9, 10, 3}, {}};

}  // namespace

TEST_CASE("search: the length penalty is GNMT's") {
  CHECK(compute_length_penalty(1, 0.7) == doctest::Approx(1));
  CHECK(compute_length_penalty(13, 0.5) == doctest::Approx(std::sqrt(3.0)));
  CHECK(compute_length_penalty(100, 0) == 1);
}

TEST_CASE("search: a beam that is wide enough finds the best of all outputs") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    for (const double penalty : {0.0, 0.6, 1.5}) {
      CAPTURE(seed);
      CAPTURE(penalty);
      SearchOptions options;
      options.beam = 100;
      options.best = 10;
      options.length_penalty = penalty;
      options.early_stop = false;
      TableModel model(4, 1, seed);
      const auto expected = every_output(model, 4, 4, options);
      const auto found = beam_search(model, std::vector<std::int64_t>{4}, options);
      REQUIRE(found.size() == 1);
      REQUIRE(found[0].size() == 10);
      for (std::size_t i = 0; i < 10; ++i) {
        CHECK(found[0][i].score == doctest::Approx(expected[i].score).epsilon(1e-5));
        CHECK(found[0][i].tokens == expected[i].tokens);
      }
    }
  }
}

TEST_CASE("search: a narrow beam returns what it claims, and stopping early changes no claim") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool early : {false, true}) {
      SearchOptions options;
      options.beam = options.best = 3;
      options.early_stop = early;
      const std::vector<std::int64_t> lengths{6, 0, 3, 9};
      TableModel model(7, 4, seed);
      const auto found = beam_search(model, lengths, options);
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        REQUIRE_FALSE(found[s].empty());
        double last = 1;
        for (const Hypothesis& hypothesis : found[s]) {
          CHECK(static_cast<std::int64_t>(hypothesis.tokens.size()) <= lengths[s]);
          Tokens history{options.begin};
          double sum = 0;
          for (const std::int32_t token : hypothesis.tokens) {
            sum += model.log_probabilities(history)[static_cast<std::size_t>(token)];
            history.push_back(token);
            CHECK(token != options.end);
          }
          sum += model.log_probabilities(history)[static_cast<std::size_t>(options.end)];
          CHECK(hypothesis.log_probability == doctest::Approx(sum).epsilon(1e-5));
          CHECK(hypothesis.score <= last);
          last = hypothesis.score;
        }
      }
      CHECK(found[1][0].tokens.empty());
    }
  }
}

TEST_CASE("search: ties go to the lower token") {
  SearchOptions options;
  options.begin = 0;
  options.end = 3;
  options.beam = 2;
  options.best = 2;
  TableModel model(4, 1, 1, 0);  // every token equally probable
  const auto found = beam_search(model, std::vector<std::int64_t>{1}, options);
  CHECK(found[0][0].tokens == Tokens{0});
  CHECK(found[0][1].tokens == Tokens{1});
}

TEST_CASE("search: a beam of one takes the most probable token at every step, until it is the end") {
  const SearchOptions options;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<std::int64_t> lengths{5, 2, 8, 0};
    TableModel model(6, 4, seed);
    const auto found = greedy_search(model, lengths, options);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      Tokens history{options.begin};
      double sum = 0;
      while (true) {
        const Doubles next = model.log_probabilities(history);
        auto token = static_cast<std::int32_t>(std::ranges::max_element(next) - next.begin());
        if (std::ssize(history) - 1 == lengths[s]) token = options.end;
        sum += next[static_cast<std::size_t>(token)];
        if (token == options.end) break;
        history.push_back(token);
      }
      CHECK(found[s].tokens == Tokens(history.begin() + 1, history.end()));
      CHECK(found[s].log_probability == doctest::Approx(sum).epsilon(1e-5));
    }
  }
}

TEST_CASE("search: decoding with caches gives the logits of full recomputation") {
  for (const char* norm : {"post", "pre"}) {
    TransformerConfig config = search_config();
    config.norm = norm;
    config.pointer = config.norm == "pre";
    EncoderDecoder model(config);
    const NoGrad no_grad;
    Context context;
    const PaddedTokens source = pad_tokens(some_sources);
    const Tensor memory = model.encode(source, context);
    const PaddedTokens target{Tensor::from(Ints{1, 4, 5, 6, 1, 7, 8, 3, 1, 9, 9, 4, 1, 5, 6, 7}, {4, 4}), {}};
    const Tensor hidden = model.decode(target, memory, source.mask, context),
                 full = model.log_probabilities(hidden, memory, source, context);
    DecoderState state = model.start(memory, source);
    // After the second step the rows swap places, as beam search does; then they swap back.
    const Ints swap{2, 1, 0, 3};
    const Tensor swapped = Tensor::from(swap, {4});
    for (int t = 0; t < 4; ++t) {
      Tensor tokens = contiguous(select(target.ids, 1, t));
      if (t == 2) {
        state.reorder(swap);
        tokens = index_select(tokens, 0, swapped);
      }
      if (t == 3) state.reorder(swap);
      Tensor logits = log_softmax(model.step(tokens, state, context));
      if (t == 2) logits = index_select(logits, 0, swapped);
      CHECK(worst_difference(logits, contiguous(select(full, 1, t))) < 1e-5);
    }
  }
}

TEST_CASE("search: only what depends on the source alone stays in place when hypotheses of one sentence do") {
  const Tensor rows = Tensor::from(Floats{1, 2}, {2, 1});
  DecoderState state{rows, {}, {}, {}, 0};
  state.layers.resize(2);
  state.layers[0].self.key = state.layers[0].cross.key = state.layers[1].cross.key = rows;
  state.layers[0].cross.of_memory = true;
  const Ints swapped{1, 0}, in_place{0, 1};
  state.reorder(swapped, in_place);
  const Floats stayed{1, 2}, moved{2, 1};
  CHECK(state.memory.to_vector<float>() == stayed);
  CHECK(state.layers[0].self.key.to_vector<float>() == moved);
  CHECK(state.layers[0].cross.key.to_vector<float>() == stayed);
  CHECK(state.layers[1].cross.key.to_vector<float>() == moved);
  state.reorder(swapped);
  CHECK(state.memory.to_vector<float>() == moved);
  CHECK(state.layers[0].cross.key.to_vector<float>() == moved);
}

TEST_CASE("search: translating a batch gives what each sentence gets alone, and its true score") {
  for (const std::int64_t seed : {1, 2, 3}) {
    TransformerConfig config = search_config();
    config.seed = seed;
    EncoderDecoder model(config);
    SearchOptions options;
    options.beam = options.best = 3;
    const auto found = translate(model, some_sources, options);
    REQUIRE(found.size() == some_sources.size());
    for (std::size_t s = 0; s < some_sources.size(); ++s) {
      const auto alone = translate(model, std::span(some_sources).subspan(s, 1), options);
      CHECK(found[s][0].tokens == alone[0][0].tokens);
      const NoGrad no_grad;
      Context context;
      const auto batch =
          make_translation_batch(std::span(some_sources).subspan(s, 1),
                                 std::vector<Tokens>{found[s][0].tokens}, options.begin, options.end);
      CHECK(model.loss(batch, 0, context).sum.item() ==
            doctest::Approx(-found[s][0].log_probability).epsilon(1e-4));
      // Not a theorem, but true of these models: a wider beam finds nothing worse than the greedy output.
      SearchOptions greedy = options;
      greedy.beam = greedy.best = 1;
      SearchOptions thorough = options;
      thorough.early_stop = false;
      const double score = translate(model, std::span(some_sources).subspan(s, 1), thorough)[0][0].score;
      CHECK(score >= translate(model, std::span(some_sources).subspan(s, 1), greedy)[0][0].score - 1e-6);
    }
  }
}

TEST_CASE("search: outputs end where learned positions do") {
  TransformerConfig config = search_config();
  config.positions = "learned";
  EncoderDecoder model(config);
  CHECK(model.target_limit() == 12);
  SearchOptions options;
  options.length_extra = 100;
  options.beam = 2;
  options.best = 2;
  options.early_stop = false;
  const auto found = translate(model, std::span(some_sources).subspan(0, 1), options);
  for (const Hypothesis& hypothesis : found[0]) {
    CHECK(hypothesis.tokens.size() <= 11);
  }
  CHECK(translate(model, {}, options).empty());
}

TEST_CASE("search: options that make no sense are refused") {
  EncoderDecoder model(search_config());
  const auto message = [&](auto&& change) {
    SearchOptions options;
    change(options);
    return error_of([&] { translate(model, some_sources, options); });
  };
  CHECK(contains(message([](auto& o) { o.beam = 0; }), "beam"));
  CHECK(contains(message([](auto& o) { o.best = 5; }), "between 1 and 4"));
  CHECK(contains(message([](auto& o) { o.end = 11; }), "end token 11"));
  CHECK(contains(message([](auto& o) { o.length_penalty = -1; }), "length penalty"));
  CHECK(contains(message([](auto& o) { o.beam = 1'000'000'000; }), "the beam is 1000000000"));
  for (const double wrong : {-1.0, 1e9, std::nan(""), HUGE_VAL}) {
    CHECK(contains(message([&](auto& o) { o.length_ratio = wrong; }), "length_ratio"));
    CHECK(contains(message([&](auto& o) { o.length_penalty = wrong; }), "length penalty"));
  }
  CHECK(contains(message([](auto& o) { o.length_extra = std::int64_t{1} << 62; }), "length_extra"));
}

TEST_CASE("search: any number of threads gives the same hypotheses and scores, to the bit") {
  TransformerConfig config = tiny_config();
  config.width = 64;
  config.feed_forward = 256;
  config.encoder_layers = config.decoder_layers = 2;
  config.source_vocabulary = config.target_vocabulary = 500;
  EncoderDecoder model(config);
  std::vector<Tokens> sources;
  for (std::int32_t length = 1; length <= 24; ++length) sources.emplace_back(length, 7 * length);
  SearchOptions options;
  options.best = 2;
  const int threads_before = cpu_threads();
  std::vector<Hypothesis> expected;
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    set_cpu_threads(threads);
    std::vector<Hypothesis> found;
    for (const auto& best : translate(model, sources, options))
      found.insert(found.end(), best.begin(), best.end());
    if (expected.empty()) expected = found;
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].tokens == expected[i].tokens);
      CHECK(found[i].log_probability == expected[i].log_probability);
      CHECK(found[i].score == expected[i].score);
    }
  }
  set_cpu_threads(threads_before);
}
