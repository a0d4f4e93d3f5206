// Language modelling: a decoder-only Transformer (models/language_model.h) that learns a text, characters or
// byte-level BPE, and writes on from a prompt. The text is a file or a folder of files; without one it learns
// English sentences made by rule.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid.

#include "heed/apps/tasks/language_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/data/table.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/models/language_model.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The first is that of both objectives; then come those of the causal one, and of the masked one.
constexpr MetricKind text_metrics[] = {{"loss", false},
                                       {"perplexity", false},
                                       {"nats_per_character", false},
                                       {"bits_per_character", false},
                                       {"accuracy", true},
                                       {"pseudo_perplexity", false}};
constexpr std::span causal_kinds = std::span(text_metrics).first<4>();

// --- settings

constexpr const char* for_all = R"({
  "training": {"label_smoothing": 0.0, "shown_sample": 4096,
    "optimizer": {"name": "adamw", "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1},
    "schedule": {"name": "cosine", "learning_rate": 0.002}}})";

/// Blocks and optimizer are those that need the least time (docs/explanation/experiments.md).
constexpr const char* for_text = R"({
  "model": {"width": 192, "heads": 6, "feed_forward": 512, "decoder_layers": 4, "positions": "rotary",
    "norm_kind": "rms", "activation": "swiglu", "embedding_deviation": 0.02},
  "training": {"steps": 3000, "batch_tokens": 2048, "short_share": 0.3, "evaluate_every": 500, "save_every": 500,
    "optimizer": {"name": "muon", "momentum": 0.9},
    "schedule": {"name": "linear", "learning_rate": 0.008, "warmup_steps": 10}}})";

/// Trained weights take steps of AdamW, whose learning rate follows from the width (TaskEntry).
constexpr const char* for_tuned_writers = R"({
  "training": {"steps": 1000, "short_share": 0, "optimizer": {"name": "adamw"},
    "schedule": {"name": "cosine", "warmup_steps": 100}}})";

/// The pass limit for writers: on a short text the held-out loss rises after that.
constexpr EpochLimit writer_epoch_limit = {10, 300};

/// Defaults for generated sentences: many small batches, because the rules are learned late and a
/// short text gives few large batches.
constexpr const char* for_agreement = R"({
  "model": {"width": 96, "heads": 4, "feed_forward": 256, "decoder_layers": 2, "max_length": 128, "dropout": 0.0},
  "training": {"steps": 4000, "batch_tokens": 1024, "evaluate_every": 800, "save_every": 1000,
    "schedule": {"warmup_steps": 100, "learning_rate": 0.003}}})";

Settings language_model_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("", TextObjective());
  settings.declare("data", TextData());
  settings.declare("data", RuleData());
  settings.declare("tokenizer", VocabularySettings{.kind = "characters", .vocabulary = 2000});
  settings.declare("tokenizer", TextTokenizer());
  TransformerConfig model;
  model.norm = "pre";
  model.positions = "learned";
  model.activation = "gelu";
  model.tie_embeddings = "decoder";
  declare_model(settings, model, Stacks::decoder);
  declare_training(settings, text_metrics);
  settings.declare("training", TextTraining());
  settings.declare("prediction", MaskedPrediction());
  settings.declare("evaluation", TextEvaluation());
  settings.declare("generation", Generation());
  settings.change_defaults(for_all);
  settings.change_defaults(own_data ? for_text : for_agreement);
  return settings;
}

/// Replaces rotary positions, the default for texts, by learned ones if the attention cannot have
/// them. Returns a remark, or "".
std::string choose_positions(Settings& settings) {
  const std::string path = "model.positions";
  if (settings.setting(path).is_given || model_config(settings).positions != "rotary") return "";
  const std::string reason = rotary_obstacle(settings);
  if (reason.empty()) return "";
  settings.set(path, "learned", "the attention");
  return concat_text("positions are learned, since ", reason, " (model.positions)");
}

bool is_masked(const Settings& settings) {
  return settings.read<TextObjective>("").objective == TextObjective::Objective::masked;
}

void check_text_training(const Settings& settings) {
  training_windows(settings);
  const std::string best_by = settings.read<TrainingSettings>("training").keep_best_by;
  const auto metric =
      std::ranges::find(text_metrics, std::string_view(best_by), &MetricKind::name) - text_metrics;
  const bool is_of_masked = metric >= std::ssize(causal_kinds);
  if (settings.read<RuleData>("data").has_exercises()) return;
  if (metric > 0 && is_of_masked != is_masked(settings))
    throw SettingsError(concat_text("training.keep_best_by=", best_by,
                                    " is only measured with objective=", is_of_masked ? "masked" : "causal"));
}

std::unique_ptr<Task> make_text_task(const TaskEntry& entry, Settings settings) {
  if (settings.read<RuleData>("data").has_exercises()) return make_exercise_task(entry, std::move(settings));
  const std::string remark = choose_positions(settings);
  std::unique_ptr<Task> task = is_masked(settings) ? make_masked_task(entry, std::move(settings))
                                                   : std::make_unique<TextWriter>(entry, std::move(settings));
  task->remark(remark);
  return task;
}

std::vector<double> metric_values(const TextLoss& loss) {  // in the order of `text_metrics`
  return {loss.nats_per_token(), loss.perplexity(), loss.nats_per_character(), loss.bits_per_character()};
}

/// Returns windows of what the model reads, evaluation.stride apart.
TextLossOptions evaluation_windows(std::int64_t window, std::int64_t stride) {
  if (stride > window)
    throw SettingsError(concat_text("evaluation.stride must be 1 to model.max_length (", window,
                                    "), or 0 for half of it, not ", stride));
  return {.window = window,
          .stride = stride > 0 ? stride : std::max<std::int64_t>(window / 2, 1),
          .rows = std::max<std::int64_t>(4096 / window, 1)};
}

// --- the text

/// Reads the text of a file, or of all files in a folder and its subfolders, by name.
void read_documents(const fs::path& path, LargeText& text, const TextData& data, ReadReport& report) {
  const auto read = [&](const fs::path& file) {
    if (data.format == TextData::Format::text) return read_large_text(file, text, data.text, &report);
    const TableOptions options{.format = "jsonl", .columns = {"text"}, .text = data.text};
    read_table_rows(
        file, options, [&](const TableCells& row) { text.add(row.cells[0], true); }, &report);
  };
  if (!fs::is_directory(path)) return read(path);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    std::error_code unreadable;
    const bool is_folder = fs::is_directory(entry.symlink_status());
    check(is_folder || fs::is_regular_file(entry.path(), unreadable), entry.path().string(),
          ": expected a text or a folder of texts, and this is neither (a link to a folder is not followed)");
    if (!is_folder) files.push_back(entry.path());
  }
  check(!files.empty(), path.string(), ": the folder holds no files");
  std::sort(files.begin(), files.end());
  std::ranges::for_each(files, read);
}

std::string joined_lines(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

/// Returns a text with each character of the texts once, which is all that a character tokenizer
/// learns from.
std::string describe_characters(std::initializer_list<const LargeText*> texts) {
  std::string characters;
  std::vector<bool> seen(0x110000);
  for (const LargeText* text : texts) {
    for (std::size_t i = 0; i < text->size(); ++i) {
      const std::string piece = (*text)[i].text;
      for (std::size_t at = 0; at < piece.size();) {
        const unicode::CodePoint c = unicode::decode(piece, at);
        if (!seen[c.value]) characters.append(piece, at, static_cast<std::size_t>(c.length));
        seen[c.value] = true;
        at += static_cast<std::size_t>(c.length);
      }
    }
  }
  return characters;
}

}  // namespace

std::string rotary_obstacle(const Settings& settings) {
  const TransformerConfig config = model_config(settings);
  std::string reason;
  for (const AttentionChoice& choice : config.decoder_attention) {
    const std::int64_t heads = choice.heads > 0 ? choice.heads : config.heads;
    if (!attention_capabilities(choice.name, choice.options).rotary)
      reason = concat_text("attention '", choice.name, "' cannot have rotary ones");
    else if (config.head_width == 0 && config.width / heads % 2 != 0)
      reason = concat_text("heads of the odd width ", config.width / heads, " cannot have rotary ones");
  }
  return reason;
}

WindowOptions training_windows(const Settings& settings) {
  const TransformerConfig model = model_config(settings);
  const std::int64_t tokens = settings.read<TrainingSettings>("training").batch_tokens;
  if (tokens < model.max_length)
    throw SettingsError(concat_text("training.batch_tokens is ", tokens,
                                    ", but a single window (model.max_length) takes ", model.max_length,
                                    ": raise the one or lower the other"));
  WindowOptions options;
  options.length = model.max_length;
  options.rows = tokens / options.length;
  options.seed = static_cast<std::uint64_t>(model.seed);
  return options;
}

void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what) {
  std::vector<std::string> unknown = tokenizer.unknown_characters(text);
  for (std::string& character : unknown) character = "'" + character + "'";
  check(unknown.empty(), what, " has characters that the tokenizer does not know: ", listed(unknown),
        "; a character model reads only the characters of its training text, a BPE model any");
}

std::vector<double> scored_targets(const Tensor& logits, const Targets& targets) {
  double nats = 0, right = 0;
  for (const float loss : cross_entropy(logits, targets.ids).to_vector<float>())
    nats += static_cast<double>(loss);
  for (const std::int32_t one : equal(argmax(logits, -1), targets.ids).to_vector<std::int32_t>())
    right += one;
  return {nats, static_cast<double>(targets.count), right};
}

TextTask::TextTask(const TaskEntry& entry, Settings given)
    : Task(entry, std::move(given)),
      config_(model_config(settings_)),
      data_(settings_.read<TextData>("data")),
      marks_(settings_.read<TextTokenizer>("tokenizer")),
      text_training_(settings_.read<TextTraining>("training")),
      evaluation_(settings_.read<TextEvaluation>("evaluation")) {}

std::map<std::string, std::string> TextTask::read_parts() {
  parts_ = DataParts<LargeText>();
  if (!names_file(settings_)) {
    // The text does not depend on the seed, so that runs with different seeds are compared on the
    // same sentences.
    const AgreementText text = agreement_text(1, data_.sentences, data_.held_out_sentences);
    parts_.train.add(joined_lines(text.train), true);
    parts_.valid.add(joined_lines(text.held_out), true);
  } else {
    ReadReport report;
    parts_.train = read(data_.file, data_, report);
    const double share = 1 - data_.valid_fraction;
    const auto characters = static_cast<std::int64_t>(static_cast<double>(parts_.train.characters()) * share);
    if (!data_.valid.empty())
      parts_.valid = read(data_.valid, data_, report);
    else
      std::tie(parts_.train, parts_.valid) = split_large_text(parts_.train, characters, data_.memory_bytes);
    remark_on_reading(report);
  }
  return digests_of(parts_, [](const LargeText& text) {
    Digest digest;  // documents that are one piece each have the digest of their texts
    for (std::size_t i = 0; i < text.size(); ++i) add_text(digest, text[i].text);
    digest.add(";");
    return digest.hex();
  });
}

LargeText TextTask::read(const std::string& file, const TextData& layout, ReadReport& report) const {
  LargeText text(data_.memory_bytes);
  read_documents(file, text, layout, report);
  return text;
}

NamedFiles TextTask::learned_files() {
  std::vector<std::string> marks = {text_mark};
  if (is_masked(settings_)) marks.push_back(mask_token);
  std::size_t pieces = 0;
  for (std::int64_t left = marks_.training_bytes; pieces < parts_.train.size() && left > 0; ++pieces)
    left -= parts_.train.bytes(pieces);
  const TextSource texts = [&](const std::function<void(std::string_view)>& take) {
    for (std::size_t i = 0; i < pieces; ++i) take(parts_.train[i].text);
  };
  remark(choose_token_kind(settings_, texts));
  if (settings_.read<VocabularySettings>("tokenizer").kind == "characters") {
    const std::string characters = describe_characters({&parts_.train, &parts_.valid});
    return {{"tokenizer.json", learn_tokenizer(settings_, {&characters, 1}, marks).to_json()}};
  }
  if (pieces < parts_.train.size())
    remark(concat_text("the tokenizer is learned from the first ", pieces, " of ", parts_.train.size(),
                       " pieces of the text (tokenizer.training_bytes)"));
  return {{"tokenizer.json", learn_tokenizer(settings_, texts, marks, {.keep_line_breaks = true}).to_json()}};
}

void TextTask::open(const ReadFile& read) {
  tokenizer_ = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
}

std::int32_t TextTask::end_mark() const {
  return tokenizer_->id_of(marks_.end.empty() ? text_mark : marks_.end);
}

Tokens TextTask::encoded(const std::string& text, bool marks) const {
  const bool has_masks = is_masked(settings_);
  if (!has_masks) check_known(*tokenizer_, text, "the text");
  Tokens tokens = tokenizer_->encode(text);
  if (!marks || marks_.mark.begin.empty()) return tokens;
  const std::int32_t begin = tokenizer_->id_of(marks_.mark.begin);
  if (has_masks || tokens.empty() || tokens.front() != begin) tokens.insert(tokens.begin(), begin);
  if (has_masks) tokens.push_back(end_mark());
  return tokens;
}

void TextTask::prepare_training() {
  remark(concat_text(parts_.train.characters(), " characters for training, ", parts_.valid.characters(),
                     " for validation; vocabulary ", vocabulary_size()));
  LargeText first;
  const std::int64_t most = evaluation_.characters;
  const bool all = most == 0 || parts_.valid.characters() <= most;
  if (!all) {
    first = std::move(split_large_text(parts_.valid, most, data_.memory_bytes).first);
    remark(concat_text("evaluations read the first ", most, " of these characters (evaluation.characters)"));
  }
  const LargeText& measured = all ? parts_.valid : first;
  valid_characters_ = measured.characters();
  train_ = tokenize_stream(parts_.train, "the training text");
  valid_ = tokenize_stream(measured, "the validation text");
  windows_.plan({train_.size(), training_windows(settings_)});
  batches_per_epoch_ = windows_.count(0);
}

/// Returns the number of batches, from the first, whose windows are cut in two.
std::int64_t TextTask::short_batches() const {
  const auto options = settings_.read<TrainerOptions>("training");
  const std::int64_t of_steps = options.steps * options.accumulation,
                     of_epochs = options.epochs * batches_per_epoch_;
  const std::int64_t all = options.epochs == 0  ? of_steps
                           : options.steps == 0 ? of_epochs
                                                : std::min(of_steps, of_epochs);
  return std::llround(text_training_.short_share * static_cast<double>(all));
}

std::vector<Window> TextTask::windows_at(std::int64_t epoch, std::int64_t batch) {
  std::vector<Window> windows = windows_.at(epoch, batch);
  const std::int64_t half = windows.front().length / 2;
  if (half == 0 || epoch * batches_per_epoch_ + batch >= short_batches()) return windows;
  std::vector<Window> halves;
  for (const Window& window : windows) {
    halves.push_back({window.begin, half, 0});
    halves.push_back({window.begin + half, half, 0});
  }
  return halves;
}

TokenStream TextTask::tokenize_stream(const LargeText& documents, std::string_view what) {
  TokenStream stream(vocabulary_size(), data_.memory_bytes);
  const auto unknown_token = tokenizer_->find("<unk>");
  std::int64_t unknown = 0, all = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const TextPiece piece = documents[i];
    check_known(*tokenizer_, piece.text, what);
    if (piece.begins && (begin_.empty() || !stream.empty())) stream.add(Tokens{end_mark()});
    if (piece.begins) stream.add(begin_);
    const Tokens tokens = tokenizer_->encode(piece.text);
    if (unknown_token) unknown += std::ranges::count(tokens, *unknown_token);
    all += static_cast<std::int64_t>(tokens.size());
    stream.add(tokens);
  }
  if (unknown > 0)
    remark(concat_text(
        what, ": ", unknown, " of ", all,
        " tokens are <unk>; losses, including losses per character, ignore the words that they replace"));
  return stream;
}

Measurement TextTask::measured(const MeasureSource& source) {
  const auto read_file = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
    return read(files.front(), layout.read<TextData>("data"), report);
  };
  const bool by_rule = !source.part.empty() && !names_file(settings_);
  return measured_data(parts_, source, read_file,
                       [&](const LargeText& documents) { return measured_text(documents, by_rule); });
}

std::vector<std::string> TextTask::example_lines(std::size_t count) const {
  const LargeText& text = shown_part(parts_);
  const auto most = static_cast<std::size_t>(config_.max_length) - 1;
  TextList all;
  for (std::size_t piece = 0; piece < text.size() && all.size() < 500; ++piece) {
    const std::string document = text[piece].text;
    for (std::size_t begin = 0; begin < document.size() && all.size() < 500;) {
      const std::size_t end = std::min(document.find('\n', begin), document.size());
      all.push_back(document.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::vector<std::string> lines = short_lines(all, count);
  for (std::string& line : lines) {
    Tokens tokens = tokenizer_->encode(line);
    if (tokens.size() <= most) continue;
    tokens.resize(most);
    line = tokenizer_->decode(tokens);
  }
  return lines;
}

// --- training a writer

TextWriter::TextWriter(const TaskEntry& entry, Settings given)
    : TextTask(entry, std::move(given)),
      measured_windows_(evaluation_windows(config_.max_length, evaluation_.stride)),
      generation_(settings_.read<Generation>("generation").options),
      stop_(settings_.read<Generation>("generation").stop) {
  generation_.context = config_.max_length;
  if (config_.output_transform) throw SettingsError("model.output_transform needs objective=masked");
}

void TextWriter::open(const ReadFile& read) {
  TextTask::open(read);
  begin_.clear();
  if (!marks_.mark.begin.empty()) begin_ = {tokenizer_->id_of(marks_.mark.begin)};
  generation_.ends.clear();
  if (settings_.read<Generation>("generation").past_end) return;
  generation_.ends.push_back(end_mark());
  for (const std::string& end : marks_.more_ends) generation_.ends.push_back(tokenizer_->id_of(end));
}

void TextWriter::prepare_training() {
  TextTask::prepare_training();
  limit_epochs(is_fine_tuned() ? fine_tuning_epoch_limit : writer_epoch_limit);
}

std::unique_ptr<Module> TextWriter::make_model() {
  TransformerConfig config = config_;
  config.target_vocabulary = vocabulary_size();
  return model_of<LanguageModel>(config, batch_tokens());
}

Loss TextWriter::loss(std::int64_t epoch, std::int64_t batch, Context& context) {
  auto& model = model_as<LanguageModel>();
  return model.loss(window_batch(train_, windows_at(epoch, batch), model.device()), label_smoothing_,
                    context);
}

Evaluation TextWriter::evaluate() {
  if (valid_.empty()) return {};
  TextLossOptions windows = measured_windows_;
  windows.sample = sample();
  const TextLoss loss = text_loss(model_as<LanguageModel>(), valid_, valid_characters_, windows,
                                  [&](std::size_t batches, const ComputeNumbers& compute) {
                                    return share_work<double>(batches, compute);
                                  });
  return evaluation(metrics(metric_values(loss)), static_cast<std::size_t>(loss.tokens),
                    static_cast<std::size_t>(valid_.size() - 1));
}

Measurement TextWriter::measured_text(const LargeText& documents, bool by_rule) {
  const TokenStream stream = tokenize_stream(documents, "the text");
  const TextLoss loss =
      text_loss(model_as<LanguageModel>(), stream, documents.characters(), measured_windows_);
  Measurement measurement;
  measurement.metrics = metrics(metric_values(loss));
  measurement.count = loss.tokens;
  measurement.examples = {"loss", "mean", loss.parts};
  Json json = Json::object();
  for (const Metric& metric : measurement.metrics) json[metric.name] = metric.value;
  json["tokens"] = loss.tokens;
  json["characters"] = loss.characters;
  json["context"] = config_.max_length;
  json["stride"] = measured_windows_.stride;
  if (by_rule && evaluation_.sentences > 0) {
    json["sentences"] = evaluation_.sentences;
    json["by_rule"] = share_by_rule(evaluation_.sentences);
  }
  measurement.json = json.dump();
  return measurement;
}

/// Returns the share of generated lines, each started by a line break, that follow the rule of the
/// built-in text.
double TextWriter::share_by_rule(std::int64_t count) {
  GenerationOptions options = generation_;
  const Tokens line_break = tokenizer_->encode("\n");
  options.ends = {line_break.front()};
  std::int64_t right = 0;
  for (const Tokens& tokens : heed::generate(model_as<LanguageModel>(), line_break, count, options))
    right += follows_agreement(tokenizer_->decode(tokens)) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(count);
}

// --- use

std::vector<Prediction> TextWriter::predict(std::span<const std::string> lines,
                                            const PredictOptions& options) {
  return for_each_line(lines, [&](std::size_t i, Prediction& prediction) {
    PredictOptions its_options = options;
    its_options.first_line += static_cast<std::int64_t>(i);
    prediction = write(lines[i], 1, its_options).front();
  });
}

Tensor TextWriter::line_outputs(std::span<const std::string> lines, Context& context) {
  std::vector<Tokens> all;
  for (const std::string& line : lines) all.push_back(prompt_tokens(line));
  auto& model = model_as<LanguageModel>();
  return model.logits(model.hidden(pad_tokens(all, model.device()), context));
}

std::vector<Prediction> TextWriter::generate(const std::string& prompt,
                                             const TextGenerationOptions& options) {
  GenerationOptions generation = generation_;
  generation.tokens = options.max_tokens.value_or(generation.tokens);
  options.apply_to(generation.sampling, generation.seed);
  return write(prompt, options.samples, {.pieces = options.pieces}, generation, options.stop.value_or(stop_),
               options.marks);
}

/// Returns the length of a text before the first of `stop`; npos: it has none.
static std::size_t stopped_at(std::string_view text, const std::vector<std::string>& stop) {
  std::size_t first = std::string_view::npos;
  for (const std::string& end : stop) first = std::min(first, text.find(end));
  return first;
}

/// Returns a growing text without an end that may become one of `stop`.
static std::string_view before_stop(std::string_view text, const std::vector<std::string>& stop) {
  std::size_t certain = std::min(text.size(), stopped_at(text, stop));
  for (const std::string& end : stop)
    for (std::size_t length = std::min(end.size() - 1, text.size()); length > 0; --length)
      if (text.ends_with(std::string_view(end).substr(0, length))) {
        certain = std::min(certain, text.size() - length);
        break;
      }
  return text.substr(0, certain);
}

std::vector<Prediction> TextWriter::write(const std::string& prompt, std::int64_t samples,
                                          const PredictOptions& options, GenerationOptions generation,
                                          const std::vector<std::string>& stop, bool marks) {
  const Tokens start = prompt_tokens(prompt, marks);
  check(std::ranges::none_of(stop, [](const std::string& end) { return end.empty(); }),
        "generation.stop: an empty text ends nothing; leave it out");
  if (!stop.empty())
    generation.is_over = [&](std::span<const std::int32_t> tokens) {
      return stopped_at(continuation(start, tokens), stop) != std::string::npos;
    };
  std::vector<Prediction> texts;
  TokenWatch watch;
  if (options.pieces)
    watch = [&](std::size_t, std::span<const std::int32_t> tokens) {
      options.pieces->grow(before_stop(continuation(start, tokens), stop));
    };
  std::vector<double> scores;
  for (const Tokens& tokens :
       heed::generate(model_as<LanguageModel>(), start, samples, generation, &scores, watch)) {
    const double score = scores[texts.size()];
    Prediction text{continuation(start, tokens), std::exp(score)};
    text.text.resize(std::min(text.text.size(), stopped_at(text.text, stop)));
    text.alternatives = {{text.text, text.probability, score}};
    if (options.capture) {
      Tokens whole = start;
      whole.insert(whole.end(), tokens.begin(), tokens.end());
      const std::string name =
          concat_text("samples.", options.first_line + static_cast<std::int64_t>(texts.size()));
      show_inside(std::move(whole), name, *options.capture);
      options.capture->add_answer(name, {prompt, text.text});
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

/// Returns the text of the tokens after a prompt; a word tokenizer begins it with a space.
std::string TextWriter::continuation(const Tokens& prompt, std::span<const std::int32_t> tokens) const {
  Tokens whole = prompt;
  whole.insert(whole.end(), tokens.begin(), tokens.end());
  return tokenizer_->decode(whole).substr(tokenizer_->decode(prompt).size());
}

/// Returns the tokens of a prompt, see encoded(). Without a mark, an empty prompt is a line break.
Tokens TextWriter::prompt_tokens(const std::string& given, bool marks) const {
  const std::string prompt = given.empty() && (begin_.empty() || !marks) ? "\n" : given;
  check(unicode::find_invalid(prompt) == std::string::npos, "the prompt is not UTF-8");
  Tokens tokens = encoded(prompt, marks);
  check(static_cast<std::int64_t>(tokens.size()) <= config_.max_length, "the prompt has ", tokens.size(),
        " tokens, but the model sees at most ", config_.max_length, " at a time (model.max_length)");
  return tokens;
}

/// Captures one pass over the end of a text, as much as the model reads at once.
void TextWriter::show_inside(Tokens tokens, const std::string& name, CaptureFile& file) {
  const auto limit = static_cast<std::size_t>(config_.max_length);
  if (tokens.size() > limit) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(limit));
  auto& model = model_as<LanguageModel>();
  const PaddedTokens input = pad_tokens({&tokens, 1}, model.device());
  add_pass(file, name, captured([&](Context& context) { model.hidden(input, context); }), {tokens},
           *tokenizer_);
}

const TaskEntry& language_model_task() {
  static const TaskEntry entry{.name = "language_model",
                               .summary = "Trains, evaluates and uses a language model",
                               .stacks = Stacks::decoder,
                               .metrics = causal_kinds,
                               .settings = language_model_settings,
                               .names_data = names_file,
                               .examples = {{"", {{"text", "A document"}}}},
                               .fine_tuning = for_tuned_writers,
                               .make_task = make_text_task,
                               .check_training = check_text_training};
  return entry;
}

TextWriter& text_writer(Task& task) {
  check(task.entry().name == "language_model", "this is a ", task.entry().name,
        " run, which generates no text");
  return as_interface<TextWriter>(task,
                                  "this run was trained with objective=masked or data.rule: it answers "
                                  "lines (language_model predict) and generates no text");
}

}  // namespace heed
