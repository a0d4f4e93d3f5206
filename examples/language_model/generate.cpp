// language_model generate: writes text, from a prompt on.

#include <iostream>

#include "../common/capture_file.h"
#include "../common/commands.h"
#include "../common/program.h"
#include "heed/autograd/autograd.h"
#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct GenerateCommand {
  explicit GenerateCommand(CLI::App& command) : run(command) {
    command
        .add_option("--prompt", prompt, "How the text begins; default: a line break, which is not printed")
        ->type_name("TEXT");
    add_capture_flag(command, capture);
    command.add_flag("--json", json, "Prints each sample as a line of JSON: sample, prompt, text");
    SettingFlags& settings = run.settings;
    settings.integer("--tokens", "generation.tokens", "The most tokens to add to the prompt");
    settings.integer("--samples", "generation.samples", "How many texts to write");
    settings.number("--temperature", "generation.temperature",
                    "Below 1: likelier tokens, above 1: more variety; 0: always the most probable token");
    settings.integer("--top-k", "generation.top_k", "Only the k most probable tokens; 0: all");
    settings.number("--top-p", "generation.top_p",
                    "Only the most probable tokens that together reach this probability; 1: all");
    settings.integer("--seed", "generation.seed", "Seed of what is drawn");
  }
  RunFlags run;
  std::string prompt, capture;
  bool json = false;
};

/// The prompt as the model reads it; throws UsageError for one that it cannot read.
Tokens prompt_tokens(const Trained& trained, const std::string& prompt, std::int64_t context) {
  if (unicode::find_invalid(prompt) != std::string::npos) throw UsageError("--prompt is not UTF-8");
  try {
    check_known(trained.tokenizer, prompt, "the prompt");
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  Tokens tokens = trained.tokenizer.encode(prompt);
  if (static_cast<std::int64_t>(tokens.size()) > context)
    throw UsageError(concat_text("the prompt has ", tokens.size(), " tokens, but the model sees at most ",
                                 context, " at a time (model.max_length)"));
  return tokens;
}

void print_sample(const GenerateCommand& command, std::int64_t sample, std::int64_t samples,
                  const std::string& text) {
  if (command.json) {
    const Json line = {{"sample", sample}, {"prompt", command.prompt}, {"text", text}};
    std::cout << line.dump() << '\n';
    return;
  }
  if (samples > 1) std::cout << (sample > 1 ? "\n" : "") << "=== " << sample << " ===\n";
  std::cout << command.prompt << text << '\n';
}

/// One pass over the end of a sample, as much as the model sees at a time.
void show_inside(const Trained& trained, Tokens tokens, std::int64_t context_tokens, std::int64_t sample,
                 CaptureFile& file) {
  const auto limit = static_cast<std::size_t>(context_tokens);
  if (tokens.size() > limit) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(limit));
  const NoGrad no_grad;
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  const PaddedTokens input = pad_tokens({&tokens, 1}, trained.model->device());
  trained.model->hidden(input, context);
  const std::string example = "samples." + std::to_string(sample);
  file.add(example + ".tokens", input.ids);
  file.add(example, capture);
}

int generate(const GenerateCommand& command) {
  const Trained trained = open_run(command.run);
  const GenerationOptions options = generation_options(trained.settings, trained.tokenizer);
  const Tokens prompt =
      prompt_tokens(trained, command.prompt.empty() ? "\n" : command.prompt, options.context);
  const auto samples = trained.settings.get<std::int64_t>("generation.samples");
  CaptureFile inside(command.capture);
  std::int64_t sample = 0;
  for (const Tokens& tokens : generate(*trained.model, prompt, samples, options)) {
    print_sample(command, ++sample, samples, trained.tokenizer.decode(tokens));
    if (command.capture.empty()) continue;
    Tokens whole = prompt;
    whole.insert(whole.end(), tokens.begin(), tokens.end());
    show_inside(trained, std::move(whole), options.context, sample - 1, inside);
  }
  if (!command.capture.empty()) inside.save();
  return exit_success;
}

}  // namespace

std::function<int()> add_generate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Writes text, from a prompt on");
  auto options = std::make_shared<GenerateCommand>(*command);
  command->footer(
      "A text may become longer than what the model sees at a time: it then reads the last half of that "
      "again and goes on.\n");
  return [options] { return generate(*options); };
}

}  // namespace heed::programs
