#include "heed/training/perplexity.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "heed/autograd/ops.h"
#include "heed/data/large_text.h"
#include "model_support.h"

using namespace heed;
using namespace heed::test;

namespace {

Tokens some_text(std::size_t length) {
  Tokens tokens;
  for (std::size_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_word({9, 0, 0}, i) % 11));
  return tokens;
}

Tokens counting(std::int64_t count) {
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
  CHECK_THROWS_AS(text_loss(model, some_text(1), 1, {8, 4, 2}), Error);
  CHECK_THROWS_AS(text_loss(model, some_text(9), 9, {8, 0, 2}), Error);
  CHECK_THROWS_AS(text_loss(model, some_text(9), 9, {8, 4, 0}), Error);
}

TEST_CASE("A batch of windows holds what is read and what is to be predicted") {
  const Tokens tokens = counting(20);
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
  const Tokens tokens = counting(10);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{7, 3, 0}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{0, 3, 3}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{0, 3, 0}, {0, 4, 0}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, {}), Error);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{1, most, 0}}), Error);
  CHECK_THROWS_AS(window_batch(tokens, std::vector<Window>{{most, 3, 0}}), Error);
}
