#include "heed/models/attention/advice.h"

#include <algorithm>
#include <string>

#include "heed/base/error.h"
#include "heed/models/attention/attention.h"

namespace heed {
namespace {

constexpr std::array<ArenaTask, arena_task_count> tasks{{
    {"listops", 63, 12.8, 2000},
    {"text", 250, 25.5, 1500},
    {"pixels", 784, 11.1, 1000},
}};

// Behind the texts: growth, GFLOP, and what `python3 bench/arena.py` wrote to figures.txt.
// clang-format off
const std::vector<AttentionNotes>& all_notes() {
  static const std::vector<AttentionNotes> notes = {
      {"dot_product", "Every token compares itself with every other.",
       "Take it up to some 2,000 tokens, and where quality counts more than time.",
       "N^2", 14, 533, {{{37.3, 67.8, 15}, {71.1, 32.5, 46}, {58.5, 14, 65}}}},
      {"synthesizer_dense", "A token decides by itself which places it looks at.",
       "Take it where places have a meaning of their own: pixels, fields of a form.",
       "N^2", 12.3, 520, {{{37.4, 73.9, 14}, {62.1, 35.2, 46}, {48.3, 16.4, 65}}}},
      {"synthesizer_random", "One learned weight for every pair of places, the same for every text.",
       "Take it for short inputs of a fixed layout; it has N^2 parameters a head.",
       "N^2", 6.5, 234, {{{35.2, 107, 19}, {66.1, 47.3, 49}, {56.5, 24.7, 80}}}},
      {"synthesizer_random_fixed", "Weights between places, drawn once and never learned.",
       "Take it as a base line, and for topics and sentiment, which need little attention.",
       "N^2", 5.4, 165, {{{32, 118, 15}, {66.7, 50.4, 47}, {66.2, 33.2, 70}}}},
      {"synthesizer_factorized_dense", "The dense one with two short vectors a token, stretched over the places.",
       "Take it in place of the dense one where max_length is large and parameters count.",
       "N^2", 8.3, 321, {{{37, 65.2, 26}, {59.1, 28.8, 157}, {30.3, 7.37, 298}}}},
      {"synthesizer_factorized_random", "The random one with weights of a low rank.",
       "Take it in place of the random one: fewer parameters, and often better.",
       "N^2", 7, 266, {{{36.5, 88.9, 13}, {64.3, 40.5, 46}, {48.2, 17.1, 65}}}},
      {"synthesizer_mixture", "A learned mixture of several Synthesizers and the dot product.",
       "Take it where you cannot tell which of them fits, and time is no matter.",
       "N^2", 14, 533, {{{35.8, 55, 23}, {60.2, 25.9, 49}, {31.8, 9.98, 80}}}},
      {"hard_coded_gaussian", "Each head looks at a fixed neighbour; nothing is learned but values.",
       "Take it for speed where order says most: self-attention in translation, characters.",
       "N", 3.4, 27.1, {{{41.2, 113, 17}, {67.3, 55.6, 48}, {66.4, 74.9, 65}}}},
      {"fastformer", "All tokens meet in one global query and one global key.",
       "Take it for the gist of long texts, with a smaller learning rate than the dot product's.",
       "N", 4.9, 39.1, {{{33.7, 92.7, 16}, {65.7, 51.7, 46}, {60.2, 69.5, 65}}}},
      {"clusterformer", "Words are sorted by learned clusters, and see those of their own kind.",
       "Take it for documents beyond some 500 words.",
       "N", 8.7, 79.6, {{{35.4, 53.2, 20}, {69.3, 28.3, 46}, {67.6, 21.3, 66}}}},
      {"linformer", "The keys are summed up, along the length, into a few by learned weights.",
       "Take it where places mean the same in every sample, as pixels do.",
       "N", 9.9, 79.5, {{{31.2, 23.7, 46}, {52.7, 25.3, 48}, {89.3, 20.7, 70}}}},
      {"sparse_transformer", "Half of the heads see the last tokens, half every l-th.",
       "Take it for long sequences with a period: rows of an image, music, bytes.",
       "N^1.5", 7.4, 66.2, {{{33.4, 60, 20}, {70.1, 38, 52}, {81.7, 37.5, 65}}}},
      {"reformer", "Hashing brings like tokens together, and each sees its bucket.",
       "Take it for long texts in which few tokens matter to one another; it learns slowly.",
       "N log N", 6.7, 55.8, {{{22.4, 7.21, 262}, {35.3, 4.65, 198}, {27.5, 3.58, 326}}}},
      {"routing_transformer", "Learned centroids choose the tokens that attend to each other.",
       "Take it for long texts where anything may refer to anything; it learns slowly.",
       "N^1.5", 6.7, 58.5, {{{30.9, 30.7, 23}, {67.8, 30.3, 46}, {73, 25, 68}}}},
      {"longformer", "A sliding window, and a few global tokens that see all and are seen by all.",
       "Take it for long documents: the safe choice where order is local.",
       "N", 13.6, 114, {{{35.6, 52.2, 18}, {70.3, 28.8, 46}, {65.9, 15.9, 65}}}},
      {"bigbird", "Blocks of a window, of global tokens, and a few drawn at random.",
       "Take it for long texts where anything may refer to anything.",
       "N", 10.6, 88.6, {{{37, 66.7, 15}, {69.8, 31.6, 46}, {66.6, 18.3, 65}}}},
      {"linear_transformer", "Products of positive features, summed up once for all queries.",
       "Take it for long texts and to write them: its state does not grow.",
       "N", 6.9, 54.8, {{{36.4, 69.3, 23}, {65.9, 35.3, 46}, {85.6, 66.6, 72}}}},
      {"performer", "Random features, whose products are on average those of the softmax.",
       "Take it where the dot product is right, but too slow.",
       "N", 9.3, 74.1, {{{35, 46, 29}, {71.6, 33.8, 71}, {83.4, 40, 117}}}},
      {"retnet", "No softmax: what was seen fades with the distance, at a rate for each head.",
       "Take it for language models that write long texts: its state does not grow.",
       "N", 15.9, 132.1, {{{32.6, 25.5, 93}, {61.1, 14.8, 172}, {58.8, 15.4, 281}}}},
      {"fnet", "Fourier transforms over places and features; nothing is learned.",
       "Take it as the floor that attention has to beat.",
       "N^2", 6.4, 292.1, {{{33.4, 115, 15}, {41.9, 40.3, 125}, {53.5, 21.6, 65}}}},
      {"nystromformer", "A few landmarks stand for all tokens on one side of each softmax.",
       "Take it in place of the dot product for long texts that are read, not written.",
       "N", 8, 61.5, {{{28.9, 11.9, 185}, {56.4, 14.6, 121}, {76.4, 22, 65}}}},
      {"gated_linear_attention", "What was seen fades as each token decides, feature by feature.",
       "Take it for language models that write long texts: its state does not grow.",
       "N", 8.7, 63.8, {{{31.5, 35.6, 45}, {68.2, 29.5, 81}, {70, 22.7, 155}}}},
      {"attention_free_transformer", "Each feature is an average over the places, weighted by keys, gated by the query.",
       "Take it where little time must do; in its simple form its state does not grow.",
       "N", 6.4, 51.5, {{{37.4, 89.6, 16}, {75.2, 50.8, 50}, {86, 80.1, 78}}}},
      {"local", "The dot product in a sliding window.",
       "Take it as the base line of long texts, with rotary or ALiBi positions.",
       "N", 7.8, 62.8, {{{37.5, 67.1, 15}, {70.7, 34.3, 52}, {77.4, 34.4, 65}}}},
      {"sinkhorn", "Each block sees itself, and one other that a learned sorting brings to it.",
       "Take it for long texts with a max_length in which distant blocks belong together.",
       "N", 7.5, 66.1, {{{34.9, 47.8, 34}, {68.1, 29.7, 72}, {74.5, 32.8, 135}}}},
      {"mixed_heads", "Heads of several mechanisms in one layer.",
       "Take it where some heads may be cheap: half local, half learned.",
       "N^2", 9.7, 349, {{{45.2, 73.3, 16}, {72.5, 38.2, 47}, {69, 24.4, 65}}}},
  };
  return notes;
}
// clang-format on

constexpr std::string_view quadratic = "N^2";
/// The longest text for which growth is no matter.
constexpr std::int64_t short_enough = 1024;

}  // namespace

std::span<const ArenaTask> arena_tasks() {
  return tasks;
}

double AttentionNotes::mean_accuracy() const {
  double sum = 0;
  for (const ArenaResult& result : arena) sum += result.accuracy;
  return sum / static_cast<double>(arena.size());
}

double AttentionNotes::gflop(std::int64_t length) const {
  const double n = static_cast<double>(length), one = gflop_1024 / 1024, eight = gflop_8192 / 8192;
  const double b = std::max(0.0, (eight - one) / (8192 - 1024)), a = std::max(0.0, eight - b * 8192);
  return a * n + b * n * n;
}

std::span<const AttentionNotes> attention_notes() {
  return all_notes();
}

const AttentionNotes* attention_notes(std::string_view name) {
  const auto found = std::ranges::find(all_notes(), name, &AttentionNotes::name);
  return found == all_notes().end() ? nullptr : &*found;
}

double advised_accuracy(const AttentionNotes& notes, std::string_view task) {
  if (task.empty()) return notes.mean_accuracy();
  const auto found = std::ranges::find(tasks, task, &ArenaTask::name);
  if (found == tasks.end()) {
    std::string names;
    for (const ArenaTask& one : tasks) names += concat_text(names.empty() ? "" : ", ", one.name);
    fail("there is no task '", task, "' among those that were measured: ", names);
  }
  return notes.arena[static_cast<std::size_t>(found - tasks.begin())].accuracy;
}

std::vector<const AttentionNotes*> advise(const AdviceQuestion& question) {
  check(question.length >= 1, "advise: the length is ", question.length, "; it must be at least 1");
  std::vector<const AttentionNotes*> able;
  for (const AttentionNotes& notes : all_notes()) {
    const Capabilities& can = attention_variant(notes.name).capabilities;
    if ((!question.causal || can.causal) && (!question.cross || can.cross)) able.push_back(&notes);
  }
  const auto is_cheap = [&](const AttentionNotes* one) {
    return question.length <= short_enough || one->growth != quadratic;
  };
  std::ranges::stable_sort(able, [&](const AttentionNotes* a, const AttentionNotes* b) {
    if (is_cheap(a) != is_cheap(b)) return is_cheap(a);
    return advised_accuracy(*a, question.task) > advised_accuracy(*b, question.task);
  });
  return able;
}

}  // namespace heed
