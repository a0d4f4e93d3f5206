// Times writing text token by token with a language model of random weights at batch 1. Every token reads all
// weights once, so memory bandwidth is the bound if they are larger than the caches. Prints a line of JSON:
// tokens per second, the bound, and the share of it that was reached.

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <thread>

#include "bench.h"
#include "heed/core/device.h"
#include "heed/heed.h"

namespace {

/// Half a gigabyte, of which each thread reads a part.
class Bandwidth {
 public:
  explicit Bandwidth(int threads)
      : memory_(std::size_t{64} << 20, 1), sums_(static_cast<std::size_t>(threads)) {}

  /// Seconds to read it once.
  double read() {
    const std::size_t each = memory_.size() / sums_.size();
    const double start = now();
    std::vector<std::thread> readers;
    for (std::size_t t = 0; t < sums_.size(); ++t)
      readers.emplace_back([&, t] {
        // Four sums, so that additions do not depend on each other.
        std::uint64_t a = 0, b = 0, c = 0, d = 0;
        const std::uint64_t* from = memory_.data() + t * each;
        for (std::size_t i = 0; i + 32 <= each; i += 32)
          for (std::size_t k = 0; k < 8; ++k)
            a += from[i + k], b += from[i + 8 + k], c += from[i + 16 + k], d += from[i + 24 + k];
        sums_[t] = a + b + c + d;
      });
    for (std::thread& reader : readers) reader.join();
    const double seconds = now() - start;
    for (const std::uint64_t sum : sums_) heed::check(sum > 0, "the memory was not read");
    return seconds;
  }
  double bytes() const { return static_cast<double>(memory_.size() * sizeof(std::uint64_t)); }

 private:
  std::vector<std::uint64_t> memory_;
  std::vector<std::uint64_t> sums_;
};

constexpr std::int64_t warm_up = 3;

struct Sizes {
  std::int64_t layers = 12, width = 768, vocabulary = 50'257, prompt = 64, tokens = 64;
  bool int8 = false, bf16 = false, bound = true, llama = false;
};

/// The shape of SmolLM2-135M: a deep model of Llama's family, in which three query heads share keys and
/// values.
heed::TransformerConfig llama_config() {
  heed::TransformerConfig config;
  config.width = 576;
  config.heads = 9;
  config.feed_forward = 1536;
  config.decoder_layers = 30;
  config.target_vocabulary = 49'152;
  config.max_length = 1024;
  config.norm = "pre";
  config.norm_kind = "rms";
  config.activation = "swiglu";
  config.positions = "rotary";
  config.rotary_base = 100'000;
  config.tie_embeddings = "decoder";
  config.scale_embeddings = config.feed_forward_bias = false;
  config.decoder_attention.front().options.set("kv_heads", std::int64_t{3});
  return config;
}

void run(const Sizes& sizes, int threads, bool profile) {
  heed::set_cpu_threads(threads);
  heed::LanguageModel model(sizes.llama ? llama_config()
                                        : gpt2_config(sizes.layers, sizes.width,
                                                      std::max<std::int64_t>(1, sizes.width / 64),
                                                      sizes.vocabulary, 1024));
  const std::int64_t positions = sizes.llama ? 0 : 1024 * sizes.width;  // a token reads one row
  const double weight_bytes = 4.0 * static_cast<double>(model.parameter_count() - positions);
  if (sizes.int8) model.round_to_int8();
  if (sizes.bf16) model.round_to_bf16();
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < sizes.prompt; ++i)
    prompt.push_back(static_cast<std::int32_t>(i % sizes.vocabulary));
  // Reading the memory and writing a token alternate, and the best of both counts: the least disturbed.
  const heed::NoGrad no_grad;
  heed::SamplingOptions greedy;
  greedy.temperature = 0;
  Bandwidth memory(threads);
  heed::LanguageModelSteps(model, prompt, 1, 1024);  // once before, for memory to be there
  const double start = now();
  heed::LanguageModelSteps steps(model, prompt, 1, 1024);
  const double prompt_seconds = now() - start;
  std::int32_t token = prompt.back();
  std::vector<double> of_tokens, of_reads;
  if (profile) heed::start_profile();
  for (std::int64_t i = 0; i < sizes.tokens + warm_up; ++i) {
    const double begin = now();
    const heed::Tensor logits = steps.step(heed::Tensor::from({token}, {1}));
    token = heed::sample_token(logits.to_doubles(), greedy, 0.5);
    if (i >= warm_up) of_tokens.push_back(now() - begin);
    if (i >= warm_up && sizes.bound) of_reads.push_back(memory.read());
  }
  if (profile) std::cerr << heed::profile_table();
  const double rate = 1 / std::ranges::min(of_tokens);
  const double mean = std::reduce(of_tokens.begin(), of_tokens.end()) / static_cast<double>(of_tokens.size());
  std::printf(
      "{\"parameters\": %lld, \"threads\": %d, \"prompt\": %lld, \"prompt_ms\": %.1f, \"tokens_per_second\": "
      "%.2f, \"mean_tokens_per_second\": %.2f",
      static_cast<long long>(model.parameter_count()), threads, static_cast<long long>(sizes.prompt),
      1e3 * prompt_seconds, rate, 1 / mean);
  if (sizes.bound) {
    const double bound = memory.bytes() / std::ranges::min(of_reads) / weight_bytes;
    std::printf(", \"bound\": %.2f, \"share\": %.3f", bound, rate / bound);
  }
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times writing text at batch 1 beside the bound of the memory bandwidth.");
  Sizes sizes;
  int threads = 2;
  bool profile = false;
  app.add_option("--layers", sizes.layers, "of the decoder")->check(CLI::Range(1, 1000));
  app.add_option("--width", sizes.width, "of the model")->check(CLI::Range(1, 65536));
  app.add_option("--vocabulary", sizes.vocabulary, "size of the vocabulary")
      ->check(CLI::Range(2, 10'000'000));
  app.add_option("--prompt", sizes.prompt, "tokens to read first")->check(CLI::Range(1, 512));
  app.add_option("--tokens", sizes.tokens, "tokens to write")->check(CLI::Range(1, 511));
  app.add_option("--threads", threads, "threads of the CPU backend")->check(CLI::Range(1, 1000));
  app.add_flag("--int8", sizes.int8, "weights in 8 bits; the bound is that of f32");
  app.add_flag("--bf16", sizes.bf16, "weights in bf16; the bound is that of f32")->excludes("--int8");
  app.add_flag("!--no-bound", sizes.bound, "only write, without reading the memory between two tokens");
  app.add_flag("--llama", sizes.llama, "the shape of SmolLM2-135M in place of GPT-2's");
  app.add_flag("--profile", profile, "print the time per kernel");
  return run_program(app, argc, argv, "bench_generate", [&] {
    run(sizes, threads, profile);
    return 0;
  });
}
