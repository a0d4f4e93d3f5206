// heed: looks at the devices of this machine and checks the engine on them. The commands are in this folder;
// devices, tune and variants are here.

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

#include "commands.h"
#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/examples/common/program.h"
#include "heed/tests/cases/attention_capabilities.h"

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

std::function<int()> add_tune_command(CLI::App& app) {
  CLI::App& command =
      subcommand(app, "tune",
                 "Times the tile sizes of matrix products on a Vulkan device and saves the results, so that "
                 "products use the fastest");
  auto device = std::make_shared<TextFlag>();
  device->add(command, "--device", "DEVICE", "vulkan, vulkan:N or vulkan:NAME (the default: vulkan)");
  return [device] { return tune(device->value("vulkan")); };
}

std::function<int()> add_devices_command(CLI::App& app) {
  app.add_subcommand("devices", "Lists the devices that computations can run on");
  return list_devices;
}

std::shared_ptr<std::vector<std::string>> add_load_flag(CLI::App& command) {
  auto libraries = std::make_shared<std::vector<std::string>>();
  command
      .add_option(
          "--load", *libraries,
          "A shared library whose attentions register themselves (register_attention) when it is opened")
      ->type_name("FILE");
  return libraries;
}

namespace {

std::string opened_library;

/// dlopen() lets no exception of a library's global objects pass: the program ends, but says why.
[[noreturn]] void end_with_thrown() {
  std::string what = "an exception";
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // anything else has no message
  }
  try {
    throw SettingsError(concat_text("--load ", opened_library, ": it threw while it was opened: ", what));
  } catch (const SettingsError&) {
    std::_Exit(report_exception("heed"));
  }
}

}  // namespace

std::vector<std::string> load_attentions(const std::vector<std::string>& libraries) {
  std::vector<std::string> names;
  for (const std::string& library : libraries) {
    const std::size_t before = attention_variants().size();
    opened_library = library;
    const std::terminate_handler handler = std::set_terminate(end_with_thrown);
    // Absolute, since dlopen looks for a bare name in the system's folders only.
    const void* const opened = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_GLOBAL);
    std::set_terminate(handler);
    if (!opened) throw SettingsError(concat_text("--load: ", dlerror()));
    const auto added = attention_variants().subspan(before);
    if (added.empty())
      throw SettingsError(concat_text("--load ", library,
                                      ": it registers no attention; call "
                                      "heed::register_attention() in the initial value of a global"));
    for (const AttentionVariant& variant : added) names.emplace_back(variant.name);
  }
  return names;
}

namespace {

/// Attentions that were loaded are held to their word, too.
int list_variants(bool markdown, const std::vector<std::string>& libraries) {
  const std::vector<std::string> loaded = load_attentions(libraries);
  std::cout << capability_table(try_all_capabilities(), markdown);
  int status = exit_success;
  for (const std::string& name : loaded) try {
      heed::check_attention(name);  // not the one that measures
    } catch (const Error& error) {
      std::cout << error.what() << '\n';
      status = exit_failure;
    }
  flush_output();
  return status;
}

}  // namespace

std::function<int()> add_variants_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("variants", "Lists the attention variants and tries what each can do");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "The table as in docs/reference/attention.md");
  command->footer(
      "causal         strictly: later tokens do not change earlier outputs; values: later values have no\n"
      "               influence, but later tokens may decide which earlier ones are seen; -: no causal form\n"
      "cross          keys and values from a memory; not by step: for whole sequences, not for decoding\n"
      "padding        masked tokens change nothing, and their outputs are 0\n"
      "any length     no parameter depends on the length: max_length is not needed\n"
      "rotary, alibi, relative: the model.positions that it supports\n"
      "deterministic  no random numbers in inference: the same input gives the same output\n\n"
      "Attentions of a library (--load) are held to what they declare; exit status 1 where one breaks it.\n");
  return [markdown, libraries = add_load_flag(*command)] { return list_variants(*markdown, *libraries); };
}

}  // namespace heed::programs

int main(int argc, char** argv) {
  using namespace heed::programs;
  CLI::App app("Looks at the devices of this machine and checks the engine on them.", "heed");
  return run_commands(
      app, argc, argv,
      {add_devices_command(app), add_gradcheck_command(app), add_verify_command(app), add_bench_command(app),
       add_variants_command(app), add_report_command(app), add_serve_command(app), add_import_command(app),
       add_export_command(app), add_tune_command(app)});
}
