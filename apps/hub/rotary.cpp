// Rotary positions of published decoders: "rope_parameters", in older files "rope_theta" and
// "rope_scaling", as `transformers` reads them, and heed's settings (RotaryAngles).

#include <cmath>

#include "heed/apps/hub/architecture.h"
#include "heed/base/plain_numbers.h"

namespace heed::hub {
namespace {

/// The amplitude of YaRN, for a share m of it.
double yarn_amplitude(double factor, double m) {
  return factor > 1 ? 0.1 * m * std::log(factor) + 1 : 1;
}

std::string list_text(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "" : ",") + number_text(number);
  return text;
}

}  // namespace

Json rotary_settings(const Config& config, const Config& rope, double base) {
  Json settings = {
      {"rotary_base", rope.value("rope_theta", base)},
      {"rotary_share", rope.value("partial_rotary_factor", config.value("partial_rotary_factor", 1.0))}};
  std::string kind = rope.value("rope_type", rope.value("type", "default"));
  const bool is_phi = config.type() == "phi3";
  if (kind == "su" || (is_phi && kind == "yarn")) kind = "longrope";
  if (kind == "default") return settings;
  const Json known = {"linear", "llama3", "dynamic", "yarn", "longrope"};
  check(std::ranges::count(known, Json(kind)) > 0, "config.json: rotary positions of the kind \"", kind,
        "\" (rope_type), which heed's model does not support; it supports default, linear, llama3, dynamic, "
        "yarn and longrope");
  if (kind == "linear") settings["rotary_factor"] = rope.number("factor");
  if (kind == "linear") return settings;
  constexpr const char* original = "original_max_position_embeddings";
  const std::int64_t most = config.integer("max_position_embeddings", 1, 1 << 24);
  const Config& holder = config.has(original) || is_phi ? config : rope;
  std::int64_t length = is_phi && kind != "dynamic" ? 4096 : most;  // what Phi3Config has
  if (kind != "dynamic" && holder.has(original)) length = holder.integer(original, 1, 1 << 24);
  settings["rotary_length"] = length;
  settings["rotary_scaling"] = kind;
  const bool may_lack_factor = kind == "yarn" || kind == "longrope";
  const double factor = may_lack_factor && !rope.has("factor")
                            ? static_cast<double>(most) / static_cast<double>(length)
                            : rope.number("factor");
  settings["rotary_factor"] = std::max(factor, 1.0);
  if (kind == "llama3") {
    settings["rotary_few_turns"] = rope.number("low_freq_factor");
    settings["rotary_many_turns"] = rope.number("high_freq_factor");
  } else if (kind == "yarn") {
    rope.expect("truncate", true);
    settings["rotary_few_turns"] = rope.value("beta_slow", 1.0);
    settings["rotary_many_turns"] = rope.value("beta_fast", 32.0);
    if (rope.has("mscale") && rope.has("mscale_all_dim"))
      settings["rotary_amplitude"] = yarn_amplitude(factor, rope.number("mscale")) /
                                     yarn_amplitude(factor, rope.number("mscale_all_dim"));
  } else if (kind == "longrope") {
    settings["rotary_short"] = list_text(rope.numbers("short_factor"));
    settings["rotary_long"] = list_text(rope.numbers("long_factor"));
  }
  if (may_lack_factor && rope.has("attention_factor"))
    settings["rotary_amplitude"] = rope.number("attention_factor");
  return settings;
}

Json published_rotary(const Json& model) {
  const auto factor = model.at("rotary_factor").get<double>();
  const auto length = model.at("rotary_length").get<std::int64_t>();
  const std::string scaling = model.at("rotary_scaling");
  Json rope = {{"rope_theta", model.at("rotary_base")}, {"rope_type", scaling}};
  if (model.at("rotary_share") != 1.0) rope["partial_rotary_factor"] = model.at("rotary_share");
  if (scaling == "llama3" && (factor == 1 || length == 0))
    rope["rope_type"] = factor == 1 ? "default" : "linear";
  check(model.at("rotary_amplitude") == 0.0 || scaling == "yarn" || scaling == "longrope",
        "published layouts have model.rotary_amplitude with rotary_scaling=yarn and longrope only");
  if (rope["rope_type"] == "default") return rope;
  rope["factor"] = factor;
  if (rope["rope_type"] == "linear") return rope;
  if (scaling != "dynamic") rope["original_max_position_embeddings"] = length;
  if (scaling == "llama3" || scaling == "yarn") {
    const bool is_yarn = scaling == "yarn";
    const double usual = is_yarn ? 32 : 4, many = model.at("rotary_many_turns");
    rope[is_yarn ? "beta_slow" : "low_freq_factor"] = model.at("rotary_few_turns");
    rope[is_yarn ? "beta_fast" : "high_freq_factor"] = many > 0 ? many : usual;
  }
  if (scaling == "longrope")
    for (const auto& [theirs, ours] :
         {std::pair("short_factor", "rotary_short"), {"long_factor", "rotary_long"}})
      rope[theirs] = Json::parse(concat_text('[', model.at(ours).get<std::string>(), ']'));
  if (model.at("rotary_amplitude") != 0.0) rope["attention_factor"] = model.at("rotary_amplitude");
  return rope;
}

}  // namespace heed::hub
