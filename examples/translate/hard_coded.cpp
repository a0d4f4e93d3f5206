#include "hard_coded.h"

#include "../common/model_settings.h"
#include "../common/program.h"
#include "heed/models/presets.h"

namespace heed::programs {
namespace {

constexpr const char* cross_setting = "model.cross_attention";

/// True for hard-coded attention without a gamma: a name, or an object with one.
bool lacks_gamma(const Json& choice) {
  const Json name = choice.is_object() ? choice.value("name", Json()) : choice;
  return name == "hard_coded_gaussian" && !(choice.is_object() && choice.contains("gamma"));
}

/// Mean source over mean target length, each with its mark.
double length_ratio(const Tokenizer& tokenizer, const ParallelText& text) {
  const auto tokens_in = [&](const std::vector<std::string>& lines) {
    std::size_t count = lines.size();
    for (const std::string& line : lines) count += tokenizer.encode(line).size();
    return static_cast<double>(count);
  };
  return tokens_in(text.source) / tokens_in(text.target);
}

}  // namespace

void set_preset(Settings& settings, const std::string& name) {
  check_name("preset", name, preset_names());
  TransformerConfig config = model_config(settings, Json::object());
  apply_preset(config, name);
  const Json chosen = Json::parse(to_json(config));
  for (const char* key : {"encoder_attention", "decoder_attention", "cross_attention"})
    settings.set(std::string("model.") + key, chosen[key], "--preset " + name);
}

bool set_gamma(Settings& settings, const Tokenizer& tokenizer, const ParallelText& text) {
  Json choices = settings.at(cross_setting);
  if (!choices.is_array()) choices = Json::array({choices});
  bool changed = false;
  for (Json& choice : choices) {
    if (!lacks_gamma(choice)) continue;
    if (choice.is_string()) choice = Json{{"name", choice}};
    choice["gamma"] = length_ratio(tokenizer, text);
    changed = true;
  }
  if (changed) settings.set(cross_setting, choices.size() == 1 ? choices.front() : choices, "gamma");
  return changed;
}

}  // namespace heed::programs
