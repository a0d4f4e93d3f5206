#include "heed/models/decoding.h"

#include "heed/models/search.h"
#include "heed/tests/model_support.h"

namespace {

const Doubles five_logits = {1.0, 3.0, -1.0, 2.0, 3.0};  // 1 and 4 are equally probable

Doubles softmax_of(const Doubles& values, double temperature = 1) {
  Doubles out;
  for (const double value : values) out.push_back(std::exp(value / temperature));
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& value : out) value /= sum;
  return out;
}

void check_probabilities(const Doubles& found, const Doubles& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-12));
}

/// How often each token is drawn, against its probability: Pearson's chi-square.
double chi_square(const SamplingOptions& options, int draws) {
  const Doubles expected = sampling_probabilities(five_logits, options);
  std::vector<int> counts(five_logits.size());
  for (int i = 0; i < draws; ++i) {
    const double uniform = unit_interval(random_word({5, 0, 0}, static_cast<std::uint64_t>(i)));
    ++counts[static_cast<std::size_t>(sample_token(five_logits, options, uniform))];
  }
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      CHECK(counts[i] == 0);
      continue;
    }
    const double difference = counts[i] - expected[i] * draws;
    sum += difference * difference / (expected[i] * draws);
  }
  return sum;
}

TransformerConfig generating_config(const std::string& attention = "dot_product") {
  TransformerConfig config = tiny_config();
  config.decoder_attention = {{attention, 0, {}}};
  config.decoder_layers = 2;
  return config;
}

const Tokens prompt = {3, 7, 1};

GenerationOptions generation(double temperature, std::int64_t tokens, std::int64_t context = 12) {
  GenerationOptions options;
  options.sampling.temperature = temperature;
  options.tokens = tokens;
  options.context = context;
  return options;
}

/// Of the token after a text, from the whole text at once.
Doubles next_logits(LanguageModel& model, const Tokens& text) {
  const NoGrad no_grad;
  Context context = Context::inference();
  const Tensor hidden = model.hidden(pad_tokens(std::vector<Tokens>{text}), context);
  return model.logits(slice(hidden, 1, hidden.size(1) - 1, hidden.size(1))).to_doubles();
}

std::int32_t most_probable_next(LanguageModel& model, const Tokens& text) {
  const Doubles logits = next_logits(model, text);
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace

TEST_CASE("sampling: without limits it is the softmax, and temperature divides the logits") {
  check_probabilities(sampling_probabilities(five_logits, {}), softmax_of(five_logits));
  check_probabilities(sampling_probabilities(five_logits, {0.5, 0, 1}), softmax_of(five_logits, 0.5));
  check_probabilities(sampling_probabilities(five_logits, {1e6, 0, 1}), softmax_of(five_logits, 1e6));
}

TEST_CASE("sampling: draws follow the probabilities") {
  // 99.9 % of honest draws stay below 18.5 with 4 degrees of freedom.
  CHECK(chi_square({1, 0, 1}, 20000) < 18.5);
  CHECK(chi_square({0.7, 0, 1}, 20000) < 18.5);
  CHECK(chi_square({1.5, 3, 1}, 20000) < 18.5);
  CHECK(chi_square({1, 0, 0.8}, 20000) < 18.5);
}

TEST_CASE("sampling: top-k keeps the k most probable, ties by the lower id") {
  check_probabilities(sampling_probabilities(five_logits, {1, 1, 1}), {0, 1, 0, 0, 0});
  check_probabilities(sampling_probabilities(five_logits, {1, 2, 1}), {0, 0.5, 0, 0, 0.5});
  const double e = std::exp(-1.0);
  check_probabilities(sampling_probabilities(five_logits, {1, 3, 1}),
                      {0, 1 / (2 + e), 0, e / (2 + e), 1 / (2 + e)});
  check_probabilities(sampling_probabilities(five_logits, {1, 5, 1}), softmax_of(five_logits));
  check_probabilities(sampling_probabilities(five_logits, {1, 500, 1}), softmax_of(five_logits));
}

TEST_CASE("sampling: top-p keeps the fewest tokens that reach p, at least one") {
  const Doubles halves = {std::log(0.5), std::log(0.25), std::log(0.125), std::log(0.125)};
  check_probabilities(sampling_probabilities(halves, {1, 0, 1e-9}), {1, 0, 0, 0});
  check_probabilities(sampling_probabilities(halves, {1, 0, 0.4}), {1, 0, 0, 0});
  check_probabilities(sampling_probabilities(halves, {1, 0, 0.6}), {2 / 3.0, 1 / 3.0, 0, 0});
  check_probabilities(sampling_probabilities(halves, {1, 0, 0.8}), {4 / 7.0, 2 / 7.0, 1 / 7.0, 0});
  check_probabilities(sampling_probabilities(halves, {1, 0, 0.99}), {0.5, 0.25, 0.125, 0.125});
  // After top-k, p is a share of what that left.
  check_probabilities(sampling_probabilities(halves, {1, 2, 0.6}), {1, 0, 0, 0});
}

TEST_CASE("sampling: temperature 0 is greedy, whatever is drawn") {
  for (const double uniform : {0.0, 0.5, 0.999999}) CHECK(sample_token(five_logits, {0, 0, 1}, uniform) == 1);
  CHECK(sample_token(five_logits, {0, 3, 0.5}, 0.9) == 1);
}

TEST_CASE("sampling: large logits do not overflow, impossible tokens are never drawn") {
  const double never = -infinity;
  check_probabilities(sampling_probabilities(Doubles{1e5, 1e5, never}, {}), {0.5, 0.5, 0});
  for (const double uniform : {0.0, 0.4999, 0.5, 0.99999994})
    CHECK(sample_token(Doubles{never, 1, never, 1, never}, {}, uniform) == (uniform < 0.5 ? 1 : 3));
}

TEST_CASE("sampling: options and logits that make no sense are refused") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(sampling_probabilities(five_logits, {-1, 0, 1}), Error);
  CHECK_THROWS_AS(sampling_probabilities(five_logits, {nan, 0, 1}), Error);
  CHECK_THROWS_AS(sampling_probabilities(five_logits, {1, -1, 1}), Error);
  CHECK_THROWS_AS(sampling_probabilities(five_logits, {1, 0, 0}), Error);
  CHECK_THROWS_AS(sampling_probabilities(five_logits, {1, 0, 1.1}), Error);
  CHECK_THROWS_AS(sampling_probabilities(Doubles{1, nan}, {}), Error);
  CHECK_THROWS_AS(sampling_probabilities(Doubles{}, {}), Error);
}

TEST_CASE("generate: greedy steps are those of the whole text, with every strictly causal attention") {
  for (const AttentionVariant& variant : attention_variants()) {
    // Where later tokens may change what is seen, the whole text has seen more than each step had.
    if (!variant.capabilities.causal || !variant.capabilities.strictly_causal) continue;
    CAPTURE(variant.name);
    LanguageModel model(generating_config(std::string(variant.name)));
    const Tokens found = generate(model, prompt, 1, generation(0, 6)).front();
    Tokens text = prompt;
    for (const std::int32_t token : found) {
      CHECK(token == most_probable_next(model, text));
      text.push_back(token);
    }
    CHECK(found.size() == 6);
  }
}

TEST_CASE("generate: every causal attention writes") {
  for (const AttentionVariant& variant : attention_variants()) {
    if (!variant.capabilities.causal) continue;
    CAPTURE(variant.name);
    LanguageModel model(generating_config(std::string(variant.name)));
    const auto texts = generate(model, prompt, 2, generation(1, 9, 8));
    CHECK(texts[0].size() == 9);
    CHECK(texts == generate(model, prompt, 2, generation(1, 9, 8)));
  }
}

TEST_CASE("generate: a text depends on its number and the seed, not on the others or the threads") {
  LanguageModel model(generating_config());
  const auto many = generate(model, prompt, 5, generation(1.5, 8));
  const auto few = generate(model, prompt, 2, generation(1.5, 8));
  CHECK(few[0] == many[0]);
  CHECK(few[1] == many[1]);
  CHECK(many[0] != many[1]);
  GenerationOptions other = generation(1.5, 8);
  other.seed = 2;
  CHECK(generate(model, prompt, 5, other) != many);
  const int threads = cpu_threads();
  set_cpu_threads(3);
  CHECK(generate(model, prompt, 5, generation(1.5, 8)) == many);
  set_cpu_threads(threads);
}

TEST_CASE(
    "generate: the probability of a text is the model's own, whatever the options, and has the end's where "
    "it was drawn") {
  LanguageModel model(generating_config());
  const auto of_text = [&](Tokens tokens) {
    Tokens text = prompt;
    double sum = 0;
    for (const std::int32_t token : tokens) {
      sum += std::log(softmax_of(next_logits(model, text)).at(static_cast<std::size_t>(token)));
      text.push_back(token);
    }
    return sum;
  };
  Doubles found;
  GenerationOptions options = generation(1.5, 9);
  options.sampling.top_k = 4;
  auto texts = generate(model, prompt, 6, options, &found);
  for (std::size_t i = 0; i < texts.size(); ++i)
    CHECK(found.at(i) == doctest::Approx(of_text(texts[i])).epsilon(1e-5));
  options.ends = {texts[2][3]};
  texts = generate(model, prompt, 6, options, &found);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() < 9) texts[i].push_back(options.ends[0]);
    CHECK(found.at(i) == doctest::Approx(of_text(texts[i])).epsilon(1e-5));
  }
}

TEST_CASE("generate: texts end by themselves, and the others go on as if alone") {
  LanguageModel model(generating_config());
  const auto whole = generate(model, prompt, 6, generation(1.5, 9));
  GenerationOptions ending = generation(1.5, 9);
  ending.ends = {whole[2][3]};
  const auto ended = generate(model, prompt, 6, ending);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto stop = std::find(whole[i].begin(), whole[i].end(), ending.ends[0]);
    CHECK(ended[i] == Tokens(whole[i].begin(), stop));
  }
  CHECK(ended[2].size() <= 3);
}

TEST_CASE("generate: a penalty for tokens that were read, and a text that is over") {
  LanguageModel model(generating_config());
  GenerationOptions options = generation(0, 9);
  const Tokens plain = generate(model, prompt, 1, options).front();
  for (const double penalty : {1.5, 1e3}) {
    options.sampling.repetition_penalty = penalty;
    Tokens text = prompt;
    std::vector<double> scores;
    double score = 0;
    const Tokens found = generate(model, prompt, 1, options, &scores).front();
    for (const std::int32_t next : found) {
      const NoGrad no_grad;
      Context context = Context::inference();
      const Tensor hidden = model.hidden(pad_tokens({&text, 1}), context);
      Doubles logits = select(select(model.logits(hidden), 0, 0), 0, -1).to_doubles();
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      score += logits[static_cast<std::size_t>(next)] - std::log(sum);
      for (const std::int32_t token : std::set<std::int32_t>(text.begin(), text.end())) {
        double& logit = logits[static_cast<std::size_t>(token)];
        logit = logit > 0 ? logit / penalty : logit * penalty;
      }
      CHECK(next == std::ranges::max_element(logits) - logits.begin());
      text.push_back(next);
    }
    CHECK(scores[0] == doctest::Approx(score).epsilon(1e-4));  // of the model, without the penalty
  }
  options.sampling.repetition_penalty = 1;
  options.is_over = [](std::span<const std::int32_t> tokens) { return tokens.size() == 4; };
  CHECK(generate(model, prompt, 1, options).front() == Tokens(plain.begin(), plain.begin() + 4));
}

TEST_CASE("sampling: min_p keeps tokens by their share of the largest probability") {
  const Doubles logits = {std::log(0.5), std::log(0.26), std::log(0.24), -1e38};
  CHECK(sampling_probabilities(logits, {.min_p = 0.5})[2] == 0);
  CHECK(sampling_probabilities(logits, {.min_p = 0.5})[1] == doctest::Approx(0.26 / 0.76));
  CHECK(sampling_probabilities(logits, {.min_p = 0.45})[2] == doctest::Approx(0.24));
  CHECK(sampling_probabilities(logits, {.min_p = 1})[0] == 1);
  CHECK(sampling_probabilities(logits, {.temperature = 0, .min_p = 1})[0] == 1);
  for (const double wrong : {-0.1, 1.1}) CHECK_ERROR(check_sampling({.min_p = wrong}), "min_p");
  for (const double wrong : {0.0, -1.0})
    CHECK_ERROR(check_sampling({.repetition_penalty = wrong}), "repetition_penalty");
}

TEST_CASE("generate: beyond the context it goes on from the last half of what was read") {
  TransformerConfig config = generating_config();
  config.positions = "learned";  // these end at the context, 6
  config.max_length = 6;
  LanguageModel model(config);
  const Tokens found = generate(model, prompt, 1, generation(0, 9, 6)).front();
  REQUIRE(found.size() == 9);
  Tokens text = prompt;
  text.insert(text.end(), found.begin(), found.end());
  // Six tokens are read before token 7, so that reading starts over with the last three; then every four
  // tokens.
  for (std::size_t at = 3; at < text.size(); ++at) {
    const std::size_t first = at <= 6 ? 0 : (at - 7) / 4 * 4 + 4;
    CAPTURE(at);
    const Tokens seen(text.begin() + static_cast<std::ptrdiff_t>(first),
                      text.begin() + static_cast<std::ptrdiff_t>(at));
    CHECK(seen.size() <= 6);
    CHECK(text[at] == most_probable_next(model, seen));
  }
}

TEST_CASE("generate: what cannot be continued is refused") {
  LanguageModel model(generating_config());
  CHECK_THROWS_WITH_AS(generate(model, Tokens{}, 1, generation(1, 3)),
                       "generate: the prompt is empty; a text needs a token to begin with", Error);
  CHECK_ERROR(generate(model, Tokens(13, 1), 1, generation(1, 3)), "13 tokens");
  CHECK_ERROR(generate(model, prompt, 1, generation(-1, 3)), "temperature");
  CHECK_THROWS_AS(generate(model, prompt, 0, generation(1, 3)), Error);
  CHECK_THROWS_AS(generate(model, prompt, 1, generation(1, -3)), Error);
  const std::int64_t huge = std::int64_t{1} << 62;
  CHECK_ERROR(generate(model, prompt, huge, generation(1, 3)), "the number of texts");
  CHECK_ERROR(generate(model, prompt, 1, generation(1, huge)), "new tokens");
  CHECK_ERROR(generate(model, prompt, 1, generation(1, 3, huge)), "the context");
  CHECK_THROWS_AS(generate(model, Tokens{3, 11}, 1, generation(1, 3)), Error);  // outside the vocabulary
  CHECK(generate(model, prompt, 2, generation(1, 0)) == std::vector<Tokens>(2));
}

TEST_CASE("sampling: over an encoder-decoder, greedy draws are greedy search and warm ones differ") {
  TransformerConfig config = tiny_config();
  config.embedding_deviation = 2;  // logits that differ
  EncoderDecoder model(config);
  const std::vector<Tokens> sources = {{4, 5, 6}, {7, 8}, {9, 3, 5, 4}};
  const Ints first(3, 1);
  const std::vector<std::int64_t> lengths = {7, 5, 0};
  const auto drawn = [&](double temperature, std::uint64_t seed) {
    EncoderDecoderSteps steps(model, pad_tokens(sources));
    return sample(steps, first, lengths, {temperature, 0, 1}, Tokens{2}, seed);
  };
  EncoderDecoderSteps steps(model, pad_tokens(sources));
  const std::vector<Hypothesis> greedy = greedy_search(steps, lengths, {});
  const std::vector<Tokens> cold = drawn(0, 1);
  for (std::size_t s = 0; s < sources.size(); ++s) CHECK(cold[s] == greedy[s].tokens);
  CHECK(cold[2].empty());
  CHECK(drawn(2, 1) == drawn(2, 1));
  CHECK(drawn(2, 1) != drawn(2, 2));
}

TEST_CASE("search: over a language model, greedy search is greedy generation and a beam finds no worse") {
  LanguageModel model(generating_config());
  SearchOptions options;
  options.begin = prompt.back();
  options.end = 5;
  options.length_penalty = 0;
  const std::vector<std::int64_t> lengths(2, 6);
  LanguageModelSteps steps(model, prompt, 2, 12);
  const std::vector<Hypothesis> greedy = greedy_search(steps, lengths, options);
  GenerationOptions generation_options = generation(0, 6);
  generation_options.ends = {options.end};
  CHECK(greedy[0].tokens == generate(model, prompt, 1, generation_options).front());
  CHECK(greedy[1].tokens == greedy[0].tokens);
  options.beam = 4;
  LanguageModelSteps again(model, prompt, 2, 12);
  const auto beams = beam_search(again, lengths, options);
  CHECK(beams[0][0].score >= greedy[0].score);
  CHECK(beams[0][0].tokens == beams[1][0].tokens);
}
