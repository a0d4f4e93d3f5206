#include "heed/apps/tasks/capture.h"

#include "heed/apps/tasks/data.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/loss.h"

namespace heed {

Capture captured(const std::function<void(Context&)>& pass) {
  const NoGrad no_grad;
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  pass(context);
  return capture;
}

namespace {

/// The axis of the samples: the second in Reformer's buckets and orders [rounds, B, H, N].
int batch_axis(const Capture::Entry& entry) {
  return entry.name == "buckets" || (entry.name == "order" && entry.value.rank() == 4) ? 1 : 0;
}

/// What a capture of `count` samples has of one of them; what has one sample alone is the same for all.
Capture sample_of(const Capture& capture, std::int64_t sample, std::int64_t count) {
  Capture one;
  for (const Capture::Entry& entry : capture.entries) {
    const int axis = batch_axis(entry);
    const std::int64_t samples = entry.value.rank() > axis ? entry.value.size(axis) : 0;
    if (samples == count)
      one.entries.push_back({entry.layer, entry.name, slice(entry.value, axis, sample, sample + 1)});
    else if (samples == 1)
      one.entries.push_back(entry);
  }
  return one;
}

}  // namespace

void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer) {
  const Tensor ids = pad_tokens(rows).ids;
  const auto count = static_cast<std::int64_t>(rows.size());
  for (std::int64_t row = 0; row < count; ++row) {
    const std::string name = count == 1 ? example : example + (row == 0 ? "-first" : "-second");
    std::vector<std::string> texts = token_texts(tokenizer, rows[static_cast<std::size_t>(row)]);
    texts.resize(static_cast<std::size_t>(ids.size(1)), "<pad>");
    file.add_tokens(name, "tokens", slice(ids, 0, row, row + 1), texts);
    file.add(name, count == 1 ? capture : sample_of(capture, row, count));
  }
}

}  // namespace heed
