// heed verify: holds the attention variants to reference cases made with an independent implementation.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "commands.h"
#include "heed/core/unicode.h"
#include "heed/examples/common/program.h"
#include "heed/tasks/recipe.h"
#include "heed/tests/cases/reference/case_check.h"

namespace heed::verify {
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
    const ReferenceCase reference = read_reference_case(file);
    const Adapter* adapter = find_adapter(reference);
    if (!adapter) {
      print_line("unknown", file_name, "variant " + reference.variant());
      return Outcome::unknown;
    }
    const Deviation worst = worst_deviation(reference, *adapter, dtype, device);
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
  std::string folder, dtype, device, filter;
};

int run(const VerifyOptions& options) {
  using namespace heed::programs;
  const Device device = device_of(options.device);
  const bool on_cpu = device == Device{};
  const std::string precision = !options.dtype.empty() ? options.dtype : on_cpu ? "f64" : "f32";
  check_name("dtype", precision, {"f64", "f32"});
  if (!on_cpu && precision == "f64") throw SettingsError("f64 exists on the CPU only; use --dtype f32");
  const DType dtype = precision == "f64" ? DType::f64 : DType::f32;

  const std::vector<fs::path> files = reference_files(options.folder, options.filter);
  if (files.empty()) {
    std::error_code ignored;
    throw SettingsError(
        !fs::is_directory(options.folder, ignored)
            ? options.folder + ": there is no such folder"
            : concat_text(options.folder, ": no reference case (*.safetensors)",
                          options.filter.empty() ? "" : " matches \"" + options.filter + "\""));
  }
  int count[3] = {0, 0, 0};
  for (const fs::path& file : files) ++count[static_cast<int>(verify_file(file, dtype, device))];
  const int passed = count[0], failed = count[1], unknown = count[2];
  std::cout << passed << " passed, " << failed << " failed, " << unknown << " of unknown variants ("
            << precision << " on " << name_of(device) << ")" << std::endl;
  if (failed > 0) return exit_failure;
  return passed > 0 ? exit_success : exit_usage;
}

}  // namespace
}  // namespace heed::verify

namespace heed::programs {

std::function<int()> add_verify_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify", "Compares the attention variants with reference cases");
  auto options = std::make_shared<verify::VerifyOptions>();
  command->add_option("folder", options->folder, "Folder of reference cases, <variant>__<case>.safetensors")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--dtype", options->dtype,
                   "Precision to compute in: f64 (the CPU only, and its default) or f32")
      ->type_name("TYPE");
  command->add_option("--device", options->device, "Device to compute on")
      ->type_name("DEVICE")
      ->capture_default_str();
  command->add_option("--filter", options->filter, "Only cases whose name contains this text")
      ->type_name("TEXT");
  command->footer("Exit status: 0 all known cases pass, 1 a case fails, 2 no case was run.\n");
  return [options] { return verify::run(*options); };
}

}  // namespace heed::programs
