#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/apps/report/capture.h"
#include "heed/apps/tasks/data.h"
#include "heed/base/error.h"
#include "heed/models/decoding.h"
#include "heed/training/progress.h"

// What a task returns: predictions, generated texts, measurements.

namespace heed {

/// The prediction for one line.
struct Prediction {
  std::string text;        ///< the label, the translation, the continuation
  double probability = 0;  ///< of the answer; for a sequence, the product over its tokens
  struct Alternative {
    std::string text;
    double probability = 0;
    std::optional<double> score = {};  ///< the model's score, if it says more than the probability
  };
  std::vector<Alternative> alternatives = {};  ///< all classes, or the best sequences: best first
  std::string error = {};                      ///< why the line has no answer; "": it has one
  std::vector<float> vector = {};              ///< the answer of a task that predicts vectors
};

struct PredictOptions {
  /// Receives attention weights and other captured tensors for each line that is not blank; null:
  /// no capture.
  CaptureFile* capture = nullptr;
  /// The number of the first line, in the capture ("lines.<number>") and errors.
  std::int64_t first_line = 0;
  /// If false, random draws for a line depend on the seed and the line's number. If true, every
  /// line counts as the first, so that its answer does not depend on its position.
  bool each_first = false;
  /// For a single line: receives its answer as it is generated (Run::stream()).
  TextPieces* pieces = nullptr;
  /// For Run::predict(): if true, a line that cannot be answered gets a Prediction::error; if
  /// false, it throws.
  bool return_errors = false;

  std::string name_of(std::size_t line) const {
    return concat_text("lines.", first_line + static_cast<std::int64_t>(line));
  }
};

/// Options of Run::generate(). Options that are not set default to the settings of the run.
struct TextGenerationOptions {
  std::optional<std::int64_t> max_tokens = {};  ///< the most new tokens, from 1
  // As in SamplingOptions. If any of these is set, or samples > 1, texts are sampled instead of
  // searched for.
  std::optional<double> temperature = {};
  std::optional<std::int64_t> top_k = {};
  std::optional<double> top_p = {};
  std::optional<std::uint64_t> seed = {};
  std::int64_t samples = 1;  ///< number of texts, 1 to 1,024

  bool draws() const { return samples > 1 || temperature || top_k || top_p || seed; }
  void apply_to(SamplingOptions& sampling, std::uint64_t& own_seed) const {
    sampling = {temperature.value_or(sampling.temperature), top_k.value_or(sampling.top_k),
                top_p.value_or(sampling.top_p)};
    own_seed = seed.value_or(own_seed);
  }
};

/// A wrong prediction.
struct Mistake {
  std::string place, text, expected, predicted;
  double probability = 0;  ///< of the predicted answer
};

/// The contribution of each example, or group of examples, to a metric. Comparisons of two models
/// on the same examples need it.
struct ExampleStatistics {
  std::string metric;        ///< its name; "": there are no rows
  std::string combine = {};  ///< computes it from column sums: "mean" (first / second) or "bleu"
  std::vector<std::vector<double>> rows = {};
};

/// The result of an evaluation.
struct Measurement {
  std::vector<Metric> metrics;
  std::string json;                    ///< one object: the metrics by name, and more figures
  std::vector<Mistake> mistakes = {};  ///< for tasks with labels; the most confident first
  std::int64_t count = 0;              ///< of examples
  ExampleStatistics examples = {};     ///< for a metric that is computed from single examples
};

}  // namespace heed
