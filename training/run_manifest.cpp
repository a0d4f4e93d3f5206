#include "heed/training/run_manifest.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "heed/core/digest.h"
#include "heed/core/json_text.h"
#include "heed/core/unicode.h"
#include "heed/core/version.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* manifest_format = "heed run";
constexpr int manifest_version = 1;

constexpr std::array<std::string_view, 9> common_names{
    "run.json",       "config.json",   "model.safetensors", "optimizer.safetensors", "best.safetensors",
    "checkpoint.new", "metrics.jsonl", "report.html",       "trainer_state.json",
};

std::string digest_in(const Json& value, std::string_view what) {
  check(value.is_string() && is_digest(value.get_ref<const std::string&>()), what, " is ", value.dump(),
        ", not 32 hexadecimal digits");
  return value.get<std::string>();
}

std::map<std::string, std::string> texts_in(const Json& object, const char* key) {
  const Json& values = object.at(key);
  check(values.is_object(), "\"", key, "\" is not an object");
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : values.items()) texts[name] = value.get<std::string>();
  return texts;
}

RunManifest manifest_of(Json object, bool verify) {
  check(object.is_object() && object.value("format", Json()) == manifest_format, "it has no \"format\": \"",
        manifest_format, "\"");
  check(object.at("format_version") == manifest_version, "its format_version is ",
        object.at("format_version").dump(), ", and this version of heed reads ", manifest_version);
  check(take_digest(object) || !verify,
        "it was changed after it was written (--unverified uses it all the same)");
  RunManifest manifest;
  manifest.task = object.at("task").get<std::string>();
  manifest.identity = digest_in(object.at("identity"), "the identity");
  check(object.at("config").is_array(), "\"config\" is not a list");
  for (const Json& digest : object.at("config"))
    manifest.config.push_back(digest_in(digest, "the digest of config.json"));
  check(manifest.config.size() == 1 || manifest.config.size() == 2, "it has ", manifest.config.size(),
        " digests of config.json");
  manifest.files = texts_in(object, "files");
  for (const auto& [name, digest] : manifest.files) {
    check(is_name_of_run_file(name), "it names a file \"", name, "\", which no run has");
    check(is_digest(digest), "the digest of \"", name, "\" is \"", digest, "\", not 32 hexadecimal digits");
  }
  manifest.data = texts_in(object, "data");
  if (object.contains("origin")) manifest.origin = texts_in(object, "origin");
  return manifest;
}

}  // namespace

bool is_name_of_run_file(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find_first_of(std::string_view("/\0", 2)) == name.npos &&
         unicode::find_invalid(name) == name.npos &&
         std::find(common_names.begin(), common_names.end(), name) == common_names.end();
}

std::string run_manifest_text(const RunManifest& manifest) {
  Json object{{"format", manifest_format}, {"format_version", manifest_version}, {"heed_version", version}};
  object["task"] = manifest.task;
  object["identity"] = manifest.identity;
  object["config"] = manifest.config;
  object["files"] = manifest.files;
  object["data"] = manifest.data;
  if (!manifest.origin.empty()) object["origin"] = manifest.origin;
  try {
    add_digest(object);
    return object.dump(2) + "\n";
  } catch (const Json::exception&) {
    fail("cannot write run.json: the name of the task or of a part of the data is not valid UTF-8");
  }
}

RunManifest parse_run_manifest(std::string_view text, std::string_view source, bool verify) {
  try {
    return manifest_of(parse_json<Json>(text, "it", 4), verify);
  } catch (const Json::exception& error) {
    fail(source, " is damaged or of other software: ", error.what());
  } catch (const Error& error) {
    fail(source, " is damaged or of other software: ", error.what());
  }
}

}  // namespace heed
