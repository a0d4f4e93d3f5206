// heed: devices, checks of the engine, comparisons, reports and published models. The commands are in this
// folder; devices and tune-gpu are here.

#include <CLI/CLI.hpp>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

#include "heed/apps/cli/program.h"
#include "heed/base/error.h"
#include "heed/core/device.h"

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
