// Dialogue: an encoder-decoder Transformer (apps/tasks/text_to_text.h) that reads the last turns of a
// dialogue and writes the next one, by beam search or by sampling. Dialogues come from files, one a line,
// whose turns end in "__eou__" (apps/data/formats.h); without them it learns small talk made by rule. A line to
// answer is the dialogue so far, with "__eou__" between its turns.
//
// Files of a run beside the weights: tokenizer.json, in which "__eou__" is a token. Parts of the data: train,
// valid, test.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/data/formats.h"
#include "heed/apps/data/labelled_text.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/text_to_text.h"
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
  "training": {"steps": 2000, "batch_tokens": 8192, "evaluate_every": 250, "shown_sample": 128, "save_every": 250,
    "schedule": {"warmup_steps": 300, "learning_rate": 0.002}},
  "evaluation": {"pairs": 300}})";

constexpr const char* for_small_talk = R"({
  "tokenizer": {"vocabulary": 400},
  "model": {"width": 96, "feed_forward": 192, "encoder_layers": 2, "decoder_layers": 2},
  "training": {"steps": 600, "evaluate_every": 120, "shown_sample": 128, "save_every": 200, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}}})";

struct ConverseData {
  DataFiles files = {
      .what = "Dialogues", .form = ", one per line, with __eou__ after each turn", .without_test = "none"};
  double valid_fraction = 0.1;
  std::uint64_t split_seed = 1;
  std::int64_t turns = 3;
  enum class Overlap { leave_out, keep } overlap = Overlap::leave_out;
  TextOptions text = {};
  std::int64_t dialogues = 2000, held_out_dialogues = 50;
};

void for_each_setting(auto&& visit, ConverseData& data) {
  for_each_setting(visit, data.files);
  visit_valid_fraction(visit, data.valid_fraction);
  visit_split_seed(visit, data.split_seed);
  visit(data.turns, "turns", 1, 1000, "Most previous turns that the model reads");
  visit(data.overlap, "overlap", {"leave_out", "keep"},
        "What happens to training dialogues that also occur in the validation or test data: left out, or "
        "kept; reported");
  for_each_setting(visit, data.text);
  visit(data.dialogues, "dialogues", 1, 1e6, "Without data: number of generated training dialogues");
  visit(data.held_out_dialogues, "held_out_dialogues", 1, 1000,
        "Without data: number of generated held-out examples");
}

Settings converse_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", ConverseData());
  SearchOptions search;  // how long an answer is does not follow from what it answers
  search.length_ratio = 0;
  search.length_extra = 60;
  declare_text_to_text(settings, dialogue_metrics, search);
  settings.change_defaults(own_data ? for_dialogues : for_small_talk);
  return settings;
}

/// Draws the held-out share as split_text() does.
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

constexpr std::string_view turn_separator = " __eou__ ";  // turn_end between spaces

/// Returns turns from memory as a line of a file: line breaks within a turn become spaces, and the
/// last turn also gets an end mark.
std::string dialogue_line(std::span<const std::string> row, std::size_t /*number*/) {
  std::string line = row[0];
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  return line.append(" ").append(turn_end);
}

/// Handles training dialogues that are also in the validation or test data, where the model could
/// recite them.
void handle_overlap(Dialogues& train, const Dialogues& valid, const Dialogues& test, const ConverseData& data,
                    ReadReport& report) {
  std::set<Dialogue> measured(valid.begin(), valid.end());
  measured.insert(test.begin(), test.end());
  const auto shared = [&](const Dialogue& turns) { return measured.contains(turns); };
  const auto count = std::ranges::count_if(train, shared);
  if (count == 0) return;
  const bool keep = data.overlap == ConverseData::Overlap::keep;
  report.remarks.push_back(
      concat_text(count, " training dialogues are also in the validation or test data and are ",
                  keep ? "kept (data.overlap)" : "left out of training (data.overlap=keep keeps them)"));
  if (!keep) std::erase_if(train, shared);
  check(!train.empty(), data.files.file, ": all training dialogues are also in the validation or test data");
}

class ConverseTask : public TextToTextTask {
 public:
  ConverseTask(const TaskEntry& entry, Settings settings)
      : TextToTextTask(entry, std::move(settings), {.marks = {std::string(turn_end)}, .keeps_end = true}),
        data_(settings_.read<ConverseData>("data")) {}

 protected:
  /// Generates small talk. It does not depend on the seed, so that runs with different seeds are
  /// compared on the same dialogues.
  PairParts parts_made_by_rule() const override {
    const auto made = small_talk(1, data_.dialogues, data_.held_out_dialogues);
    return {answers_in(made.train, data_.turns), answers_in(made.held_out, data_.turns), {}};
  }

  PairParts named_parts(ReadReport& report) const override {
    const auto read = [&](const std::string& file) {
      return file.empty() ? Dialogues() : read_dialogues(file, data_.text, &report);
    };
    Dialogues train = read(data_.files.file), valid = read(data_.files.valid);
    const Dialogues test = read(data_.files.test);
    handle_overlap(train, valid, test, data_, report);
    if (valid.empty()) split_dialogues(train, valid, data_.valid_fraction, data_.split_seed);
    const auto alone = std::ranges::count_if(train, [](const Dialogue& turns) { return turns.size() < 2; });
    if (alone > 0)
      report.remarks.push_back(
          concat_text(alone, " training dialogues have a single turn, so there is no answer to learn"));
    const auto answers = [&](const Dialogues& dialogues, const std::string& file, const char* use) {
      ParallelText pairs = answers_in(dialogues, data_.turns);
      check(file.empty() || pairs.size() > 0, file, ": no dialogue has a second turn: there is no answer to ",
            use);
      return pairs;
    };
    return {answers(train, data_.files.file, "learn from"), answers(valid, data_.files.valid, "measure with"),
            answers(test, data_.files.test, "test with")};
  }

  ParallelText read(const Settings& layout, std::span<const std::string> files,
                    ReadReport& report) const override {
    const auto data = layout.read<ConverseData>("data");
    ParallelText pairs = answers_in(read_dialogues(files.front(), data.text, &report), data.turns);
    check(pairs.size() > 0, files.front(), ": no dialogue has a second turn: there is no answer to evaluate");
    return pairs;
  }

  std::string source_of(const std::string& line) const override {
    Dialogue turns = split_turns(line);
    turns.emplace_back();  // the turn that follows, which is to be written
    return turns.size() == 1 ? "" : std::string(answers_in({turns}, data_.turns).source.back());
  }

  Measurement quality(std::span<const std::string> answers, const ParallelText& pairs,
                      double loss) const override {
    const std::vector<std::string> expected = pairs.target.strings();
    const auto [bleu, examples] = bleu_of_answers(answers, expected);
    const BleuTokens tokens = bleu_tokens_for(expected);
    const std::vector<double> values = {std::exp(loss), bleu.score, distinct_share(answers, 1, tokens),
                                        distinct_share(answers, 2, tokens), loss};
    Json json;
    for (std::size_t i = 0; i < values.size(); ++i)
      json[std::string(dialogue_metrics[i].name)] = i + 1 < values.size() ? rounded(values[i]) : values[i];
    json["answers"] = pairs.size();
    json["human"] = {{"distinct1", rounded(distinct_share(expected, 1, tokens))},
                     {"distinct2", rounded(distinct_share(expected, 2, tokens))}};
    json["signature"] = bleu.signature;
    return {.metrics = metrics(values), .json = json.dump(), .examples = examples};
  }

 private:
  const ConverseData data_;
};

}  // namespace

const TaskEntry& converse_task() {
  static const TaskEntry entry = make_task_entry<ConverseTask>(
      {"converse",
       "Trains, evaluates and uses a model that replies in dialogues",
       Stacks::encoder_decoder,
       dialogue_metrics,
       converse_settings,
       names_file,
       {{"",
         {{"turns", "The turns of a dialogue, in which two speakers alternate", false, turn_separator}},
         "txt",
         dialogue_line}}});
  return entry;
}

}  // namespace heed
