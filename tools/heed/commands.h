#pragma once

#include <functional>

// Each function adds a command to the program and returns its body, which returns the exit status.

namespace CLI {
class App;
}

namespace heed::programs {

std::function<int()> add_bench_command(CLI::App& app);
std::function<int()> add_devices_command(CLI::App& app);
std::function<int()> add_export_command(CLI::App& app);
std::function<int()> add_gradcheck_command(CLI::App& app);
std::function<int()> add_import_command(CLI::App& app);
std::function<int()> add_report_command(CLI::App& app);
std::function<int()> add_tune_command(CLI::App& app);
std::function<int()> add_variants_command(CLI::App& app);
std::function<int()> add_verify_command(CLI::App& app);

}  // namespace heed::programs
