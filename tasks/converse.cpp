// Dialogue: an encoder-decoder Transformer (tasks/text_to_text.h) that reads the last turns of a dialogue and writes the
// next one, by beam search or by sampling. Dialogues come from files, one a line, whose turns end in "__eou__"
// (data/dialogues.h); without them it learns small talk made by rule. A line to answer is the dialogue so far, with
// "__eou__" between its turns.
//
// Files of a run beside the weights: tokenizer.json, in which "__eou__" is a token. Parts of the data: train, valid,
// test.

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/data/dialogues.h"
#include "heed/data/labelled_text.h"
#include "heed/tasks/recipe.h"
#include "heed/tasks/text_to_text.h"
#include "heed/training/text_metrics.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
using Dialogues = std::vector<Dialogue>;

constexpr MetricKind dialogue_metrics[] = {
    {"perplexity", false}, {"bleu", true}, {"distinct1", true}, {"distinct2", true}, {"loss", false}};

constexpr const char* for_dialogues = R"({
  "tokenizer": {"vocabulary": 4000}, "data": {"long_sources": "cut"},
  "model": {"width": 128, "feed_forward": 256, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.3, "norm": "pre"},
  "training": {"steps": 2000, "batch_tokens": 8192, "evaluate_every": 250, "save_every": 250,
    "schedule": {"warmup_steps": 300, "learning_rate": 0.002}},
  "evaluation": {"pairs": 300}})";

constexpr const char* for_small_talk = R"({
  "tokenizer": {"vocabulary": 400},
  "model": {"width": 96, "feed_forward": 192, "encoder_layers": 2, "decoder_layers": 2},
  "training": {"steps": 600, "evaluate_every": 200, "save_every": 200, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}}})";

Settings converse_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  settings.text("data.file", "", "Dialogues to learn from, one a line, each turn ended by __eou__");
  settings.text("data.valid", "", "Dialogues to measure progress on");
  settings.text("data.test", "", "Dialogues to measure with at the end");
  settings.number("data.valid_fraction", 0.1, 0, 0.999,
                  "Share of the dialogues to measure progress on, where data.valid names none");
  settings.integer("data.split_seed", 1, 0, std::numeric_limits<std::int64_t>::max(),
                   "Seed of which dialogues these are");
  settings.integer("data.turns", 3, 1, 1000, "The most turns that are read before the one that is written");
  settings.choice("data.overlap", "leave_out", {"leave_out", "keep"},
                  "What becomes of dialogues to learn from that are among those to measure with: left out, "
                  "or kept; said");
  declare_text(settings);
  settings.integer("data.dialogues", 2000, 1, 1'000'000, "Without data: how many dialogues to learn from");
  settings.integer("data.held_out_dialogues", 50, 1, 1000, "Without data: how many to measure with");
  declare_tokenizer(settings, 8000);
  declare_model(settings, {.tie_embeddings = "all"}, Stacks::encoder_decoder);
  declare_training(settings, dialogue_metrics);
  SearchOptions search;  // how long an answer is does not follow from what it answers
  search.length_ratio = 0;
  search.length_extra = 60;
  declare_text_to_text(settings, search);
  settings.change_defaults(own_data ? for_dialogues : for_small_talk);
  return settings;
}

bool names_dialogues(const Settings& settings) {
  const auto given = [&](const char* name) { return !settings.get<std::string>(name).empty(); };
  if (!given("data.file") && (given("data.valid") || given("data.test")))
    throw SettingsError(
        "--valid and --test (data.valid, data.test) need --data (data.file), the dialogues to learn from");
  return given("data.file");
}

/// The share that is held out, drawn as split_text() does.
void split_dialogues(Dialogues& train, Dialogues& valid, double fraction, std::uint64_t seed) {
  LabelledText numbers;
  for (std::size_t i = 0; i < train.size(); ++i) numbers.add(std::to_string(i), "", "");
  const TextParts parts = split_text(numbers, {.valid_fraction = fraction, .seed = seed});
  const auto of = [&](const LabelledText& part) {
    Dialogues picked;
    for (const std::string_view number : part.texts) picked.push_back(train[std::stoul(std::string(number))]);
    return picked;
  };
  valid = of(parts.valid);
  train = of(parts.train);
}

class ConverseLearner : public TextToTextLearner {
 public:
  using TextToTextLearner::TextToTextLearner;

 protected:
  /// The small talk does not follow the seed: runs with other seeds are compared on the same dialogues.
  PairParts made_by_rule() const override {
    const SmallTalk made = small_talk(1, settings_.get<std::int64_t>("data.dialogues"),
                                      settings_.get<std::int64_t>("data.held_out_dialogues"));
    return {answers_in(made.train, context()), answers_in(made.held_out, context()), {}};
  }

  PairParts named_parts(ReadReport& report) override {
    const auto read = [&](const char* setting) {
      const auto file = settings_.get<std::string>(setting);
      return file.empty() ? Dialogues() : read_dialogues(file, text_options(settings_), &report);
    };
    Dialogues train = read("data.file"), valid = read("data.valid");
    const Dialogues test = read("data.test");
    handle_overlap(train, valid, test);
    if (valid.empty())
      split_dialogues(train, valid, settings_.get<double>("data.valid_fraction"),
                      static_cast<std::uint64_t>(settings_.get<std::int64_t>("data.split_seed")));
    const auto alone = std::ranges::count_if(train, [](const Dialogue& turns) { return turns.size() < 2; });
    if (alone > 0) remark(concat_text(alone, " dialogues to learn from have one turn, and so no answer"));
    PairParts parts{answers_in(train, context()), answers_in(valid, context()), answers_in(test, context())};
    const auto has_answers = [&](const ParallelText& pairs, const char* setting, const char* use) {
      const auto file = settings_.get<std::string>(setting);
      check(file.empty() || pairs.size() > 0, file, ": no dialogue has a second turn: there is no answer to ",
            use);
    };
    has_answers(parts.train, "data.file", "learn from");
    has_answers(parts.valid, "data.valid", "measure with");
    has_answers(parts.test, "data.test", "test with");
    return parts;
  }

  ParallelText read(std::span<const std::string> files, ReadReport& report) override {
    ParallelText pairs =
        answers_in(read_dialogues(files.front(), text_options(settings_), &report), context());
    check(pairs.size() > 0, files.front(), ": no dialogue has a second turn: there is no answer to measure");
    return pairs;
  }

  std::string source_of(const std::string& line) const override {
    Dialogue turns = turns_of(line);
    turns.emplace_back();  // what is to be answered: the turn that follows
    return turns.size() == 1 ? "" : std::string(answers_in({turns}, context()).source.back());
  }

  std::vector<std::string> marks() const override { return {std::string(turn_end)}; }
  bool keeps_end() const override { return true; }

  Quality quality(std::span<const std::string> answers, const ParallelText& pairs,
                  double loss) const override {
    const std::vector<std::string> expected = pairs.target.strings();
    const auto [bleu, examples] = bleu_of_answers(answers, expected);
    const std::vector<double> values = {std::exp(loss), bleu.score, distinct_share(answers, 1),
                                        distinct_share(answers, 2), loss};
    Json json;
    for (std::size_t i = 0; i < values.size(); ++i)
      json[std::string(dialogue_metrics[i].name)] = i + 1 < values.size() ? rounded(values[i]) : values[i];
    json["answers"] = pairs.size();
    json["human"] = {{"distinct1", rounded(distinct_share(expected, 1))},
                     {"distinct2", rounded(distinct_share(expected, 2))}};
    json["signature"] = bleu.signature;
    return {values, json.dump(), examples};
  }

 private:
  std::int64_t context() const { return settings_.get<std::int64_t>("data.turns"); }

  /// Dialogues that are measured with, too, would be known by heart.
  void handle_overlap(Dialogues& train, const Dialogues& valid, const Dialogues& test) {
    std::set<Dialogue> measured(valid.begin(), valid.end());
    measured.insert(test.begin(), test.end());
    const auto shared = [&](const Dialogue& turns) { return measured.contains(turns); };
    const auto count = std::ranges::count_if(train, shared);
    if (count == 0) return;
    const bool keep = settings_.get<std::string>("data.overlap") == "keep";
    remark(concat_text(count, " dialogues to learn from are among those to measure with, too, and are ",
                       keep ? "kept (data.overlap)" : "left out of learning (data.overlap=keep keeps them)"));
    if (!keep) std::erase_if(train, shared);
    check(!train.empty(), settings_.get<std::string>("data.file"),
          ": all dialogues to learn from are among those to measure with");
  }
};

}  // namespace

const TaskKind& converse_task() {
  static const TaskKind kind{"converse",
                             "Learns to answer in dialogues, measures it, and answers",
                             Stacks::encoder_decoder,
                             dialogue_metrics,
                             converse_settings,
                             names_dialogues,
                             make_learner<ConverseLearner>};
  return kind;
}

}  // namespace heed
