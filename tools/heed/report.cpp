// heed report: the report of a run again, or one of several runs side by side.

#include <CLI/CLI.hpp>
#include <iostream>

#include "commands.h"
#include "heed/core/file.h"
#include "heed/core/open_folder.h"
#include "heed/examples/common/program.h"
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
  const auto report = [&] {
    return folders.size() == 1 ? run_report(folders.front(), options) : runs_report(folders, options);
  };
  if (flags.out.given()) {
    check_output(flags.out.value(), flags.overwrite);
    write_output(flags.out.value(), report(), flags.overwrite);
    std::cout << flags.out.value() << '\n';
  } else {
    const std::string page = report();  // which says what is wrong where there is no run
    OpenFolder(folders.front()).write("report.html", page);
    std::cout << (folders.front() / "report.html").string() << '\n';
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

}  // namespace heed::programs
