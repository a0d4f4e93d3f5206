// How an application brings its own attention mechanism into heed's models: alibi.cpp, linked with this
// program, is checked, trained as part of a classifier by its name, and found again in the run that this
// leaves.
//
//   own_attention

#include <heed/heed.h>

#include <filesystem>
#include <iostream>
#include <memory>

namespace {

/// Compares the layer's gradients with finite differences, in double precision.
bool alibi_is_right() {
  heed::AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.causal = true;
  const std::unique_ptr<heed::Attention> layer = heed::make_attention("alibi", config);
  layer->to(heed::DType::f64, {});
  const auto result = heed::gradcheck(
      [&](auto in) {
        heed::Context context = heed::Context::inference();
        return (*layer)({in[0]}, context);
      },
      {heed::normal({2, 5, 8}, 0, 1, {1, 0, 0}, heed::DType::f64)});
  std::cout << "gradient check of alibi: " << (result.passed ? "passed" : "FAILED") << '\n';
  return result.passed;
}

/// A classifier of the data that heed makes by rule, in the folder, with this mechanism in its encoder.
bool trains(const std::filesystem::path& folder) {
  heed::Settings settings = heed::task_kind("classify").settings(false);
  settings.assign("model.encoder_attention=alibi");
  settings.assign("model.encoder_attention.slope=4");
  settings.assign("model.width=16");
  settings.assign("model.heads=2");
  settings.assign("training.steps=20");
  heed::TrainRequest request{folder};
  request.callbacks.progress = [](const heed::Progress& at) { std::cout << heed::progress_text(at) << '\n'; };
  heed::train(heed::task_kind("classify"), settings, request);

  auto run = heed::Run::open(folder);
  std::cout << "the run says: " << run.settings().json("model.encoder_attention") << '\n';
  for (const heed::Prediction& answer : run.predict({"[ MAX 2 9 ]", "[ MIN 4 3 ]"}))
    std::cout << answer.text << '\n';
  return true;
}

/// Names are taken once.
bool taken_names_are_refused() {
  try {
    heed::register_attention(heed::attention_variant("alibi"));
  } catch (const heed::Error& error) {
    std::cout << "an error, caught: " << error.what() << '\n';
    return true;
  }
  return false;
}

}  // namespace

int main() {
  try {
    const heed::TemporaryFolder folder;
    return alibi_is_right() && taken_names_are_refused() && trains(folder / "run") ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "own_attention: " << error.what() << '\n';
    return 1;
  }
}
