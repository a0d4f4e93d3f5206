// The sample programs and the heed tool, linked with an application's own mechanism.

#include "program_runner.h"
#include "support.h"
#include "temporary_folder.h"

TEST_CASE("own attention: a translator is trained with it in both stacks, resumed and asked") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  const ProgramResult help = run_program("own_translate", {"train", "--help"});
  CHECK(contains(help.output, "alibi"));
  const Arguments train = joined({"train", "--attention", "alibi", "--out", run, "--threads", "1"},
                                 {"--set", "model.width=16", "--set", "model.heads=2"});
  const ProgramResult trained = run_program(
      "own_translate", joined(train, {"--set", "model.decoder_attention.slope=4", "--steps", "4"}));
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  const ProgramResult resumed =
      run_program("own_translate", {"train", "--resume", "--out", run, "--steps", "6"});
  REQUIRE_MESSAGE(resumed.status == 0, resumed.errors);
  const ProgramResult answered = run_program("own_translate", {"predict", "--run", run}, "seven\n");
  CHECK_MESSAGE(answered.status == 0, answered.errors);
  // Without the mechanism the run cannot be opened, and the program says what it lacks.
  const ProgramResult elsewhere =
      run_program(HEED_PROGRAM_DIR "/../../bin/translate", {"predict", "--run", run}, "seven\n");
  CHECK(elsewhere.status != 0);
  CHECK(contains(elsewhere.errors, "alibi"));
}

TEST_CASE("own attention: the heed tool lists, checks and measures it") {
  const ProgramResult listed = run_program("own_heed", {"variants"});
  REQUIRE_MESSAGE(listed.status == 0, listed.errors);
  CHECK(contains(listed.output, "\nalibi "));
  const ProgramResult measured =
      run_program("own_heed", {"bench", "attention", "--variants", "alibi", "--lengths", "16", "--json"});
  REQUIRE_MESSAGE(measured.status == 0, measured.errors);
  CHECK(contains(measured.output, "\"alibi\""));
  const ProgramResult checked = run_program("own_heed", {"gradcheck", "--filter", "attention/alibi/"});
  REQUIRE_MESSAGE(checked.status == 0, checked.errors);
  CHECK(contains(checked.output, "attention/alibi/causal"));
  CHECK(contains(checked.output, "2 passed, 0 failed"));
}

TEST_CASE("own attention: the heed tool opens a library of it, and says what is wrong with one") {
  const std::string tool = HEED_PROGRAM_DIR "/../../bin/heed", library = HEED_PROGRAM_DIR "/own_alibi.so";
  const ProgramResult listed = run_program(tool, {"variants", "--load", library});
  REQUIRE_MESSAGE(listed.status == 0, listed.errors);
  CHECK(contains(listed.output, "\nalibi "));
  const ProgramResult checked =
      run_program(tool, {"gradcheck", "--load", library, "--filter", "attention/alibi/"});
  REQUIRE_MESSAGE(checked.status == 0, checked.errors);
  CHECK(contains(checked.output, "2 passed, 0 failed"));
  const ProgramResult twice = run_program(tool, {"variants", "--load", library, library});
  CHECK(twice.status == 2);
  CHECK_MESSAGE(contains(twice.errors, "own_alibi.so: it registers no attention"), twice.errors);
  const ProgramResult missing = run_program(tool, {"variants", "--load", "none.so"});
  CHECK(missing.status == 2);
  CHECK_MESSAGE(contains(missing.errors, "none.so: cannot open shared object file"), missing.errors);
  const ProgramResult thrown = run_program(tool, {"variants", "--load", HEED_PROGRAM_DIR "/own_throws.so"});
  CHECK(thrown.status == 2);
  CHECK_MESSAGE(contains(thrown.errors, "own_throws.so: it threw while it was loaded: its table is missing"),
                thrown.errors);
}
