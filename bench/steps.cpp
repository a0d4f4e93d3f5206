// Times one training step (forward, backward, Adam) of a model and prints a line of JSON, for
// compare_torch.py.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "bench.h"
#include "heed/backends/cpu/loop_times.h"
#include "heed/core/device.h"
#include "heed/core/low_precision.h"
#include "heed/heed.h"
#include "heed/training/gradient_exchange.h"

namespace {

using heed::Context;
using heed::Tokens;

/// The sizes of one model and its batch; compare_torch.py has the same numbers.
struct Case {
  std::string name;
  enum Model { ENCODER, TRANSLATION, LANGUAGE_MODEL } model;
  std::int64_t layers, heads, batch, length, vocabulary;
  std::string activation;
  double smoothing;
};

const std::vector<Case> cases = {
    {"encoder", Case::ENCODER, 2, 4, 32, 128, 10'000, "gelu", 0},
    {"translation", Case::TRANSLATION, 3, 4, 64, 24, 8'000, "relu", 0.1},
    {"language_model", Case::LANGUAGE_MODEL, 4, 8, 8, 256, 8'000, "gelu", 0},
    {"long_text", Case::ENCODER, 2, 4, 2, 2048, 10'000, "gelu", 0},
    {"gpt2", Case::LANGUAGE_MODEL, 12, 12, 4, 64, 50'257, "gelu", 0},
};

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const Case& each : cases) names.push_back(each.name);
  return names;
}

/// A model, the losses of its batches, and the tensors of these batches by name.
struct Work {
  std::unique_ptr<heed::Module> model;
  std::vector<std::function<heed::Loss(Context&)>> losses;
  std::map<std::string, heed::Tensor> content;
};

/// Sequences of equal length, without padding.
std::vector<Tokens> random_tokens(const Case& c, std::int64_t length, std::uint32_t stream) {
  const auto count = static_cast<std::size_t>(c.batch * length);
  const auto numbers = heed::uniform({c.batch, length}, 4, static_cast<double>(c.vocabulary), {1, 0, stream})
                           .to_vector<float>();
  std::vector<std::int32_t> ids(count);
  std::transform(numbers.begin(), numbers.end(), ids.begin(), [&](float x) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(static_cast<std::int64_t>(x), c.vocabulary - 1));
  });
  std::vector<Tokens> sequences;
  for (auto begin = ids.begin(); begin != ids.end(); begin += length)
    sequences.emplace_back(begin, begin + length);
  return sequences;
}

heed::TransformerConfig config_of(const Case& c, double dropout) {
  heed::TransformerConfig config;
  if (c.name == "gpt2") {
    config = gpt2_config(c.layers, 64 * c.heads, c.heads, c.vocabulary, c.length);
  } else {
    config.heads = c.heads;
    config.encoder_layers = config.decoder_layers = c.layers;
    config.source_vocabulary = config.target_vocabulary = c.vocabulary;
    config.classes = 2;
    config.max_length = c.length;
    config.tie_embeddings = "all";
  }
  config.activation = c.activation;
  config.dropout = config.attention_dropout = config.activation_dropout = dropout;
  return config;
}

Work make_work(const Case& c, double dropout, std::uint32_t batches = 1) {
  const heed::TransformerConfig config = config_of(c, dropout);
  Work work;
  const auto add = [&]<class Model>(std::unique_ptr<Model> model, auto&& make_batch, double smoothing) {
    for (std::uint32_t i = 0; i < batches; ++i)
      work.losses.push_back([m = model.get(), batch = make_batch(i), smoothing](Context& context) {
        return m->loss(batch, smoothing, context);
      });
    work.model = std::move(model);
  };
  const auto keep = [&](std::uint32_t batch, const char* name, const heed::Tensor& tensor) {
    work.content.emplace(heed::concat_text("batch.", batch, '.', name), tensor);
  };
  if (c.model == Case::ENCODER) {
    add(
        std::make_unique<heed::EncoderClassifier>(config),
        [&](std::uint32_t i) {
          std::vector<std::int32_t> labels(static_cast<std::size_t>(c.batch));
          for (std::size_t row = 0; row < labels.size(); ++row)
            labels[row] = static_cast<std::int32_t>(row % 2);
          auto batch = heed::make_classification_batch(random_tokens(c, c.length, 2 * i), labels);
          keep(i, "ids", batch.input.ids), keep(i, "targets", batch.labels);
          return batch;
        },
        0);
  } else if (c.model == Case::TRANSLATION) {
    add(
        std::make_unique<heed::EncoderDecoder>(config),
        [&](std::uint32_t i) {
          // The begin token makes the decoder's input one longer, and the end token makes the target as long.
          auto batch = heed::make_translation_batch(random_tokens(c, c.length, 2 * i),
                                                    random_tokens(c, c.length - 1, 2 * i + 1), 1, 2);
          keep(i, "ids", batch.source.ids), keep(i, "shifted", batch.target.ids),
              keep(i, "targets", batch.targets.ids);
          return batch;
        },
        c.smoothing);
  } else {
    add(
        std::make_unique<heed::LanguageModel>(config),
        [&](std::uint32_t i) {
          auto batch = heed::make_language_model_batch(random_tokens(c, c.length + 1, 2 * i));
          keep(i, "ids", batch.input.ids), keep(i, "targets", batch.targets.ids);
          return batch;
        },
        0);
  }
  return work;
}

/// Trains without dropout on eight batches in turn and writes a safetensors file for same_recipe.py: the
/// initial weights, the batches and the loss of every step. The learning rate is 1e-4.
void record(const Case& c, int steps, const std::string& path) {
  constexpr std::uint32_t batches = 8;
  const Work work = make_work(c, 0, batches);
  heed::TensorFile file{work.content, {}};
  for (const heed::NamedTensor& one : work.model->parameters())
    file.tensors["initial." + one.name] = heed::contiguous(one.tensor->detach() * 1.0);
  heed::Optimizer adam(work.model->parameters(), {});
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    Context context = Context::train(1, static_cast<std::uint32_t>(i + 1));
    const heed::Tensor objective =
        heed::objective(work.losses[static_cast<std::size_t>(i) % batches](context), context);
    heed::backward(objective);
    adam.step(1e-4);
    adam.zero_gradients();
    losses.push_back(objective.item());
  }
  file.tensors["losses"] = heed::Tensor::from(losses, {steps});
  heed::save_safetensors(path, file);
}

/// The peak memory of this process (VmHWM), in MB of 2^20 bytes.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

constexpr std::uint32_t warm_up = 3;

/// A model and its optimizer.
class Training {
 public:
  Training(const Case& c, double dropout)
      : work_(make_work(c, dropout)), adam_(work_.model->parameters(), {}) {
    for (std::uint32_t i = 0; i < warm_up; ++i) step();
  }

  void step() {
    Context context = Context::train(1, number_++);
    const heed::Tensor objective = heed::objective(work_.losses[0](context), context);
    heed::backward(objective);
    adam_.step(1e-4);
    adam_.zero_gradients();
    loss_ = objective.item();
  }

  double loss() const { return loss_; }
  std::int64_t parameters() const { return work_.model->parameter_count(); }

 private:
  Work work_;
  heed::Optimizer adam_;
  std::uint32_t number_ = 0;
  double loss_ = 0;
};

/// Floating-point operations of the products in one step.
double step_flops(Training& training) {
  heed::start_profile();
  training.step();
  heed::stop_profile();
  double flops = 0;
  for (const heed::ProfileRow& row : heed::profile_rows()) flops += row.flops;
  return flops;
}

/// Operations per second of a product of two large square matrices, the best of several.
double best_product() {
  constexpr std::int64_t size = 2048;
  const heed::NoGrad no_grad;
  const heed::Tensor a = heed::uniform({size, size}, -1, 1, {1, 0, 0}),
                     b = heed::uniform({size, size}, -1, 1, {1, 0, 1});
  double best = 1e30;
  for (int i = 0; i < 8; ++i) best = std::min(best, seconds_of([&] { heed::matmul(a, b); }));
  return 2.0 * size * size * size / best;
}

/// `gflops`: the operations of all products over the time of the step; `share`: that over the best product.
void run(const Case& c, double dropout, int repeat, bool profile) {
  Training training(c, dropout);
  if (profile) heed::start_profile();
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) times.push_back(1e3 * seconds_of([&] { training.step(); }));
  if (profile) std::cerr << heed::profile_table();
  const double peak = peak_megabytes(), loss = training.loss();  // before the measurements below change them
  const double median = quantile(times, 0.5);
  const double reached = step_flops(training) / median * 1e3, best = best_product();
  std::printf(
      "{\"case\": \"%s\", \"ms\": %.2f, \"peak_mb\": %.1f, \"parameters\": %lld, \"loss\": %.6f, \"gflops\": "
      "%.1f, "
      "\"best_product\": %.1f, \"share\": %.3f}\n",
      c.name.c_str(), median, peak, static_cast<long long>(training.parameters()), loss, reached / 1e9,
      best / 1e9, reached / best);
}

/// A table of what limits the speed-up, per kernel: the processor time of a step on one thread, its serial
/// share (a single task, or work before a loop), and the predicted time on these threads.
std::string loops_table(const heed::cpu::StepTimes& step, int threads, double start) {
  struct Row {
    std::int64_t loops = 0, tasks = 0;
    double work = 0, serial = 0, predicted = 0;
  };
  std::map<std::string, Row> rows;
  const double all = heed::cpu::schedule(step, 1, 0).total;
  for (const heed::cpu::LoopTimes& loop : step.loops) {
    Row& row = rows[loop.kernel];
    const heed::cpu::StepTimes alone{{loop}, 0};
    const heed::cpu::Schedule one = heed::cpu::schedule(alone, 1, 0);
    row.loops += 1;
    row.tasks += static_cast<std::int64_t>(loop.tasks.size());
    row.work += one.total;
    row.serial += one.serial;
    row.predicted += heed::cpu::schedule(alone, threads, start).total;
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.predicted > b.second.predicted; });
  char line[160];
  std::snprintf(line, sizeof line, "%-24s %6s %7s %9s %7s %9s %7s\n", "kernel", "loops", "tasks", "ms",
                "serial", heed::concat_text("ms of ", threads).c_str(), "speedup");
  std::string table = line;
  for (const auto& [name, row] : sorted) {
    std::snprintf(line, sizeof line, "%-24s %6lld %7lld %9.3f %6.2f%% %9.3f %7.1f\n", name.c_str(),
                  static_cast<long long>(row.loops), static_cast<long long>(row.tasks), row.work * 1e3,
                  100 * row.serial / all, row.predicted * 1e3, row.work / row.predicted);
    table += line;
  }
  std::snprintf(line, sizeof line, "after the last loop: %.3f ms; a loop starts in %.2f us\n",
                step.after * 1e3, start * 1e6);
  return table + line;
}

/// Times the tasks of all parallel loops of a step on one thread. For each number of threads it prints the
/// predicted speed-up and the share of the time in which only one thread has work.
void simulate(const Case& c, double dropout, int repeat, const std::vector<int>& threads, bool profile) {
  heed::set_cpu_threads(std::max(2, std::min(heed::available_processors(), threads.back())));
  const double start = heed::cpu::measure_loop_start();
  heed::set_cpu_threads(1);
  Training training(c, dropout);
  if (profile) heed::start_profile();
  std::vector<heed::cpu::StepTimes> steps;
  for (int i = 0; i < repeat; ++i) {
    heed::cpu::LoopRecorder recorder;
    training.step();
    steps.push_back(recorder.stop());
  }
  const heed::cpu::StepTimes step = heed::cpu::median_step(steps);
  const double alone = heed::cpu::schedule(step, 1, start).total;
  for (const int count : threads) {
    const heed::cpu::Schedule with = heed::cpu::schedule(step, count, start);
    std::printf("{\"case\": \"%s\", \"threads\": %d, \"speedup\": %.2f, \"serial_share\": %.4f}\n",
                c.name.c_str(), count, alone / with.total, with.serial / with.total);
  }
  if (profile) std::cerr << loops_table(step, threads.back(), start);
}

/// The work as a task of the Trainer; all batches are the same.
class StepTask : public heed::Task {
 public:
  explicit StepTask(Work work) : work_(std::move(work)) {}
  heed::Module& model() override { return *work_.model; }
  std::int64_t batches(std::int64_t) override { return 1; }
  heed::Loss loss(std::int64_t, std::int64_t, Context& context) override { return work_.losses[0](context); }

 private:
  Work work_;
};

/// Whole steps of the Trainer, of `accumulation` batches, shared by the ranks (null: this process alone).
/// Rank 0 prints the median time and what all ranks together send in a step, beside the formula, which leaves
/// out gradients that their owner computes.
void run_trainer(const Case& c, double dropout, int repeat, std::int64_t accumulation, heed::Ranks* ranks) {
  constexpr int warm_up = 2;
  StepTask task(make_work(c, dropout));
  heed::TrainerOptions options;
  options.steps = warm_up + repeat;
  options.accumulation = accumulation;
  options.log_every = 0;
  options.seed = 1;
  struct Moment {
    double seconds;
    std::int64_t bytes, messages;
  };
  std::vector<Moment> ends;
  heed::TrainerCallbacks callbacks;
  callbacks.stop_requested = [&] {  // called after each step
    ends.push_back({now(), ranks ? ranks->bytes_sent() : 0, ranks ? ranks->messages_sent() : 0});
    return false;
  };
  heed::Trainer(task, options, callbacks, ranks).run();
  std::vector<double> times;
  for (std::size_t i = warm_up; i < ends.size(); ++i)
    times.push_back(1e3 * (ends[i].seconds - ends[i - 1].seconds));
  const Moment &last = ends.back(), &before = ends[ends.size() - 2];
  std::int64_t bytes = 0, messages = 0, own = 0, all = 0;
  const auto parameters = task.model().parameters();
  std::vector<bool> owned;
  if (ranks) owned = heed::GradientExchange(task.model(), parameters, *ranks).owned();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    all += parameters[i].tensor->count() * 4;
    if (!owned.empty() && owned[i]) own += parameters[i].tensor->count() * 4;
  }
  const int count = ranks ? ranks->count() : 1, rank = ranks ? ranks->rank() : 0;
  const std::int64_t batches = accumulation / count + (rank < accumulation % count ? 1 : 0);
  const std::string mine =
      heed::concat_text(last.bytes - before.bytes, ' ', last.messages - before.messages, ' ', batches * own);
  std::int64_t kept = 0;
  for (const std::string& one : ranks ? ranks->all_gather(mine) : std::vector<std::string>{mine}) {
    std::istringstream numbers(one);
    std::int64_t sent = 0, number = 0, stays = 0;
    numbers >> sent >> number >> stays;
    bytes += sent, messages += number, kept += stays;
  }
  if (rank > 0) return;
  std::printf(
      "{\"case\": \"%s\", \"ranks\": %d, \"batches\": %lld, \"ms\": %.2f, \"model_bytes\": %lld, \"bytes\": "
      "%lld, "
      "\"messages\": %lld, \"formula_bytes\": %lld}\n",
      c.name.c_str(), count, static_cast<long long>(accumulation), quantile(times, 0.5),
      static_cast<long long>(all), static_cast<long long>(bytes), static_cast<long long>(messages),
      static_cast<long long>(count > 1 ? accumulation * all - kept + (count - 1) * all : 0));
}

/// What the program is asked for.
struct Flags {
  std::string name = "encoder", precision = "f32", record_to;
  double dropout = 0.1;
  int threads = 2, repeat = 10, ranks = 1;
  bool profile = false;
  std::int64_t accumulation = 0;
  std::vector<int> simulated;
};

void work(const Flags& flags, heed::Ranks* ranks) {
  const Case& c = *std::ranges::find(cases, flags.name, &Case::name);
  heed::set_cpu_threads(flags.threads);
  const heed::Bf16Products products(flags.precision == "bf16");
  if (flags.accumulation > 0) return run_trainer(c, flags.dropout, flags.repeat, flags.accumulation, ranks);
  if (!flags.record_to.empty()) return record(c, flags.repeat, flags.record_to);
  if (!flags.simulated.empty())
    return simulate(c, flags.dropout, flags.repeat, flags.simulated, flags.profile);
  run(c, flags.dropout, flags.repeat, flags.profile);
}

int work_as_rank(const Flags& flags, heed::Ranks& ranks) {
  try {
    work(flags, &ranks);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bench_steps (rank " << ranks.rank() << "): " << error.what() << '\n';
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times one training step (forward, backward, Adam) and prints a line of JSON.");
  Flags flags;
  app.add_option("--case", flags.name, "model and sizes")->check(CLI::IsMember(case_names()));
  app.add_option("--dropout", flags.dropout, "of sub-layers, attention weights and activations")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--precision", flags.precision, "of products")->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--threads", flags.threads, "threads of the CPU backend")->check(CLI::Range(1, 1000));
  app.add_option("--repeat", flags.repeat, "timed steps, after three to warm up")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--accumulation", flags.accumulation, "time whole steps of the Trainer with so many batches")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--ranks", flags.ranks, "with --accumulation: processes that share the batches")
      ->check(CLI::Range(1, 1024));
  app.add_option("--record", flags.record_to,
                 "write the input of same_recipe.py to this file instead of timing");
  app.add_option("--simulate", flags.simulated,
                 "time every task of a step on one thread and predict the speed-up with these numbers of "
                 "threads, such as 1,2,4,8,16,32,64")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000));
  app.add_flag("--profile", flags.profile,
               "print the time per kernel; with --simulate, that predicted for the last number of threads");
  return run_program(app, argc, argv, "bench_steps", [&] {
    if (flags.accumulation > 0 && flags.ranks > 1)
      return heed::run_local_ranks(flags.ranks, [&](heed::Ranks& of) { return work_as_rank(flags, of); });
    work(flags, nullptr);
    return 0;
  });
}
