#include "heed/apps/tasks/text_to_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *cross_setting = "model.cross_attention", *target_file = "target_tokenizer.json",
                     *no_begin = "tokenizer.begin is empty: name the mark that begins outputs, such as <s>";

// --- source/target length ratio, for hard-coded cross-attention

/// Whether an attention is hard-coded and has no gamma; it is a name, or an object with a name.
bool lacks_gamma(const Json& choice) {
  const Json name = choice.is_object() ? choice.value("name", Json()) : choice;
  return name == "hard_coded_gaussian" && !(choice.is_object() && choice.contains("gamma"));
}

/// Returns the ratio of the mean source length to the mean target length, each including its mark.
double length_ratio(const Tokenizer& source, const Tokenizer& target, const ParallelText& text) {
  const auto tokens_in = [](const Tokenizer& tokenizer, const TextList& lines) {
    std::size_t count = lines.size();
    for (const std::string_view line : lines) count += tokenizer.encode(line).size();
    return static_cast<double>(count);
  };
  return tokens_in(source, text.source) / tokens_in(target, text.target);
}

/// Returns `most` of the pairs, evenly spread; 0: all.
ParallelText take_first(const ParallelText& pairs, std::int64_t most) {
  const auto count = static_cast<std::int64_t>(pairs.size());
  if (most == 0 || count <= most) return pairs;
  ParallelText some;
  for (const std::int32_t row : spread_over(pairs.size(), most)) {
    some.source.push_back(pairs.source[static_cast<std::size_t>(row)]);
    some.target.push_back(pairs.target[static_cast<std::size_t>(row)]);
  }
  return some;
}

std::vector<Batch> evaluation_plan(const TokenizedPairs& pairs) {
  const auto [sources, targets] = pairs.lengths();
  return BatchPlan(sources, targets, evaluation_batches(32)).epoch(0);
}

// --- writing

/// Returns the log-probability of each target token and of the end mark, given the source and the
/// previous tokens: [B, N]. Values after the end are undefined.
Tensor token_log_probabilities(EncoderDecoder& model, std::span<const Tokens> sources,
                               std::span<const Tokens> targets, std::int32_t begin, std::int32_t end,
                               Context& context) {
  const TranslationBatch batch = make_translation_batch(sources, targets, begin, end, model.device());
  const Tensor memory = model.encode(batch.source, context),
               hidden = model.decode(batch.target, memory, batch.source.mask, context);
  const auto longest = static_cast<std::size_t>(hidden.size(1));
  std::vector<std::int32_t> expected(targets.size() * longest);  // what follows each token; padding: 0
  for (std::size_t row = 0; row < targets.size(); ++row) {
    std::copy(targets[row].begin(), targets[row].end(),
              expected.begin() + static_cast<std::ptrdiff_t>(row * longest));
    expected[row * longest + targets[row].size()] = end;
  }
  const Tensor ids =
      Tensor::from(expected, {static_cast<std::int64_t>(targets.size()), hidden.size(1), 1}, model.device());
  return select(gather(model.log_probabilities(hidden, memory, batch.source, context), 2, ids), 2, 0);
}

/// Returns log p(target, end | source) of each pair; records no gradient.
std::vector<double> log_probabilities(EncoderDecoder& model, std::span<const Tokens> sources,
                                      std::span<const Tokens> targets, std::int32_t begin, std::int32_t end) {
  const NoGrad no_grad;
  Context context = Context::inference();
  const Tensor each = token_log_probabilities(model, sources, targets, begin, end, context);
  const std::vector<double> found = contiguous(each).to_doubles();
  const auto longest = static_cast<std::size_t>(each.size(1));
  std::vector<double> sums;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i <= targets[row].size(); ++i) sum += found[row * longest + i];
    sums.push_back(sum);
  }
  return sums;
}

/// A model that never generates one of its tokens.
class WithoutToken : public StepModel {
 public:
  WithoutToken(StepModel& model, std::int32_t token) : model_(model), token_(token) {}
  Tensor step(const Tensor& tokens) override { return exclude_token(model_.step(tokens), token_); }
  void reorder(std::span<const std::int32_t> rows) override { model_.reorder(rows); }
  Device device() const override { return model_.device(); }

 private:
  StepModel& model_;
  std::int32_t token_;
};

/// Returns `best` samples for each source, drawn in one batch.
std::vector<std::vector<Hypothesis>> sampled(EncoderDecoder& model, std::span<const Tokens> sources,
                                             std::span<const std::int64_t> numbers, const Decoding& decoding,
                                             const TokenWatch& watch) {
  const SearchOptions& search = decoding.search;
  if (watch && search.best > 1)
    throw SettingsError(concat_text("decoding.n_best is ", search.best,
                                    ": the best of several samples is only known at the end, so none can be "
                                    "streamed; set decoding.n_best=1"));
  const std::vector<std::int64_t> longest = output_limits(model, sources, search);
  std::vector<Tokens> repeated;
  std::vector<std::int64_t> limits;
  std::vector<std::uint32_t> streams;
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (std::int64_t k = 0; k < search.best; ++k) {
      repeated.push_back(sources[i]);
      limits.push_back(longest[i]);
      streams.push_back(static_cast<std::uint32_t>(numbers[i] * search.best + k));
    }
  EncoderDecoderSteps all(model, pad_tokens(repeated, model.device()));
  WithoutToken steps(all, search.never);
  const std::vector<std::int32_t> first(repeated.size(), search.begin);
  const std::vector<Tokens> texts = sample(steps, first, limits, decoding.sampling, {&search.end, 1},
                                           decoding.seed, streams, nullptr, watch);
  const std::vector<double> probabilities =
      log_probabilities(model, repeated, texts, search.begin, search.end);
  std::vector<std::vector<Hypothesis>> outputs(sources.size());
  for (std::size_t i = 0; i < texts.size(); ++i)
    outputs[i / static_cast<std::size_t>(search.best)].push_back(
        {texts[i], probabilities[i], probabilities[i]});
  for (std::vector<Hypothesis>& of_source : outputs)
    std::stable_sort(of_source.begin(), of_source.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return outputs;
}

/// Returns `search.best` outputs for each source, best first. Samples depend on the seed and the
/// number of the source, not on other sources in the batch.
std::vector<std::vector<Hypothesis>> write_outputs(EncoderDecoder& model, std::span<const Tokens> sources,
                                                   std::span<const std::int64_t> numbers,
                                                   const Decoding& decoding, const TokenWatch& watch) {
  const NoGrad no_grad;
  return decoding.method == Decoding::Method::sample ? sampled(model, sources, numbers, decoding, watch)
                                                     : translate(model, sources, decoding.search, watch);
}

/// Returns the decoding settings, without the marks.
Decoding read_decoding(const Settings& settings) {
  const auto decoding = settings.read<Decoding>("decoding");
  if (decoding.method == Decoding::Method::beam && decoding.search.best > decoding.search.beam)
    throw SettingsError(concat_text("decoding.n_best is ", decoding.search.best,
                                    ", more than decoding.beam, ", decoding.search.beam));
  return decoding;
}

}  // namespace

void declare_text_to_text(Settings& settings, std::span<const MetricKind> metrics,
                          const SearchOptions& search) {
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.tie_embeddings = "all"}, Stacks::encoder_decoder);
  declare_training(settings, metrics);
  settings.declare("data", TextToTextData());
  settings.declare("evaluation", TextToTextEvaluation());
  settings.declare("tokenizer", TextToTextTokenizer());
  settings.declare("decoding", Decoding{.search = search});
}

double TargetScore::perplexity() const {
  return std::exp(-log_probability / static_cast<double>(tokens));
}

namespace {

std::string search_name(const Decoding& decoding) {
  if (decoding.method == Decoding::Method::sample) return "samples";
  return decoding.search.beam == 1 ? "greedy search" : concat_text("beam of ", decoding.search.beam);
}

}  // namespace

// --- data and model

TextToTextTask::TextToTextTask(const TaskEntry& entry, Settings settings, Traits traits)
    : Task(entry, std::move(settings)),
      traits_(std::move(traits)),
      data_(settings_.read<TextToTextData>("data")),
      marks_(settings_.read<TextToTextTokenizer>("tokenizer")),
      evaluated_pairs_(settings_.read<TextToTextEvaluation>("evaluation").pairs),
      decoding_(read_decoding(settings_)) {
  if (marks_.begin.empty()) throw SettingsError(no_begin);
  if (!marks_.separate) return;
  check(settings_.read<VocabularySettings>("tokenizer").file.empty(),
        "tokenizer.file is one vocabulary, but tokenizer.separate asks for two");
  check(!model_config(settings_).pointer,
        "tokenizer.separate: model.pointer copies tokens of the source, which needs one vocabulary");
}

std::map<std::string, std::string> TextToTextTask::read_parts() {
  parts_ = reported([&](ReadReport& report) {
    return entry().names_data(settings_) ? named_parts(report) : parts_made_by_rule();
  });
  return digests_of(parts_, [](const ParallelText& pairs) { return compute_digest(pairs); });
}

NamedFiles TextToTextTask::learned_files() {
  remark(choose_token_kind(settings_, all_texts(parts_.train)));
  std::vector<const TextList*> texts = {&parts_.train.source};
  std::vector<std::string> all_marks = TokenizerTraining().special_tokens;
  all_marks.insert(all_marks.end(), traits_.marks.begin(), traits_.marks.end());
  NamedFiles files;
  if (marks_.separate) {
    check(model_config(settings_).tie_embeddings != "all" || is_fine_tuned(),
          "tokenizer.separate with model.tie_embeddings=all would share vectors between words of different "
          "vocabularies with the same id: set model.tie_embeddings=decoder");
    files[target_file] =
        learn_tokenizer(settings_, heed::source_of({&parts_.train.target}), all_marks, {.file = target_file})
            .to_json();
  } else {
    texts.push_back(&parts_.train.target);
  }
  files["tokenizer.json"] = learn_tokenizer(settings_, heed::source_of(texts), all_marks).to_json();
  return files;
}

void TextToTextTask::open(const ReadFile& read) {
  tokenizer_ = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
  if (marks_.separate) target_tokenizer_ = Tokenizer::from_json(read(target_file), target_file);
  SearchOptions& search = decoding_.search;
  search.begin = target_tokenizer().id_of(marks_.begin);
  search.end = target_tokenizer().id_of("</s>");
  // A model that begins with padding gives it a probability, too.
  if (const auto pad = target_tokenizer().find("<pad>"); pad == search.begin) search.never = search.begin;
  set_gamma();
}

std::unique_ptr<Module> TextToTextTask::make_model() {
  TransformerConfig config = model_config(settings_);
  config.source_vocabulary = tokenizer_ ? tokenizer_->vocabulary_size() : 300;
  config.target_vocabulary = tokenizer_ ? target_tokenizer().vocabulary_size() : 300;
  return model_of<EncoderDecoder>(config, batch_tokens());
}

/// Sets gamma of hard-coded Gaussian cross-attention, unless the settings give it, to the mean
/// source length over the mean target length, as in the paper (arXiv 2005.00742, section 3.2).
/// Every rank computes it, since settings are not sent between ranks. A trained run keeps its
/// gamma.
void TextToTextTask::set_gamma() {
  if (parts_.train.size() == 0) return;
  Json choices = Json::parse(settings_.json(cross_setting));
  if (!choices.is_array()) choices = Json::array({choices});
  bool changed = false;
  for (Json& choice : choices) {
    if (!lacks_gamma(choice)) continue;
    if (choice.is_string()) choice = Json{{"name", choice}};
    choice["gamma"] = length_ratio(*tokenizer_, target_tokenizer(), parts_.train);
    changed = true;
  }
  if (!changed) return;
  const std::string chosen = (choices.size() == 1 ? choices.front() : choices).dump();
  settings_.set_json(cross_setting, chosen, "gamma");
  remark("gamma of the cross-attention: " + chosen);
}

// --- training

void TextToTextTask::prepare_training() {
  remark(concat_text(parts_.train.size(), " pairs for training, ", parts_.valid.size(),
                     " for validation; vocabulary ", tokenizer_->vocabulary_size(),
                     target_tokenizer_ ? concat_text(" and ", target_tokenizer_->vocabulary_size()) : ""));
  std::int64_t blank = 0;
  for (std::size_t i = 0; i < parts_.train.size(); ++i)
    blank += is_blank(parts_.train.source[i]) || is_blank(parts_.train.target[i]) ? 1 : 0;
  if (blank > 0) remark(concat_text(blank, " training pairs have a blank side"));
  pairs_ = tokens_of(parts_.train, data_.long_sources == TextToTextData::LongSources::cut
                                       ? data_.max_tokens
                                       : std::numeric_limits<std::int64_t>::max());
  report_truncation("data.max_tokens");
  choose_measures(parts_.train, take_first(parts_.valid, evaluated_pairs_));
  plan_batches(pairs_.lengths(), training_batches(settings_));
  if (traits_.max_epochs > 0) limit_epochs({traits_.max_epochs, 100});
}

Loss TextToTextTask::loss(std::int64_t epoch, std::int64_t batch, Context& context) {
  return network().loss(make_pair_batch(pairs_, batches_.at(epoch, batch)), label_smoothing_, context);
}

Evaluation TextToTextTask::evaluate() {
  if (parts_.valid.size() == 0) return {};
  Decoding greedy = decoding_;
  greedy.method = Decoding::Method::beam;
  greedy.search.beam = greedy.search.best = 1;
  const ParallelText pairs = take_first(parts_.valid, sample());
  Evaluation found =
      evaluation(measure_quality(pairs, greedy, evaluated_pairs_).metrics, pairs.size(), parts_.valid.size());
  found.unit = "pairs";  // batches are counted in tokens
  found.how = search_name(greedy);
  if (const ParallelText answered = take_first(pairs, evaluated_pairs_); answered.size() < pairs.size())
    found.how += concat_text(" for ", answered.size(), " pairs");
  return found;
}

// --- use

std::vector<Prediction> TextToTextTask::predict(std::span<const std::string> lines,
                                                const PredictOptions& options) {
  std::vector<std::string> sources;
  for (const std::string& line : lines) sources.push_back(source_of(line));
  std::vector<Prediction> predictions = answers_to(sources, decoding_, options);
  report_truncation("decoding.max_source_tokens");
  return predictions;
}

std::vector<Prediction> TextToTextTask::generate(const std::string& prompt,
                                                 const TextGenerationOptions& options) {
  check(!options.stop && options.marks, "generate: stop and marks are for language models; a ", entry().name,
        " run writes a whole answer");
  Decoding decoding = decoding_;
  if (options.draws()) decoding.method = Decoding::Method::sample;
  options.apply_to(decoding.sampling, decoding.seed);
  decoding.search.best = options.samples;
  if (options.max_tokens)
    decoding.search.length_ratio = 0, decoding.search.length_extra = *options.max_tokens;
  const std::vector<std::string> sources = {source_of(prompt)};
  const Prediction answer = answers_to(sources, decoding, {.pieces = options.pieces}).front();
  report_truncation("decoding.max_source_tokens");
  check(!answer.alternatives.empty(), "generate: the prompt is blank, and a ", entry().name,
        " run needs a source text");
  std::vector<Prediction> texts;
  for (const Prediction::Alternative& one : answer.alternatives)
    texts.push_back({one.text, one.probability, {one}});
  return texts;
}

ParallelText TextToTextTask::read_files(std::span<const std::string> files) {
  ReadReport report;
  ParallelText pairs = read(settings_, files, report);
  check(report.blank == 0, files.front(), ": ", report.blank,
        " lines are blank and cannot be scored; leave them out");
  remark_on_reading(report);
  return pairs;
}

std::vector<TargetScore> TextToTextTask::score(const ParallelText& pairs) {
  const TokenizedPairs tokens = tokens_of(pairs, answered_limit());
  report_truncation("decoding.max_source_tokens");
  std::vector<TargetScore> scores(pairs.size());
  for (const Batch& rows : evaluation_plan(tokens)) {
    const std::vector<Tokens> targets = pick(tokens.targets, rows);
    const std::vector<double> found = log_probabilities(network(), pick(tokens.sources, rows), targets,
                                                        decoding_.search.begin, decoding_.search.end);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      check(std::isfinite(found[i]), "the model gives pair ", rows[i] + 1, " a log probability of ", found[i],
            ", which is not finite: training has diverged");
      scores[static_cast<std::size_t>(rows[i])] = {found[i], std::ssize(targets[i]) + 1};  // and the end mark
    }
  }
  return scores;
}

Tensor TextToTextTask::target_log_probabilities(std::span<const std::string> lines,
                                                std::span<const std::string> targets, Context& context) {
  check(!lines.empty() && lines.size() == targets.size(), "log probabilities: there are ", lines.size(),
        " lines and ", targets.size(), " targets; each line needs one");
  ParallelText pairs;
  for (const std::string& line : lines) pairs.source.push_back(source_of(line));
  for (const std::string& target : targets) pairs.target.push_back(target);
  const TokenizedPairs tokens = tokens_of(pairs, answered_limit());
  report_truncation("decoding.max_source_tokens");
  const Tensor each = token_log_probabilities(network(), tokens.sources, tokens.targets,
                                              decoding_.search.begin, decoding_.search.end, context);
  std::vector<float> counts;  // 1 for the tokens of a target and its end
  for (const Tokens& target : tokens.targets)
    for (std::int64_t i = 0; i < each.size(1); ++i) counts.push_back(i <= std::ssize(target) ? 1 : 0);
  return sum(each * Tensor::from(counts, each.shape(), each.device()), 1);
}

TextReader TextToTextTask::reader(bool of_outputs) const {
  const Tokenizer& tokenizer = of_outputs ? target_tokenizer() : *tokenizer_;
  return {&tokenizer, [this, of_outputs, &tokenizer](const std::string& text, bool marks) {
            const std::string read = of_outputs ? text : source_of(text);
            return marks ? tokens_with_end(tokenizer, read) : tokenizer.encode(read);
          }};
}

/// Returns at most `limit` source tokens, including the end mark.
Tokens TextToTextTask::source_tokens(std::string_view source, std::int64_t limit) {
  Tokens tokens = tokens_with_end(*tokenizer_, source);
  const auto extra = static_cast<std::int64_t>(tokens.size()) - limit;
  if (extra <= 0) return tokens;
  ++cut_lines_;
  const auto first = traits_.keeps_end ? tokens.begin() : tokens.end() - 1 - extra;
  tokens.erase(first, first + extra);
  return tokens;
}

TokenizedPairs TextToTextTask::tokens_of(const ParallelText& pairs, std::int64_t source_limit) {
  TokenizedPairs tokens;
  for (const std::string_view source : pairs.source)
    tokens.sources.push_back(source_tokens(source, source_limit));
  for (const std::string_view target : pairs.target)
    tokens.targets.push_back(target_tokenizer().encode(target));
  return tokens;
}

TranslationBatch TextToTextTask::make_pair_batch(const TokenizedPairs& pairs, const Batch& rows) {
  return make_translation_batch(pick(pairs.sources, rows), pick(pairs.targets, rows), decoding_.search.begin,
                                decoding_.search.end, network().device());
}

/// Returns the most source tokens in use, limited by the setting and by the model.
std::int64_t TextToTextTask::answered_limit() {
  const std::int64_t limit = decoding_.max_source_tokens;
  const TransformerConfig& config = network().config();
  return is_length_limited(config, config.encoder_attention) ? std::min(limit, config.max_length) : limit;
}

void TextToTextTask::report_truncation(const std::string& limit) {
  if (const std::int64_t cut = cut_lines_.exchange(0); cut > 0)
    remark(concat_text(cut, " sources are longer than ", limit, " or than the model reads, and were cut"));
}

std::string TextToTextTask::text_of(std::span<const std::int32_t> tokens) const {
  std::string text = target_tokenizer().decode(tokens);
  // A model may produce any byte, but a line stays a line.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

/// Returns an answer for each source; none for a blank one. With ranks, each rank receives only the
/// texts of the others' answers.
std::vector<Prediction> TextToTextTask::answers_to(std::span<const std::string> sources,
                                                   const Decoding& decoding, const PredictOptions& options) {
  const NoGrad no_grad;
  const std::int64_t limit = answered_limit();
  std::vector<Tokens> tokens;
  std::vector<std::size_t> order;  // of the sources that say something, by length, so that little is padded
  for (const std::string& source : sources) {
    tokens.push_back(is_blank(source) ? Tokens() : source_tokens(source, limit));
    if (!tokens.back().empty()) order.push_back(tokens.size() - 1);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tokens[a].size() < tokens[b].size(); });

  TokenWatch watch;
  if (options.pieces)
    watch = [&](std::size_t, std::span<const std::int32_t> written) {
      options.pieces->grow(text_of(written));
    };
  std::vector<Prediction> predictions(sources.size());
  const auto batch_size = static_cast<std::size_t>(decoding.batch_size);
  const std::size_t batches = (order.size() + batch_size - 1) / batch_size;
  // Of each answer of a batch: how many tokens it has, and these.
  const auto written = share_work<std::int32_t>(batches, [&](std::size_t number) {
    const std::size_t begin = number * batch_size, end = std::min(order.size(), begin + batch_size);
    std::vector<Tokens> batch;
    std::vector<std::int64_t> numbers;
    for (std::size_t i = begin; i < end; ++i) {
      batch.push_back(tokens[order[i]]);
      numbers.push_back(options.first_line + (options.each_first ? 0 : static_cast<std::int64_t>(order[i])));
    }
    const auto outputs = write_outputs(network(), batch, numbers, decoding, watch);
    Tokens answers;
    for (std::size_t i = begin; i < end; ++i) {
      const std::vector<Hypothesis>& found = outputs[i - begin];
      Prediction& prediction = predictions[order[i]];
      for (const Hypothesis& output : found)
        prediction.alternatives.push_back(
            {text_of(output.tokens), std::exp(output.log_probability), output.log_probability});
      prediction.probability = prediction.alternatives.front().probability;
      answers.push_back(static_cast<std::int32_t>(found.front().tokens.size()));
      answers.insert(answers.end(), found.front().tokens.begin(), found.front().tokens.end());
      if (options.capture)
        show_inside(concat_text("lines.", numbers[i - begin]), tokens[order[i]], found.front().tokens,
                    *options.capture);
    }
    return answers;
  });
  std::size_t next = 0;
  for (const Tokens& answers : written)
    for (std::size_t at = 0; at < answers.size(); ++next) {
      const auto count = static_cast<std::size_t>(answers[at]);
      predictions[order[next]].text = text_of(std::span(answers).subspan(at + 1, count));
      at += 1 + count;
    }
  return predictions;
}

/// Returns the mean loss over all target tokens, without label smoothing.
double TextToTextTask::mean_loss(const ParallelText& pairs) {
  const NoGrad no_grad;
  const TokenizedPairs tokens = tokens_of(pairs, answered_limit());
  const std::vector<Batch> batches = evaluation_plan(tokens);
  const auto losses = share_work<double>(batches.size(), [&](std::size_t batch) {
    Context context = Context::inference();
    const Loss loss = network().loss(make_pair_batch(tokens, batches[batch]), 0, context);
    return std::vector<double>{loss.sum.item(), static_cast<double>(loss.count)};
  });
  double sum = 0, count = 0;
  for (const std::vector<double>& loss : losses) sum += loss[0], count += loss[1];
  return sum / count;
}

Measurement TextToTextTask::measure_quality(const ParallelText& pairs, const Decoding& decoding,
                                            std::int64_t most) {
  const double loss = mean_loss(pairs);
  cut_lines_ = 0;  // the same sources are cut again to be answered
  const ParallelText asked = take_first(pairs, most);
  std::vector<std::string> answers;
  for (Prediction& prediction : answers_to(asked.source.strings(), decoding, {}))
    answers.push_back(std::move(prediction.text));
  Measurement measurement = quality(answers, asked, loss);
  measurement.count = static_cast<std::int64_t>(asked.size());
  return measurement;
}

Measurement TextToTextTask::measured(const MeasureSource& source) {
  const auto read_files = [&](std::span<const std::string> files, const Settings& layout,
                              ReadReport& report) { return read(layout, files, report); };
  return measured_data(parts_, source, read_files, [&](const ParallelText& pairs) {
    Measurement measurement = measure_quality(pairs, decoding_, 0);
    Json json = Json::parse(measurement.json);
    json["how"] = search_name(decoding_);
    measurement.json = json.dump();
    report_truncation("decoding.max_source_tokens");
    return measurement;
  });
}

std::vector<std::string> TextToTextTask::example_lines(std::size_t count) const {
  return short_lines(shown_part(parts_).source, count);
}

ParallelText TextToTextTask::example_pairs(std::size_t count) const {
  const ParallelText& pairs = shown_part(parts_);
  return count < pairs.size() ? take_first(pairs, static_cast<std::int64_t>(count)) : pairs;
}

/// Captures one pass over a source and its answer.
void TextToTextTask::show_inside(const std::string& example, const Tokens& source, const Tokens& target,
                                 CaptureFile& file) {
  const TranslationBatch batch = make_pair_batch({{source}, {target}}, {0});
  const Capture capture = captured([&](Context& context) {
    const Tensor memory = network().encode(batch.source, context);
    network().decode(batch.target, memory, batch.source.mask, context);
  });
  Tokens read = target;
  read.insert(read.begin(), decoding_.search.begin);
  file.add_tokens(example, "source", batch.source.ids, token_texts(*tokenizer_, source));
  file.add_tokens(example, "target", batch.target.ids, token_texts(target_tokenizer(), read));
  file.add(example, capture);
}

AnswersBleu bleu_of_answers(std::span<const std::string> answers, std::span<const std::string> expected) {
  const BleuOptions options{.tokens = bleu_tokens_for(expected)};
  ExampleStatistics examples{"bleu", "bleu", {}};
  std::vector<double> sums(BleuScore().statistics().size(), 0);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    examples.rows.push_back(corpus_bleu(answers.subspan(i, 1), expected.subspan(i, 1), options).statistics());
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += examples.rows.back()[k];
  }
  return {bleu_from_statistics(sums, options), std::move(examples)};
}

bool has_four_words(const TextList& texts) {
  const BleuTokens tokens = bleu_tokens_for(texts.strings());
  return std::ranges::any_of(texts, [&](std::string_view text) {
    return std::ranges::count(bleu_tokenize(text, tokens), ' ') >= 3;
  });
}

TextToTextTask& text_to_text(Task& task) {
  return as_interface<TextToTextTask>(task, "a ", task.entry().name, " run does not map a text to a text");
}

}  // namespace heed
