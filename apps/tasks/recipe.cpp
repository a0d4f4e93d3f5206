#include "heed/apps/tasks/recipe.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"
#include "heed/core/device.h"
#include "heed/models/attention/attention.h"
#include "heed/models/config.h"
#include "heed/text/tokenizer.h"
#include "heed/training/checkpoint.h"

namespace heed {

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

namespace {

using Json = nlohmann::ordered_json;

/// Returns the rates of parts in "embedding,input" and "encoder=0.5,output=2"; 0 for frozen parts.
std::vector<PartRate> part_rates(const std::string& frozen, const std::string& rates) {
  std::vector<PartRate> result;
  for (std::string& part : split_at_commas(frozen)) result.push_back({std::move(part), 0});
  for (const std::string& text : split_at_commas(rates)) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string_view value = std::string_view(text).substr(std::min(equals + 1, text.size()));
    const double rate = parsed_number(value).value_or(-1);
    if (!(rate >= 0 && rate <= 1e6))
      throw SettingsError("training.part_rates: \"" + text +
                          "\" is not PART=RATE with a rate of 0 to 1000000");
    result.push_back({text.substr(0, equals), rate});
  }
  for (const PartRate& one : result)
    if (one.part.empty() || std::ranges::count(result, one.part, &PartRate::part) > 1)
      throw SettingsError("training.freeze and training.part_rates: part \"" + one.part +
                          "\" is empty or listed twice");
  return result;
}

/// The setting "data.max_tokens" of any task.
struct LongestText {
  std::int64_t max_tokens = 0;
};
void for_each_setting(auto&& visit, LongestText& text) {
  visit(text.max_tokens, "max_tokens", 1, 1 << 24, "");
}

std::string gigabytes(double bytes) {
  return formatted("%.3g GB", bytes / 1e9);
}

}  // namespace

Device device_of(const std::string& name, const Ranks* ranks) {
  return as_settings_error("", [&] {
    return ranks ? find_device(name, ranks->local_rank(), ranks->local_count()) : find_device(name);
  });
}

Device device_of(const Settings& settings, const Ranks* ranks) {
  const auto runtime = settings.read<RuntimeSettings>("");
  const Device device = device_of(runtime.device, ranks);
  if ((runtime.int8_weights || runtime.bf16_weights) && device.type != DeviceType::cpu)
    throw SettingsError(concat_text(runtime.int8_weights ? "int8_weights" : "bf16_weights",
                                    " is for the CPU, but the device is ", device));
  if (runtime.int8_weights && runtime.bf16_weights)
    throw SettingsError("int8_weights and bf16_weights are both true: set only one of them");
  return device;
}

void apply_threads(const Settings& settings, const Ranks* ranks) {
  if (const std::int64_t threads = settings.read<RuntimeSettings>("").threads; threads > 0)
    set_cpu_threads(static_cast<int>(threads));
  else if (ranks)
    set_cpu_threads(ranks->thread_share());
}

std::string choose_token_kind(Settings& settings, const TextSource& texts) {
  const auto tokenizer = settings.read<VocabularySettings>("tokenizer");
  const auto training = settings.read<TrainingSettings>("training");
  if (tokenizer.kind != "auto" || !tokenizer.file.empty() || !training.from.empty()) return "";
  const TokenKind chosen = training.embeddings.empty()
                               ? token_kind_for(texts)
                               : TokenKind{"words", "training.embeddings are word vectors"};
  settings.set("tokenizer.kind", chosen.name, "the training texts");
  const bool is_given =
      settings.json("tokenizer.vocabulary") != settings.setting("tokenizer.vocabulary").initial;
  if (chosen.vocabulary > 0 && !is_given)
    settings.set("tokenizer.vocabulary", std::to_string(chosen.vocabulary), "the training texts");
  const std::string name =
      chosen.name == "bpe"
          ? concat_text("parts of words (bpe, ", settings.read<VocabularySettings>("tokenizer").vocabulary,
                        " of them)")
          : chosen.name;
  return concat_text("tokens are ", name, ", since ", chosen.why, " (tokenizer.kind=auto)");
}

namespace {

/// Returns the tokenizer in the file of this name in the run of training.from, or tokenizer.file;
/// nothing if neither is set.
std::optional<Tokenizer> given_tokenizer(const Settings& settings, const std::string& name) {
  if (const auto from = settings.read<TrainingSettings>("training").from; !from.empty())
    return Tokenizer::from_json(open_run(from)->text(name), concat_text(from, '/', name));
  if (const auto file = settings.read<VocabularySettings>("tokenizer").file; !file.empty())
    return Tokenizer::load(file);
  return std::nullopt;
}

}  // namespace

Tokenizer learn_tokenizer(const Settings& settings, std::span<const std::string> texts,
                          std::vector<std::string> marks, const LearnTokenizerOptions& how) {
  return learn_tokenizer(settings, source_of(texts), std::move(marks), how);
}

Tokenizer learn_tokenizer(const Settings& settings, const TextSource& texts, std::vector<std::string> marks,
                          const LearnTokenizerOptions& how) {
  if (std::optional<Tokenizer> given = given_tokenizer(settings, how.file)) {
    for (const std::string& mark : marks)
      if (mark != "<pad>" && mark != "<unk>" && mark != "<s>")
        given->id_of(mark);  // throws where there is none
    return *std::move(given);
  }
  const auto tokenizer = settings.read<VocabularySettings>("tokenizer");
  check(tokenizer.kind != "auto", "tokenizer.kind=auto: the task has not looked at its texts");
  TokenizerTraining options;
  options.vocabulary_size = tokenizer.vocabulary;
  options.min_frequency = tokenizer.min_frequency;
  if (tokenizer.lower_case) options.normalizer = {TextStep::lower_case};
  if (tokenizer.kind == "characters") {
    std::vector<std::string> all;
    texts([&](std::string_view text) { all.emplace_back(text); });
    return Tokenizer::train_characters(all, marks, options.normalizer);
  }
  if (tokenizer.kind == "words" && std::find(marks.begin(), marks.end(), "<unk>") == marks.end())
    marks.emplace_back("<unk>");
  options.special_tokens = std::move(marks);
  if (tokenizer.kind == "bpe") return Tokenizer::train(texts, options);
  return Tokenizer::train_words(
      texts, options, how.keep_line_breaks ? std::vector<std::string>{"\n"} : std::vector<std::string>{});
}

namespace {

/// Returns the settings that a model of these stacks does not use, in addition to those that follow
/// from the data.
std::vector<std::string> unread_by(Stacks stacks) {
  switch (stacks) {
    case Stacks::encoder:
      return {"decoder_layers", "max_length",        "tie_embeddings",  "output_bias", "output_transform",
              "pointer",        "decoder_attention", "cross_attention", "output_cap",  "pooler_width"};
    case Stacks::decoder:
      return {"encoder_layers", "pooling",           "pooler",
              "local_width",    "word_dropout",      "pooler_width",
              "pointer",        "encoder_attention", "cross_attention"};
    default:
      return {"pooling",      "pooler",      "pooler_width",    "local_width",
              "word_dropout", "token_types", "output_transform"};
  }
}

}  // namespace

void declare_model(Settings& settings, const TransformerConfig& defaults, Stacks stacks,
                   bool has_sparse_features) {
  const Json initial = Json::parse(to_json(defaults));
  std::vector<std::string> left_out = {"source_vocabulary", "target_vocabulary", "classes", "vector_features",
                                       "seed"};
  std::ranges::copy(unread_by(stacks), std::back_inserter(left_out));
  if (!has_sparse_features) left_out.emplace_back("sparse_features");
  if (defaults.pooling.empty())
    left_out.insert(left_out.end(), {"pooling", "pooler"});  // each token has an answer
  for (const Setting& setting : transformer_settings())
    if (std::ranges::count(left_out, setting.name) == 0)
      settings.declare_json("model", setting, initial.at(setting.name).dump());
}

TransformerConfig model_config(const Settings& settings) {
  return as_settings_error("model: ", [&] {
    Json model = Json::object();
    for (const Setting& setting : transformer_settings())
      if (const std::string name = "model." + setting.name; settings.has(name))
        model[setting.name] = Json::parse(settings.json(name));
    TransformerConfig config = transformer_config_from_json(model.dump());
    if (!model.contains("max_length")) config.max_length = settings.read<LongestText>("data").max_tokens;
    config.seed = settings.read<RuntimeSettings>("").seed;
    return config;
  });
}

void declare_training(Settings& settings, std::span<const MetricKind> metrics, bool smooths) {
  TrainerOptions options{.steps = 1000,
                         .clip_norm = 1,
                         .optimizer = {.beta2 = 0.98, .epsilon = 1e-9},
                         .schedule = {.kind = ScheduleKind::inverse_sqrt, .warmup_steps = 400}};
  options.log_seconds = 10;
  options.evaluate_every = options.save_every = 500;
  options.shown_evaluations = 5;
  options.shown_sample = 1024;
  settings.declare("training", options);
  TrainingSettings training{.keep_best_by = std::string(metrics.front().name), .smooths = smooths};
  for (const MetricKind& metric : metrics) training.metrics.emplace_back(metric.name);
  settings.declare("training", training);
}

TrainerOptions trainer_options(const Settings& settings) {
  auto options = settings.read<TrainerOptions>("training");
  // Short runs record their curves at least ten times, unless the user set another interval.
  if (options.steps > 0 && options.log_every == TrainerOptions().log_every)
    options.log_every = std::min(options.log_every, std::max<std::int64_t>(options.steps / 10, 1));
  const auto training = settings.read<TrainingSettings>("training");
  options.part_rates = part_rates(training.freeze, training.part_rates);
  const auto runtime = settings.read<RuntimeSettings>("");
  options.seed = static_cast<std::uint64_t>(runtime.seed);
  options.precision = runtime.precision;
  as_settings_error("training: ", [&] {
    check_options(options);
    learning_rate_at(options.schedule, 1, std::max<std::int64_t>(options.steps, 1));
  });
  return options;
}

std::vector<std::string> attention_names() {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) names.emplace_back(variant.name);
  return names;
}

std::vector<std::string> attention_settings(Stacks stacks) {
  if (stacks == Stacks::encoder) return {"model.encoder_attention"};
  if (stacks == Stacks::decoder) return {"model.decoder_attention"};
  return {"model.encoder_attention", "model.decoder_attention", "model.cross_attention"};
}

bool belongs_to_attention(Stacks stacks, std::string_view setting) {
  return std::ranges::any_of(attention_settings(stacks), [&](const std::string& attention) {
    return setting == attention || setting.starts_with(attention + ".");
  });
}

std::vector<std::string> choose_attentions(Settings& settings, Stacks stacks, const AttentionNames& names) {
  std::vector<std::string> notes;
  const auto choose = [&](const std::string& path, const char* argument, const std::string& name) {
    check_name(concat_text(argument, ": attention"), name, attention_names());
    const Json before = Json::parse(settings.json(path));
    if (before.is_object() && before.value("name", "dot_product") == name) return;  // keeps its options
    if (before.is_object() && before.size() > 1)
      notes.push_back(concat_text(argument, ' ', name, " replaces ", before.dump(), " in ", path));
    settings.set_json(path, Json(name).dump(), argument);
  };
  if (names.preset)
    as_settings_error("preset: ", [&] {
      TransformerConfig config = model_config(settings);
      apply_preset(config, *names.preset);
      const Json chosen = Json::parse(to_json(config));
      for (const std::string& path : attention_settings(stacks))
        settings.set_json(path, chosen.at(path.substr(path.find('.') + 1)).dump(), "preset");
    });
  if (names.attention) {
    const std::string& name = *names.attention;
    if (stacks != Stacks::decoder) choose("model.encoder_attention", "attention", name);
    const bool known = std::ranges::count(attention_names(), name) > 0;
    // Without an encoder, the flag can only mean the decoder: building the model reports why a
    // mechanism cannot serve there.
    if (stacks == Stacks::decoder ||
        (stacks == Stacks::encoder_decoder && known && attention_variant(name).capabilities.causal))
      choose("model.decoder_attention", "attention", name);
    else if (stacks == Stacks::encoder_decoder && !names.decoder)
      notes.push_back(concat_text("attention '", name, "' cannot serve in the decoder, which keeps ",
                                  settings.json("model.decoder_attention")));
  }
  if (names.decoder) choose("model.decoder_attention", "decoder_attention", *names.decoder);
  if (names.cross) choose("model.cross_attention", "cross_attention", *names.cross);
  return notes;
}

void check_model(const std::function<std::unique_ptr<Module>()>& make) {
  as_settings_error("model: ", [&] {
    const ShapesOnly shapes;
    make();
  });
}

void check_cost(Module& model, const TransformerConfig& config, std::int64_t batch_tokens) {
  const double machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
                          static_cast<double>(limit.rlim_cur) < machine;
  const double most = is_limited ? static_cast<double>(limit.rlim_cur) : machine;
  // Weights, gradients and two moments; each layer keeps at least its input and the value between
  // its two sub-layers.
  const bool trains = batch_tokens > 0;
  const auto cost = [&](std::int64_t parameters) {
    return (trains ? 16 : 4) * static_cast<double>(parameters);
  };
  const double weights = cost(model.parameter_count());
  const double kept = static_cast<double>(2 * config.width + config.feed_forward) * 4;
  const double layers =
      config.recompute_layers ? 1 : static_cast<double>(config.encoder_layers + config.decoder_layers);
  const double step = static_cast<double>(batch_tokens) * kept * std::max(layers / 2, 1.0);
  if (weights + step <= most) return;
  const std::vector<NamedTensor> all = model.parameters();
  const NamedTensor& largest =
      *std::ranges::max_element(all, {}, [](const NamedTensor& one) { return one.tensor->count(); });
  throw SettingsError(concat_text(
      "model: ", model.parameter_count(), " parameters take ", gigabytes(weights),
      trains ? " with gradients and moments" : "", " (the largest, ", largest.name, ' ',
      largest.tensor->shape(), ", ", gigabytes(cost(largest.tensor->count())), ")",
      trains ? concat_text(", and a batch of ", batch_tokens, " tokens at least ", gigabytes(step)) : "",
      ", but this ", is_limited ? "process may use " : "machine has ", gigabytes(most),
      trains ? ": choose a smaller model or training.batch_tokens" : ""));
}

}  // namespace heed
