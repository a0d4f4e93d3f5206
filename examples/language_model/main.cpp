// language_model: trains a decoder-only Transformer on text, measures it, and writes text with it.

#include "../common/commands.h"
#include "../common/program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  CLI::App app(
      "Trains a decoder-only Transformer on text, measures it, and writes text with it.\n"
      "Without data flags it learns English sentences made by rule, a text that it brings along.",
      "language_model");
  return run_commands(app, argc, argv,
                      {add_train_command(app), add_evaluate_command(app), add_generate_command(app)});
}
