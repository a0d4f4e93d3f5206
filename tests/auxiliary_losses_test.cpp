// The losses that layers add: each by its name in the pass, in the progress line and in metrics.jsonl.

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "heed/base/file.h"
#include "heed/models/classifier.h"
#include "heed/tests/model_support.h"
#include "heed/tests/temporary_folder.h"
#include "heed/training/trainer.h"

using namespace heed;

namespace {

TransformerConfig clustering_config() {
  TransformerConfig config = test::tiny_config();
  config.encoder_layers = 2;
  config.encoder_attention = {{}, {}};
  config.encoder_attention[0].name = "clusterformer";
  config.encoder_attention[0].options.set("lambda1", 1.0);
  config.encoder_attention[0].options.set("lambda2", 0.5);
  config.encoder_attention[1].name = "routing_transformer";
  config.encoder_attention[1].options.set("beta", 0.25);
  return config;
}

class ClusteringTask : public Task {
 public:
  Module& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return 3; }
  Loss loss(std::int64_t, std::int64_t batch, Context& context) override {
    const std::vector<Tokens> sentences = {{4, 5, 6, 7, static_cast<std::int32_t>(batch)}, {8, 9, 3}};
    const std::vector<std::int32_t> labels = {2, 0};
    return model_.loss(make_classification_batch(sentences, labels), 0, context);
  }

 private:
  EncoderClassifier model_{clustering_config()};
};

}  // namespace

TEST_CASE("auxiliary losses: a pass leaves each with its weight, and the objective adds them up") {
  ClusteringTask task;
  Context context = Context::inference();
  task.loss(0, 0, context);
  std::map<std::string, double> weights;
  double total = 0;
  for (const AuxiliaryLoss& loss : context.losses) {
    weights[loss.name] = loss.weight;
    total += loss.weight * static_cast<double>(loss.value.item());
  }
  CHECK(weights ==
        std::map<std::string, double>{{"clustering", 1}, {"centroid_sorting", 0.5}, {"commitment", 0.25}});
  CHECK(std::abs(context.auxiliary_loss().item() - total) < 1e-5);
}

TEST_CASE("auxiliary losses: the trainer reports each by its name") {
  const TemporaryFolder folder;
  ClusteringTask task;
  TrainerOptions options;
  options.steps = 4;
  options.log_every = 2;
  options.schedule.learning_rate = 0.001;
  std::vector<Progress> records;
  TrainerCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) { records.push_back(progress); };
  RunFolder run = RunFolder::create(folder / "run", {.task = "test", .config = "{}"});
  Trainer(task, options, callbacks).run(&run);
  REQUIRE(records.size() == 2);
  for (const Progress& record : records) {
    std::vector<std::string> names;
    for (const auto& [name, value] : record.auxiliary) {
      names.push_back(name);
      CHECK(std::isfinite(value));
      CHECK(value != 0);
      CHECK(test::contains(progress_text(record), "  " + name + " "));
    }
    CHECK(names == std::vector<std::string>{"centroid_sorting", "clustering", "commitment"});
  }
  const std::string log = read_file(folder / "run" / "metrics.jsonl");
  for (const char* name : {"clustering", "centroid_sorting", "commitment"})
    CHECK(test::contains(log, std::string("\"") + name + "\":"));
}
