// heed report: rewrites the report of a run, or compares several runs in one.

#include <CLI/CLI.hpp>
#include <iostream>

#include "heed/apps/cli/program.h"
#include "heed/apps/hub/exchange.h"
#include "heed/apps/tasks/report.h"
#include "heed/base/file.h"

namespace heed::programs {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  OutputFlag out;
  TextFlag device;
  bool unverified = false;
};

int write_report(const ReportFlags& flags) {
  if (flags.runs.size() > 1 && !flags.out.given())
    throw SettingsError("give --out FILE for a report of several runs");
  flags.out.check();
  const ReportOptions options{flags.device.value(), !flags.unverified, nullptr};
  const std::vector<std::filesystem::path> folders(flags.runs.begin(), flags.runs.end());
  if (flags.out.given()) {
    write_output(flags.out.value(),
                 folders.size() == 1 ? run_report(folders.front(), options) : runs_report(folders, options),
                 flags.out.overwrite);
    std::cout << flags.out.value() << '\n';
  } else {
    std::cout << write_run_report(folders.front(), options).string() << '\n';
  }
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "report", "Rewrites the report of a run, or writes one for several runs side by side");
  auto flags = std::make_shared<ReportFlags>();
  command->add_option("runs", flags->runs, "Folders of runs")->required()->type_name("RUN");
  flags->out.add(*command, "--out", "Output file; default for one run: RUN/report.html");
  flags->device.add(*command, "--device", "DEVICE", "Device to compute on (default: the run's device)");
  command->add_flag("--unverified", flags->unverified,
                    "Also accepts files that were changed after the runs wrote them");
  return [flags] { return write_report(*flags); };
}

// heed import, heed export: published models become runs and the reverse.

namespace {

struct ExchangeFlags {
  std::string from;
  TextFlag out, dtype;
};

StoredFloat stored_float(const std::string& name) {
  check_name("--dtype", name, {"f32", "f16", "bf16"});
  return name == "f32" ? StoredFloat::f32 : name == "f16" ? StoredFloat::f16 : StoredFloat::bf16;
}

int print(const ExchangeReport& report, const std::string& out) {
  for (const std::string& text : report.remarks) print_message("heed", text);
  std::cout << report.architecture << ", " << report.task << " run, " << report.parameters
            << " parameters: " << out << '\n';
  flush_output();
  return exit_success;
}

std::string needed(const TextFlag& out, const char* command) {
  if (!out.given()) throw SettingsError(std::string(command) + " needs --out");
  return out.value();
}

}  // namespace

std::function<int()> add_import_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import",
                                         "Converts a published model in Hugging Face's layout to a run: "
                                         "Llama and similar, GPT-2, BERT and similar (MiniLM), or Marian");
  auto flags = std::make_shared<ExchangeFlags>();
  command->add_option("folder", flags->from, "Folder with config.json, model.safetensors and tokenizer.json")
      ->required()
      ->type_name("FOLDER");
  flags->out.add(*command, "--out", "RUN", "Folder of the run");
  return [flags] {
    const std::string out = needed(flags->out, "import");
    return print(import_run(flags->from, out), out);
  };
}

std::function<int()> add_export_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("export", "Converts a run to a model for Hugging Face's transformers");
  auto flags = std::make_shared<ExchangeFlags>();
  command->add_option("run", flags->from, "Folder of the run")->required()->type_name("RUN");
  flags->out.add(*command, "--out", "FOLDER", "New folder to write");
  flags->dtype.add(*command, "--dtype", "TYPE", "Type of the stored weights: f32 (the default), f16 or bf16");
  return [flags] {
    const std::string out = needed(flags->out, "export");
    return print(export_run(flags->from, out, stored_float(flags->dtype.value("f32"))), out);
  };
}

}  // namespace heed::programs
