#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_file.h"
#include "heed/apps/tasks/settings.h"
#include "heed/core/ranks.h"
#include "heed/models/config.h"
#include "heed/models/decoding.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/text/tokenizer.h"
#include "heed/training/trainer.h"

// Settings shared by tasks. A task declares them in the order in which they appear in config.json.

namespace heed {

class RunFiles;
class Task;

/// The stacks of a model, which determine the attentions that can be chosen.
enum class Stacks { encoder, decoder, encoder_decoder };

/// A metric of a task.
struct MetricKind {
  std::string_view name;  ///< in JSON, progress and "training.keep_best_by"
  bool larger_is_better;
};

/// Settings of the computation: seed, threads, device and precision.
struct RuntimeSettings {
  std::int64_t seed = 1, threads = 0;
  std::string device = {};
  bool int8_weights = false, bf16_weights = false;
  Precision precision = Precision::f32;
};

void for_each_setting(auto&& visit, RuntimeSettings& runtime) {
  const SettingTraits free = {.changes = Changes::at_any_time};
  visit(runtime.seed, "seed", 0, 0x1p63, "Seed of initial weights, dropout and data order");
  visit(runtime.threads, "threads", 0, 1000,
        "Number of threads; 0: one per processor. Results do not depend on it", free);
  visit(runtime.device, "device",
        "Device: auto, cpu, vulkan, vulkan:N or vulkan:NAME; empty: $HEED_DEVICE, or cpu if unset", free);
  visit(runtime.int8_weights, "int8_weights",
        "Inference: round weight matrices to 8 bits with a scale per row, so that token-by-token generation "
        "reads a quarter of the bytes. CPU only; ignored in training",
        free);
  visit(runtime.bf16_weights, "bf16_weights",
        "Inference: round weight matrices to bf16, half the bytes; slower than int8_weights and closer to "
        "f32. CPU only; ignored in training",
        free);
  visit(runtime.precision, "precision", precision_names(),
        "Type of the computations in training; weights stay f32. f16 needs a Vulkan device. On the CPU it is "
        "the precision of matrix products: high is three products in bf16 for one in f32, medium and bf16 "
        "are one; high and medium hold for answers, too. Where they are no faster than f32 (they are with "
        "Intel's AMX, and bf16 on AMD with AVX-512 BF16), products stay f32",
        {.changes = Changes::in_use});
}

/// Returns the device with a name that find_device() accepts. With `ranks`, the processes that
/// train together, each gets a GPU of its own. Throws a SettingsError if there is no such device.
Device device_of(const std::string& name, const Ranks* ranks = nullptr);
/// Returns the device that the settings name. Throws a SettingsError if there is no such device, or
/// if it lacks what the settings need.
Device device_of(const Settings& settings, const Ranks* ranks = nullptr);
/// Sets the number of threads of the whole process from the settings. Only programs call this; the
/// library never does. If the settings name no number, ranks share the processors of their machine.
void apply_threads(const Settings& settings, const Ranks* ranks = nullptr);

/// Opens a run, or a published model as one (apps/hub/import.cpp defines it). Throws an Error if
/// there is neither, or if files were changed and `verify` is set.
std::shared_ptr<const RunFiles> open_run(const std::filesystem::path& folder, bool verify = true);

/// Settings of the tokenizer: the kind of token, and how its vocabulary is learned.
struct VocabularySettings {
  std::string kind = "bpe";
  std::int64_t vocabulary = 8000, min_frequency = 2;
  bool lower_case = false;
  std::string file = {};
};

void for_each_setting(auto&& visit, VocabularySettings& tokenizer) {
  visit(tokenizer.kind, "kind", {"auto", "bpe", "words", "characters"},
        "Kind of token: bpe: part of a word (byte-level BPE); words: words and punctuation marks; "
        "characters; auto: chosen by train to suit the training texts");
  visit(tokenizer.vocabulary, "vocabulary", 0, 1e7,
        "bpe and words: most tokens, including marks; bpe needs 256 for the bytes");
  visit(tokenizer.min_frequency, "min_frequency", 1, most_steps,
        "bpe: rarer pairs are never merged; words: rarer words become <unk>");
  visit(tokenizer.lower_case, "lower_case", "Lower-case texts before tokenizing");
  visit(tokenizer.file, "file",
        "A tokenizer.json to use instead of learning a tokenizer (then kind, vocabulary, min_frequency and "
        "lower_case have no effect): BPE, words, WordPiece or Unigram; empty: none");
}

/// Settings of sampling, for "decoding" and "generation".
void visit_sampling(auto&& visit, SamplingOptions& sampling, std::uint64_t& seed) {
  visit(sampling.temperature, "temperature", 0, 1e6,
        "Sampling: below 1: likelier tokens, above 1: more variety; 0: always the most probable token");
  visit(sampling.top_k, "top_k", 0, 1 << 30, "Sampling: only the k most probable tokens; 0: all");
  visit(sampling.top_p, "top_p", 1e-9, 1,
        "Sampling: only the most probable tokens that together reach this probability; 1: all");
  visit(sampling.min_p, "min_p", 0, 1,
        "Sampling: only tokens with at least this share of the largest probability; 0: all");
  visit(sampling.repetition_penalty, "repetition_penalty", 1e-3, 1e3,
        "Sampling: above 1: tokens that the text already has become less likely; 1: none");
  visit(seed, "seed", 0, 0x1p63, "Sampling: seed");
}

/// The setting "tokenizer.begin": the mark that begins texts; "": none.
struct BeginMark {
  std::string begin = {};
  std::string help = "Mark before every text, such as [CLS]; empty: none";
};

void for_each_setting(auto&& visit, BeginMark& mark) {
  visit(mark.begin, "begin", mark.help);
}

/// If tokenizer.kind is "auto" and a tokenizer is to be learned, sets the kind that suits the texts
/// (token_kind_for) and returns a remark about it; otherwise "".
std::string choose_token_kind(Settings& settings, const TextSource& texts);

struct LearnTokenizerOptions {
  /// Keeps line breaks as tokens for kind "words", which otherwise leaves out white space.
  bool keep_line_breaks = false;
  std::string file = "tokenizer.json";  ///< its name in a run that training starts from
};
/// Learns the tokenizer that the settings describe, or loads the one they name. `marks` take the
/// first ids; for words, "<unk>" is added to them.
Tokenizer learn_tokenizer(const Settings& settings, std::span<const std::string> texts,
                          std::vector<std::string> marks = {"<pad>", "<s>", "</s>", "<unk>"},
                          const LearnTokenizerOptions& how = {});
/// Learns the tokenizer from a stream of texts. For kind "characters", all of them are loaded into
/// memory.
Tokenizer learn_tokenizer(const Settings& settings, const TextSource& texts,
                          std::vector<std::string> marks = {"<pad>", "<s>", "</s>", "<unk>"},
                          const LearnTokenizerOptions& how = {});

/// Declares the group "model": TransformerConfig without the values that follow from the data or
/// that a model of these stacks does not use. An encoder alone has no "model.max_length", because
/// data.max_tokens limits its input. Sparse features are for tasks that compute them.
void declare_model(Settings& settings, const TransformerConfig& defaults, Stacks stacks,
                   bool has_sparse_features = false);
/// The settings of "model" that other settings follow from.
struct ModelSizes {
  std::int64_t width = 0, max_length = 0, lora_rank = 0, sparse_features = 0;
};
void for_each_setting(auto&& visit, ModelSizes& sizes) {
  visit(sizes.width, "width", 1, most_steps, "");
  visit(sizes.max_length, "max_length", 1, most_steps, "");
  visit(sizes.lora_rank, "lora_rank", 0, most_steps, "");
  visit(sizes.sparse_features, "sparse_features", 0, most_steps, "");
}

/// Returns the model configuration in the settings. The caller fills in vocabulary sizes, the
/// number of classes, and settings that a task added to "model". Without "model.max_length", it is
/// data.max_tokens.
TransformerConfig model_config(const Settings& settings);

/// The settings of "training" that are not in TrainerOptions.
struct TrainingSettings {
  std::int64_t batch_tokens = 4096;
  double label_smoothing = 0.1;
  std::string freeze = {}, part_rates = {}, from = {}, ignore = {}, embeddings = {}, keep_best_by = {};
  std::vector<std::string> metrics = {};  ///< the choices of keep_best_by
  bool smooths = true;                    ///< labels can be smoothed: they are classes or tokens
};

void for_each_setting(auto&& visit, TrainingSettings& training) {
  visit(training.batch_tokens, "batch_tokens", 1, 1e9, "Most tokens of a batch, including padding");
  if (training.smooths)
    visit(training.label_smoothing, "label_smoothing", 0, 0.999,
          "Share of each target's probability that is spread over all other classes or tokens");
  visit(training.freeze, "freeze", "Parts of the model whose weights are not trained: embedding,encoder");
  visit(training.part_rates, "part_rates",
        "Learning rates of parts of the model, as multiples of the schedule's: embedding=0.1,encoder=0.5");
  visit(training.from, "from",
        "Run or folder of a published model to start from: takes its tokenizer, model shape and weights; "
        "empty: none");
  visit(training.ignore, "ignore",
        "With training.from: parts of the model that start from new weights, because the other run lacks "
        "them: output,compare",
        {.changes = Changes::on_resume});
  visit(training.embeddings, "embeddings",
        "Word vectors to initialize the embedding with, as text in GloVe or word2vec format; empty: none");
  visit(training.keep_best_by, "keep_best_by", training.metrics, "Metric that selects the best weights");
}

/// The setting "training.exportable" of tasks whose models have a published layout with a head.
struct ExportableTraining {
  bool exportable = false;
};
void for_each_setting(auto&& visit, ExportableTraining& training) {
  visit(training.exportable, "exportable",
        "Train a model that heed export can write: BERT's, without a linear part",
        {.changes = Changes::never});
}

/// Splits a list such as training.freeze into its parts.
std::vector<std::string> split_at_commas(const std::string& list);

/// The setting "prediction.batch_size".
struct PredictionSettings {
  std::int64_t batch_size = 64;
  std::string what = "Texts";  ///< for its help
};
void for_each_setting(auto&& visit, PredictionSettings& prediction) {
  visit(prediction.batch_size, "batch_size", 1, 1e6, prediction.what + " per batch");
}

/// Declares the group "training": TrainerOptions and TrainingSettings, with label smoothing if the
/// task `smooths`.
void declare_training(Settings& settings, std::span<const MetricKind> metrics, bool smooths = true);
/// Returns the options of the Trainer. Throws a SettingsError for settings that contradict each
/// other.
TrainerOptions trainer_options(const Settings& settings);

/// The attentions that a user chooses with flags such as --attention.
struct AttentionNames {
  /// Self-attention of the encoder, and of the decoder if the mechanism can serve there.
  std::optional<std::string> attention = {};
  std::optional<std::string> decoder = {}, cross = {};  ///< for one stack only
  /// Of models/config.h; the names above override it.
  std::optional<std::string> preset = {};
};
/// Returns the names of all attention mechanisms.
std::vector<std::string> attention_names();
/// Sets the attentions of the stacks, dropping options of a replaced mechanism. Returns remarks for
/// the user. Throws a SettingsError for unknown names.
std::vector<std::string> choose_attentions(Settings& settings, Stacks stacks, const AttentionNames& names);
/// Returns the names of the attention settings of the stacks, such as "model.encoder_attention".
std::vector<std::string> attention_settings(Stacks stacks);
/// Whether a setting is one of attention_settings(), or an option below one.
bool belongs_to_attention(Stacks stacks, std::string_view setting);

/// Throws a SettingsError with the figures if the training of the model exceeds the memory of this
/// machine or process (ulimit -v): its weights, gradients and moments, and the activations of one
/// batch that its layers keep for the backward pass. Without a batch, 0, only the weights count. It
/// names the largest parameter.
void check_cost(Module& model, const TransformerConfig& config, std::int64_t batch_tokens);

/// Throws a SettingsError if the model cannot be built or would exceed the memory. Allocates no
/// tensors. `make` returns a model_of().
void check_model(const std::function<std::unique_ptr<Module>()>& make);

/// Returns a model of the configuration, with its LoRA parts. `batch_tokens`: tokens of one training
/// batch, 0 if it is only used; `more`: further arguments of its constructor.
template <class Model, class Config, class... More>
std::unique_ptr<Module> model_of(const Config& config, std::int64_t batch_tokens, const More&... more) {
  auto model = std::make_unique<Model>(config, more...);
  add_low_rank_parts(*model, config);
  if (ShapesOnly::active()) check_cost(*model, config, batch_tokens);
  return model;
}

// --- initial weights from another run or from word vectors (start.cpp)

/// Throws a SettingsError for contradictory settings of the start (training.from and its kin).
/// Reads nothing.
void check_start(const Settings& settings);
/// Overrides the defaults with the model settings of a run: everything below "model", "tokenizer",
/// "news" and "user" except LoRA, and the longest input (data.max_tokens if there is no
/// model.max_length). Settings that the run's task does not have get the default of
/// TransformerConfig; sparse_features keeps the default of this task. An encoder can take the
/// layers of a decoder and vice versa. Throws between models of one stack and of two stacks.
void apply_model_settings(Settings& settings, const std::string& run);
/// Whether training solves for the linear part, "sparse" (SparseLinear): there is one and it is not frozen.
bool solves_linear_part(const Settings& settings);
/// Returns the parts in training.ignore, and "sparse" if it is solved for.
std::vector<std::string> reinitialized_parts(const Settings& settings);
/// The origin of a model's initial weights.
struct Start {
  /// "task", "identity" and "weights" (a digest) of the other run; "embeddings", the digest of the
  /// file of word vectors.
  std::map<std::string, std::string> origin;
  std::vector<std::string> remarks;
};

/// Initializes a new model from the sources in the settings.
///
/// From another run it takes the weights: the best ones if the run was evaluated, with LoRA merged,
/// and as many learned positions as the model has. Every weight must match by name and shape,
/// except in the parts of training.ignore; an encoder may take the layers of a decoder. "output"
/// and a frozen "sparse" are only taken from runs of the same task with the same classes, and
/// vectors of categories and news items only from runs that number them alike. Otherwise a
/// SettingsError lists the mismatches, the settings by which the models differ, and the parts to
/// ignore.
///
/// Then the embedding rows are set to the vectors of training.embeddings, divided by sqrt(width) if
/// the model multiplies by it, so that the layers see the original vectors. Throws Error for a
/// vector file that is damaged (with file and line) or has another width.
Start initialize_weights(Task& task);
/// Initializes the model of a resumed run. Throws an Error unless its sources are unchanged.
Start restore_start(Task& task, const RunFiles& files);

}  // namespace heed
