// heed devices: what computations can run on.

#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

#include "commands.h"
#include "heed/core/cpu_info.h"
#include "heed/core/error.h"

namespace heed::programs {
namespace {

/// The processor's name as the kernel reports it; "unknown processor" elsewhere.
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

int list_devices() {
  const CpuInfo cpu = cpu_info();
  const auto row = [](const char* name, const auto& value) {
    std::cout << "  " << std::left << std::setw(18) << name << value << '\n';
  };
  std::cout << "cpu  " << processor_model() << '\n';
  row("processors", cpu.processors);
  row("threads", cpu.threads);
  row("element kernels", cpu.simd_target);
  row("matrix products", blas_description());
  std::cout << "vulkan  none: this build has no Vulkan backend\n";
  return 0;
}

}  // namespace

std::function<int()> add_devices_command(CLI::App& app) {
  app.add_subcommand("devices", "Lists the devices that computations can run on");
  return list_devices;
}

}  // namespace heed::programs
