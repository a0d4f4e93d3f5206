#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

// Each function adds a command to the program and returns its body, which returns the exit status.

namespace CLI {
class App;
}

namespace heed::programs {

/// Adds --load, the libraries that load_attentions() opens.
std::shared_ptr<std::vector<std::string>> add_load_flag(CLI::App& command);
/// Opens shared libraries whose attentions register themselves, and returns the names of these. Throws a
/// SettingsError for one that cannot be opened or registers nothing.
std::vector<std::string> load_attentions(const std::vector<std::string>& libraries);

std::function<int()> add_bench_command(CLI::App& app);
std::function<int()> add_devices_command(CLI::App& app);
std::function<int()> add_export_command(CLI::App& app);
std::function<int()> add_gradcheck_command(CLI::App& app);
std::function<int()> add_import_command(CLI::App& app);
std::function<int()> add_report_command(CLI::App& app);
std::function<int()> add_serve_command(CLI::App& app);
std::function<int()> add_tune_command(CLI::App& app);
std::function<int()> add_variants_command(CLI::App& app);
std::function<int()> add_verify_command(CLI::App& app);

}  // namespace heed::programs
