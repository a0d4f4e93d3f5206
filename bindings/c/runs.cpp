// The C API: trained runs, and lists.

#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/names.h"
#include "heed/c/handles.h"
#include "heed/core/device.h"
#include "heed/tasks/capture.h"
#include "heed/tasks/report.h"

namespace heed::c {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunOptions run_options(const Options& given) {
  RunOptions options;
  try {
    options.device = given.take_text("device", "");
    options.weights = given.take_text("weights", "");
    options.config = given.take_text("config", "");
    options.settings = given.take_texts("settings", {});
    options.verify = given.take_bool("verify", true);
    if (!options.weights.empty())
      check_setting("weights", options.weights, std::vector<std::string>{"best", "last", "initial"});
    given.check_all_taken("a run");
    for (const std::string& assignment : options.settings)
      check(assigned_name(assignment) != "threads",
            "settings: \"threads\" is set for the whole process, by heed_set_cpu_threads()");
  } catch (const Error& error) {
    throw SettingsError(error.what());
  }
  return options;
}

std::vector<std::string> lines_of(const char* const* lines, std::size_t count) {
  check_argument(lines != nullptr || count == 0, "lines is NULL");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    check_argument(lines[i] != nullptr, "lines[", i, "] is NULL");
    texts.emplace_back(lines[i]);
  }
  return texts;
}

/// The function that long calls of this thread ask whether to stop, and its argument; null: none.
thread_local int32_t (*asked_to_stop)(void*) = nullptr;
thread_local void* stop_context = nullptr;

/// While it lives, no other call can use the run. A call on the same thread, from the function given to
/// heed_set_stop(), would deadlock.
class RunUse {
 public:
  explicit RunUse(RunObject& object) : object_(object) {
    const std::thread::id here = std::this_thread::get_id();
    check(object.user != here,
          "the run is in use by the call that asks whether to stop; wait until it returns");
    object.in_use.lock();
    object.user = here;
  }
  ~RunUse() {
    object_.user = std::thread::id();
    object_.in_use.unlock();
  }
  RunUse(const RunUse&) = delete;
  RunUse& operator=(const RunUse&) = delete;

 private:
  RunObject& object_;
};

/// The text that `work` returns for a run that no other call uses meanwhile.
template <class Work>
char* text_from_run(heed_run* handle, const Work& work) {
  const std::shared_ptr<RunObject> object = object_of(handle, "run");
  const RunUse alone(*object);
  std::function<bool()> stop;
  if (asked_to_stop)
    stop = [function = asked_to_stop, context = stop_context] { return function(context) != 0; };
  const StopCheck check_stop(std::move(stop));
  return new_text(work(object->run));
}

std::string json_of(const std::vector<Prediction>& answers) {
  Json list = Json::array();
  for (const Prediction& answer : answers) {
    if (!answer.error.empty()) {
      list.push_back({{"error", answer.error}});
      continue;
    }
    Json one = {{"text", answer.text}, {"probability", answer.probability}, {"alternatives", Json::array()}};
    for (const Prediction::Alternative& other : answer.alternatives) {
      one["alternatives"].push_back({{"text", other.text}, {"probability", other.probability}});
      if (other.score) one["alternatives"].back()["score"] = *other.score;
    }
    list.push_back(std::move(one));
  }
  return dumped(list);
}

Json attention_list() {
  Json list = Json::array();
  for (const AttentionVariant& variant : attention_variants()) {
    const Capabilities can = attention_capabilities(variant.name, {});
    Json settings = Json::array();
    for (const Options::Asked& asked : attention_settings(variant.name))
      settings.push_back({{"name", asked.name},
                          {"type", asked.type()},
                          {"default", Json::parse(asked.fallback_text())},
                          {"range", asked.range()}});
    list.push_back({{"name", variant.name},
                    {"causal", can.causal},
                    {"cross", can.cross},
                    {"any_length", can.any_length},
                    {"padding", can.padding},
                    {"strictly_causal", can.strictly_causal},
                    {"cross_by_step", can.cross_by_step},
                    {"deterministic", can.deterministic},
                    {"settings", std::move(settings)}});
  }
  return list;
}

Json task_list() {
  Json list = Json::array();
  for (const TaskKind* kind : task_kinds())
    list.push_back({{"name", kind->name}, {"summary", kind->summary}});
  return list;
}

Json device_list() {
  Json list = {{{"device", "cpu"}, {"name", "CPU"}, {"kind", "CPU"}, {"refusal", ""}}};
  for (const DeviceInfo& one : vulkan_devices().devices)
    list.push_back(
        {{"device", name_of(one.device)}, {"name", one.name}, {"kind", one.kind}, {"refusal", one.refusal}});
  return list;
}

}  // namespace
}  // namespace heed::c

using namespace heed;
using namespace heed::c;

heed_status heed_list(const char* what, char** out) {
  return guarded(__func__, out, [&] {
    const std::string name = text_of(what, "what");
    if (name == "ops") return new_text(op_names_json());
    if (name == "attention") return new_text(dumped(attention_list()));
    if (name == "optimizers") return new_text(dumped(Json(optimizer_names())));
    if (name == "tasks") return new_text(dumped(task_list()));
    if (name == "devices") return new_text(dumped(device_list()));
    static const std::vector<std::string> names = {"ops", "attention", "optimizers", "tasks", "devices"};
    fail("there is no list of '", name, "'", suggest_name(name, names));
  });
}

heed_status heed_set_stop(int32_t (*stop)(void* context), void* context) {
  return guarded(__func__, [&] {
    asked_to_stop = stop;
    stop_context = context;
  });
}

heed_status heed_run_open(const char* folder, const char* settings, heed_run** out) {
  return guarded(__func__, out, [&] {
    const std::string path = text_of(folder, "folder");
    return new_handle<heed_run>(
        std::make_shared<RunObject>(Run::open(path, run_options(settings_of(settings)))));
  });
}

heed_status heed_run_describe(heed_run* run, char** out) {
  return guarded(__func__, out, [&] {
    return text_from_run(run, [](Run& open) {
      return dumped(Json{{"task", open.task()},
                         {"settings", Json::parse(open.settings().json())},
                         {"remarks", open.learner().take_remarks()}});
    });
  });
}

heed_status heed_run_predict(heed_run* run, const char* const* lines, size_t count, char** out) {
  return guarded(__func__, out, [&] {
    return text_from_run(run, [&](Run& open) { return json_of(open.predict(lines_of(lines, count))); });
  });
}

heed_status heed_run_capture(heed_run* run, const char* const* lines, size_t count, const char* path,
                             int32_t overwrite, char** out) {
  return guarded(__func__, out, [&] {
    return text_from_run(run, [&](Run& open) {
      const std::filesystem::path file = text_of(path, "path");
      check_output(file, overwrite != 0);
      CaptureFile capture;
      const std::vector<Prediction> answers = open.predict(lines_of(lines, count), {&capture, 0});
      capture.save(file, overwrite != 0);
      return json_of(answers);
    });
  });
}

heed_status heed_run_measure(heed_run* run, const char* part, char** out) {
  return guarded(__func__, out, [&] {
    return text_from_run(run, [&](Run& open) { return open.measure(text_of(part, "part")).json; });
  });
}

void heed_run_free(heed_run* run) {
  free_handle(__func__, run);
}

heed_status heed_report(const char* const* folders, size_t count, const char* settings, char** out) {
  return guarded(__func__, out, [&] {
    const RunOptions given = run_options(settings_of(settings));
    const ReportOptions options{given.device, given.verify};
    const std::vector<std::string> names = lines_of(folders, count);
    const std::vector<std::filesystem::path> paths(names.begin(), names.end());
    return new_text(paths.size() == 1 ? run_report(paths[0], options) : runs_report(paths, options));
  });
}
