// classify: trains a Transformer encoder to tell classes of text, and tells them with it.

#include "../common/commands.h"
#include "../common/program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  CLI::App app(
      "Trains a Transformer encoder to tell classes of text, measures it, and labels texts with it.\n"
      "Without data flags it learns the values of short ListOps expressions, which it makes by rule.",
      "classify");
  return run_commands(app, argc, argv,
                      {add_train_command(app), add_evaluate_command(app), add_predict_command(app)});
}
