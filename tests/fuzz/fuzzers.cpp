#include <fstream>

#include "fuzz_support.h"

namespace heed::fuzz {

std::span<const Fuzzer> fuzzers() {
#define HEED_ENTRY(parser) {#parser, fuzz_##parser},
  static constexpr Fuzzer all[] = {HEED_FUZZ_PARSERS(HEED_ENTRY)};
#undef HEED_ENTRY
  return all;
}

namespace {

/// The bytes of an input as corpus.txt writes them.
std::string unescaped(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    const char what = text.at(++i);
    if (what == 'x') {
      bytes += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      bytes += what == 'n' ? '\n' : what == 't' ? '\t' : what;
    }
  }
  return bytes;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> corpus(std::string_view start) {
  std::vector<std::pair<std::string, std::string>> inputs;
  std::ifstream file(HEED_SOURCE_DIR "/tests/fuzz/corpus.txt", std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(start)) continue;
    const std::size_t end = std::min(line.find(' '), line.size());
    inputs.emplace_back(line.substr(0, end),
                        unescaped(std::string_view(line).substr(std::min(end + 1, line.size()))));
  }
  return inputs;
}

}  // namespace heed::fuzz

/// What libFuzzer calls. The environment names the parser.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heed::fuzz;
  static const Fuzzer* const chosen = [] {
    const char* parser = std::getenv("HEED_FUZZ");
    for (const Fuzzer& fuzzer : fuzzers())
      if (parser && fuzzer.parser == parser) return &fuzzer;
    std::fputs("HEED_FUZZ must name a parser:", stderr);
    for (const Fuzzer& fuzzer : fuzzers()) std::fprintf(stderr, " %s", fuzzer.parser.data());
    std::fputc('\n', stderr);
    std::exit(2);
  }();
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
