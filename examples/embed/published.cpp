// Export and import: a language model is trained on generated documents, exported as GPT-2 for
// Hugging Face's `transformers`, and imported again as a run that gives the same answers.

#include <heed/heed.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

/// Trains on sentences that count: "three follows two, four follows three".
void train(const std::filesystem::path& folder) {
  const std::vector<std::string> numbers = {"one", "two", "three", "four", "five", "six", "seven", "eight"};
  heed::Draws draws({1});
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) {
    const std::size_t at = draws.below(numbers.size() - 2);
    texts.push_back(numbers[at + 1] + " follows " + numbers[at] + ", " + numbers[at + 2] + " follows " +
                    numbers[at + 1]);
  }
  const heed::TaskKind& kind = heed::task_kind("language_model");
  heed::Settings settings = kind.settings(true);
  for (const char* one : {"training.steps=150", "model.width=32", "model.heads=2", "model.decoder_layers=2",
                          "model.feed_forward=128", "tokenizer.kind=words", "model.max_length=32"})
    settings.assign(one);
  const heed::Examples examples[] = {{"train", {texts}}};
  heed::train(kind, settings, {.folder = folder, .examples = examples});
}

}  // namespace

int main() {
  try {
    const heed::TemporaryFolder folder;
    train(folder / "run");
    const heed::ExchangeReport out = heed::export_run(folder / "run", folder / "gpt2");
    std::cout << out.architecture << " layout, " << out.parameters << " parameters:\n";
    for (const auto& [name, tensor] : heed::load_safetensors(folder / "gpt2" / "model.safetensors").tensors)
      if (name.find(".h.1.") == std::string::npos) std::cout << "  " << name << ' ' << tensor.shape() << '\n';

    heed::import_run(folder / "gpt2", folder / "imported");
    const std::vector<std::string> prompts = {"two follows one, three", "four follows three, five"};
    const heed::RunOptions greedy = {.settings = {"generation.temperature=0", "generation.tokens=2"}};
    const auto before = heed::Run::open(folder / "run", greedy).predict(prompts);
    const auto after = heed::Run::open(folder / "imported", greedy).predict(prompts);
    bool same = true;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      std::cout << prompts[i] << " |" << after[i].text << "  (" << after[i].probability << ", and "
                << before[i].probability << " before)\n";
      same &=
          before[i].text == after[i].text && std::abs(before[i].probability - after[i].probability) < 1e-5;
    }
    return same && after[0].text == " follows two" ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "published: " << error.what() << '\n';
    return 1;
  }
}
