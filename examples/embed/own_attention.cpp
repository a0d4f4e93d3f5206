// How an application brings its own attention mechanism into heed's models: alibi.cpp, linked with this
// program, is checked, trained as part of a classifier by its name, and found again in the run that this
// leaves.
//
//   own_attention

#include <heed/heed.h>

#include <filesystem>
#include <iostream>

namespace {

/// A classifier of the data that heed makes by rule, in the folder, with this mechanism in its encoder.
void train(const std::filesystem::path& folder) {
  heed::Settings settings = heed::task_entry("classify").settings(false);
  settings.assign("model.encoder_attention=alibi");
  settings.assign("model.encoder_attention.slope=4");
  settings.assign("model.width=16");
  settings.assign("model.heads=2");
  settings.assign("training.steps=20");
  heed::TrainRequest request{folder};
  request.callbacks.progress = [](const heed::Progress& at) { std::cout << heed::progress_text(at) << '\n'; };
  heed::train(heed::task_entry("classify"), settings, request);

  auto run = heed::Run::open(folder);
  std::cout << "the run says: " << run.settings().json("model.encoder_attention") << '\n';
  for (const heed::Prediction& answer : run.predict({"[ MAX 2 9 ]", "[ MIN 4 3 ]"}))
    std::cout << answer.text << '\n';
}

}  // namespace

int main() {
  try {
    const heed::TemporaryFolder folder;
    heed::check_attention("alibi");  // causality, padding, gradients, ...: an error names what does not hold
    train(folder / "run");
    return 0;
  } catch (const heed::Error& error) {
    std::cerr << "own_attention: " << error.what() << '\n';
    return 1;
  }
}
