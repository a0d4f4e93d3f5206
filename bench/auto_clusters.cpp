// Does "clusters": "auto" find a good number of clusters? Trains small ClusterFormer classifiers on the
// sentences of the subj data set (file subj.all: "label text", Latin-1) with fixed numbers of clusters and
// with "auto", some seeds each, and prints a line of JSON per number and one with the verdict: accuracy
// within 1 % of the best fixed number at no more than 1.2 times its cost. The cost is the processor time of
// the training steps; the models of one seed take turns step by step, so that what else the machine does hits
// all alike.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/device.h"
#include "heed/data/batching.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/classifier.h"
#include "heed/training/optimizer.h"

namespace {

using heed::Tokens;

struct Examples {
  std::vector<Tokens> texts;
  std::vector<std::int32_t> labels;
};

struct Data {
  Examples train, test;
  std::int64_t vocabulary = 0, longest = 0;
};

/// Every tenth line is for testing: the file is sorted by class.
Data read_data(const std::string& path) {
  const std::vector<std::string> lines =
      heed::read_lines(path, {.encoding = heed::Encoding::latin1}).strings();
  std::vector<std::string> texts;
  for (const std::string& line : lines) {
    heed::check(line.size() > 2 && line[1] == ' ', path, ": a line is no \"label text\": ", line);
    texts.push_back(line.substr(2));
  }
  heed::TokenizerTraining training;
  training.vocabulary_size = 4000;
  const heed::Tokenizer tokenizer = heed::Tokenizer::train(texts, training);
  Data data;
  data.vocabulary = tokenizer.vocabulary_size();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Examples& part = i % 10 == 9 ? data.test : data.train;
    part.texts.push_back(tokenizer.encode(texts[i]));
    part.labels.push_back(lines[i][0] - '0');
    data.longest = std::max(data.longest, static_cast<std::int64_t>(part.texts.back().size()));
  }
  return data;
}

/// A number of clusters, 0 for "auto", and what came of it.
struct Candidate {
  std::int64_t clusters = 0;
  std::vector<double> accuracies;
  std::vector<std::int64_t> chosen;
  double seconds = 0;

  double accuracy() const {
    return std::accumulate(accuracies.begin(), accuracies.end(), 0.0) /
           static_cast<double>(accuracies.size());
  }
  std::string name() const { return clusters ? std::to_string(clusters) : "auto"; }
};

std::unique_ptr<heed::EncoderClassifier> make_model(const Data& data, std::int64_t clusters,
                                                    std::int64_t seed) {
  heed::TransformerConfig config;
  config.width = 64;
  config.heads = 4;
  config.feed_forward = 128;
  config.encoder_layers = 2;
  config.source_vocabulary = data.vocabulary;
  config.classes = 2;
  config.max_length = data.longest;
  config.dropout = 0.3;
  config.seed = seed;
  heed::AttentionChoice& attention = config.encoder_attention.front();
  attention.name = "clusterformer";
  if (clusters > 0) attention.options.set("clusters", clusters);
  if (clusters == 0) attention.options.set("clusters", std::string("auto"));
  attention.options.set("cosine", false);
  attention.options.set("phi_scale", 1.0 / 64);  // the plain product rewards large norms without bound
  attention.options.set("lambda1", 0.1);
  attention.options.set("lambda2", 0.1);
  return std::make_unique<heed::EncoderClassifier>(config);
}

heed::ClassificationBatch batch_of(const Examples& examples, const heed::Batch& rows) {
  std::vector<Tokens> texts;
  std::vector<std::int32_t> labels;
  for (const std::int32_t row : rows) {
    texts.push_back(examples.texts[static_cast<std::size_t>(row)]);
    labels.push_back(examples.labels[static_cast<std::size_t>(row)]);
  }
  return heed::make_classification_batch(texts, labels);
}

heed::BatchPlan plan_of(const Examples& examples, std::uint64_t seed, bool shuffle) {
  std::vector<std::int32_t> lengths;
  for (const Tokens& text : examples.texts) lengths.push_back(static_cast<std::int32_t>(text.size()));
  heed::BatchOptions options;
  options.batch_size = 32;
  options.max_tokens = 0;
  options.seed = seed;
  options.shuffle = shuffle;
  return heed::BatchPlan(lengths, {}, options);
}

double accuracy_of(heed::EncoderClassifier& model, const Examples& examples) {
  const heed::NoGrad no_grad;
  std::int64_t right = 0;
  for (const heed::Batch& rows : plan_of(examples, 1, false).epoch(0)) {
    const heed::ClassificationBatch batch = batch_of(examples, rows);
    heed::Context context = heed::Context::inference();
    const auto best = heed::argmax(model.logits(batch.input, context), 1).to_vector<std::int32_t>();
    const auto labels = batch.labels.to_vector<std::int32_t>();
    for (std::size_t i = 0; i < best.size(); ++i) right += best[i] == labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(examples.labels.size());
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::int64_t chosen_in(heed::Module& model) {
  for (const heed::NamedTensor& entry : model.buffers())
    if (entry.name.ends_with("count.chosen")) return entry.tensor->to_vector<std::int32_t>().front();
  return 0;
}

/// Trains all candidates with one seed, a step of each in turn.
void train(const Data& data, std::vector<Candidate>& candidates, std::int64_t seed, std::int64_t epochs) {
  struct Run {
    std::unique_ptr<heed::EncoderClassifier> model;
    std::unique_ptr<heed::Optimizer> adam;
  };
  std::vector<Run> runs;
  for (const Candidate& candidate : candidates) {
    auto model = make_model(data, candidate.clusters, seed);
    auto adam = std::make_unique<heed::Optimizer>(model->parameters(), heed::OptimizerOptions{});
    runs.push_back({std::move(model), std::move(adam)});
  }
  const heed::BatchPlan plan = plan_of(data.train, static_cast<std::uint64_t>(seed), true);
  const auto steps = epochs * static_cast<std::int64_t>(plan.epoch(0).size());
  const heed::ScheduleOptions schedule{heed::schedule_kind("cosine"), 1e-3, 50, 0};
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const heed::Batch& rows : plan.epoch(static_cast<std::uint32_t>(epoch))) {
      const heed::ClassificationBatch batch = batch_of(data.train, rows);
      ++step;
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const double start = processor_seconds();
        heed::Context context =
            heed::Context::train(static_cast<std::uint64_t>(seed), static_cast<std::uint32_t>(step));
        heed::backward(heed::objective(runs[i].model->loss(batch, 0, context), context));
        runs[i].adam->step(heed::learning_rate_at(schedule, step, steps));
        runs[i].adam->zero_gradients();
        candidates[i].seconds += processor_seconds() - start;
      }
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    candidates[i].accuracies.push_back(accuracy_of(*runs[i].model, data.test));
    candidates[i].chosen.push_back(candidates[i].clusters ? candidates[i].clusters
                                                          : chosen_in(*runs[i].model));
    std::fprintf(stderr, "seed %lld, clusters %s: accuracy %.4f\n", static_cast<long long>(seed),
                 candidates[i].name().c_str(), candidates[i].accuracies.back());
  }
}

std::string list_of(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// Prints the verdict; true when "auto" (the last) keeps the promise.
bool print(const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    std::printf("{\"clusters\": \"%s\", \"chosen\": [%s], \"accuracy\": %.4f, \"seconds\": %.2f}\n",
                candidate.name().c_str(), list_of(candidate.chosen).c_str(), candidate.accuracy(),
                candidate.seconds);
  }
  const auto best =
      std::max_element(candidates.begin(), candidates.end() - 1,
                       [](const auto& a, const auto& b) { return a.accuracy() < b.accuracy(); });
  const Candidate& automatic = candidates.back();
  const double lost = best->accuracy() - automatic.accuracy(), cost = automatic.seconds / best->seconds;
  const bool kept = lost <= 0.01 && cost <= 1.2;
  std::printf("{\"best_fixed\": %s, \"accuracy_lost\": %.4f, \"relative_cost\": %.3f, \"kept\": %s}\n",
              best->name().c_str(), lost, cost, kept ? "true" : "false");
  return kept;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("ClusterFormer's number of clusters: chosen against fixed");
  std::string file;
  std::vector<std::int64_t> clusters = {2, 3, 5, 8, 12, 20};
  std::int64_t seeds = 2, epochs = 3, threads = 0;
  app.add_option("--data", file, "subj.all")->required();
  app.add_option("--clusters", clusters, "The fixed numbers")->delimiter(',');
  app.add_option("--seeds", seeds, "How many seeds");
  app.add_option("--epochs", epochs, "Passes over the data");
  app.add_option("--threads", threads, "0: one for each processor");
  CLI11_PARSE(app, argc, argv);
  try {
    if (threads > 0) heed::set_cpu_threads(static_cast<int>(threads));
    const Data data = read_data(file);
    std::vector<Candidate> candidates;
    for (const std::int64_t k : clusters) candidates.push_back({k, {}, {}, 0});
    candidates.push_back({});
    for (std::int64_t seed = 1; seed <= seeds; ++seed) train(data, candidates, seed, epochs);
    return print(candidates) ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "auto_clusters: " << error.what() << '\n';
    return 2;
  }
}
