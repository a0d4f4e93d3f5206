#include "heed/apps/tasks/run.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/report/report.h"
#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/example_files.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/start.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/open_folder.h"
#include "heed/base/unicode.h"
#include "heed/models/attention/attention.h"
#include "heed/training/checkpoint.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// The first key whose value is another on some rank than on rank 0, and that rank.
std::optional<std::pair<std::size_t, KeyDifference>> first_difference(Ranks& ranks, const Json& mine) {
  const std::vector<std::string> all = ranks.all_gather(mine.dump());
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (const KeyDifference& one : key_differences(all[0], all[rank])) return {{rank, one}};
  return std::nullopt;
}

}  // namespace

void check_same_settings(Ranks& ranks, const TaskKind& kind, const Settings& settings) {
  Json mine = Json::parse(settings.json());
  mine["task"] = kind.name;
  for (const char* const own : {"threads", "device"}) mine.erase(own);
  if (const auto found = first_difference(ranks, mine))
    throw SettingsError(concat_text("rank ", found->first, " was started with another ", found->second.key,
                                    " than rank 0: ", found->second.second, ", not ", found->second.first,
                                    "; give all ranks the same settings"));
}

void check_same_data(Ranks& ranks, const std::map<std::string, std::string>& digests) {
  if (const auto found = first_difference(ranks, digests))
    fail("rank ", found->first, " has read other data than rank 0: the ", found->second.key,
         " part differs; give all ranks the same files");
}

std::string platform_remark(Ranks& ranks, Device device) {
  const std::vector<std::string> names = ranks.all_gather(platform_name(device));
  for (std::size_t r = 1; r < names.size(); ++r)
    if (names[r] != names[0])
      return concat_text("rank ", r, " computes with ", names[r], " and rank 0 with ", names[0],
                         ": the last bits of results depend on which rank computes which batch");
  return {};
}

std::map<std::string, std::string> broadcast_files(Ranks& ranks,
                                                   const std::map<std::string, std::string>& files) {
  std::string message;
  Json::to_cbor(files, message);  // which leaves texts as they are: a file may hold any bytes
  try {
    return Json::from_cbor(ranks.broadcast(message)).get<std::map<std::string, std::string>>();
  } catch (const Json::exception&) {
    fail("ranks: the files of rank 0 did not arrive whole");
  }
}

namespace {

/// Lays the options over the settings of a run; what the model was made and trained with must stay.
void set_for_use(Settings& settings, const RunOptions& options) {
  const auto check_changeable = [](const Setting& one, const std::string& origin, const std::string& name) {
    if (one.changes == Changes::never || one.changes == Changes::on_resume)
      throw SettingsError(concat_text(
          origin, ": \"", name, "\" belongs to how the run was trained and cannot be changed afterwards"));
  };
  if (!options.config.empty()) {
    const Settings before = settings;
    settings.merge_file(options.config);
    for (const Setting& one : settings.declared())
      if (before.json(one.name) != settings.json(one.name)) check_changeable(one, options.config, one.name);
  }
  for (const std::string& assignment : options.settings) {
    const std::string name = assigned_name(assignment);
    for (const Setting* one : settings_at(settings, name))
      check_changeable(*one, "--set " + assignment, name);
    settings.assign(assignment);
  }
}

void check_task(const TaskKind& kind, const RunFiles& files) {
  check(files.task() == kind.name, "this is a ", files.task(), " run, not one of ", kind.name);
}

/// The mechanisms that a model's setting names: its own and those that it gives to some of its heads.
std::vector<std::string> attentions_in(const Json& setting) {
  std::vector<std::string> names;
  for (const Json& one : setting.is_array() ? setting : Json::array({setting})) {
    if (one.is_string()) names.push_back(one);
    if (!one.is_object()) continue;
    for (const char* const key : {"name", "parts"})
      if (const auto found = one.find(key); found != one.end())
        for (const Json& name : found->is_array() ? *found : Json::array({*found}))
          if (name.is_string()) names.push_back(name);
  }
  return names;
}

/// Throws where the run was trained with a mechanism that its program had registered and this one has not.
void check_registered(const Settings& settings) {
  for (const Setting& setting : settings.declared())
    for (const std::string& name : setting.kind == Setting::Kind::attention
                                       ? attentions_in(Json::parse(settings.json(setting.name)))
                                       : std::vector<std::string>())
      check(name == "none" || std::ranges::count(attention_names(), name) > 0, "the run has the attention '",
            name, "' (", setting.name,
            "), which this program does not: have it registered first (register_attention), as the program "
            "that "
            "trained the run did");
}

void read_vocabulary(Learner& learner, const RunFiles& files) {
  learner.open_files([&](std::string_view name) { return files.text(name); });
}

/// The weights that a run began with: those of its seed, and what it took from elsewhere, which must still be
/// the same.
Start begin_anew(Learner& learner, const RunFiles& files) {
  Start start = start_weights(learner);
  check(start.origin == files.origin(),
        "what this run started from (training.from, training.embeddings) is no longer what it was: "
        "put it back, or train anew");
  return start;
}

/// What rank 0 has learned or opened; it keeps its own.
void receive_vocabulary(Learner& learner, Ranks& ranks) {
  const auto files =
      broadcast_files(ranks, ranks.is_first() ? learner.files() : std::map<std::string, std::string>());
  if (ranks.is_first()) return;
  learner.open_files([&](std::string_view name) {
    const auto found = files.find(std::string(name));
    check(found != files.end(), "rank 0 has sent no ", name);
    return found->second;
  });
}

}  // namespace

Settings settings_of_run(const TaskKind& kind, const RunFiles& files) {
  check_task(kind, files);
  Settings settings = kind.settings(true);
  try {
    settings.merge(files.config(), "config.json");
    move_data(settings, data_of_run, files.path());
  } catch (const SettingsError& error) {
    fail("the configuration of the run is damaged, or of another version: ", error.what());
  }
  return settings;
}

Run Run::open(const std::filesystem::path& folder, const RunOptions& options) {
  RunFiles files = RunFiles::open(folder, options.verify);
  const TaskKind& kind = options.kind ? *options.kind : task_kind(files.task());
  const Settings trained = settings_of_run(kind, files);
  check_registered(trained);
  Settings settings = trained;
  set_for_use(settings, options);
  if (!options.device.empty()) settings.set("device", options.device, "device");
  const Device device = device_of(settings);
  std::unique_ptr<Learner> learner = kind.make(std::move(settings));
  learner->set_trained(trained);
  read_vocabulary(*learner, files);
  try {
    learner->build(device);
  } catch (const SettingsError& error) {  // not what the caller said: that may not change the model
    fail("the configuration of the run is damaged, or of another version: ", error.what());
  }
  if (options.weights == "initial")
    begin_anew(*learner, files);
  else
    files.load_weights(learner->model(), !options.weights.empty() ? options.weights
                                         : files.has_best()       ? "best"
                                                                  : "last");
  if (learner->settings().get<bool>("int8_weights")) learner->model().round_to_int8();
  if (learner->settings().get<bool>("bf16_weights")) learner->model().round_to_bf16();
  return Run(std::move(learner), std::move(files));
}

namespace {

constexpr const char* diverged =
    ": its training has diverged; try a lower learning_rate or more warmup_steps";

Measurement finite(Measurement measurement) {
  if (const Metric* bad = not_finite(measurement.metrics))
    fail("the model gives a ", bad->name, " of ", bad->value, ", which is not finite", diverged);
  return measurement;
}

/// What is wrong with an answer whose numbers are none; "": nothing.
std::string fault_of(const Prediction& answer) {
  std::vector<double> numbers(answer.vector.begin(), answer.vector.end());
  numbers.push_back(answer.probability);
  for (const Prediction::Alternative& one : answer.alternatives) numbers.push_back(one.probability);
  const auto bad = std::ranges::find_if_not(numbers, [](double value) { return std::isfinite(value); });
  return bad == numbers.end() ? ""
                              : concat_text("the model answers ", *bad, ", which is not finite", diverged);
}

}  // namespace

Measurement Run::measure_files(std::span<const std::string> files) {
  const std::lock_guard alone(*use_);
  return finite(learner_->measure_files(files));
}

Measurement Run::measure_examples(const Examples& examples) {
  const std::lock_guard alone(*use_);
  const ExampleFiles files(learner_->kind(), {&examples, 1});
  return finite(learner_->measure_examples(files.path_of(examples)));
}

namespace {

void check_utf8(std::span<const std::string> lines, std::string_view what) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t at = unicode::find_invalid(lines[i]);
    check(at == std::string::npos, what, ": lines[", i, "] is not UTF-8 at byte ", at + 1);
  }
}

}  // namespace

std::vector<Prediction> Run::predict(std::span<const std::string> lines, const PredictOptions& options) {
  check_utf8(lines, "predict");
  const std::shared_lock use(*use_);
  std::vector<Prediction> answers = learner_->predict(lines, options);
  for (Prediction& answer : answers)
    if (std::string fault = fault_of(answer); answer.error.empty() && !fault.empty()) {
      answer = {};
      answer.error = std::move(fault);
    }
  for (std::size_t i = 0; options.capture && i < answers.size(); ++i)
    options.capture->add_answer(
        concat_text("lines.", options.first_line + static_cast<std::int64_t>(i)),
        {lines[i], answers[i].error.empty() ? answers[i].text : answers[i].error, answers[i].probability});
  return answers;
}

Tensor Run::outputs(std::span<const std::string> lines, Context& context) {
  check_utf8(lines, "outputs");
  const std::shared_lock use(*use_);
  return learner_->outputs_of_lines(lines, context);
}

Tensor Run::log_probabilities(std::span<const std::string> lines, std::span<const std::string> targets,
                              Context& context) {
  check_utf8(lines, "log probabilities");
  check_utf8(targets, "log probabilities of targets");
  const std::shared_lock use(*use_);
  return learner_->log_probabilities_of(lines, targets, context);
}

Prediction Run::stream(const std::string& line, const OnText& on_text) {
  check(learner_->writes_text(), "a ", task(),
        " run writes no text token by token that could be shown in pieces; predict() answers it");
  TextPieces pieces(on_text);
  PredictOptions options;
  options.pieces = &pieces;
  try {
    Prediction answer = predict({&line, 1}, options).front();
    pieces.finish(answer.text);
    return answer;
  } catch (const TextPieces::Ended&) {
    Prediction so_far;
    so_far.text = pieces.shown();
    return so_far;
  }
}

Measurement Run::measure(std::string_view part) {
  if (part != "valid" && part != "test" && part != "train")
    throw SettingsError(concat_text("unknown part \"", part, "\" of the data: valid, test or train"));
  const std::lock_guard alone(*use_);
  learner_->read_data();
  const auto now = learner_->data_digests();
  const auto found = now.find(std::string(part));
  if (found == now.end())
    throw SettingsError(concat_text("a ", task(), " run has no ", part, " part: name a file to measure on"));
  check(found->second == files_.data_digest(part), "the ", part,
        " part of the data is not what the run was made with: the files or their order changed, so that "
        "what was trained on may be among it; name a file to measure on");
  return finite(learner_->measure(part));
}

namespace {

/// The files of a run that hold its examples, by name; `recorded`, the settings of one that goes on, then
/// name them as its config.json does. Throws an Error when `given`, examples of its caller, are others.
std::map<std::string, std::string> data_in_run(const RunFiles& run, Settings& recorded,
                                               const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> files;
  const Json saved = parse_json<Json>(run.config(), "config.json").value("data", Json::object());
  for (const auto& [name, value] : saved.items()) {
    if (!value.is_string() || !value.get<std::string>().starts_with(std::string(data_of_run) + "/")) continue;
    const std::string file = value.get<std::string>().substr(data_of_run.size() + 1),
                      setting = "data." + name;
    if (recorded.get<std::string>(setting) != (run.path() / file).string()) continue;
    recorded.set(setting, value.get<std::string>(), "config.json");
    files[file] = run.text(file);
  }
  check(given.empty() || given == files, "cannot resume: the examples are not those that the run in ",
        run.path(), " was started with; leave them out, or start a new run in another folder");
  return files;
}

}  // namespace

TrainResult train_run(const TaskKind& kind, const Settings& given, const TrainRequest& request) {
  check_recording("train_run");
  Settings settings = given;
  std::optional<ExampleFiles> examples;
  if (!request.examples.empty()) examples.emplace(kind, request.examples);
  if (examples && !request.resume) examples->name_in(settings);
  Ranks* const ranks = request.ranks && request.ranks->count() > 1 ? request.ranks : nullptr;
  const bool is_first = !ranks || ranks->is_first();
  const auto say = [&](const std::string& text) {
    if (is_first && !text.empty() && request.callbacks.message) request.callbacks.message(text);
  };
  std::unique_ptr<Learner> learner = kind.make(settings);
  learner->check_settings();
  check_start(settings);
  const TrainerOptions options = trainer_options(settings);
  Settings recorded = settings;
  if (examples && !request.resume) move_data(recorded, examples->folder(), data_of_run);
  if (ranks) check_same_settings(*ranks, kind, recorded);
  const Device device = device_of(settings, ranks);
  try {
    check_precision(options.precision, device);
  } catch (const Error& error) {
    throw SettingsError(error.what());
  }
  if (ranks) say(platform_remark(*ranks, device));
  std::optional<RunFiles> before;
  if (is_first && request.resume)
    check_task(kind, before.emplace(RunFiles::open(request.folder, request.verify)));
  else if (is_first)
    RunFolder::check_new(request.folder);
  std::map<std::string, std::string> data_files =
      examples ? examples->files() : std::map<std::string, std::string>();
  if (before) data_files = data_in_run(*before, recorded, data_files);

  if (before) learner->keep_choices(settings_of_run(kind, *before));
  learner->read_data();
  if (ranks) check_same_data(*ranks, learner->data_digests());
  if (before)
    read_vocabulary(*learner, *before);
  else if (is_first)
    learner->learn_vocabulary();
  if (ranks) receive_vocabulary(*learner, *ranks);
  learner->build(device);
  Start begun;
  if (is_first && !before) begun = start_weights(*learner);
  if (is_first && before && !before->has_checkpoint()) begun = begin_anew(*learner, *before);
  learner->prepare_training();
  for (const std::string& text : learner->take_remarks()) say(text);
  for (const std::string& text : begun.remarks) say(text);
  say(concat_text(learner->model().parameter_count(), " parameters"));

  TrainerCallbacks callbacks = request.callbacks;
  if (!callbacks.report) callbacks.report = page::write_while_training;
  Trainer trainer(*learner, options, callbacks, ranks);
  // From here on a stop is met by a checkpoint. A program that ends at once until somebody asks learns that
  // here; the trainer acts on the answer.
  if (request.callbacks.stop_requested) static_cast<void>(request.callbacks.stop_requested());
  if (!is_first) return trainer.run();
  Settings written = learner->settings();  // with what it has measured itself
  for (const auto& [name, content] : data_files)
    for (const Setting& one : recorded.declared())
      if (one.kind == Setting::Kind::text &&
          recorded.get<std::string>(one.name) == (std::filesystem::path(data_of_run) / name).string())
        written.set_json(one.name, recorded.json(one.name), "examples");
  RunStart start{std::string(kind.name), written.json("", 2) + "\n", learner->files(),
                 learner->data_digests(), begun.origin};
  start.files.merge(data_files);
  RunFolder folder = before
                         ? RunFolder::resume(request.folder, start, free_settings(settings), request.verify)
                         : RunFolder::create(request.folder, start);
  examples.reset();
  const TrainResult result = trainer.run(&folder);
  for (const std::string& text : learner->take_remarks()) say(text);
  return result;
}

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string name_of_fold(std::int64_t fold) {
  return "fold-" + std::to_string(fold);
}

/// The settings of a fold that begins, when those of others that go on name the examples in the first's
/// folder.
void forget_examples(Settings& settings, const fs::path& first_fold) {
  const Settings before = settings;
  move_data(settings, first_fold, data_of_run);
  for (const Setting& one : before.declared())
    if (is_layout(one) || settings.json(one.name) != before.json(one.name))
      settings.set_json(one.name, one.initial, "examples");
}

/// The metrics that all folds have, over the folds.
std::string summary(const std::vector<Measurement>& folds) {
  std::map<std::string, std::vector<double>> values;
  Json means, deviations, each = Json::array();
  for (const Measurement& fold : folds) {
    Json& one = each.emplace_back(Json::object());
    for (const Metric& metric : fold.metrics) {
      one[metric.name] = rounded(metric.value);
      values[metric.name].push_back(metric.value);
    }
  }
  for (const Metric& metric : folds.front().metrics) {
    if (values[metric.name].size() < folds.size()) continue;
    const Spread spread = spread_of(values[metric.name]);
    means[metric.name] = rounded(spread.mean);
    deviations[metric.name] = rounded(spread.deviation);
  }
  means["deviation"] = std::move(deviations);
  means["folds"] = std::move(each);
  return means.dump();
}

}  // namespace

Spread spread_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  Spread spread;
  for (const double value : values) spread.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (count > 1) spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

FoldsResult train_folds(const TaskKind& kind, const Settings& settings, const TrainRequest& request) {
  const auto folds = settings.get<std::int64_t>("data.folds");
  const bool is_first = !request.ranks || request.ranks->is_first();
  if (is_first && !request.resume) RunFolder::check_new(request.folder);
  check(!request.resume || !path_exists(request.folder / "config.json"), "cannot resume: ", request.folder,
        " holds one run and no folds: leave out --folds (data.folds) to go on with it, or choose another "
        "folder");
  std::vector<Measurement> measured;
  for (std::int64_t fold = 1; fold <= folds; ++fold) {
    if (is_first && request.callbacks.message)
      request.callbacks.message(concat_text("fold ", fold, " of ", folds));
    Settings its_settings = settings;
    its_settings.set("data.fold", std::to_string(fold), "data.folds");
    TrainRequest its_request = request;
    its_request.folder = request.folder / name_of_fold(fold);
    if (is_first && path_exists(request.folder)) OpenFolder(request.folder).find_folder(name_of_fold(fold));
    its_request.resume = request.resume && path_exists(its_request.folder / "config.json");
    if (its_request.resume)  // each has its own copy of examples from memory
      move_data(its_settings, folder_of_settings(request.folder), its_request.folder);
    else if (request.resume && !request.examples.empty())
      forget_examples(its_settings, folder_of_settings(request.folder));
    if (!train_run(kind, its_settings, its_request).finished) return {};
    if (!is_first) continue;  // rank 0 has the run
    const RunOptions options{
        .device = settings.get<std::string>("device"), .verify = request.verify, .kind = &kind};
    measured.push_back(Run::open(its_request.folder, options).measure("test"));
    if (request.callbacks.message)
      request.callbacks.message(concat_text("fold ", fold, ": ", measured.back().json));
  }
  return {true, measured.empty() ? std::string() : summary(measured)};
}

bool asks_for_all_folds(const Settings& settings) {
  return settings.has("data.folds") && settings.get<std::int64_t>("data.folds") > 0 &&
         settings.get<std::int64_t>("data.fold") == 0;
}

fs::path folder_of_settings(const fs::path& folder) {
  const fs::path first = folder / name_of_fold(1);
  return path_exists(first / "config.json") && !path_exists(folder / "config.json") ? first : folder;
}

}  // namespace heed
