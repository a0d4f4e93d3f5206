#include "heed/training/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/autograd/autograd.h"
#include "heed/core/error.h"
#include "heed/data/text_windows.h"

namespace heed {

double TextLoss::perplexity() const {
  return std::exp(nats_per_token());
}

double TextLoss::bits_per_character() const {
  return nats_per_character() / std::numbers::ln2;
}

TextLoss text_loss(LanguageModel& model, std::span<const std::int32_t> tokens, std::int64_t characters,
                   const TextLossOptions& options) {
  check(options.rows >= 1, "text_loss: rows must be at least 1, is ", options.rows);
  const NoGrad no_grad;
  const auto windows =
      strided_windows(static_cast<std::int64_t>(tokens.size()), options.window, options.stride);
  TextLoss result;
  result.characters = characters;
  const auto rows = static_cast<std::size_t>(options.rows);
  for (std::size_t begin = 0; begin < windows.size(); begin += rows) {
    const std::size_t count = std::min(rows, windows.size() - begin);
    Context context = Context::inference();
    const Loss loss = model.loss(
        window_batch(tokens, std::span(windows).subspan(begin, count), model.device()), 0, context);
    result.nats += loss.sum.item();
    result.tokens += loss.count;
  }
  return result;
}

}  // namespace heed
