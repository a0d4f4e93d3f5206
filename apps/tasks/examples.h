#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/learner.h"
#include "heed/autograd/autograd.h"
#include "heed/base/error.h"
#include "heed/core/ranks.h"
#include "heed/data/batching.h"

// What tasks do alike with their examples: the parts of the data, one forward pass over many inputs, and
// answers line by line.

namespace heed {

// --- the parts of the data

/// What a report shows examples of: held-out data where there are any.
template <class Data>
const Data& shown_part(const DataParts<Data>& parts) {
  return parts.valid.size() > 0 ? parts.valid : parts.train;
}

/// Lines without what is expected of them.
inline std::vector<ExampleLine> lines_of(std::vector<std::string> texts) {
  std::vector<ExampleLine> lines;
  for (std::string& text : texts) lines.push_back({std::move(text)});
  return lines;
}

/// digest_of(part) of each part that is not empty, by its name.
template <class Data, class DigestOf>
std::map<std::string, std::string> digests_of(const DataParts<Data>& parts, const DigestOf& digest) {
  std::map<std::string, std::string> digests;
  for (const char* name : {"train", "valid", "test"})
    if (part_of(parts, name).size() > 0) digests[name] = digest(part_of(parts, name));
  return digests;
}

// --- what a model gives for inputs

/// What a task learns from: an encoder reads an Input, such as the tokens of a text, and is to answer its
/// Target.
template <class Input, class Target>
struct TaskExamples {
  std::vector<Input> inputs;
  std::vector<Target> targets;
};

/// Those at some indices.
template <class Input, class Target>
TaskExamples<Input, Target> picked(const TaskExamples<Input, Target>& all, const Batch& rows) {
  return {pick(all.inputs, rows), pick(all.targets, rows)};
}

/// What a model gives for an input: scores of classes, a vector, a number.
using Output = std::vector<float>;

/// The output of each input, in their order, without a gradient. Inputs of like lengths are read together,
/// and ranks share the batches. forward(inputs, context) gives [B, ...], B times as many numbers as an Output
/// has.
template <class Input, class Forward>
std::vector<Output> outputs_of(const std::vector<Input>& inputs, const Lengths& lengths,
                               std::int64_t batch_size, Ranks* ranks, const Forward& forward) {
  const NoGrad no_grad;
  std::vector<Output> all(inputs.size());
  if (inputs.empty()) return all;
  const std::vector<Batch> batches =
      BatchPlan(lengths[0], lengths[1], evaluation_batches(batch_size)).epoch(0);
  const auto found = deal_out_numbers<float>(ranks, batches.size(), [&](std::size_t batch) {
    Context context = Context::inference();
    return forward(pick(inputs, batches[batch]), context).template to_vector<float>();
  });
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    const auto each = std::ssize(found[batch]) / std::ssize(batches[batch]);
    auto next = found[batch].begin();
    for (const std::int32_t row : batches[batch]) {
      all[static_cast<std::size_t>(row)].assign(next, next + each);
      next += each;
    }
  }
  return all;
}

/// The inputs of lines whose outputs are asked for.
template <class InputOf>
auto inputs_of_lines(std::span<const std::string> lines, const InputOf& input_of) {
  check(!lines.empty(), "outputs: there are no lines");
  std::vector<decltype(input_of(lines[0]))> inputs;
  for (const std::string& line : lines) inputs.push_back(input_of(line));
  return inputs;
}

// --- answers line by line

/// Calls take(number, its prediction) for each line that is not blank. What is wrong with a line becomes its
/// error.
template <class Take>
std::vector<Prediction> for_each_line(std::span<const std::string> lines, const Take& take) {
  std::vector<Prediction> predictions(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    try {
      take(i, predictions[i]);
    } catch (const DeviceLost&) {
      throw;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      predictions[i].error = error.what();
    }
  }
  return predictions;
}

/// Answers to lines that are inputs of an encoder: input_of(line) throws an Error for one that is none,
/// answers_to(inputs) gives a prediction for each, and show(input, name, file) makes one pass over an input
/// in which the model shows its inside.
template <class InputOf, class AnswersTo, class Show>
std::vector<Prediction> answer_lines(std::span<const std::string> lines, const PredictOptions& options,
                                     const InputOf& input_of, const AnswersTo& answers_to, const Show& show) {
  std::vector<decltype(input_of(lines[0]))> inputs;
  std::vector<std::size_t> places;
  std::vector<Prediction> predictions = for_each_line(lines, [&](std::size_t i, Prediction&) {
    inputs.push_back(input_of(lines[i]));
    places.push_back(i);
  });
  std::vector<Prediction> answers = answers_to(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    predictions[places[i]] = std::move(answers[i]);
    if (options.capture) show(inputs[i], options.name_of(places[i]), *options.capture);
  }
  return predictions;
}

/// The same for texts that an encoder reads, each by itself: pass(texts, context) is a forward pass.
template <class AnswersTo, class Pass>
std::vector<Prediction> answer_texts(std::span<const std::string> lines, const PredictOptions& options,
                                     BoundedTokenizer& tokenizer, const AnswersTo& answers_to,
                                     const Pass& pass) {
  return answer_lines(
      lines, options, [&](const std::string& line) { return tokenizer(line); }, answers_to,
      [&](const Tokens& text, const std::string& name, CaptureFile& file) {
        add_pass(file, name, captured([&](Context& context) { pass(std::vector<Tokens>{text}, context); }),
                 {text}, tokenizer.tokenizer());
      });
}

}  // namespace heed
