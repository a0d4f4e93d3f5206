// No setting does nothing: each one of a model or of training changes what is trained, for every task that
// has it.

#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/task.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/text/safetensors.h"
#include "heed/training/checkpoint.h"
#include "heed/training/trainer.h"

namespace {

using Json = nlohmann::json;

/// Those that say when something is written, measured or ended, or where it comes from; tests of their own
/// hold them.
const Arguments not_of_the_weights = words(
    "model.recompute_layers training.steps training.epochs training.ema_decay "
    "training.part_rates training.freeze training.from training.embeddings training.ignore "
    "training.exportable training.vectors "
    "training.log_every training.patience training.log_seconds training.tensorboard "
    "training.evaluate_every training.save_every training.keep_best_by "
    "training.shown_evaluations training.shown_sample");

std::vector<std::string> longrope(const std::string& length) {
  return {"model.positions=rotary",
          "model.heads=3",
          "model.width=12",
          "model.rotary_scaling=longrope",
          "model.rotary_length=" + length,
          "model.rotary_short=1,2",
          "model.rotary_long=3,1.5"};
}

/// What must be set for a setting to matter.
const std::map<std::string, std::vector<std::string>> reasons = {
    {"model.lora_alpha", {"model.lora_rank=2"}},
    {"model.lora_maps", {"model.lora_rank=2"}},
    {"model.max_length", {"model.positions=learned"}},
    {"model.alibi_slopes", {"model.positions=alibi", "model.heads=3", "model.width=12"}},
    {"model.rotary_base", {"model.positions=rotary"}},
    {"model.rotary_factor", {"model.positions=rotary", "model.rotary_factor=4"}},
    {"model.rotary_length", {"model.positions=rotary", "model.rotary_factor=8", "model.rotary_length=64"}},
    {"model.rotary_scaling", {"model.positions=rotary", "model.rotary_factor=4", "model.rotary_length=2"}},
    {"model.rotary_few_turns", {"model.positions=rotary", "model.rotary_factor=8", "model.rotary_length=8"}},
    {"model.rotary_many_turns",
     {"model.positions=rotary", "model.rotary_factor=8", "model.rotary_length=8",
      "model.rotary_few_turns=0.125"}},
    {"model.rotary_amplitude", {"model.positions=rotary"}},
    {"model.rotary_share", {"model.positions=rotary"}},
    {"model.first_norm", {"model.norm=pre"}},
    {"model.pooler_width", {"model.pooler=tanh"}},
    {"model.rotary_short", longrope("10000")},
    {"model.rotary_long", longrope("2")},
    {"model.output_transform", {"objective=masked", "training.keep_best_by=loss"}},
    {"training.clip_norm", {"training.clip_norm=1e-3"}},
    {"training.mask_share", {"objective=masked", "training.keep_best_by=loss"}},
    {"training.optimizer.decay_vectors",
     {"training.optimizer.name=adamw", "training.optimizer.weight_decay=0.5"}},
    {"training.optimizer.weight_decay", {"training.optimizer.name=adamw"}},
    {"training.optimizer.momentum", {"training.optimizer.name=muon"}},
    {"training.optimizer.nesterov", {"training.optimizer.name=muon"}},
    {"training.optimizer.iterations", {"training.optimizer.name=muon"}},
    {"training.optimizer.adjust_rate", {"training.optimizer.name=muon"}},
    {"training.optimizer.matrix_rate", {"training.optimizer.name=muon"}},
    {"training.schedule.final_rate", {"training.schedule.name=linear"}},
    {"training.schedule.name", {"training.schedule.warmup_steps=1"}},
};

std::vector<std::string> reasons_of(const Setting& setting) {
  const auto found = reasons.find(setting.name);
  return found == reasons.end() ? std::vector<std::string>() : found->second;
}

/// Values, as JSON, that are not `value`; the first of them that is accepted will do.
std::vector<std::string> others(const Setting& setting, const Json& value) {
  const std::map<std::string, std::string> texts = {
      {"model.lora_maps", "\"value\""}, {"model.rotary_short", "\"4,5\""}, {"model.rotary_long", "\"4,5\""}};
  switch (setting.kind) {
    case Setting::Kind::flag:
      return {value.get<bool>() ? "false" : "true"};
    case Setting::Kind::integer: {
      const auto number = value.get<std::int64_t>();
      return {std::to_string(2 * number + 2), std::to_string(number / 2)};
    }
    case Setting::Kind::number: {
      const auto number = value.get<double>();
      return {Json(number * 0.5 + 0.25).dump(), Json(number / 2).dump(), Json(number / 2 + 1e-4).dump()};
    }
    case Setting::Kind::attention:
      return {"\"fastformer\"", "\"none\"", "\"synthesizer_random\""};
    default:
      break;
  }
  std::vector<std::string> values;
  for (const std::string& choice : setting.choices)
    if (Json(choice) != value) values.push_back(Json(choice).dump());
  if (const auto text = texts.find(setting.name); text != texts.end()) values.push_back(text->second);
  return values;
}

Settings short_settings(const TaskEntry& entry, const std::vector<std::string>& more) {
  Settings settings = small_settings_of(
      entry, {"training.steps=3", "training.evaluate_every=0", "training.schedule.warmup_steps=2"});
  for (const std::string layers : {"model.encoder_layers", "model.decoder_layers"})  // so that they can share
    if (settings.has(layers)) settings.assign(layers + "=2");
  for (const std::string& one : more) settings.assign(one);
  return settings;
}

std::unique_ptr<Task> built(const TaskEntry& entry, const Settings& settings) {
  std::unique_ptr<Task> task = entry.make(settings);
  task->check_settings();
  task->read_data();
  task->learn_vocabulary();
  task->build(device_of(settings));
  return task;
}

/// Without a folder: some hundreds of runs would wait for the disk ten times as long as they train.
std::string weights(const TaskEntry& entry, const Settings& settings) {
  const std::unique_ptr<Task> task = built(entry, settings);
  task->prepare_training();
  Trainer(*task, trainer_options(settings)).run();
  return safetensors_text({model_state(task->model()), {}});
}

std::map<std::string, Shape> shapes_of(const TaskEntry& entry, const Settings& settings) {
  std::map<std::string, Shape> all;
  for (const auto& [name, tensor] : model_state(built(entry, settings)->model())) all[name] = tensor.shape();
  return all;
}

/// What a model that starts from a run has to say of it, or why it cannot.
std::string started(const TaskEntry& entry, Settings settings, const std::string& run) {
  settings.set("training.from", run, "the test");
  std::string said;
  try {
    for (const std::string& remark : initialize_weights(*built(entry, settings)).remarks)
      said += remark + "\n";
  } catch (const Error& error) {
    said = error.what();
  }
  return said;
}

bool loses_weights(const std::string& said) {
  return !contains(said, "from the ") || contains(said, "without a place");
}

/// A run with another value of a setting, so that its weights have other names or shapes. False: there is no
/// such value.
bool train_other_shape(const TaskEntry& entry, const Setting& setting, const std::vector<std::string>& base,
                       const std::string& run) {
  const Settings before = short_settings(entry, base);
  const auto expected = shapes_of(entry, before);
  for (const std::string& value : others(setting, Json::parse(before.json(setting.name)))) {
    Settings settings = short_settings(entry, base);
    try {
      settings.set_json(setting.name, value, "the test");
      if (shapes_of(entry, settings) == expected) continue;
      settings.assign("training.steps=1");
      train_run(entry, settings, {run});
    } catch (const Error&) {
      continue;
    }
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("--from: a setting that shapes weights comes along, and where another value is set, it is named") {
  const TemporaryFolder folder;
  int shaping = 0;
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(entry->name);
    const Settings all = short_settings(*entry, {});
    for (const Setting& setting : all.declared()) {
      const std::string group = setting.name.substr(0, setting.name.find('.'));
      if (group != "model" && group != "user" && group != "news") continue;
      if (setting.name.starts_with("model.lora_")) continue;  // what is added to the weights of a run
      CAPTURE(setting.name);
      const std::vector<std::string> base = reasons_of(setting);
      const std::string run = (folder / (std::string(entry->name) + "-" + setting.name)).string();
      if (!train_other_shape(*entry, setting, base, run)) continue;
      ++shaping;
      Settings taken = short_settings(*entry, base);
      apply_model_settings(taken, run);
      const std::string with = started(*entry, taken, run),
                        without = started(*entry, short_settings(*entry, base), run);
      CHECK_MESSAGE(!loses_weights(with), with);
      CHECK_MESSAGE((!loses_weights(without) || contains(without, setting.name + " is ")), without);
    }
  }
  CHECK(shaping > 80);
}

TEST_CASE(
    "only tasks that tell classes or rate have sparse features, and evaluations fit the shares of the "
    "parts") {
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(entry->name);
    const bool has_parts = entry->name == "classify" || entry->name == "match" || entry->name == "rate";
    CHECK(entry->settings(true).has("model.sparse_features") == (has_parts || entry->name == "tag"));
    if (!has_parts) continue;
    const auto task = built(*entry, short_settings(*entry, {"model.sparse_features=97"}));
    task->prepare_training();
    const auto shares = [&] { return model_state(task->model()).at("sparse.shares").to_doubles(); };
    const Doubles before = shares();
    task->measured({"valid", {}, task->settings()});
    CHECK(shares() == before);
    task->evaluate();
    CHECK(shares() != before);
  }
}

TEST_CASE("every setting of a model and of training changes the weights") {
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(entry->name);
    std::map<std::vector<std::string>, std::string> trained;  // what is trained with each list of settings
    const Settings all = short_settings(*entry, {});
    for (const Setting& setting : all.declared()) {
      if (!setting.name.starts_with("model.") && !setting.name.starts_with("training.")) continue;
      if (std::ranges::find(not_of_the_weights, setting.name) != not_of_the_weights.end()) continue;
      if (entry->name == "rate" && setting.name == "model.kind")
        continue;  // for pairs, which come from files
      CAPTURE(setting.name);
      const std::vector<std::string> base = reasons_of(setting);
      const Settings before = short_settings(*entry, base);
      std::string& expected = trained[base];
      if (expected.empty()) expected = weights(*entry, before);
      std::string refusals;
      bool changed = false;
      for (const std::string& value : others(setting, Json::parse(before.json(setting.name)))) {
        Settings settings = short_settings(*entry, base);
        try {
          settings.set_json(setting.name, value, "the test");
          changed = weights(*entry, settings) != expected;
        } catch (const Error& error) {
          refusals += std::string(error.what()) + "\n";
          continue;
        }
        if (changed) break;
      }
      CHECK_MESSAGE(changed, refusals);
    }
  }
}

TEST_CASE(
    "language_model: the first batches have the same tokens in twice as many windows of half the length") {
  const TaskEntry& entry = task_entry("language_model");
  for (const std::string length : {"24", "1"})
    for (const std::string objective : {"causal", "masked"}) {
      CAPTURE_ALL(length, objective);
      const auto losses = [&](const std::string& share, const std::string& limit) {
        const std::unique_ptr<Task> task =
            built(entry, short_settings(entry, {"objective=" + objective, "training.keep_best_by=loss", limit,
                                                "training.batch_tokens=96", "model.max_length=" + length,
                                                "model.dropout=0", "training.short_share=" + share}));
        task->prepare_training();
        std::vector<std::pair<double, std::int64_t>> found;
        const NoGrad no_grad;
        for (std::int64_t batch = 0; batch < 8; ++batch) {
          Context context;
          const Loss loss = task->loss(0, batch, context);
          found.emplace_back(loss.sum.item(), loss.count);
        }
        return found;
      };
      const auto whole = losses("0", "training.steps=8"), some = losses("0.5", "training.steps=8");
      if (length != "1")
        CHECK(losses("0.25", "training.accumulation=2") != losses("0.25", "training.accumulation=1"));
      for (std::size_t i = 0; i < 8; ++i) {
        CHECK(some[i].second == whole[i].second);
        CHECK((some[i].first == whole[i].first) == (i >= 4 || length == "1"));
      }
    }
}

TEST_CASE("an evaluation that is only shown reads a sample, in every task") {
  for (const TaskEntry* const entry : task_table()) {
    std::vector<std::vector<std::string>> variants = {{}};
    if (entry->name == "language_model")
      variants.push_back({"objective=masked", "training.keep_best_by=loss"});
    for (const std::vector<std::string>& more : variants) {
      CAPTURE(entry->name);
      const std::unique_ptr<Task> task = built(*entry, short_settings(*entry, more));
      task->prepare_training();
      const NoGrad no_grad;
      const Evaluation all = task->evaluate();
      REQUIRE_FALSE(all.metrics.empty());
      CHECK(all.sample == 0);
      task->set_sample(2);
      const Evaluation some = task->evaluate();
      CHECK(some.sample > 0);
      CHECK(some.sample < some.all);
      CHECK((some.unit == "pairs") ==
            (entry->name == "translate" || entry->name == "summarize" || entry->name == "converse"));
      CHECK(some.keep_best_by == all.keep_best_by);
      REQUIRE(some.metrics.size() == all.metrics.size());
      for (std::size_t i = 0; i < all.metrics.size(); ++i) CHECK(some.metrics[i].name == all.metrics[i].name);
      task->set_sample(1'000'000'000);
      CHECK(task->evaluate().sample == 0);
    }
  }
}
