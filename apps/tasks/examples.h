#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/task.h"
#include "heed/autograd/autograd.h"
#include "heed/base/error.h"
#include "heed/text/batching.h"

// Example handling shared by tasks: the parts of the data, forward passes over many inputs, and
// predictions line by line.

namespace heed {

// --- the parts of the data

/// The part of the data that a report takes its examples from: held-out data if there is any.
template <class Data>
const Data& shown_part(const DataParts<Data>& parts) {
  return parts.valid.size() > 0 ? parts.valid : parts.train;
}

/// Returns the digest of each non-empty part, by its name.
template <class Data, class DigestOf>
std::map<std::string, std::string> digests_of(const DataParts<Data>& parts, const DigestOf& digest) {
  std::map<std::string, std::string> digests;
  for (const char* name : {"train", "valid", "test"})
    if (part_of(parts, name).size() > 0) digests[name] = digest(part_of(parts, name));
  return digests;
}

// --- inputs and outputs of a model

/// Training examples of a task with an encoder: Inputs, such as the tokens of a text, and their
/// Targets.
template <class Input, class Target>
struct TaskExamples {
  std::vector<Input> inputs;
  std::vector<Target> targets;
};

/// Returns the examples at the indices of a batch.
template <class Input, class Target>
TaskExamples<Input, Target> picked(const TaskExamples<Input, Target>& all, const Batch& rows) {
  return {pick(all.inputs, rows), pick(all.targets, rows)};
}

/// The output of a model for one input: class scores, a vector or a number.
using Output = std::vector<float>;

/// Returns the output of each input, in order, without gradients. Inputs of similar length are
/// batched together, and processes that evaluate `objective` together share the batches.
/// forward(inputs, context) returns a tensor [B, ...] whose elements are divided evenly among the B
/// inputs.
template <class Input, class Forward>
std::vector<Output> outputs_of(const Objective& objective, const std::vector<Input>& inputs,
                               const Lengths& lengths, std::int64_t batch_size, const Forward& forward) {
  const NoGrad no_grad;
  std::vector<Output> all(inputs.size());
  if (inputs.empty()) return all;
  const std::vector<Batch> batches =
      BatchPlan(lengths[0], lengths[1], evaluation_batches(batch_size)).epoch(0);
  const auto found = objective.share_work<float>(batches.size(), [&](std::size_t batch) {
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

/// Converts lines to inputs with input_of(line). Throws an Error if there are no lines.
template <class InputOf>
auto inputs_of_lines(std::span<const std::string> lines, const InputOf& input_of) {
  check(!lines.empty(), "outputs: there are no lines");
  std::vector<decltype(input_of(lines[0]))> inputs;
  for (const std::string& line : lines) inputs.push_back(input_of(line));
  return inputs;
}

// --- predictions line by line

/// Calls take(index, prediction) for each line that is not blank. An Error becomes the prediction's
/// `error`; DeviceLost and OutOfMemory propagate.
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

/// Answers lines that are inputs of an encoder. input_of(line) throws an Error for an invalid line,
/// answers_to(inputs) returns a prediction for each input, and show(input, name, file) captures one
/// pass over an input.
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

/// Answers single texts with answer_lines(). pass(texts, context) runs a forward pass, for the
/// capture.
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
