#include "classifier.h"

#include <algorithm>

#include "../common/batches.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed::programs {

std::vector<ClassScores> classify(EncoderClassifier& model, const std::vector<Tokens>& texts,
                                  std::int64_t batch_size) {
  const NoGrad no_grad;
  std::vector<ClassScores> scores(texts.size());
  if (texts.empty()) return scores;
  const BatchPlan plan(lengths_of(texts), {}, evaluation_batches(batch_size));
  for (const Batch& rows : plan.epoch(0)) {
    Context context = Context::inference();
    const Tensor logits = model.logits(pad_tokens(pick(texts, rows), model.device()), context);
    const std::vector<float> values = log_softmax(logits, -1).to_vector<float>();  // [B, classes]
    auto first = values.begin();
    for (const std::int32_t row : rows) {
      const auto end = first + logits.size(1);
      scores[static_cast<std::size_t>(row)].assign(first, end);
      first = end;
    }
  }
  return scores;
}

std::size_t best_class(const ClassScores& scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

}  // namespace heed::programs
