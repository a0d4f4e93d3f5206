#pragma once

#include <CLI/CLI.hpp>
#include <functional>

// The commands of the sample programs, each of which defines those that it has. A command adds itself to the
// program and returns what to run when it was chosen; that returns the exit status.

namespace heed::programs {

std::function<int()> add_train_command(CLI::App& app);
std::function<int()> add_evaluate_command(CLI::App& app);
std::function<int()> add_predict_command(CLI::App& app);
std::function<int()> add_generate_command(CLI::App& app);

}  // namespace heed::programs
