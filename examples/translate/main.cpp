// translate: trains an encoder-decoder Transformer on pairs of sentences, and translates with it.

#include "../common/commands.h"
#include "../common/program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  CLI::App app(
      "Trains an encoder-decoder Transformer on pairs of sentences, measures it, and translates with it.\n"
      "Without data flags it learns English number words to German ones, a data set that it brings along.",
      "translate");
  return run_commands(app, argc, argv,
                      {add_train_command(app), add_evaluate_command(app), add_predict_command(app)});
}
