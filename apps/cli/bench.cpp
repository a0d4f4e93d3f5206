// heed bench attention: the cost of every attention variant, and how it grows with the length.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/attention_cost.h"
#include "heed/apps/cli/program.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/base/plain_numbers.h"
#include "heed/core/device.h"
#include "heed/models/attention/attention.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::vector<std::string> variants{"all"};
  std::vector<std::int64_t> lengths{256, 512, 1024, 2048, 4096, 8192};
  TextFlag device;
  std::int64_t threads = 0;
  double memory_limit_mb = 0;  ///< 0: half of what is free
  std::vector<std::string> assignments;
  bool json = false, profile = false;
  CostSettings cost;
};

/// Half of the free memory in MB; 4000 if unknown.
double half_of_free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) {
      const std::size_t digits = std::min(line.find_first_of("0123456789"), line.size());
      const std::string_view number = std::string_view(line).substr(digits, line.find(' ', digits) - digits);
      return parsed_number(number).value_or(0) * 1024 / 1e6 / 2;
    }
  }
  return 4000;
}

/// Prints a result as a line of JSON or of a table.
class Printer {
 public:
  explicit Printer(bool json) : json_(json) {
    line(Json(), formatted("%-30s %8s %10s %10s %12s %10s", "variant", "length", "ms", "peak MB",
                           "parameters", "GFLOP"));
  }

  void cost(const std::string& variant, std::int64_t length, const AttentionCost& cost) const {
    line({{"variant", variant},
          {"length", length},
          {"ms", cost.ms},
          {"peak_mb", cost.peak_mb},
          {"parameters", cost.parameters},
          {"flops", cost.flops}},
         formatted("%-30s %8lld %10.2f %10.1f %12lld %10.3f", variant.c_str(), static_cast<long long>(length),
                   cost.ms, cost.peak_mb, static_cast<long long>(cost.parameters), cost.flops / 1e9));
  }

  void skipped(const std::string& variant, std::int64_t length, const std::string& reason) const {
    line({{"variant", variant}, {"length", length}, {"skipped", reason}},
         concat_text(formatted("%-30s %8lld", variant.c_str(), static_cast<long long>(length)),
                     " skipped: ", reason));
  }

  void growth(const std::string& variant, std::optional<double> time, std::optional<double> memory) const {
    const auto number = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
    if (time || json_)
      line({{"variant", variant}, {"time_exponent", number(time)}, {"memory_exponent", number(memory)}},
           formatted("%-30s %8s time ~ N^%.2f, memory ~ N^%.2f", variant.c_str(), "", time.value_or(0),
                     memory.value_or(0)));
  }

 private:
  void line(const Json& json, const std::string& text) const {
    if (!json_ || !json.is_null()) std::cout << (json_ ? json.dump() : text) << '\n';
    flush_output();
  }

  bool json_;
};

/// The settings of every variant, which --set changes. Defaults are the variants' own, except that Reformer
/// hashes twice and ClusterFormer has sqrt(length) clusters (attention_cost.cpp).
Settings variant_settings(const BenchOptions& options) {
  Settings settings;
  for (const std::string& name : measurable_attentions())
    settings.declare_json("", Setting(name, "Options of the variant", {.kind = Setting::Kind::attention}),
                          Json{{"name", name}}.dump());
  settings.assign("reformer.rounds=2");
  for (const std::string& assignment : options.assignments) settings.assign(assignment);
  return settings;
}

AttentionChoice make_attention_choice(const std::string& variant, const Settings& settings) {
  const Json choice = Json::parse(settings.json(variant));
  return transformer_config_from_json(Json{{"encoder_attention", choice}}.dump()).encoder_attention.front();
}

/// Why a variant cannot be measured; "" if it can.
std::string obstacle(const std::string& variant, const BenchOptions& options) {
  for (const AttentionVariant& known : attention_variants())
    if (known.name == variant && options.cost.causal && !known.capabilities.causal)
      return concat_text("it has no causal form: ", known.capabilities.reason);
  return {};
}

/// Measures one variant at ascending lengths; skips those that would need too much memory.
void bench_variant(const AttentionChoice& choice, const BenchOptions& options, const Printer& printer) {
  const std::string& variant = choice.name;
  std::vector<CostAtLength> memory, time;
  const auto remember = [&](std::int64_t length, const AttentionCost& cost) {
    memory.push_back({static_cast<double>(length), cost.peak_mb});
    time.push_back({static_cast<double>(length), cost.ms});
  };
  // Two short lengths predict what the first requested one needs.
  CostSettings once = options.cost;
  once.repetitions = 1;
  for (const std::int64_t length : {256, 512})
    if (options.lengths.front() > 512) remember(length, measure_attention(choice, length, once));
  const std::size_t probes = memory.size();

  for (const std::int64_t length : options.lengths) {
    const double expected = expected_cost(memory, static_cast<double>(length)).value_or(0);
    if (expected > options.memory_limit_mb) {
      printer.skipped(variant, length,
                      concat_text("needs about ", std::llround(expected), " MB, more than the limit of ",
                                  std::llround(options.memory_limit_mb), " MB (--memory-limit)"));
      continue;
    }
    const AttentionCost cost = measure_attention(choice, length, options.cost);
    remember(length, cost);
    printer.cost(variant, length, cost);
    if (options.profile) std::cerr << variant << ", length " << length << '\n' << cost.kernels << std::endl;
  }

  // From a length of 1024 on, fixed costs such as the projections' weights matter little.
  const auto exponent = [&](std::vector<CostAtLength> points) {
    points.erase(points.begin(), points.begin() + static_cast<std::ptrdiff_t>(probes));
    std::vector<CostAtLength> longer;
    for (const CostAtLength& point : points)
      if (point.length >= 1024) longer.push_back(point);
    return growth_exponent(longer.size() > 1 ? longer : points);
  };
  printer.growth(variant, exponent(time), exponent(memory));
}

std::vector<std::string> chosen_variants(const std::vector<std::string>& asked) {
  const std::vector<std::string> known = measurable_attentions();
  if (asked == std::vector<std::string>{"all"}) return known;
  for (const std::string& name : asked) check_name("attention", name, known);
  return asked;
}

int run(BenchOptions options) {
  const auto positive = [](const char* name, auto value) {
    if (value <= 0) throw SettingsError(concat_text(name, " must be positive, not ", value));
  };
  for (const std::int64_t length : options.lengths) positive("lengths", length);
  positive("width", options.cost.width);
  positive("heads", options.cost.heads);
  positive("batch", options.cost.batch);
  positive("repetitions", options.cost.repetitions);
  if (options.cost.width % options.cost.heads != 0)
    throw SettingsError(
        concat_text("width ", options.cost.width, " is not a multiple of ", options.cost.heads, " heads"));
  if (options.threads < 0 || options.threads > 1000)
    throw SettingsError(concat_text("threads must be 0 to 1000, not ", options.threads));
  if (options.threads > 0) set_cpu_threads(static_cast<int>(options.threads));
  if (!(options.memory_limit_mb >= 0))  // nan, too
    throw SettingsError(
        concat_text("memory-limit must be 0 or more megabytes, not ", options.memory_limit_mb));
  if (options.memory_limit_mb == 0) options.memory_limit_mb = half_of_free_memory();
  options.cost.device = device_of(options.device.value("cpu"));
  std::sort(options.lengths.begin(), options.lengths.end());

  const std::vector<std::string> variants = chosen_variants(options.variants);
  const Settings settings = variant_settings(options);
  for (const std::string& variant : variants)  // all of them, before the first is timed
    if (obstacle(variant, options).empty())
      for (const std::int64_t length : options.lengths)
        check_attention(make_attention_choice(variant, settings), length, options.cost);

  const Printer printer(options.json);
  for (const std::string& variant : variants) {
    if (const std::string reason = obstacle(variant, options); reason.empty()) {
      bench_variant(make_attention_choice(variant, settings), options, printer);
    } else {
      printer.skipped(variant, options.lengths.front(), reason);
    }
  }
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measures costs");
  bench->require_subcommand(1);
  CLI::App* command = bench->add_subcommand(
      "attention",
      "Measures time, memory, parameters and operations of every attention variant, and how they grow");
  auto options = std::make_shared<BenchOptions>();
  command->add_option("--variants", options->variants, "all, or names separated by commas")
      ->delimiter(',')
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--lengths", options->lengths, "Lengths of the sequences")
      ->delimiter(',')
      ->type_name("LIST")
      ->capture_default_str();
  const auto integer = [&](const char* flag, std::int64_t& value, const char* help) {
    command->add_option(flag, value, help)->type_name("INT")->capture_default_str();
  };
  integer("--width", options->cost.width, "Width d of the model");
  integer("--heads", options->cost.heads, "Heads");
  integer("--batch", options->cost.batch, "Sequences in the batch");
  integer("--repetitions", options->cost.repetitions, "Timed passes; the fastest one is reported");
  integer("--threads", options->threads, "Number of threads; 0: one per processor");
  command
      ->add_option("--memory-limit", options->memory_limit_mb,
                   "Skip lengths that need more memory; 0: half of the free memory")
      ->type_name("MB");
  command->add_flag("--causal", options->cost.causal, "Measure the causal forms");
  command
      ->add_option("--set", options->assignments,
                   "A setting of a variant, for example reformer.rounds=4; may be repeated")
      ->type_name("VARIANT.NAME=VALUE")
      ->allow_extra_args(false);
  options->device.add(*command, "--device", "DEVICE", "Device to compute on (default: cpu)");
  command->add_flag("--profile", options->profile, "Print the time of a pass by kernel");
  command->add_flag("--json", options->json,
                    "Print a line of JSON for each variant and length, and one for each variant");
  command->footer(
      "Reformer hashes twice, ClusterFormer has sqrt(length) clusters, the other settings are the variants'\n"
      "defaults with max_length = length.\n"
      "Times are for a forward and a backward pass in training, without dropout. Exponents are fitted to\n"
      "lengths from 1024 on.\n");
  return [options] { return run(*options); };
}

}  // namespace heed::programs
