// own_task: a model that tags each word of a text. A complete task with its program in one file; see
// CONTRIBUTING.md.
//
// With --data it learns from a table of tags and texts, "DT NN VBD<tab>The cat sat". Without, it
// learns the place value of each word in a number: in "six hundred four thousand three", six is
// tagged as hundreds of thousands, four as thousands and three as ones; hundred and thousand are
// units. An encoder reads the words, and a linear layer maps each hidden state to the logits of the
// tags. The loss is the cross entropy.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/ops.h"
#include "heed/models/sequence_encoder.h"

namespace {

using namespace heed;

constexpr MetricKind tag_metrics[] = {{"accuracy", true}, {"loss", false}};

struct TagData {
  std::string file = {};
  double valid_fraction = 0.1;
  TextOptions text = {};
  TextLimits limits = {};
};

void for_each_setting(auto&& visit, TagData& data) {
  visit(data.file, "file", "Training lines: tags, a tab, and as many words, all separated by spaces");
  visit(data.valid_fraction, "valid_fraction", 0.001, 0.999, "Share of the texts to hold out for validation");
  for_each_setting(visit, data.text);
  visit(data.limits.max_tokens, "max_tokens", 1, 1 << 24, "Most words of a text");
}

Settings tag_settings(bool /*own_data*/) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", TagData());
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder);
  declare_training(settings, tag_metrics);
  settings.declare("prediction", PredictionSettings());
  settings.change_defaults(R"({"training": {"steps": 400, "evaluate_every": 80, "save_every": 100,
    "label_smoothing": 0, "schedule": {"warmup_steps": 50, "learning_rate": 0.003}}})");
  return settings;
}

/// Returns the words between white space, with repetition.
std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

/// Generates numbers in words, with tags. The words are tagged from last to first, because the
/// units to the right of a word multiply its value.
LabelledText number_words_by_rule() {
  LabelledText text;
  for (const std::int32_t number : draw_numbers(1, 3000, 1).train) {
    const std::string english = english_number(number);
    std::vector<std::string> words = words_of(english);
    std::ranges::reverse(words);
    std::string tags, unit = "ones", thousands;
    for (const std::string& word : words) {
      const bool is_unit = word == "hundred" || word == "thousand";
      tags = concat_text(is_unit ? "unit" : unit, tags.empty() ? "" : " ", tags);
      if (word == "thousand") unit = thousands = "thousands";
      if (word == "hundred") unit = thousands.empty() ? "hundreds" : "hundreds_of_thousands";
    }
    text.add(english, tags, english);
  }
  return text;
}

LabelledText read_tagged(const std::string& file, const Settings& layout, ReadReport& report) {
  return read_labelled_text(file,
                            {.format = "tsv",
                             .text = layout.read<TextOptions>("data"),
                             .label_column = "1",
                             .text_columns = {"2"},
                             .header = Header::absent},
                            &report);
}

/// The text of a file of names, which words_of() reads.
std::string lines_of_names(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

/// Returns the index of a name in a sorted list, or -1.
std::int32_t place_of(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::lower_bound(names, name);
  return found != names.end() && *found == name ? static_cast<std::int32_t>(found - names.begin()) : -1;
}

class Tagger : public SequenceEncoder {
 public:
  explicit Tagger(const TransformerConfig& config)
      : Tagger(config, Initialiser(static_cast<std::uint64_t>(config.seed))) {}
  /// Returns the logits of the tags [B, N, tags] for words i32 [B, N].
  Tensor logits(const PaddedTokens& words, Context& context) { return output_(hidden(words, context)); }

 private:
  Tagger(const TransformerConfig& config, Initialiser initialiser)
      : SequenceEncoder(config, initialiser), output_(config.width, config.classes, true, initialiser) {
    add_module("output", output_);
  }
  Linear output_;
};

class TagTask : public Task {
 public:
  TagTask(const TaskEntry& entry, Settings given)
      : Task(entry, std::move(given)),
        data_(settings_.read<TagData>("data")),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size) {
    unit_ = "texts";
  }

  // --- loss: the cross entropy of each word's tag
  void prepare_training() override {
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    plan_batches({lengths_of(train_.inputs), {}}, training_batches(settings_));
  }
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    const PaddedTokens tags = padded(pick(train_.targets, rows));
    const Tensor logits = model_as<Tagger>().logits(padded(pick(train_.inputs, rows)), context);
    std::int64_t count = 0;
    for (const Tokens& one : pick(train_.targets, rows)) count += std::ssize(one);
    return {sum(cross_entropy(logits, tags.mask.defined() ? tags.ids * tags.mask + tags.mask - 1 : tags.ids,
                              label_smoothing_)),
            count};
  }
  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const Batch rows = spread_over(valid_.inputs.size(), sample());  // all, where it chooses weights
    return evaluation(measure_quality(picked(valid_, rows)).metrics, rows.size(), valid_.inputs.size());
  }

  // --- predictions: the likeliest tag of each word
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return answer_lines(
        lines, options, [&](const std::string& line) { return input_of(line); },
        [&](const std::vector<Tokens>& texts) {
          std::vector<Prediction> answers;
          for (const std::vector<float>& scores : compute_scores(texts))
            answers.push_back(make_answer(scores));
          return answers;
        },
        [&](const Tokens& text, const std::string& name, CaptureFile& file) {
          file.add(name,
                   captured([&](Context& context) { model_as<Tagger>().logits(padded({text}), context); }));
        });
  }

 protected:
  // --- data: texts with a tag for each word
  std::map<std::string, std::string> read_parts() override {
    const LabelledText text = reported([&](ReadReport& report) {
      return data_.file.empty() ? number_words_by_rule() : read_tagged(data_.file, settings_, report);
    });
    parts_ = split_text(text, {.valid_fraction = data_.valid_fraction});
    return digests_of(parts_, [](const LabelledText& part) { return compute_digest(part); });
  }
  NamedFiles learned_files() override {
    std::set<std::string> words, tags;
    for (const std::string_view text : parts_.train.texts) words.merge(set_of(words_of(text)));
    for (const std::string_view text : parts_.train.labels) tags.merge(set_of(words_of(text)));
    return {{"words.txt", lines_of_names(words)}, {"tags.txt", lines_of_names(tags)}};
  }
  void open(const ReadFile& read) override {
    words_ = words_of(read("words.txt"));
    tags_ = words_of(read("tags.txt"));
    check(words_.size() > 0 && tags_.size() >= 2, "words.txt, tags.txt: there are ", words_.size(),
          " words and ", tags_.size(), " tags; expected words, and at least two tags");
  }
  std::unique_ptr<Module> make_model() override {
    const auto count = [](const auto& names) { return static_cast<std::int64_t>(names.size()); };
    return model_of<Tagger>(encoder_config(count(words_) + 1, tags_.empty() ? 2 : count(tags_)),
                            batch_tokens());
  }

  // --- evaluation
  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_tagged(files.front(), layout, report);
    };
    return measured_data(parts_, source, read,
                         [&](const LabelledText& text) { return measure_quality(make_examples(text)); });
  }

 private:
  using Examples = TaskExamples<Tokens, Tokens>;

  static std::set<std::string> set_of(const std::vector<std::string>& names) {
    return {names.begin(), names.end()};
  }

  /// Words unseen in training share one id, after the others.
  Tokens input_of(std::string_view text) const {
    Tokens ids;
    for (const std::string& word : words_of(text)) {
      const std::int32_t place = place_of(words_, word);
      ids.push_back(place < 0 ? static_cast<std::int32_t>(words_.size()) : place);
    }
    check(std::ssize(ids) <= data_.limits.max_tokens, "the text has ", ids.size(),
          " words, more than data.max_tokens = ", data_.limits.max_tokens, "; raise that");
    return ids;
  }
  Examples make_examples(const LabelledText& text) const {
    Examples examples;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::vector<std::string> tags = words_of(text.labels[i]);
      examples.inputs.push_back(input_of(text.texts[i]));
      check(tags.size() == examples.inputs.back().size(), text.places[i], ": ", tags.size(), " tags for ",
            examples.inputs.back().size(), " words; expected a tag for each");
      examples.targets.emplace_back();
      for (const std::string& tag : tags) {
        examples.targets.back().push_back(place_of(tags_, tag));
        check(examples.targets.back().back() >= 0, text.places[i], ": training has not seen the tag \"", tag,
              '"');
      }
    }
    return examples;
  }

  PaddedTokens padded(const std::vector<Tokens>& texts) {
    return pad_tokens(texts, model_as<Tagger>().device());
  }

  /// Returns the log-probability of each tag of each word [words, tags], text by text.
  std::vector<std::vector<float>> compute_scores(const std::vector<Tokens>& texts) {
    std::vector<Output> scores =
        outputs_of(*this, texts, {lengths_of(texts), {}}, batch_size_,
                   [&](const std::vector<Tokens>& batch, Context& context) {
                     return log_softmax(model_as<Tagger>().logits(padded(batch), context), -1);
                   });
    for (std::size_t i = 0; i < texts.size(); ++i)
      scores[i].resize(texts[i].size() * tags_.size());  // no padding
    return scores;
  }
  std::size_t best_tag(std::span<const float> scores) const {
    return static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
  }
  /// The probability of an answer is the joint probability of all tags.
  Prediction make_answer(std::span<const float> scores) const {
    Prediction answer;
    double total = 0;
    for (; !scores.empty(); scores = scores.subspan(tags_.size())) {
      const std::size_t best = best_tag(scores.first(tags_.size()));
      total += static_cast<double>(scores[best]);
      answer.text += (answer.text.empty() ? "" : " ") + tags_[best];
    }
    answer.probability = std::exp(total);
    return answer;
  }
  Measurement measure_quality(const Examples& examples) {
    const std::vector<std::vector<float>> scores = compute_scores(examples.inputs);
    double right = 0, loss = 0, count = 0;
    for (std::size_t i = 0; i < scores.size(); ++i)
      for (std::size_t word = 0; word < examples.targets[i].size(); ++word, ++count) {
        const auto own = std::span(scores[i]).subspan(word * tags_.size(), tags_.size());
        const auto tag = static_cast<std::size_t>(examples.targets[i][word]);
        right += best_tag(own) == tag ? 1 : 0;
        loss -= static_cast<double>(own[tag]);
      }
    return measurement(std::vector<double>{right / count, loss / count}, scores.size());
  }

  const TagData data_;
  const std::int64_t batch_size_;
  TextParts parts_;
  std::vector<std::string> words_, tags_;  // sorted; a word's id is its place
  Examples train_, valid_;
};

}  // namespace

int main(int argc, char** argv) {
  const TaskEntry entry = make_task_entry<TagTask>(
      {"own_task", "Trains, evaluates and uses a model that tags each word of a text", Stacks::encoder,
       tag_metrics, tag_settings, names_file});
  programs::TaskProgram program{.entry = entry,
                                .by_rule = "the place value of each word in a number",
                                .suits = "a few thousand short texts",
                                .example = "--data tagged.tsv --out runs/tagged",
                                .answer = "tags"};
  program.train_flags = {"data.file"};
  program.files = "Tagged texts to evaluate on; default: the held-out texts";
  return programs::run_task_program(program, argc, argv);
}
