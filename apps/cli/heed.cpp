// heed: devices, checks of the engine, comparisons, reports and published models. The commands are in this
// folder; devices, tune-gpu, report, import and export are here.

#include <CLI/CLI.hpp>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

#include "heed/apps/cli/program.h"
#include "heed/apps/hub/exchange.h"
#include "heed/apps/tasks/report.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/core/device.h"
#include "heed/core/low_precision.h"

namespace heed::programs {
namespace {

/// Returns the processor's name as the kernel reports it, or "unknown processor".
std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string blas_description() {
  try {
    return "OpenBLAS, kernels for " + blas_core_name();
  } catch (const Error& error) {
    return concat_text("not usable: ", error.what());
  }
}

void print_fact(const std::string& name, const auto& value) {
  std::cout << "  " << std::left << std::setw(18) << name << value << '\n';
}

void print_cpu() {
  const CpuInfo cpu = cpu_info();
  std::cout << "cpu  " << processor_model() << '\n';
  print_fact("processors", cpu.processors);
  print_fact("threads", cpu.threads);
  print_fact("kernels", cpu.simd_target);
  print_fact("products in f32", cpu.own_products ? "own kernels" : blas_description());
  print_fact("products in f64", blas_description());
  const std::string lower = matmul_instructions(MatmulPrecision::medium);
  print_fact("products in bf16", lower.empty() ? "no faster than f32, so not used" : lower);
}

std::string matrix_hardware_state(Device device) {
  try {
    return matrix_hardware_use(device);
  } catch (const Error& error) {
    return concat_text("the device cannot be opened: ", error.what());
  }
}

void print_vulkan() {
  const VulkanDevices& vulkan = vulkan_devices();
  if (vulkan.devices.empty()) std::cout << "vulkan  none: " << vulkan.problem << '\n';
  for (const DeviceInfo& info : vulkan.devices) {
    std::cout << info.device << "  " << info.name << " (" << info.kind << ")\n";
    if (!info.refusal.empty()) print_fact("refused", info.refusal);
    for (const auto& [name, value] : info.facts) print_fact(name, value);
    if (info.refusal.empty()) print_fact("matrix hardware", matrix_hardware_state(info.device));
  }
}

int list_devices() {
  print_cpu();
  print_vulkan();
  return 0;
}

int tune(const std::string& choice) {
  const Device device = find_device(choice);
  std::cout << device_platform(device) << '\n' << std::flush;
  std::cout << tune_device(device).string() << ": used from the next start\n";
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_tune_gpu_command(CLI::App& app) {
  CLI::App& command = subcommand(
      app, "tune-gpu",
      "Times the tile sizes of matrix products on a Vulkan device and saves the fastest ones for later use");
  auto device = std::make_shared<TextFlag>();
  device->add(command, "--device", "DEVICE", "vulkan, vulkan:N or vulkan:NAME (the default: vulkan)");
  return [device] { return tune(device->value("vulkan")); };
}

std::function<int()> add_devices_command(CLI::App& app) {
  app.add_subcommand("devices", "Lists the available devices");
  return list_devices;
}

// heed report: rewrites the report of a run, or compares several runs in one.

namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  OutputFlag out;
  TextFlag device;
  bool unverified = false;
};

int write_report(const ReportFlags& flags) {
  if (flags.runs.size() > 1 && !flags.out.given())
    throw SettingsError("give --out FILE for a report of several runs");
  flags.out.check();
  const ReportOptions options{flags.device.value(), !flags.unverified, nullptr};
  const std::vector<std::filesystem::path> folders(flags.runs.begin(), flags.runs.end());
  if (flags.out.given()) {
    write_output(flags.out.value(),
                 folders.size() == 1 ? run_report(folders.front(), options) : runs_report(folders, options),
                 flags.out.overwrite);
    std::cout << flags.out.value() << '\n';
  } else {
    std::cout << write_run_report(folders.front(), options).string() << '\n';
  }
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "report", "Rewrites the report of a run, or writes one for several runs side by side");
  auto flags = std::make_shared<ReportFlags>();
  command->add_option("runs", flags->runs, "Folders of runs")->required()->type_name("RUN");
  flags->out.add(*command, "--out", "Output file; default for one run: RUN/report.html");
  flags->device.add(*command, "--device", "DEVICE", "Device to compute on (default: the run's device)");
  command->add_flag("--unverified", flags->unverified,
                    "Also accepts files that were changed after the runs wrote them");
  return [flags] { return write_report(*flags); };
}

// heed import, heed export: published models become runs and the reverse.

namespace {

struct ExchangeFlags {
  std::string from;
  TextFlag out, dtype;
};

int print(const ExchangeReport& report, const std::string& out) {
  for (const std::string& text : report.remarks) print_message("heed", text);
  std::cout << report.architecture << ", " << report.task << " run, " << report.parameters
            << " parameters: " << out << '\n';
  flush_output();
  return exit_success;
}

std::string needed(const TextFlag& out, const char* command) {
  if (!out.given()) throw SettingsError(std::string(command) + " needs --out");
  return out.value();
}

}  // namespace

std::function<int()> add_import_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import",
                                         "Converts a published model in Hugging Face's layout to a run: "
                                         "Llama and similar, GPT-2, BERT and similar (MiniLM), or Marian");
  auto flags = std::make_shared<ExchangeFlags>();
  command->add_option("folder", flags->from, "Folder with config.json, model.safetensors and tokenizer.json")
      ->required()
      ->type_name("FOLDER");
  flags->out.add(*command, "--out", "RUN", "Folder of the run");
  return [flags] {
    const std::string out = needed(flags->out, "import");
    return print(import_run(flags->from, out), out);
  };
}

std::function<int()> add_export_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("export", "Converts a run to a model for Hugging Face's transformers");
  auto flags = std::make_shared<ExchangeFlags>();
  command->add_option("run", flags->from, "Folder of the run")->required()->type_name("RUN");
  flags->out.add(*command, "--out", "FOLDER", "New folder to write");
  flags->dtype.add(*command, "--dtype", "TYPE", "Type of the stored weights: f32 (the default), f16 or bf16");
  return [flags] {
    const std::string out = needed(flags->out, "export");
    return print(export_run(flags->from, out, stored_float(flags->dtype.value("f32"))), out);
  };
}

}  // namespace heed::programs

int main(int argc, char** argv) {
  using namespace heed::programs;
  CLI::App app(
      "Lists devices, checks the engine, compares models, writes reports, and imports and exports published "
      "models.",
      "heed");
  return run_commands(
      app, argc, argv,
      {add_devices_command(app), add_gradcheck_command(app), add_verify_command(app), add_bench_command(app),
       add_variants_command(app), add_report_command(app), add_serve_command(app), add_import_command(app),
       add_export_command(app), add_compare_command(app), add_tune_gpu_command(app)});
}
