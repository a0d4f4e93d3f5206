// heed report: the report of a run again, or one of several runs side by side.

#include <CLI/CLI.hpp>
#include <iostream>

#include "commands.h"
#include "heed/base/file.h"
#include "heed/examples/common/program.h"
#include "heed/hub/exchange.h"
#include "heed/tasks/report.h"

namespace heed::programs {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  TextFlag out, device;
  bool overwrite = false, unverified = false;
};

int write_report(const ReportFlags& flags) {
  if (flags.runs.size() > 1 && !flags.out.given())
    throw SettingsError("give --out FILE: the report of several runs belongs into none of them");
  const ReportOptions options{flags.device.value(), !flags.unverified, nullptr};
  const std::vector<std::filesystem::path> folders(flags.runs.begin(), flags.runs.end());
  if (flags.out.given()) {
    check_output(flags.out.value(), flags.overwrite);
    write_output(flags.out.value(),
                 folders.size() == 1 ? run_report(folders.front(), options) : runs_report(folders, options),
                 flags.overwrite);
    std::cout << flags.out.value() << '\n';
  } else {
    std::cout << write_run_report(folders.front(), options).string() << '\n';
  }
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_report_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("report", "Writes the report of a run again, or one of several runs side by side");
  auto flags = std::make_shared<ReportFlags>();
  command->add_option("runs", flags->runs, "Folders of runs")->required()->type_name("RUN");
  flags->out.add(*command, "--out", "FILE", "Where to; of one run RUN/report.html unless named here");
  flags->device.add(*command, "--device", "DEVICE",
                    "Device to compute on, that of the run unless named here");
  command->add_flag("--overwrite", flags->overwrite, "Replaces the file of --out when it exists");
  command->add_flag("--unverified", flags->unverified,
                    "Uses files of the runs even where they were changed after they were written");
  return [flags] { return write_report(*flags); };
}

// heed import, heed export: published models become runs, and runs published models.

namespace {

struct ExchangeFlags {
  std::string from;
  TextFlag out, dtype, format;
};

StoredFloat stored_float(const std::string& name) {
  if (name == "f32") return StoredFloat::f32;
  if (name == "f16") return StoredFloat::f16;
  if (name == "bf16") return StoredFloat::bf16;
  throw SettingsError("--dtype: \"" + name + "\" is not f32, f16 or bf16");
}

int print(const ExchangeReport& report, const std::string& out) {
  for (const std::string& text : report.remarks) print_message("heed", text);
  std::cout << report.architecture << ", " << report.task << " run, " << report.parameters
            << " parameters: " << out << '\n';
  flush_output();
  return exit_success;
}

const std::string& needed(const TextFlag& out, const char* what, std::string& value) {
  if (!out.given()) throw SettingsError(std::string(what) + " needs --out");
  value = out.value();
  return value;
}

}  // namespace

std::function<int()> add_import_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "import",
      "Makes a run of a published model: GPT-2, BERT (MiniLM) or Marian, as Hugging Face keeps them");
  auto flags = std::make_shared<ExchangeFlags>();
  command->add_option("folder", flags->from, "Folder with config.json, model.safetensors and tokenizer.json")
      ->required()
      ->type_name("FOLDER");
  flags->out.add(*command, "--out", "RUN", "Folder of the run");
  return [flags] {
    std::string out;
    return print(import_run(flags->from, needed(flags->out, "import", out)), out);
  };
}

std::function<int()> add_export_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "export", "Writes a run as a published model, for Hugging Face's transformers or for CTranslate2");
  auto flags = std::make_shared<ExchangeFlags>();
  command->add_option("run", flags->from, "Folder of the run")->required()->type_name("RUN");
  flags->out.add(*command, "--out", "FOLDER", "Where to, a new folder");
  flags->format.add(*command, "--format", "NAME", "hf (the default) or ctranslate2");
  flags->dtype.add(*command, "--dtype", "TYPE", "How weights are stored: f32 (the default), f16 or bf16");
  return [flags] {
    std::string out;
    const StoredFloat stored = stored_float(flags->dtype.value("f32"));
    const std::string format = flags->format.value("hf");
    if (format == "ctranslate2") {
      if (flags->dtype.given())
        throw SettingsError("--dtype is of --format hf: CTranslate2 converts weights when it loads them");
      return print(export_ctranslate2(flags->from, needed(flags->out, "export", out)), out);
    }
    if (format != "hf") throw SettingsError("--format: \"" + format + "\" is not hf or ctranslate2");
    return print(export_run(flags->from, needed(flags->out, "export", out), stored), out);
  };
}

}  // namespace heed::programs
