// language_model: learns to predict text, measures it, writes text with it, or fills in blanks.
//
//   language_model train --data input.txt --out runs/text
//   language_model evaluate --run runs/text --data other.txt
//   language_model generate --run runs/text --prompt "ROMEO:" --temperature 0.8
//
//   language_model train --masked --tokenizer bpe --data input.txt --out runs/blanks
//   echo "the quality of [MASK] is not strained" | language_model predict --run runs/blanks --json

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/data/text_file.h"
#include "heed/apps/tasks/language_model.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

/// Replaces the escapes \n, \t and \\ in a prompt that was read from a line.
std::string without_escapes(const std::string& line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char next = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '\0';
    if (next == 'n' || next == 't' || next == '\\') {
      text += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      ++i;
    } else {
      text += line[i];
    }
  }
  return text;
}

class GenerateCommand {
 public:
  GenerateCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.predict_flags, false), capture_(command) {
    prompt_.add(command, "--prompt", "TEXT",
                "Beginning of the text; default: a line break, which is not printed");
    command.add_flag("--prompts", prompts_,
                     "Reads prompts from standard input, one per line, with the escapes \\n, \\t and \\\\");
    command.add_flag("--json", json_,
                     "Prints each sample as a line of JSON: sample, prompt, text, log_probability");
  }

  int run() {
    if (prompts_ && prompt_.given()) throw SettingsError("give --prompt or --prompts, not both");
    capture_.check();
    Run run = run_.open(Reads::lines);
    samples_ = run.settings().read<Generation>("generation").samples;
    if (prompts_) {
      LineReader reader("", run_.options_of_lines(run, false));
      for (std::vector<InputLine> lines; !(lines = reader.next(1)).empty();) {
        check(lines.front().error.empty(), "standard input, line ", reader.line_number(), ": ",
              lines.front().error);
        write(run, without_escapes(lines.front().text));
      }
    } else {
      write(run, prompt_.value());
    }
    capture_.save();
    return exit_success;
  }

 private:
  void write(Run& run, const std::string& prompt) {
    for (const Prediction& text : write_texts(run, prompt)) {
      ++written_;
      if (json_) {
        const Json line = {{"sample", written_},
                           {"prompt", prompt},
                           {"text", text.text},
                           {"log_probability", text.alternatives.front().score.value()}};
        std::cout << json_text(line) << '\n';
      } else {
        if (samples_ > 1) std::cout << (written_ > 1 ? "\n" : "") << "=== " << written_ << " ===\n";
        std::cout << prompt << text.text << '\n';
      }
    }
    flush_output();
  }

  /// Generates texts for a prompt. An invalid prompt is an error of the command line.
  std::vector<Prediction> write_texts(Run& run, const std::string& prompt) {
    TextWriter& writer = text_writer(run.task());
    try {
      writer.check_prompt(prompt);
    } catch (const Error& error) {
      throw SettingsError(error.what());
    }
    return writer.write(prompt, samples_, {capture_.file(), written_});
  }

  RunFlags run_;
  CaptureFlags capture_;
  TextFlag prompt_;
  bool prompts_ = false, json_ = false;
  std::int64_t samples_ = 1, written_ = 0;
};

std::function<int()> add_generate(CLI::App& app, const TaskProgram& program) {
  CLI::App* command = app.add_subcommand("generate", "Generates text that continues a prompt");
  command->footer(
      "If a text outgrows the model's context, the model keeps the last half of it as context and "
      "continues.\n");
  auto generate = std::make_shared<GenerateCommand>(*command, program);
  return [generate] { return generate->run(); };
}

}  // namespace
}  // namespace heed::programs

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{
      .entry = heed::task_entry("language_model"),
      .by_rule = "English sentences",
      .suits = "a text of about a megabyte (tinyshakespeare: examples/configs/tinyshakespeare.json)",
      .example = "--data book.txt --valid-fraction 0.05 --out runs/book",
      .answer = "text"};
  program.train_flags = {"data.file",
                         "data.valid",
                         "data.valid_fraction",
                         {"objective", "--masked", "", "masked"},
                         {"tokenizer.kind", "--tokenizer"},
                         {"model.max_length", "--context"}};
  program.evaluate_flags = {"evaluation.stride", "evaluation.sentences"};
  program.predict_flags = {
      "generation.tokens", "generation.samples", "generation.temperature",        "generation.top_k",
      "generation.top_p",  "generation.min_p",   "generation.repetition_penalty", "generation.stop",
      "generation.seed",   "data.on_bad_bytes"};
  program.files = "Text to evaluate on: a file or a folder; default: the run's validation text";
  const auto add_filling = [](CLI::App& app,
                              TaskProgram filling) {  // of lines that are filled in, or written on
    filling.predict_flags = {"prediction.best"};
    return add_predict(app, filling);
  };
  return run_task_program(program, argc, argv, {add_train, add_evaluate, add_generate, add_filling});
}
