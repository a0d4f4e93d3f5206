// heed bench attention: the cost of one layer of every attention variant, forward and backward, by length.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/program.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/plain_numbers.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"
#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"

namespace heed::programs {
namespace {

/// The memory of a pass at one length.
struct MemoryAtLength {
  double length = 0, megabytes = 0;
};

/// Returns the memory to expect at a longer length, from a length + b length^2 through the last two points, with
/// a, b >= 0; 0 before there are two. (At short lengths the projections hide the quadratic part.)
double expected_memory(const std::vector<MemoryAtLength>& measured, double length) {
  if (measured.size() < 2) return 0;
  const MemoryAtLength &shorter = measured.rbegin()[1], &longer = measured.back();
  if (shorter.length == longer.length) return 0;
  // The memory per token = a + b length is a straight line.
  const double slope = (longer.megabytes / longer.length - shorter.megabytes / shorter.length) /
                       (longer.length - shorter.length);
  const double b = std::clamp(slope, 0.0, longer.megabytes / (longer.length * longer.length));
  const double a = longer.megabytes / longer.length - b * longer.length;
  return a * length + b * length * length;
}

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::vector<std::string> variants{"all"}, assignments;
  std::vector<std::int64_t> lengths{256, 512, 1024, 2048, 4096, 8192};
  TextFlag device_flag;
  Device device;
  std::string precision = "f32";
  std::int64_t width = 512, heads = 8, batch = 1, repetitions = 3, threads = 0;
  double memory_limit_mb = 0;  ///< 0: half of what is free
  bool causal = false, json = false, profile = false;
};

/// Half of the free memory in MB; 4000 if unknown.
double half_of_free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (double kibibytes = 0; file >> name >> kibibytes && std::getline(file, unit);)
    if (name == "MemAvailable:") return kibibytes * 1024 / 1e6 / 2;
  return 4000;
}

// --- one layer

constexpr std::string_view composed_name = "dot_product_composed";

/// softmax(Q K^T / sqrt(dh)) V as two matrix products and a softmax, which stores the full N x M matrices of
/// scores and weights: the baseline of the papers.
class ComposedDotProduct : public Attention {
 public:
  explicit ComposedDotProduct(const AttentionConfig& config)
      : Attention(config), initialiser_(config.seed), w_(config, initialiser_) {
    add_projections(w_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context&) override {
    const auto heads = [&](const Linear& part) { return split_heads(part(input.x), config().heads); };
    AttentionOptions options;
    options.causal = config().causal;
    const Tensor weights = attention_weights(heads(w_.query), heads(w_.key), options);  // [B, H, N, N]
    return w_.output(merge_heads(matmul(weights, heads(w_.value))));
  }

 private:
  Initialiser initialiser_;
  Projections w_;
};

std::vector<std::string> measurable_attentions() {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) {
    names.emplace_back(variant.name);
    if (variant.name == "dot_product") names.emplace_back(composed_name);
  }
  return names;
}

std::unique_ptr<Attention> make_layer(const AttentionChoice& choice, std::int64_t length,
                                      const BenchOptions& bench) {
  AttentionConfig config;
  config.width = bench.width;
  config.heads = bench.heads;
  config.causal = bench.causal;
  config.max_length = length;
  config.options = choice.options;
  if (choice.name == "clusterformer" && !config.options.values().contains("clusters"))
    config.options.set("clusters", std::max<std::int64_t>(1, std::llround(std::sqrt(length))));
  config.seed = 1;
  if (choice.name == composed_name) return std::make_unique<ComposedDotProduct>(config);
  return make_attention(choice.name, config);
}

struct AttentionCost {
  double ms = 0, peak_mb = 0;  ///< of a pass: the fastest, and the peak of all tensors in 1e6 bytes
  std::int64_t parameters = 0;
  double flops = 0;  ///< of products and attention, both passes
};

/// Measures passes over random inputs: forward, and backward until the gradients are computed.
AttentionCost measure_attention(const AttentionChoice& choice, std::int64_t length, const BenchOptions& bench,
                                std::int64_t repetitions) {
  const WithMatmulPrecision products(matmul_precision_in(precision_from_name(bench.precision)));
  const std::unique_ptr<Attention> layer = make_layer(choice, length, bench);
  layer->to(DType::f32, bench.device);
  const Shape shape{bench.batch, length, bench.width};
  Tensor x = parameter(normal(shape, 0, 1, {1, 0, 0}, DType::f32, bench.device));
  const Tensor weights = normal(shape, 0, 1, {1, 0, 1}, DType::f32, bench.device);
  std::uint32_t step = 1;
  const auto pass = [&] {
    const auto start = std::chrono::steady_clock::now();
    for (const NamedTensor& named : layer->parameters()) zero_gradient(*named.tensor);
    zero_gradient(x);
    Context context = Context::train(1, step++);
    Tensor loss = sum((*layer)({x, {}, {}, {}}, context) * weights);
    if (const Tensor own = context.auxiliary_loss(); own.defined()) loss = loss + own;
    backward(loss);
    // The device may still be computing: reading a value waits for it.
    (void)reshape(slice(gradient(x), 1, 0, 1), {-1}).to_vector<float>();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  AttentionCost cost{.ms = std::numeric_limits<double>::infinity(), .parameters = layer->parameter_count()};
  pass();  // fills caches and memory pools
  start_profile();
  pass();
  stop_profile();
  for (const ProfileRow& row : profile_rows()) cost.flops += row.flops;
  if (bench.profile && repetitions == bench.repetitions)
    std::cerr << choice.name << ", length " << length << '\n' << profile_table() << std::endl;
  reset_peak_memory(bench.device);
  // Short passes are repeated until the clock can measure their sum.
  const double least_total_ms = repetitions > 1 ? 100 : 0;
  double total = 0;
  for (std::int64_t i = 0; i < repetitions || total < least_total_ms; ++i) {
    const double ms = pass();
    cost.ms = std::min(cost.ms, ms);
    total += ms;
  }
  cost.peak_mb = static_cast<double>(memory_stats(bench.device).peak_bytes) / 1e6;
  return cost;
}

// --- one variant at several lengths

/// Prints a line of JSON, or of the table.
void print_cost(const BenchOptions& bench, const Json& json, const std::string& text) {
  std::cout << (bench.json ? json.dump() : text) << '\n';
  flush_output();
}

/// Prints the first columns, and the reason why there are no others.
void print_skipped(const BenchOptions& bench, const std::string& variant, std::int64_t length,
                   const std::string& reason) {
  print_cost(bench, {{"variant", variant}, {"length", length}, {"skipped", reason}},
             concat_text(formatted("%-30s %8lld", variant.c_str(), static_cast<long long>(length)),
                         " skipped: ", reason));
}

/// Measures one variant at ascending lengths; skips those that would need too much memory.
void bench_variant(const AttentionChoice& choice, const BenchOptions& bench) {
  std::vector<MemoryAtLength> memory;
  // Two short lengths predict what the first requested one needs.
  for (const std::int64_t length : {256, 512})
    if (bench.lengths.front() > 512)
      memory.push_back({static_cast<double>(length), measure_attention(choice, length, bench, 1).peak_mb});

  for (const std::int64_t length : bench.lengths) {
    const double expected = expected_memory(memory, static_cast<double>(length));
    if (expected > bench.memory_limit_mb) {
      print_skipped(bench, choice.name, length,
                    concat_text("needs about ", std::llround(expected), " MB, more than the limit of ",
                                std::llround(bench.memory_limit_mb), " MB (--memory-limit)"));
      continue;
    }
    const AttentionCost cost = measure_attention(choice, length, bench, bench.repetitions);
    memory.push_back({static_cast<double>(length), cost.peak_mb});
    print_cost(bench,
               {{"variant", choice.name},
                {"length", length},
                {"ms", cost.ms},
                {"peak_mb", cost.peak_mb},
                {"parameters", cost.parameters},
                {"flops", cost.flops}},
               formatted("%-30s %8lld %10.2f %10.1f %12lld %10.3f", choice.name.c_str(),
                         static_cast<long long>(length), cost.ms, cost.peak_mb,
                         static_cast<long long>(cost.parameters), cost.flops / 1e9));
  }
}

// --- the command

/// Returns the settings of each variant, which --set changes. Defaults are the variants' own, except that
/// Reformer hashes twice and ClusterFormer has sqrt(length) clusters (make_layer).
Settings variant_settings(const BenchOptions& bench) {
  Settings settings;
  for (const std::string& name : measurable_attentions())
    settings.declare_json("", Setting(name, "Options of the variant", {.kind = Setting::Kind::attention}),
                          Json{{"name", name}}.dump());
  settings.assign("reformer.rounds=2");
  for (const std::string& assignment : bench.assignments) settings.assign(assignment);
  return settings;
}

/// Returns why a variant cannot be measured; "" if it can.
std::string obstacle(const std::string& variant, const BenchOptions& bench) {
  for (const AttentionVariant& known : attention_variants())
    if (known.name == variant && bench.causal && !known.capabilities.causal)
      return concat_text("it has no causal form: ", known.capabilities.reason);
  return {};
}

void check_bench(BenchOptions& bench) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value <= 0) throw SettingsError(concat_text(name, " must be positive, not ", value));
  };
  for (const std::int64_t length : bench.lengths) positive("lengths", length);
  for (const auto& [name, value] : {std::pair("width", bench.width),
                                    {"heads", bench.heads},
                                    {"batch", bench.batch},
                                    {"repetitions", bench.repetitions}})
    positive(name, value);
  if (bench.width % bench.heads != 0)
    throw SettingsError(concat_text("width ", bench.width, " is not a multiple of ", bench.heads, " heads"));
  if (bench.threads < 0 || bench.threads > 1000)
    throw SettingsError(concat_text("threads must be 0 to 1000, not ", bench.threads));
  if (!(bench.memory_limit_mb >= 0))  // nan, too
    throw SettingsError(concat_text("memory-limit must be 0 or more megabytes, not ", bench.memory_limit_mb));
  const std::vector<std::string> known = measurable_attentions();
  if (bench.variants == std::vector<std::string>{"all"}) bench.variants = known;
  for (const std::string& name : bench.variants) check_name("attention", name, known);
  check_name("precision", bench.precision, {"f32", "high", "medium"});
}

int run_bench(BenchOptions bench) {
  check_bench(bench);
  if (bench.threads > 0) set_cpu_threads(static_cast<int>(bench.threads));
  if (bench.memory_limit_mb == 0) bench.memory_limit_mb = half_of_free_memory();
  bench.device = device_of(bench.device_flag.value("cpu"));
  if (bench.precision != "f32" && bench.device.type != DeviceType::cpu)
    throw SettingsError(concat_text("precision ", bench.precision, " is measured on the CPU only"));
  std::ranges::sort(bench.lengths);

  const Settings settings = variant_settings(bench);
  const auto choose = [&](const std::string& variant) {
    const Json choice = Json::parse(settings.json(variant));
    return transformer_config_from_json(Json{{"encoder_attention", choice}}.dump()).encoder_attention.front();
  };
  for (const std::string& variant : bench.variants) try {  // all of them, before the first is timed
      const ShapesOnly shapes;
      for (const std::int64_t length : bench.lengths)
        if (obstacle(variant, bench).empty()) make_layer(choose(variant), length, bench);
    } catch (const Error& error) {
      throw SettingsError(error.what());
    }

  if (!bench.json)
    print_cost(bench, {},
               formatted("%-30s %8s %10s %10s %12s %10s", "variant", "length", "ms", "peak MB", "parameters",
                         "GFLOP"));
  for (const std::string& variant : bench.variants) {
    if (const std::string reason = obstacle(variant, bench); reason.empty())
      bench_variant(choose(variant), bench);
    else
      print_skipped(bench, variant, bench.lengths.front(), reason);
  }
  return exit_success;
}

}  // namespace

std::function<int()> add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measures costs");
  bench->require_subcommand(1);
  CLI::App* command = bench->add_subcommand(
      "attention", "Measures time, memory, parameters and operations of every attention variant");
  auto options = std::make_shared<BenchOptions>();
  const auto add = [&](const char* flag, auto& value, const char* type, const char* help) {
    return command->add_option(flag, value, help)->type_name(type);
  };
  add("--variants", options->variants, "LIST", "all, or names separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  add("--lengths", options->lengths, "LIST", "Lengths of the sequences")
      ->delimiter(',')
      ->capture_default_str();
  add("--width", options->width, "INT", "Width d of the model")->capture_default_str();
  add("--heads", options->heads, "INT", "Heads")->capture_default_str();
  add("--batch", options->batch, "INT", "Sequences in the batch")->capture_default_str();
  add("--repetitions", options->repetitions, "INT", "Timed passes; the fastest one is reported")
      ->capture_default_str();
  add("--threads", options->threads, "INT", "Number of threads; 0: one per processor")->capture_default_str();
  add("--precision", options->precision, "NAME", "Precision of products on the CPU: f32, high or medium")
      ->capture_default_str();
  add("--memory-limit", options->memory_limit_mb, "MB",
      "Skip lengths that need more memory; 0: half of the free memory");
  command->add_flag("--causal", options->causal, "Measure the causal forms");
  add("--set", options->assignments, "VARIANT.NAME=VALUE",
      "A setting of a variant, for example reformer.rounds=4; may be repeated")
      ->allow_extra_args(false);
  options->device_flag.add(*command, "--device", "DEVICE", "Device to compute on (default: cpu)");
  command->add_flag("--profile", options->profile, "Print the time of a pass by kernel");
  command->add_flag("--json", options->json, "Print a line of JSON for each variant and length");
  command->footer(
      "Reformer hashes twice, ClusterFormer has sqrt(length) clusters, the other settings are the variants'\n"
      "defaults with max_length = length.\n"
      "Times are for a forward and a backward pass in training, without dropout.\n");
  return [options] { return run_bench(*options); };
}

}  // namespace heed::programs
