#include "heed/apps/tasks/train.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "heed/apps/report/report.h"
#include "heed/apps/tasks/example_files.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/run.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/open_folder.h"
#include "heed/training/checkpoint.h"
#include "heed/training/run_folder.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// --- settings

void add_given(const Settings& settings, const Json& object, const std::string& below,
               const std::string& origin, std::vector<GivenSetting>& given) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = below.empty() ? key : below + "." + key;
    const bool is_setting =
        settings.has(name) || std::ranges::any_of(settings.declared(), [&](const auto& one) {
          return one.kind == Setting::Kind::attention && name.starts_with(one.name + ".");
        });
    if (value.is_object() && !is_setting)
      add_given(settings, value, name, origin, given);
    else
      given.push_back({name, dumped(value), origin});
  }
}

/// Sets a learning rate of 0.02 / width for pretrained weights: 2.6e-5 at 768, within BERT's range
/// of 2e-5 to 5e-5 (Devlin et al. 2019, appendix A.3). Newly initialised parts keep the usual rate,
/// and so do LoRA's matrices.
void scale_fine_tuning_rate(Settings& settings) {
  const char* const name = "training.schedule.learning_rate";
  const auto model = settings.read<ModelSizes>("model");
  if (settings.setting(name).is_given || model.lora_rank > 0) return;
  const double usual = settings.read<TrainerOptions>("training").schedule.learning_rate;
  const double small = std::min(usual, 0.02 / static_cast<double>(model.width));
  const std::vector<std::string> frozen = split_at_commas(settings.read<TrainingSettings>("training").freeze);
  std::string rates;
  for (const std::string& part : reinitialized_parts(settings))
    if (part != "sparse" && std::ranges::count(frozen, part) == 0)
      rates += concat_text(rates.empty() ? "" : ",", part, '=', usual / small);
  settings.set_default(name, Json(small).dump());
  settings.set_default("training.part_rates", Json(rates).dump());
}

/// Sets the defaults that follow from other settings.
void derive_defaults(const TaskEntry& entry, Settings& settings) {
  const auto options = settings.read<TrainerOptions>("training");
  const auto training = settings.read<TrainingSettings>("training");
  if (!training.from.empty() && !entry.fine_tuning.empty()) scale_fine_tuning_rate(settings);
  // A batch holds a window of a language model, however long.
  if (const std::int64_t window = settings.read<ModelSizes>("model").max_length;
      entry.stacks == Stacks::decoder && window > training.batch_tokens)
    settings.set_default("training.batch_tokens", std::to_string(window));
  // Patience only counts evaluations that select weights: there should be twenty of these.
  if (const std::int64_t every = options.steps / 20;
      options.patience > 0 && every > 0 && every < options.evaluate_every)
    settings.set_default("training.evaluate_every", std::to_string(every));
}

/// Throws for a given setting that the data of new training does not use.
void check_all_used(const TaskEntry& entry, const GivenSettings& given, const Settings& settings) {
  const auto names = [&](std::initializer_list<const char*> files) {
    return std::ranges::any_of(files, [&](const char* name) {
      return settings.has(name) && !settings.get<std::string>(name).empty();
    });
  };
  const Reads reads = !entry.names_data(settings)                       ? Reads::made
                      : names({"data.file", "data.valid", "data.test"}) ? Reads::parts
                                                                        : Reads::pairs;
  for (const GivenSetting& one : given.settings)
    if (settings.has(one.name)) check_used(settings.setting(one.name), reads);
}

/// Returns the given settings, except for attention, on top of others. `config`: the text of their
/// file.
Settings with_given(Settings settings, const TaskEntry& entry, const GivenSettings& given,
                    const std::string& config) {
  if (!given.config.empty()) settings.merge(config, given.config);
  for (const GivenSetting& one : given.settings)
    if (!belongs_to_attention(entry.stacks, one.name)) settings.set(one.name, one.value, one.origin);
  return settings;
}

/// The settings that training.exportable fixes: of every model, and of one that does not start from a run.
const Json exportable_heads = Json::parse(R"({"model.sparse_features": 0, "model.local_width": 0,
                                              "model.pooling": "first", "model.pooler": "tanh"})"),
           exportable_bodies = Json::parse(R"({"model.norm": "post", "model.norm_kind": "layer",
                                               "model.positions": "learned", "model.embedding_norm": true,
                                               "model.scale_embeddings": false})");

void fix_exportable(Settings& settings, const Json& fixed) {
  for (const auto& [name, value] : fixed.items())
    settings.set_json(name, value.dump(), "training.exportable");
}

void check_exportable(const Settings& settings) {
  for (const Json* const fixed : {&exportable_heads, &exportable_bodies})
    for (const auto& [name, value] : fixed->items())
      if (settings.json(name) != value.dump())
        throw SettingsError(concat_text("training.exportable needs ", name, '=', value.dump(), ", but it is ",
                                        settings.json(name),
                                        ": only BERT and its kin have a layout with such a head"));
}

/// Returns the settings of new training, except for attention.
Settings settings_of_new(const TaskEntry& entry, const GivenSettings& given, const std::string& config) {
  const Settings first = with_given(entry.settings(given.own_data), entry, given, config);
  if (!given.own_data) check_all_used(entry, given, first);
  Settings defaults = entry.settings(given.own_data || entry.names_data(first));
  const bool exportable = first.read<ExportableTraining>("training").exportable;
  if (exportable) fix_exportable(defaults, exportable_bodies);
  if (const std::string from = first.read<TrainingSettings>("training").from; !from.empty()) {
    if (!entry.fine_tuning.empty()) defaults.change_defaults(entry.fine_tuning);
    apply_model_settings(defaults, from);
  }
  if (exportable) fix_exportable(defaults, exportable_heads);
  Settings settings = with_given(std::move(defaults), entry, given, config);
  if (exportable) check_exportable(settings);
  derive_defaults(entry, settings);
  return settings;
}

Settings settings_of_resumed(const TaskEntry& entry, const GivenSettings& given) {
  const fs::path folder = settings_folder(given.resumed);
  const std::shared_ptr<const RunFiles> before = open_run(folder, given.verify);
  check(path_exists(folder / "run.json"), "cannot resume: ", folder,
        " is a published model: it cannot be resumed, but training can start from it (training.from)");
  Settings settings = run_settings(entry, *before);
  if (folder != given.resumed) settings.assign("data.fold=0");
  return settings;
}

/// Lets one of steps and epochs replace the other if it alone is given; for a resumed run, if it
/// alone differs from `before`.
void choose_length(Settings& settings, const Settings* before) {
  const auto now = settings.read<TrainerOptions>("training");
  const auto earlier = before ? before->read<TrainerOptions>("training") : now;
  const bool has_steps = before ? now.steps != earlier.steps : settings.setting("training.steps").is_given;
  const bool has_epochs =
      before ? now.epochs != earlier.epochs : settings.setting("training.epochs").is_given;
  if (now.epochs > 0 && has_epochs && !has_steps) settings.set("training.steps", "0", "training.epochs");
  if (now.steps > 0 && before && has_steps && !has_epochs)
    settings.set("training.epochs", "0", "training.steps");
}

}  // namespace

std::vector<GivenSetting> given_settings(const TaskEntry& entry, std::string_view json,
                                         const std::string& origin) {
  return as_settings_error("", [&] {
    std::vector<GivenSetting> given;
    const Json object = parse_json<Json>(json, origin);
    check(object.is_object(), origin, " must be a JSON object, not ", json);
    add_given(entry.settings(true), object, "", origin, given);
    return given;
  });
}

Settings training_settings(const TaskEntry& entry, const GivenSettings& given,
                           std::vector<std::string>* notes) {
  const std::string config =
      given.config.empty() ? "" : as_settings_error("", [&] { return read_file(given.config); });
  Settings settings;
  if (given.resumed.empty()) {
    settings = settings_of_new(entry, given, config);
    choose_length(settings, nullptr);
  } else {
    const Settings before = settings_of_resumed(entry, given);
    settings = with_given(before, entry, given, config);
    choose_length(settings, &before);
  }
  const AttentionNames& names = given.attention;
  std::vector<std::string> said = choose_attentions(settings, entry.stacks, names);
  if (notes) *notes = std::move(said);
  for (const GivenSetting& one : given.settings) {
    if (!belongs_to_attention(entry.stacks, one.name)) continue;
    const bool whole = settings.has(one.name);
    if (whole && (names.attention || names.decoder || names.cross || names.preset))
      throw SettingsError(one.origin + " and an attention flag or a preset set the same setting: give one");
    settings.set(one.name, one.value, one.origin);
  }
  return settings;
}

namespace {

// --- checks that all ranks agree, before any time is spent. All ranks call each function together;
// an error found on one rank is thrown on all, with the same message.

/// Returns the first key whose value differs between some rank and rank 0, and that rank.
std::optional<std::pair<std::size_t, KeyDifference>> first_difference(Ranks& ranks, const Json& mine) {
  const std::vector<std::string> all = ranks.all_gather(mine.dump());
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (const KeyDifference& one : key_differences(all[0], all[rank])) return {{rank, one}};
  return std::nullopt;
}

void check_same_settings(Ranks& ranks, const TaskEntry& entry, const Settings& settings) {
  Json mine = Json::parse(settings.json());
  mine["task"] = entry.name;
  for (const char* const own : {"threads", "device"}) mine.erase(own);
  if (const auto found = first_difference(ranks, mine))
    throw SettingsError(concat_text("rank ", found->first, " was started with another ", found->second.key,
                                    " than rank 0: ", found->second.second, ", not ", found->second.first,
                                    "; give all ranks the same settings"));
}

void check_same_data(Ranks& ranks, const std::map<std::string, std::string>& digests) {
  if (const auto found = first_difference(ranks, digests))
    fail("rank ", found->first, " has different data than rank 0: the ", found->second.key,
         " part differs; give all ranks the same files");
}

/// Returns a remark if ranks compute with different kernels; otherwise "".
std::string platform_remark(Ranks& ranks, Device device, Precision precision) {
  const std::vector<std::string> names = ranks.all_gather(platform_name(device, precision));
  for (std::size_t r = 1; r < names.size(); ++r)
    if (names[r] != names[0])
      return concat_text("rank ", r, " computes with ", names[r], " and rank 0 with ", names[0],
                         ": the last bits of results depend on which rank computes which batch");
  return {};
}

/// Sends the vocabulary that rank 0 learned or opened to the other ranks.
void share_vocabulary(Task& task, Ranks& ranks) {
  std::string message;
  if (ranks.is_first())
    Json::to_cbor(task.files(), message);  // which leaves texts as they are: a file may hold any bytes
  message = ranks.broadcast(message);
  if (ranks.is_first()) return;
  NamedFiles files;
  try {
    files = Json::from_cbor(message).get<NamedFiles>();
  } catch (const Json::exception&) {
    fail("ranks: the files of rank 0 did not arrive whole");
  }
  task.open_files([&](std::string_view name) {
    const auto found = files.find(std::string(name));
    check(found != files.end(), "rank 0 has sent no ", name);
    return found->second;
  });
}

// --- examples from memory, stored as files of the run

/// Returns the files of a run that hold its examples, by name, if `settings`, those of the resumed
/// run, still name them.
NamedFiles examples_in_run(const RunFiles& run, const Settings& settings) {
  NamedFiles files;
  const Json saved = parse_json<Json>(run.config(), "config.json").value("data", Json::object());
  for (const auto& [name, value] : saved.items()) {
    if (!value.is_string() || !value.get<std::string>().starts_with(std::string(data_of_run) + "/")) continue;
    const std::string file = value.get<std::string>().substr(data_of_run.size() + 1);
    if (settings.json("data." + name) == Json((run.path() / file).string()).dump())
      files[file] = run.text(file);
  }
  return files;
}

/// Returns the settings that may change on resume, because they do not change the identity of a
/// run.
std::vector<std::string> free_settings(const Settings& settings) {
  std::vector<std::string> names;
  for (const Setting& one : settings.declared())
    if (one.changes == Changes::on_resume || one.changes == Changes::at_any_time) names.push_back(one.name);
  return names;
}

/// Returns the bytes of a file, or of all files below a folder; 0 for what cannot be read, which the reader reports.
std::uintmax_t bytes_below(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    const std::uintmax_t bytes = fs::file_size(path, failed);
    return failed ? 0 : bytes;
  }
  std::uintmax_t bytes = 0;
  for (fs::recursive_directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code none;
    if (const std::uintmax_t own = at->file_size(none); !none) bytes += own;
  }
  return bytes;
}

// --- a training run

class Training {
 public:
  Training(const TaskEntry& entry, const Settings& given, const TrainRequest& request)
      : entry_(entry),
        request_(request),
        settings_(given),
        ranks_(request.ranks && request.ranks->count() > 1 ? request.ranks : nullptr),
        is_first_(!ranks_ || ranks_->is_first()) {
    if (!request.examples.empty()) examples_.emplace(entry, request.examples);
    if (examples_ && !request.resume) examples_->set_paths(settings_);
  }

  TrainResult run() {
    check_beforehand();
    read_and_build();
    const TrainerOptions options = trainer_options(task_->settings());  // with what follows from the data
    TrainerCallbacks callbacks = request_.callbacks;
    if (!callbacks.report) callbacks.report = page::write_while_training;
    Trainer trainer(*task_, options, callbacks, ranks_);
    // From here on a stop request writes a checkpoint instead of exiting. A program that polls for it learns that
    // here; the trainer acts on the answer.
    if (callbacks.stop_requested) static_cast<void>(callbacks.stop_requested());
    if (!is_first_) return trainer.run();
    RunFolder folder = opened_folder();
    const TrainResult result = trainer.run(&folder);
    say(task_->take_remarks());
    return result;
  }

 private:
  void say(const std::vector<std::string>& texts) const {
    for (const std::string& text : texts)
      if (is_first_ && !text.empty() && request_.callbacks.message) request_.callbacks.message(text);
  }

  /// Checks everything that needs no data: the settings, that all ranks have the same ones, and the
  /// folder.
  void check_beforehand() {
    task_ = entry_.make(settings_);
    task_->check_settings();
    check_start(settings_);
    const TrainerOptions options = trainer_options(settings_);
    Settings recorded = settings_;  // as config.json will have them, whatever the temporary folder
    if (examples_ && !request_.resume) rebase_data_paths(recorded, examples_->folder(), data_of_run);
    if (ranks_) check_same_settings(*ranks_, entry_, recorded);
    device_ = device_of(settings_, ranks_);
    as_settings_error("", [&] { check_precision(options.precision, device_); });
    if (ranks_) say({platform_remark(*ranks_, device_, options.precision)});
    if (is_first_ && request_.resume)
      open_before();
    else if (is_first_)
      RunFolder::check_new(request_.folder);
  }

  void open_before() {
    before_ = open_run(request_.folder, request_.verify);
    task_->restore_choices(run_settings(entry_, *before_));
    data_files_ = examples_in_run(*before_, settings_);
    check(!examples_ || examples_->files() == data_files_,
          "cannot resume: the examples are not those that the run in ", before_->path(),
          " was started with; leave them out, or start a new run in another folder");
  }

  /// Names each large file of data before it is read, and returns whether there is one.
  bool announce_large_data() const {
    bool is_large = false;
    for (const Setting& one : settings_.declared()) {
      if (one.kind != Setting::Kind::text || !one.name.starts_with("data.")) continue;
      const std::string path = settings_.get<std::string>(one.name);
      if (const double megabytes = 1e-6 * static_cast<double>(bytes_below(path)); megabytes >= 10) {
        say({concat_text("reading ", examples_ ? "the examples" : path, ", ", std::llround(megabytes),
                         " MB")});
        is_large = true;
      }
    }
    return is_large;
  }

  void read_and_build() {
    const bool is_large = announce_large_data();
    task_->read_data();
    if (is_large && !before_) say({"learning the vocabulary"});
    if (ranks_) check_same_data(*ranks_, task_->data_digests());
    if (before_)
      task_->open_files([&](std::string_view name) { return before_->text(name); });
    else if (is_first_)
      task_->learn_vocabulary();
    if (ranks_) share_vocabulary(*task_, *ranks_);
    if (is_large) say({"cutting the texts into tokens"});
    task_->build(device_);
    if (is_first_ && !before_) start_ = initialize_weights(*task_);
    if (before_ && !before_->has_checkpoint()) start_ = restore_start(*task_, *before_);
    task_->prepare_training();
    if (!before_ || !before_->has_checkpoint()) task_->solve();
    say(task_->take_remarks());
    say(start_.remarks);
    say({concat_text(task_->model().parameter_count(), " parameters")});
  }

  /// Creates the run's folder, or opens it to resume.
  RunFolder opened_folder() {
    Settings settings = task_->settings();  // with what it has measured itself
    if (!before_ && examples_) data_files_ = examples_->files();
    if (!data_files_.empty())
      rebase_data_paths(settings, before_ ? before_->path() : examples_->folder(), data_of_run);
    RunStart start{std::string(entry_.name), settings.json("", 2) + "\n", task_->files(),
                   task_->data_digests(), start_.origin};
    start.files.merge(data_files_);
    examples_.reset();
    if (!before_) return RunFolder::create(request_.folder, start);
    return RunFolder::resume(request_.folder, start, free_settings(settings_), request_.verify);
  }

  const TaskEntry& entry_;
  const TrainRequest& request_;
  Settings settings_;
  Ranks* const ranks_;
  const bool is_first_;
  std::optional<ExampleFiles> examples_;  // until they are files of the run
  Device device_;
  std::shared_ptr<const RunFiles> before_;  // of rank 0, when the run goes on
  NamedFiles data_files_;                   // data files, named as in the run folder
  std::unique_ptr<Task> task_;
  Start start_;
};

}  // namespace

TrainResult train(const TaskEntry& entry, const Settings& settings, const TrainRequest& request) {
  check_recording("train");
  const TrainResult result = Training(entry, settings, request).run();
  if (request.report && (!request.ranks || request.ranks->is_first())) write_training_report(entry, request);
  return result;
}

void write_training_report(const TaskEntry& entry, const TrainRequest& request) {
  const auto say = [&](const std::string& text) {
    if (request.callbacks.message) request.callbacks.message(text);
  };
  const auto measured = [&](std::string_view part, const Measurement& measurement) {
    if (part == "test") say(concat_text("test: ", metrics_text(measurement)));
  };
  try {
    write_run_report(request.folder, {.verify = request.verify, .entry = &entry, .measured = measured});
  } catch (const Error& error) {
    say(concat_text("the report has only curves: ", error.what()));
  }
}

// --- cross-validation

namespace {

std::string name_of_fold(std::int64_t fold) {
  return "fold-" + std::to_string(fold);
}

/// Removes examples in the first fold's folder from the settings of a new fold, when other folds
/// are resumed.
void forget_examples(Settings& settings, const fs::path& first_fold) {
  const Settings before = settings;
  rebase_data_paths(settings, first_fold, data_of_run);
  for (const Setting& one : before.declared())
    if (is_layout(one) || settings.json(one.name) != before.json(one.name))
      settings.set_json(one.name, one.initial, "examples");
}

/// Returns a summary over the folds, of the metrics that all of them have.
std::string summary(const std::vector<Measurement>& folds) {
  std::map<std::string, std::vector<double>> values;
  Json means, deviations, each = Json::array();
  for (const Measurement& fold : folds) {
    Json& one = each.emplace_back(Json::object());
    for (const Metric& metric : fold.metrics) {
      one[metric.name] = page::rounded(metric.value);
      values[metric.name].push_back(metric.value);
    }
  }
  for (const Metric& metric : folds.front().metrics) {
    if (values[metric.name].size() < folds.size()) continue;
    const Spread spread = mean_and_deviation(values[metric.name]);
    means[metric.name] = page::rounded(spread.mean);
    deviations[metric.name] = page::rounded(spread.deviation);
  }
  means["deviation"] = std::move(deviations);
  means["folds"] = std::move(each);
  return means.dump();
}

}  // namespace

Spread mean_and_deviation(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  Spread spread;
  for (const double value : values) spread.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (count > 1) spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

FoldsResult train_folds(const TaskEntry& entry, const Settings& settings, const TrainRequest& request) {
  const std::int64_t folds = settings.read<SplitOptions>("data").folds;
  const bool is_first = !request.ranks || request.ranks->is_first();
  if (is_first && !request.resume) RunFolder::check_new(request.folder);
  check(!request.resume || !path_exists(request.folder / "config.json"), "cannot resume: ", request.folder,
        " holds a single run, not folds: leave out data.folds to resume it, or choose another "
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
      rebase_data_paths(its_settings, settings_folder(request.folder), its_request.folder);
    else if (request.resume && !request.examples.empty())
      forget_examples(its_settings, settings_folder(request.folder));
    its_request.report = false;
    if (!train(entry, its_settings, its_request).finished) return {};
    if (!is_first) continue;  // rank 0 has the run
    const RunOptions options{
        .device = settings.read<RuntimeSettings>("").device, .verify = request.verify, .entry = &entry};
    measured.push_back(Run::open(its_request.folder, options).measure("test"));
    if (request.callbacks.message)
      request.callbacks.message(concat_text("fold ", fold, ": ", measured.back().json));
  }
  return {true, measured.empty() ? std::string() : summary(measured)};
}

bool wants_all_folds(const Settings& settings) {
  const auto split = settings.read<SplitOptions>("data");
  return split.folds > 0 && split.fold == 0;
}

fs::path settings_folder(const fs::path& folder) {
  const fs::path first = folder / name_of_fold(1);
  return path_exists(first / "config.json") && !path_exists(folder / "config.json") ? first : folder;
}

}  // namespace heed
