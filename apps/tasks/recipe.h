#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/settings.h"
#include "heed/core/ranks.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/config.h"
#include "heed/models/decoding.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/training/trainer.h"

// The settings that tasks have in common. A task declares them in the order in which config.json has them.

namespace heed {

/// Which stacks a model has, and so which attentions can be chosen.
enum class Stacks { encoder, decoder, encoder_decoder };

/// A figure that a task measures itself by.
struct MetricKind {
  std::string_view name;  ///< in JSON, progress and "training.keep_best_by"
  bool larger_is_better;
};

/// What a run computes with.
struct RuntimeSettings {
  std::int64_t seed = 1, threads = 0;
  std::string device = {};
  bool int8_weights = false, bf16_weights = false;
  Precision precision = Precision::f32;
};

void for_each_setting(auto&& visit, RuntimeSettings& runtime) {
  const SettingTraits free = {.changes = Changes::at_any_time};
  visit(runtime.seed, "seed", 0, 0x1p63, "Seed of initial weights, dropout and the order of the data");
  visit(runtime.threads, "threads", 0, 1000,
        "Threads to compute with; 0: one for each processor. The results do not depend on it", free);
  visit(runtime.device, "device",
        "Where to compute: auto, cpu, vulkan, vulkan:N or vulkan:NAME; empty: $HEED_DEVICE, else cpu", free);
  visit(runtime.int8_weights, "int8_weights",
        "Used runs round weight matrices to 8 bits, with a scale for each row, so that writing token by "
        "token reads a quarter of the bytes. CPU only; training ignores it",
        free);
  visit(
      runtime.bf16_weights, "bf16_weights",
      "Used runs round weight matrices to bf16, half the bytes: slower than int8_weights, and closer to f32. "
      "CPU only; training ignores it",
      free);
  visit(runtime.precision, "precision", precision_names(),
        "Type that the model computes in while it trains. The weights stay f32. f16 needs a Vulkan device; "
        "on the CPU bf16 affects matrix products alone, and is slow where the processor lacks AVX-512 BF16");
}

/// The device of a name as find_device() knows it; throws a SettingsError for one that is not there. `ranks`
/// are the processes that train together, or null: each gets a GPU of its own.
Device device_of(const std::string& name, const Ranks* ranks = nullptr);
/// The device that the settings name. Throws a SettingsError for one that is not there, or that cannot do
/// what they ask.
Device device_of(const Settings& settings, const Ranks* ranks = nullptr);
/// Computes with the number of threads that the settings name, in the whole process: for programs; the
/// library leaves it alone. Where they name none, ranks share the processors of their machine.
void apply_threads(const Settings& settings, const Ranks* ranks = nullptr);

/// What a token is, and how the vocabulary is learned.
struct VocabularySettings {
  std::string kind = "bpe";
  std::int64_t vocabulary = 8000, min_frequency = 2;
  bool lower_case = false;
  std::string file = {};
};

void for_each_setting(auto&& visit, VocabularySettings& tokenizer) {
  visit(tokenizer.kind, "kind", {"auto", "bpe", "words", "characters"},
        "What a token is: a part of a word (byte-level BPE), a word or punctuation mark, a character; auto: "
        "what suits the training texts, found by train");
  visit(tokenizer.vocabulary, "vocabulary", 0, 1e7,
        "The most tokens of bpe and words, marks included; bpe needs 256 for the bytes");
  visit(tokenizer.min_frequency, "min_frequency", 1, most_steps,
        "bpe: pairs that are rarer are never merged; words: those that are rarer are <unk>");
  visit(tokenizer.lower_case, "lower_case", "Lower-case texts before they are tokenized");
  visit(tokenizer.file, "file",
        "A tokenizer.json to use instead of learning one by kind, vocabulary, min_frequency and lower_case: "
        "BPE, words, WordPiece or Unigram; empty: none");
}

/// How tokens are drawn, in "decoding" and "generation"; the seed of what is drawn stands beside it.
void visit_sampling(auto&& visit, SamplingOptions& sampling, std::uint64_t& seed) {
  visit(sampling.temperature, "temperature", 0, 1e6,
        "Of sampling; below 1: likelier tokens, above 1: more variety; 0: always the most probable token");
  visit(sampling.top_k, "top_k", 0, 1 << 30, "Of sampling: only the k most probable tokens; 0: all");
  visit(sampling.top_p, "top_p", 1e-9, 1,
        "Of sampling: only the most probable tokens that together reach this probability; 1: all");
  visit(seed, "seed", 0, 0x1p63, "Seed of what is drawn");
}

/// "tokenizer.begin": the mark that begins texts, empty for none.
struct BeginMark {
  std::string begin = {};
  std::string help = "A mark before every text, such as [CLS]; empty: none";
};

void for_each_setting(auto&& visit, BeginMark& mark) {
  visit(mark.begin, "begin", mark.help);
}

/// Where tokenizer.kind is "auto" and a tokenizer is to be learned, sets what suits the texts
/// (token_kind_for), and returns what there is to say about it; else "".
std::string choose_token_kind(Settings& settings, const TextSource& texts);

struct LearnTokenizerOptions {
  /// A line break is a token for words, too, which leave out white space otherwise.
  bool keep_line_breaks = false;
  std::string file = "tokenizer.json";  ///< where a run keeps it that others start from
};
/// Learns the tokenizer of the settings, or takes the one that they name. `marks` take the first ids; "<unk>"
/// joins them for words.
Tokenizer learn_tokenizer(const Settings& settings, std::span<const std::string> texts,
                          std::vector<std::string> marks = {"<pad>", "<s>", "</s>", "<unk>"},
                          const LearnTokenizerOptions& how = {});
/// The same from texts that need not be in memory together; for characters they are brought there.
Tokenizer learn_tokenizer(const Settings& settings, const TextSource& texts,
                          std::vector<std::string> marks = {"<pad>", "<s>", "</s>", "<unk>"},
                          const LearnTokenizerOptions& how = {});

/// "model": all of TransformerConfig but what follows from the data, what a model of these stacks does not
/// read. An encoder alone has no "model.max_length": data.max_tokens is the one limit. Sparse features are
/// for tasks that give the model some beside the tokens.
void declare_model(Settings& settings, const TransformerConfig& defaults, Stacks stacks,
                   bool has_sparse_features = false);
/// What the settings say of the model; sizes of vocabularies and classes are left to the caller, and what a
/// task has declared below "model" besides. Without "model.max_length" it is data.max_tokens.
TransformerConfig model_config(const Settings& settings);

/// What "training" has beside TrainerOptions.
struct TrainingSettings {
  std::int64_t batch_tokens = 4096;
  double label_smoothing = 0.1;
  std::string freeze = {}, part_rates = {}, from = {}, ignore = {}, embeddings = {}, keep_best_by = {};
  std::vector<std::string> metrics = {};  ///< the choices of keep_best_by
  bool smooths = true;  ///< there are classes or tokens, whose probabilities can be smoothed
};

void for_each_setting(auto&& visit, TrainingSettings& training) {
  visit(training.batch_tokens, "batch_tokens", 1, 1e9, "The most tokens of a batch, padding included");
  if (training.smooths)
    visit(training.label_smoothing, "label_smoothing", 0, 0.999,
          "Share of each target's probability that is spread over all others");
  visit(training.freeze, "freeze", "Parts of the model whose weights stay as they are: embedding,encoder");
  visit(training.part_rates, "part_rates",
        "Learning rates of parts, as multiples of the schedule's: embedding=0.1,encoder=0.5");
  visit(training.from, "from",
        "A run to start from, or the folder of a published model: its tokenizer, the shape of its model and "
        "its "
        "weights; empty: none");
  visit(training.ignore, "ignore",
        "Parts of the model that start afresh all the same, as the run has none of theirs: output,compare",
        {.changes = Changes::on_resume});
  visit(training.embeddings, "embeddings",
        "Vectors of words to start the embedding from, as text of GloVe or word2vec; empty: none");
  visit(training.keep_best_by, "keep_best_by", training.metrics,
        "The metric that says which weights are best");
}

/// The parts in a list such as training.freeze.
std::vector<std::string> split_at_commas(const std::string& list);

/// "prediction.batch_size".
struct PredictionSettings {
  std::int64_t batch_size = 64;
  std::string what = "Texts";  ///< for its help
};
void for_each_setting(auto&& visit, PredictionSettings& prediction) {
  visit(prediction.batch_size, "batch_size", 1, 1e6, prediction.what + " that are read at a time");
}

/// "training": TrainerOptions and TrainingSettings; label smoothing where the task `smooths`.
void declare_training(Settings& settings, std::span<const MetricKind> metrics, bool smooths = true);
/// Throws a SettingsError for settings that do not fit together.
TrainerOptions trainer_options(const Settings& settings);

/// What a user says of attentions beside the settings themselves.
struct AttentionNames {
  /// Of the self-attention of the encoder, and of the decoder where it can serve there.
  std::optional<std::string> attention = {};
  std::optional<std::string> decoder = {}, cross = {};  ///< by themselves
  std::optional<std::string> preset = {};               ///< of models/config.h; the names above lie over it
};
/// The names of all mechanisms that there are.
std::vector<std::string> attention_names();
/// Sets the mechanisms of the stacks; options of another mechanism that stood there are dropped. Returns what
/// is worth telling the user. Throws a SettingsError for unknown names.
std::vector<std::string> choose_attentions(Settings& settings, Stacks stacks, const AttentionNames& names);
/// The names of the attention settings of the stacks, such as "model.encoder_attention".
std::vector<std::string> attention_settings(Stacks stacks);
/// Whether a setting is one of these, or an option below one.
bool belongs_to_attention(Stacks stacks, std::string_view setting);

/// Throws a SettingsError with the figures when a model, and what its layers keep of one batch for the
/// backward pass, is more than this machine, or a limit on this process (ulimit -v), has memory. It names the
/// largest parameter.
void check_cost(Module& model, const TransformerConfig& config, std::int64_t batch_tokens);

/// Throws a SettingsError when no model can be made, or when it would take more memory than there is; found
/// out without allocating it. `make` gives a model_of().
void check_model(const std::function<std::unique_ptr<Module>()>& make);

/// A model of the configuration, with its low-rank parts. `batch_tokens`: of one batch; `more`: what its
/// constructor takes beside the configuration.
template <class Model, class Config, class... More>
std::unique_ptr<Module> model_of(const Config& config, std::int64_t batch_tokens, const More&... more) {
  auto model = std::make_unique<Model>(config, more...);
  add_low_rank_parts(*model, config);
  if (ShapesOnly::active()) check_cost(*model, config, batch_tokens);
  return model;
}

}  // namespace heed
