// heed gradcheck: every op and model against finite differences in f64; on another device than the CPU
// against the CPU's gradients.

#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "commands.h"
#include "heed/autograd/autograd.h"
#include "heed/core/error.h"
#include "heed/examples/common/program.h"
#include "heed/tasks/recipe.h"
#include "heed/tests/cases/model_cases.h"
#include "heed/tests/cases/op_cases.h"
#include "heed/tests/cases/op_results.h"

namespace heed::programs {
namespace {

void print_header() {
  std::cout << std::left << std::setw(44) << "case" << std::setw(14) << "worst error" << std::setw(12)
            << "allowed"
            << "result\n";
}

void print_row(const std::string& name, const std::string& error, const std::string& allowed,
               const std::string& result) {
  std::cout << std::left << std::setw(44) << name << std::setw(14) << error << std::setw(12) << allowed
            << result << std::endl;
}

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(2) << std::scientific << value;
  return text.str();
}

/// Models have many parameters, and their forward pass is dear: a few elements of each.
std::int64_t elements_to_check(const OpCase& one) {
  return one.inputs.size() > 16 ? 6 : 64;
}

/// Checks one case and prints its row; false when it failed.
bool check_case(const OpCase& one) {
  const std::string allowed = short_number(one.tolerance);
  try {
    const GradcheckResult result =
        gradcheck(one.function, one.inputs, one.tolerance, 1e-5, elements_to_check(one));
    const std::string detail =
        concat_text("FAIL: input ", result.worst_input, ", element ", result.worst_element,
                    ": backward gives ", result.analytic, ", finite differences ", result.numeric);
    print_row(one.name, short_number(result.worst_error), allowed, result.passed ? "pass" : detail);
    return result.passed;
  } catch (const std::exception& error) {
    print_row(one.name, "-", allowed, concat_text("FAIL: ", error.what()));
    return false;
  }
}

// Of f32 against f64, relative to the largest element of a gradient.
constexpr double allowed_on_device = 1e-4;

/// Compares values and gradients in f32 on a device with those in f64 on the CPU. Finite differences in f32
/// would show rounding errors only.
bool check_case_on(Device device, const OpCase& one) {
  const std::string allowed = short_number(allowed_on_device);
  try {
    const ResultDifference result =
        difference(op_results(one, DType::f32, device), op_results(one, DType::f64, {}));
    const bool passed = result.worst <= allowed_on_device;
    print_row(one.name, short_number(result.worst), allowed,
              passed ? "pass"
                     : concat_text("FAIL: ", result.where, ": the device gives ", result.found,
                                   ", the CPU in f64 ", result.expected));
    return passed;
  } catch (const std::exception& error) {
    print_row(one.name, "-", allowed, concat_text("FAIL: ", error.what()));
    return false;
  }
}

struct GradcheckOptions {
  std::string filter, device;
};

int run(const GradcheckOptions& options) {
  const Device device = device_of(options.device);
  std::vector<OpCase> cases = op_cases();
  for (OpCase& one : model_cases()) cases.push_back(std::move(one));
  std::erase_if(cases, [&](const OpCase& one) {
    return !one.differentiable || one.name.find(options.filter) == std::string::npos;
  });
  if (cases.empty()) throw SettingsError("no case's name contains \"" + options.filter + "\"");

  print_header();
  std::size_t failed = 0;
  for (const OpCase& one : cases)
    failed += (device == Device{} ? check_case(one) : check_case_on(device, one)) ? 0 : 1;
  std::cout << cases.size() - failed << " passed, " << failed << " failed" << std::endl;
  return failed > 0 ? exit_failure : exit_success;
}

}  // namespace

std::function<int()> add_gradcheck_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("gradcheck", "Checks the gradient of every op and model against finite differences");
  auto options = std::make_shared<GradcheckOptions>();
  command->add_option("--filter", options->filter, "Only cases whose name contains this text")
      ->type_name("TEXT");
  command->add_option("--device", options->device, "Device to compute on")
      ->type_name("DEVICE")
      ->capture_default_str();
  command->footer(
      "On the CPU the gradients are compared with finite differences, both in f64. Another device computes "
      "in\n"
      "f32, where finite differences say nothing: its values and gradients are compared with those of the "
      "CPU\n"
      "in f64.\n\n"
      "Exit status: 0 all pass, 1 a case fails.\n");
  return [options] { return run(*options); };
}

}  // namespace heed::programs
