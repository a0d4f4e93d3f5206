// Labels for the words of a text, such as the names in it. An encoder reads the pieces of the words; a linear layer maps
// the hidden state of each word's first piece to the logits of the labels, as in BERT (Devlin et al. 2019, section 5.3).
// Beside it stands a linear-chain CRF over features of the word and its neighbours (apps/data/text_features.h), whose
// weights are solved for. Sentences come from files (apps/data/tagged_text.h); without them it learns the names in
// sentences made by rule.
//
// Files of a run beside the weights: classes.json and tokenizer.json. Parts of the data: train, valid, test.

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/data/tagged_text.h"
#include "heed/apps/tasks/class_heads.h"
#include "heed/autograd/ops.h"
#include "heed/core/random.h"
#include "heed/models/sequence_encoder.h"
#include "heed/models/sparse_chain.h"
#include "heed/training/label_spans.h"
#include "heed/training/text_metrics.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind tag_metrics[] = {
    {"f1", true}, {"precision", true}, {"recall", true}, {"accuracy", true}, {"loss", false}};

// --- settings

struct TagData {
  DataFiles files = {.what = "Sentences with a label for each word", .form = ": a file, plain or gzip"};
  std::string format = {}, word_column = {}, label_column = {};
  TextOptions text = {};
  SplitOptions split = {.valid_fraction = 0.05, .classes = false};
  std::int64_t max_tokens = 256;
};

void for_each_setting(auto&& visit, TagData& data) {
  const SettingTraits column = {.kind = Setting::Kind::column};
  for_each_setting(visit, data.files);
  visit(
      data.format, "format", {"", "conll", "jsonl"},
      "conll: a word and its label on each line, in columns, and an empty line after each sentence; jsonl: "
      "an object with two lists, \"words\" and \"labels\", on each line; empty: jsonl for .jsonl and .json, "
      "otherwise conll");
  visit(data.word_column, "word_column",
        "Column of the words: a number from 1, or a name in jsonl; empty: the first, or \"words\" or "
        "\"tokens\"",
        column);
  visit(data.label_column, "label_column",
        "Column of the labels: a number from 1, or a name in jsonl; empty: the last, or \"labels\", \"tags\" "
        "or \"ner_tags\"",
        column);
  for_each_setting(visit, data.text);
  for_each_setting(visit, data.split);
  visit(
      data.max_tokens, "max_tokens", 3, 1 << 24,
      "Most tokens that the encoder reads at once, including its marks; it reads longer sentences in parts");
}

constexpr const char* for_tagged_sentences = R"({
  "tokenizer": {"kind": "bpe", "vocabulary": 4000}, "model": {"sparse_features": 524288}, "training": {"label_smoothing": 0.0}})";
constexpr const char* for_made_sentences = R"({
  "tokenizer": {"vocabulary": 400}, "model": {"sparse_features": 16384},
  "training": {"steps": 200, "evaluate_every": 200, "save_every": 200, "label_smoothing": 0.0}})";

Settings tag_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", TagData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1, .pooling = ""},
                Stacks::encoder,
                /*has_sparse_features=*/true);
  declare_training(settings, tag_metrics);
  settings.declare("prediction", PredictionSettings{.what = "Sentences"});
  settings.change_defaults(for_labelled_texts);
  settings.change_defaults(own_data ? for_tagged_sentences : for_made_sentences);
  return settings;
}

LabelledText read_tagged(const std::string& path, const Settings& layout, bool labelled, ReadReport& report) {
  const auto data = layout.read<TagData>("data");
  return read_tagged_text(path, {data.format, data.text, data.word_column, data.label_column, labelled},
                          &report);
}

/// Generates sentences with names of people, places and companies, which only their neighbours tell apart.
LabelledText names_by_rule(const Settings& settings) {
  using Names = std::vector<std::string_view>;
  const Names syllables = {"An", "Ber", "Do", "El", "Ka", "Lin", "Mo", "Ro"},
              endings = {"da", "den", "ga", "lo", "mir", "na", "sen", "ton"},
              frames = {"PER met PER in LOC .",       "PER works for ORG .",
                        "ORG opened a shop in LOC .", "the mayor of LOC thanked PER .",
                        "shares of ORG fell .",       "it rained in LOC ."};
  Draws random({settings.read<SplitOptions>("data").seed});
  LabelledText text;
  for (std::size_t i = 1; i <= 1000; ++i) {
    std::vector<std::string> words, labels;
    for (const std::string_view slot : split_at_spaces(random.pick(frames))) {
      const bool is_name = slot == "PER" || slot == "LOC" || slot == "ORG";
      for (int part = slot == "PER" ? 2 : 1; part > 0; part--) {
        words.emplace_back(is_name ? concat_text(random.pick(syllables), random.pick(endings))
                                   : std::string(slot));
        labels.push_back(!is_name ? "O" : concat_text(slot == "PER" && part == 1 ? "I-" : "B-", slot));
      }
    }
    text.add(joined_words(words), joined_words(labels), "sentence ", i);
  }
  return text;
}

// --- model

/// An encoder whose hidden states of words are mapped to logits, with the part "sparse", a CRF, if it has sparse features.
class Tagger : public SequenceEncoder {
 public:
  explicit Tagger(const TransformerConfig& config)
      : Tagger(config, Initialiser(static_cast<std::uint64_t>(config.seed))) {}
  /// Returns the logits [n, labels] of the hidden states at `rows` i32 [n] of the flattened [B * N].
  Tensor logits(const PaddedTokens& tokens, const Tensor& rows, Context& context) {
    return output_(index_select(reshape(hidden(tokens, context), {-1, config().width}), 0, rows));
  }
  SparseChain* sparse() { return sparse_.get(); }

 private:
  Tagger(const TransformerConfig& config, Initialiser initialiser)
      : SequenceEncoder(config, initialiser), output_(config.width, config.classes, true, initialiser) {
    set_hidden_map(output_.weight, false);
    add_module("output", output_);
    if (config.sparse_features == 0) return;
    sparse_ = std::make_unique<Part<SparseChain>>(*this, "sparse", config.sparse_features, config.classes);
    sparse_->freeze();  // solve()
  }
  Linear output_;
  std::unique_ptr<SparseChain> sparse_;  // null: none
};

using SharedSentence = std::shared_ptr<const Sentence>;

/// A part of a sentence that the encoder reads at once.
struct Row {
  SharedSentence sentence;
  std::size_t first = 0;  ///< of its words
  Tokens tokens = {};
  Tokens places = {};  ///< of the first token of each word
};

/// A sentence with its labels, and their classes: one more than the last for a label that training lacks.
struct Example {
  SharedSentence sentence;
  std::vector<std::string> labels = {};
  std::vector<std::int32_t> classes = {};
  std::string place = {};  ///< in its file
};

SharedSentence shared_sentence(const std::string& line) {
  return std::make_shared<const Sentence>(parse_sentence(line));
}

// --- task

class TagTask final : public Task, public HasOutputs {
 public:
  TagTask(const TaskEntry& entry, Settings given)
      : Task(entry, std::move(given)),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size),
        max_tokens_(static_cast<std::size_t>(settings_.read<TagData>("data").max_tokens)) {
    unit_ = "sentences";
  }

  void prepare_training() override {
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    std::vector<std::string> shown;
    for (const std::string& name : classes_) shown.push_back(quoted_label(name));
    remark(concat_text(train_.size(), " sentences for training, ", valid_.size(), " for validation, ",
                       parts_.test.size(), " for testing; ", classes_.size(),
                       " labels: ", listed(std::span(shown).first(std::min<std::size_t>(shown.size(), 12))),
                       "; vocabulary ", tokenizer_->vocabulary_size()));
    std::vector<std::int32_t> lengths;
    for (const Example& one : train_)
      for (Row& row : split_rows(one.sentence)) {
        lengths.push_back(static_cast<std::int32_t>(row.tokens.size()));
        rows_.push_back(std::move(row));
        const auto begin = one.classes.begin() + static_cast<std::ptrdiff_t>(rows_.back().first);
        targets_.emplace_back(begin, begin + std::ssize(rows_.back().places));
      }
    plan_batches({lengths, {}}, training_batches(settings_));
    limit_epochs(is_fine_tuned() ? fine_tuning_epoch_limit : EpochLimit{40, 300, 10'000});
    remark(steps_remark(settings_, batches(0)));
  }

  void solve() override {
    SparseChain* const sparse = model_as<Tagger>().sparse();
    if (!sparse || !solves_linear_part(settings_)) return;
    std::vector<ChainSample> samples;
    const std::int64_t most = (1 << 23) / std::ssize(classes_);
    for (std::int64_t words = 0; const Example& one : train_) {
      if ((words += std::ssize(one.classes)) > most) break;
      samples.push_back({{}, one.classes});
      for (TextFeatures& word : make_features({one.sentence, 0, {}, Tokens(one.classes.size())}))
        samples.back().words.push_back(std::move(word.ids));
    }
    sparse->fit(samples);
    remark(concat_text("the CRF learned from ", samples.size(), " of ", train_.size(), " sentences"));
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& chosen = batches_.at(epoch, batch);
    std::vector<std::int32_t> labels;
    for (const std::vector<std::int32_t>& own : pick(targets_, chosen))
      labels.insert(labels.end(), own.begin(), own.end());
    const Tensor logits = deep_logits(pick(rows_, chosen), 0, context);
    const auto count = std::ssize(labels);
    return {sum(cross_entropy(logits, Tensor::from(labels, {count}, logits.device()), label_smoothing_)),
            count};
  }

  Evaluation evaluate() override {
    if (valid_.empty()) return {};
    const std::vector<Example> read = pick(valid_, spread_over(valid_.size(), sample()));
    const std::vector<Output> logits = compute_logits(sentences(read));
    if (SparseChain* const sparse = model_as<Tagger>().sparse()) {
      std::vector<std::vector<std::int32_t>> labels;
      for (const Example& one : read) labels.push_back(one.classes);
      sparse->fit_shares(logits, labels);
      return evaluation(measured_with_offset(*sparse, read, logits).metrics, read.size(), valid_.size());
    }
    return evaluation(measured_examples(read, logits).metrics, read.size(), valid_.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return answer_lines(
        lines, options, shared_sentence,
        [&](const std::vector<SharedSentence>& sentences) {
          const std::vector<Output> logits = compute_logits(sentences);
          const ChainParts parts = chain_parts();
          std::vector<Prediction> answers;
          for (std::size_t i = 0; i < logits.size(); ++i)
            answers.push_back(answer(*sentences[i], parts.chain(logits[i]), parts.offsets));
          return answers;
        },
        [&](const SharedSentence& sentence, const std::string& name, CaptureFile& file) {
          for (const Row& row : split_rows(sentence))
            add_pass(file, row.first == 0 ? name : concat_text(name, "-", row.first),
                     captured([&](Context& context) { deep_logits({row}, 0, context); }), {row.tokens},
                     *tokenizer_);
        });
  }

  /// Returns the logits [words, labels] of the encoder, and those of the CRF, of all lines together.
  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    std::vector<Row> rows;
    for (const SharedSentence& sentence : inputs_of_lines(lines, shared_sentence))
      for (Row& row : split_rows(sentence)) rows.push_back(std::move(row));
    const Tensor deep = deep_logits(rows, 0, context);
    const SparseChain* const sparse = model_as<Tagger>().sparse();
    return sparse ? ClassLogits{deep, sparse_logits(rows, 0), sparse->shares}.together() : deep;
  }

  static void read_rows(const Settings& settings, const std::string& file, const TakeText& take,
                        ReadReport& report) {
    const LabelledText text = read_tagged(file, settings, /*labelled=*/false, report);
    const std::vector<std::string> names;
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < text.size(); ++i)
      take(Json(split_words(text.texts[i])).dump(),
           {names, names, false, cells, {}, '\t', text.places[i], 0});
  }

 protected:
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) {
      return read_labelled_parts(
          settings_, /*has_classes=*/false, [&] { return names_by_rule(settings_); },
          [&](const std::string& path) { return read_tagged(path, settings_, true, report); });
    });
    return digests_of(parts_, [](const LabelledText& text) { return compute_digest(text); });
  }

  NamedFiles learned_files() override {
    NamedFiles files = learned_tokenizer([&](const auto& take) {
      for (const std::string_view text : parts_.train.texts) {
        std::string spaced = concat_text(' ', text);
        std::ranges::replace(spaced, '\n', ' ');
        take(spaced);
      }
    });
    std::set<std::string> labels;
    for (const std::string_view text : parts_.train.labels)
      for (std::string& label : split_words(text)) labels.insert(std::move(label));
    if (labels.size() < 2)
      throw SettingsError(concat_text("all words have the label ", quoted_label(*labels.begin()),
                                      "; expected at least two: is data.label_column right?"));
    files["classes.json"] = classes_to_json({labels.begin(), labels.end()});
    return files;
  }

  void open(const ReadFile& read) override {
    classes_ = classes_from_json(read("classes.json"));
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"));
    const std::string begin = settings_.read<BeginMark>("tokenizer").begin;
    begin_ = begin.empty() ? Tokens() : Tokens{tokenizer_->id_of(begin)};
  }

  std::unique_ptr<Module> make_model() override {
    return model_of<Tagger>(encoder_config(tokenizer_ ? tokenizer_->vocabulary_size() : 300,
                                           classes_.empty() ? 2 : std::ssize(classes_)),
                            batch_tokens());
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_tagged(files.front(), layout, true, report);
    };
    return measured_data(parts_, source, read, [&](const LabelledText& text) {
      const std::vector<Example> examples = make_examples(text);
      return measured_examples(examples, compute_logits(sentences(examples)));
    });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    TextList lines;
    const LabelledText& text = shown_part(parts_);
    for (std::size_t i = 0; i < text.size(); ++i) lines.push_back(Json(split_words(text.texts[i])).dump());
    return short_lines(lines, count);
  }

 private:
  // --- sentences and rows

  std::vector<Example> make_examples(const LabelledText& text) {
    std::map<std::string, std::int32_t> places;
    for (const std::string& name : classes_) places.emplace(name, static_cast<std::int32_t>(places.size()));
    std::int64_t words = 0, unknown = 0;
    std::set<std::string> others;
    std::vector<Example> examples;
    for (std::size_t i = 0; i < text.size(); ++i) {
      Example one{std::make_shared<const Sentence>(sentence_of_words(split_words(text.texts[i]))),
                  split_words(text.labels[i])};
      for (const std::string& label : one.labels) {
        const auto found = places.find(label);
        const bool is_known = found != places.end();
        one.classes.push_back(is_known ? found->second : static_cast<std::int32_t>(places.size()));
        ++words;
        if (!is_known) ++unknown, others.insert(quoted_label(label));
      }
      one.place = text.places[i];
      examples.push_back(std::move(one));
    }
    check(words == 0 || unknown < words, "none of the labels is one of the ", classes_.size(),
          " known: ", listed(others));
    if (unknown > 0)
      remark(concat_text(unknown, " words have labels that training lacks, ", listed(others),
                         ": they count as wrong, and the loss leaves their sentences out"));
    return examples;
  }
  static std::vector<SharedSentence> sentences(const std::vector<Example>& examples) {
    std::vector<SharedSentence> sentences;
    for (const Example& one : examples) sentences.push_back(one.sentence);
    return sentences;
  }

  /// Returns the rows of a sentence, as many words in each as fit into data.max_tokens.
  std::vector<Row> split_rows(const SharedSentence& sentence) {
    const std::int32_t end = tokenizer_->id_of("</s>");
    const std::size_t most = max_tokens_ - begin_.size() - 1;
    std::vector<Row> rows;
    for (std::size_t word = 0; word < sentence->words.size(); ++word) {
      Tokens pieces = tokenizer_->encode(" " + sentence->words[word]);
      if (pieces.empty()) pieces = {end};
      pieces.resize(std::min(pieces.size(), most));  // its first piece counts
      if (rows.empty() || rows.back().tokens.size() + pieces.size() + 1 > max_tokens_)
        rows.push_back({sentence, word, begin_, {}});
      Row& row = rows.back();
      row.places.push_back(static_cast<std::int32_t>(row.tokens.size()));
      row.tokens.insert(row.tokens.end(), pieces.begin(), pieces.end());
    }
    for (Row& row : rows) row.tokens.push_back(end);
    return rows;
  }
  // --- logits

  /// Returns the logits of the encoder for the words of rows: one row after another or, with `width`, each filled up to
  /// so many.
  Tensor deep_logits(const std::vector<Row>& rows, std::size_t width, Context& context) {
    auto& model = model_as<Tagger>();
    std::vector<Tokens> tokens;
    for (const Row& row : rows) tokens.push_back(row.tokens);
    const PaddedTokens padded = pad_tokens(tokens, model.device());
    Tokens places;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto begin = static_cast<std::int32_t>(i) * static_cast<std::int32_t>(padded.ids.size(1));
      for (const std::int32_t place : rows[i].places) places.push_back(begin + place);
      for (std::size_t word = rows[i].places.size(); word < width; ++word) places.push_back(begin);
    }
    return model.logits(padded, Tensor::from(places, {std::ssize(places)}, model.device()), context);
  }

  /// Returns the features of the words of a row.
  std::vector<TextFeatures> make_features(const Row& row) {
    std::vector<TextFeatures> features(row.places.size());
    const std::int64_t count = model_as<Tagger>().sparse()->weight.size(0);
    for (std::size_t i = 0; i < features.size(); ++i)
      features[i] = word_features(row.sentence->words, row.first + i, count);
    return features;
  }

  Tensor sparse_logits(const std::vector<Row>& rows, std::size_t width) {
    std::vector<std::vector<TextFeatures>> found(rows.size());
    parallel_for(std::ssize(rows), [&](std::int64_t i) {
      const auto place = static_cast<std::size_t>(i);
      found[place] = make_features(rows[place]);
    });
    std::vector<TextFeatures> features;
    for (std::vector<TextFeatures>& row : found) {
      row.resize(std::max(row.size(), width), {{0}, {0}});
      features.insert(features.end(), row.begin(), row.end());
    }
    auto& model = model_as<Tagger>();
    return (*model.sparse())(sparse_batch(features, model.device()));
  }

  /// Returns the logits of each sentence, word by word: of the encoder, followed by those of the CRF if there is one.
  std::vector<Output> compute_logits(const std::vector<SharedSentence>& sentences) {
    std::vector<Row> rows;
    std::vector<std::size_t> owners;
    Lengths lengths;
    for (std::size_t i = 0; i < sentences.size(); ++i)
      for (Row& row : split_rows(sentences[i])) {
        lengths[0].push_back(static_cast<std::int32_t>(row.tokens.size()));
        rows.push_back(std::move(row));
        owners.push_back(i);
      }
    const bool has_sparse = model_as<Tagger>().sparse() != nullptr;
    const auto found =
        outputs_of(*this, rows, lengths, batch_size_, [&](const std::vector<Row>& batch, Context& context) {
          std::size_t width = 1;
          for (const Row& row : batch) width = std::max(width, row.places.size());
          const Tensor deep = deep_logits(batch, width, context);
          return has_sparse ? concat({deep, sparse_logits(batch, width)}, -1) : deep;
        });
    std::vector<Output> logits(sentences.size());
    const std::size_t of_word = classes_.size() * (has_sparse ? 2 : 1);
    for (std::size_t i = 0; i < rows.size(); ++i)
      logits[owners[i]].insert(
          logits[owners[i]].end(), found[i].begin(),
          found[i].begin() + static_cast<std::ptrdiff_t>(rows[i].places.size() * of_word));
    return logits;
  }

  ChainParts chain_parts() {
    const SparseChain* const sparse = model_as<Tagger>().sparse();
    return sparse ? sparse->parts() : ChainParts{classes_.size()};
  }

  // --- answers and metrics

  std::vector<std::string> label_names(std::span<const std::int32_t> labels) const {
    std::vector<std::string> names;
    for (const std::int32_t label : labels) names.push_back(classes_[static_cast<std::size_t>(label)]);
    return names;
  }

  /// The text of an answer marks spans with brackets: "[PER Anna Berg] met [PER Olga] .".
  Prediction answer(const Sentence& sentence, const LabelChain& chain,
                    const std::vector<float>& offsets) const {
    const std::vector<std::int32_t> best = chain.best(offsets);
    const std::vector<std::string> labels = label_names(best);
    Prediction answer{.text = marked(sentence.words, labels, true),
                      .probability = std::exp(chain.log_probability(0, best))};
    const auto place = [&](std::size_t begin, std::size_t end, const std::string& label) {
      std::string text;
      for (std::size_t i = begin; i < end; ++i) {
        if (i > begin) text.append(sentence.places[i].begin - sentence.places[i - 1].end, ' ');
        text += sentence.words[i];
      }
      const auto own = std::span(best).subspan(begin, end - begin);
      return Prediction::Span{text, label, sentence.places[begin].begin, sentence.places[end - 1].end,
                              std::exp(chain.log_probability(begin, own))};
    };
    for (std::size_t i = 0; i < labels.size(); ++i) answer.words.push_back(place(i, i + 1, labels[i]));
    for (const LabelSpan& span : label_spans(labels))
      answer.spans.push_back(place(span.begin, span.end, span.kind));
    return answer;
  }
  /// Returns the spans in brackets; `all_words`: and the words between them.
  static std::string marked(const std::vector<std::string>& words, const std::vector<std::string>& labels,
                            bool all_words) {
    std::string text;
    std::size_t next = 0;
    const auto add_words = [&](std::size_t end) {
      for (; next < end; ++next) text += words[next] + ' ';
    };
    for (const LabelSpan& span : label_spans(labels)) {
      if (all_words) add_words(span.begin);
      next = span.begin;
      text += concat_text('[', span.kind, ' ');
      add_words(span.end);
      text.back() = ']';
      text += ' ';
    }
    if (all_words) add_words(words.size());
    return text.substr(0, text.size() - (text.empty() ? 0 : 1));
  }

  /// Measures held-out sentences, from which it chooses the offset of "O": 0 unless another gains more than twice the
  /// standard error of the gain in F1 = 2 right / (expected + predicted), linearized.
  Measurement measured_with_offset(SparseChain& sparse, const std::vector<Example>& examples,
                                   const std::vector<Output>& logits) {
    std::vector<float> offsets(classes_.size()), best_offsets = offsets;
    sparse.set_offsets(offsets);
    const Measurement usual = measured_examples(examples, logits);
    Measurement best = usual;
    const auto outside = std::ranges::find(classes_, "O");
    for (const float offset : {-0.5F, -1.F, -1.5F}) {
      if (outside == classes_.end()) break;
      offsets[static_cast<std::size_t>(outside - classes_.begin())] = offset;
      sparse.set_offsets(offsets);
      Measurement found = measured_examples(examples, logits);
      double gain = 0, squares = 0;
      for (std::size_t i = 0; i < examples.size(); ++i) {
        const auto &now = found.examples.rows[i], &before = usual.examples.rows[i];
        const double change = now[0] - before[0] - usual.metrics[0].value * (now[1] - before[1]);
        gain += change, squares += change * change;
      }
      if (found.metrics[0].value > best.metrics[0].value && gain > 2 * std::sqrt(squares))
        best = std::move(found), best_offsets = offsets;
    }
    sparse.set_offsets(best_offsets);
    return best;
  }
  static SpanCounts total_spans(const std::map<std::string, SpanCounts>& kinds) {
    SpanCounts all;
    for (const auto& [kind, counts] : kinds) all.add(counts);
    return all;
  }

  Measurement measured_examples(const std::vector<Example>& examples, const std::vector<Output>& logits) {
    const ChainParts parts = chain_parts();
    std::map<std::string, SpanCounts> kinds;
    double right = 0, words = 0, loss = 0, known_words = 0;
    Measurement found;
    found.examples = {"f1", "mean", {}};
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const Example& one = examples[i];
      const LabelChain chain = parts.chain(logits[i]);
      const std::vector<std::int32_t> best = chain.best(parts.offsets);
      const std::vector<std::string> labels = label_names(best);
      const auto counts = count_spans(label_spans(one.labels), label_spans(labels));
      for (const auto& [kind, own] : counts) kinds[kind].add(own);
      const SpanCounts own = total_spans(counts);
      found.examples.rows.push_back(
          {2. * static_cast<double>(own.right), static_cast<double>(own.expected + own.predicted)});
      const auto size = static_cast<double>(labels.size());
      for (std::size_t word = 0; word < labels.size(); ++word)
        right += labels[word] == one.labels[word] ? 1 : 0;
      words += size;
      if (std::ranges::max(one.classes) < std::ssize(classes_))
        loss += chain.loss(one.classes), known_words += size;
      if (labels != one.labels)
        found.mistakes.push_back(
            {one.place, one.sentence->text, marked(one.sentence->words, one.labels, false),
             marked(one.sentence->words, labels, false), std::exp(chain.log_probability(0, best))});
    }
    std::ranges::stable_sort(found.mistakes, std::ranges::greater(), &Mistake::probability);
    const SpanCounts all = total_spans(kinds);
    const double values[] = {all.f1(), all.precision(), all.recall(), right / words,
                             loss / std::max(known_words, 1.)};
    const Measurement figures = measurement(values, examples.size(), true);
    found.metrics = figures.metrics;
    found.count = figures.count;
    Json json = Json::parse(figures.json);
    json["words"] = static_cast<std::int64_t>(words);
    for (const auto& [kind, counts] : kinds)
      json["spans"][kind] = {{"expected", counts.expected},
                             {"predicted", counts.predicted},
                             {"precision", rounded(counts.precision())},
                             {"recall", rounded(counts.recall())},
                             {"f1", rounded(counts.f1())}};
    found.json = json.dump();
    return found;
  }

  const std::int64_t batch_size_;
  const std::size_t max_tokens_;
  TextParts parts_;
  std::optional<Tokenizer> tokenizer_;
  Tokens begin_;
  std::vector<Example> train_, valid_;
  std::vector<Row> rows_;                           // of the training sentences
  std::vector<std::vector<std::int32_t>> targets_;  // of their words
};

/// A row of examples in memory, as a line of jsonl.
std::string tagged_line(std::span<const std::string> row, std::size_t /*number*/) {
  return Json({{"words", split_words(row[0])}, {"labels", split_words(row[1])}}).dump();
}
const ExampleTable tagged_examples = {"",
                                      {{"words", "The words of a sentence", false, between_words},
                                       {"labels", "The label of each word", false, between_words}},
                                      "jsonl",
                                      tagged_line};

}  // namespace

const TaskEntry& tag_task() {
  static const TaskEntry entry = make_task_entry<TagTask>(
      {"tag",
       "Trains, evaluates and uses a model that labels the words of a text, such as the names in it",
       Stacks::encoder,
       tag_metrics,
       tag_settings,
       names_labelled_data,
       {tagged_examples},
       for_fine_tuning});
  return entry;
}

}  // namespace heed
