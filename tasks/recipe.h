#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/core/ranks.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/config.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/tasks/learner.h"
#include "heed/training/trainer.h"

// The settings that tasks have in common: each group is declared and read here, once.

namespace heed {

/// "seed", "threads", "device", "int8_weights", "precision".
void declare_runtime(Settings& settings);
/// The device of a name as find_device() knows it; throws a SettingsError for one that is not there. `ranks`
/// are the processes that train together, or null: each gets a GPU of its own.
Device device_of(const std::string& name, const Ranks* ranks = nullptr);
/// The device that the settings name. Throws a SettingsError for one that is not there, or that cannot do
/// what they ask.
Device device_of(const Settings& settings, const Ranks* ranks = nullptr);
/// Computes with the number of threads that the settings name, in the whole process: for programs; the
/// library leaves it alone. Where they name none, ranks share the processors of their machine.
void apply_threads(const Settings& settings, const Ranks* ranks = nullptr);

/// "data.encoding", "data.on_bad_bytes", "data.max_bytes": how the bytes of text files are read.
void declare_text(Settings& settings);
TextOptions text_options(const Settings& settings);

/// "tokenizer": what a token is, and how the vocabulary is learned. `kind`: bpe, words or characters.
void declare_tokenizer(Settings& settings, std::int64_t vocabulary, const std::string& kind = "bpe");
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
/// read, and what this task's does not, `without`. An encoder alone has no "model.max_length":
/// data.max_tokens is the one limit.
void declare_model(Settings& settings, const TransformerConfig& defaults, Stacks stacks,
                   const std::vector<std::string>& without = {});
/// What the settings say of the model; sizes of vocabularies and classes are left to the caller, and what a
/// task has declared below "model" besides. Without "model.max_length" it is data.max_tokens.
TransformerConfig model_config(const Settings& settings);

/// "training": steps, optimizer, schedule, evaluation, checkpoints.
void declare_training(Settings& settings, std::span<const MetricKind> metrics);
/// Throws a SettingsError for settings that do not fit together.
TrainerOptions trainer_options(const Settings& settings);

/// What a user says of attentions beside the settings themselves.
struct AttentionNames {
  /// Of the self-attention of the encoder, and of the decoder where it can serve there.
  std::optional<std::string> attention = {};
  std::optional<std::string> decoder = {}, cross = {};  ///< by themselves
  std::optional<std::string> preset = {};               ///< of models/config.h; the names above lie over it
};
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

/// Throws a SettingsError when no model of the configuration can be built, or when it would take more memory
/// than there is; found out without allocating it. `batch_tokens`: of one batch; `more`: what its constructor
/// takes beside the configuration.
template <class Model, class Config, class... More>
void check_model(const Config& config, std::int64_t batch_tokens, const More&... more) {
  try {
    const ShapesOnly shapes;
    Model model(config, more...);
    add_low_rank_parts(model, config);
    check_cost(model, config, batch_tokens);
  } catch (const SettingsError&) {
    throw;
  } catch (const Error& error) {
    throw SettingsError(concat_text("model: ", error.what()));
  }
}

/// A model of the configuration on the device, f32, after check_model.
template <class Model, class Config, class... More>
std::unique_ptr<Model> make_model(const Config& config, std::int64_t batch_tokens, Device device,
                                  const More&... more) {
  check_model<Model>(config, batch_tokens, more...);
  auto model = std::make_unique<Model>(config, more...);
  add_low_rank_parts(*model, config);
  model->to(DType::f32, device);
  return model;
}

}  // namespace heed
