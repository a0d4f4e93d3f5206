// Fuzzers of what reads the files of runs, models and caches.

#include <map>

#include "fuzz_support.h"
#ifdef HEED_HAS_VULKAN
#include "heed/backends/vulkan/pipelines.h"
#endif
#include "heed/apps/hub/architecture.h"
#include "heed/apps/report/report.h"
#include "heed/apps/tasks/task.h"
#include "heed/models/cases/reference_case.h"
#include "heed/text/tokenizer.h"
#include "heed/training/checkpoint.h"
#include "heed/training/progress.h"
#include "heed/training/run_folder.h"

namespace heed::fuzz {

// Any bytes as classes.json: the names of at least two classes, in order, or an Error.
bool fuzz_classes(std::string_view bytes) {
  static const std::string tokenizer = [] {
    TokenizerTraining options;
    options.vocabulary_size = 260;
    return Tokenizer::train(std::vector<std::string>{"a b"}, options).to_json();
  }();
  static const TaskEntry& entry = task_entry("classify");
  static const Settings settings = entry.settings(true);  // slow to declare
  const std::string classes(bytes);
  return accepted([&] {
    const auto task = entry.make(settings);
    task->open_files([&](std::string_view name) { return name == "classes.json" ? classes : tokenizer; });
    require(!task->files().at("classes.json").empty());
  });
}

// Any two texts compare equal or give an Error; the halves are the saved and the present configuration.
bool fuzz_config(std::string_view bytes) {
  const std::size_t half = bytes.size() / 2;
  const std::vector<std::string> free_keys{"threads"};
  return accepted(
      [&] { compare_configurations(bytes.substr(0, half), bytes.substr(half), free_keys, "input"); });
}

// The first byte chooses the task; the rest is merged into its settings as JSON, and the cost of the model is
// computed: an Error, or a model whose sizes are known.
bool fuzz_settings(std::string_view bytes) {
  static const std::vector<Settings> declared = [] {  // slow to declare
    std::vector<Settings> all;
    for (const TaskEntry* entry : task_table())
      for (const bool own_data : {false, true}) all.push_back(entry->settings(own_data));
    return all;
  }();
  const FuzzInput input(bytes);
  const auto kinds = task_table();
  const std::size_t which = input.choice % kinds.size();
  Settings settings = declared[2 * which + (input.choice >= 128 ? 1 : 0)];
  return accepted([&] {
    settings.merge(input.bytes, "input");
    kinds[which]->make(settings)->check_settings();
  });
}

// Any bytes as the config.json of a published model: an Error, or settings that its task knows, with which
// the cost of the model is computed. The first byte says which of the weights that imports look for are
// there.
bool fuzz_published_config(std::string_view bytes) {
  static const std::map<std::string, Settings, std::less<>> declared = [] {  // slow to declare
    std::map<std::string, Settings, std::less<>> all;
    for (const TaskEntry* entry : task_table()) all.emplace(entry->name, entry->settings(true));
    return all;
  }();
  const FuzzInput input(bytes);
  std::map<std::string, Tensor> tensors;
  if (input.choice & 1) tensors["cls.predictions.bias"] = Tensor::zeros({3});
  if (input.choice & 2) tensors["bert.embeddings.word_embeddings.weight"] = Tensor::zeros({3, 2});
  if (input.choice & 4) tensors["lm_head.weight"] = Tensor::zeros({3, 2});
  if (input.choice & 8) tensors["classifier.out_proj.weight"] = Tensor::zeros({3, 2});
  return accepted([&] {
    const hub::Config config{std::string(input.bytes)};
    const hub::ImportPlan plan = hub::find_architecture(config, tensors).import_plan(config, tensors);
    Settings settings = declared.find(plan.task)->second;
    settings.merge(plan.settings.dump(), "the plan");
    task_entry(plan.task).make(settings)->check_settings();
  });
}

// Any bytes give tensors or an Error.
bool fuzz_safetensors(std::string_view bytes) {
  return accepted([&] { parse_safetensors(bytes, "input"); }, "input: ");
}

// Bytes are a reference case that names its variant, or give an Error.
bool fuzz_reference_case(std::string_view bytes) {
  return accepted([&] {
    const verify::ReferenceCase found =
        verify::parse_reference_case(parse_safetensors(bytes, "input"), "input");
    require(!found.family().empty() || found.config.at("variant").get<std::string>().empty());
  });
}

namespace {

/// Any text is refused with an Error that starts so, or can be written, and read again unchanged.
template <class Rewrite>
bool comes_back(std::string_view text, const char* refusal, Rewrite&& rewritten) {
  return accepted(
      [&] {
        const std::string written = rewritten(text, false);
        require(rewritten(written, true) == written);
      },
      refusal);
}

}  // namespace

// What is written has the right digest of itself; what comes in is read as with --unverified, or no input
// would get further than the digest.
bool fuzz_run_manifest(std::string_view bytes) {
  return comes_back(bytes, "input is damaged", [](std::string_view text, bool verify) {
    return run_manifest_text(parse_run_manifest(text, "input", verify));
  });
}

bool fuzz_trainer_state(std::string_view bytes) {
  return comes_back(bytes, "input is damaged", [](std::string_view text, bool verify) {
    return trainer_state_text(parse_trainer_state(text, "input", verify));
  });
}

// A record of metrics can be drawn, too.
bool fuzz_metrics(std::string_view bytes) {
  return comes_back(bytes, "not a line of metrics", [](std::string_view text, bool) {
    const Progress record = parse_metrics_line(text);
    const page::RunRecords run{"run", {record, record}};
    page::html({{"summary", page::summary(run.records)}, {"curves", page::curves({&run, 1})}});
    return metrics_line(record);
  });
}

#ifdef HEED_HAS_VULKAN
// The first eight bytes are the checksum of the device; the rest is a cache file, which is used whole or not
// at all.
bool fuzz_pipeline_cache(std::string_view bytes) {
  if (bytes.size() < 8) return false;
  std::uint64_t device = 0;
  for (unsigned i = 0; i < 8; ++i) device |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  const std::string file(bytes.substr(8));
  const std::string found = vulkan::driver_data(file, device);
  require(file.ends_with(found));
  return !found.empty();
}
#endif

}  // namespace heed::fuzz
