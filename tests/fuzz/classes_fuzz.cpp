#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "heed/data/tokenizer.h"
#include "heed/tasks/learner.h"

// Text is the names of at least two classes, in order, or gives an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string tokenizer = [] {
    heed::TokenizerTraining options;
    options.vocabulary_size = 260;
    return heed::Tokenizer::train(std::vector<std::string>{"a b"}, options).to_json();
  }();
  static const heed::TaskKind& kind = heed::task_kind("classify");
  static const heed::Settings settings = kind.settings(true);  // slow to declare
  const std::string classes(reinterpret_cast<const char*>(data), size);
  try {
    const auto learner = kind.make(settings);
    learner->open_files([&](std::string_view name) { return name == "classes.json" ? classes : tokenizer; });
    if (learner->files().at("classes.json").empty()) __builtin_trap();
  } catch (const heed::Error&) {
  }
  return 0;
}
