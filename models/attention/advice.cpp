#include "heed/models/attention/advice.h"

#include <algorithm>
#include <string>

#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/models/attention/attention.h"

namespace heed {
namespace {

constexpr std::array<ArenaTask, arena_task_count> tasks{{
    {"listops", 63, 12.8},
    {"text", 250, 25.5},
    {"retrieval", 200, 50.1},
    {"path", 144, 50.1},
    {"pixels", 784, 11.1},
}};

// Behind the texts: growth, GFLOP, and what `python3 bench/arena.py` wrote to figures.txt.
// clang-format off
const std::vector<AttentionNotes>& all_notes() {
  static const std::vector<AttentionNotes> notes = {
      {"dot_product", "Every token compares itself with every other.",
       "Take it up to some 2,000 tokens, and where quality counts more than time.",
       "N^2", 14, 533, {{{35.2, 0.9, 55.7, 15}, {64.8, 1.7, 22.6, 46}, {71.3, 0.2, 27.7, 44}, {77.5, 0.1, 33.6, 23}, {40.3, 7.3, 10.3, 65}}}},
      {"synthesizer_dense", "A token decides by itself which places it looks at.",
       "Take it where places have a meaning of their own: pixels, fields of a form.",
       "N^2", 12.3, 520, {{{36.7, 0.5, 60.1, 14}, {57.5, 0.4, 23.8, 46}, {70.9, 0.5, 29.6, 45}, {76.8, 1.3, 34.3, 22}, {37.9, 6.4, 9.83, 65}}}},
      {"synthesizer_random", "One learned weight for every pair of places, the same for every text.",
       "Take it for short inputs of a fixed layout; it has N^2 parameters a head.",
       "N^2", 6.5, 234, {{{34.0, 0.3, 72.9, 19}, {61.0, 1.1, 30.1, 49}, {70.8, 0.2, 31.3, 46}, {77.7, 0.3, 49.3, 25}, {59.9, 2.6, 24.9, 80}}}},
      {"synthesizer_random_fixed", "Weights between places, drawn once and never learned.",
       "Take it as a base line, and for topics and sentiment, which need little attention.",
       "N^2", 5.4, 165, {{{32.0, 0.5, 90, 15}, {63.0, 0.8, 36.8, 47}, {71.0, 0.3, 34.5, 45}, {77.6, 0.2, 51.9, 23}, {65.8, 1.2, 30.5, 70}}}},
      {"synthesizer_factorized_dense", "The dense one with two short vectors a token, stretched over the places.",
       "Take it in place of the dense one where max_length is large and parameters count.",
       "N^2", 8.3, 321, {{{35.4, 0.5, 46.3, 26}, {53.6, 1.3, 17.6, 157}, {70.4, 0.3, 22.2, 119}, {74.9, 1.8, 22.9, 62}, {31.7, 4.2, 5.98, 298}}}},
      {"synthesizer_factorized_random", "The random one with weights of a low rank.",
       "Take it in place of the random one: fewer parameters, and often better.",
       "N^2", 7, 266, {{{35.9, 0.2, 69.5, 13}, {59.2, 0.4, 25.9, 46}, {70.8, 0.4, 30.6, 45}, {76.2, 1.0, 38.1, 22}, {32.4, 1.6, 11.3, 65}}}},
      {"synthesizer_mixture", "A learned mixture of several Synthesizers and the dot product.",
       "Take it where you cannot tell which of them fits, and time is no matter.",
       "N^2", 14, 533, {{{35.1, 1.0, 45.4, 24}, {56.2, 1.5, 19.8, 49}, {70.5, 0.5, 24.5, 48}, {77.3, 0.7, 26.1, 29}, {28.3, 1.6, 7.07, 80}}}},
      {"hard_coded_gaussian", "Each head looks at a fixed neighbour; nothing is learned but values.",
       "Take it for speed where order says most: self-attention in translation, characters.",
       "N", 3.4, 27.1, {{{39.3, 0.9, 77.8, 17}, {64.5, 0.7, 44.1, 49}, {71.0, 0.5, 34.2, 47}, {77.2, 0.3, 49.9, 23}, {63.6, 0.8, 64.1, 65}}}},
      {"fastformer", "All tokens meet in one global query and one global key.",
       "Take it for the gist of long texts, with a smaller learning rate than the dot product's.",
       "N", 4.9, 39.1, {{{32.4, 0.9, 60.1, 16}, {61.5, 0.9, 38.5, 46}, {70.9, 0.6, 33.5, 44}, {77.3, 0.3, 45.6, 24}, {43.0, 1.5, 49.7, 65}}}},
      {"clusterformer", "Words are sorted by learned clusters, and see those of their own kind.",
       "Take it for documents beyond some 500 words.",
       "N", 8.7, 79.6, {{{34.9, 0.5, 41.8, 20}, {64.3, 1.3, 22.3, 46}, {71.4, 0.9, 25.4, 50}, {77.0, 1.2, 27.6, 28}, {54.0, 4.3, 15.5, 66}}}},
      {"linformer", "The keys are summed up, along the length, into a few by learned weights.",
       "Take it where places mean the same in every sample, as pixels do.",
       "N", 9.9, 79.5, {{{30.4, 0.7, 18, 46}, {51.0, 2.2, 20.9, 48}, {70.4, 0.3, 18.4, 50}, {72.8, 2.8, 19.2, 28}, {88.2, 0.2, 16.2, 70}}}},
      {"sparse_transformer", "Half of the heads see the last tokens, half every l-th.",
       "Take it for long sequences with a period: rows of an image, music, bytes.",
       "N^1.5", 7.4, 66.2, {{{31.3, 0.6, 44.9, 21}, {64.4, 1.7, 28.5, 52}, {70.9, 0.5, 25.9, 52}, {73.9, 0.6, 33.5, 26}, {77.1, 2.2, 29.1, 65}}}},
      {"reformer", "Hashing brings like tokens together, and each sees its bucket.",
       "Take it for long texts in which few tokens matter to one another; it learns slowly.",
       "N log N", 6.7, 55.8, {{{28.4, 2.0, 23.5, 21}, {49.1, 2.8, 7.72, 221}, {69.2, 0.2, 11, 124}, {70.8, 2.7, 13.1, 81}, {15.7, 3.7, 2.32, 326}}}},
      {"routing_transformer", "Learned centroids choose the tokens that attend to each other.",
       "Take it for long texts where anything may refer to anything; it learns slowly.",
       "N^1.5", 6.7, 58.5, {{{30.4, 1.0, 23.1, 23}, {62.5, 0.6, 21.2, 46}, {68.6, 1.2, 15.6, 53}, {75.7, 0.8, 22.4, 29}, {64.6, 5.0, 19.1, 68}}}},
      {"longformer", "A sliding window, and a few global tokens that see all and are seen by all.",
       "Take it for long documents: the safe choice where order is local.",
       "N", 13.6, 114, {{{34.2, 0.6, 42.9, 19}, {65.2, 1.5, 21.2, 46}, {70.7, 0.5, 25.1, 48}, {77.2, 0.8, 27.7, 26}, {44.2, 5.5, 11.7, 65}}}},
      {"bigbird", "Blocks of a window, of global tokens, and a few drawn at random.",
       "Take it for long texts where anything may refer to anything.",
       "N", 10.6, 88.6, {{{35.1, 0.9, 56.6, 15}, {67.1, 1.7, 25.6, 46}, {71.4, 0.3, 29.2, 44}, {77.7, 0.4, 33.7, 23}, {49.0, 7.6, 14, 65}}}},
      {"linear_transformer", "Products of positive features, summed up once for all queries.",
       "Take it for long texts and to write them: its state does not grow.",
       "N", 6.9, 54.8, {{{34.0, 1.3, 51.1, 23}, {64.2, 0.6, 34, 46}, {70.8, 0.2, 30.1, 55}, {77.5, 0.8, 38.5, 31}, {81.9, 0.9, 44.3, 72}}}},
      {"performer", "Random features, whose products are on average those of the softmax.",
       "Take it where the dot product is right, but too slow.",
       "N", 9.3, 74.1, {{{32.7, 0.6, 32.3, 29}, {71.1, 1.5, 25.2, 71}, {70.9, 0.3, 22.3, 66}, {76.4, 1.2, 29, 41}, {75.8, 4.9, 23.8, 117}}}},
      {"retnet", "No softmax: what was seen fades with the distance, at a rate for each head.",
       "Take it for language models that write long texts: its state does not grow.",
       "N", 15.9, 132.1, {{{31.8, 0.3, 23.7, 93}, {61.0, 2.1, 15.8, 172}, {69.5, 0.4, 13.3, 167}, {75.6, 3.2, 14.9, 117}, {42.7, 9.3, 12.6, 281}}}},
      {"fnet", "Fourier transforms over places and features; nothing is learned.",
       "Take it as the floor that attention has to beat.",
       "N^2", 6.4, 292.1, {{{32.5, 0.5, 91.4, 15}, {40.1, 0.2, 24.6, 125}, {69.1, 0.6, 23.5, 71}, {78.4, 1.6, 48.9, 22}, {39.5, 7.4, 17.1, 65}}}},
      {"nystromformer", "A few landmarks stand for all tokens on one side of each softmax.",
       "Take it in place of the dot product for long texts that are read, not written.",
       "N", 8, 61.5, {{{23.9, 0.7, 7.85, 185}, {50.2, 1.8, 10.9, 122}, {68.0, 1.1, 6.24, 286}, {68.2, 10.4, 7.92, 98}, {65.1, 10.1, 18.6, 65}}}},
      {"gated_linear_attention", "What was seen fades as each token decides, feature by feature.",
       "Take it for language models that write long texts: its state does not grow.",
       "N", 8.7, 63.8, {{{31.1, 0.3, 25.7, 45}, {62.7, 0.1, 21.9, 81}, {70.1, 0.4, 17.4, 84}, {77.0, 0.6, 23.6, 48}, {64.0, 4.8, 21.2, 155}}}},
      {"attention_free_transformer", "Each feature is an average over the places, weighted by keys, gated by the query.",
       "Take it where little time must do; in its simple form its state does not grow.",
       "N", 6.4, 51.5, {{{35.5, 0.5, 65.8, 16}, {74.6, 1.4, 41, 50}, {71.2, 0.3, 31.7, 48}, {78.4, 0.3, 46.8, 27}, {84.9, 1.3, 56.7, 78}}}},
      {"local", "The dot product in a sliding window.",
       "Take it as the base line of long texts, with rotary or ALiBi positions.",
       "N", 7.8, 62.8, {{{35.0, 1.1, 56.5, 16}, {67.8, 1.6, 26.9, 52}, {71.3, 0.1, 28.1, 49}, {77.1, 0.8, 31.7, 23}, {67.3, 2.1, 23.4, 65}}}},
      {"sinkhorn", "Each block sees itself, and one other that a learned sorting brings to it.",
       "Take it for long texts with a max_length in which distant blocks belong together.",
       "N", 7.5, 66.1, {{{33.9, 1.0, 39.4, 34}, {64.4, 1.2, 25, 72}, {70.2, 0.5, 21.1, 73}, {76.2, 0.6, 25.1, 50}, {63.8, 2.7, 24, 135}}}},
      {"mixed_heads", "Heads of several mechanisms in one layer.",
       "Take it where some heads may be cheap: half local, half learned.",
       "N^2", 9.7, 349, {{{41.8, 3.4, 61.6, 16}, {69.6, 1.2, 30.5, 47}, {70.9, 0.3, 28.6, 46}, {77.1, 0.2, 41.1, 22}, {55.5, 3.9, 16.8, 65}}}},
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
    std::vector<std::string_view> names;
    for (const ArenaTask& one : tasks) names.push_back(one.name);
    fail("there is no task '", task, "' among those that were measured: ", listed(names));
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
