#include "heed/tasks/recipe.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/models/attention/attention.h"
#include "heed/models/config.h"
#include "heed/tasks/start.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t most_steps = 1'000'000'000'000;
constexpr std::int64_t largest_seed = std::numeric_limits<std::int64_t>::max();

/// What a model of these stacks does not read, and what follows from the data or stands elsewhere.
std::vector<std::string> settings_left_out(Stacks stacks) {
  std::vector<std::string> names = {"source_vocabulary", "target_vocabulary", "classes", "seed"};
  const auto also = [&](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  if (stacks == Stacks::encoder)
    also({"decoder_layers", "decoder_attention", "cross_attention", "tie_embeddings", "pointer", "max_length",
          "output_bias", "output_transform"});
  if (stacks == Stacks::decoder)
    also({"encoder_layers", "encoder_attention", "cross_attention", "pooling", "word_pairs", "local_width",
          "word_dropout", "pointer"});
  if (stacks == Stacks::encoder_decoder)
    also({"pooling", "word_pairs", "local_width", "word_dropout", "token_types", "output_transform"});
  return names;
}

void declare_one(Settings& settings, const ConfigSetting& setting, const Json& initial) {
  const std::string name = "model." + std::string(setting.name), help(setting.help);
  if (setting.name.ends_with("_attention"))
    settings.attention(name, initial.dump(), help);
  else if (initial.is_boolean())
    settings.flag(name, initial.get<bool>(), help);
  else if (initial.is_number_integer())
    settings.integer(name, initial.get<std::int64_t>(), static_cast<std::int64_t>(setting.low),
                     static_cast<std::int64_t>(setting.high), help);
  else if (initial.is_number())
    settings.number(name, initial.get<double>(), setting.low, setting.high, help);
  else
    settings.choice(name, initial.get<std::string>(), setting.choices, help);
}

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : attention_variants()) names.emplace_back(variant.name);
  return names;
}

std::vector<std::string> metric_names(std::span<const MetricKind> metrics) {
  std::vector<std::string> names;
  for (const MetricKind& metric : metrics) names.emplace_back(metric.name);
  return names;
}

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

/// Of "embedding,input" and "encoder=0.5,output=2": 0 for what is frozen.
std::vector<PartRate> part_rates(const std::string& frozen, const std::string& rates) {
  std::vector<PartRate> result;
  for (std::string& part : split_at_commas(frozen)) result.push_back({std::move(part), 0});
  for (const std::string& text : split_at_commas(rates)) {
    const std::size_t equals = std::min(text.find('='), text.size());
    PartRate& one = result.emplace_back(PartRate{text.substr(0, equals), 0});
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(std::min(text.data() + equals + 1, end), end, one.rate);
    if (error != std::errc() || stop != end || !(one.rate >= 0 && one.rate <= 1e6))
      throw SettingsError("training.part_rates: \"" + text +
                          "\" is not PART=RATE with a rate of 0 to 1000000");
  }
  for (const PartRate& one : result)
    if (one.part.empty() || std::ranges::count(result, one.part, &PartRate::part) > 1)
      throw SettingsError("training.freeze and training.part_rates: part \"" + one.part +
                          "\" is empty or stands there twice");
  return result;
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GB", bytes / 1e9);
  return text;
}

}  // namespace

void declare_runtime(Settings& settings) {
  settings.integer("seed", 1, 0, largest_seed, "Seed of initial weights, dropout and the order of the data");
  settings.integer("threads", 0, 0, 1000,
                   "Threads to compute with; 0: one for each processor. The results do not depend on it");
  settings.text(
      "device", "",
      "Where to compute: auto, cpu, vulkan, vulkan:N or vulkan:NAME; empty: $HEED_DEVICE, else cpu");
  settings.flag(
      "int8_weights", false,
      "When the run is used: matrices of weights are rounded to 8 bits, a scale for each row, and writing "
      "one token after the other reads a quarter of the bytes. On the CPU; training knows nothing of it");
  settings.choice("precision", "f32", precision_names(),
                  "In which type the model computes while it trains. The weights stay f32. f16 needs a "
                  "Vulkan device; on the CPU bf16 is for what is multiplied, and needs a processor with "
                  "AVX-512 BF16");
}

Device device_of(const std::string& name, const Ranks* ranks) {
  try {
    return ranks ? find_device(name, ranks->local_rank(), ranks->local_count()) : find_device(name);
  } catch (const Error& error) {
    throw SettingsError(error.what());
  }
}

Device device_of(const Settings& settings, const Ranks* ranks) {
  const Device device = device_of(settings.get<std::string>("device"), ranks);
  if (settings.get<bool>("int8_weights") && device.type != DeviceType::cpu)
    throw SettingsError(concat_text("int8_weights is for the CPU, and the device is ", device));
  return device;
}

void apply_threads(const Settings& settings, const Ranks* ranks) {
  if (const auto threads = settings.get<std::int64_t>("threads"); threads > 0)
    set_cpu_threads(static_cast<int>(threads));
  else if (ranks)
    set_cpu_threads(ranks->thread_share());
}

void declare_text(Settings& settings) {
  const TextOptions options;
  settings.choice("data.encoding", "utf-8", encoding_names(),
                  "How bytes stand for characters; it is never guessed");
  settings.choice(
      "data.on_bad_bytes", "error", bad_bytes_names(),
      "What becomes of bytes that the encoding does not have: an error, or replaced by U+FFFD and counted");
  settings.integer("data.max_bytes", static_cast<std::int64_t>(options.max_bytes), 1, largest_seed,
                   "The most bytes of one file of text, unpacked");
}

TextOptions text_options(const Settings& settings) {
  TextOptions options;
  options.encoding = encoding_from_name(settings.get<std::string>("data.encoding"));
  options.bad_bytes = bad_bytes_from_name(settings.get<std::string>("data.on_bad_bytes"));
  options.max_bytes = static_cast<std::uint64_t>(settings.get<std::int64_t>("data.max_bytes"));
  return options;
}

void declare_tokenizer(Settings& settings, std::int64_t vocabulary, const std::string& kind) {
  settings.choice(
      "tokenizer.kind", kind, {"bpe", "words", "characters"},
      "What a token is: a part of a word (byte-level BPE), a word or punctuation mark, a character");
  settings.integer("tokenizer.vocabulary", vocabulary, 0, 10'000'000,
                   "The most tokens of bpe and words, marks included; bpe needs 256 for the bytes");
  settings.integer("tokenizer.min_frequency", 2, 1, most_steps,
                   "bpe: pairs that are rarer are never merged; words: those that are rarer are <unk>");
  settings.flag("tokenizer.lower_case", false, "Whether texts are read in small letters");
  settings.text("tokenizer.file", "",
                "A tokenizer.json to use instead of learning one by kind, vocabulary, min_frequency and "
                "lower_case: BPE, words, WordPiece or Unigram; empty: none");
}

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
  const auto kind = settings.get<std::string>("tokenizer.kind");
  TokenizerTraining options;
  options.vocabulary_size = settings.get<std::int64_t>("tokenizer.vocabulary");
  options.min_frequency = settings.get<std::int64_t>("tokenizer.min_frequency");
  if (settings.get<bool>("tokenizer.lower_case")) options.normalizer = {TextStep::lower_case};
  if (kind == "characters") {
    std::vector<std::string> all;
    texts([&](std::string_view text) { all.emplace_back(text); });
    return Tokenizer::train_characters(all, marks, options.normalizer);
  }
  if (kind == "words" && std::find(marks.begin(), marks.end(), "<unk>") == marks.end())
    marks.emplace_back("<unk>");
  options.special_tokens = std::move(marks);
  if (kind == "bpe") return Tokenizer::train(texts, options);
  return Tokenizer::train_words(
      texts, options, how.keep_line_breaks ? std::vector<std::string>{"\n"} : std::vector<std::string>{});
}

void declare_model(Settings& settings, const TransformerConfig& defaults, Stacks stacks,
                   const std::vector<std::string>& without) {
  const Json initial = Json::parse(to_json(defaults));
  std::vector<std::string> left_out = settings_left_out(stacks);
  left_out.insert(left_out.end(), without.begin(), without.end());
  for (const ConfigSetting& setting : transformer_settings())
    if (std::find(left_out.begin(), left_out.end(), setting.name) == left_out.end())
      declare_one(settings, setting, initial.at(std::string(setting.name)));
}

TransformerConfig model_config(const Settings& settings) {
  try {
    const Json all = Json::parse(settings.json("model"));
    Json model = Json::object();
    for (const ConfigSetting& setting : transformer_settings())
      if (const auto found = all.find(setting.name); found != all.end())
        model[std::string(setting.name)] = *found;
    TransformerConfig config = transformer_config_from_json(model.dump());
    if (!model.contains("max_length")) config.max_length = settings.get<std::int64_t>("data.max_tokens");
    config.seed = settings.get<std::int64_t>("seed");
    return config;
  } catch (const Error& error) {
    throw SettingsError(concat_text("model: ", error.what()));
  }
}

void declare_training(Settings& settings, std::span<const MetricKind> metrics) {
  const TrainerOptions options;
  const auto steps = [&](const char* name, std::int64_t initial, std::string help) {
    settings.integer(std::string("training.") + name, initial, 0, most_steps, std::move(help));
  };
  const auto number = [&](const char* name, double initial, double low, double high, std::string help) {
    settings.number(std::string("training.") + name, initial, low, high, std::move(help));
  };
  settings.integer("training.steps", 1000, 0, std::numeric_limits<std::int32_t>::max(),
                   "Steps of the optimizer");
  settings.integer("training.epochs", 0, 0, 1'000'000,
                   "Passes over the data, instead of steps; 0: as many as the steps take");
  settings.integer("training.batch_tokens", 4096, 1, 1'000'000'000,
                   "The most tokens of a batch, padding included");
  settings.integer("training.accumulation", options.accumulation, 1, 1'000'000,
                   "Batches for each step; their gradient is the mean over all their tokens");
  number("label_smoothing", 0.1, 0, 0.999,
         "Share of each target's probability that is spread over all others");
  number("clip_norm", 1.0, 0, 1e30, "Limit of the gradient's norm; 0: none");
  number("ema_decay", options.ema_decay, 0, 0.9999999,
         "Of the moving average of the weights, which is what is measured and kept as best; 0: none");
  settings.choice("training.optimizer.name", "adam", optimizer_names(), "What turns gradients into steps");
  number("optimizer.beta1", 0.9, 0, 0.9999999, "Of Adam's first moment; the momentum of sgd");
  number("optimizer.beta2", 0.98, 0, 0.9999999, "Of Adam's second moment");
  number("optimizer.epsilon", 1e-9, 1e-30, 1, "Added to the root of Adam's second moment");
  number("optimizer.weight_decay", 0.0, 0, 1e6, "Of adamw: on the weights; of adam: added to the gradient");
  settings.flag("training.optimizer.decay_vectors", false,
                "Whether adamw also decays biases and the scales and shifts of norms");
  settings.choice("training.schedule.name", "inverse_sqrt", schedule_names(),
                  "How the learning rate goes on after the warm-up");
  number("schedule.learning_rate", 1e-3, 1e-30, 1e30, "The peak of the learning rate");
  steps("schedule.warmup_steps", 400, "Steps in which the rate rises to its peak");
  number("schedule.final_rate", options.schedule.final_rate, 0, 1e30,
         "The rate at the end of linear and cosine");
  settings.text("training.freeze", "",
                "Parts of the model whose weights stay as they are: embedding,encoder");
  settings.text("training.part_rates", "",
                "Learning rates of parts, as multiples of the schedule's: embedding=0.1,encoder=0.5");
  declare_start(settings);
  steps("log_every", options.log_every, "Steps between progress records");
  number("log_seconds", 10, 0, 1e9, "Seconds after which progress is shown anyway; 0: by steps alone");
  settings.flag("training.tensorboard", false,
                "Whether the curves are also written as files that TensorBoard reads");
  steps("evaluate_every", 500, "Steps between evaluations; 0: none");
  steps("patience", options.patience,
        "Evaluations without a better one after which training stops; 0: never stops");
  steps("save_every", 500, "Steps between checkpoints; better evaluations and the end make one too");
  settings.choice("training.keep_best_by", metrics.front().name, metric_names(metrics),
                  "The metric that says which weights are best");
}

TrainerOptions trainer_options(const Settings& settings) {
  const auto integer = [&](const char* name) {
    return settings.get<std::int64_t>(std::string("training.") + name);
  };
  const auto number = [&](const char* name) { return settings.get<double>(std::string("training.") + name); };
  const auto text = [&](const char* name) {
    return settings.get<std::string>(std::string("training.") + name);
  };
  TrainerOptions options;
  options.epochs = integer("epochs");
  options.steps = options.epochs > 0 ? 0 : integer("steps");
  options.accumulation = integer("accumulation");
  options.clip_norm = number("clip_norm");
  options.ema_decay = number("ema_decay");
  options.optimizer = {optimizer_kind(text("optimizer.name")),
                       number("optimizer.beta1"),
                       number("optimizer.beta2"),
                       number("optimizer.epsilon"),
                       number("optimizer.weight_decay"),
                       settings.get<bool>("training.optimizer.decay_vectors")};
  options.schedule = {schedule_kind(text("schedule.name")), number("schedule.learning_rate"),
                      integer("schedule.warmup_steps"), number("schedule.final_rate")};
  options.part_rates = part_rates(text("freeze"), text("part_rates"));
  options.log_every = integer("log_every");
  options.log_seconds = number("log_seconds");
  options.tensorboard = settings.get<bool>("training.tensorboard");
  options.evaluate_every = integer("evaluate_every");
  options.patience = integer("patience");
  options.save_every = integer("save_every");
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("seed"));
  options.precision = precision_from_name(settings.get<std::string>("precision"));
  try {
    check_options(options);
    learning_rate_at(options.schedule, 1, std::max<std::int64_t>(options.steps, 1));
  } catch (const Error& error) {
    throw SettingsError(concat_text("training: ", error.what()));
  }
  return options;
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
  const auto choose = [&](const std::string& path, const char* flag, const std::string& name) {
    check_name(concat_text(flag, ": attention"), name, variant_names());
    const Json before = Json::parse(settings.json(path));
    if (before.is_object() && before.value("name", "dot_product") == name) return;  // keeps its options
    if (before.is_object() && before.size() > 1)
      notes.push_back(concat_text(flag, ' ', name, " takes the place of ", before.dump(), " in ", path));
    settings.set_json(path, Json(name).dump(), flag);
  };
  if (names.preset) {
    try {
      TransformerConfig config = model_config(settings);
      apply_preset(config, *names.preset);
      const Json chosen = Json::parse(to_json(config));
      for (const std::string& path : attention_settings(stacks))
        settings.set_json(path, chosen.at(path.substr(path.find('.') + 1)).dump(), "--preset");
    } catch (const SettingsError&) {
      throw;
    } catch (const Error& error) {
      throw SettingsError(concat_text("--preset: ", error.what()));
    }
  }
  if (names.attention) {
    const std::string& name = *names.attention;
    if (stacks != Stacks::decoder) choose("model.encoder_attention", "--attention", name);
    const bool known =
        std::ranges::any_of(attention_variants(), [&](const auto& one) { return one.name == name; });
    // Without an encoder there is nothing else to choose it for: building the model says why it cannot serve.
    if (stacks == Stacks::decoder ||
        (stacks == Stacks::encoder_decoder && known && attention_variant(name).capabilities.causal))
      choose("model.decoder_attention", "--attention", name);
    else if (stacks == Stacks::encoder_decoder && !names.decoder)
      notes.push_back(concat_text("attention '", name, "' cannot serve in the decoder, which keeps ",
                                  settings.json("model.decoder_attention")));
  }
  if (names.decoder) choose("model.decoder_attention", "--decoder-attention", *names.decoder);
  if (names.cross) choose("model.cross_attention", "--cross-attention", *names.cross);
  return notes;
}

void check_cost(Module& model, const TransformerConfig& config, std::int64_t batch_tokens) {
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)),
               page = static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double machine = pages * page;
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
                          static_cast<double>(limit.rlim_cur) < machine;
  const double most = is_limited ? static_cast<double>(limit.rlim_cur) : machine;
  // Weights, gradients and two moments; each layer keeps at the least its input and what is between its two
  // parts.
  const auto cost = [](std::int64_t parameters) { return 16 * static_cast<double>(parameters); };
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
      " with gradients and moments (the largest, ", largest.name, ' ', largest.tensor->shape(),
      config.word_pairs > 0 && largest.tensor->size(0) == config.word_pairs ? " of model.word_pairs, " : ", ",
      gigabytes(cost(largest.tensor->count())), "), and a batch of ", batch_tokens, " tokens at least ",
      gigabytes(step), ", but this ", is_limited ? "process may use " : "machine has ", gigabytes(most),
      ": choose a smaller model or training.batch_tokens"));
}

}  // namespace heed
