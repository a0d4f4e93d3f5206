// heed: looks at the machine and checks the engine on it.

#include <CLI/CLI.hpp>

#include "commands.h"
#include "heed/core/version.h"
#include "heed/examples/common/program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  CLI::App app("Looks at the devices of this machine and checks the engine on them.", "heed");
  app.set_version_flag("--version", std::string("heed ") + heed::version);
  return run_commands(app, argc, argv,
                      {add_devices_command(app), add_gradcheck_command(app), add_verify_command(app),
                       add_bench_command(app), add_variants_command(app), add_report_command(app),
                       add_import_command(app), add_export_command(app), add_tune_command(app)});
}
