#include "heed/training/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/autograd/autograd.h"
#include "heed/base/error.h"
#include "heed/text/batching.h"

namespace heed {

double TextLoss::perplexity() const {
  return std::exp(nats_per_token());
}

LanguageModelBatch window_batch(const TokenStream& tokens, std::span<const Window> windows, Device device) {
  check(!windows.empty(), "a batch needs at least one window");
  const std::int64_t length = windows.front().length;
  const std::int64_t count_of_tokens = tokens.size();
  std::vector<std::int32_t> inputs, targets, rows;
  bool all = true;
  for (std::size_t b = 0; b < windows.size(); ++b) {
    const auto [begin, window_length, first] = windows[b];
    // A token to predict must follow the last token read. Sums are avoided, since they could overflow.
    check(window_length == length && begin >= 0 && length >= 1 && first >= 0 && first < length &&
              begin < count_of_tokens && length < count_of_tokens - begin,
          "window ", b, " reads ", window_length, " tokens from ", begin, " on and counts from ", first,
          "; windows of this batch read ", length, ", of a text of ", count_of_tokens);
    const Tokens read = tokens.read(begin, length + 1);
    inputs.insert(inputs.end(), read.begin(), read.end() - 1);
    targets.insert(targets.end(), read.begin() + static_cast<std::ptrdiff_t>(1 + first), read.end());
    for (std::int64_t i = first; i < length; ++i)
      rows.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(b) * length + i));
    all = all && first == 0;
  }
  const auto count = static_cast<std::int64_t>(targets.size());
  LanguageModelBatch batch;
  batch.input.ids = Tensor::from(inputs, {static_cast<std::int64_t>(windows.size()), length}, device);
  batch.targets = {Tensor::from(targets, {count}, device),
                   all ? Tensor() : Tensor::from(rows, {count}, device), count};
  return batch;
}

TextLoss text_loss(LanguageModel& model, const TokenStream& tokens, std::int64_t characters,
                   const TextLossOptions& options, const ShareNumbers& share) {
  check(options.rows >= 1, "text_loss: rows must be at least 1, is ", options.rows);
  check(options.sample >= 0, "text_loss: the sample is ", options.sample,
        " tokens; at least 1, or 0 for all");
  const NoGrad no_grad;
  const bool is_sample = options.sample > 0 && options.sample < tokens.size() - 1;
  auto windows = strided_windows(tokens.size(), options.window, is_sample ? options.window : options.stride);
  if (is_sample) {
    const std::int64_t most = std::max<std::int64_t>(options.sample / options.window, 1);
    std::vector<Window> some;
    for (const std::int32_t i : spread_over(windows.size(), most))
      some.push_back(windows[static_cast<std::size_t>(i)]);
    windows = std::move(some);
  }
  TextLoss result;
  const auto rows = static_cast<std::size_t>(options.rows);
  const std::size_t batches = (windows.size() + rows - 1) / rows;
  const auto loss_of_batch = [&](std::size_t batch) {
    const std::size_t begin = batch * rows, count = std::min(rows, windows.size() - begin);
    Context context = Context::inference();
    const Loss loss = model.loss(
        window_batch(tokens, std::span(windows).subspan(begin, count), model.device()), 0, context);
    return std::vector<double>{loss.sum.item(), static_cast<double>(loss.count)};
  };
  if (share)
    result.parts = share(batches, loss_of_batch);
  else
    for (std::size_t batch = 0; batch < batches; ++batch) result.parts.push_back(loss_of_batch(batch));
  for (const std::vector<double>& part : result.parts) {
    result.nats += part[0];
    result.tokens += static_cast<std::int64_t>(part[1]);
  }
  const double read = static_cast<double>(result.tokens) / static_cast<double>(tokens.size() - 1);
  result.characters = is_sample ? std::llround(static_cast<double>(characters) * read) : characters;
  return result;
}

}  // namespace heed
