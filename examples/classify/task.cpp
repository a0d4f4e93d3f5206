#include "task.h"

#include "settings.h"

namespace heed::programs {

ClassificationTask::ClassificationTask(EncoderClassifier& model, LabelledTokens train, LabelledTokens valid,
                                       const Settings& settings)
    : model_(model),
      train_(std::move(train)),
      valid_(std::move(valid)),
      plan_(lengths_of(train_.texts), {}, training_batches(settings)),
      keep_best_by_(settings.get<std::string>("training.keep_best_by")),
      label_smoothing_(settings.get<double>("training.label_smoothing")),
      batch_size_(prediction_batch_size(settings)) {
  check_name("metric in training.keep_best_by", keep_best_by_, {"accuracy", "loss", "macro_f1"});
}

BatchLoss ClassificationTask::loss(std::int64_t epoch, std::int64_t batch, Context& context) {
  const Batch& rows = batches_.of(plan_, epoch)[static_cast<std::size_t>(batch)];
  const ModelLoss loss = model_.loss(
      make_classification_batch(pick(train_.texts, rows), pick(train_.labels, rows), model_.device()),
      label_smoothing_, context);
  return {loss.sum, loss.count, /*is_mean=*/false};
}

Evaluation ClassificationTask::evaluate() {
  if (valid_.texts.empty()) return {};
  const ClassificationQuality quality = measure(model_, valid_, batch_size_);
  return {{{"loss", quality.loss}, {"accuracy", quality.accuracy}, {"macro_f1", quality.macro_f1}},
          keep_best_by_,
          keep_best_by_ != "loss"};
}

}  // namespace heed::programs
