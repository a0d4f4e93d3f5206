// The C API: trained runs, and lists.

#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/apps/compare/comparison.h"
#include "heed/apps/hub/architecture.h"
#include "heed/apps/hub/exchange.h"
#include "heed/apps/report/capture.h"
#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/train.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/c/handles.h"
#include "heed/core/device.h"
#include "heed/training/progress.h"

namespace heed::c {
namespace {

using Json = nlohmann::ordered_json;

void refuse_threads(const std::string& setting) {
  if (setting == "threads")
    throw SettingsError("settings: \"threads\" is set for the whole process (set_cpu_threads)");
}

RunOptions run_options(const Options& given) {
  return about_settings([&] {
    RunOptions options;
    options.device = given.take_text("device", "");
    options.weights = given.take_text("weights", "");
    options.config = given.take_text("config", "");
    options.settings = given.take_texts("settings", {});
    options.verify = given.take_bool("verify", true);
    if (!options.weights.empty())
      check_setting("weights", options.weights, std::vector<std::string>{"best", "last", "initial"});
    given.check_all_taken("a run");
    for (const std::string& assignment : options.settings) refuse_threads(assigned_name(assignment));
    return options;
  });
}

std::vector<std::string> line_list(const char* const* lines, std::size_t count,
                                   const char* argument = "lines") {
  check_argument(lines != nullptr || count == 0, argument, " is NULL");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    check_argument(lines[i] != nullptr, argument, "[", i, "] is NULL");
    texts.emplace_back(lines[i]);
  }
  return texts;
}

/// Tells long calls of this thread to stop; empty: nothing does.
thread_local std::function<bool()> stop_function;

/// The runs that calls of this thread use, one within another.
thread_local std::vector<const RunObject*> used_here;

/// Refuses a call on a run from a callback of another call on the same run (the function of
/// heed_set_stop(), or one that receives pieces of text), since each could wait for the other.
class UsedHere {
 public:
  explicit UsedHere(const RunObject& object) {
    check(std::ranges::count(used_here, &object) == 0,
          "the run is in use by the call that called this function; wait until it returns");
    used_here.push_back(&object);
  }
  ~UsedHere() { used_here.pop_back(); }
  UsedHere(const UsedHere&) = delete;
  UsedHere& operator=(const UsedHere&) = delete;
};

/// Returns the result of `work` for a run.
template <class Work>
auto from_run(heed_run* handle, const Work& work) {
  const std::shared_ptr<RunObject> object = object_of(handle, "run");
  const UsedHere use(*object);
  const StopCheck check_stop(stop_function);
  return work(object->run);
}
/// Runs a function of the API that returns the text made by `work` for a run.
template <class Work>
heed_status give_text(const char* function, heed_run* run, char** out, const Work& work) {
  return guarded(function, out, [&] { return new_text(from_run(run, work)); });
}

/// Runs a function of the API that returns what a model computes of lines.
heed_status give_states(const char* function, heed_run* run, const char* const* lines, std::size_t count,
                        heed_context* context, heed_tensor** out,
                        Tensor (Run::*compute)(std::span<const std::string>, Context&) const) {
  return guarded_tensor(function, out, [&] {
    const std::vector<std::string> texts = line_list(lines, count);
    const std::shared_ptr<Context> pass = context_of(context);
    return from_run(run, [&](const Run& open) { return (open.*compute)(texts, *pass); });
  });
}

Json json_of(const Prediction& answer) {
  if (!answer.error.empty()) return {{"error", answer.error}};
  Json json = {{"text", answer.text}, {"probability", answer.probability}, {"alternatives", Json::array()}};
  if (!answer.vector.empty()) json["vector"] = answer.vector;
  if (!answer.words.empty()) json.update(Json::parse(spans_to_json(answer)));
  for (const Prediction::Alternative& other : answer.alternatives) {
    json["alternatives"].push_back({{"text", other.text}, {"probability", other.probability}});
    if (other.score) json["alternatives"].back()["score"] = *other.score;
  }
  return json;
}

std::string json_of(const std::vector<Prediction>& answers) {
  Json list = Json::array();
  for (const Prediction& answer : answers) list.push_back(json_of(answer));
  return dumped(list);
}

/// "errors": whether a line that cannot be answered fails the call, "raise", or has its {"error"}, "return".
bool returns_errors(const Options& given) {
  return given.take_choice("errors", {"raise", "return"}) == "return";
}

PredictOptions predict_options(const char* settings) {
  return about_settings([&] {
    const Options given = settings_of(settings);
    PredictOptions options;
    options.first_line = given.take_integer("first_line", 0, 0);
    options.return_errors = returns_errors(given);
    given.check_all_taken("predict");
    return options;
  });
}

TextGenerationOptions generation_options(const Options& given) {
  return about_settings([&] {
    TextGenerationOptions options;
    const auto where_given = [&](const char* name, auto value) {
      return given.values().contains(name) ? std::optional(value) : std::nullopt;
    };
    const auto integer = [&](const char* name, std::int64_t low, std::int64_t high) {
      return where_given(name, given.take_integer(name, low, low, high));
    };
    options.max_tokens = integer("max_tokens", 1, 1'000'000);
    options.temperature = where_given("temperature", given.take_number("temperature", 1, 0));
    options.top_k = integer("top_k", 0, 1'000'000'000);
    options.top_p = where_given("top_p", given.take_number("top_p", 1, 0, 1));
    options.min_p = where_given("min_p", given.take_number("min_p", 0, 0, 1));
    options.repetition_penalty =
        where_given("repetition_penalty", given.take_number("repetition_penalty", 1, 1e-3, 1e3));
    options.stop = where_given("stop", given.take_texts("stop", {}));
    options.seed = integer("seed", 0, std::int64_t{1} << 53);
    options.samples = given.take_integer("samples", 1, 1, 1024);
    options.marks = given.take_bool("marks", true);
    given.check_all_taken("generate");
    return options;
  });
}

std::string streamed(heed_run* run, const char* line, const char* settings, const OnText& take) {
  const std::string text = text_of(line, "line");
  const TextGenerationOptions options = generation_options(settings_of(settings));
  return from_run(run, [&](Run& open) { return dumped(json_of(open.stream(text, take, options))); });
}

// --- tokens

TextReader reader_in(Run& run, std::int32_t of_outputs) {
  TextReader reader = run.task().reader(of_outputs != 0);
  check(reader.tokenizer != nullptr, "a ", run.task_name(),
        " run on this data has no tokenizer: it reads no texts");
  return reader;
}

/// Returns the bytes that a token adds to a text that it already began.
std::string bytes_added(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string& spelling = tokenizer.token(id);
  const std::int32_t twice[] = {id, id};
  const std::string once = tokenizer.decode_bytes({twice, 1}, true),
                    both = tokenizer.decode_bytes(twice, true);
  if (once == "\xEF\xBF\xBD" && spelling.size() == 6 && spelling.starts_with("<0x") &&
      spelling.ends_with('>'))  // a byte
    return {static_cast<char>(std::stoi(spelling.substr(3, 2), nullptr, 16))};
  return both.starts_with(once) ? both.substr(once.size()) : once;
}

/// `settings`: of the run, which name the marks that begin and end its texts.
Json tokenizer_json(const Tokenizer& tokenizer, const Settings& settings) {
  Json json{{"size", tokenizer.vocabulary_size()}, {"special", Json::object()}};
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.special) json["special"][token.content] = token.id;
  const auto add = [&](const char* name, std::string mark, const char* setting = "") {
    if (settings.has(setting) && settings.setting(setting).value != R"("")")
      mark = Json::parse(settings.setting(setting).value);
    const std::int64_t id = hub::find_mark_id(tokenizer, mark);
    json["marks"][name] = id < 0 ? Json() : Json(id);
  };
  add("bos", "<s>", "tokenizer.begin"), add("eos", "</s>", "tokenizer.end");
  add("pad", "<pad>"), add("unk", "<unk>"), add("mask", "<mask>");
  return json;
}

QueueOptions queue_options(const Options& given) {
  return about_settings([&] {
    QueueOptions options;
    options.max_batch = given.take_integer("max_batch", options.max_batch, 1, 65'536);
    options.workers = given.take_integer("workers", options.workers, 1, 1000);
    options.return_errors = returns_errors(given);
    given.check_all_taken("a queue");
    return options;
  });
}

/// Returns a setting of an attention, with "beside", such as {"form": "local"}, if it exists only
/// with this value.
Json setting_json(const Options::Asked& setting) {
  Json json{{"name", setting.name},
            {"type", setting.type()},
            {"default", Json::parse(setting.fallback_text())},
            {"range", setting.range()},
            {"help", setting.help}};
  for (const auto& [other, value] : setting.beside)
    json["beside"][other] = std::visit([](const auto& held) { return Json(held); }, value);
  return json;
}

Json attention_list() {
  Json list = Json::array();
  for (const AttentionVariant& variant : attention_variants()) {
    const Capabilities can = attention_capabilities(variant.name, {});
    Json settings = Json::array();
    for (const Options::Asked& setting : attention_settings(variant.name))
      settings.push_back(setting_json(setting));
    Json positions = Json::array();
    for (const auto& [name, has] :
         {std::pair("rotary", can.rotary), {"alibi", can.alibi}, {"relative", can.relative}})
      if (has) positions.push_back(name);
    Json& mechanism = list.emplace_back(
        Json{{"name", variant.name}, {"positions", std::move(positions)}, {"settings", std::move(settings)}});
    for (const auto& [name, flag] : capability_flags) mechanism[name] = can.*flag;
  }
  return list;
}

Json task_list() {
  Json list = Json::array();
  for (const TaskEntry* entry : task_table()) {
    Json tables = Json::array();
    for (const ExampleTable& table : entry->examples) {
      Json columns = Json::array();
      for (const ExampleColumn& column : table.columns)
        columns.push_back({{"name", column.name},
                           {"help", column.help},
                           {"is_name", column.is_name},
                           {"is_number", column.is_number},
                           {"separator", column.separator},
                           {"optional", column.optional}});
      tables.push_back({{"name", table.name}, {"columns", std::move(columns)}});
    }
    list.push_back({{"name", entry->name}, {"summary", entry->summary}, {"examples", std::move(tables)}});
  }
  return list;
}

Json settings_list(const Settings& settings) {
  static constexpr const char* kinds[] = {"flag",   "integer", "number",   "text",
                                          "column", "columns", "attention"};
  Json list = Json::array();
  for (const Setting& setting : settings.declared()) {
    if (setting.name == "threads") continue;  // see refuse_threads()
    Json& object = list.emplace_back(
        Json{{"name", setting.name}, {"kind", kinds[static_cast<std::size_t>(setting.kind)]}});
    object["default"] = Json::parse(setting.initial);
    if (setting.kind == Setting::Kind::integer || setting.kind == Setting::Kind::number)
      object["low"] = setting.low, object["high"] = setting.high;
    if (!setting.choices.empty()) object["choices"] = setting.choices;
    object["help"] = setting.help;
  }
  return list;
}

// --- training

Examples read_examples(const heed_examples& given) {
  Examples examples;
  if (given.part) examples.part = given.part;
  check_argument(given.cells != nullptr || given.columns * given.rows == 0, "the cells of the examples \"",
                 examples.part, "\" are NULL");
  for (std::size_t c = 0; c < given.columns; ++c) {
    std::vector<std::string>& column = examples.columns.emplace_back();
    column.reserve(given.rows);
    for (std::size_t i = 0; i < given.rows; ++i) {
      const char* const cell = given.cells[c * given.rows + i];
      check_argument(cell != nullptr, "the examples \"", examples.part, "\" have NULL in column ", c,
                     ", row ", i);
      column.emplace_back(cell);
    }
  }
  return examples;
}

/// The arguments of heed_train() and its kin.
struct TrainingCall {
  const TaskEntry* entry = nullptr;
  GivenSettings given;
  TrainRequest request;
  std::vector<Examples> tables;  // of the request
};

/// Takes a member of the settings that is not a setting of a task.
template <class Value>
void take_member(Json& object, const char* name, Value& value) {
  const auto found = object.find(name);
  if (found == object.end()) return;
  try {
    value = found->template get<Value>();
  } catch (const Json::exception&) {
    throw SettingsError(concat_text("settings: \"", name, "\" cannot be ", dumped(*found)));
  }
  object.erase(found);
}
template <class Value>
void take_member(Json& object, const char* name, std::optional<Value>& value) {
  if (object.contains(name)) take_member(object, name, value.emplace());
}

TrainingCall training_call(const char* task, Json object, const heed_examples* examples, std::size_t count,
                           const char* folder) {
  check_argument(examples != nullptr || count == 0, "examples is NULL");
  TrainingCall call;
  call.request.folder = text_of(folder, "folder");
  take_member(object, "resume", call.request.resume);
  take_member(object, "verify", call.given.verify);
  take_member(object, "config", call.given.config);
  take_member(object, "attention", call.given.attention.attention);
  take_member(object, "decoder_attention", call.given.attention.decoder);
  take_member(object, "cross_attention", call.given.attention.cross);
  take_member(object, "preset", call.given.attention.preset);
  call.request.verify = call.given.verify;
  if (call.request.resume) call.given.resumed = folder;
  check_argument(task || call.request.resume, "task is NULL, and no run is resumed");
  call.entry = &task_entry(task ? task : open_run(settings_folder(folder), call.given.verify)->task());
  call.given.settings = given_settings(*call.entry, dumped(object), "settings");
  for (const GivenSetting& setting : call.given.settings) refuse_threads(setting.name);
  call.given.own_data = count > 0;
  for (const heed_examples& table : std::span(examples, count)) call.tables.push_back(read_examples(table));
  call.request.examples = call.tables;
  return call;
}

/// Calls the caller's functions while training goes on.
class TrainingCalls {
 public:
  TrainingCalls(heed_progress progress, void* context)
      : progress_(progress), context_(context), stop_(stop_function) {}

  TrainerCallbacks callbacks() {
    TrainerCallbacks calls;
    calls.progress = [this](const Progress& progress) { say(metrics_line(progress)); };
    calls.message = [this](std::string_view text) { say(dumped(Json{{"message", text}})); };
    calls.stop_requested = [this] {
      begun_ = true;
      return stops();
    };
    return calls;
  }
  /// Reads data and trains. Before training begins, a stop ends the call at once; later training stops
  /// with a checkpoint.
  template <class Work>
  void during(const Work& work) {
    try {
      const StopCheck check_stop([this] { return !begun_ && stops(); });
      work();
    } catch (const Interrupted&) {
      check_progress();
      throw;
    }
    check_progress();
  }

 private:
  bool stops() { return failed_ || (stop_ && stop_()); }
  void check_progress() const {
    if (failed_)
      throw CallbackFailed(concat_text("heed_train: the progress function failed: ", heed_last_error()));
  }
  void say(const std::string& record) {
    if (progress_ && !failed_) failed_ = progress_(context_, record.c_str()) != HEED_OK;
  }

  heed_progress progress_;
  void* context_;
  std::function<bool()> stop_;
  bool begun_ = false, failed_ = false;
};

void train_one(const TaskEntry& entry, const Settings& settings, const TrainRequest& request) {
  if (wants_all_folds(settings))
    throw SettingsError(
        "data.folds: one training makes one run; cross-validation trains one for each fold; to train a "
        "single fold, give data.fold too");
  if (!train(entry, settings, request).finished) throw Interrupted();
}

std::string train_all_folds(const TaskEntry& entry, const Settings& settings, const TrainRequest& request) {
  if (!wants_all_folds(settings))
    throw SettingsError(settings.has("data.folds")
                            ? "cross-validation needs data.folds, 2 or more, and no data.fold"
                            : concat_text("the task ", entry.name, " has no folds (data.folds)"));
  const FoldsResult result = train_folds(entry, settings, request);
  if (!result.finished) throw Interrupted();
  return result.json;
}

/// Calls `train_them(kind, settings, request)` with the arguments of heed_train(), and returns the
/// run's folder and whether it is verified.
template <class Train>
std::pair<std::string, bool> trained(const char* task, const char* json, const heed_examples* examples,
                                     std::size_t count, const char* folder, TrainingCalls calls,
                                     const Train& train_them) {
  TrainingCall call = training_call(task, settings_object<Json>(json), examples, count, folder);
  call.request.callbacks = calls.callbacks();
  calls.during([&] {
    std::vector<std::string> notes;
    const Settings settings = training_settings(*call.entry, call.given, &notes);
    for (const std::string& note : notes) call.request.callbacks.message(note);
    train_them(*call.entry, settings, call.request);
  });
  return {folder, call.request.verify};
}

// --- comparisons

ComparedSetting compared_setting(const std::string& name, const Json& values) {
  const auto text_of_value = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : dumped(value);
  };
  if (values.is_object() && values.size() == 2 && values.contains("low") && values.contains("high"))
    return {name, {text_of_value(values["low"]), text_of_value(values["high"])}, true};
  if (!values.is_array() || values.empty())
    throw SettingsError(concat_text("grid: \"", name, "\" is ", dumped(values),
                                    R"(; expected a list of values, or {"low": ..., "high": ...})"));
  ComparedSetting setting{name, {}};
  for (const Json& value : values) setting.values.push_back(text_of_value(value));
  return setting;
}

std::string json_of(const Comparison& found, const std::string& folder) {
  Json json = {{"text", comparison_text(found.rows)}, {"markdown", comparison_markdown(found.rows)}};
  std::istringstream lines(comparison_json_lines(found.rows));
  json["rows"] = Json::array();
  for (std::string line; std::getline(lines, line);) json["rows"].push_back(Json::parse(line));
  for (const ComparisonCell& cell : found.cells)
    json["runs"].push_back({{"choice", cell.choice},
                            {"seed", cell.seed},
                            {"folder", (std::filesystem::path(folder) / cell.name / "run").string()}});
  return dumped(json);
}

std::string compared(const char* task, const char* settings, const heed_examples* examples, std::size_t count,
                     const char* folder, TrainingCalls calls) {
  check_argument(task != nullptr, "task is NULL");
  auto object = settings_object<Json>(settings);
  std::vector<std::string> attentions;
  std::vector<std::int64_t> seeds;
  Json grid = Json::object();
  std::int64_t draws = 0;
  bool halving = false;
  if (object.contains("attention") && object["attention"].is_array())
    take_member(object, "attention", attentions);
  take_member(object, "seeds", seeds);
  take_member(object, "grid", grid);
  const bool has_draws = object.contains("random");
  take_member(object, "random", draws);
  take_member(object, "halving", halving);
  const TrainingCall call = training_call(task, std::move(object), examples, count, folder);
  const std::string path = call.request.folder;
  Settings base = training_settings(*call.entry, call.given);
  keep_examples(*call.entry, call.tables, path, base);
  if (seeds.empty()) seeds = {base.read<RuntimeSettings>("").seed};
  if (has_draws && draws < 1)
    throw SettingsError(concat_text("\"random\" is ", draws, "; expected how many choices to draw"));
  ComparisonPlan plan{*call.entry, base, attentions, {}, seeds, draws, halving};
  for (const auto& [name, values] : grid.items()) plan.settings.push_back(compared_setting(name, values));
  const TrainerCallbacks callbacks = calls.callbacks();
  Comparison found;
  calls.during([&] {
    found = compare(plan, path, sequential_trainer(*call.entry, path, callbacks), callbacks.message);
    if (!found.finished) throw Interrupted();
  });
  return json_of(found, path);
}

Json device_list() {
  Json list = {{{"device", "cpu"}, {"name", "CPU"}, {"kind", "CPU"}, {"refusal", ""}}};
  for (const DeviceInfo& device : vulkan_devices().devices)
    list.push_back({{"device", name_of(device.device)},
                    {"name", device.name},
                    {"kind", device.kind},
                    {"refusal", device.refusal}});
  return list;
}

}  // namespace
}  // namespace heed::c

using namespace heed;
using namespace heed::c;

heed_status heed_list(const char* what, char** out) {
  static const std::pair<const char*, std::string (*)()> lists[] = {
      {"ops", op_names_json},
      {"attention", [] { return dumped(attention_list()); }},
      {"optimizers", [] { return dumped(Json(optimizer_names())); }},
      {"tasks", [] { return dumped(task_list()); }},
      {"devices", [] { return dumped(device_list()); }}};
  return guarded(__func__, out, [&] {
    const std::string name = text_of(what, "what");
    std::vector<std::string> names;
    for (const auto& [known, list] : lists) {
      if (name == known) return new_text(list());
      names.emplace_back(known);
    }
    fail("there is no list of '", name, "'", suggest_name(name, names));
  });
}

heed_status heed_set_stop(int32_t (*stop)(void* context), void* context) {
  return guarded(__func__, [&] {
    stop_function = {};
    if (stop) stop_function = [=] { return stop(context) != 0; };
  });
}

heed_status heed_run_open(const char* folder, const char* settings, heed_run** out) {
  return guarded(__func__, out, [&] {
    const std::string path = text_of(folder, "folder");
    return new_handle<heed_run>(
        std::make_shared<RunObject>(Run::open(path, run_options(settings_of(settings)))));
  });
}

heed_status heed_run_export(const char* folder, const char* target, const char* settings, char** out) {
  return guarded(__func__, out, [&] {
    const Options given = settings_of(settings);
    const StoredFloat stored = about_settings([&] {
      const StoredFloat type = stored_float(given.take_text("dtype", "f32"));
      given.check_all_taken("an export");
      return type;
    });
    const ExchangeReport report = export_run(text_of(folder, "folder"), text_of(target, "target"), stored);
    return new_text(dumped(Json{{"architecture", report.architecture}, {"parameters", report.parameters}}));
  });
}

heed_status heed_run_describe(heed_run* run, char** out) {
  return guarded(__func__, out, [&] {
    const std::shared_ptr<RunObject> object = object_of(run, "run");
    return new_text(from_run(run, [&](Run& open) {
      return dumped(Json{{"task", open.task_name()},
                         {"settings", Json::parse(object->settings)},
                         {"classes", open.task().known_classes()},
                         {"remarks", open.task().take_remarks()}});
    }));
  });
}

heed_status heed_run_predict(heed_run* run, const char* const* lines, size_t count, const char* settings,
                             char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    return json_of(open.predict(line_list(lines, count), predict_options(settings)));
  });
}

heed_status heed_run_tokenizer(heed_run* run, int32_t of_outputs, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    return dumped(tokenizer_json(*reader_in(open, of_outputs).tokenizer, open.settings()));
  });
}

heed_status heed_run_encode(heed_run* run, const char* const* texts, size_t count, int32_t of_outputs,
                            int32_t marks, int32_t spelled, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    const TextReader reader = reader_in(open, of_outputs);
    Json all = Json::array();
    for (const std::string& text : line_list(texts, count, "texts")) {
      check(unicode::find_invalid(text) == std::string::npos, "texts[", all.size(), "] is not UTF-8");
      const Tokens ids = reader.encode(text, marks != 0);
      Json& encoded =
          all.emplace_back(Json{{"ids", ids}, {"tokens", Json::array()}, {"bytes", Json::array()}});
      for (const std::int32_t id : spelled != 0 ? ids : Tokens()) {
        const std::string bytes = bytes_added(*reader.tokenizer, id);
        encoded["tokens"].push_back(reader.tokenizer->token(id));
        encoded["bytes"].push_back(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
      }
    }
    return dumped(all);
  });
}

heed_status heed_run_decode(heed_run* run, const int64_t* ids, size_t count, int32_t of_outputs,
                            int32_t keep_special, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    check_argument(ids != nullptr || count == 0, "ids is NULL");
    const Tokenizer& tokenizer = *reader_in(open, of_outputs).tokenizer;
    Tokens tokens;
    for (const std::int64_t id : std::span(ids, count)) {
      check_argument(id >= 0 && id < tokenizer.vocabulary_size(), "ids[", tokens.size(), "] is ", id,
                     "; the vocabulary has the ids 0 to ", tokenizer.vocabulary_size() - 1);
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    return dumped(Json(tokenizer.decode(tokens, keep_special != 0)));
  });
}

heed_status heed_run_stream(heed_run* run, const char* line, heed_on_text on_text, void* context,
                            char** out) {
  return guarded(__func__, out, [&] {
    check_argument(on_text != nullptr, "on_text is NULL");
    bool whole = true;
    const std::string answer = streamed(run, line, nullptr, [&](std::string_view piece) {
      whole = piece.find('\0') == std::string_view::npos;
      return whole && on_text(context, std::string(piece).c_str()) == 0;
    });
    check(whole, "the text has U+0000, which ends a text in C; take heed_run_stream_bytes()");
    return new_text(answer);
  });
}

heed_status heed_run_stream_bytes(heed_run* run, const char* line, heed_on_bytes on_bytes, void* context,
                                  char** out) {
  return heed_run_generate_stream(run, line, nullptr, on_bytes, context, out);
}

heed_status heed_run_generate_stream(heed_run* run, const char* prompt, const char* settings,
                                     heed_on_bytes on_bytes, void* context, char** out) {
  return guarded(__func__, out, [&] {
    check_argument(on_bytes != nullptr, "on_bytes is NULL");
    return new_text(streamed(run, prompt, settings, [&](std::string_view piece) {
      return on_bytes(context, piece.data(), piece.size()) == 0;
    }));
  });
}

heed_status heed_run_generate(heed_run* run, const char* prompt, const char* settings, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    return json_of(open.generate(text_of(prompt, "prompt"), generation_options(settings_of(settings))));
  });
}

heed_status heed_queue_create(heed_run* run, const char* settings, heed_queue** out) {
  return guarded(__func__, out, [&] {
    return new_handle<heed_queue>(
        std::make_shared<QueueObject>(object_of(run, "run"), queue_options(settings_of(settings))));
  });
}

heed_status heed_queue_answer(heed_queue* queue, const char* line, char** out) {
  return guarded(__func__, out, [&] {
    const std::shared_ptr<QueueObject> object = object_of(queue, "queue");
    const UsedHere use(*object->run);
    const StopCheck check_stop(stop_function);
    return new_text(dumped(json_of(object->queue.answer(text_of(line, "line")))));
  });
}

void heed_queue_free(heed_queue* queue) {
  free_handle(__func__, queue);
}

heed_status heed_run_capture(heed_run* run, const char* const* lines, size_t count, const char* path,
                             int32_t overwrite, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    const std::filesystem::path file = text_of(path, "path");
    check_output(file, overwrite != 0);
    CaptureFile capture;
    const std::vector<Prediction> answers = open.predict(line_list(lines, count), {&capture, 0});
    capture.save(file, overwrite != 0);
    return json_of(answers);
  });
}

heed_status heed_task_settings(const char* task, int32_t own_data, char** out) {
  return guarded(__func__, out, [&] {
    return new_text(dumped(settings_list(task_entry(text_of(task, "task")).settings(own_data != 0))));
  });
}

heed_status heed_train(const char* task, const char* settings, const heed_examples* examples, size_t count,
                       const char* folder, heed_progress progress, void* context, heed_run** out) {
  if (out) *out = nullptr;
  return guarded(__func__, [&] {
    const auto [path, verify] =
        trained(task, settings, examples, count, folder, TrainingCalls(progress, context), train_one);
    if (out)
      *out = new_handle<heed_run>(std::make_shared<RunObject>(Run::open(path, RunOptions{.verify = verify})));
  });
}

heed_status heed_cross_validate(const char* task, const char* settings, const heed_examples* examples,
                                size_t count, const char* folder, heed_progress progress, void* context,
                                char** out) {
  return guarded(__func__, out, [&] {
    std::string found;
    trained(task, settings, examples, count, folder, TrainingCalls(progress, context),
            [&](const TaskEntry& entry, const Settings& all, const TrainRequest& request) {
              found = train_all_folds(entry, all, request);
            });
    return new_text(found);
  });
}

heed_status heed_compare_trainings(const char* task, const char* settings, const heed_examples* examples,
                                   size_t count, const char* folder, heed_progress progress, void* context,
                                   char** out) {
  return guarded(__func__, out, [&] {
    return new_text(compared(task, settings, examples, count, folder, TrainingCalls(progress, context)));
  });
}

heed_status heed_run_measure_examples(heed_run* run, const heed_examples* examples, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    check_argument(examples != nullptr, "examples is NULL");
    return open.measure_examples(read_examples(*examples)).json;
  });
}

heed_status heed_run_measure_files(heed_run* run, const char* const* files, size_t count, char** out) {
  return give_text(__func__, run, out, [&](Run& open) {
    const std::vector<std::string> names = line_list(files, count);
    check_argument(!names.empty(), "files is empty");
    return open.measure_files(names).json;
  });
}

heed_status heed_run_outputs(heed_run* run, const char* const* lines, size_t count, heed_context* context,
                             heed_tensor** out) {
  return give_states(__func__, run, lines, count, context, out, &Run::outputs);
}

heed_status heed_run_hidden(heed_run* run, const char* const* lines, size_t count, heed_context* context,
                            heed_tensor** out) {
  return give_states(__func__, run, lines, count, context, out, &Run::hidden);
}

heed_status heed_run_log_probabilities(heed_run* run, const char* const* lines, const char* const* targets,
                                       size_t count, heed_context* context, heed_tensor** out) {
  return guarded_tensor(__func__, out, [&] {
    const std::vector<std::string> sources = line_list(lines, count),
                                   wanted = line_list(targets, count, "targets");
    const std::shared_ptr<Context> pass = context_of(context);
    return from_run(run, [&](Run& open) { return open.log_probabilities(sources, wanted, *pass); });
  });
}

heed_status heed_run_measure(heed_run* run, const char* part, char** out) {
  return give_text(__func__, run, out, [&](Run& open) { return open.measure(text_of(part, "part")).json; });
}

void heed_run_free(heed_run* run) {
  free_handle(__func__, run);
}

heed_status heed_report(const char* const* folders, size_t count, const char* settings, char** out) {
  return guarded(__func__, out, [&] {
    const RunOptions given = run_options(settings_of(settings));
    const ReportOptions options{given.device, given.verify};
    const std::vector<std::string> names = line_list(folders, count);
    const std::vector<std::filesystem::path> paths(names.begin(), names.end());
    return new_text(paths.size() == 1 ? run_report(paths[0], options) : runs_report(paths, options));
  });
}
