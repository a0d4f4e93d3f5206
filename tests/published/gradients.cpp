// What a run's model says of given tokens, and the gradient of a loss, under the published names: the part of
// tests/published/run.py that is heed's. Reads tokens from a safetensors file, writes another.
//
//   published_gradients RUN INPUT OUTPUT
//
// Without gradients, for runs that leave in no layout:
//
//   published_gradients outputs RUN INPUT OUTPUT
//
// Or the tokens of texts, a JSON list, and what they decode to:
//
//   published_gradients tokens TOKENIZER TEXTS
//
// Or for each architecture the members of config.json that heed knows:
//
//   published_gradients members - -

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "heed/apps/hub/architecture.h"
#include "heed/apps/hub/exchange.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/file.h"
#include "heed/base/names.h"
#include "heed/models/classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/pairs.h"
#include "heed/text/tokenizer.h"

namespace {

using namespace heed;

/// sum_i x_i cos(i), a loss that every output takes part in.
Tensor weighted_sum(const Tensor& x) {
  std::vector<float> weights;
  for (std::int64_t i = 0; i < x.count(); ++i) weights.push_back(std::cos(static_cast<float>(i)));
  return sum(x * Tensor::from(weights, x.shape()));
}

Tensor outputs_of(Module& model, const TensorFile& input, Context& context) {
  const auto at = [&](const char* name) {
    const auto found = input.tensors.find(name);
    return found == input.tensors.end() ? Tensor() : found->second;
  };
  const PaddedTokens tokens{at("ids"), at("mask"), at("types")};
  if (auto* one = dynamic_cast<LanguageModel*>(&model)) return one->logits(one->hidden(tokens, context));
  if (auto* one = dynamic_cast<MaskedLanguageModel*>(&model))
    return one->logits(one->hidden(tokens, context));
  if (auto* one = dynamic_cast<SentenceEncoder*>(&model)) return one->vectors(tokens, context);
  if (auto* one = dynamic_cast<EncoderClassifier*>(&model)) return one->logits(tokens, context);
  auto* one = dynamic_cast<EncoderDecoder*>(&model);
  check(one != nullptr, "the run's model is of no kind that is published");
  const Tensor memory = one->encode(tokens, context);
  // The logits themselves: log_probabilities() would hide a constant.
  DecoderState state = one->start(memory, tokens);
  std::vector<Tensor> steps;
  const Tensor target = at("target");
  for (std::int64_t i = 0; i < target.size(1); ++i)
    steps.push_back(unsqueeze(one->step(select(target, 1, i), state, context), 1));
  return concat(steps, 1);
}

void print_tokens(const std::string& tokenizer_file, const std::string& texts) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file);
  nlohmann::json list = nlohmann::json::array();
  for (const std::string text : nlohmann::json::parse(read_file(texts))) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    list.push_back({{"ids", ids}, {"text", tokenizer.decode(ids)}});
  }
  std::cout << list.dump() << '\n';
}

void print_members() {
  nlohmann::json all;
  for (const hub::Architecture& one : hub::architectures()) {
    nlohmann::json& names = all[std::string(one.model_type)];
    for (const hub::ConfigMember& setting : one.settings) names.push_back(setting.published);
    for (const hub::MemberTable* const table : {one.members, &hub::common_members()}) {
      for (const auto& [name, value] : table->only.items()) names.push_back(name);
      for (const std::string_view list : {table->read, table->without_effect})
        for (const std::string_view name : split_at(list, " ")) names.push_back(name);
    }
  }
  std::cout << all.dump() << '\n';
}

}  // namespace

int main(int argc, char** argv) try {
  const bool is_plain = argc == 5 && argv[1] == std::string("outputs");
  check(argc == 4 || is_plain, "usage: published_gradients [outputs] RUN INPUT OUTPUT");
  if (is_plain) ++argv;
  if (argv[1] == std::string("tokens")) {
    print_tokens(argv[2], argv[3]);
    return 0;
  }
  if (argv[1] == std::string("members")) {
    print_members();
    return 0;
  }
  Run run = Run::open(argv[1], {.device = "cpu"});
  Module& model = run.task().model();
  Context context = Context::inference();
  const Tensor outputs = outputs_of(model, load_safetensors(argv[2]), context);
  backward(weighted_sum(outputs));
  std::map<std::string, Tensor> gradients;
  for (const NamedTensor& one : is_plain ? std::vector<NamedTensor>() : model.parameters()) {
    const Tensor found = gradient(*one.tensor);
    gradients[one.name] = found.defined() ? found : Tensor::zeros(one.tensor->shape());
  }
  TensorFile result{is_plain ? gradients : published_tensors(run, gradients), {}};
  result.tensors["outputs"] = contiguous(outputs.detach());
  save_safetensors(argv[3], result);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "published_gradients: " << error.what() << '\n';
  return 1;
}
