// A language model of characters: it learns a text, its own source where none is given, and writes on.
//
//   character_model [TEXT]

#include <heed/heed.h>

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  try {
    const std::string text = heed::read_file(argc > 1 ? argv[1] : __FILE__);
    const auto tokenizer = heed::Tokenizer::train_characters(std::vector{text}, {});
    const heed::Tokens tokens = tokenizer.encode(text);
    constexpr std::int64_t length = 64, batch = 16;

    heed::TransformerConfig config = {.width = 64, .feed_forward = 256, .decoder_layers = 2, .dropout = 0};
    config.target_vocabulary = tokenizer.vocabulary_size();
    config.norm = "pre";
    config.positions = "rotary";
    config.decoder_attention = {{.name = "dot_product"}};  // or another causal one: `heed variants`
    heed::LanguageModel model(config);
    heed::Optimizer adam(model.parameters(), {});
    heed::StepContexts contexts(1);
    heed::Draws draws({1});
    double first = 0, last = 0;
    for (int step = 1; step <= 300; ++step) {
      std::vector<heed::Tokens> rows;
      for (std::int64_t row = 0; row < batch; ++row) {
        const auto begin = tokens.begin() + draws.below(std::ssize(tokens) - length);
        rows.emplace_back(begin, begin + length + 1);
      }
      heed::Context context = contexts.next();
      const heed::Tensor loss = model.loss(heed::make_language_model_batch(rows), 0, context).mean();
      heed::backward(loss);
      adam.clip(1);
      adam.step(3e-3);
      adam.zero_gradients();
      if (step % 100 == 0) std::cout << "step " << step << ": " << loss.item() << " nats per character\n";
      (step == 1 ? first : last) = loss.item();
    }

    const heed::Tokens prompt(tokens.begin(), tokens.begin() + 20);
    const auto written =
        heed::generate(model, prompt, 1, {.sampling = {.temperature = 0.5}, .context = length});
    std::cout << tokenizer.decode(prompt) << '|' << tokenizer.decode(written[0]) << '\n';
    return last < 0.6 * first ? 0 : 1;
  } catch (const heed::Error& error) {
    std::cerr << "character_model: " << error.what() << '\n';
    return 1;
  }
}
