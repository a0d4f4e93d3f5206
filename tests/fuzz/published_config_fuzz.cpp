#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "heed/hub/architecture.h"
#include "heed/tasks/learner.h"

// Any bytes as the config.json of a published model: an Error, or settings that its task knows, with which
// the model is costed. The first byte says which of the weights that imports look for are there.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const std::map<std::string, heed::Settings, std::less<>> declared = [] {  // slow to declare
    std::map<std::string, heed::Settings, std::less<>> all;
    for (const heed::TaskKind* kind : heed::task_kinds()) all.emplace(kind->name, kind->settings(true));
    return all;
  }();
  std::map<std::string, heed::Tensor> tensors;
  if (data[0] & 1) tensors["cls.predictions.bias"] = heed::Tensor::zeros({3});
  if (data[0] & 2) tensors["bert.embeddings.word_embeddings.weight"] = heed::Tensor::zeros({3, 2});
  if (data[0] & 4) tensors["lm_head.weight"] = heed::Tensor::zeros({3, 2});
  const std::string config(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const heed::ImportPlan plan = heed::architecture_of(config, tensors).import_plan(config, tensors);
    heed::Settings settings = declared.at(plan.task);
    settings.merge(plan.settings, "the plan");
    heed::task_kind(plan.task).make(settings)->check_settings();
  } catch (const heed::Error&) {
  }
  return 0;
}
