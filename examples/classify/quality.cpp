#include "quality.h"

#include "../common/result.h"

namespace heed::programs {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double ClassQuality::precision() const {
  return share(right, predicted);
}

double ClassQuality::recall() const {
  return share(right, texts);
}

double ClassQuality::f1() const {
  return share(2 * right, texts + predicted);
}

ClassificationQuality measure(EncoderClassifier& model, const LabelledTokens& text, std::int64_t batch_size) {
  ClassificationQuality quality;
  quality.classes.resize(static_cast<std::size_t>(model.config().classes));
  const std::vector<ClassScores> scores = classify(model, text.texts, batch_size);
  const auto count = static_cast<double>(scores.size());
  std::int64_t all_right = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto label = static_cast<std::size_t>(text.labels[i]);
    const std::size_t best = best_class(scores[i]);
    const bool right = best == label;
    ++quality.classes[label].texts;
    ++quality.classes[best].predicted;
    quality.classes[best].right += right ? 1 : 0;
    all_right += right ? 1 : 0;
    quality.loss -= static_cast<double>(scores[i][label]) / count;
  }
  quality.accuracy = static_cast<double>(all_right) / count;
  for (const ClassQuality& one : quality.classes)
    quality.macro_f1 += one.f1() / static_cast<double>(quality.classes.size());
  return quality;
}

Json to_json(const ClassificationQuality& quality, std::span<const std::string> names) {
  Json classes = Json::object();
  std::int64_t texts = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ClassQuality& one = quality.classes[i];
    classes[names[i]] = {{"texts", one.texts},
                         {"precision", rounded(one.precision())},
                         {"recall", rounded(one.recall())},
                         {"f1", rounded(one.f1())}};
    texts += one.texts;
  }
  return {{"accuracy", rounded(quality.accuracy)},
          {"loss", quality.loss},
          {"macro_f1", rounded(quality.macro_f1)},
          {"texts", texts},
          {"classes", std::move(classes)}};
}

}  // namespace heed::programs
