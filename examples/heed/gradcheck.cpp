// heed gradcheck: every op and model against finite differences, in f64.

#include <iomanip>
#include <iostream>

#include "../common/program.h"
#include "commands.h"
#include "heed/autograd/autograd.h"
#include "heed/core/error.h"
#include "heed/tests/cases/model_cases.h"
#include "heed/tests/cases/op_cases.h"

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

int run(const std::string& filter) {
  std::vector<OpCase> cases = op_cases();
  for (OpCase& one : model_cases()) cases.push_back(std::move(one));
  std::erase_if(cases, [&](const OpCase& one) {
    return !one.differentiable || one.name.find(filter) == std::string::npos;
  });
  if (cases.empty()) throw UsageError("no case's name contains \"" + filter + "\"");

  print_header();
  std::size_t failed = 0;
  for (const OpCase& one : cases) failed += check_case(one) ? 0 : 1;
  std::cout << cases.size() - failed << " passed, " << failed << " failed" << std::endl;
  return failed > 0 ? exit_failure : exit_success;
}

}  // namespace

std::function<int()> add_gradcheck_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("gradcheck", "Checks the gradient of every op and model against finite differences");
  auto filter = std::make_shared<std::string>();
  command->add_option("--filter", *filter, "Only cases whose name contains this text")->type_name("TEXT");
  command->footer("Exit status: 0 all pass, 1 a case fails.\n");
  return [filter] { return run(*filter); };
}

}  // namespace heed::programs
