#include "heed/apps/tasks/language_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/unicode.h"
#include "heed/models/language_model.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// The random stream for choosing hidden tokens; streams of training steps have op numbers from 0.
constexpr std::uint32_t masking_stream = 1u << 31;
/// The same for batches of short windows, which are twice as many.
constexpr std::uint32_t short_masking_stream = masking_stream + (1u << 30);
/// The result of predicting hidden tokens.
struct Guesses {
  double nats = 0;
  std::int64_t tokens = 0, right = 0;
  std::int64_t read = 0;                        // tokens, those that were not hidden included
  std::vector<std::vector<double>> parts = {};  // nats and tokens of each batch
  double loss() const { return nats / static_cast<double>(tokens); }
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(tokens); }
};

/// The tokens for the masked places, and their joint probability.
struct Filling {
  Tokens tokens;
  double probability = 1;
};

class MaskedTask : public TextTask {
 public:
  MaskedTask(const TaskEntry& entry, Settings given)
      : TextTask(entry, std::move(given)), best_(settings_.read<MaskedPrediction>("prediction").best) {}

  /// Throws if the tokenizer lacks a mark, because the run could then predict nothing.
  void prepare_training() override {
    if (!marks_.mark.begin.empty()) tokenizer_->id_of(marks_.mark.begin);
    TextTask::prepare_training();
    rows_ = training_windows(settings_).rows;
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const std::vector<Window> windows = windows_at(epoch, batch);
    std::vector<Tokens> sequences;
    for (const Window& window : windows) sequences.push_back(train_.read(window.begin, window.length));
    const bool is_short = windows.front().length < config_.max_length;
    const RandomKey key{static_cast<std::uint64_t>(config_.seed), static_cast<std::uint32_t>(epoch),
                        is_short ? short_masking_stream + static_cast<std::uint32_t>(2 * batch * rows_)
                                 : masking_stream + static_cast<std::uint32_t>(batch * rows_)};
    return network().loss(make_masked_batch(sequences, masking(), key, network().device()), label_smoothing_,
                          context);
  }

  Evaluation evaluate() override {
    if (valid_.empty()) return {};
    const Guesses guesses = make_guesses(valid_, sample());
    return evaluation(metrics_of(guesses), static_cast<std::size_t>(guesses.read),
                      static_cast<std::size_t>(valid_.size()));
  }

  /// Fills in a line in which "<mask>" or "[MASK]" replaces a token.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return for_each_line(lines, [&](std::size_t i, Prediction& prediction) {
      prediction = filled(line_tokens(lines[i]), options.capture, options.name_of(i));
    });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    std::vector<std::string> lines = TextTask::example_lines(count);
    for (std::string& line : lines) {  // a word of each to guess
      const std::size_t space = line.find(' ', line.size() / 2), word = space == line.npos ? 0 : space + 1;
      line.replace(word, std::min(line.find(' ', word), line.size()) - word, mask_token);
    }
    return lines;
  }

  /// Returns the logits [B, N, V] of each token of each line.
  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    std::vector<Tokens> all;
    for (const std::string& line : lines) all.push_back(line_tokens(line));
    return network().logits(network().hidden(pad_tokens(all, network().device()), context));
  }

 protected:
  void open(const ReadFile& read) override {
    TextTask::open(read);
    ordinary_ = fillings_ = ordinary_tokens();
    for (const AddedToken& token : tokenizer_->added_tokens())
      if (token.content == "<unk>" && fillings_.size() > 1) std::erase(fillings_, token.id);
  }

  std::unique_ptr<Module> make_model() override {
    TransformerConfig config = config_;
    config.source_vocabulary = vocabulary_size();
    config.encoder_layers = config.decoder_layers;
    config.encoder_attention = config.decoder_attention;
    return model_of<MaskedLanguageModel>(config, batch_tokens());
  }

  Measurement measured_text(const LargeText& documents, bool /*by_rule*/) override {
    const TokenStream stream = tokenize_stream(documents, "the text");
    const Guesses guesses = make_guesses(stream);
    Measurement measurement;
    measurement.metrics = metrics_of(guesses);
    measurement.count = guesses.tokens;
    measurement.examples = {"loss", "mean", guesses.parts};
    Json json = {{"objective", "masked"}};
    for (const Metric& metric : measurement.metrics) json[metric.name] = metric.value;
    json["masked_tokens"] = guesses.tokens;
    json["characters"] = documents.characters();
    json["context"] = config_.max_length;
    measurement.json = json.dump();
    return measurement;
  }

 private:
  MaskedLanguageModel& network() { return model_as<MaskedLanguageModel>(); }

  MaskingOptions masking() const {
    MaskingOptions options;
    options.share = text_training_.mask_share;
    options.mask_token = tokenizer_->id_of(mask_token);
    options.vocabulary = tokenizer_->vocabulary_size();
    options.ordinary = ordinary_;
    return options;
  }

  bool is_ordinary(std::int32_t token) const {
    return std::binary_search(ordinary_.begin(), ordinary_.end(), token);
  }

  /// The tokens that are hidden in training: all but special tokens, wherever a published tokenizer
  /// has them. The unknown token is hidden like a word, but never filled in.
  Tokens ordinary_tokens() const {
    const Tokenizer& tokenizer = *tokenizer_;
    std::set<std::int32_t> special = {end_mark(), tokenizer.id_of(mask_token)};
    for (const AddedToken& token : tokenizer.added_tokens())
      if (token.special && token.content != "<unk>") special.insert(token.id);
    Tokens ordinary;
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if (!special.contains(id)) ordinary.push_back(id);
    check(!ordinary.empty(), "the tokenizer has only special tokens: there is nothing to fill in");
    return ordinary;
  }

  static std::vector<Metric> metrics_of(const Guesses& guesses) {
    return {{"loss", guesses.loss(), false},
            {"accuracy", guesses.accuracy(), true},
            {"pseudo_perplexity", std::exp(guesses.loss()), false}};
  }

  /// Predicts hidden tokens in adjacent windows; always hides the same tokens. `sample`: reads
  /// about this many, in windows that are evenly spread; 0: all.
  Guesses make_guesses(const TokenStream& stream, std::int64_t sample = 0) {
    const NoGrad no_grad;
    const std::int64_t length = config_.max_length, count = stream.size();
    const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(4096 / length, 1));
    const auto read = [&](std::int64_t begin) { return stream.read(begin, std::min(length, count - begin)); };
    std::vector<std::int64_t> begins;  // of windows with anything to guess
    for (std::int64_t begin = 0; begin < count; begin += length)
      if (std::ranges::any_of(read(begin), [&](std::int32_t token) { return is_ordinary(token); }))
        begins.push_back(begin);
    const std::int64_t most = sample == 0 ? 0 : std::max<std::int64_t>(sample / length, 1);
    begins = pick(begins, spread_over(begins.size(), most));
    const auto found = share_work<double>((begins.size() + rows - 1) / rows, [&](std::size_t batch) {
      const std::size_t first = batch * rows;
      std::vector<Tokens> sequences;
      for (std::size_t i = first; i < std::min(begins.size(), first + rows); ++i)
        sequences.push_back(read(begins[i]));
      const RandomKey key{0, 0, static_cast<std::uint32_t>(first)};
      const MaskedBatch masked = make_masked_batch(sequences, masking(), key, network().device());
      return scored_targets(logits_at(masked.input, masked.targets.rows, nullptr), masked.targets);
    });
    Guesses all;
    for (const std::vector<double>& part : found) {
      all.nats += part[0];
      all.tokens += static_cast<std::int64_t>(part[1]);
      all.right += static_cast<std::int64_t>(part[2]);
      all.parts.push_back({part[0], part[1]});
    }
    check(all.tokens > 0, "the text has no token to predict");
    for (const std::int64_t begin : begins) all.read += std::min(length, count - begin);
    return all;
  }

  /// Returns the logits [count, V] at places of the flattened batch.
  Tensor logits_at(const PaddedTokens& input, const Tensor& rows, Capture* capture) {
    Context context = Context::inference();
    context.capture = capture;
    const Tensor hidden = network().hidden(input, context);
    return network().logits(index_select(reshape(hidden, {-1, hidden.size(2)}), 0, rows));
  }

  Tokens line_tokens(std::string line) const {
    check(unicode::find_invalid(line) == std::string::npos, "the line is not UTF-8");
    constexpr std::string_view other = "[MASK]";
    std::string words = line;  // without the marks
    for (const std::string_view mark : {other, std::string_view(mask_token)})
      for (std::size_t at = 0; (at = words.find(mark, at)) != std::string::npos;)
        words.erase(at, mark.size());
    check_known(*tokenizer_, words, "the line");
    const std::string& mask = tokenizer_->token(tokenizer_->id_of(mask_token));
    for (const std::string_view mark : {other, std::string_view(mask_token)})
      for (std::size_t at = 0; mark != mask && (at = line.find(mark, at)) != std::string::npos;
           at += mask.size())
        line.replace(at, mark.size(), mask);
    const Tokens tokens = encoded(line, true);
    check(static_cast<std::int64_t>(tokens.size()) <= config_.max_length, "the line has ", tokens.size(),
          " tokens, but the model sees at most ", config_.max_length, " at a time (model.max_length)");
    check(std::ranges::count(tokens, tokenizer_->id_of(mask_token)) > 0, "the line has no ", mask_token,
          " or [MASK] to be filled in");
    return tokens;
  }

  /// Returns the line with its places filled in, each independently.
  Prediction filled(const Tokens& tokens, CaptureFile* file, const std::string& example) {
    const NoGrad no_grad;
    Tokens places;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] == tokenizer_->id_of(mask_token)) places.push_back(static_cast<std::int32_t>(i));
    const auto count = static_cast<std::int64_t>(places.size());
    const PaddedTokens input = pad_tokens({&tokens, 1}, network().device());
    Capture capture;
    const Tensor logits =
        logits_at(input, Tensor::from(places, {count}, network().device()), file ? &capture : nullptr);
    if (file) add_pass(*file, example, capture, {tokens}, *tokenizer_);
    Prediction prediction;
    for (const Filling& filling : best_fillings(logits)) {
      Tokens whole = tokens;
      for (std::size_t i = 0; i < places.size(); ++i)
        whole[static_cast<std::size_t>(places[i])] = filling.tokens[i];
      const std::size_t marks = marks_.mark.begin.empty() ? 0 : 1;  // at each end
      prediction.alternatives.push_back(
          {tokenizer_->decode(std::span(whole).subspan(marks, whole.size() - 2 * marks),
                              /*keep_special=*/true),
           filling.probability});
    }
    prediction.text = prediction.alternatives.front().text;
    prediction.probability = prediction.alternatives.front().probability;
    return prediction;
  }

  /// Returns the likeliest tokens for each row of logits [count, V], all rows together; special
  /// tokens and the unknown token are excluded.
  std::vector<Filling> best_fillings(const Tensor& logits) {
    const auto choices = static_cast<std::int64_t>(fillings_.size());
    const Tensor columns = Tensor::from(fillings_, {choices}, network().device());
    const auto wanted = static_cast<std::size_t>(best_);
    const auto [values, ids] = top_k(index_select(softmax(logits, -1), 1, columns),
                                     std::min(choices, static_cast<std::int64_t>(wanted)));
    const std::vector<float> probabilities = values.to_vector<float>();
    const std::vector<std::int32_t> tokens = contiguous(ids).to_vector<std::int32_t>();
    const auto each = static_cast<std::size_t>(values.size(1));
    std::vector<Filling> best(1);
    for (std::size_t row = 0; row < static_cast<std::size_t>(logits.size(0)); ++row) {
      std::vector<Filling> longer;
      for (const Filling& one : best)
        for (std::size_t k = row * each; k < (row + 1) * each; ++k) {
          longer.push_back({one.tokens, one.probability * static_cast<double>(probabilities[k])});
          longer.back().tokens.push_back(fillings_[static_cast<std::size_t>(tokens[k])]);
        }
      std::ranges::stable_sort(longer, std::ranges::greater(), &Filling::probability);
      longer.resize(std::min(longer.size(), wanted));
      best = std::move(longer);
    }
    return best;
  }

  std::int64_t rows_ = 0;  // windows of a training batch
  const std::int64_t best_;
  Tokens ordinary_, fillings_;  // in ascending order
};

}  // namespace

std::unique_ptr<Task> make_masked_task(const TaskEntry& entry, Settings settings) {
  return std::make_unique<MaskedTask>(entry, std::move(settings));
}

}  // namespace heed
