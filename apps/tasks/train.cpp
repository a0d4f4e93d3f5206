#include "heed/apps/tasks/train.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/start.h"
#include "heed/base/json.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

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
      given.push_back({name, value.dump(-1, ' ', false, Json::error_handler_t::replace), origin});
  }
}

bool is_of_attention(const TaskKind& kind, const GivenSetting& given) {
  return belongs_to_attention(kind.stacks, given.name);
}

/// All but what concerns attention.
void lay_over(Settings& settings, const TaskKind& kind, const GivenSettings& given) {
  if (!given.resumed.empty()) {
    const fs::path folder = folder_of_settings(given.resumed);
    settings = settings_of_run(kind, RunFiles::open(folder, given.verify));
    if (folder != given.resumed) settings.assign("data.fold=0");
  }
  if (!given.config.empty()) settings.merge_file(given.config);
  for (const GivenSetting& one : given.settings)
    if (!is_of_attention(kind, one)) settings.assign(one.name, one.value, one.origin);
}

}  // namespace

std::vector<GivenSetting> given_settings(const TaskKind& kind, std::string_view json,
                                         const std::string& origin) {
  std::vector<GivenSetting> given;
  try {
    const Json object = parse_json<Json>(json, origin);
    check(object.is_object(), origin, " must be a JSON object, not ", json);
    add_given(kind.settings(true), object, "", origin, given);
  } catch (const SettingsError&) {
    throw;
  } catch (const Error& error) {
    throw SettingsError(error.what());
  }
  return given;
}

Settings training_settings(const TaskKind& kind, const GivenSettings& given,
                           const std::function<void(const std::string&)>& say) {
  Settings settings = settings_to_train(
      kind, [&](Settings& laid) { lay_over(laid, kind, given); }, given.resumed.empty(), given.own_data);
  for (const std::string& note : choose_attentions(settings, kind.stacks, given.attention))
    if (say) say(note);
  const AttentionNames& names = given.attention;
  for (const GivenSetting& one : given.settings) {
    if (!is_of_attention(kind, one)) continue;
    const bool whole = std::ranges::count(attention_settings(kind.stacks), one.name) > 0;
    if (whole && (names.attention || names.decoder || names.cross || names.preset))
      throw SettingsError(one.origin + " and an attention flag or a preset name the same: give one");
    settings.assign(one.name, one.value, one.origin);
  }
  return settings;
}

void write_report_of(const TaskKind& kind, const TrainRequest& request) {
  const auto say = [&](const std::string& text) {
    if (request.callbacks.message) request.callbacks.message(text);
  };
  const auto measured = [&](std::string_view part, const Measurement& measurement) {
    if (part == "test") say(concat_text("test: ", metrics_text(measurement)));
  };
  try {
    write_run_report(request.folder, {.verify = request.verify, .kind = &kind, .measured = measured});
  } catch (const Error& error) {
    say(concat_text("the report has curves alone: ", error.what()));
  }
}

TrainResult train(const TaskKind& kind, const Settings& settings, const TrainRequest& request) {
  const TrainResult result = train_run(kind, settings, request);
  if (!request.ranks || request.ranks->is_first()) write_report_of(kind, request);
  return result;
}

}  // namespace heed
