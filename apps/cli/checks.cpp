// heed gradcheck: compares every op and model with finite differences in f64, or on another device
// with the CPU. heed verify: compares the attention variants with reference cases from an
// independent implementation.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "heed/apps/cli/program.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/cases/op_cases.h"
#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/models/cases/adapters.h"
#include "heed/models/cases/model_cases.h"

namespace heed::programs {
namespace {

void print_row(const std::string& name, const std::string& error, const std::string& allowed,
               const std::string& result) {
  std::cout << std::left << std::setw(44) << name << std::setw(14) << error << std::setw(12) << allowed
            << result << std::endl;
}

/// The result of a check; `detail` describes a failure.
struct Checked {
  double worst = 0;
  bool passed = false;
  std::string detail;
};

Checked against_finite_differences(const OpCase& one) {
  // Models have many parameters and a slow forward pass: only a few elements of each.
  const auto result =
      gradcheck(one.function, one.inputs, one.tolerance, 1e-5, one.inputs.size() > 16 ? 6 : 64);
  return {result.worst_error, result.passed,
          concat_text("input ", result.worst_input, ", element ", result.worst_element, ": backward gives ",
                      result.analytic, ", finite differences ", result.numeric)};
}

// f32 against f64, relative to the largest element of a gradient.
constexpr double allowed_on_device = 1e-4;

/// Compares values and gradients in f32 on a device with f64 on the CPU: finite differences in f32 would only
/// show rounding errors.
Checked against_cpu(Device device, const OpCase& one) {
  const auto result = difference(op_results(one, DType::f32, device), op_results(one, DType::f64, {}));
  return {
      result.worst, result.worst <= allowed_on_device,
      concat_text(result.where, ": the device gives ", result.found, ", the CPU in f64 ", result.expected)};
}

/// Checks one case and prints its row; false if it failed.
bool check_case(Device device, const OpCase& one) {
  const bool on_cpu = device == Device{};
  const std::string allowed = formatted("%.2e", on_cpu ? one.tolerance : allowed_on_device);
  try {
    const Checked found = on_cpu ? against_finite_differences(one) : against_cpu(device, one);
    print_row(one.name, formatted("%.2e", found.worst), allowed,
              found.passed ? "pass" : "FAIL: " + found.detail);
    return found.passed;
  } catch (const std::exception& error) {
    print_row(one.name, "-", allowed, concat_text("FAIL: ", error.what()));
    return false;
  }
}

struct GradcheckOptions {
  TextFlag filter, device;
  std::shared_ptr<std::vector<std::string>> libraries;
};

int check_gradients(const GradcheckOptions& options) {
  load_attentions(*options.libraries);
  const Device device = device_of(options.device.value());
  const std::string filter = options.filter.value();
  std::vector<OpCase> cases = op_cases();
  for (OpCase& one : model_cases()) cases.push_back(std::move(one));
  std::erase_if(cases, [&](const OpCase& one) {
    return !one.differentiable || one.name.find(filter) == std::string::npos;
  });
  if (cases.empty()) throw SettingsError("no case's name contains \"" + filter + "\"");

  print_row("case", "worst error", "allowed", "result");
  std::size_t failed = 0;
  for (const OpCase& one : cases) failed += check_case(device, one) ? 0 : 1;
  std::cout << cases.size() - failed << " passed, " << failed << " failed" << std::endl;
  return failed > 0 ? exit_failure : exit_success;
}

}  // namespace

std::function<int()> add_gradcheck_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("gradcheck", "Checks the gradient of every op and model against finite differences");
  auto options = std::make_shared<GradcheckOptions>();
  options->filter.add(*command, "--filter", "TEXT", "Only cases whose name contains this text");
  options->device.add(*command, "--device", "DEVICE", "Device to compute on");
  options->libraries = add_load_flag(*command);
  command->footer(
      "On the CPU, gradients are compared with finite differences, both in f64. Other devices compute in "
      "f32,\nwhich is too coarse for finite differences, so their values and gradients are compared with the "
      "CPU's\nin f64.\n\nExit status: 0 all pass, 1 a case fails.\n");
  return [options] { return check_gradients(*options); };
}

namespace {

namespace fs = std::filesystem;

enum class Outcome { passed, failed, unknown };

void print_line(const char* outcome, const std::string& name, const std::string& detail) {
  std::cout << std::left << std::setw(8) << outcome << std::setw(36) << unicode::printable(name) << ' '
            << unicode::message_line(detail) << std::endl;
}

/// Runs one file and prints its line.
Outcome verify_file(const fs::path& file, DType dtype, Device device) {
  const std::string file_name = file.stem().string();
  try {
    const verify::ReferenceCase reference = verify::read_reference_case(file);
    const verify::Adapter* adapter = verify::find_adapter(reference);
    if (!adapter) {
      print_line("unknown", file_name, "variant " + reference.variant());
      return Outcome::unknown;
    }
    const verify::Deviation worst = verify::worst_deviation(reference, *adapter, dtype, device);
    const std::string problem = worst.problem.empty()
                                    ? concat_text("error ", worst.error, " (allowed ", worst.allowed, ")")
                                    : worst.problem;
    print_line(worst.passed() ? "pass" : "FAIL", file_name,
               concat_text("worst ", worst.tensor, " ", problem));
    return worst.passed() ? Outcome::passed : Outcome::failed;
  } catch (const std::exception& error) {
    print_line("FAIL", file_name, error.what());
    return Outcome::failed;
  }
}

std::vector<fs::path> reference_files(const std::string& folder, const std::string& filter) {
  std::error_code ignored;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".safetensors" &&
        entry.path().stem().string().find(filter) != std::string::npos)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

struct VerifyOptions {
  std::string folder;
  TextFlag dtype, device, filter;
};

int verify_cases(const VerifyOptions& options) {
  const Device device = device_of(options.device.value());
  const bool on_cpu = device == Device{};
  const std::string precision = options.dtype.value(on_cpu ? "f64" : "f32"), filter = options.filter.value();
  check_name("dtype", precision, {"f64", "f32"});
  if (!on_cpu && precision == "f64") throw SettingsError("f64 exists on the CPU only; use --dtype f32");
  const DType dtype = precision == "f64" ? DType::f64 : DType::f32;

  const std::vector<fs::path> files = reference_files(options.folder, filter);
  if (files.empty()) {
    std::error_code ignored;
    throw SettingsError(!fs::is_directory(options.folder, ignored)
                            ? options.folder + ": no such folder"
                            : concat_text(options.folder, ": no reference case (*.safetensors)",
                                          filter.empty() ? "" : " matches \"" + filter + "\""));
  }
  int count[3] = {0, 0, 0};
  for (const fs::path& file : files) ++count[static_cast<int>(verify_file(file, dtype, device))];
  const auto [passed, failed, unknown] = count;
  std::cout << passed << " passed, " << failed << " failed, " << unknown << " of unknown variants ("
            << precision << " on " << name_of(device) << ")" << std::endl;
  return failed + unknown > 0 ? exit_failure : exit_success;
}

}  // namespace

std::function<int()> add_verify_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify", "Compares the attention variants with reference cases");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("folder", options->folder, "Folder of reference cases, <variant>__<case>.safetensors")
      ->required()
      ->type_name("DIR");
  options->dtype.add(*command, "--dtype", "TYPE", "Precision: f64 (only on the CPU, and its default) or f32");
  options->device.add(*command, "--device", "DEVICE", "Device to compute on");
  options->filter.add(*command, "--filter", "TEXT", "Only cases whose name contains this text");
  command->footer(
      "Exit status: 0 all cases pass, 1 a case fails or names an unknown variant, 2 there are no cases.\n");
  return [options] { return verify_cases(*options); };
}

}  // namespace heed::programs
